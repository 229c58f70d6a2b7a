"""The arithmetics that one and the same QR code runs in: machine, simulated, mixed.

Tensors hold numbers of the format in a carrier type (float32 or float64). Elementwise operations
are rounded one by one; ``matmul`` says how inner products are summed and rounded.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch

from trainwright.precision import Format
from trainwright.precision.dot import matmul_exact_products, matmul_rounded
from trainwright.precision.simulate import checked


class Arithmetic(Protocol):
    """What a Householder QR needs of numbers."""

    @property
    def format(self) -> Format:
        """The format that results are in."""
        ...

    def check(self) -> None:
        """Raise ``PrecisionError`` where it cannot be simulated exactly."""
        ...

    def round(self, x: torch.Tensor, /) -> torch.Tensor:
        """A single operation's result, rounded to the format."""
        ...

    def matmul(self, a: torch.Tensor, b: torch.Tensor, /) -> torch.Tensor:
        """Product of (..., p, k) and (..., k, q)."""
        ...

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor, /) -> None:
        """c <- c - v s^T in place: ``c`` (..., p, q), ``v`` (..., p), ``s`` (..., q)."""
        ...

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor, /) -> None:
        """c <- c - v x in place: ``c`` (..., p, q), ``v`` (..., p, k), ``x`` (..., k, q)."""
        ...


@dataclass(frozen=True)
class Machine:
    """float32 or float64 as the machine has them: torch's own operations."""

    format: Format

    def check(self) -> None:
        """Nothing to simulate."""

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """See ``Arithmetic``: the machine has rounded."""
        return x

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See ``Arithmetic``. A dot product is summed pairwise, as a norm should be."""
        if a.shape[-2] == b.shape[-1] == 1:
            return (a * b.mT).sum(-1, keepdim=True)
        return a @ b

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> None:
        """See ``Arithmetic``."""
        c.addcmul_(v.unsqueeze(-1), s.unsqueeze(-2), value=-1)

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """See ``Arithmetic``."""
        if c.dim() == 2:  # in place: a temporary as large as c costs more than the product
            c.addmm_(v, x, alpha=-1)
        else:
            c.sub_(v @ x)


@dataclass(frozen=True)
class _Stepwise:
    """Elementwise operations in ``format``, each rounded."""

    format: Format

    def check(self) -> None:
        """See ``Arithmetic``."""
        checked(self.format)

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """See ``Arithmetic``."""
        return self.format.round(x)

    def subtract_outer(self, c: torch.Tensor, v: torch.Tensor, s: torch.Tensor) -> None:
        """See ``Arithmetic``; product and difference are rounded."""
        c.copy_(self.round(c - self.round(v.unsqueeze(-1) * s.unsqueeze(-2))))

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """See ``Arithmetic``; product and difference are rounded."""
        c.copy_(self.round(c - self.matmul(v, x)))

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See ``Arithmetic``; every multiplication and addition is rounded, in order."""
        return matmul_rounded(a, b, self.format)


class Simulated(_Stepwise):
    """Every single operation in a format that the machine does not have (simHalf)."""


@dataclass(frozen=True)
class Inner(_Stepwise):
    """BLAS-2 level (3.6): inner products under Assumption 2.4, all else in the low format."""

    high: Format

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """See ``Arithmetic``; exact products, summed in high, cast to low."""
        total = matmul_exact_products(a, b, self.format, self.high)
        return self.format.round(total).to(a.dtype)


@dataclass(frozen=True)
class Level3(Inner):
    """BLAS-3 level (3.5): as ``Inner``, but an update C - V X is summed in high and cast once."""

    def subtract_product(self, c: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> None:
        """See ``Arithmetic``; one rounding to low."""
        product = matmul_exact_products(v, x, self.format, self.high)
        c.copy_(self.format.round(self.high.round(c.to(product.dtype) - product)))


def uniform(format: Format) -> Arithmetic:
    """Everything in one format."""
    return Machine(format) if format.native else Simulated(format)


def norm_shift(rows: int, format: Format) -> int:
    """Power of two to scale a vector by, its largest element being below 1, so that the sum of
    ``rows`` squares does not overflow the format.
    """
    spare = math.log2(rows) - math.log2(format.greatest)
    return -max(0, math.ceil(spare / 2))
