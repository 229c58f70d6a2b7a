"""QR with column pivoting, exact or in blocks whose pivots come from a random sketch.

Source of the blocked form: Melnichenko, Balabanov, Murray, Demmel and Mahoney, *Anatomy of
High-Performance Column-Pivoted QR Decomposition* (BQRRP, 2025), and Martinsson, Quintana-Orti and
Heavner (HQRRP, 2017).
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from trainwright.qr.machine_panel import eliminate, factor_machine_block, parted
from trainwright.qr.precision import make_precision
from trainwright.qr.reflectors import fill_wy
from trainwright.qr.result import (
    QRError,
    check_real,
    column_major_zeros,
    require_rows,
    with_columns_restored,
    with_scaled_columns,
)
from trainwright.support.arguments import flag, is_size, plain, require_seed
from trainwright.support.graphs import library_call

EXACT_COLUMNS = 128
"""Columns up to which pivots are exact by default: a sketch saves little."""
_BLOCK = 64
_OVERSAMPLING = 8
"""Rows of a sketch beyond the block's columns, as in HQRRP."""
_LEAST = -900
"""Power of two, relative to the largest column, below which sizes of columns are not told apart:
such columns keep their digits and come last, in any order. Products of two sizes stay normal."""
_TINY = 2.0**-1022
_PRECISION = {
    torch.float32: make_precision(None, "fp32", "end"),
    torch.float64: make_precision(None, "fp64", "end"),
}


@dataclass(frozen=True, eq=False)
class PivotedQR:
    """Factorisation A[:, order] = Q R of one matrix (m, n), k = min(m, n) reflectors.

    ``R`` (k, n) is upper trapezoidal, with pivots of falling size: exactly falling with exact
    pivoting, within small factors with a sketch.
    """

    R: torch.Tensor
    order: torch.Tensor
    V: torch.Tensor
    beta: torch.Tensor

    @library_call
    def rank(self, share: float) -> int:
        """Return the count of pivots before the first of at most ``share`` of the largest.

        Raises ``ValueError`` unless ``share`` is from 0 to 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share!r}")
        pivots = self.R.diagonal().abs()
        if not len(pivots) or not bool(pivots.max() > 0):
            return 0
        small = pivots <= share * pivots.max()
        return int(small.to(torch.int8).argmax()) if bool(small.any()) else len(pivots)

    @library_call
    def apply(self, x: torch.Tensor, *, transposed: bool = False) -> torch.Tensor:
        """Return Q x or Q^T x for x (m, q), Q the full (m, m), in the type of R.

        Raises ``QRError`` for an x of other rows or of complex numbers.
        """
        transposed, m = flag("transposed", transposed), len(self.V)
        require_rows(x, m, 0)
        x, k = x.to(self.R.dtype, copy=True), len(self.beta)
        arithmetic = _PRECISION[x.dtype].panel
        starts = range(0, k, _BLOCK)
        for begin in starts if transposed else reversed(starts):
            v = self.V[begin:, begin : begin + _BLOCK]
            w = torch.empty_like(v)
            fill_wy(w, v, self.beta[begin : begin + _BLOCK], arithmetic)
            left, right = (v, w) if transposed else (w, v)
            x[begin:] -= left @ (right.mT @ x[begin:])
        return x

    @cached_property
    @library_call
    def Q(self) -> torch.Tensor:
        """Thin Q (m, k), computed at the first access."""
        m, k = self.V.shape
        return self.apply(torch.eye(m, k, dtype=self.R.dtype, device=self.R.device))


@library_call
def pivoted_qr(
    A: torch.Tensor, *, block: int | None = None, seed: int = 0, tolerance: float = 0.0
) -> PivotedQR:
    """Factor float32 or float64 ``A`` (m, n) with column pivoting.

    Columns are eliminated in blocks of ``block``. A sketch chooses the pivots of a block: a product
    with a random matrix of ``block`` + 8 rows, drawn from ``seed``. With 1 the largest remaining
    column is next each time, as in LAPACK's geqp3. Default: 1 up to 128 columns, else 64. With a
    ``tolerance``, the elimination ends when all remaining columns are below that share of the
    largest pivot: R is 0 there. Raises ``QRError`` for other types, NaN and infinities.

    >>> A = torch.randn(30, 2, dtype=torch.float64) @ torch.randn(2, 6, dtype=torch.float64)
    >>> f = pivoted_qr(A)
    >>> int(f.rank(1e-12)), bool((f.Q @ f.R - A[:, f.order]).norm() < 1e-13 * A.norm())
    (2, True)
    """
    check_real(A)
    if A.dim() != 2 or A.dtype not in _PRECISION:
        raise QRError(f"pivoted_qr needs a float32 or float64 matrix, not {A.dtype} {[*A.shape]}")
    if (block := plain(block)) is not None and not is_size(block):
        raise ValueError(f"block must be an integer of at least 1, not {block!r}")
    seed = require_seed(seed)  # also where pivots are exact and nothing is drawn
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, not {tolerance!r}")
    width = block or (1 if min(A.shape) <= EXACT_COLUMNS else _BLOCK)
    k, precision = min(A.shape), _PRECISION[A.dtype]
    a, exponent = with_scaled_columns(A, "A", precision)
    order = torch.arange(A.shape[1], device=A.device)
    if not k:
        empty = a.new_zeros(A.shape[0], 0)
        return PivotedQR(a[:0], order, empty, a.new_zeros(0))
    # Pivots go by the columns' true sizes, whose squares could overflow: relative to the largest.
    weights = torch.ldexp(
        torch.ones_like(a[0], dtype=torch.float64), (exponent - exponent.max()).clamp(min=_LEAST)
    )
    if width == 1:
        steps = _eliminated(a.mT, order, weights, k, tolerance)
        vectors = column_major_zeros(a)[:, :k]
        beta = parted(a, vectors, steps)
        vectors[:, len(steps) :] = 0
        upper = a[:k]
    else:
        upper, vectors, beta = _blocked(a, order, weights, width, seed, tolerance)
    r = with_columns_restored(upper.contiguous(), exponent[order], "R", precision)
    return PivotedQR(r, order, vectors, beta)


def _norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the norms of rows of any magnitude, in float64."""
    if not rows.shape[1]:
        return rows.new_zeros(len(rows), dtype=torch.float64)
    top = rows.abs().amax(1, keepdim=True).to(torch.float64)
    scaled = rows / torch.where(top > 0, top, 1.0)
    return torch.linalg.vector_norm(scaled, dim=1) * top[:, 0]


def _eliminated(
    rows: torch.Tensor,
    order: torch.Tensor,
    weights: torch.Tensor,
    count: int,
    tolerance: float,
) -> list[tuple[float, float]]:
    """Eliminate ``count`` columns (``rows``, (n, m)), the largest first; permute ``order`` too.

    ``weights``, permuted as well, times a column is its size relative to others. Norms of what is
    left are updated, and computed again where half of their digits cancelled (LAPACK working note
    176). Columns not eliminated become 0.
    """
    norms = _norms(rows) * weights
    known = norms.clone()
    least = torch.finfo(rows.dtype).eps ** 0.5
    steps: list[tuple[float, float]] = []
    largest = 0.0
    for j in range(count):
        p = j + int(norms[j:].argmax())
        largest = max(largest, float(norms[p]))
        if tolerance and float(norms[p]) <= tolerance * largest:
            rows[j:, j:] = 0
            steps += [(0.0, 0.0)] * (count - j)
            break
        for table in (rows, norms, known, order, weights):
            upper = table[j].clone()
            table[j] = table[p]
            table[p] = upper
        steps.append(eliminate(rows, j))
        if j + 1 == len(rows):
            break
        left = norms[j + 1 :]
        part = rows[j + 1 :, j].to(torch.float64) * weights[j + 1 :]
        share = (part / torch.where(left > 0, left, 1.0)).square()
        rest = (1 - share).clamp(min=0)
        old = torch.where(left > 0, left / known[j + 1 :].clamp(min=_TINY), 0.0)
        poor = rest * old.square() <= least
        left *= rest.sqrt()
        if bool(poor.any()):
            where = poor.nonzero()[:, 0] + j + 1
            norms[where] = known[where] = _norms(rows[where, j + 1 :]) * weights[where]
    return steps


def _chosen(sketch: torch.Tensor) -> torch.Tensor:
    """Order columns of a sketch (d, n) by the pivots of LU of its transpose (BQRRP)."""
    _, pivots, _ = torch.linalg.lu_factor_ex(sketch.mT)
    order = list(range(sketch.shape[1]))
    for k, pivot in enumerate(pivots.tolist()):
        order[k], order[pivot - 1] = order[pivot - 1], order[k]
    return torch.tensor(order, device=sketch.device)


def _blocked(
    a: torch.Tensor,
    order: torch.Tensor,
    weights: torch.Tensor,
    width: int,
    seed: int,
    tolerance: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return R, V and beta; permute ``order`` and ``weights`` as the columns of ``a`` (m, n)."""
    (m, n), k = a.shape, min(a.shape)
    arithmetic, generator = _PRECISION[a.dtype].panel, torch.Generator().manual_seed(seed)
    vectors, beta = column_major_zeros(a)[:, :k], a.new_zeros(k)
    largest = 0.0
    for begin in range(0, k, width):
        end = min(begin + width, k)
        rows = end - begin + _OVERSAMPLING
        mix = torch.randn(rows, m - begin, generator=generator, dtype=a.dtype).to(a.device)
        chosen = _chosen(mix @ a[begin:, begin:] * weights[begin:])
        for table in (a, order, weights):
            table[..., begin:] = table[..., begin + chosen]
        panel, v = a[begin:, begin:end], vectors[begin:, begin:end]
        beta[begin:end] = factor_machine_block(panel, v)
        largest = max(largest, float((panel.diagonal().abs() * weights[begin:end]).max()))
        if end < n:
            w = torch.empty_like(v)
            fill_wy(w, v, beta[begin:end], arithmetic)
            right = a[begin:, end:]
            right -= v @ (w.mT @ right)
            left = _norms(right[end - begin :].mT) * weights[end:]
            if tolerance and float(left.max()) <= tolerance * largest:
                right[end - begin :] = 0
                break
    return a[:k].triu(), vectors, beta
