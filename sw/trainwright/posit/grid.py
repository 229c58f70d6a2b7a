"""Correctly rounded operations on tensors whose values are on a posit grid.

Tensors have the format's carrier type, with NaN for NaR; shapes broadcast; results are on the grid,
in the carrier type. One float operation and one rounding are used where ``exactness`` proves that
pair correctly rounded, and rounding to odd elsewhere. x / 0, roots of negative numbers and
operations on NaR give NaR. Operands are not checked to be on the grid: ``round_to`` puts values
there.
"""

import torch
from torch import Tensor

from trainwright.posit import native, odd
from trainwright.posit.exactness import carrier, products_round_once
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.rounding import round_to
from trainwright.support.graphs import library_call


def on_grid(fmt: PositFormat, *tensors: Tensor) -> None:
    """Raise ``PositError`` for a tensor that does not have the format's carrier type."""
    for tensor in tensors:
        if tensor.dtype is not carrier(fmt):
            raise PositError(
                f"values of {fmt} live in {carrier(fmt)}, not {tensor.dtype}; "
                "round_to(x, fmt) puts them there"
            )


@library_call
def add(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Add tensors, rounding once."""
    on_grid(fmt, x, y)
    return _once("add", x, y, fmt)


@library_call
def sub(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Subtract ``y`` from ``x``, rounding once."""
    on_grid(fmt, x, y)
    return _once("sub", x, y, fmt)


@library_call
def mul(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Multiply tensors, rounding once."""
    on_grid(fmt, x, y)
    return _once("mul", x, y, fmt) if products_round_once(fmt) else _to_odd("mul", fmt, x, y)


@library_call
def div(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Divide ``x`` by ``y``, rounding once; NaR for y = 0."""
    on_grid(fmt, x, y)
    return _once("div", x, y, fmt) if products_round_once(fmt) else _to_odd("div", fmt, x, y)


def _once(operation: native.Operation, x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Apply one operation in the carrier type and one rounding."""
    if native.usable(x, y):
        return native.binary(operation, x, y, fmt)
    return round_to(getattr(torch, operation)(x, y), fmt)


_ODD = {
    "mul": odd.product_to_odd,
    "div": odd.quotient_to_odd,
    "sqrt": odd.root_to_odd,
    "fma": odd.fused_to_odd,
    "rsqrt": odd.reciprocal_root_to_odd,
}


def _to_odd(operation: str, fmt: PositFormat, *operands: Tensor) -> Tensor:
    """Apply one float64 operation rounded to odd, then round to the format."""
    wide = [x.to(torch.float64) for x in operands]
    if operation != "rsqrt" and native.usable(*wide):
        return native.to_odd(operation, fmt, *wide).to(carrier(fmt))
    return round_to(_ODD[operation](*wide), fmt)


@library_call
def sqrt(x: Tensor, fmt: PositFormat) -> Tensor:
    """Take the square root, rounding once; NaR below 0."""
    on_grid(fmt, x)
    return _to_odd("sqrt", fmt, x)


@library_call
def rsqrt(x: Tensor, fmt: PositFormat) -> Tensor:
    """Compute 1 / root x, rounding once; NaR from 0 downwards."""
    on_grid(fmt, x)
    return _to_odd("rsqrt", fmt, x)


@library_call
def fma(x: Tensor, y: Tensor, z: Tensor, fmt: PositFormat) -> Tensor:
    """Compute x y + z, rounding once.

    Always goes through rounding to odd: a product may be a midpoint of two posits, and then a ``z``
    too small to change the float64 sum decides the direction.
    """
    on_grid(fmt, x, y, z)
    return _to_odd("fma", fmt, x, y, z)
