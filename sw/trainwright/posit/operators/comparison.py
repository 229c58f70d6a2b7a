"""Comparisons and selections by order. NaR equals itself and is below every other value."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.posit.operators.registry import bound, covers, number, operand

Limit = Tensor | float


def _comparable(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), float("-inf"), x)


def _compare(name: str) -> None:
    compare: Callable[..., Tensor] = getattr(torch, name)

    @covers(f"{name}.Tensor", f"{name}.Scalar")
    def rule(fmt: PositFormat, x: Tensor, y: Tensor | float) -> Tensor:
        # An infinity equals NaR, which isfinite relies on, but no posit reaches it.
        if name not in ("eq", "ne") and isinstance(y, float) and math.isinf(y):
            return compare(_comparable(x), y)
        return compare(_comparable(x), _comparable(operand(y, fmt, x)))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(_name)


@covers("equal")
def equal(fmt: PositFormat, x: Tensor, y: Tensor) -> bool:
    """Return whether whole tensors are equal."""
    return torch.equal(_comparable(x), _comparable(operand(y, fmt, x)))


@covers("allclose")
def allclose(
    fmt: PositFormat,
    x: Tensor,
    y: Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> bool:
    """Compare the values as torch compares floats."""
    return torch.allclose(x, operand(y, fmt, x), rtol, atol, equal_nan)


@covers("maximum", out="maximum.out")
def maximum(fmt: PositFormat, x: Tensor, y: Tensor) -> Tensor:
    """Take the larger element; NaR if either is NaR."""
    return torch.maximum(x, operand(y, fmt, x))


@covers("minimum", out="minimum.out")
def minimum(fmt: PositFormat, x: Tensor, y: Tensor) -> Tensor:
    """Take the smaller element; NaR if either is NaR."""
    return torch.minimum(x, operand(y, fmt, x))


@covers("clamp", "clamp.Tensor")
def clamp(
    fmt: PositFormat, x: Tensor, low: Limit | None = None, high: Limit | None = None
) -> Tensor:
    """Clamp between limits; numbers are rounded first. NaR if x or a limit is NaR."""
    ends: list[Any] = [low, high]
    for i, end in enumerate((low, high)):
        if end is not None:
            ends[i] = operand(end, fmt, x) if isinstance(end, Tensor) else bound(end, fmt)
    return torch.clamp(x, *ends)


@covers("clamp_min", "clamp_min.Tensor")
def clamp_min(fmt: PositFormat, x: Tensor, low: Limit) -> Tensor:
    """Clamp from below."""
    return clamp(fmt, x, low)


@covers("clamp_max", "clamp_max.Tensor")
def clamp_max(fmt: PositFormat, x: Tensor, high: Limit) -> Tensor:
    """Clamp from above."""
    return clamp(fmt, x, None, high)


@covers("threshold")
def threshold(fmt: PositFormat, x: Tensor, limit: float, value: float) -> Tensor:
    """Replace each x that is at most a limit; limit and replacement are rounded first."""
    return torch.where(x <= bound(limit, fmt), number(value, fmt), x)


@covers("threshold_backward")
def threshold_backward(fmt: PositFormat, g: Tensor, x: Tensor, threshold: float) -> Tensor:
    """Pass the gradient where x is above the threshold or NaR, 0 elsewhere."""
    return torch.where(x <= bound(threshold, fmt), 0.0, g)


def _to_integers(name: str) -> None:
    function: Callable[[Tensor], Tensor] = getattr(torch, name)

    @covers(name)
    def rule(fmt: PositFormat, x: Tensor) -> Tensor:
        """Round to an integer without -0; exact, as formats have the integers of their scales."""
        return function(x) + 0.0


for _name in ("floor", "ceil", "trunc", "round"):
    _to_integers(_name)


@covers("copysign.Tensor", "copysign.Scalar")
def copysign(fmt: PositFormat, x: Tensor, y: Tensor | float) -> Tensor:
    """Give the magnitude of x the sign of y; 0 is positive, and NaR gives NaR."""
    y = operand(y, fmt, x)
    return torch.where(y.isnan(), y, torch.where(y < 0, 0 - x.abs(), x.abs()))


@covers("heaviside")
def heaviside(fmt: PositFormat, x: Tensor, at_zero: Tensor) -> Tensor:
    """Return 0 for x < 0, 1 for x > 0, the other tensor's element for x = 0, NaR for NaR."""
    return torch.where(x == 0, at_zero, torch.where(x.isnan(), x, (x > 0).to(x.dtype)))


@covers("abs")
def absolute(fmt: PositFormat, x: Tensor) -> Tensor:
    """Take the magnitude, which is exact."""
    return x.abs()


@covers("neg")
def negative(fmt: PositFormat, x: Tensor) -> Tensor:
    """Change the sign, which is exact; 0 - x avoids a float's -0."""
    return 0 - x


@covers("sgn", "sign")
def sign(fmt: PositFormat, x: Tensor) -> Tensor:
    """Return -1, 0 or 1; NaR for NaR."""
    return torch.where(x.isnan(), x, x.sign())
