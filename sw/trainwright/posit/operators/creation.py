"""Operators that create or fill tensors; numbers given to them are rounded to the format."""

from typing import Any

import torch
from torch import Tensor

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import covers, number, operand, operator, own_type, writes
from trainwright.posit.rounding import round_to


def _make(name: str) -> None:
    call = operator(name)

    @covers(name)
    def rule(fmt: PositFormat, x: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        _real_type(dtype, fmt)
        return call(x, *args, dtype=dtype, **kwargs)


def _real_type(dtype: torch.dtype | None, fmt: PositFormat) -> None:
    """Accept integer types for tensors shaped like posits; reject floats other than the carrier."""
    if dtype is not None and (dtype.is_floating_point or dtype.is_complex):
        own_type(dtype, fmt)


for _name in ("empty_like", "zeros_like", "ones_like", "new_empty", "new_zeros", "new_ones",
              "new_empty_strided"):  # fmt: skip
    _make(_name)


def _full(name: str) -> None:
    call = operator(name)

    @covers(name)
    def rule(fmt: PositFormat, x: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        """Fill with a number rounded to the format, or with an integer for an integer type."""
        _real_type(dtype, fmt)
        *size, fill = args
        fill = number(fill, fmt) if dtype is None or dtype.is_floating_point else fill
        return call(x, *size, fill, dtype=dtype, **kwargs)


for _name in ("full_like", "new_full"):
    _full(_name)


@covers("_to_copy")
def to_copy(
    fmt: PositFormat, x: Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Tensor:
    """Copy to another device or memory layout, or to booleans or integers, cutting fractions.

    Raises ``PositError`` for other float types, and for NaR and numbers out of an integer's range.
    """
    _real_type(dtype, fmt)
    if dtype not in (None, torch.bool) and not dtype.is_floating_point:
        ends = torch.iinfo(dtype)
        whole = x.trunc()
        outside = x[~((whole >= float(ends.min)) & (whole < float(ends.max + 1)))]
        if outside.numel():
            value = "NaR" if outside[0].isnan() else f"{outside[0].item():g}"
            raise PositError(f"{value} is no {dtype}; clamp the posits, or use decode()")
    return operator("_to_copy")(x, dtype=dtype, **kwargs)


@writes("zero_")
def zero(fmt: PositFormat, x: Tensor) -> Tensor:
    """Return zeros in the shape of ``x``."""
    return torch.zeros_like(x)


@writes("fill_.Scalar", "fill_.Tensor")
def fill(fmt: PositFormat, x: Tensor, value: float | Tensor) -> Tensor:
    """Fill with a value; a number is rounded to the format."""
    return operand(value, fmt, x).expand(x.shape)


def _random(name: str) -> None:
    call = operator(name)

    @writes(name)
    def rule(fmt: PositFormat, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return round_to(call(torch.empty_like(x), *args, **kwargs), fmt)


for _name in ("uniform_", "normal_", "bernoulli_.float", "exponential_"):
    _random(_name)


def _random_like(name: str) -> None:
    call = operator(name)

    @covers(name)
    def rule(fmt: PositFormat, x: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        _real_type(dtype, fmt)
        y = call(x, *args, dtype=dtype, **kwargs)
        return round_to(y, fmt) if y.is_floating_point() else y


for _name in ("rand_like", "randn_like", "randint_like", "randint_like.low_dtype"):
    _random_like(_name)


@covers("bernoulli")
def bernoulli(fmt: PositFormat, x: Tensor, *, generator: Any = None) -> Tensor:
    """Draw 0 and 1, where 1 has the probability ``x``."""
    return torch.bernoulli(x, generator=generator)
