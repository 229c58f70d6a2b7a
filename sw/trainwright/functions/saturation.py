"""Warn of a user's kernel whose results saturate at the sizes that values of training have.

The vector engine counts no saturation of results that keep the exponent of their operand.
"""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from trainwright.fixed.health import LostTensorWarning
from trainwright.fixed.scale import ScaleRange, ScaleRanges
from trainwright.functions.record import FunctionKernel, place_of, result_of
from trainwright.kernels import Body, evaluate
from trainwright.kernels.trace import trace, trace_groups

MOST_CUT = 0.01
"""Share of cut results above which a kernel is reported."""
SAMPLES = 4096
"""Values of the sample."""
NORMAL_MEAN = 0.798
"""Mean size of normal numbers of a deviation of 1."""
REMEDIES = (
    "give whole_bits=, and return k.fixed of k.scaled values; or shift the result right, by "
    ".rounded, and give the rule of its exponent, scale=",
    "shift it right, by .rounded, and give the rule of its exponent, gradient_scale=",
)
"""Remedies for a result and for a gradient."""


@lru_cache(512)
def warn_of_saturation(kernel: FunctionKernel, widths: tuple[int, ...], width: int) -> None:
    """Warn once of a user's kernel that cuts many results of ``width`` bits."""
    if kernel.function.definition.is_library or not kernel.keeps_exponent:
        return
    if (share := cut_share(kernel, widths, width)) > MOST_CUT:
        warnings.warn(
            f"{place_of(kernel.body)}: {kernel.text}: {share:.0%} of the results need more than "
            f"{width} bits at the exponent of the operand, and saturate in a program: "
            f"{REMEDIES[kernel.primed]} (docs/guide/your-own-kernel.md)",
            LostTensorWarning,
            stacklevel=2,
        )


def cut_share(kernel: FunctionKernel, widths: Sequence[int], width: int) -> float:
    """Return the share of results that need more than ``width`` bits, of operands of usual size.

    Values that the kernel's own text clips do not count.
    """
    options: dict[str, Any] = {"function": kernel, "widths": tuple(widths), "width": width}
    group = kernel.group
    body = trace_groups(_cut_pass, group, **options) if group else trace(_cut_pass, **options)
    drawn, ranges = np.random.RandomState(0), ScaleRanges()
    kinds = (ranges.gradient, ranges.activation) if kernel.primed else (ranges.activation,) * 2
    shape = (max(SAMPLES // (group or 16), 1), group or 16)
    words = [_words(drawn, kind, w, shape) for kind, w in zip(kinds, widths, strict=False)]
    exponents = [5 - w for w in widths]  # values with a deviation near 1
    function = kernel.function
    if kernel.primed and function.reduces:
        words[0] = np.repeat(words[0][:, :1], shape[1], 1)
    if kernel.primed and function.reads == "result":
        given = widths[1:2]
        scaling = function.forward.bound(exponents[1:2], widths[1], None)
        traced = function.forward.traced(given, widths[1])
        words[1] = evaluate(traced, {"x0": words[1]}, constants=scaling.constants).rows["z"]
        exponents[1] = scaling.exponent
    rows = {f"x{n}": operand for n, operand in enumerate(words)}
    constants = kernel.bound(exponents, width, None).constants
    high = evaluate(body, rows, constants=constants).rows["z"]
    return float(((high != 0) & (high != -1)).mean())


def _words(
    drawn: np.random.RandomState, kind: ScaleRange, width: int, shape: tuple[int, int]
) -> Any:
    """Draw normal words whose mean size is the middle of a range."""
    full = 1 << (width - 1)
    deviation = (kind.low * kind.high) ** 0.5 * full / NORMAL_MEAN
    return np.clip(np.rint(drawn.normal(0, deviation, shape)), -full, full - 1).astype(np.int64)


def _cut_pass(k: Body, function: FunctionKernel, widths: tuple[int, ...], width: int) -> None:
    """Write the bits of a result above its sign: 0 or -1 where the result has ``width`` bits."""
    k.write("z", (result_of(k, function, widths, width) >> (width - 1)).clip(16))
