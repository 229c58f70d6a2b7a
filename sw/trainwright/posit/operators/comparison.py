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


@covers("relu")
def relu(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute max(x, 0)."""
    return torch.relu(x)


@covers("threshold_backward")
def threshold_backward(fmt: PositFormat, g: Tensor, x: Tensor, threshold: float) -> Tensor:
    """Pass the gradient where x is above the threshold or NaR, 0 elsewhere."""
    return torch.where(x <= number(threshold, fmt), 0.0, g)


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
