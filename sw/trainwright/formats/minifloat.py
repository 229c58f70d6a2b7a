"""Minifloats: a sign, E bits of exponent and M of fraction, every code a finite number.

With the bias b = 2^(E - 1) - 1 a code e:m stands for 2^(e - b) (1 + m 2^-M), or, if e is 0, for the
subnormal number 2^(1 - b) m 2^-M. Every value is a multiple of the smallest one, 2^-S with S = b +
M - 1. The multiple is an integer: the code itself up to e = 1, (2^M + m) 2^(e - 1) from there on.

A word is a code with its sign, as a two's complement integer: -0 is 0. There are no infinities and
no NaN: larger values saturate. In formats of less than 8 bits every code is a number, as in OCP's
E3M2, E2M3 and E2M1. From 8 bits on the codes of the greatest e, which are infinities and NaN in
IEEE 754, are not used: E4M3 ends at 240.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from trainwright.formats.base import FormatError
from trainwright.formats.coded import OPERAND_WIDTH, Coded
from trainwright.support.arguments import take_numpy_sizes

MOST_WIDTH = 16
"""Bits of a word, at most."""
EXPONENT_BITS = (2, 3, 4)
"""Allowed numbers of exponent bits: 1 would be fixed point, integers of 5 are too wide."""
IEEE_WIDTH = 8
"""Bits of a word from which on the codes of the greatest exponent are not used."""


def _decoded_width(e: int, m: int) -> int:
    """Return the bits of the greatest integer, sign included."""
    return (1 << e) + m - (1 + e + m >= IEEE_WIDTH)


FRACTION_BITS = {
    e: max(m for m in range(MOST_WIDTH - e) if _decoded_width(e, m) <= OPERAND_WIDTH)
    for e in EXPONENT_BITS
}
"""Most fraction bits, by the number of exponent bits."""
SIZES = ", ".join(f"M from 0 to {most} with E = {e}" for e, most in FRACTION_BITS.items())


@dataclass(frozen=True)
class Minifloat(Coded):
    """Sign, ``exponent_bits`` and ``fraction_bits``: float(E,M).

    Raises ``FormatError`` if words would have more than ``MOST_WIDTH`` bits, or integers more than
    ``OPERAND_WIDTH``; the error names the sizes that are possible.
    """

    exponent_bits: int
    fraction_bits: int

    spelling = re.compile(r"float\s*\(\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\)")
    allowed = f"float(E,M) with {SIZES}"
    zero_only = True

    @classmethod
    def read(cls, *groups: str) -> "Minifloat":
        """Make the format of E and M."""
        return cls(*map(int, groups))

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "exponent_bits", "fraction_bits")
        e, m = self.exponent_bits, self.fraction_bits
        if not type(e) is type(m) is int or e < EXPONENT_BITS[0] or m < 0:
            raise FormatError(f"minifloats have {SIZES}, not E = {e!r} and M = {m!r}")
        if e > EXPONENT_BITS[-1] or m > FRACTION_BITS[e]:
            integers = self.decoded_width if e < 16 else f"about 2^{e}"
            raise FormatError(
                f"E = {e} and M = {m} need words of {self.width} bits and integers of {integers}; "
                f"there are {MOST_WIDTH} and {OPERAND_WIDTH}"
            )

    def __str__(self) -> str:
        return f"float({self.exponent_bits},{self.fraction_bits})"

    @property
    def identifier(self) -> str:
        """Name such as e4m3."""
        return f"e{self.exponent_bits}m{self.fraction_bits}"

    @property
    def width(self) -> int:
        """1 + E + M."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def scale(self) -> int:
        """S = 2^(E - 1) + M - 2."""
        return (1 << (self.exponent_bits - 1)) + self.fraction_bits - 2

    @property
    def largest(self) -> int:
        """Greatest code: the code below exponent 2^E, or, from 8 bits on, below 2^E - 1."""
        end = (1 << self.exponent_bits) - (self.width >= IEEE_WIDTH)
        return (end << self.fraction_bits) - 1

    @property
    def decoded_width(self) -> int:
        """Bits of the greatest integer, sign included: 2^E + M, or one less from 8 bits on."""
        return _decoded_width(self.exponent_bits, self.fraction_bits)

    def knot(self, place: int) -> Fraction:
        """Return the code of a power of two."""
        m = self.fraction_bits
        return Fraction(1 << place if place <= m else (place - m + 1) << m)

    def why_no_number(self, word: int) -> str:
        """Name the greatest word."""
        return f"beyond its greatest, {self.largest}"

    @property
    def mean_range(self) -> tuple[float, float]:
        """Range of the mean magnitude of words, as a share of full scale: 1/8 to (E + 1)/8.

        Measured with formats of 4 to 8 bits on normal and Laplace values, also with half of them
        set to 0: within this range the error is at most 1.3 times that of the best exponent.
        """
        return 1 / 8, (self.exponent_bits + 1) / 8

    @property
    def most_saturated(self) -> float:
        """Share of values that may saturate: sparse tensors have a low mean at any exponent."""
        return 1 / 64

    @property
    def step(self) -> float:
        """Quantisation step of factors: an eighth of the greatest integer, as with 4-bit words."""
        return self.most / 8

    @property
    def input_exponent(self) -> int:
        """Exponent of inputs, at which 1 is the greatest power of two: no input saturates."""
        return 1 - self.most.bit_length()
