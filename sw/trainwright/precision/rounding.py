"""Rounding to a binary format, to nearest with ties to even, on tensors that stay wide.

torch casts float32 to its own small types with one correct rounding, but float64 in two steps
(through float32), which is not round to nearest. Here float64 is rounded once, arithmetically.
"""

import torch


def power_of_two(exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """2^exponent, exact, of an integer tensor; exponents outside the normal range are held there.

    (``torch.ldexp`` goes through a float32 power.) ``dtype`` is float32 or float64.
    """
    if dtype is torch.float32:
        return ((exponent.to(torch.int32).clamp(-126, 127) + 127) << 23).view(dtype)
    return ((exponent.to(torch.int64).clamp(-1022, 1023) + 1023) << 52).view(dtype)


def round_float64(x: torch.Tensor, digits: int, least: int) -> torch.Tensor:
    """Nearest multiple of one unit in the last of ``digits`` places, ties to even; no overflow.

    ``x`` float64 of any shape. ``least`` is the exponent of the smallest normal number: below
    2^least the grid stays that of 2^least (gradual underflow). Adding and subtracting 1.5 times the
    power of two whose last place is the wanted one leaves the rounding to the machine's adder.
    """
    _, exponent = torch.frexp(x)  # |x| in [2^(exponent-1), 2^exponent)
    place = (exponent - 1).clamp(min=least, max=900)
    magic = 1.5 * power_of_two(place + 53 - digits, x.dtype)
    return (x + magic) - magic


def round_float32_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """float32 to the 11 digits of tf32: both have the same exponents, so 13 bits are cut.

    Works on the bit pattern, whose order is that of the magnitudes: subnormals and the carry into
    the exponent, up to infinity, need no case of their own.
    """
    bits = x.contiguous().view(torch.int32)
    kept = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(x.isfinite(), kept.view(torch.float32), x)
