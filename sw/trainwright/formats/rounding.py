"""Rounding of integers: the definitions that hardware, golden model, kernels and host share.

``requantise`` is q = saturate(round_half_even(value / 2^shift), width) on two's complement
integers. ``stochastic_requantise`` is q = saturate(floor((value + r) / 2^shift), width), r pseudo-
random and uniform in 0 .. 2^shift - 1, so that the mean of q is value / 2^shift; the
``RANDOM_WIDTH`` highest bits of r are random and the bit below them is one, so that lower bits are
rounded and not dropped.

Values are int64 arrays of any shape; a shift is a number, or an array that broadcasts to them.
"""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MAX_SHIFT = 63
RANDOM_WIDTH = 8
"""Random bits of a result."""


def limits(width: int) -> tuple[int, int]:
    """Return the least and the greatest signed integer of ``width`` bits."""
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def clamp(value: Integers, width: int) -> Integers:
    """Saturate to ``width`` bits of two's complement."""
    return value.clip(*limits(width))


def wrapped(value: Integers, width: int | Integers) -> Integers:
    """Keep the lowest ``width`` bits as signed numbers."""
    half = 1 << (width - 1)
    return ((value + half) & ((half << 1) - 1)) - half


def half_up(value: Integers, shift: int | Integers) -> Integers:
    """Round ``value`` / 2^shift to the nearest integer, halves upwards.

    In hardware the bit below the point is the carry into the next adder. ``value`` needs a bit
    more in its type, and ``shift`` must be from 0 to 62.
    """
    return ((value << 1 >> shift) + 1) >> 1


def half_even(value: Integers, shift: int | Integers) -> Integers:
    """Round ``value`` / 2^shift to the nearest integer, halves to even.

    Exact for every value of at most 63 significant bits and shifts from 0 to MAX_SHIFT.
    """
    floor = value >> shift
    # At a shift of 0 nothing remains, which is below this half.
    half = np.left_shift(1, np.maximum(shift, 1) - 1)
    return floor + (value - (floor << shift) > half - (floor & 1))


def stochastic_shift(value: Integers, shift: npt.ArrayLike, random: Integers) -> Integers:
    """Divide ``value`` by 2^shift, rounding by ``random`` (0 to 255): floor or floor + 1.

    ``value`` (of at most 62 bits and a sign) and ``random`` have one shape. Multiples of 2^shift
    do not change. Otherwise q is floor + 1 with the probability of the fraction if ``shift`` is at
    most ``RANDOM_WIDTH``, else of the fraction rounded to RANDOM_WIDTH bits (half up). Raises
    ``ValueError`` for a shift that is not from 0 to MAX_SHIFT.
    """
    shifts = np.asarray(shift)
    if shifts.min() < 0 or shifts.max() > MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    low = RANDOM_WIDTH + 1
    dropped = np.maximum(shifts - low, 0)
    rest = shifts - dropped
    return ((value >> dropped) + (2 * random + 1 >> low - rest)) >> rest


def requantise(value: Integers, shift: int, width: int) -> tuple[Integers, Flags]:
    """Return the nearest integers of ``width`` bits; which of them are saturated.

    Raises ``ValueError`` for a shift that is not from 0 to MAX_SHIFT.
    """
    if not 0 <= shift <= MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    return _saturated(half_even(value, shift), width)


def stochastic_requantise(
    value: Integers, shift: int, width: int, random: Integers
) -> tuple[Integers, Flags]:
    """Return the integers of ``stochastic_shift`` in ``width`` bits; which are saturated."""
    return _saturated(stochastic_shift(value, shift, random), width)


def _saturated(rounded: Integers, width: int) -> tuple[Integers, Flags]:
    q = clamp(rounded, width)
    return q, q != rounded
