"""The two roundings to nearest of the vector engine: int64, with a shift an element."""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def half_up(value: Integers, shift: int | Integers) -> Integers:
    """Round ``value`` / 2^shift to the nearest integer, halves upwards; ``shift`` >= 0 broadcasts.

    In hardware the bit below the point is the carry into the next adder. ``value`` needs a bit
    more in its type, and ``shift`` must be less than the type's bits.
    """
    return ((value << 1 >> shift) + 1) >> 1


def half_even(value: Integers, shift: int | Integers) -> Integers:
    """Round ``value`` / 2^shift to the nearest integer, halves to even, as every requantiser.

    Equal to ``trainwright.fixed.requantise.round_shift``; ``shift`` >= 0, broadcast.
    """
    shifted = np.minimum(shift, 1)
    half = np.left_shift(1, shift) >> 1
    return (value + half - shifted + (value >> shift & shifted)) >> shift


def clamp(value: Integers, width: int) -> Integers:
    """Saturate to ``width`` bits of two's complement."""
    return value.clip(-(1 << (width - 1)), (1 << (width - 1)) - 1)
