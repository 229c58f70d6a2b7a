"""Arithmetic on integer tensors of codes: decode, one correctly rounded operation, encode.

Codes are 0 to 2^n - 1 in integers of any width, results int64; the format comes last. All raise
``TypeError`` for tensors of no integers and ``PositError`` for codes that the format does not have.
"""

from collections.abc import Callable

from torch import Tensor

from trainwright.posit import grid, native, products
from trainwright.posit.exactness import carrier, products_round_once
from trainwright.posit.format import PositFormat
from trainwright.posit.products import Mode
from trainwright.posit.rounding import as_codes, codes_of, decode, encode, values_of


def convert(codes: Tensor, source: PositFormat, fmt: PositFormat) -> Tensor:
    """Codes in ``fmt`` of the values that ``codes`` have in ``source``, rounded once."""
    return encode(decode(codes, source), fmt)


def add(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """a + b; shapes broadcast."""
    return _binary("add", grid.add, a, b, fmt)


def sub(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """a - b; shapes broadcast."""
    return _binary("sub", grid.sub, a, b, fmt)


def mul(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """a b; shapes broadcast."""
    return _binary("mul", grid.mul, a, b, fmt)


def div(a: Tensor, b: Tensor, fmt: PositFormat) -> Tensor:
    """a / b, NaR for b = 0; shapes broadcast."""
    return _binary("div", grid.div, a, b, fmt)


def _binary(
    name: native.Operation,
    operation: Callable[[Tensor, Tensor, PositFormat], Tensor],
    a: Tensor,
    b: Tensor,
    fmt: PositFormat,
) -> Tensor:
    """In one pass over the codes where one operation and one rounding are right."""
    a, b = as_codes(a), as_codes(b)
    once = products_round_once(fmt) or name in ("add", "sub")
    kind = carrier(fmt)
    if once and native.usable(a, b, dtype=kind):
        found = native.binary_codes(name, a, b, fmt, kind)
        if found is not None:
            return found
    return codes_of(operation(values_of(a, fmt), values_of(b, fmt), fmt), fmt)


def sqrt(a: Tensor, fmt: PositFormat) -> Tensor:
    """The square root, NaR below 0."""
    return codes_of(grid.sqrt(values_of(a, fmt), fmt), fmt)


def fma(a: Tensor, b: Tensor, c: Tensor, fmt: PositFormat) -> Tensor:
    """a b + c, rounded once; shapes broadcast."""
    x, y, z = (values_of(t, fmt) for t in (a, b, c))
    return codes_of(grid.fma(x, y, z, fmt), fmt)


def dot(x: Tensor, y: Tensor, fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Sum of products along the last dimension; shapes broadcast.

    ``quire`` rounds the exact sum once, ``sequential`` every product and every sum, in order.
    """
    return codes_of(products.dot(values_of(x, fmt), values_of(y, fmt), fmt, mode), fmt)


def matmul(a: Tensor, b: Tensor, fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Codes (..., M, K) times (..., K, N) to (..., M, N), each element as ``dot`` has it."""
    return codes_of(products.matmul(values_of(a, fmt), values_of(b, fmt), fmt, mode), fmt)
