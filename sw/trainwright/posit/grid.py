"""Correctly rounded operations on tensors whose values are on a posit grid.

Tensors are of the format's carrier type, NaN for NaR; shapes broadcast; the result is on the grid
in the carrier type. One float operation and one rounding where ``exactness`` shows that to be
right, through rounding to odd elsewhere. x / 0 and the root of a negative number are NaR, and so is
what NaR goes into. Values off the grid are not looked for: ``round_to`` puts them there.
"""

import torch
from torch import Tensor

from trainwright.posit import native, odd
from trainwright.posit.exactness import carrier, products_round_once
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.rounding import round_to


def on_grid(fmt: PositFormat, *tensors: Tensor) -> None:
    """Raises ``PositError`` for a tensor that is not of the format's carrier type."""
    for tensor in tensors:
        if tensor.dtype is not carrier(fmt):
            raise PositError(
                f"values of {fmt} live in {carrier(fmt)}, not {tensor.dtype}; "
                "round_to(x, fmt) puts them there"
            )


def add(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """x + y, rounded once."""
    on_grid(fmt, x, y)
    return _once("add", x, y, fmt)


def sub(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """x - y, rounded once."""
    on_grid(fmt, x, y)
    return _once("sub", x, y, fmt)


def mul(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """x y, rounded once."""
    on_grid(fmt, x, y)
    return _once("mul", x, y, fmt) if products_round_once(fmt) else _to_odd("mul", fmt, x, y)


def div(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """x / y, rounded once; NaR for y = 0."""
    on_grid(fmt, x, y)
    return _once("div", x, y, fmt) if products_round_once(fmt) else _to_odd("div", fmt, x, y)


def _once(operation: native.Operation, x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """One operation in the carrier and one rounding."""
    if native.usable(x, y):
        return native.binary(operation, x, y, fmt)
    return round_to(getattr(torch, operation)(x, y), fmt)


_ODD = {
    "mul": odd.product_to_odd,
    "div": odd.quotient_to_odd,
    "sqrt": odd.root_to_odd,
    "fma": odd.fused_to_odd,
}


def _to_odd(operation: str, fmt: PositFormat, *operands: Tensor) -> Tensor:
    """One operation in float64, rounded to odd, and one rounding."""
    wide = [x.to(torch.float64) for x in operands]
    if native.usable(*wide):
        return native.to_odd(operation, fmt, *wide).to(carrier(fmt))
    return round_to(_ODD[operation](*wide), fmt)


def sqrt(x: Tensor, fmt: PositFormat) -> Tensor:
    """The square root, rounded once; NaR below 0."""
    on_grid(fmt, x)
    return _to_odd("sqrt", fmt, x)


def fma(x: Tensor, y: Tensor, z: Tensor, fmt: PositFormat) -> Tensor:
    """x y + z, rounded once.

    Always through rounding to odd: a product may be a midpoint, and then a ``z`` too small for
    float64 to hold beside it decides.
    """
    on_grid(fmt, x, y, z)
    return _to_odd("fma", fmt, x, y, z)
