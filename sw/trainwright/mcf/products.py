"""Matrix products of expansions (algorithms 16 to 22), in every shape that torch allows.

Numbers that fit a double with digits to spare (two float32 components, half types) are multiplied
in float64: the error is that of a float64 product, about 2^-53 times the sum of |a b| for usual
lengths. More components are multiplied through integers where matrices are large
(``trainwright.mcf.fixedpoint``), and otherwise multiplied and summed in order of k, by the kernels
or in torch with the same bits. Products with a vector have their own order of summation, the same
on every machine; the order of float64 matrix products is the BLAS's.
"""

import math

import torch
from torch import Tensor

from trainwright.mcf import carriers, fixedpoint, native
from trainwright.mcf.arithmetic import add_mcn, binary
from trainwright.mcf.errorfree import two_prod, two_sum
from trainwright.mcf.expansion import cut, finished
from trainwright.mcf.native import LANES


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x by y with torch's shape rules; components (..., nc), or a single component.

    Raises ``ValueError`` naming both shapes where they do not match.
    """
    check_matmul(x.shape[:-1], y.shape[:-1])
    dtype, nc = x.dtype, max(x.shape[-1], y.shape[-1])
    if nc == 1:
        return torch.matmul(x[..., 0], y[..., 0]).unsqueeze(-1)
    if carriers.in_double(dtype, nc):
        return _in_double(x, y)
    if dtype in carriers.HALF:
        wide = matmul(carriers.widened(x), carriers.widened(y))
        return carriers.narrowed(wide, dtype)
    return _generic(x, y)


def check_matmul(a: torch.Size, b: torch.Size) -> None:
    """Raise ``ValueError`` unless torch can multiply such shapes."""
    if not a or not b:
        raise ValueError(f"matmul needs at least one dimension, not shapes {_of(a)} and {_of(b)}")
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ValueError(f"shapes {_of(a)} and {_of(b)} do not fit in matmul")
    if len(a) < 3 or len(b) < 3:
        return
    try:
        torch.broadcast_shapes(a[:-2], b[:-2])
    except RuntimeError:
        raise ValueError(f"batches of {_of(a)} and {_of(b)} do not broadcast in matmul") from None


def _of(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape)


def addmm(y: Tensor, a: Tensor, b: Tensor, beta: Tensor | None, alpha: Tensor | None) -> Tensor:
    """Compute beta y + alpha a b (algorithm 21); y broadcasts, so that a bias (p) fits (n, p).

    ``beta`` and ``alpha`` are numbers as components (n), or ``None`` for 1.
    """
    product = matmul(a, b)
    if alpha is not None:
        product = binary("mul", product, alpha)
    if beta is not None:
        y = binary("mul", y, beta)
    return add_mcn(product, y)


def _in_double(x: Tensor, y: Tensor) -> Tensor:
    if y.dim() == 2:  # a vector
        return carried_mv(x, y)
    if x.dim() == 2:
        return carried_mv(y.transpose(-2, -3), x)
    product = torch.matmul(carriers.join(x), carriers.join(y))
    return carriers.parted(product, x.dtype, max(x.shape[-1], y.shape[-1]))


def carried_mv(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (..., columns, n) by a vector (columns, n') in float64: (..., nc).

    ``LANES`` partial sums, each of every LANES-th product, are added pairwise. A vector of one
    component has exact products, so each component of x gets its own sum; otherwise components are
    joined first.
    """
    *batch, columns, n = x.shape
    nc, factor, by_component = max(n, v.shape[-1]), carriers.join(v), v.shape[-1] == 1
    rows = x if len(batch) == 1 else x.reshape(math.prod(batch), columns, n)
    if x.dtype is torch.float32 and n == nc and nc in (2, 3) and native.usable(x, nc):
        product = native.mv(rows, factor, by_component=by_component)
        return product if len(batch) == 1 else product.reshape(*batch, nc)
    if not by_component:
        return carriers.parted(_sum(carriers.join(rows) * factor).reshape(batch), x.dtype, nc)
    high, *lower_parts = [_sum(rows[..., k].double() * factor) for k in range(n)]
    lower = torch.zeros_like(high)
    for part in reversed(lower_parts):
        lower = lower + part
    total = torch.where(high.isfinite(), high + lower, high)
    return carriers.parted(total.reshape(batch), x.dtype, nc)


def _sum(products: Tensor) -> Tensor:
    """Sum each row pairwise, in lanes: (rows, columns) to (rows)."""
    sums = products.new_zeros(len(products), LANES)
    for start in range(0, products.shape[1], LANES):
        chunk = products[:, start : start + LANES]
        sums[:, LANES - chunk.shape[1] :] += chunk
    while sums.shape[1] > 1:
        low, high = sums.chunk(2, dim=1)
        sums = low + high
    return sums[:, 0]


_SUMMED_IN_DOUBLE = {(torch.float32, 3), (torch.float64, 2)}
"""Types and components whose products with a vector are sums of doubles with their errors."""


def vector_product(x: Tensor, v: Tensor) -> Tensor:
    """Multiply components (..., columns, n) by a vector (columns, n'): (..., nc).

    ``LANES`` sums of leading products, each of every LANES-th one, are kept with the sum of their
    rounding errors and of the lower components' products (Ogita, Rump and Oishi 2005, Dot2). For
    three float32 components the error is at most (k / 16 + 8) 2^-73 times the sum of |a b|, for two
    of float64 (k / 16 + 8)^2 2^-104, and of usual numbers about 2^-74 and 2^-105.
    """
    *batch, columns, n = x.shape
    nc, dtype = max(n, v.shape[-1]), x.dtype
    rows = x.reshape(math.prod(batch), columns, n)
    if native.usable(x, nc):
        return native.vector_product(rows, v).reshape(*batch, nc)
    padded_columns = -(-columns // LANES) * LANES
    a = rows.new_zeros(n, len(rows), padded_columns, dtype=torch.float64)
    b = v.new_zeros(v.shape[-1], padded_columns, dtype=torch.float64)
    a[..., :columns], b[..., :columns] = rows.movedim(-1, 0), v.movedim(-1, 0)
    total = a.new_zeros(len(rows), LANES)
    lower = torch.zeros_like(total)
    for start in range(0, columns, LANES):
        x_parts, v_parts = (t[..., start : start + LANES].unbind(0) for t in (a, b))
        total, lower = _add_products(total, lower, x_parts, v_parts, dtype)
    while total.shape[1] > 1:
        (low, high), (first, second) = total.chunk(2, dim=1), lower.chunk(2, dim=1)
        total, lost = two_sum(low, high)
        lower = (first + second) + lost
    total, lower = total[:, 0], lower[:, 0]
    high, low = two_sum(total, lower)
    finite = torch.isfinite(total)
    high, low = torch.where(finite, high, total), torch.where(finite, low, 0)
    terms = cut([high, low], dtype, nc) if nc == 3 else [high, low]
    return finished(terms, terms[0]).reshape(*batch, nc)


def _add_products(
    total: Tensor, lower: Tensor, x: tuple[Tensor, ...], y: tuple[Tensor, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    total, small = two_sum(total, x[0] * y[0])
    if dtype is torch.float64:
        small = small + two_prod(x[0], y[0])[1]
    for rank in (1,) if dtype is torch.float64 else (2, 1):
        for i in range(rank + 1):
            if i < len(x) and rank - i < len(y):
                small = small + x[i] * y[rank - i]
    return total, lower + small


def _generic(x: Tensor, y: Tensor) -> Tensor:
    """Multiply tensors of any shape as a batch of matrices."""
    vector_x, vector_y = x.dim() == 2, y.dim() == 2
    if (vector_x or vector_y) and (x.dtype, max(x.shape[-1], y.shape[-1])) in _SUMMED_IN_DOUBLE:
        return vector_product(x, y) if vector_y else vector_product(y.transpose(-2, -3), x)
    x = x.unsqueeze(0) if vector_x else x
    y = y.unsqueeze(1) if vector_y else y
    batch = torch.broadcast_shapes(x.shape[:-3], y.shape[:-3])
    if batch:
        xs, ys = (_flat(t, batch) for t in (x, y))
        parts = [_matrices(a, b) for a, b in zip(xs, ys, strict=True)]
        m, n, nc = x.shape[-3], y.shape[-2], max(x.shape[-1], y.shape[-1])
        out = torch.stack(parts) if parts else x.new_zeros(0, m, n, nc)
        out = out.reshape(*batch, *out.shape[1:])
    else:
        out = _matrices(x, y)
    if vector_x:
        out = out.squeeze(-3)
    return out.squeeze(-2) if vector_y else out


def _matrices(x: Tensor, y: Tensor) -> Tensor:
    """Multiply components (m, k, n) by (k, p, n')."""
    if x.device.type == "cpu" and fixedpoint.worthwhile(x.shape[0], x.shape[1], y.shape[1]):
        exact = fixedpoint.product(x, y)
        if exact is not None:
            return exact
    return sequential(x, y)


def _flat(x: Tensor, batch: torch.Size) -> Tensor:
    return x.expand(*batch, *x.shape[-3:]).reshape(math.prod(batch), *x.shape[-3:])


def sequential(x: Tensor, y: Tensor) -> Tensor:
    """Multiply components (m, k, n) by (k, p, n'), rounding to expansions, in order of k."""
    nc = max(x.shape[-1], y.shape[-1])
    if native.usable(x, nc):
        return native.product(x, y)
    total = native.empty((x.shape[0], y.shape[1]), nc, x).zero_()
    for k in range(x.shape[1]):
        total = add_mcn(total, binary("mul", x[:, k : k + 1], y[k]))
    return total
