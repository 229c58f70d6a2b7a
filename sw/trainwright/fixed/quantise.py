"""Conversion of real numbers to words of a format x 2^exponent, and back, on the host.

A format is one of ``trainwright.formats``, or a number of bits of fixed point, 32 at most.
"""

import math

import torch

from trainwright.formats import Fixed, Format
from trainwright.formats.base import check_no_nan
from trainwright.formats.rounding import limits


def extremes(fmt: Format | int) -> tuple[int, int]:
    """Return the least and the greatest word."""
    return limits(fmt) if isinstance(fmt, int) else fmt.limits


def quantise(
    values: torch.Tensor, exponent: int, fmt: Format | int, *, underflow: str = "zero"
) -> torch.Tensor:
    """Float values to the nearest words (int64) x 2^exponent: ties to even, saturating.

    Exact: the division is by a power of two, in float64. ``underflow`` as in ``Format.encode``.
    Infinities saturate; raises ``FormatError`` for NaN.
    """
    scaled = values.detach().to(torch.float64) * 2.0**-exponent
    if isinstance(fmt, int):
        check_no_nan(scaled.cpu().numpy(), f"fixed point of {fmt} bits")
        return scaled.round().clamp(*limits(fmt)).to(torch.int64)
    words = fmt.nearest(scaled.cpu().numpy(), underflow=underflow)
    return torch.from_numpy(words).to(values.device)


def dequantise(words: torch.Tensor, exponent: int, fmt: Format | None = None) -> torch.Tensor:
    """Return the values (float64) of words, or of any integers where they are not coded."""
    if fmt is not None and fmt.coded:
        words = torch.from_numpy(fmt.decode(words.numpy()))
    return words.to(torch.float64) * 2.0**exponent


def fitting_exponent(values: torch.Tensor, fmt: Format | int, *, zero: int = 0) -> int:
    """Return the exponent that suits the largest value of a float tensor.

    See ``Format.fitting_exponent``; ``zero`` where all values are 0. Raises ``ValueError`` for
    values that are not finite.
    """
    greatest = float(values.abs().max())
    if not math.isfinite(greatest):
        raise ValueError(f"cannot quantise a tensor whose largest value is {greatest}")
    if greatest == 0:
        return zero
    return (Fixed(fmt) if isinstance(fmt, int) else fmt).fitting_exponent(greatest)
