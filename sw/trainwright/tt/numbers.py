"""Numbers that tensor trains are orthogonalised in: a QR method and its precisions."""

from dataclasses import dataclass, replace

import torch

from trainwright.precision import PrecisionFormat
from trainwright.qr import block_qr, householder_qr, tsqr
from trainwright.qr.precision import Precision, make_precision
from trainwright.qr.result import QR
from trainwright.support.arguments import is_size, take_numpy_sizes
from trainwright.tt.scaling import near_one, widened

METHODS = ("block", "householder", "tsqr")


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """``method`` of ``trainwright.qr`` with its options; all products follow ``rounding`` too.

    Raises ``ValueError`` for options that are none, and for a ``block`` or ``levels`` other than
    the default with a method that does not read it.

    >>> Numbers(low="fp16", high="fp32", rounding="block").precision.storage.name
    'fp16'
    """

    method: str = "block"
    low: str | PrecisionFormat | None = None
    high: str | PrecisionFormat = "fp64"
    rounding: str = "end"
    block: int = 32
    levels: int = 2

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "block", "levels")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        for name, value, least in (("block", self.block, 1), ("levels", self.levels, 0)):
            if not is_size(value, least):
                raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")
        for name, method in (("block", "block"), ("levels", "tsqr")):
            if self.method != method and getattr(self, name) != getattr(Numbers, name):
                raise ValueError(
                    f"{name} is for method {method!r}, and the method is {self.method!r}: omit it"
                )
        make_precision(self.low, self.high, self.rounding)
        if self.low is None and self.rounding != "end":
            raise ValueError(
                f"rounding {self.rounding!r} (--cast-level) says where results are cast to low: "
                "give low (--low) too, or omit it"
            )

    @property
    def precision(self) -> Precision:
        """Both precisions and the level of rounding."""
        return make_precision(self.low, self.high, self.rounding)

    def uniform(self) -> "Numbers":
        """Return these numbers with everything in ``high``."""
        return replace(self, low=None, rounding="end")

    def qr(self, a: torch.Tensor) -> QR:
        """Factor ``a`` (m, n), m >= n; TSQR with fewer levels where the matrix is not tall."""
        low, high, rounding = self.low, self.high, self.rounding
        if self.method == "householder":
            return householder_qr(a, low=low, high=high, rounding=rounding)
        if self.method == "block":
            return block_qr(a, block=self.block, low=low, high=high, rounding=rounding)
        levels = min(self.levels, a.shape[0].bit_length())
        while levels and a.shape[0] >> levels < a.shape[1]:
            levels -= 1
        return tsqr(a, levels=levels, low=low, high=high, rounding=rounding)

    def store(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` rounded to the storage format, in the carrier type."""
        return self.precision.storage.round(widened(x)).to(self.precision.carrier)

    def near_one(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        """Return ``x`` over 2^e, stored, and e; the largest element is about 1 (``tt.scaling``).

        The result has no gradient: factorisations give none, and a partial gradient would mislead.
        """
        scaled, exponent = near_one(widened(x.detach()))
        return self.store(scaled), exponent

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply stored matrices, rounded where the level says, and stored."""
        return self.store(self.precision.trailing.matmul(a, b))

    def qr_any(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Q (m, k) and R (k, n), k = min(m, n), by the first columns of a wide matrix."""
        m, n = a.shape
        if m >= n:
            result = self.qr(a)
            return result.Q, result.R
        result = self.qr(a[:, :m])
        rest = result.apply(a[:, m:], transposed=True)
        return result.Q, torch.cat([result.R, rest.to(result.R.dtype)], 1)

    def svd(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return U (m, k), s (k,), V^T (k, n): QR in these numbers, then the SVD of R in float64.

        R is small; U and V^T are stored, and U = Q U_R is a product in these numbers.
        """
        m, n = a.shape
        if m < n:
            u, s, vt = self.svd(a.mT)
            return vt.mT, s, u.mT
        result = self.qr(a)
        u, s, vt = torch.linalg.svd(result.R.to(torch.float64), full_matrices=False)
        return self.matmul(result.Q, self.store(u)), s, self.store(vt)
