"""Sums, means and matrix products in the mode that ``trainwright.posit.accumulation`` sets."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright.posit import grid, products
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import scaled
from trainwright.posit.operators.registry import (
    FloatMask,
    UncoveredError,
    covers,
    operand,
    own_type,
)

Dims = Sequence[int] | int | None


def _dims(x: Tensor, dims: Dims) -> list[int]:
    if isinstance(dims, int):
        dims = [dims]
    return sorted(d % max(1, x.dim()) for d in dims) if dims else list(range(x.dim()))


def total(x: Tensor, dims: Dims, keepdim: bool, fmt: PositFormat) -> Tensor:
    """Sum over ``dims``, or over all dimensions if there are none."""
    over = _dims(x, dims) if x.dim() else []
    sums = products.total(x, over, fmt, get_accumulation()) if over else x.clone()
    if keepdim:
        for d in over:
            sums = sums.unsqueeze(d)
    return sums


@covers("sum")
def full_sum(fmt: PositFormat, x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Sum all elements in row-major order."""
    own_type(dtype, fmt)
    return total(x, None, False, fmt)


@covers("sum.dim_IntList")
def dim_sum(
    fmt: PositFormat,
    x: Tensor,
    dims: Dims,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Sum over dimensions, in their row-major order."""
    own_type(dtype, fmt)
    return total(x, dims, keepdim, fmt)


def products_along(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Sum products along the last dimension."""
    return products.dot(x, y, fmt, get_accumulation())


def divided(x: Tensor, count: int, fmt: PositFormat) -> Tensor:
    """Divide by a count, which is rounded to the format first."""
    return grid.div(x, operand(count, fmt, x), fmt)


@covers("mean")
def full_mean(fmt: PositFormat, x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Divide the sum of all elements by their count."""
    return divided(full_sum(fmt, x, dtype=dtype), x.numel(), fmt)


@covers("mean.dim")
def dim_mean(
    fmt: PositFormat,
    x: Tensor,
    dims: Dims,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Divide sums over dimensions by the count of summed elements."""
    sums = dim_sum(fmt, x, dims, keepdim, dtype=dtype)
    return divided(sums, x.numel() // max(1, sums.numel()), fmt)


@covers("linalg_vector_norm")
def norm(
    fmt: PositFormat,
    x: Tensor,
    order: float = 2,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Take the root of the sum of squares, the sum of magnitudes, or their extreme."""
    own_type(dtype, fmt)
    over = _dims(x, dims) if x.dim() else []
    if order == 2:
        kept = [d for d in range(x.dim()) if d not in over]
        sizes = [*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in over)]
        lines = x.permute([*kept, *over]).reshape(sizes)
        norms = grid.sqrt(products_along(lines, lines, fmt), fmt)
        for d in over if keepdim else ():
            norms = norms.unsqueeze(d)
        return norms
    if order == 1:
        return total(x.abs(), dims, keepdim, fmt)
    if abs(order) == math.inf:
        extreme = torch.amax if order > 0 else torch.amin
        return extreme(x.abs(), over, keepdim)
    raise UncoveredError(
        f"the norm of order {order} is not covered for posits, only 1, 2, inf and -inf"
    )


@covers("mm", "bmm")
def mm(fmt: PositFormat, a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices, or batches of matrices."""
    return products.matmul(a, b, fmt, get_accumulation())


@covers("dot")
def dot(fmt: PositFormat, a: Tensor, b: Tensor) -> Tensor:
    """Multiply two vectors."""
    return products_along(a, b, fmt)


@covers("mv")
def mv(fmt: PositFormat, a: Tensor, b: Tensor) -> Tensor:
    """Multiply a matrix by a vector."""
    return products.matmul(a, b.unsqueeze(1), fmt, get_accumulation()).squeeze(1)


@covers("addmm", "baddbmm")
def addmm(
    fmt: PositFormat,
    start: Tensor | FloatMask,
    a: Tensor,
    b: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    """Compute beta start + alpha a b; the sum starts from ``beta start``, unless alpha is not 1."""
    mode = get_accumulation()
    if isinstance(start, FloatMask):
        return start.hide(scaled(products.matmul(a, b, fmt, mode), alpha, fmt), fmt)
    start = scaled(start, beta, fmt)
    if alpha == 1:
        return products.matmul(a, b, fmt, mode, start)
    return grid.add(start, scaled(products.matmul(a, b, fmt, mode), alpha, fmt), fmt)
