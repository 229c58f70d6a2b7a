"""BinaryConnect (equation 3): float32 masters on the host, few-bit factors for the accelerator."""

import torch

from ttforge.fixed.requantise import limits


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
    """The master copy held within what ``width`` bits can represent.

    Beyond it the quantised factor no longer moves while the master would run away.
    """
    least, greatest = limits(width)
    return value.clamp(least * 2.0**exponent, greatest * 2.0**exponent)
