"""Warn of a user's kernel whose results saturate at the sizes that values of training have.

The vector engine counts no saturation of results that keep the exponent of their operand.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from trainwright.fixed.health import LostTensorWarning
from trainwright.fixed.scale import ScaleRange, ScaleRanges
from trainwright.functions.record import FunctionKernel, place_of, result_of
from trainwright.kernels import Body, evaluate
from trainwright.kernels.trace import trace, trace_groups
from trainwright.support.caution import warn_user

MOST_CUT = 0.01
"""Share of cut results above which a kernel is reported."""
SAMPLES = 4096
"""Values of the sample."""
NORMAL_MEAN, RECTIFIED_MEAN = 0.798, 0.399
"""Mean size of normal numbers of a deviation of 1, and of those with zeros for negative ones."""
REMEDIES = (
    "give whole_bits=, and return k.fixed of k.scaled values; or shift the result right, by "
    ".rounded, and give the rule of its exponent, scale=",
    "shift it right, by .rounded, and give the rule of its exponent, gradient_scale=",
)
"""Remedies for a result and for a gradient."""
RULES = "scale", "gradient_scale"
"""Options with the rule of the exponent of a result, and of a gradient."""


@lru_cache(512)
def warn_of_saturation(kernel: FunctionKernel, widths: tuple[int, ...], width: int) -> None:
    """Warn once of a user's kernel that cuts many results of ``width`` bits."""
    if _is_cut_by_intention(kernel) or kernel.automatic:
        return
    if (share := cut_share(kernel, widths, width)) > MOST_CUT:
        _warn(kernel, share, width, "in a program")


def _is_cut_by_intention(kernel: FunctionKernel) -> bool:
    """Return whether results end at a range that was chosen: the library's, and ``whole_bits``.

    Of the library only dropout has a parameter, the probability, by which results saturate.
    """
    if kernel.function.definition.is_library:
        return not _is_dropout(kernel)
    return kernel.whole_bits is not None


def _is_dropout(kernel: FunctionKernel) -> bool:
    own = kernel.function.definition
    return own.is_library and own.name == "dropout"


@lru_cache(512)
def _warn(kernel: FunctionKernel, share: float, width: int, place: str) -> None:
    rule, exponent, remedy = RULES[kernel.primed], "the operand", REMEDIES[kernel.primed]
    where, guide = f"{place_of(kernel.body)}: ", "your-own-kernel.md"
    if kernel.function.definition.is_library:
        remedy, where, guide = "use a lower probability", "", "networks.md"
    elif not kernel.keeps_exponent:
        exponent = f"the rule {rule}="
        remedy = "let the rule raise the exponent further, and shift the result right as far"
    warn_user(
        f"{where}{kernel.text}: {share:.0%} of the results need more than "
        f"{width} bits at the exponent of {exponent}, and saturate {place}: {remedy} "
        f"(docs/guide/{guide})",
        LostTensorWarning,
    )


def warn_in_torch(
    kernel: FunctionKernel, operands: Sequence[Any], widths: Sequence[int], width: int,
    exponents: Sequence[int], result: Any, size: int,
) -> None:  # fmt: skip
    """Warn once of a user's kernel that cuts many results of these ``operands`` in torch.

    ``operands`` are rows of groups or of lanes, of which ``size`` values are no padding.
    """
    if kernel in _reported or _is_cut_by_intention(kernel):
        return
    most = (1 << (width - 1)) - 1
    if int((np.abs(result) >= most).sum()) <= MOST_CUT * size:  # a measurement takes longer
        return
    share = _share(kernel, operands, exponents, widths, width) * result.size / size
    if share > MOST_CUT:
        _reported.add(kernel)
        _warn(kernel, share, width, "in torch")


_reported: set[FunctionKernel] = set()
"""Kernels of which ``warn_in_torch`` warned."""


def cut_share(kernel: FunctionKernel, widths: Sequence[int], width: int) -> float:
    """Return the share of results that need more than ``width`` bits, of operands of usual size.

    Values that the kernel's own text clips do not count.
    """
    group = kernel.group
    drawn, ranges = np.random.RandomState(0), ScaleRanges()
    kinds = (ranges.gradient, ranges.activation) if kernel.primed else (ranges.activation,) * 2
    shape = (max(SAMPLES // (group or 16), 1), group or 16)
    words = [_words(drawn, kind, w, shape) for kind, w in zip(kinds, widths, strict=False)]
    if _is_dropout(kernel) and not kernel.primed:
        # Most dropouts follow a ReLU or a GELU: the same mean comes from fewer, larger values.
        words[0] = np.rint(words[0] * (NORMAL_MEAN / RECTIFIED_MEAN)).astype(np.int64).clip(0)
        words[1] = np.ones_like(words[1])  # a mask that keeps every value
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
    return _share(kernel, words, exponents, widths, width)


def _share(
    kernel: FunctionKernel, operands: Sequence[Any], exponents: Sequence[int],
    widths: Sequence[int], width: int,
) -> float:  # fmt: skip
    """Return the share of results of these operands that need more than ``width`` bits."""
    options: dict[str, Any] = {"function": kernel, "widths": tuple(widths), "width": width}
    group = kernel.group
    body = trace_groups(_cut_pass, group, **options) if group else trace(_cut_pass, **options)
    rows = {f"x{n}": operand for n, operand in enumerate(operands)}
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
