"""Products from int8 ones, through residues (``trainwright.precision.residues``).

Rows of A and columns of B become integers of a type's ``bits``, whose product is exact.
"""

from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor

from trainwright.precision import residues
from trainwright.precision.rounding import scale_by_power

Exponents = tuple[Tensor, Tensor, Tensor]
"""Exponents of rows, terms and columns, int32, as ``residues.product`` takes them."""


@dataclass(frozen=True, kw_only=True)
class ResidueType:
    """Type whose numbers become integers of ``bits`` below a power of two of their row or column.

    ``bits`` are 3 more than the significand's: a number of the largest binade of its row and of
    the next three is held exactly.
    """

    name: str
    dtype: torch.dtype
    components: int
    """Numbers of ``dtype`` whose sum an element is; above 1 they are the last dimension."""
    bits: int

    def moduli(self, terms: int, largest: int = 256) -> residues.Moduli:
        """Return the fewest moduli that hold sums of ``terms`` products and their signs."""
        return residues.moduli_for(2 * self.bits + 1 + log2(terms), largest)

    def error_bound(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the largest error of each element before the result's own rounding, (..., M, N).

        K (c 2^-bits + c^2 2^-2bits-2) 2^(e + f), where 2^e and 2^f exceed the row's and column's
        elements, and c is the number of components: each is rounded to an integer.
        """
        a, b = (x if self.components > 1 else x.unsqueeze(-1) for x in (a, b))
        rows, columns = _exponents(a, -1), _exponents(b, -2)
        c = self.components
        share = a.shape[-2] * (c * 2.0**-self.bits + c * c * 2.0 ** (-2 * self.bits - 2))
        bound = torch.full((), share, dtype=torch.float64, device=a.device)
        power = rows.unsqueeze(-1) + columns.unsqueeze(-2)
        return scale_by_power(bound, power.to(torch.int64))


TYPES = {
    form.name: form
    for form in (
        ResidueType(name="fp32-i8", dtype=torch.float32, components=1, bits=27),
        ResidueType(name="fp64-i8", dtype=torch.float64, components=1, bits=56),
        # Two components hold 106 bits and often more; 4 digits of 28 bits hold 112.
        ResidueType(name="fp128-i8", dtype=torch.float64, components=2, bits=112),
    )
}
"""Types by name."""


def _exponents(x: Tensor, dim: int) -> Tensor:
    """Return the least e with |x| < 2^e along ``dim`` of (..., M, N), 0 for zeros.

    ``x`` has its components last; the sum of their magnitudes bounds an element.
    """
    sizes = x.to(torch.float64).abs().sum(-1)
    largest = sizes.amax(dim) if sizes.shape[dim] else sizes.sum(dim)
    return torch.frexp(largest).exponent.to(torch.int32)


def exponents(a: Tensor, b: Tensor) -> Exponents:
    """Return the exponents of finite components (M, K, c) and (K, N, c)."""
    terms = torch.zeros(a.shape[1], dtype=torch.int32, device=a.device)
    return _exponents(a, -1), terms, _exponents(b, -2)


def _product(a: Tensor, b: Tensor, form: ResidueType) -> Tensor:
    """Multiply finite components (M, K, c) by (K, N, c)."""
    return residues.product(
        a, b, exponents(a, b), form.bits, form.moduli(a.shape[1]), form.components, passes=3
    )


def product(a: Tensor, b: Tensor, form: ResidueType) -> Tensor:
    """Multiply (B, M, K) by (B, K, N), none empty; with several components these are last.

    Each element errs by at most the type's ``error_bound`` and one rounding; where every factor is
    held exactly, by the rounding alone. Elements that see an infinity or NaN are IEEE's.
    """
    if form.components == 1:
        return _parted(a.unsqueeze(-1), b.unsqueeze(-1), form)[..., 0]
    return _parted(a, b, form)


def _parted(a: Tensor, b: Tensor, form: ResidueType) -> Tensor:
    fine_a, fine_b = (torch.isfinite(x).all(-1, keepdim=True) for x in (a, b))
    fine = fine_a.all(-2, keepdim=True) & fine_b.all(-3, keepdim=True)
    x, y = (torch.where(is_fine, z, 0) for is_fine, z in ((fine_a, a), (fine_b, b)))
    exact = torch.stack([_product(*pair, form) for pair in zip(x, y, strict=True)])
    if bool(fine.all()):
        return exact
    plain = (a[..., 0] @ b[..., 0]).unsqueeze(-1)
    rest = torch.zeros_like(exact[..., 1:])
    return torch.where(fine, exact, torch.cat([plain, rest], -1))
