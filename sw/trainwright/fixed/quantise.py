"""What the host does with real numbers: to words of a format x 2^exponent, and back.

A format is a number of bits of fixed point, or one of ``trainwright.formats``.
"""

import math

import torch

from trainwright.fixed.requantise import limits
from trainwright.formats import Format, Posit


def extremes(fmt: Format | int) -> tuple[int, int]:
    """Least and greatest word."""
    if isinstance(fmt, Posit):
        return -fmt.largest, fmt.largest
    return limits(fmt if isinstance(fmt, int) else fmt.width)


def integer_limits(fmt: Format | int) -> tuple[int, int]:
    """The integers of these words."""
    if isinstance(fmt, Posit):
        greatest = int(fmt.decode(fmt.largest))
        return -greatest, greatest
    return extremes(fmt)


def quantise(
    values: torch.Tensor, exponent: int, fmt: Format | int, *, underflow: str = "zero"
) -> torch.Tensor:
    """Float values to the nearest words (int64) x 2^exponent: ties to even, saturating.

    Exact: the division is by a power of two, in float64. ``underflow`` as in ``Format.encode``.
    """
    scaled = values.to(torch.float64) * 2.0**-exponent
    if isinstance(fmt, Posit):
        return torch.from_numpy(fmt.nearest(scaled.numpy(), underflow=underflow))
    least, greatest = extremes(fmt)
    return scaled.round().clamp(least, greatest).to(torch.int64)


def dequantise(words: torch.Tensor, exponent: int, fmt: Format | int = 0) -> torch.Tensor:
    """Values (float64) of words; of any integers where ``fmt`` is fixed point."""
    integers = torch.from_numpy(fmt.decode(words.numpy())) if isinstance(fmt, Posit) else words
    return integers.to(torch.float64) * 2.0**exponent


def fitting_exponent(values: torch.Tensor, fmt: Format | int, *, zero: int = 0) -> int:
    """The exponent that suits the largest value of a float tensor.

    In fixed point the least at which none saturates. Of a posit that at which the largest is below
    2^(2^es), so that it has the most digits that there are and smaller ones hardly fewer. ``zero``
    where all values are 0. Raises ``ValueError`` for values that are not finite.
    """
    greatest = float(values.abs().max())
    if not math.isfinite(greatest):
        raise ValueError(f"cannot quantise a tensor whose largest value is {greatest}")
    if greatest == 0:
        return zero
    if isinstance(fmt, Posit):
        return math.frexp(greatest)[1] - (1 << fmt.es) - fmt.scale
    top = extremes(fmt)[1]
    exponent = math.frexp(greatest / top)[1]  # greatest / top < 2^exponent
    return exponent - 1 if greatest <= top * 2.0 ** (exponent - 1) else exponent


def input_exponent(fmt: Format) -> int:
    """The exponent of inputs of 0 to 1: fixed point ends at 1, a posit has it at 2.

    Below 2 a posit(8,0) has 1/64 and less from one word to the next, in units of the input.
    """
    return -1 - fmt.scale if isinstance(fmt, Posit) else 1 - fmt.width
