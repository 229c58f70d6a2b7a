"""The scalar functions of the vector engine: exp2, reciprocal, reciprocal square root, log2.

Integers in and out, by ``tables``. Each error bound below is one that ``tests/sw/test_onchip.py``
finds over *all* inputs of the table (32,768 to 65,536), against 30 digits.
"""

from functools import cache

import mpmath
import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp, half_even
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT, FunctionTable, make_table

Words = npt.NDArray[np.int64]

EXP2_UNIT = 15
"""A result of exp2 is in units of 2^-15, a scratchpad word."""
MANTISSA = 16
"""Bits of a normalised mantissa, its leading one included."""
ROOT_UNIT = 17
"""Results of ``reciprocal`` and ``reciprocal_root`` have 17 bits below the point."""

EXP2_ERROR = 0.84
"""Most that ``exp2`` is wrong, in units of its result; 1 for v = 0, where it saturates."""
RECIPROCAL_ERROR = 2**-14.77
"""Most that ``reciprocal`` is wrong for arguments of at most MANTISSA bits, relative."""
ROOT_ERROR = 2**-15.6
"""Most that ``reciprocal_root`` is wrong for arguments of at most MANTISSA bits, relative."""
LOG2_ERROR = 2**-14.77
"""Most that ``log2`` is wrong for arguments of at most MANTISSA bits."""
TRUNCATION_ERROR = 2**-15
"""Relative error of a longer argument's mantissa, always downwards: so much more for reciprocals,
half of it for the root, and 1.4427 of it for log2."""


@cache
def exp2_table() -> FunctionTable:
    """Tabulate 2^-x for x in [0, 1)."""
    return make_table(lambda x: mpmath.power(2, -x), [(0, 1)], base_width=17)


@cache
def reciprocal_table() -> FunctionTable:
    """Tabulate 1 / x for x in [1, 2)."""
    return make_table(lambda x: 1 / x, [(1, 2)], base_width=17)


@cache
def root_table() -> FunctionTable:
    """Tabulate 1 / sqrt(x) for x in [1, 2), and in the second slot for x in [2, 4)."""
    return make_table(lambda x: 1 / mpmath.sqrt(x), [(1, 2), (2, 4)], base_width=17)


@cache
def log2_table() -> FunctionTable:
    """Tabulate log2(x) for x in [1, 2); the slope at 1 takes a bit of the base below the point."""
    return make_table(lambda x: mpmath.log(x, 2), [(1, 2)], base_width=16)


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
