"""What a factorisation returns, whatever made it."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch

from trainwright.qr.apriori import Bound, Shape, a_priori, leading
from trainwright.qr.measure import orthogonality, residual
from trainwright.qr.precision import Precision


class QRError(ValueError):
    """A matrix that cannot be factored, or that overflows the format, with the remedy."""


@dataclass(frozen=True)
class Errors:
    """Measured in float64 (``qr/measure.py``), largest of a batch, with the bounds beside them."""

    residual: float
    """||QR - A||_F / ||A||_F, A as it was given; 0 for A = 0."""
    orthogonality: float
    """||Q^T Q - I||_2."""
    bound: Bound
    """Worst case; inf where the analysis says nothing."""
    probable: Bound
    """With square roots, for independent rounding errors of mean 0 (lambda = 1)."""
    leading: float
    """Leading term of the worst case with constant 1."""


@dataclass(frozen=True, eq=False)
class QR(ABC):
    """A = QR of ``a`` (..., m, n), m >= n.

    ``R`` (..., n, n) upper triangular. ``V`` and ``beta`` hold the reflectors I - beta v v^T. All
    numbers are in the storage format, kept in float32 or float64 (reflectors of a factorisation
    rounded at the end are in the high format). ``a`` is the caller's tensor, not a copy.
    """

    a: torch.Tensor
    R: torch.Tensor
    precision: Precision
    shape: Shape

    @property
    def m(self) -> int:
        """Rows."""
        return self.shape.m

    @property
    def n(self) -> int:
        """Columns."""
        return self.shape.n

    @abstractmethod
    def _apply(self, x: torch.Tensor, *, transposed: bool, triangular: bool = False) -> None:
        """x <- Q x or Q^T x in place, Q (m, m) as its reflectors have it, ``x`` (..., m, q)."""

    def _finished(self, x: torch.Tensor, what: str) -> torch.Tensor:
        return checked_finite(self.precision.storage.round(x), what, self.precision)

    def apply(self, x: torch.Tensor, *, transposed: bool = False) -> torch.Tensor:
        """Q x, or Q^T x, without forming Q; Q is the full (m, m) and ``x`` (..., m, q).

        In the precisions of the factorisation. Raises ``QRError`` where it overflows.
        """
        if x.dim() < 2 or x.shape[-2] != self.m:
            raise QRError(f"Q applies to matrices of {self.m} rows, not {list(x.shape)}")
        batch = torch.broadcast_shapes(x.shape[:-2], self.R.shape[:-2])
        x = x.to(self.precision.carrier).expand(*batch, *x.shape[-2:])
        x = self.precision.storage.round(x).clone()
        self._apply(x, transposed=transposed)
        return self._finished(x, "the product with Q")

    def _columns(self, count: int) -> torch.Tensor:
        x = column_major_zeros(self.R.new_empty(*self.R.shape[:-2], self.m, count))
        x.diagonal(dim1=-2, dim2=-1).fill_(1)
        self._apply(x, transposed=False, triangular=count <= self.n)
        return self._finished(x, "Q")

    @cached_property
    def Q(self) -> torch.Tensor:
        """Thin (..., m, n); made when first asked for."""
        return self._columns(self.n)

    @cached_property
    def Q_full(self) -> torch.Tensor:
        """Full (..., m, m)."""
        return self._columns(self.m)

    @property
    def R_full(self) -> torch.Tensor:
        """Upper trapezoidal (..., m, n)."""
        zeros = self.R.new_zeros(*self.R.shape[:-2], self.m - self.n, self.n)
        return torch.cat([self.R, zeros], -2)

    @cached_property
    def bound(self) -> Bound:
        """The worst-case bound, known before anything is computed."""
        return a_priori(self.shape, self.precision)

    @cached_property
    def errors(self) -> Errors:
        """Measured errors of the thin factors beside their bounds."""
        a, q, r = (t.detach().to(torch.float64) for t in (self.a, self.Q, self.R))
        off, skew = residual(a, q, r), orthogonality(q)
        return Errors(
            residual=float(off.max()) if off.numel() else 0.0,
            orthogonality=float(skew.max()) if skew.numel() else 0.0,
            bound=self.bound,
            probable=a_priori(self.shape, self.precision, factor=1.0),
            leading=leading(self.shape, self.precision),
        )


def column_major_zeros(like: torch.Tensor) -> torch.Tensor:
    """Zeros of a shape (..., m, n), columns contiguous: what the column loops run over."""
    return like.new_zeros(*like.shape[:-2], like.shape[-1], like.shape[-2]).mT


def column_major(x: torch.Tensor) -> torch.Tensor:
    """A copy with contiguous columns."""
    return column_major_zeros(x).copy_(x)


def is_finite(x: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite."""
    if x.numel() == 0:
        return True
    wide = x if x.dtype is torch.float64 else x.to(torch.float32)
    low, high = torch.aminmax(wide.detach())  # unlike ``isfinite`` without a tensor of answers
    return math.isfinite(low) and math.isfinite(high)


def checked_finite(x: torch.Tensor, what: str, precision: Precision) -> torch.Tensor:
    """``x``, where it is finite. Raises ``QRError``: it has overflowed the storage format."""
    if is_finite(x):
        return x
    f = precision.storage
    raise QRError(
        f"{what} overflows {f.name}, whose largest number is {f.greatest:g}: scale A so that its "
        f"columns have norms well below that"
    )


def prepared(a: torch.Tensor, precision: Precision) -> torch.Tensor:
    """A column-major copy of ``a`` (..., m, n), rounded to the storage format, in the carrier.

    Raises ``QRError`` for what is not a real matrix with m >= n >= 1, has NaN or infinite elements,
    or overflows the format.
    """
    if not isinstance(a, torch.Tensor):
        raise TypeError(f"A must be a torch tensor, not {type(a).__name__}")
    if a.dim() < 2 or not a.dtype.is_floating_point:
        raise QRError(f"A must be a matrix of real floats, not {a.dtype} {list(a.shape)}")
    m, n = a.shape[-2:]
    if n < 1:
        raise QRError(f"A has no columns: {m} x {n}")
    if m < n:
        raise QRError(f"A must have at least as many rows as columns, not {m} x {n}: factor A^T")
    if not is_finite(a):
        raise QRError("A has NaN or infinite elements")
    wide = a if a.dtype is torch.float64 else a.to(torch.float32)
    x = precision.storage.round(wide.detach()).to(precision.carrier)
    checked_finite(x, "A", precision)
    return column_major(x)
