"""Coded number formats to test, by class: samples, and an oracle that shares nothing with them.

A new format adds one row to ``KINDS``. The tests of the formats, of the golden model's kernel and
of the hardware's decoders and encoder take their formats from here.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from trainwright.formats import Coded, Minifloat, Posit, parse_coded
from trainwright.posit import PositFormat
from trainwright.posit.word import round_exact
from trainwright.posit.word import value as value_of


class Oracle(ABC):
    """Words of a format by its definition, one at a time and in fractions."""

    integers: dict[int, int]
    """Integer of each word that is a number."""
    integer_of_one: Fraction
    """Integer of the value 1."""

    @cached_property
    def largest(self) -> int:
        return max(self.integers)

    @abstractmethod
    def nearest(self, total: int, shift: int, to_zero: bool) -> int:
        """Round ``total / 2^shift`` to a word, which may be beyond the largest."""

    def encoded(self, total: int, shift: int, to_zero: bool) -> tuple[int, bool, bool]:
        """Return the word; whether the sum saturates; whether it underflows."""
        largest = self.largest
        word = min(max(self.nearest(total, shift, to_zero), -largest), largest)
        saturated = abs(total) > self.integers[largest] << shift
        return word, saturated, 0 < abs(total) < 1 << shift


class PositOracle(Oracle):
    """Posits by the posit library."""

    def __init__(self, fmt: Any) -> None:
        self.format = PositFormat(fmt.n, fmt.es)
        self.scale = (fmt.n - 2) << fmt.es
        words = range(-self.format.nar + 1, self.format.nar)
        values = {w: value_of(w & self.format.mask, self.format) for w in words}
        self.integer_of_one = 1 / min(abs(value) for value in values.values() if value)
        scaled = {w: int(value * 2**self.scale) for w, value in values.items()}
        most = 1 << 17 if fmt.clamped else 1 << 62
        self.integers = {w: integer for w, integer in scaled.items() if abs(integer) < most}

    def nearest(self, total: int, shift: int, to_zero: bool) -> int:
        if to_zero and 2 * abs(total) <= 1 << shift:
            return 0
        return self._rounded(total, shift)

    @cache  # noqa: B019 -- one oracle a format; both rules for what underflows round alike
    def _rounded(self, total: int, shift: int) -> int:
        word = round_exact(total, -shift - self.scale, self.format)
        return word - ((word >= self.format.nar) << self.format.n)


class MinifloatOracle(Oracle):
    """Minifloats by the formula of their values; the nearest of all words by distance."""

    def __init__(self, fmt: Any) -> None:
        e_bits, m_bits = fmt.exponent_bits, fmt.fraction_bits
        bias = (1 << (e_bits - 1)) - 1
        top = (1 << e_bits) - (1 if 1 + e_bits + m_bits >= 8 else 0)
        smallest = Fraction(2) ** (1 - bias - m_bits)
        self.integer_of_one = 1 / smallest
        self.integers = {}
        for e in range(top):
            for m in range(1 << m_bits):
                fraction = Fraction(m, 1 << m_bits)
                value = Fraction(2) ** (max(e, 1) - bias) * (fraction + (e > 0))
                integer = value / smallest
                assert integer.denominator == 1
                word = e << m_bits | m
                self.integers |= {word: int(integer), -word: -int(integer)}

    @cached_property
    def _sizes(self) -> list[int]:
        return sorted(size for size in self.integers.values() if size >= 0)

    def nearest(self, total: int, shift: int, to_zero: bool) -> int:
        size = Fraction(abs(total), 1 << shift)
        above = bisect_left(self._sizes, size)
        around = range(max(0, above - 1), min(len(self._sizes), above + 1))
        # words are codes: the nearer one, and of two as near the one whose last bit is 0
        word = min(around, key=lambda code: (abs(self._sizes[code] - size), code & 1))
        return -word if total < 0 else word


@dataclass(frozen=True)
class Kind:
    """Formats of one class."""

    samples: str
    """Formats that fit a multiplier, as ``trainwright.formats.parse_coded`` reads them."""
    oracle: type[Oracle]
    training: str
    """Formats of a network that the simulated accelerator trains."""


KINDS: dict[type[Coded], Kind] = {
    Posit: Kind(
        "posit(8,0),posit(8,1)c,posit(6,1),posit(4,0),posit(10,0),posit(4,2)",
        PositOracle,
        "factor=posit(4,0),activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c",
    ),
    Minifloat: Kind(
        "float(4,3),float(3,2),float(2,3),float(2,1),float(3,4),float(2,0),float(4,0),float(3,8)",
        MinifloatOracle,
        "factor=float(2,1),activation=float(2,3),intermediate=float(4,3),gradient=float(4,3)",
    ),
}

SAMPLES: tuple[Coded, ...] = tuple(
    fmt for kind in KINDS.values() for fmt in parse_coded(kind.samples)
)
BYTES: dict[type[Coded], tuple[Coded, ...]] = {
    kind: tuple(fmt for fmt in SAMPLES if type(fmt) is kind and fmt.width <= 8)[:4]
    for kind in KINDS
}
"""Samples of up to 8 bits, as many as a block RAM has tables of."""


@cache
def oracle_of(fmt: Coded) -> Oracle:
    """Make the oracle of a format."""
    return KINDS[type(fmt)].oracle(fmt)  # type: ignore[call-arg]


@cache
def sums_near(fmt: Coded, shift: int, width: int) -> list[int]:
    """List words, ties, powers of two and their neighbours, of either sign; the ends of ``width``.

    Ties are in the middle of integers, and in the middle between a word and the oracle's next.
    """
    integers = sorted(size for size in oracle_of(fmt).integers.values() if size >= 0)
    ties = {Fraction(a + b, 2) for a, b in pairwise(integers)}
    # of posits whose exponent is cut off a tie is a power of two between two others
    powers = {Fraction(1 << place) for place in range(integers[-1].bit_length() + 1)}
    places = {int(size * (1 << shift)) for size in {*map(Fraction, integers), *ties, *powers}}
    places |= {1 << place for place in range(width - 1)}
    limit = 1 << (width - 1)
    near = {sign * size + off for size in places for sign in (1, -1) for off in (-1, 0, 1)}
    near |= {-limit, limit - 1, 1 - limit}
    return sorted(size for size in near if -limit <= size < limit)
