"""Linear takums after Hunhold, *Beating Posits at Their Own Game: Takum Arithmetic* (2024).

A word holds the sign S, the direction D, three regime bits R, r characteristic bits C and the
mantissa M; bits cut off at the end of the word count as 0. D = 1: r = R, c = 2^r - 1 + C. D = 0:
r = 7 - R, c = -2^(r + 1) + 1 + C. The value of a positive word is 2^c (1 + M), c from -255 to 254
at every width; a negative word is the two's complement. 0 is 00..0 and NaR is 10..0, as in posits.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from trainwright.posit.format import PositError, WordFormat
from trainwright.posit.word import check_code, cut, round_by_word
from trainwright.support.arguments import take_numpy_sizes

_HEAD = 5
"""Bits of sign, direction and regime."""
_TOP = 254
"""Largest characteristic; the smallest is -255."""


@dataclass(frozen=True, order=True)
class TakumFormat(WordFormat):
    """Linear takums of ``n`` = 2..64 bits. Hashable. Raises ``PositError`` for other widths."""

    n: int

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "n")
        if type(self.n) is not int or not 2 <= self.n <= 64:
            raise PositError(f"takums have n from 2 to 64 bits, not n = {self.n!r}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the format named by ``takum16`` or ``takum(16)``. Raises ``PositError``."""
        match = re.fullmatch(r"takum\s*(\()?\s*([0-9]{1,3})\s*(?(1)\))", text.strip())
        if match is None:
            raise PositError(f"a takum format is written takum16, not {text!r}")
        return cls(int(match[2]))

    def __str__(self) -> str:
        return f"takum{self.n}"


@dataclass(frozen=True)
class TakumFields:
    """Fields of a word other than 0 and NaR, as bit strings of the magnitude that fit."""

    negative: bool
    direction: str
    regime: str
    characteristic: str
    mantissa: str
    scale: int
    """Characteristic c."""


def fields(code: int, fmt: TakumFormat) -> TakumFields | None:
    """Split a code into its fields; ``None`` for 0 and NaR. Raises ``PositError`` outside."""
    if check_code(code, fmt) in (0, fmt.nar):
        return None
    negative = code >= fmt.nar
    bits = format(-code & fmt.mask if negative else code, f"0{fmt.n}b")
    above, regime = bits[1] == "1", int(bits[2:_HEAD].ljust(3, "0"), 2)
    count = regime if above else 7 - regime
    shown = bits[_HEAD : _HEAD + count]
    characteristic = int(shown.ljust(count, "0") or "0", 2)
    scale = characteristic + ((1 << count) - 1 if above else 1 - (2 << count))
    return TakumFields(negative, bits[1], bits[2:_HEAD], shown, bits[_HEAD + count :], scale)


def value(code: int, fmt: TakumFormat) -> Fraction | None:
    """Return the exact value of a code; ``None`` for NaR."""
    parts = fields(code, fmt)
    if parts is None:
        return Fraction(0) if code == 0 else None
    size = Fraction(int("1" + parts.mantissa, 2), 1 << len(parts.mantissa))
    return (-size if parts.negative else size) * Fraction(2) ** parts.scale


def round_exact(significand: int, exponent: int, fmt: TakumFormat) -> int:
    """Return the code nearest to significand * 2^exponent, by the rule of posits.

    The word is written out at full length and cut to n bits: to nearest, ties to the even word. A
    nonzero number never becomes 0 or NaR.
    """
    return round_by_word(significand, exponent, fmt, _word)


def _word(size: int, length: int, scale: int, fmt: TakumFormat) -> int:
    """Return the word of 2^scale (size / 2^length), 1 <= size / 2^length < 2, before clamping."""
    if scale > _TOP:
        return fmt.nar
    if scale < -_TOP - 1:
        return 0
    above = scale >= 0
    count = (scale + 1 if above else -scale).bit_length() - 1
    regime = count if above else 7 - count
    characteristic = scale - ((1 << count) - 1 if above else 1 - (2 << count))
    long = (above << 3 | regime) << count | characteristic
    return cut(long << length | (size - (1 << length)), _HEAD + count + length - fmt.n)
