"""Arithmetics in which the same QR code runs: machine, simulated, mixed.

Tensors hold numbers of the format in a carrier type (float32 or float64). Every elementwise
operation is rounded; ``matmul`` defines how inner products are summed and rounded.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from trainwright.precision import PrecisionFormat
from trainwright.precision.dot import matmul_exact_products, matmul_rounded
from trainwright.precision.simulate import checked


class Arithmetic(Protocol):
    """Operations that a Householder QR needs."""

    @property
    def format(self) -> PrecisionFormat:
        """Format of the results."""
        ...

    def check(self) -> None:
        """Raise ``PrecisionError`` where the format cannot be simulated exactly."""
        ...

    def round(self, x: torch.Tensor, /) -> torch.Tensor:
        """Round the result of a single operation to the format."""
        ...

    def matmul(self, a: torch.Tensor, b: torch.Tensor, /) -> torch.Tensor:
        """Multiply (..., p, k) by (..., k, q)."""
        ...

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor, /) -> None:
        """Compute c <- c - v s^T in place: ``c`` (..., p, q), ``v`` (..., p), ``s`` (..., q)."""
        ...

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor, /) -> None:
        """Compute c <- c - v x in place: c (..., p, q), v (..., p, k), x (..., k, q)."""
        ...


@dataclass(frozen=True)
class MachineArithmetic:
    """float32 or float64 of the machine: torch's own operations."""

    format: PrecisionFormat

    def check(self) -> None:
        """Accept every format: nothing is simulated."""

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``: the machine has already rounded."""
        return x

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply with torch; a dot product is summed pairwise, which keeps norms accurate."""
        if a.shape[-2] == b.shape[-1] == 1:
            return (a * b.mT).sum(-1, keepdim=True)
        return a @ b

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> None:
        """Subtract v s^T in one call."""
        c.addcmul_(v.unsqueeze(-1), s.unsqueeze(-2), value=-1)

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """Subtract v x, in place for a single matrix."""
        if c.dim() == 2:  # a temporary as large as c costs more than the product
            c.addmm_(v, x, alpha=-1)
        else:
            c.sub_(v @ x)


@dataclass(frozen=True)
class Simulated:
    """Arithmetic in a format that the machine lacks (simHalf): every operation is rounded."""

    format: PrecisionFormat

    def check(self) -> None:
        """Raise ``PrecisionError`` where the format cannot be simulated exactly."""
        checked(self.format)

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """Round to the format."""
        return self.format.round(x)

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> None:
        """Subtract v s^T, rounding product and difference."""
        c.copy_(self.round(c - self.round(v.unsqueeze(-1) * s.unsqueeze(-2))))

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """Subtract v x, rounding product and difference."""
        c.copy_(self.round(c - self.matmul(v, x)))

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply with every multiplication and addition rounded, in order."""
        return matmul_rounded(a, b, self.format)


@dataclass(frozen=True)
class Inner(Simulated):
    """BLAS-2 level (3.6): inner products under Assumption 2.4, all other operations in low."""

    high: PrecisionFormat

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Sum exact products in high and cast to low."""
        total = matmul_exact_products(a, b, self.format, self.high)
        return self.format.round(total).to(a.dtype)


@dataclass(frozen=True)
class Level3(Inner):
    """BLAS-3 level (3.5): like ``Inner``, but C - V X is summed in high and cast once."""

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """Subtract v x with a single rounding to low."""
        product = matmul_exact_products(v, x, self.format, self.high)
        c.copy_(self.format.round(self.high.round(c.to(product.dtype) - product)))


def uniform(format: PrecisionFormat) -> Arithmetic:
    """Return the arithmetic with everything in one format."""
    return MachineArithmetic(format) if format.native else Simulated(format)


def norm_shift(rows: int, format: PrecisionFormat) -> int:
    """Return the power of two that keeps a sum of ``rows`` squares from overflowing.

    Assumes a vector whose largest element is below 1.
    """
    spare = math.log2(rows) - math.log2(format.greatest)
    return -max(0, math.ceil(spare / 2))
