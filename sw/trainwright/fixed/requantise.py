"""Re-quantisation: the one definition that hardware, golden model and host share.

``q = saturate(round_half_even(value / 2^shift), width)`` on two's complement integers.
"""

import torch

MAX_SHIFT = 63


def limits(width: int) -> tuple[int, int]:
    """Least and greatest value of a signed integer of ``width`` bits."""
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def round_shift(value: torch.Tensor, shift: int) -> torch.Tensor:
    """Divide int64 ``value`` by 2^shift, rounding half to even.

    Exact for every ``value`` of at most 63 significant bits and ``shift`` from 0 to 62; from 63 on
    every such value rounds to 0.
    """
    if not 0 <= shift <= MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    if shift == 0:
        return value
    if shift == MAX_SHIFT:
        return torch.zeros_like(value)
    floor = value >> shift
    remainder = value - (floor << shift)  # 0 .. 2^shift - 1
    half = 1 << (shift - 1)
    up = (remainder > half) | ((remainder == half) & ((floor & 1) == 1))
    return floor + up.to(value.dtype)


def requantise(value: torch.Tensor, shift: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Requantise int64 ``value`` to ``width`` bits.

    Returns the integers (int64) and a boolean tensor that marks the saturated ones.
    """
    least, greatest = limits(width)
    rounded = round_shift(value, shift)
    q = rounded.clamp(least, greatest)
    return q, q != rounded


def requantise_float(value: torch.Tensor, shift: int, width: int) -> tuple[torch.Tensor, int, int]:
    """The same on a float tensor of exact integers, in place; also sum|q| and saturations.

    Exact if ``value`` is: scaling by a power of two is exact, and ``torch.round`` rounds half to
    even. Float32 holds integers of up to 24 bits, float64 of up to 53.
    """
    if not 0 <= shift <= MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    least, greatest = limits(width)
    if shift:
        value = value.mul_(2.0**-shift).round_()
    low, high = torch.aminmax(value)
    saturations = 0
    if low < least or high > greatest:
        saturations = int(((value < least) | (value > greatest)).sum())
        value = value.clamp_(least, greatest)
    total = int(value.abs().sum(dtype=torch.float64))
    return value, total, saturations
