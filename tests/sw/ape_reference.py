"""The emulated types once more, by rationals and from their definition alone.

Nothing here is shared with ``trainwright.ape``: formats are (bits of significand, least exponent,
greatest exponent), rounding is on ``Fraction``.
"""

from fractions import Fraction
from math import inf

HALF, BF16, TF32, SINGLE = (11, -14, 15), (8, -126, 127), (11, -126, 127), (24, -126, 127)

TYPES = {  # format, scales, groups of pairs with the power of two of each group
    "fp32-f": (HALF, (0, 12), (([(0, 0)], 0), ([(0, 1), (1, 0)], 12))),
    "fp32-t": (TF32, (0, 0), (([(0, 0)], 0), ([(0, 1), (1, 0)], 0))),
    "fp32-b": (
        BF16,
        (0, 0, 0),
        (([(0, 0)], 0), ([(0, 1), (1, 0)], 0), ([(0, 2), (1, 1), (2, 0)], 0)),
    ),
    "fp32-m": (HALF, (0, 0), (([(1, 1), (0, 1), (1, 0), (0, 0)], 0),)),
    "fp32-f4": (HALF, (0, 12), (([(0, 0)], 0), ([(0, 1), (1, 0)], 12), ([(1, 1)], 24))),
    "fp32-t4": (TF32, (0, 0), (([(0, 0)], 0), ([(0, 1), (1, 0)], 0), ([(1, 1)], 0))),
}


def exponent(value: Fraction) -> int:
    """Return floor(log2 abs value) of a value that is not 0."""
    size = abs(value)
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def rounded(value: Fraction, form: tuple[int, int, int], toward_zero: bool = False):
    """Round into a format, to nearest even or toward zero; ``inf`` beyond the largest."""
    if value == 0:
        return Fraction(0)
    bits, least, greatest = form
    unit = Fraction(2) ** (max(exponent(value), least) - bits + 1)
    count = value / unit
    whole = int(count) if toward_zero else round(count)
    result = whole * unit
    largest = (2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** greatest
    if abs(result) > largest:
        return largest * (1 if result > 0 else -1) if toward_zero else inf
    return result


def split(x: float, dtype: str) -> list[Fraction]:
    """Return the parts, still scaled; a scaled part saturates at the largest float16."""
    form, scales, _ = TYPES[dtype]
    rest, parts = Fraction(x), []
    for scale in scales:
        part = rounded(rest * 2**scale, form)
        if part == inf:
            assert scale
            part = Fraction(65504) * (1 if rest > 0 else -1)
        parts.append(part)
        rest -= part / 2**scale
    return parts


def dot(a: list[float], b: list[float], dtype: str, zero: bool, block: int) -> float:
    """Compute one element of a product by the scheme, with each rounding in its place."""
    _, _, groups = TYPES[dtype]
    left, right = [split(x, dtype) for x in a], [split(x, dtype) for x in b]
    total = None
    for pairs, shift in reversed(groups):
        terms = [x[i] * y[j] for i, j in pairs for x, y in zip(left, right, strict=True)]
        acc = Fraction(0)
        for begin in range(0, len(terms), block):
            acc = rounded(acc + sum(terms[begin : begin + block]), SINGLE, zero)
        part = rounded(acc / 2**shift, SINGLE)
        total = part if total is None else rounded(total + part, SINGLE)
    return float(total)
