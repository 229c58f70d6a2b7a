"""Widths by need: the narrowest fixed point of each tensor that holds a quantisation error.

Values come from one step of a calibration batch on the golden model, in 16 bits. A tensor's error
is the relative RMS error of rounding that tensor alone, sqrt(sum (q - x)^2 / sum x^2), at the
exponent where the error is least.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

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
from trainwright.program.engines import ARRAYS
from trainwright.train.model import Model

WIDEST = 16
"""Bits of the widest factor, and of all values while they are measured."""
MOST_VALUES = 1 << 16
"""Values of a tensor that are measured, evenly spread over the tensor."""
_EXPONENTS = 5
"""Exponents to try below the exponent at which nothing saturates."""
# Two bits are the least that hold a sign and a magnitude; a factor may go that low because training
# adapts the factor to its levels. Activations and gradients follow the data instead.
_LEAST_WIDTH = {"factor": 2}
_LEAST_WIDTH_ELSEWHERE = 4

Gradient = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class WidthChoice:
    """Width chosen for one tensor, with the error and cost of that width."""

    tensor: str
    kind: str
    """Class of the tensor: factor, activation or gradient."""
    width: int
    error: float
    """Relative RMS quantisation error at ``width``."""
    passes: int
    """Passes that a contraction takes with this operand: over 1 if it is wider than a word."""
    held: bool
    """Whether ``error`` is within the bound asked for; the widest word may have too few bits."""


def error_at(values: torch.Tensor, width: int) -> float:
    """Return the relative RMS error of rounding to ``width`` bits; 0 if all values are 0."""
    size = float(values.square().sum())
    if not size:
        return 0.0
    fmt = Fixed(width)
    top = fitting_exponent(values, fmt)

    def lost(exponent: int) -> float:
        words = quantise(values, exponent, fmt)
        return float((dequantise(words, exponent, fmt) - values).square().sum())

    # A few saturated outliers can cost less than a coarser step for all values, so exponents below
    # the fitting one compete as well.
    return (min(map(lost, range(top - _EXPONENTS, top + 1))) / size) ** 0.5


def narrowest(values: torch.Tensor, error: float, kind: str, most: int) -> tuple[int, float]:
    """Return the least width up to ``most`` that meets ``error``, and the error of that width.

    Where no width meets it, the width is ``most``.
    """
    step = -(-values.numel() // MOST_VALUES)
    sample = values.flatten()[::step].to(torch.float64)
    # Widths are tried upwards: the first that meets the bound is the answer, and the narrow ones
    # that most tensors need are the cheapest to measure.
    width = _LEAST_WIDTH.get(kind, _LEAST_WIDTH_ELSEWHERE)
    while (lost := error_at(sample, width)) > error and width < most:
        width += 1
    return width, lost


def _written(run: Run | None, result: ForwardResult | BackwardResult) -> dict[str, torch.Tensor]:
    """Return the values of every tensor that a pass wrote and counted statistics of."""
    rows_of: dict[str, list[np.ndarray]] = {}
    assert run is not None and run.traces is not None
    for spec in ARRAYS.values():
        trace, start = run.traces[spec.unit], 0
        # A trace holds the rows of all tensors in the order of writing; `labels` cuts it into
        # tensors.
        for name, rows in trace.labels:
            if name in result.statistics:
                rows_of.setdefault(name, []).append(trace.rows[start : start + rows])
            start += rows
    return {
        name: torch.from_numpy(np.concatenate(parts)).double()
        * 2.0 ** result.statistics[name].exponent
        for name, parts in rows_of.items()
    }


def in_width(network: Network, width: int) -> Network:
    """Return the network with every tensor in fixed point of ``width`` bits."""
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
) -> list[WidthChoice]:
    """Choose a width for each factor, the inputs, and every tensor whose width its class sets.

    ``model`` belongs to ``in_width(network, 16)``; ``inputs`` (batch, I) are words of its
    activations; ``gradient_of`` is the argument of ``Driver.calibrate``. ``p`` describes the
    accelerator that the widths are for: tensors of more bits than its words stop at its word width,
    factors of more bits are computed in digits.
    """
    network, batch = model.network, len(inputs)
    # Measure on the widest machine there is, so that the values carry no error of the machine that
    # the widths are chosen for.
    engine = p.vector_engine or int(network.needs_vector_engine)
    wide = replace(
        p, word_width=16, factor_width=WIDEST, formats=(), accumulator_width=48,
        vector_engine=engine,
    )  # fmt: skip
    with GoldenAccelerator(wide, memory_bytes=1 << 26) as golden:
        driver = Driver(golden, network, batch, plan=plan, trace=True)
        words, scales = model.quantised(), Scales()
        driver.calibrate(inputs, gradient_of, words, scales)
        forward = driver.forward(inputs, words, scales)
        backward = driver.backward(gradient_of(forward.logits), scales)
        tensors = _written(forward.run, forward) | _written(backward.run, backward)
        kinds = {
            name: s.kind.value
            for result in (forward, backward)
            for name, s in result.statistics.items()
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
    """Return the tensors that have the format of their class.

    Tensors between merged contractions and partial sums have formats of their own.
    """
    # In a network whose classes all have 8 bits, exactly these tensors have 8 bits.
    step = compile_step(in_width(network, 8), batch, p, plan=plan)
    return frozenset(t.name for t in step.tensors if t.format == Fixed(8))


def _choice(
    name: str, kind: str, values: torch.Tensor, error: float, p: AcceleratorParameters
) -> WidthChoice:
    most = WIDEST if kind == "factor" else p.word_width
    width, lost = narrowest(values, error, kind, most)
    passes = digit_count(width) if width > p.word_width else 1
    return WidthChoice(name, kind, width, lost, passes, lost <= error)


def formats_text(network: Network, choices: Iterable[WidthChoice]) -> str:
    """Return the value of ``--formats``: factors and activations by name, other classes' widest."""
    widest: dict[str, int] = {}
    singles = []
    # Gradients cannot be named on the command line, so the widest need of a class decides for it.
    for choice in choices:
        if choice.tensor in network.nameable:
            singles.append(f"{choice.tensor}=fixed({choice.width})")
        else:
            widest[choice.kind] = max(choice.width, widest.get(choice.kind, 0))
    classes = [f"{kind}=fixed({widest[kind]})" for kind in CLASSES if kind in widest]
    return ",".join([*classes, *singles])
