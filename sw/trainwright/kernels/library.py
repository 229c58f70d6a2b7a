"""Functions that kernels share: powers of two, mantissas, logarithms, reciprocals by table."""

from trainwright.kernels.functions import EXP2_UNIT, MANTISSA
from trainwright.kernels.slots import Slot
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT, WORD_WIDTH
from trainwright.kernels.trace import Value, where
from trainwright.program.vector import Rounding

EVEN = Rounding.EVEN


def exp2(v: Value) -> Value:
    """Return 2^-v in units of 2^-EXP2_UNIT, at most 32,767; v >= 0 in units of 2^-FRACTION.

    The whole part of v, at most 63, shifts the table's sum downwards; then one rounding.
    """
    whole = (v >> FRACTION).clip(7)
    return (v.lookup(Slot.EXP2) >> whole).rounded(17 + SLOPE_SHIFT - EXP2_UNIT, EVEN).clip(16)


def mantissa(total: Value) -> tuple[Value, Value]:
    """Return twice the highest MANTISSA bits of a value that has as many, and length - MANTISSA."""
    length = total.length() - MANTISSA
    high = total >> length
    return high + high, length


def any_mantissa(total: Value) -> tuple[Value, Value]:
    """Return what `mantissa` returns, for a value of any length: a short one is shifted left."""
    length = total.length() - MANTISSA
    up = length + (MANTISSA - 1)
    short = total.times_low(1 << (MANTISSA - 1)) >> up
    high = where(length.positive, total >> length, short)
    return high + high, length


def reciprocal(twice: Value) -> Value:
    """Return 1 / mantissa with 17 bits below the point, of twice a mantissa."""
    return twice.lookup(Slot.RECIPROCAL).rounded(SLOPE_SHIFT, EVEN).clip(WORD_WIDTH)


def reciprocal_root(value: Value) -> tuple[Value, Value]:
    """Return (r, n) with 1 / sqrt(value) = r 2^-(n + 17), r of 17 bits; for any value above 0."""
    twice, exponent = any_mantissa(value)
    odd = (exponent + 1) & 1
    roots = [
        twice.lookup(slot).rounded(SLOPE_SHIFT, EVEN).clip(WORD_WIDTH)
        for slot in (Slot.ROOT, Slot.ROOT_ABOVE)
    ]
    root = where(odd.positive, roots[1], roots[0])
    return root, (exponent - odd + (MANTISSA - 1)) >> 1


def log2_fraction(twice: Value) -> Value:
    """Return log2 of a mantissa in [1, 2) with FRACTION bits below the point."""
    return twice.lookup(Slot.LOG2).rounded(SLOPE_SHIFT, EVEN)
