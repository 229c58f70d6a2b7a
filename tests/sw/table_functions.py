"""Scalar functions of the vector engine by their tables, in numpy and apart from its kernels.

Integers in and out; ``test_onchip_functions`` holds them to real numbers, over all inputs.
"""

import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp, half_even
from trainwright.kernels.functions import (
    EXP2_UNIT,
    MANTISSA,
    ROOT_UNIT,
    Words,
    exp2_table,
    log2_table,
    reciprocal_table,
    root_table,
)
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT


def exp2(v: Words) -> Words:
    """Return 2^-v in units of 2^-EXP2_UNIT, 16 bits; v >= 0 in units of 2^-FRACTION. 1 is 32,767.

    The whole part of v shifts the table's sum to the right, downwards; then one rounding.
    """
    whole, fraction = v >> FRACTION, v & ((1 << FRACTION) - 1)
    # A shift beyond 62 is undefined for int64, and all bits are gone by then.
    sums = exp2_table()(fraction) >> np.minimum(whole, 62)
    return clamp(half_even(sums, 17 + SLOPE_SHIFT - EXP2_UNIT), 16)


def normalised(x: npt.ArrayLike, width: int = MANTISSA) -> tuple[Words, Words]:
    """Return (mantissa, exponent) of integers x > 0, a mantissa of ``width`` bits, the highest one.

    x = mantissa * 2^exponent; bits of x below the mantissa are dropped. ``x`` under 2^62.
    """
    values = np.asarray(x, np.int64)
    exponent = _bit_length(values) - width
    return values << np.maximum(-exponent, 0) >> np.maximum(exponent, 0), exponent


def _bit_length(x: Words) -> Words:
    """Find the position of the leading one, from 1; exact for 0 < x < 2^62."""
    # float64 holds 53 bits: frexp of a longer number could round up to the next power of two.
    high = x >> 31
    return np.where(high > 0, np.frexp(high)[1] + 31, np.frexp(x & 0x7FFFFFFF)[1]).astype(np.int64)


def _fraction(mantissa: Words) -> Words:
    """Return the argument of a table: the mantissa less its leading one, FRACTION bits."""
    return (mantissa << (FRACTION + 1 - MANTISSA)) - (1 << FRACTION)


def reciprocal(x: npt.ArrayLike) -> tuple[Words, Words]:
    """Return (r, e) with 1 / x = r * 2^e, r from 65,536 to 131,071, of integers x > 0."""
    mantissa, exponent = normalised(x)
    r = half_even(reciprocal_table()(_fraction(mantissa)), SLOPE_SHIFT)
    # 1 / 1 would be 2^17, one more than a factor of 18 signed bits holds: it saturates.
    return clamp(r, 18), -exponent - (MANTISSA - 1) - ROOT_UNIT


def reciprocal_root(x: npt.ArrayLike) -> tuple[Words, Words]:
    """Return (r, e) with 1 / sqrt(x) = r * 2^e, r from 65,536 to 131,071, of integers x > 0."""
    mantissa, exponent = normalised(x)
    # x = m * 2^k with an even k and m in [2^14, 2^16): the lower octave has slot 0.
    octave = (exponent + 1) & 1
    r = half_even(root_table()(_fraction(mantissa) + (octave << FRACTION)), SLOPE_SHIFT)
    return clamp(r, 18), -((exponent - octave + MANTISSA - 1) >> 1) - ROOT_UNIT


def log2(x: npt.ArrayLike) -> Words:
    """Return log2 of integers x > 0, with FRACTION bits below the point."""
    mantissa, exponent = normalised(x)
    fraction = half_even(log2_table()(_fraction(mantissa)), SLOPE_SHIFT)
    return fraction + ((exponent + MANTISSA - 1) << FRACTION)
