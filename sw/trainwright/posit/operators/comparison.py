"""Comparisons, and what follows from them. NaR equals itself and lies below every other value."""

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
    """Of tensors as a whole."""
    return torch.equal(_comparable(x), _comparable(operand(y, fmt, x)))


@covers("maximum", out="maximum.out")
def maximum(fmt: PositFormat, x: Tensor, y: Tensor) -> Tensor:
    """NaR where one is."""
    return torch.maximum(x, operand(y, fmt, x))


@covers("minimum", out="minimum.out")
def minimum(fmt: PositFormat, x: Tensor, y: Tensor) -> Tensor:
    """NaR where one is."""
    return torch.minimum(x, operand(y, fmt, x))


@covers("clamp")
def clamp(
    fmt: PositFormat, x: Tensor, low: float | None = None, high: float | None = None
) -> Tensor:
    """The limits are rounded to the format."""
    ends = (None if end is None else number(end, fmt) for end in (low, high))
    return torch.clamp(x, *ends)


@covers("clamp_min")
def clamp_min(fmt: PositFormat, x: Tensor, low: float) -> Tensor:
    """The limit is rounded to the format."""
    return torch.clamp(x, min=number(low, fmt))


@covers("clamp_max")
def clamp_max(fmt: PositFormat, x: Tensor, high: float) -> Tensor:
    """The limit is rounded to the format."""
    return torch.clamp(x, max=number(high, fmt))


@covers("relu")
def relu(fmt: PositFormat, x: Tensor) -> Tensor:
    """max(x, 0)."""
    return torch.relu(x)


@covers("threshold_backward")
def threshold_backward(fmt: PositFormat, g: Tensor, x: Tensor, threshold: float) -> Tensor:
    """The gradient where x is above the threshold or NaR, 0 elsewhere."""
    return torch.where(x <= number(threshold, fmt), 0.0, g)


@covers("abs")
def absolute(fmt: PositFormat, x: Tensor) -> Tensor:
    """Exact."""
    return x.abs()


@covers("neg")
def negative(fmt: PositFormat, x: Tensor) -> Tensor:
    """Exact; -0 is 0."""
    return 0 - x


@covers("sgn", "sign")
def sign(fmt: PositFormat, x: Tensor) -> Tensor:
    """-1, 0 or 1; NaR of NaR."""
    return torch.where(x.isnan(), x, x.sign())
