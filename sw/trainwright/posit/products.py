"""Matrix products on a posit grid: rounded at every operation, or exact and rounded once.

``sequential`` (the paper's mode): the sum starts at ``initial`` or 0, and every product and every
sum is rounded, in order of k. ``quire`` (the standard's mode): initial + sum of products is exact
and rounded once.

float64 replaces the quire where that is proved right for the element: the sum is exact because all
terms are multiples of one unit and fit 53 bits, or both ends of its error interval round to one
posit. The few remaining elements are summed exactly (``trainwright.posit.exact``).
"""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from trainwright.posit import grid, native
from trainwright.posit.exact import exact_dot
from trainwright.posit.exactness import DOUBLE, carrier, products_round_once
from trainwright.posit.format import PositFormat
from trainwright.posit.rounding import LAYOUTS, round_bits
from trainwright.support.graphs import library_call

Mode = Literal["sequential", "quire"]
_CHUNK = 1 << 20
"""Maximum terms summed exactly at once; bounds the memory for limbs."""
_SMALLEST = 16
"""Elements of one product below which a larger batch is vectorised over the batch instead."""


def check_mode(mode: str) -> None:
    """Raise ``ValueError`` for an unknown accumulation mode."""
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}")


@library_call
def dot(x: Tensor, y: Tensor, fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Sum products along the last dimension of tensors on the grid; shapes broadcast."""
    x, y = torch.broadcast_tensors(x, y)
    if x.dim() == 0:
        raise ValueError("a dot product needs tensors of one dimension or more")
    if mode == "sequential":  # rounds the same numbers, but over all sums at a time
        return total(grid.mul(x, y, fmt), [-1], fmt, mode)
    product = matmul(x.unsqueeze(-2), y.unsqueeze(-1), fmt, mode)
    return product.squeeze(-1).squeeze(-1)


def total(x: Tensor, dims: Sequence[int], fmt: PositFormat, mode: Mode = "quire") -> Tensor:
    """Sum a tensor on the grid over ``dims``, which are removed, in row-major order.

    Implemented as a product with ones, which are posits: ``sequential`` mode rounds every partial
    sum.
    """
    order = sorted(d % x.dim() for d in dims)
    kept = [d for d in range(x.dim()) if d not in order]
    rows, columns = (math.prod(x.shape[d] for d in dims) for dims in (order, kept))
    columns = x.permute([*order, *kept]).reshape(rows, columns)  # -1 is ambiguous for empty tensors
    ones = columns.new_ones(1, columns.shape[0])
    return matmul(ones, columns, fmt, mode).reshape([x.shape[d] for d in kept])


@library_call
def matmul(
    a: Tensor,
    b: Tensor,
    fmt: PositFormat,
    mode: Mode = "quire",
    initial: Tensor | None = None,
) -> Tensor:
    """Compute initial + a b on the grid: (..., M, K) times (..., K, N) to (..., M, N).

    Values have the format's carrier type; batch dimensions broadcast, and ``initial`` broadcasts to
    the result. Raises ``ValueError`` for shapes that do not match and ``PositError`` for another
    type.
    """
    check_mode(mode)
    grid.on_grid(fmt, a, b, *([] if initial is None else [initial]))
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul needs (..., M, K) and (..., K, N), not {tuple(a.shape)} and {tuple(b.shape)}"
        )
    batch = a.shape[:-2]
    if b.shape[:-2] != batch:
        batch = native.broadcast(batch, b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    start = None if initial is None else initial.expand(shape)
    if mode == "sequential":
        return _sequential(a, b, fmt, start, shape)
    return quire(a, b, fmt, start, shape)


def _sequential(
    a: Tensor, b: Tensor, fmt: PositFormat, start: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    lines = torch.contiguous_format
    total = a.new_zeros(shape) if start is None else start.clone(memory_format=lines)
    small = math.prod(shape[-2:]) < _SMALLEST <= math.prod(shape[:-2])
    if native.usable(a, b) and not small:
        return _sequential_native(a, b, fmt, total)
    gpu = _gpu_kernels(a)
    if gpu is not None and products_round_once(fmt) and total.numel() and a.shape[-1]:
        left, right = (t.expand(*shape[:-2], *t.shape[-2:]) for t in (a, b))
        gpu.sequential(*(t.reshape(-1, *t.shape[-2:]) for t in (left, right, total)), fmt)
        return total
    for k in range(a.shape[-1]):
        product = grid.mul(a[..., :, k : k + 1], b[..., k : k + 1, :], fmt)  # (..., M, N)
        total = grid.add(total, product, fmt)
    return total


def _gpu_kernels(x: Tensor) -> Any:
    """Return the module of kernels for a GPU, or ``None`` without a GPU or Triton."""
    if not x.is_cuda or find_spec("triton") is None:
        return None
    from trainwright.posit import gpu

    return gpu


def _sequential_native(a: Tensor, b: Tensor, fmt: PositFormat, total: Tensor) -> Tensor:
    """Return total + a b by the kernel, which may overwrite ``total``; few columns become rows."""
    to_odd = not products_round_once(fmt)
    if total.shape[-1] < min(_SMALLEST, total.shape[-2]):
        return _sequential_native(b.mT, a.mT, fmt, total.mT).mT
    total = total.contiguous()
    if b.dim() == 2 and total.is_contiguous() and a.shape[:-2] == total.shape[:-2]:
        native.sequential(a.flatten(0, -2), b, total.flatten(0, -2), fmt, to_odd=to_odd)
    else:
        native.sequential(a, b, total, fmt, to_odd=to_odd)
    return total


def quire(
    a: Tensor, b: Tensor, fmt: PositFormat, start: Tensor | None, shape: tuple[int, ...]
) -> Tensor:
    """Compute start + a b of ``shape``, exact and rounded once, in the carrier type."""
    a, b = a.to(torch.float64), b.to(torch.float64)
    start = None if start is None else start.to(torch.float64)
    total = a @ b if start is None else start + a @ b
    if native.usable(a, b):
        return native.decide(a, b, start, total, fmt)
    slack = _error(a, b, start, fmt)
    low, high = round_bits(total - slack, fmt), round_bits(total + slack, fmt)
    unsure = (low != high) & ~total.isnan()
    where = unsure.nonzero(as_tuple=True)
    if len(where[0]):
        rows = a.expand(*shape[:-2], *a.shape[-2:])
        columns = b.mT.expand(*shape[:-2], shape[-1], a.shape[-1])
        step = max(1, _CHUNK // max(1, a.shape[-1]))
        for begin in range(0, len(where[0]), step):
            at = tuple(index[begin : begin + step] for index in where)
            low[at] = exact_dot(
                rows[at[:-1]],  # (E, K)
                columns[(*at[:-2], at[-1])],
                fmt,
                None if start is None else start[at],
            )
    return low.to(carrier(fmt))


def _error(a: Tensor, b: Tensor, start: Tensor | None, fmt: PositFormat) -> Tensor:
    """Bound the float64 error of start + a @ b, summed in any order; 0 where the sum is exact.

    With T >= |start| + sum |a b| (Cauchy and Schwarz), K products and K sums err by at most (K + 1)
    u T / (1 - (K + 1) u), u = 2^-53; a few extra u cover the rounding of T itself and of the last
    operation. All terms are multiples of a unit; where T is below 2^53 units no sum rounds.
    """
    size = a.square().sum(-1, keepdim=True).sqrt() * b.square().sum(-2, keepdim=True).sqrt()
    unit = _unit(a, -1, fmt) * _unit(b, -2, fmt)
    if start is not None:
        size = size + start.abs()
        unit = torch.minimum(unit, _unit(start, None, fmt))
    terms = a.shape[-1]
    size = size * (1 + (terms + 8) * 2.0**-50)
    slack = size * ((terms + 8) * 2.0**-DOUBLE)
    return torch.where(size < unit * 2.0**DOUBLE, 0.0, slack)


def _unit(x: Tensor, dim: int | None, fmt: PositFormat) -> Tensor:
    """Return a power of two of which all values along ``dim`` (``None``: each value) are multiples.

    The unit is the weight of the last digit, which is smallest for the smallest value; 0 has no
    digits and counts as maxpos.
    """
    size = torch.where(x == 0, fmt.maxpos, x.abs())
    if isinstance(dim, int):
        size = size.amin(dim, keepdim=True) if x.shape[dim] else size.sum(dim, keepdim=True) + 1
    layout = LAYOUTS[torch.float64]
    scale = (size.view(torch.int64) >> layout.fraction) - layout.bias
    k = scale >> fmt.es
    run = torch.where(k >= 0, k + 1, -k)
    digits = (fmt.n - 1 - run - fmt.es).clamp(min=1)
    exponent = (scale - digits + 1).clamp(-fmt.max_scale, fmt.max_scale)
    return ((exponent + layout.bias) << layout.fraction).view(torch.float64)
