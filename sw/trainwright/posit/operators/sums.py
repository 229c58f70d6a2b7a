"""Sums, means and matrix products in the mode that ``trainwright.posit.accumulation`` sets."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainwright.posit import grid, products
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import power, scaled
from trainwright.posit.operators.registry import FloatMask, covers, in_own_type, operand
from trainwright.support.dimensions import reduced

Dims = Sequence[int] | int | None


def dims_of(x: Tensor, dims: Dims) -> list[int]:
    """Return dimensions from 0 on in order, or all dimensions for none."""
    return reduced(dims, x.shape)


def lines_along(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Join ``dims`` to one last dimension."""
    kept = [d for d in range(x.dim()) if d not in dims]
    sizes = [*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims)]
    return x.permute([*kept, *dims]).reshape(sizes)


def put_back(x: Tensor, dims: Sequence[int], keepdim: bool = True) -> Tensor:
    """Put dimensions of one element back in places that a reduction removed, if ``keepdim``."""
    for d in sorted(dims) if keepdim else ():
        x = x.unsqueeze(d)
    return x


def total(x: Tensor, dims: Dims, keepdim: bool, fmt: PositFormat) -> Tensor:
    """Sum over ``dims``, or over all dimensions if there are none."""
    over = dims_of(x, dims)
    sums = products.total(x, over, fmt, get_accumulation()) if over else x.clone()
    return put_back(sums, over, keepdim)


@covers("sum", "sum.dim_IntList")
@in_own_type
def dim_sum(fmt: PositFormat, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Sum over dimensions, or all elements, in row-major order."""
    return total(x, dims, keepdim, fmt)


def products_along(x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """Sum products along the last dimension."""
    return products.dot(x, y, fmt, get_accumulation())


def divided(x: Tensor, count: int, fmt: PositFormat) -> Tensor:
    """Divide by a count, which is rounded to the format first."""
    return grid.div(x, operand(count, fmt, x), fmt)


@covers("mean", "mean.dim")
@in_own_type
def dim_mean(fmt: PositFormat, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Divide sums over dimensions, or of all elements, by the count of summed elements."""
    sums = total(x, dims, keepdim, fmt)
    return divided(sums, x.numel() // max(1, sums.numel()), fmt)


@covers("nansum")
@in_own_type
def nansum(fmt: PositFormat, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Sum over dimensions, with 0 for NaR."""
    return total(torch.where(x.isnan(), 0.0, x), dims, keepdim, fmt)


@covers("trace")
def trace(fmt: PositFormat, x: Tensor) -> Tensor:
    """Sum the diagonal."""
    if x.dim() != 2:
        raise RuntimeError(f"trace needs a matrix, not shape {tuple(x.shape)}")
    return total(x.diagonal(), None, False, fmt)


@covers("cumsum")
@in_own_type
def cumulative_sum(fmt: PositFormat, x: Tensor, dim: int) -> Tensor:
    """Sum the elements up to each place, by the mode: ``quire`` rounds every such sum once."""
    dims_of(x, dim)
    if get_accumulation() == "sequential":
        return _running(grid.add, x, dim, fmt)
    lines = x.movedim(dim, -1) if x.dim() else x.unsqueeze(0)
    sums = [total(lines[..., : k + 1], -1, False, fmt) for k in range(lines.shape[-1])]
    return torch.stack(sums, dim if x.dim() else -1).reshape(x.shape) if sums else x.clone()


def _running(
    operation: Callable[[Tensor, Tensor, PositFormat], Tensor],
    x: Tensor,
    dim: int,
    fmt: PositFormat,
) -> Tensor:
    """Combine the elements up to each place, in order, rounding every step."""
    dims_of(x, dim)
    results = list(x.unbind(dim) if x.dim() else [x])
    for k in range(1, len(results)):
        results[k] = operation(results[k - 1], results[k], fmt)
    return torch.stack(results, dim).reshape(x.shape) if results else x.clone()


@covers("cumprod")
@in_own_type
def cumulative_product(fmt: PositFormat, x: Tensor, dim: int) -> Tensor:
    """Multiply the elements up to each place, in order, rounding every product."""
    return _running(grid.mul, x, dim, fmt)


@covers("prod.dim_int")
@in_own_type
def product_along(fmt: PositFormat, x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """Multiply along a dimension, in order, rounding every product; 1 without elements."""
    dims_of(x, dim)
    if not x.dim():
        return x.clone()
    factors = x.movedim(dim, 0)
    y = _running(grid.mul, factors, 0, fmt)[-1] if len(factors) else factors.sum(0) + 1
    return y.unsqueeze(dim) if keepdim else y


@covers("prod")
@in_own_type
def full_product(fmt: PositFormat, x: Tensor) -> Tensor:
    """Multiply all elements in row-major order, rounding every product."""
    return product_along(fmt, x.flatten(), 0)


@covers("linalg_vector_norm")
@in_own_type
def norm(
    fmt: PositFormat, x: Tensor, order: float = 2, dims: Dims = None, keepdim: bool = False
) -> Tensor:
    """Take the root of the sum of squares, the sum of magnitudes, or their extreme.

    Order p computes (sum of |x|^p)^(1/p), and 0 the count of elements other than 0. An element 0
    makes the norm of a negative order 0. Raises ``RuntimeError`` for orders below 0 and infinity
    over no elements.
    """
    over = dims_of(x, dims)
    if (order < 0 or order == math.inf) and any(x.shape[d] == 0 for d in over):
        raise RuntimeError(f"a norm of order {order} needs elements, not shape {tuple(x.shape)}")
    if order == 2:
        lines = lines_along(x, over)
        return put_back(grid.sqrt(products_along(lines, lines, fmt), fmt), over, keepdim)
    if order == 1:
        return total(x.abs(), dims, keepdim, fmt)
    if abs(order) == math.inf:
        extreme = torch.amax if order > 0 else torch.amin
        return extreme(x.abs(), over, keepdim)
    if order == 0:
        return total((x != 0).to(x.dtype).where(~x.isnan(), x), dims, keepdim, fmt)
    sums = total(power(fmt, x.abs(), order), dims, keepdim, fmt)
    root = power(fmt, sums, 1 / order)
    if order > 0:
        return root
    # 1 / 0 is NaR, which would hide that the limit at a zero is 0. The extreme of NaR is NaR.
    return torch.where(torch.amin(x.abs(), over, keepdim) == 0, 0.0, root)


@covers("norm.Scalar", "norm.ScalarOpt_dim")
def older_norm(
    fmt: PositFormat, x: Tensor, order: float | None = 2, dims: Dims = None, keepdim: bool = False
) -> Tensor:
    """Take the norm under the arguments of an older operator."""
    return norm(fmt, x, 2 if order is None else order, dims, keepdim)


@covers("renorm", checked=True)
def renorm(fmt: PositFormat, x: Tensor, order: float, dim: int, most: float) -> Tensor:
    """Scale slices of norm above ``most`` by ``most`` / (norm + 1e-7)."""
    if x.dim() < 2:
        raise RuntimeError(f"renorm needs at least 2 dimensions, not shape {tuple(x.shape)}")
    over = [d for d in range(x.dim()) if d not in dims_of(x, dim)]
    norms, limit = norm(fmt, x, order, over, True), operand(most, fmt, x)
    factor = grid.div(limit, grid.add(norms, operand(1e-7, fmt, x), fmt), fmt)
    return torch.where(norms > limit, grid.mul(x, factor, fmt), x)


def _slices(x: Tensor, dim: int) -> Tensor:
    """Return the slices of each place along a dimension as lines."""
    return x.movedim(dim, 0).reshape(x.shape[dim], -1)


@covers("_weight_norm_interface")
def weight_norm(fmt: PositFormat, v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Compute v (g / norm), with the norm of each slice of v; return the norms, too."""
    lines = _slices(v, dim)
    sides = [v.shape[d] if d == dim % v.dim() else 1 for d in range(v.dim())]
    norms = grid.sqrt(products_along(lines, lines, fmt), fmt).reshape(sides)
    return grid.mul(v, grid.div(g, norms, fmt), fmt), norms


@covers("_weight_norm_interface_backward")
def weight_norm_backward(
    fmt: PositFormat, h: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return (g / norm) (h - u a) and a = sum of h u, where u = v / norm."""
    unit = grid.div(v, norms, fmt)
    a = products_along(_slices(h, dim), _slices(unit, dim), fmt).reshape(norms.shape)
    inner = grid.fma(0 - unit, a, h, fmt)
    return grid.mul(grid.div(g, norms, fmt), inner, fmt), a


@covers("_trilinear")
def trilinear(
    fmt: PositFormat,
    x: Tensor,
    weight: Tensor,
    y: Tensor,
    *where: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Multiply x and the weight, summing where y does not vary; then multiply by y and sum.

    ``where`` holds the dimensions that x, the weight and y lack, and those that are summed.
    """
    *lacking, summed = where
    for at, dims in enumerate(lacking):
        for d in sorted(dims):
            x, weight, y = (t.unsqueeze(d) if i == at else t for i, t in enumerate((x, weight, y)))
    first = [d for d in summed if d in lacking[2]]
    z = _summed_product(x, weight, first, fmt)
    y = _summed_product(z, y, [d for d in summed if d not in first], fmt)
    return y.squeeze(list(summed))


def _summed_product(x: Tensor, y: Tensor, dims: Sequence[int], fmt: PositFormat) -> Tensor:
    """Multiply with broadcasting and sum over ``dims``, which are kept with one element."""
    if not dims:
        return grid.mul(x, y, fmt)
    x, y = (lines_along(t, dims) for t in torch.broadcast_tensors(x, y))
    return put_back(products_along(x, y, fmt), dims)


@covers("mm", "bmm", checked=True)
def mm(fmt: PositFormat, a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices, or batches of matrices."""
    return products.matmul(a, b, fmt, get_accumulation())


@covers("dot", "vdot", checked=True)
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
    # A beta of 0 drops even NaR, as in torch.
    start = scaled(start, beta, fmt) if beta else torch.zeros_like(start)
    if alpha == 1:
        return products.matmul(a, b, fmt, mode, start)
    return grid.add(start, scaled(products.matmul(a, b, fmt, mode), alpha, fmt), fmt)


@covers("addmv")
def addmv(fmt: PositFormat, start: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    """Compute ``addmm`` of a matrix and a vector."""
    start = start.expand(a.shape[0]).unsqueeze(1)
    return addmm(fmt, start, a, b.unsqueeze(1), **factors).squeeze(1)


@covers("addr")
def addr(fmt: PositFormat, start: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    """Compute ``addmm`` of a column and a row."""
    return addmm(fmt, start, a.unsqueeze(1), b.unsqueeze(0), **factors)


@covers("addbmm")
def addbmm(fmt: PositFormat, start: Tensor, a: Tensor, b: Tensor, **factors: float) -> Tensor:
    """Compute ``addmm`` of the matrices of a batch, side by side: one sum for each element."""
    return addmm(fmt, start, a.transpose(0, 1).flatten(1), b.flatten(0, 1), **factors)


@covers("linalg_cross", checked=True)
def cross(fmt: PositFormat, x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Compute the cross product; each element is a sum of two products, by the mode."""
    (a, b, c), (d, e, f) = (t.unbind(dim) for t in torch.broadcast_tensors(x, y))
    pairs = ((b, f, c, e), (c, d, a, f), (a, e, b, d))
    parts = [
        products_along(torch.stack([p, 0 - r], -1), torch.stack([q, s], -1), fmt)
        for p, q, r, s in pairs
    ]
    return torch.stack(parts, dim)
