"""Constants as expansions of any length, computed in integer arithmetic."""

from fractions import Fraction
from functools import cache

import torch
from torch import Tensor

from trainwright.mcf.errorfree import PRECISION


def components_of(value: Fraction, dtype: torch.dtype, nc: int) -> list[float]:
    """Split an exact number into nc components, each rounded to nearest even in ``dtype``."""
    parts = []
    for _ in range(nc):
        parts.append(rounded(value, dtype))
        if parts[-1] in (float("inf"), float("-inf")):
            break
        value -= Fraction(parts[-1])
    return parts + [0.0] * (nc - len(parts))


def rounded(value: Fraction, dtype: torch.dtype) -> float:
    """Round an exact number to ``dtype``, ties to even; infinite beyond the range."""
    if value == 0:
        return 0.0
    info = torch.finfo(dtype)
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    least = Fraction(info.smallest_normal)
    lowest = 1 - least.denominator.bit_length() + 1
    unit = Fraction(2) ** (max(exponent, lowest) - PRECISION[dtype] + 1)
    result = round(size / unit) * unit  # round() of a Fraction: ties to even
    if result > Fraction(info.max):
        return float("inf") if value > 0 else float("-inf")
    return float(result if value > 0 else -result)


def number(value: Fraction, like: Tensor, nc: int) -> Tensor:
    """Return an exact number as components (nc)."""
    parts = components_of(value, like.dtype, nc)
    return torch.tensor(parts, dtype=torch.float64).to(like.device, like.dtype)


@cache
def ln2(digits: int) -> Fraction:
    """Return the natural logarithm of 2 to at least ``digits`` binary digits, as 2 artanh(1/3)."""
    total, power, k = Fraction(0), Fraction(2, 3), 0
    while power > Fraction(1, 1 << (digits + 4)):
        total += power / (2 * k + 1)
        power /= 9
        k += 1
    return Fraction(round(total * (1 << (digits + 4))), 1 << (digits + 4))


@cache
def pi(digits: int) -> Fraction:
    """Return pi to at least ``digits`` binary digits, by Machin's formula."""

    def arctan(n: int) -> Fraction:
        total, power, k = Fraction(0), Fraction(1, n), 0
        while power > Fraction(1, 1 << (digits + 8)):
            total += power / (2 * k + 1) * (-1) ** k
            power /= n * n
            k += 1
        return total

    value = 16 * arctan(5) - 4 * arctan(239)
    return Fraction(round(value * (1 << (digits + 4))), 1 << (digits + 4))
