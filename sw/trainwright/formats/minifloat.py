"""Minifloats: a sign, E bits of exponent and M of fraction, every code a finite number.

With the bias b = 2^(E - 1) - 1 a code e:m stands for 2^(e - b) (1 + m 2^-M), or, where e is 0, for
the subnormal number 2^(1 - b) m 2^-M. Every value is a multiple of the smallest one, 2^-S with S =
b + M - 1: an integer, which is the code itself up to e = 1 and shifted by e - 1 from there on.

A word is a code with its sign, as a two's complement integer: -0 is 0. There are no infinities and
no NaN: what is too large saturates. Formats of less than 8 bits have numbers for all codes, as
OCP's E3M2, E2M3 and E2M1; from 8 bits on those of the greatest e are left out, where IEEE 754 has
infinities and NaN: E4M3 ends at 240.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from trainwright.formats.base import FormatError
from trainwright.formats.coded import OPERAND_WIDTH, Coded

MOST_WIDTH = 16
"""Bits of a word at most."""
EXPONENT_BITS = (2, 3, 4)
"""Numbers of exponent bits: of one the format is fixed point, of five integers are too wide."""
IEEE_WIDTH = 8
"""Bits from which on the codes of the greatest exponent stand for nothing."""


def _decoded_width(e: int, m: int) -> int:
    """Return the bits of the greatest integer, and a sign."""
    return (1 << e) + m - (1 + e + m >= IEEE_WIDTH)


FRACTION_BITS = {
    e: max(m for m in range(MOST_WIDTH - e) if _decoded_width(e, m) <= OPERAND_WIDTH)
    for e in EXPONENT_BITS
}
"""Fraction bits at most, by the number of exponent bits."""
SIZES = ", ".join(f"M from 0 to {most} with E = {e}" for e, most in FRACTION_BITS.items())


@dataclass(frozen=True)
class Minifloat(Coded):
    """Sign, ``exponent_bits`` and ``fraction_bits``: float(E,M).

    Raises ``FormatError`` where words have more than ``MOST_WIDTH`` bits or integers more than
    ``OPERAND_WIDTH``, naming the widths there are.
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
        """E and M, as the names of such formats have them."""
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
        """The code below that of 2^E, or, from 8 bits on, of 2^E - 1, as an exponent."""
        end = (1 << self.exponent_bits) - (self.width >= IEEE_WIDTH)
        return (end << self.fraction_bits) - 1

    @property
    def decoded_width(self) -> int:
        """2^E + M, or one less from 8 bits on."""
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
        """An eighth to (E + 1) eighths.

        There dense tensors, normal, Laplace or half of them cut to 0, have at most 1.3 times the
        least error that any exponent gives, by the formats of 4 to 8 bits.
        """
        return 1 / 8, (self.exponent_bits + 1) / 8

    @property
    def most_saturated(self) -> float:
        """A 64th: the mean of a sparse tensor is low at any exponent."""
        return 1 / 64

    @property
    def step(self) -> float:
        """An eighth of the greatest integer: a factor ends at 8 steps, as 4 bits of fixed point."""
        return self.most / 8

    @property
    def input_exponent(self) -> int:
        """The exponent at which 1 is the greatest power of two: no input saturates."""
        return 1 - self.most.bit_length()
