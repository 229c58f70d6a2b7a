"""Stochastic rounding: the one definition that hardware and golden model share.

``q = saturate(floor((value + r) / 2^shift), width)`` with r pseudo-random, uniform in 0 .. 2^shift
- 1: the mean of q is ``value / 2^shift``. The ``RANDOM_WIDTH`` highest bits of r are random and the
bit below them is one, so that lower bits are rounded and not dropped.
"""

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import RANDOM_WIDTH
from trainwright.fixed.requantise import MAX_SHIFT, limits


def stochastic_shift(
    value: npt.NDArray[np.int64], shift: npt.ArrayLike, random: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Divide ``value`` by 2^shift, rounding by ``random`` (0 to 255): floor or floor + 1.

    ``value`` (of at most 62 bits and a sign) and ``random`` have one shape, ``shift`` is a number
    or broadcasts to it. Multiples of 2^shift do not change. Otherwise q is floor + 1 with the
    probability of the fraction if ``shift`` is at most ``RANDOM_WIDTH``, else of the fraction
    rounded to so many bits (half up).
    """
    shifts = np.asarray(shift)
    if shifts.min() < 0 or shifts.max() > MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    low = RANDOM_WIDTH + 1
    dropped = np.maximum(shifts - low, 0)
    rest = shifts - dropped
    return ((value >> dropped) + (2 * random + 1 >> low - rest)) >> rest


def stochastic_requantise(
    value: npt.NDArray[np.int64], shift: int, width: int, random: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """``stochastic_shift``, saturated to ``width`` bits; the integers and which were saturated."""
    least, greatest = limits(width)
    rounded = stochastic_shift(value, shift, random)
    q = rounded.clip(least, greatest)
    return q, q != rounded
