"""Exact float64 sums and one correct rounding to float32.

Rounding a float64 sum again to float32 rounds twice, which is wrong at ties. The sum is therefore
rounded to odd (``trainwright.support.errorfree``): a number rounded to odd in 53 bits rounds
correctly to 24.
"""

from typing import Literal

import torch
from torch import Tensor

Rounding = Literal["nearest", "zero"]


def round_tf32(x: Tensor) -> Tensor:
    """Round float32 to TF32 (10 fraction bits), ties to even, stored as float32.

    Infinities and NaN are kept; values from the tie above the largest TF32 on become infinite.
    """
    bits = x.resolve_neg().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(torch.isfinite(x), rounded.view(torch.float32), x)


_LOW_29 = (1 << 29) - 1


def to_float32(x: Tensor, rounding: Rounding) -> Tensor:
    """Round float64, exact or rounded to odd, to float32 values kept in float64.

    ``zero`` rounds toward zero, hence never from finite to infinite.
    """
    if rounding == "nearest":
        return x.to(torch.float32).to(torch.float64)
    low, high = torch.aminmax(x.abs()) if x.numel() else (torch.ones(()), torch.ones(()))
    if low >= 2.0**-126 and high < 2.0**128:  # all are normal float32 numbers: truncate the bits
        return (x.view(torch.int64) & ~_LOW_29).view(torch.float64)
    near = x.to(torch.float32)
    beyond = near.to(torch.float64).abs() > x.abs()
    inward = torch.nextafter(near, torch.zeros_like(near))
    return torch.where(beyond, inward, near).to(torch.float64)
