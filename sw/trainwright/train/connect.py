"""BinaryConnect (equation 3): float32 master weights, few-bit factors for the accelerator."""

import torch

from trainwright.fixed.requantise import limits


def quantise(value: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
    """Integers (int64) of ``width`` bits nearest to ``value`` / 2^exponent.

    Rounds half to even and saturates. Exact: the division is by a power of two, in float64.
    """
    least, greatest = limits(width)
    scaled = value.to(torch.float64) * 2.0**-exponent
    return scaled.round().clamp(least, greatest).to(torch.int64)


def dequantise(q: torch.Tensor, exponent: int) -> torch.Tensor:
    """Values (float64) of integers."""
    return q.to(torch.float64) * 2.0**exponent


def clip(value: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
    """The master weight held within what ``width`` bits can represent.

    Beyond it the quantised factor no longer moves while the master weight would run away.
    """
    least, greatest = limits(width)
    return value.clamp(least * 2.0**exponent, greatest * 2.0**exponent)


MEAN_STEPS = (1.5, 3.6)
"""Where the mean magnitude of a factor may lie, in quantisation steps at 4 bits: its standard
deviation is then 1.9 to 4.5 steps if it is normal, and the best for 16 levels is 3."""


def direction(value: torch.Tensor, exponent: int, width: int) -> int:
    """By how much the exponent of a factor should move: -1, 0 or 1."""
    steps = float(value.to(torch.float64).abs().mean()) * 2.0 ** (4 - width - exponent)
    least, greatest = MEAN_STEPS
    return 1 if steps > greatest else -1 if 0 < steps < least else 0
