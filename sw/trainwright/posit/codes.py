"""Arithmetic on integer tensors of posit codes: decode, operate with one rounding, encode.

Codes are integers 0 to 2^n - 1 of any integer type; results are int64, and the format is the last
argument. Every function raises ``TypeError`` for tensors that are not integers and ``PositError``
for codes outside the format.
"""

from collections.abc import Callable

from torch import Tensor

from trainwright.posit import grid, native, products
from trainwright.posit.exactness import carrier, products_round_once
from trainwright.posit.format import PositFormat
from trainwright.posit.products import Mode
from trainwright.posit.rounding import as_codes, codes_of, decode, encode, values_of
from trainwright.support.graphs import library_call


@library_call
def convert(codes: Tensor, source: PositFormat, fmt: PositFormat) -> Tensor:
    """Round the values of ``codes``, a tensor of format ``source``, once to ``fmt``."""
    return encode(decode(codes, source), fmt)


@library_call
def add(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """Add codes element by element; shapes broadcast."""
    return _binary("add", grid.add, a, b, fmt)


@library_call
def sub(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """Subtract ``b`` from ``a``; shapes broadcast."""
    return _binary("sub", grid.sub, a, b, fmt)


@library_call
def mul(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """Multiply codes element by element; shapes broadcast."""
    return _binary("mul", grid.mul, a, b, fmt)


@library_call
def div(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """Divide ``a`` by ``b``; NaR where ``b`` is 0. Shapes broadcast."""
    return _binary("div", grid.div, a, b, fmt)


def _binary(
    name: native.Operation,
    operation: Callable[[Tensor, Tensor, PositFormat], Tensor],
    a: Tensor,
    b: Tensor,
    fmt: PositFormat,
) -> Tensor:
    """Use one pass over the codes where one float operation and one rounding are exact enough.

    Elsewhere decode to the carrier type, operate on the grid, and encode.
    """
    a, b = as_codes(a), as_codes(b)
    once = products_round_once(fmt) or name in ("add", "sub")
    kind = carrier(fmt)
    if once and native.usable(a, b, dtype=kind):
        codes = native.binary_codes(name, a, b, fmt, kind)
        if codes is not None:
            return codes
    return codes_of(operation(values_of(a, fmt), values_of(b, fmt), fmt), fmt)


@library_call
def sqrt(a: Tensor, fmt: PositFormat) -> Tensor:
    """Take the square root of each element; NaR below 0."""
    return codes_of(grid.sqrt(values_of(a, fmt), fmt), fmt)


@library_call
def fma(a: Tensor, b: Tensor, c: Tensor, fmt: PositFormat) -> Tensor:
    """Compute a b + c with one rounding; shapes broadcast."""
    x, y, z = (values_of(t, fmt) for t in (a, b, c))
    return codes_of(grid.fma(x, y, z, fmt), fmt)


@library_call
def dot(x: Tensor, y: Tensor, fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Sum products along the last dimension; shapes broadcast.

    ``quire`` rounds the exact sum once; ``sequential`` rounds every product and every partial sum,
    in order.
    """
    return codes_of(products.dot(values_of(x, fmt), values_of(y, fmt), fmt, mode), fmt)


@library_call
def matmul(a: Tensor, b: Tensor, fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Multiply codes (..., M, K) by (..., K, N) to (..., M, N); each element is a ``dot``."""
    return codes_of(products.matmul(values_of(a, fmt), values_of(b, fmt), fmt, mode), fmt)
