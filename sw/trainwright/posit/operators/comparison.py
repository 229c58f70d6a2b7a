"""Comparisons and selections by order. NaR equals itself and is below every other value."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.posit.operators.registry import covers, number, operand


def _comparable(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), float("-inf"), x)


def _compare(name: str) -> None:
    compare: Callable[[Tensor, Tensor], Tensor] = getattr(torch, name)

    @covers(f"{name}.Tensor", f"{name}.Scalar")
    def rule(fmt: PositFormat, x: Tensor, y: Tensor | float) -> Tensor:
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


@covers("clamp")
def clamp(
    fmt: PositFormat, x: Tensor, low: float | None = None, high: float | None = None
) -> Tensor:
    """Clamp between limits, which are rounded to the format first."""
    ends = (None if end is None else number(end, fmt) for end in (low, high))
    return torch.clamp(x, *ends)


@covers("clamp_min")
def clamp_min(fmt: PositFormat, x: Tensor, low: float) -> Tensor:
    """Clamp from below by a limit that is rounded to the format first."""
    return torch.clamp(x, min=number(low, fmt))


@covers("clamp_max")
def clamp_max(fmt: PositFormat, x: Tensor, high: float) -> Tensor:
    """Clamp from above by a limit that is rounded to the format first."""
    return torch.clamp(x, max=number(high, fmt))


@covers("clamp.Tensor")
def clamp_between(
    fmt: PositFormat, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> Tensor:
    """Clamp between tensors of limits; NaR if x or a limit is NaR."""
    ends = (None if end is None else operand(end, fmt, x) for end in (low, high))
    return torch.clamp(x, *ends)


@covers("clamp_min.Tensor")
def clamp_from(fmt: PositFormat, x: Tensor, low: Tensor) -> Tensor:
    """Clamp from below by a tensor of limits."""
    return clamp_between(fmt, x, low)


@covers("clamp_max.Tensor")
def clamp_to(fmt: PositFormat, x: Tensor, high: Tensor) -> Tensor:
    """Clamp from above by a tensor of limits."""
    return clamp_between(fmt, x, None, high)


@covers("relu")
def relu(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute max(x, 0)."""
    return torch.relu(x)


@covers("threshold")
def threshold(fmt: PositFormat, x: Tensor, limit: float, value: float) -> Tensor:
    """Replace each x that is at most a limit; limit and replacement are rounded first."""
    return torch.where(x <= number(limit, fmt), number(value, fmt), x)


@covers("threshold_backward")
def threshold_backward(fmt: PositFormat, g: Tensor, x: Tensor, threshold: float) -> Tensor:
    """Pass the gradient where x is above the threshold or NaR, 0 elsewhere."""
    return torch.where(x <= number(threshold, fmt), 0.0, g)


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
