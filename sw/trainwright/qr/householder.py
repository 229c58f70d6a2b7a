"""Householder QR, column by column (Algorithm 3 of the draft) and in column blocks (3.2)."""

from dataclasses import dataclass
from functools import cached_property

import torch

from trainwright.precision import PrecisionFormat
from trainwright.qr.apriori import Shape
from trainwright.qr.arithmetic import Arithmetic, MachineArithmetic
from trainwright.qr.machine_panel import factor_machine_block
from trainwright.qr.precision import Precision, make_precision
from trainwright.qr.reflectors import apply_panel, factor_panel, fill_wy
from trainwright.qr.result import (
    QR,
    QRError,
    checked_finite,
    column_major_zeros,
    prepared,
    with_columns_restored,
)
from trainwright.support.arguments import is_size, plain
from trainwright.support.graphs import library_call


@dataclass(frozen=True, eq=False)
class HouseholderQR(QR):
    """QR with ``V`` (..., m, n) lower trapezoidal, ones on the diagonal, and ``beta`` (..., n)."""

    V: torch.Tensor
    beta: torch.Tensor

    def _apply(self, x: torch.Tensor, *, transposed: bool, triangular: bool = False) -> None:
        arithmetic = self.precision.panel
        apply_panel(x, self.V, self.beta, arithmetic, transposed=transposed, triangular=triangular)


@dataclass(frozen=True, eq=False)
class BlockQR(HouseholderQR):
    """Householder QR in column blocks: P_1 ... P_r = I - W V^T for each block's reflectors."""

    rounded_W: torch.Tensor | None = None
    """W where blocks were rounded with it."""

    @cached_property
    @library_call
    def W(self) -> torch.Tensor:
        """Each block's W in the columns of its V: (..., m, n)."""
        if self.rounded_W is not None:
            return self.rounded_W
        w, width = column_major_zeros(self.V), self.shape.block or self.n
        for k in range(0, self.n, width):
            block = slice(k, k + width)
            parts = w[..., k:, block], self.V[..., k:, block], self.beta[..., block]
            fill_wy(*parts, self.precision.panel)
        return w

    def _columns(self, count: int) -> torch.Tensor:
        trailing = self.precision.trailing
        if count != self.n or not isinstance(trailing, MachineArithmetic):
            return super()._columns(count)
        q = torch.linalg.householder_product(self.V, self.beta)  # faster than from W
        if self.precision.storage == trailing.format:
            return q  # orthonormal columns are finite
        return checked_finite(self.precision.storage.round(q), "Q", self.precision)

    def _apply(self, x: torch.Tensor, *, transposed: bool, triangular: bool = False) -> None:
        width = self.shape.block or self.n
        arithmetic = self.precision.trailing
        starts = range(0, self.n, width)
        for k in starts if transposed else reversed(starts):
            v = self.V[..., k:, k : k + width]
            w = self.W[..., k:, k : k + width]
            left, right = (v, w) if transposed else (w, v)  # (I - W V^T)^T = I - V W^T
            part = x[..., k:, k if triangular else 0 :]
            arithmetic.subtract_product(part, left, arithmetic.matmul(right.mT, part))


@library_call
def householder_qr(
    A: torch.Tensor,
    *,
    low: str | PrecisionFormat | None = None,
    high: str | PrecisionFormat = "fp64",
    rounding: str = "end",
) -> HouseholderQR:
    """Factor ``A`` (..., m, n), m >= n, column by column by Algorithms 2 and 3 of the draft.

    Uniform in ``high`` if ``low`` is None. Otherwise mixed: ``A`` is rounded to ``low``, and
    results are rounded at the level ``rounding``: ``end``, ``inner`` (BLAS-2), or ``block``
    (BLAS-3, all columns forming one block). Formats are those of ``trainwright.precision``. Raises
    ``QRError`` for a matrix that cannot be factored or overflows, and ``PrecisionError`` or
    ``ValueError`` for bad options.

    >>> A = torch.randn(60, 8, dtype=torch.float64)
    >>> f = householder_qr(A)
    >>> bool(f.errors.residual <= f.errors.bound.residual)
    True
    """
    precision = make_precision(low, high, rounding)
    if low is not None and rounding == "block":
        return _blocked(A, precision, A.shape[-1] if A.dim() else 0)
    a, exponent = prepared(A, precision)
    vectors = column_major_zeros(a)
    betas = factor_panel(a, vectors, precision.panel)
    m, n = a.shape[-2:]
    r = with_columns_restored(a[..., :n, :].triu(), exponent, "R", precision)
    return HouseholderQR(A, r, precision, Shape(m, n), vectors, betas)


@library_call
def block_qr(
    A: torch.Tensor,
    *,
    block: int = 32,
    low: str | PrecisionFormat | None = None,
    high: str | PrecisionFormat = "fp64",
    rounding: str = "end",
) -> BlockQR:
    """Factor ``A`` (..., m, n), m >= n, in column blocks of width ``block`` (WY form, 3.2).

    Precisions and errors are those of ``householder_qr``.

    >>> A = torch.randn(60, 8, dtype=torch.float64)
    >>> f = block_qr(A, low="fp16", high="fp32", rounding="block")
    >>> f.Q.shape, f.R.shape, bool(f.errors.residual < 1e-2)
    (torch.Size([60, 8]), torch.Size([8, 8]), True)
    """
    if not is_size(block := plain(block)):
        raise ValueError(f"block must be an integer of at least 1, not {block!r}")
    return _blocked(A, make_precision(low, high, rounding), block)


def _blocked(given: torch.Tensor, precision: Precision, block: int) -> BlockQR:
    whole = isinstance(precision.panel, MachineArithmetic) and precision.trailing == precision.panel
    a, exponent = prepared(given, precision, copy=not whole)
    (m, n), ws = a.shape[-2:], None
    if whole:
        vectors, betas = torch.geqrf(a)  # LAPACK takes blocks of its own
        upper = vectors[..., :n, :].triu()
        vectors.tril_(-1).diagonal(dim1=-2, dim2=-1).fill_(1)
    else:
        vectors, ws = column_major_zeros(a), column_major_zeros(a)
        betas = _by_blocks(a, vectors, ws, precision, block)
        upper = a[..., :n, :].triu()
    r = with_columns_restored(upper, exponent, "R", precision)
    return BlockQR(given, r, precision, Shape(m, n, block=block), vectors, betas, ws)


def _by_blocks(
    a: torch.Tensor, vectors: torch.Tensor, ws: torch.Tensor, precision: Precision, block: int
) -> torch.Tensor:
    """Factor ``a`` (..., m, n) in place, filling V and W; return beta."""
    n, storage, trailing = a.shape[-1], precision.storage, precision.trailing
    cast = precision.low is not None and precision.rounding != "end"
    betas = a.new_zeros(*a.shape[:-2], n)
    for k in range(0, n, block):
        end = min(k + block, n)
        panel, v, w = (t[..., k:, k:end] for t in (a, vectors, ws))
        betas[..., k:end] = beta = _factored(panel, v, precision.panel)
        fill_wy(w, v, beta, precision.panel)
        if cast:
            for t in (panel, v, w):
                t.copy_(storage.round(t))
        if end < n:
            right_columns = a[..., k:, end:]
            trailing.subtract_product(right_columns, v, trailing.matmul(w.mT, right_columns))
    return betas


def _factored(a: torch.Tensor, vectors: torch.Tensor, arithmetic: Arithmetic) -> torch.Tensor:
    """Factor a panel in place; LAPACK does so for the machine's own types, in fewer calls."""
    if isinstance(arithmetic, MachineArithmetic):
        return factor_machine_block(a, vectors)
    return factor_panel(a, vectors, arithmetic)


__all__ = ["BlockQR", "HouseholderQR", "QRError", "block_qr", "householder_qr"]
