"""Exact sums in float64 and one correct rounding to float32.

A float64 sum rounded again to float32 is rounded twice, which is wrong at ties. So it is rounded to
odd first (``trainwright.support.errorfree``), and a number rounded to odd in 53 bits rounds
correctly to 24.
"""

from typing import Literal

import torch
from torch import Tensor

Rounding = Literal["nearest", "zero"]


def round_tf32(x: Tensor) -> Tensor:
    """float32 to the nearest TF32 (10 bits of significand), ties to even, stored as float32.

    Infinities and NaN stay; values from the tie above the largest TF32 on become infinite.
    """
    bits = x.view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(torch.isfinite(x), rounded.view(torch.float32), x)


_LOW_29 = (1 << 29) - 1


def to_float32(x: Tensor, rounding: Rounding) -> Tensor:
    """float64, exact or rounded to odd, to float32 values kept in float64.

    ``zero``: toward zero, hence never from finite to infinite.
    """
    if rounding == "nearest":
        return x.to(torch.float32).to(torch.float64)
    low, high = torch.aminmax(x.abs()) if x.numel() else (torch.ones(()), torch.ones(()))
    if low >= 2.0**-126 and high < 2.0**128:  # normal float32 throughout: cut the bits off
        return (x.view(torch.int64) & ~_LOW_29).view(torch.float64)
    near = x.to(torch.float32)
    beyond = near.to(torch.float64).abs() > x.abs()
    inward = torch.nextafter(near, torch.zeros_like(near))
    return torch.where(beyond, inward, near).to(torch.float64)


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent in float64, exactly; exponents (int64) of -1022 to 1023."""
    return ((exponent + 1023) << 52).view(torch.float64)
