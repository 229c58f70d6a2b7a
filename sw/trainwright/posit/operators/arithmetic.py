"""Element-wise arithmetic; every operation rounds, also inside a compound operator.

Numbers are rounded to the format before use. Compound operators compute in this order: add with
alpha x + (alpha y), addcmul x + ((value a) b), addcdiv x + ((value a) / b), lerp x + w (y - x), or
y - (y - x) (1 - w) for w >= 1/2.
"""

import math

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositFormat
from trainwright.posit.operators import functions
from trainwright.posit.operators.registry import (
    RULES,
    FloatMask,
    covers,
    number,
    operand,
    operator,
    refuse_complex,
)

Value = Tensor | float


def _pair(x: Value, y: Value, fmt: PositFormat) -> tuple[Tensor, Tensor]:
    like = x if isinstance(x, Tensor) else y
    assert isinstance(like, Tensor)
    return operand(x, fmt, like), operand(y, fmt, like)


def scaled(x: Tensor, factor: float, fmt: PositFormat) -> Tensor:
    """Multiply ``x`` by ``factor``, skipping a factor of 1."""
    return x if factor == 1 else grid.mul(x, operand(factor, fmt, x), fmt)


@covers("add.Tensor", "add.Scalar", out="add.out")
def add(fmt: PositFormat, x: Value | FloatMask, y: Value | FloatMask, alpha: float = 1) -> Tensor:
    """Compute x + alpha y; a mask hides scores."""
    for mask, scores in ((x, y), (y, x)):
        if isinstance(mask, FloatMask):
            assert isinstance(scores, Tensor)
            return mask.hide(scores, fmt)
    assert not isinstance(x, FloatMask) and not isinstance(y, FloatMask)
    x, y = _pair(x, y, fmt)
    return grid.add(x, scaled(y, alpha, fmt), fmt)


@covers("sub.Tensor", "sub.Scalar", out="sub.out")
def sub(fmt: PositFormat, x: Value, y: Value, alpha: float = 1) -> Tensor:
    """Compute x - alpha y."""
    x, y = _pair(x, y, fmt)
    return grid.sub(x, scaled(y, alpha, fmt), fmt)


@covers("rsub.Tensor", "rsub.Scalar")
def rsub(fmt: PositFormat, x: Value, y: Value, alpha: float = 1) -> Tensor:
    """Compute y - alpha x."""
    return sub(fmt, y, x, alpha)


@covers("mul.Tensor", "mul.Scalar", out="mul.out")
def mul(fmt: PositFormat, x: Value, y: Value) -> Tensor:
    """Multiply element by element."""
    return grid.mul(*_pair(x, y, fmt), fmt)


@covers("div.Tensor", "div.Scalar", out="div.out")
def div(fmt: PositFormat, x: Value, y: Value) -> Tensor:
    """Divide ``x`` by ``y``; NaR where ``y`` is 0."""
    return grid.div(*_pair(x, y, fmt), fmt)


@covers("reciprocal")
def reciprocal(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute 1 / x; NaR where x is 0."""
    return div(fmt, 1.0, x)


@covers("sqrt")
def sqrt(fmt: PositFormat, x: Tensor) -> Tensor:
    """Take the square root; NaR below 0."""
    return grid.sqrt(x, fmt)


@covers("rsqrt")
def rsqrt(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute 1 / root x, rounded once; NaR from 0 downwards."""
    return grid.rsqrt(x, fmt)


@covers("pow.Tensor_Scalar", in_place="pow_.Scalar")
def power(fmt: PositFormat, x: Tensor, exponent: float) -> Tensor:
    """Raise to a number: integers from -3 to 3 multiply from the left, (x x) x.

    A negative one of these, and -1/2, takes the reciprocal last. Others are one function of x.
    """
    refuse_complex(exponent, fmt)
    if exponent == 0:
        return torch.where(x.isnan(), x, 1.0)
    if abs(exponent) not in (0.5, 1, 2, 3):
        return functions.raised(x, exponent, fmt)
    if exponent < 0:
        return reciprocal(fmt, power(fmt, x, -exponent))
    if exponent == 0.5:
        return sqrt(fmt, x)
    product = x.clone()
    for _ in range(int(exponent) - 1):
        product = grid.mul(product, x, fmt)
    return product


@covers("pow.Tensor_Tensor", in_place="pow_.Tensor")
def powers(fmt: PositFormat, x: Value, exponents: Tensor) -> Tensor:
    """Raise to a tensor of exponents, rounding once; NaR for NaR."""
    x = operand(x, fmt, exponents)
    bases, exponents = torch.broadcast_tensors(x, operand(exponents, fmt, x))
    return functions.raised(bases, exponents, fmt)


RULES[operator("pow.Scalar")] = powers  # the name in place, ``pow_.Scalar``, is that of ``power``


@covers("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def xlogy(fmt: PositFormat, x: Value, y: Value) -> Tensor:
    """Compute x log y, and 0 for x = 0 unless y is NaR."""
    x, y = _pair(x, y, fmt)
    product = grid.mul(x, functions.apply("log", y, fmt), fmt)
    return torch.where((x == 0) & ~y.isnan(), 0.0, product)


@covers("logaddexp")
def logaddexp(fmt: PositFormat, x: Tensor, y: Tensor) -> Tensor:
    """Compute max + log1p(exp(min - max))."""
    high, low = torch.maximum(x, y), torch.minimum(x, y)
    e = functions.apply("exp", grid.sub(low, high, fmt), fmt)
    return grid.add(high, functions.apply("log1p", e, fmt), fmt)


@covers("logit_backward")
def logit_backward(fmt: PositFormat, g: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    """Compute g / (x (1 - x)); 0 beyond the limits of ``eps``, NaR outside 0 to 1."""
    low = 0.0 if eps is None else number(eps, fmt)
    high = 1.0 if eps is None else number(1 - eps, fmt)
    y = grid.div(g, grid.mul(x, grid.sub(x.new_ones(()), x, fmt), fmt), fmt)
    return torch.where((x < low) | (x > high), math.nan if eps is None else 0.0, y)


@covers("addcmul")
def addcmul(fmt: PositFormat, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """Compute x + ((value a) b)."""
    return grid.add(x, grid.mul(scaled(a, value, fmt), b, fmt), fmt)


@covers("addcdiv")
def addcdiv(fmt: PositFormat, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    """Compute x + ((value a) / b)."""
    return grid.add(x, grid.div(scaled(a, value, fmt), b, fmt), fmt)


@covers("lerp.Scalar")
def lerp(fmt: PositFormat, x: Tensor, y: Tensor, weight: float) -> Tensor:
    """Compute x + w (y - x), or y - (y - x) (1 - w) for w >= 1/2; 1 - w is rounded once."""
    difference = grid.sub(y, x, fmt)
    if abs(weight) < 0.5:
        return grid.add(x, scaled(difference, weight, fmt), fmt)
    remainder = number(1 - weight, fmt)
    return grid.sub(y, scaled(difference, remainder, fmt), fmt)


@covers("lerp.Tensor")
def lerp_between(fmt: PositFormat, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Compute ``lerp`` with a weight for each element; 1 - w is rounded."""
    difference = grid.sub(y, x, fmt)
    rest = grid.sub(weight.new_ones(()), weight, fmt)
    near = grid.add(x, grid.mul(weight, difference, fmt), fmt)
    far = grid.sub(y, grid.mul(difference, rest, fmt), fmt)
    return torch.where(weight.abs() < 0.5, near, far)
