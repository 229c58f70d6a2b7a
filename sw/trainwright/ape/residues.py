"""float64 products from int8 ones, through residues (``trainwright.precision.residues``).

Rows of A and columns of B become integers of ``BITS`` bits, whose product is exact.
"""

from math import log2

import torch
from torch import Tensor

from trainwright.precision import residues
from trainwright.precision.rounding import scale_by_power

BITS = 56
"""Bits of the integers: a float64 of a row's largest binade and the next three is held exactly."""
MODULI = residues.MODULI[:18]


def moduli_for(terms: int) -> tuple[int, ...]:
    """Return the fewest moduli that hold sums of ``terms`` products and their signs."""
    most = int(sum(map(log2, MODULI))) - 2 * BITS - 1
    if terms > 1 << most:
        raise ValueError(f"fp64-i8 sums at most 2^{most} terms")
    return residues.moduli_for(2 * BITS + 1 + log2(terms))


def error_bound(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest error of each element before the result's own rounding, (..., M, N).

    K (2^-BITS + 2^-2BITS-2) 2^(e + f), where 2^e and 2^f exceed the row's and column's elements.
    """
    e, f = _exponents(a, -1), _exponents(b, -2)
    share = a.shape[-1] * (2.0**-BITS + 2.0 ** (-2 * BITS - 2))
    bound = torch.full((), share, dtype=torch.float64, device=a.device)
    return scale_by_power(bound, (e + f).to(torch.int64))


def _exponents(x: Tensor, dim: int) -> Tensor:
    """Return the least e with |x| < 2^e along ``dim``, which is kept; 0 for zeros."""
    return torch.frexp(x.abs().amax(dim, keepdim=True)).exponent.to(torch.int32)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply finite float64 (M, K) by (K, N)."""
    e, f = _exponents(a, -1)[:, 0], _exponents(b, -2)[0]
    terms = torch.zeros(a.shape[1], dtype=torch.int32, device=a.device)
    moduli = moduli_for(a.shape[1])
    exact = residues.product(a.unsqueeze(-1), b.unsqueeze(-1), (e, terms, f), BITS, moduli, 1,
                             passes=3)  # fmt: skip
    return exact[..., 0]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply float64 (B, M, K) by (B, K, N), none empty, to float64.

    Each element errs by at most ``error_bound`` and one rounding; where every factor is held
    exactly, by the rounding alone. Elements that see an infinity or NaN are IEEE's.
    """
    fine_a, fine_b = torch.isfinite(a), torch.isfinite(b)
    fine = fine_a.all(-1, keepdim=True) & fine_b.all(-2, keepdim=True)
    zero = torch.zeros((), dtype=torch.float64, device=a.device)
    x, y = torch.where(fine_a, a, zero), torch.where(fine_b, b, zero)
    exact = torch.stack([_product(*pair) for pair in zip(x, y, strict=True)])
    return exact if bool(fine.all()) else torch.where(fine, exact, a @ b)
