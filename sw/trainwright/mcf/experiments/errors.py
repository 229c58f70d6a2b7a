"""Figures 1, 8 and 9: relative errors of sums and products against the operands' magnitude.

Operands are drawn as in the paper, (10 - N(0, 1))^m in 3,000 bits, and rounded to components;
results are compared with mpmath's results for the components' values, in as many bits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import torch
from torch import Tensor

from trainwright import mcf
from trainwright.support.finding import Progress, silent, tracked

PRECISION = 3000
"""Bits of the reference."""
MAGNITUDES = tuple(m for m in range(-12, 13) if m)
"""Exponents m; with 0 all numbers are 1.

Products of two numbers stay in float32's range, while the third components of the smallest numbers
do not.
"""
HELD = 2
"""Magnitude of y while that of x varies (figure 9)."""
OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "add": (lambda x, y: x + y, True),
    "scaling": (lambda x, y: x * y, False),
    "multiply": (lambda x, y: x * y, True),
}
"""Function of each operation, and whether the second operand is multi-component."""


@dataclass(frozen=True)
class ErrorPoint:
    """Errors of one operation in one type at one magnitude."""

    figure: int
    """8: both operands have the magnitude (figure 1 is its multiplication); 9: y has ``HELD``."""
    operation: str
    way: str
    magnitude: int
    mean: float
    """Mean relative error of the results."""
    largest: float


def drawn(magnitude: int, count: int, draw: np.random.Generator) -> list[Any]:
    """Draw numbers around 10^magnitude in mpmath's present precision."""
    return [mpmath.mpf(10 - z) ** magnitude for z in draw.standard_normal(count)]


def _rounded(values: list[Any], nc: int) -> Tensor:
    """Split numbers into float32 components (values, nc), each the rounding of the remainder."""
    rows = []
    for value in values:
        parts = []
        for _ in range(nc):
            parts.append(float(np.float32(mpmath.nstr(value, 40))))
            value = value - parts[-1]
        rows.append(parts)
    return torch.tensor(rows, dtype=torch.float32)


def _errors(operation: str, x: Tensor, y: Tensor) -> list[float]:
    """Return relative errors of components (values, nc); one component uses torch's arithmetic."""
    function, multi = OPERATIONS[operation]
    nc = x.shape[-1]
    y = y if multi else y[:, :1]
    if nc == 1:
        results = function(x[:, 0], y[:, 0]).unsqueeze(-1)
    else:
        right = mcf.MCTensor.from_components(y) if multi else y[:, 0]
        results = function(mcf.MCTensor.from_components(x), right).components
    errors = []
    for got, a, b in zip(*(t.double().tolist() for t in (results, x, y)), strict=True):
        wanted = function(mpmath.fsum(a), mpmath.fsum(b))
        errors.append(float(abs(mpmath.fsum(got) - wanted) / abs(wanted)))
    return errors


def run(
    count: int = 100,
    magnitudes: tuple[int, ...] = MAGNITUDES,
    seed: int = 0,
    *,
    progress: Progress = silent,
) -> list[ErrorPoint]:
    """Measure every operation with 1, 2 and 3 components at every magnitude."""
    points: list[ErrorPoint] = []
    draw = np.random.default_rng(seed)
    with mpmath.workprec(PRECISION):
        for magnitude in tracked(magnitudes, progress):
            x, same = (drawn(magnitude, count, draw) for _ in range(2))
            for figure, second in ((8, same), (9, drawn(HELD, count, draw))):
                for nc in (1, 2, 3):
                    a, b = _rounded(x, nc), _rounded(second, nc)
                    for operation in OPERATIONS:
                        errors = _errors(operation, a, b)
                        way = "float32" if nc == 1 else f"mcf nc={nc}"
                        mean = math.fsum(errors) / count
                        points.append(
                            ErrorPoint(figure, operation, way, magnitude, mean, max(errors))
                        )  # fmt: skip
    return points
