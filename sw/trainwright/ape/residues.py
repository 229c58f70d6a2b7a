"""float64 products from int8 ones, through residues (Ozaki's second scheme).

Rows of A and columns of B become integers of ``BITS`` bits. Their product is formed modulo
pairwise coprime numbers of 8 bits, with int8 operands and exact sums, and is put together by the
Chinese remainder theorem: exactly, as the moduli's product exceeds twice the largest sum.
Source: Ozaki, Uchino and Imamura, *Ozaki Scheme II* (2025).
"""

from math import log2, prod

import torch
from torch import Tensor

from trainwright.ape import cuda
from trainwright.precision.rounding import scale_by_power
from trainwright.support.errorfree import two_product, two_sum

BITS = 56
"""Bits of the integers: a float64 of a row's largest binade and the next three is held exactly."""
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181)
_GROUP = 6
"""Moduli whose product stays below 2^48, so that sums of three digits' groups fit float64 pairs."""
_EXACT_TERMS = 1 << 10
"""Products of two int8 that float32 sums exactly."""
_INT32_TERMS = 1 << 16
"""Products of two int8 that an int32 accumulator holds."""


def moduli_for(terms: int) -> tuple[int, ...]:
    """Return the fewest moduli that hold sums of ``terms`` products and their signs."""
    needed = 2 * BITS + 1 + log2(terms)
    for count in range(1, len(MODULI) + 1):
        # 2^-20 covers the rounding of both logarithms.
        if sum(map(log2, MODULI[:count])) > needed + 2.0**-20:
            return MODULI[:count]
    raise ValueError(f"fp64-i8 sums at most 2^{int(sum(map(log2, MODULI))) - 2 * BITS - 1} terms")


def error_bound(a: Tensor, b: Tensor) -> Tensor:
    """Return the largest error of each element before the result's own rounding, (..., M, N).

    K (2^-BITS + 2^-2BITS-2) 2^(e + f), where 2^e and 2^f exceed the row's and column's elements.
    """
    e, f = _exponents(a, -1), _exponents(b, -2)
    share = a.shape[-1] * (2.0**-BITS + 2.0 ** (-2 * BITS - 2))
    return scale_by_power(torch.full((), share, dtype=torch.float64, device=a.device), e + f)


def _exponents(x: Tensor, dim: int) -> Tensor:
    """Return the least e with |x| < 2^e along ``dim``, which is kept; 0 for zeros."""
    return torch.frexp(x.abs().amax(dim, keepdim=True)).exponent.to(torch.int64)


def _residues(x: Tensor, modulus: int) -> Tensor:
    """Return int64 x modulo ``modulus``, of least magnitude: within int8."""
    rest = torch.remainder(x, modulus)
    return torch.where(rest > (modulus - 1) // 2, rest - modulus, rest)


def _multiplied(a: Tensor, b: Tensor, modulus: int) -> Tensor:
    """Multiply int64 (M, K) by (K, N) modulo ``modulus``, exactly, on int8 or float32 units."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int64, device=a.device)
    x, y = _residues(a, modulus), _residues(b, modulus)
    step = _INT32_TERMS if x.is_cuda else _EXACT_TERMS
    for begin in range(0, x.shape[1], step):
        left, right = x[:, begin : begin + step], y[begin : begin + step]
        if x.is_cuda:
            part = cuda.narrow_product(left.to(torch.int8), right.to(torch.int8))
        else:  # exact: sums stay below 2^24
            part = left.to(torch.float32) @ right.to(torch.float32)
        total += torch.remainder(part.to(torch.int64), modulus)
    return _residues(total, modulus)


def _digits(remainders: list[Tensor], moduli: tuple[int, ...]) -> list[Tensor]:
    """Return the digits of the number in the mixed radix of ``moduli``, each of least magnitude."""
    digits: list[Tensor] = []
    for n, modulus in enumerate(moduli):
        value, radix = torch.zeros_like(remainders[n]), 1
        for digit, earlier in zip(digits, moduli[:n], strict=True):
            value += digit * (radix % modulus)
            radix *= earlier
        inverse = pow(radix, -1, modulus)
        digits.append(_residues(_residues(remainders[n] - value, modulus) * inverse, modulus))
    return digits


def _combined(digits: list[Tensor], moduli: tuple[int, ...]) -> Tensor:
    """Round the number of these digits to float64."""
    terms: list[Tensor] = []
    radix = 1
    for begin in range(0, len(digits), _GROUP):
        group = torch.zeros_like(digits[0])
        for digit, modulus in reversed(
            list(zip(digits, moduli, strict=True))[begin : begin + _GROUP]
        ):
            group = group * modulus + digit
        high = float(radix)
        wide = group.to(torch.float64)
        for factor in (high, float(radix - int(high))):  # together the radix, below 2^96, exactly
            if factor == 1:
                terms.append(wide)
            elif factor:
                terms += two_product(wide, torch.full_like(wide, factor))
        radix *= prod(moduli[begin : begin + _GROUP])
    for _ in range(len(terms)):
        for k in range(len(terms) - 2, -1, -1):
            terms[k], terms[k + 1] = two_sum(terms[k], terms[k + 1])
    return terms[0]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply finite float64 (M, K) by (K, N)."""
    e, f = _exponents(a, -1), _exponents(b, -2)
    left = scale_by_power(a, BITS - e).round().to(torch.int64)
    right = scale_by_power(b, BITS - f).round().to(torch.int64)
    moduli = moduli_for(a.shape[1])
    digits = _digits([_multiplied(left, right, m) for m in moduli], moduli)
    return scale_by_power(_combined(digits, moduli), e + f - 2 * BITS)


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
