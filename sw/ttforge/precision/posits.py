"""Rounding to posits, for simulation: values in, values out, no encodings.

A posit is sign, regime (k), ``es`` exponent bits and a fraction. For a given regime the encoding
grows linearly with (exponent bits + fraction), so rounding the encoding to nearest, ties to even,
is rounding that sum to as many bits as the regime leaves.
"""

import torch

from ttforge.precision.rounding import power_of_two


def posit_limits(width: int, es: int) -> tuple[float, float]:
    """Smallest and greatest positive posit: 2^-+((width - 2) 2^es)."""
    top = (width - 2) << es
    return 2.0**-top, 2.0**top


def round_posit(x: torch.Tensor, width: int, es: int) -> torch.Tensor:
    """Nearest posit(``width``, ``es``) of each element of ``x`` (float64), as float64.

    Ties go to the even encoding. Beyond the greatest posit saturates to it, below the smallest to
    that one, never to 0; NaN and infinities give NaN (NaR). The standard of 2022, at any ``es``.
    """
    least, greatest = posit_limits(width, es)
    size = x.abs().clamp(least, greatest)
    mantissa, exponent = torch.frexp(size)  # size = mantissa 2^exponent, mantissa in [0.5, 1)
    exponent = exponent - 1
    regime = exponent >> es
    tail = (exponent - (regime << es)) + (2 * mantissa - 1)  # [0, 2^es), exponent bits and fraction
    length = torch.where(regime >= 0, regime + 2, 1 - regime)
    free = (width - 1 - length).clamp(min=0)  # bits that the regime leaves
    one = torch.ones((), dtype=x.dtype, device=x.device)
    grid = power_of_two(es - free, x.dtype)
    steps = tail / grid
    rounded = steps.round()
    # With no bit left the encoding ends in the regime's: 1 (odd) below 1.0, where a tie goes up.
    rounded = torch.where((free == 0) & (regime < 0) & (steps == 0.5), one, rounded)
    tail = rounded * grid
    whole = tail.floor()
    value = (1 + (tail - whole)) * power_of_two((regime << es) + whole.to(regime.dtype), x.dtype)
    value = torch.where(size >= greatest, one * greatest, value)
    value = torch.copysign(value, x)
    value = torch.where(x == 0, torch.zeros_like(x), value)
    return torch.where(x.isfinite(), value, torch.full_like(x, float("nan")))
