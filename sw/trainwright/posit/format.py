"""Posit formats: limits, digits and quire of posit(n, es), in plain integers.

The 2022 standard fixes es = 2; formats here allow any es from 0 to 4. A word of n bits holds the
sign, the regime (a run of m equal bits, ended by the opposite bit: k = -m for a run of zeros, m - 1
for a run of ones), es exponent bits (bits cut off at the end of the word count as 0) and a fraction
with a hidden 1. The value is 2^(k 2^es + exponent) 1.fraction. A negative value is the two's
complement of the whole word. 0 is 00..0, and NaR ("not a real") is 10..0.
"""

import re
from dataclasses import dataclass
from typing import Self

from trainwright.support.arguments import take_numpy_sizes
from trainwright.support.errors import UserError


class PositError(UserError, ValueError):
    """A format that does not exist, a code outside its format, or formats that were mixed."""


class WordFormat:
    """Format of words of ``n`` bits whose word 10..0 is NaR."""

    n: int

    @property
    def mask(self) -> int:
        """Largest code, 2^n - 1."""
        return (1 << self.n) - 1

    @property
    def nar(self) -> int:
        """Code of NaR, 10..0."""
        return 1 << (self.n - 1)


@dataclass(frozen=True, order=True)
class PositFormat(WordFormat):
    """posit(``n``, ``es``): words of n = 2..32 bits with es = 0..4 exponent bits. Hashable.

    Raises ``PositError`` for n or es outside these ranges.
    """

    n: int
    es: int = 2

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "n", "es")
        for name, value, low, high in (("n", self.n, 2, 32), ("es", self.es, 0, 4)):
            if type(value) is not int or not low <= value <= high:
                raise PositError(
                    f"posits have n from 2 to 32 bits and es from 0 to 4, not {name} = {value!r}"
                )

    def __reduce__(self) -> tuple[type[Self], tuple[int, int]]:
        """Return the sizes for pickle, which then checks those of a file."""
        return type(self), (self.n, self.es)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the format named by ``16,2``, ``(16, 2)`` or ``posit(16,2)``.

        Raises ``PositError``.
        """
        pattern = r"(?:posit)?\s*(\()?\s*([0-9]+)\s*,\s*([0-9]+)\s*(?(1)\))"
        match = re.fullmatch(pattern, text.strip()) if isinstance(text, str) else None
        if match is None:
            raise PositError(f"a posit format is written n,es such as 16,2, not {text!r}")
        return cls(int(match[2]), int(match[3]))

    def __str__(self) -> str:
        return f"posit({self.n},{self.es})"

    @property
    def max_scale(self) -> int:
        """S = (n - 2) 2^es: magnitudes reach from 2^-S to 2^S."""
        return (self.n - 2) << self.es

    @property
    def maxpos(self) -> float:
        """Largest value, 2^S, coded 01..1."""
        return 2.0**self.max_scale

    @property
    def minpos(self) -> float:
        """Smallest positive value, 2^-S, coded 0..01."""
        return 2.0**-self.max_scale

    @property
    def digits(self) -> int:
        """Maximum significant bits of a value, hidden bit included; reached around 1."""
        return max(1, self.n - 2 - self.es)

    @property
    def quire_fraction(self) -> int:
        """Quire bits below the binary point: the unit of the quire is minpos^2 = 2^-2S."""
        return 2 * self.max_scale

    @property
    def quire_width(self) -> int:
        """Quire width in bits: largest product, 31 carry bits and the sign; 16 n for es = 2."""
        return 4 * self.max_scale + 32

    def digits_at(self, scale: int) -> int:
        """Return the significant bits of values in [2^scale, 2^(scale + 1)), at least 1.

        No fraction bit is left where the regime reaches into the exponent field.
        """
        k = scale >> self.es
        run = k + 1 if k >= 0 else -k
        return max(1, self.n - 1 - run - self.es)


def check_format(fmt: object) -> None:
    """Raise ``TypeError`` unless ``fmt`` is a ``PositFormat``."""
    if not isinstance(fmt, PositFormat):
        raise TypeError(f"a format is PositFormat(n, es) or PositFormat.parse('n,es'), not {fmt!r}")
