"""Exact sums in float64 and one correct rounding to float32.

A float64 sum rounded again to float32 is rounded twice, which is wrong at ties. Here the rounding
error of the float64 sum is known exactly (two-sum), the sum is rounded to odd with it, and a
number rounded to odd in 53 bits rounds correctly to 24 (Boldo and Melquiond 2008).
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


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth); e is NaN where s is infinite."""
    s = a + b
    c = s - a
    return s, (a - (s - c)) + (b - c)


def round_to_odd(s: Tensor, rest: Tensor) -> Tensor:
    """``s`` + ``rest`` in float64: where inexact, the neighbour of the two that is odd.

    ``s`` must be one of the two float64 neighbours of the sum; only the sign of ``rest`` counts.
    """
    inexact = rest.nonzero(as_tuple=True)
    if s.ndim and 8 * len(inexact[0]) < s.numel():  # few: touch only those
        if len(inexact[0]):
            s = s.clone()
            s[inexact] = _odd(s[inexact], rest[inexact])
        return s
    return _odd(s, rest)


def _odd(s: Tensor, rest: Tensor) -> Tensor:
    bits = s.view(torch.int64)
    move = (rest != 0) & ((bits & 1) == 0) & torch.isfinite(s)
    away = (s > 0) == (rest > 0)
    return torch.where(move, torch.where(away, bits + 1, bits - 1), bits).view(torch.float64)


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
