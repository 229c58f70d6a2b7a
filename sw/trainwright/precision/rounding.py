"""Rounding to a binary format, to nearest with ties to even, on tensors that stay wide.

torch casts float32 to its own small types with one correct rounding, but float64 in two steps
(through float32), which is not round to nearest. Here float64 is rounded once, arithmetically.
"""

import torch


def power_of_two(exponent: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return 2^exponent, exact, of integers; exponents are held to the normal range.

    (``torch.ldexp`` goes through a float32 power.) ``dtype`` is float32 or float64.
    """
    if dtype is torch.float32:
        return ((exponent.to(torch.int32).clamp(-126, 127) + 127) << 23).view(dtype)
    return ((exponent.to(torch.int64).clamp(-1022, 1023) + 1023) << 52).view(dtype)


def scale_by_power(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Return x 2^exponent, rounded once, for exponents of any size; both broadcast.

    ``x`` is float32 or float64. Exponents outside the normal range are applied in three parts: a
    part that rounds is then followed by parts that leave nothing, so that no result rounds twice.
    """
    reach = 126 if x.dtype is torch.float32 else 1022
    wide = exponent.abs() > reach
    if not bool(wide.any()):
        return x * power_of_two(exponent, x.dtype)
    part = torch.where(wide, exponent.clamp(-3 * reach, 3 * reach) // 3, 0)
    rest = torch.where(wide, exponent.clamp(-3 * reach, 3 * reach) - 2 * part, exponent)
    step = power_of_two(part, x.dtype)
    return x * power_of_two(rest, x.dtype) * step * step


def exponent_of(top: torch.Tensor) -> torch.Tensor:
    """Return the integers e with ``top`` in [2^(e-1), 2^e) for numbers over 0, and 0 for 0."""
    return torch.frexp(top).exponent


def round_float64(x: torch.Tensor, digits: int, least: int) -> torch.Tensor:
    """Return the nearest multiple of a unit in the last of ``digits`` places, ties to even.

    There is no overflow.

    ``x`` float64 of any shape. ``least`` is the exponent of the smallest normal number: below
    2^least the grid stays that of 2^least (gradual underflow). Adding and subtracting 1.5 times the
    power of two whose last place is the wanted one leaves the rounding to the machine's adder.
    """
    _, exponent = torch.frexp(x)  # |x| in [2^(exponent-1), 2^exponent)
    place = (exponent - 1).clamp(min=least, max=900)
    magic = 1.5 * power_of_two(place + 53 - digits, x.dtype)
    return (x + magic) - magic


def round_float32_to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Round float32 to the 11 digits of tf32: both have the same exponents, so 13 bits are cut.

    Works on the bit pattern, whose order is that of the magnitudes: subnormals and the carry into
    the exponent, up to infinity, need no case of their own.
    """
    bits = x.contiguous().view(torch.int32)
    kept = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(x.isfinite(), kept.view(torch.float32), x)
