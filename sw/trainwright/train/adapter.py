"""Widths by need: of each tensor the narrowest fixed point that holds a quantisation error.

Values are those of one step in 16 bits on the golden model, of a calibration batch. The error of a
tensor is that of rounding it alone, relative RMS: sqrt(sum (q - x)^2 / sum x^2), at the exponent
where it is least.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from trainwright.accelerator import Run
from trainwright.compiler import compile_step
from trainwright.driver import Driver, fitting_exponent
from trainwright.driver.model import BackwardResult, ForwardResult
from trainwright.fixed.quantise import dequantise, quantise
from trainwright.fixed.scale import Scales
from trainwright.formats import CLASSES, Fixed
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Network
from trainwright.network.numbers import Widths
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import digit_count
from trainwright.train.model import Model

WIDEST = 16
MOST_VALUES = 1 << 16
"""Of a tensor that are looked at, evenly spread over it."""
_EXPONENTS = 5
"""Tried below the one at which nothing saturates."""
_LEAST = {"factor": 2}
_LEAST_OTHERS = 4

Gradient = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Choice:
    """What was chosen of one tensor."""

    tensor: str
    kind: str
    """Its class."""
    width: int
    error: float
    """At that width."""
    passes: int
    """That a contraction with it takes on the accelerator; of factors alone more than 1."""
    held: bool
    """Whether the error asked for is held: words may have too few bits."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def error_at(values: torch.Tensor, width: int) -> float:
    """Relative RMS error of rounding to ``width`` bits; 0 for values that are all 0."""
    size = float(values.square().sum())
    if not size:
        return 0.0
    fmt = Fixed(width)
    top = fitting_exponent(values, fmt)

    def lost(exponent: int) -> float:
        words = quantise(values, exponent, fmt)
        return float((dequantise(words, exponent, fmt) - values).square().sum())

    return (min(map(lost, range(top - _EXPONENTS, top + 1))) / size) ** 0.5


def narrowest(values: torch.Tensor, error: float, kind: str, most: int) -> tuple[int, float]:
    """The least width up to ``most`` of at most this error, or ``most``; and its error."""
    step = -(-values.numel() // MOST_VALUES)
    some = values.flatten()[::step].to(torch.float64)
    width = _LEAST.get(kind, _LEAST_OTHERS)
    while (found := error_at(some, width)) > error and width < most:
        width += 1
    return width, found


def _written(run: Run | None, result: ForwardResult | BackwardResult) -> dict[str, torch.Tensor]:
    """The values of every tensor that a pass wrote and counted."""
    found: dict[str, list[np.ndarray]] = {}
    assert run is not None and run.traces is not None
    for engine in ("pe1", "pe2"):
        trace, start = run.traces[engine], 0
        for name, rows in trace.labels:
            if name in result.statistics:
                found.setdefault(name, []).append(trace.rows[start : start + rows])
            start += rows
    return {
        name: torch.from_numpy(np.concatenate(parts)).double()
        * 2.0 ** result.statistics[name].exponent
        for name, parts in found.items()
    }


def in_width(network: Network, width: int) -> Network:
    """The same network, all tensors of ``width`` bits in fixed point."""
    widths = Widths(bias=network.widths.bias, **dict.fromkeys(CLASSES, width))
    return replace(network, widths=widths, coded=(), singles=())


def choose(
    model: Model,
    inputs: torch.Tensor,
    gradient_of: Gradient,
    error: float,
    p: AcceleratorParameters,
    *,
    plan: str = "auto",
) -> list[Choice]:
    """A width for each factor, the inputs, and every tensor that a step makes in its class's width.

    ``model``: of ``in_width(network, 16)``; ``inputs`` (batch, I) words of its activations;
    ``gradient_of`` as for ``Driver.calibrate``. ``p``: the accelerator that the widths are for.
    Tensors of more bits than its words are held at these; factors of more are computed by digits.
    """
    network, batch = model.network, len(inputs)
    wide = replace(p, word_width=16, factor_width=WIDEST, formats=(), accumulator_width=48)
    with GoldenAccelerator(wide, memory_bytes=1 << 26) as golden:
        driver = Driver(golden, network, batch, plan=plan, trace=True)
        words, scales = model.quantised(), Scales()
        driver.calibrate(inputs, gradient_of, words, scales)
        forward = driver.forward(inputs, words, scales)
        backward = driver.backward(gradient_of(forward.logits), scales)
        tensors = _written(forward.run, forward) | _written(backward.run, backward)
        kinds = {
            name: s.kind.value for one in (forward, backward) for name, s in one.statistics.items()
        }
    own = _follow_their_class(network, batch, wide, plan)
    inputs_real = inputs.double() * 2.0**driver.input_exponent
    choices = [_choice("x", "activation", inputs_real, error, p)]
    for number, layer in enumerate(model.factors, 1):
        for n, factor in enumerate(layer, 1):
            choices.append(_choice(f"l{number}.G{n}", "factor", factor.value, error, p))
    for name in sorted(tensors.keys() & own):
        choices.append(_choice(name, kinds[name], tensors[name], error, p))
    return choices


def _follow_their_class(
    network: Network, batch: int, p: AcceleratorParameters, plan: str
) -> frozenset[str]:
    """Tensors whose width is that of their class: not those merged or summed on chip."""
    step = compile_step(in_width(network, 8), batch, p, plan=plan)
    programs = (step.forward, step.backward)
    return frozenset(t.name for one in programs for t in one.tensors if t.format == Fixed(8))


def _choice(
    name: str, kind: str, values: torch.Tensor, error: float, p: AcceleratorParameters
) -> Choice:
    most = WIDEST if kind == "factor" else p.word_width
    width, found = narrowest(values, error, kind, most)
    passes = digit_count(width) if width > p.word_width else 1
    return Choice(name, kind, width, found, passes, found <= error)


def formats_text(network: Network, choices: Iterable[Choice]) -> str:
    """What ``--formats`` takes: factors and activations by name, the other classes' widest."""
    widest: dict[str, int] = {}
    singles = []
    for choice in choices:
        if choice.tensor in network.nameable:
            singles.append(f"{choice.tensor}=fixed({choice.width})")
        else:
            widest[choice.kind] = max(choice.width, widest.get(choice.kind, 0))
    classes = [f"{kind}=fixed({widest[kind]})" for kind in CLASSES if kind in widest]
    return ",".join([*classes, *singles])
