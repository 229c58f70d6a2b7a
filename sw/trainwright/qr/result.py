"""Results that all factorisations share: factors, application of Q, bounds and measured errors."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from trainwright.precision.rounding import exponent_of, scale_by_power
from trainwright.qr.apriori import ErrorBound, Shape, a_priori, leading
from trainwright.qr.measure import least_norm, orthogonality, residual
from trainwright.qr.precision import Precision
from trainwright.support.arguments import flag, require_dense, require_kind, require_plain
from trainwright.support.errors import UserError
from trainwright.support.graphs import library_call
from trainwright.support.text import amount


class QRError(UserError, ValueError):
    """Error: a matrix cannot be factored or overflows the format; the message has the remedy."""


@dataclass(frozen=True)
class Errors:
    """Largest errors of a batch, measured in float64 (``qr/measure.py``), and their bounds."""

    residual: float
    """||QR - A||_F / ||A||_F for the given A; 0 for A = 0."""
    orthogonality: float
    """||Q^T Q - I||_2."""
    bound: ErrorBound
    """Worst-case bound; inf where the analysis gives none."""
    probable: ErrorBound
    """Square-root bound for independent rounding errors of mean 0 (lambda = 1)."""
    leading: float
    """Leading term of the worst case with constant 1."""


@dataclass(frozen=True, eq=False)
class QR(ABC):
    """Factorisation A = QR of ``a`` (..., m, n), m >= n.

    ``R`` (..., n, n) is upper triangular. ``V`` and ``beta`` hold the reflectors I - beta v v^T.
    All numbers are in the storage format, kept in float32 or float64; reflectors of a factorisation
    rounded at the end are in the high format. ``a`` is the caller's tensor, not a copy.
    """

    a: torch.Tensor
    R: torch.Tensor
    precision: Precision
    shape: Shape

    @property
    def m(self) -> int:
        """Rows of A."""
        return self.shape.m

    @property
    def n(self) -> int:
        """Columns of A."""
        return self.shape.n

    @abstractmethod
    def _apply(self, x: torch.Tensor, *, transposed: bool, triangular: bool = False) -> None:
        """Compute x <- Q x or Q^T x in place with the reflectors' Q (m, m), ``x`` (..., m, q)."""

    @library_call
    def apply(self, x: torch.Tensor, *, transposed: bool = False) -> torch.Tensor:
        """Return Q x, or Q^T x, without forming Q; Q is the full (m, m) and ``x`` (..., m, q).

        Uses the precisions of the factorisation. Raises ``QRError`` where the product overflows.
        """
        transposed = flag("transposed", transposed)
        require_rows(x, self.m, -2)
        batch = torch.broadcast_shapes(x.shape[:-2], self.R.shape[:-2])
        if not x.is_floating_point():
            x = x.to(torch.float64)
        x = x.expand(*batch, *x.shape[-2:])
        x, exponent = with_scaled_columns(x, "X", self.precision)
        self._apply(x, transposed=transposed)
        return with_columns_restored(x, exponent, "the product with Q", self.precision)

    def _columns(self, count: int) -> torch.Tensor:
        x = column_major_zeros(self.R.new_empty(*self.R.shape[:-2], self.m, count))
        x.diagonal(dim1=-2, dim2=-1).fill_(1)
        self._apply(x, transposed=False, triangular=count <= self.n)
        return checked_finite(self.precision.storage.round(x), "Q", self.precision)

    @cached_property
    @library_call
    def Q(self) -> torch.Tensor:
        """Thin Q (..., m, n), computed at the first access."""
        return self._columns(self.n)

    @cached_property
    @library_call
    def Q_full(self) -> torch.Tensor:
        """Full Q (..., m, m), computed at the first access."""
        return self._columns(self.m)

    @property
    @library_call
    def R_full(self) -> torch.Tensor:
        """Upper trapezoidal R (..., m, n)."""
        zeros = self.R.new_zeros(*self.R.shape[:-2], self.m - self.n, self.n)
        return torch.cat([self.R, zeros], -2)

    @cached_property
    def bound(self) -> ErrorBound:
        """Worst-case bound, known before anything is computed."""
        return self._bound(None)

    def _bound(self, factor: float | None) -> ErrorBound:
        """Add to the a priori bound the cost of rounding A and R to subnormal numbers."""
        bound = a_priori(self.shape, self.precision, factor=factor)
        storage, count = self.precision.storage, self.m * self.n
        if storage.tapered or not self.a.numel():
            return bound
        # Each element of A and of R may lose half of the last place of subnormal numbers.
        place = storage.least - storage.digits
        size, exponent = least_norm(self.a)
        relative = math.ldexp(math.sqrt(count) / size, min(place - exponent, 999)) if size else 0.0
        return replace(bound, residual=bound.residual + relative * (2 + bound.orthogonality))

    @cached_property
    @library_call
    def errors(self) -> Errors:
        """Measured errors of the thin factors, with their bounds."""
        a, q, r = (t.detach().to(torch.float64) for t in (self.a, self.Q, self.R))
        off, skew = residual(a, q, r), orthogonality(q)
        return Errors(
            residual=float(off.max()) if off.numel() else 0.0,
            orthogonality=float(skew.max()) if skew.numel() else 0.0,
            bound=self.bound,
            probable=self._bound(1.0),
            leading=leading(self.shape, self.precision),
        )


def require_rows(x: torch.Tensor, m: int, axis: int) -> None:
    """Raise ``TypeError`` or ``QRError`` unless Q (m, m) applies to ``x`` along ``axis``."""
    require_kind("x", x, torch.Tensor)
    if x.dim() < max(-axis, 1) or x.shape[axis] != m or x.is_complex():
        raise QRError(
            f"Q applies to real matrices of {amount(m, 'row')}, not {x.dtype} {list(x.shape)}"
        )


def column_major_zeros(like: torch.Tensor) -> torch.Tensor:
    """Return zeros of the shape (..., m, n) of ``like``, with contiguous columns."""
    return like.new_zeros(*like.shape[:-2], like.shape[-1], like.shape[-2]).mT


def column_major(x: torch.Tensor) -> torch.Tensor:
    """Copy with contiguous columns, over which the column loops run fastest."""
    return x.new_empty(*x.shape[:-2], x.shape[-1], x.shape[-2]).mT.copy_(x)


def is_finite(x: torch.Tensor) -> bool:
    """Return whether no element is NaN or infinite."""
    if x.numel() == 0:
        return True
    wide = x if x.dtype is torch.float64 else x.to(torch.float32)
    low, high = torch.aminmax(wide.detach())  # no boolean tensor, unlike ``isfinite``
    return math.isfinite(low) and math.isfinite(high)


def checked_finite(x: torch.Tensor, what: str, precision: Precision) -> torch.Tensor:
    """Return ``x`` if it is finite. Raises ``QRError`` where it overflowed the storage format."""
    if is_finite(x):
        return x
    f = precision.storage
    raise QRError(
        f"{what} overflows {f.name}, whose largest number is {f.greatest:g}: scale A so that its "
        f"columns have norms well below that"
    )


def scales_exactly(precision: Precision) -> bool:
    """Return whether powers of two scale without rounding: posits lose digits far from 1."""
    return not (precision.panel.format.tapered or precision.trailing.format.tapered)


_USUAL_EXPONENT = 20
"""Exponents of two up to which columns of the machine's types are not scaled: half of what float32
needs for squares that underflow to be below the last place of their sum."""


def with_scaled_columns(
    x: torch.Tensor, what: str, precision: Precision, *, copy: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Round ``x`` (..., m, n) to the storage format and divide its columns by powers of two.

    Returns the columns, with largest elements in [1/2, 1), column-major in the carrier, and the
    exponents (..., n). Scaled columns have bit for bit the same reflectors, but nothing overflows
    or underflows on the way: columns of any size are factored as accurately as those of size 1.
    Columns of the machine's types that are within 2^20 of 1 stay as they are.
    Raises ``QRError`` for NaN and infinite elements, and for elements that overflow the format.
    Without ``copy`` the columns may be those of ``x`` itself.
    """
    wide = x.detach() if x.dtype is torch.float64 else x.detach().to(torch.float32)
    stored = precision.storage.round(wide).to(precision.carrier)
    if not stored.numel():
        return column_major(stored), stored.new_zeros(*x.shape[:-2], x.shape[-1], dtype=torch.int32)
    top = torch.maximum(stored.amax(-2), -stored.amin(-2))  # aminmax takes ten times as long
    if not bool(top.isfinite().all()):
        if not is_finite(x):
            raise QRError(f"{what} has NaN or infinite elements")
        checked_finite(stored, what, precision)
    if not scales_exactly(precision):
        return column_major(stored), torch.zeros_like(top, dtype=torch.int32)
    exponent = exponent_of(top)
    format = precision.trailing.format
    machine = format.native and format.carrier is stored.dtype
    if machine and not bool((exponent.abs() > _USUAL_EXPONENT).any()):
        # Unscaled columns have the same bits where nothing over- or underflows.
        return column_major(stored) if copy else stored, torch.zeros_like(exponent)
    scaled = scale_by_power(stored, -exponent.unsqueeze(-2))
    # Elements below 2^-14 of their column's largest may now be subnormal in a narrow format.
    return column_major(format.round(scaled)), exponent


def with_columns_restored(
    x: torch.Tensor, exponent: torch.Tensor, what: str, precision: Precision
) -> torch.Tensor:
    """Undo ``with_scaled_columns`` on ``x`` (..., k, n), rounded once to the storage format.

    Raises ``QRError`` where the result overflows.
    """
    if bool(exponent.any()):  # float32 would round subnormal results twice
        x = scale_by_power(x.to(torch.float64), exponent.unsqueeze(-2))
    result = precision.storage.round(x).to(precision.carrier)
    return checked_finite(result, what, precision)


def check_real(a: torch.Tensor) -> None:
    """Raise ``TypeError`` or ``QRError`` unless ``a`` is a tensor (..., m, n) of real floats."""
    if not isinstance(a, torch.Tensor):
        raise TypeError(f"A must be a torch tensor, not {type(a).__name__}")
    require_dense("A", a)
    require_plain("A", a)
    if a.dim() < 2 or not a.dtype.is_floating_point:
        raise QRError(f"A must be a matrix of real floats, not {a.dtype} {list(a.shape)}")


def prepared(
    a: torch.Tensor, precision: Precision, *, copy: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale ``a`` (..., m, n) by ``with_scaled_columns``; return it with the columns' exponents.

    Raises ``QRError`` unless ``a`` is a real, finite matrix with m >= n >= 1 that fits the format.
    """
    check_real(a)
    m, n = a.shape[-2:]
    if n < 1:
        raise QRError(f"A has no columns: {m} x {n}")
    if m < n:
        raise QRError(f"A must have at least as many rows as columns, not {m} x {n}: factor A^T")
    return with_scaled_columns(a, "A", precision, copy=copy)
