"""The format object: posit(n, es), its limits and its quire. Plain integers, no tensors.

Posits of the standard of 2022, which fixes es = 2, for any es. Words are n bits: sign, regime (a
run of m equal bits, ended by the other: k = -m for zeros, m - 1 for ones), es exponent bits (those
that are cut off are 0), fraction with a hidden 1. The value is 2^(k 2^es + exponent) 1.fraction; a
negative word is the two's complement of the whole; 0 is 00..0 and NaR (not a real) 10..0.
"""

import re
from dataclasses import dataclass
from typing import Self


class PositError(ValueError):
    """A format that does not exist, codes outside a format, or formats mixed without conversion."""


@dataclass(frozen=True, order=True)
class PositFormat:
    """posit(``n``, ``es``): words of n = 2..32 bits, es = 0..4 exponent bits. Hashable.

    Raises ``PositError`` outside these ranges.
    """

    n: int
    es: int = 2

    def __post_init__(self) -> None:
        for name, value, low, high in (("n", self.n, 2, 32), ("es", self.es, 0, 4)):
            if type(value) is not int or not low <= value <= high:
                raise PositError(
                    f"posits have n from 2 to 32 bits and es from 0 to 4, not {name} = {value!r}"
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The format that ``16,2``, ``(16, 2)`` or ``posit(16,2)`` names. Raises ``PositError``."""
        found = re.fullmatch(r"(?:posit)?\s*(\()?\s*(\d+)\s*,\s*(\d+)\s*(?(1)\))", text.strip())
        if found is None:
            raise PositError(f"a posit format is written n,es such as 16,2, not {text!r}")
        return cls(int(found[2]), int(found[3]))

    def __str__(self) -> str:
        return f"posit({self.n},{self.es})"

    @property
    def mask(self) -> int:
        """The greatest code, 2^n - 1."""
        return (1 << self.n) - 1

    @property
    def nar(self) -> int:
        """The code of NaR, 10..0."""
        return 1 << (self.n - 1)

    @property
    def max_scale(self) -> int:
        """S = (n - 2) 2^es: magnitudes reach from 2^-S to 2^S."""
        return (self.n - 2) << self.es

    @property
    def maxpos(self) -> float:
        """The greatest value, 2^S, whose code is 01..1."""
        return 2.0**self.max_scale

    @property
    def minpos(self) -> float:
        """The smallest value above 0, 2^-S, whose code is 0..01."""
        return 2.0**-self.max_scale

    @property
    def digits(self) -> int:
        """Most significant bits of any value, the hidden one included (those around 1)."""
        return max(1, self.n - 2 - self.es)

    @property
    def quire_fraction(self) -> int:
        """Bits of the quire below the point: its unit is minpos^2 = 2^-2S."""
        return 2 * self.max_scale

    @property
    def quire_width(self) -> int:
        """Bits of the quire: any product, 31 bits of carry and the sign; 16 n for es = 2."""
        return 4 * self.max_scale + 32

    def digits_at(self, scale: int) -> int:
        """Significant bits of values in [2^scale, 2^(scale + 1)), at least 1.

        0 fraction bits are left where the regime reaches into the exponent.
        """
        k = scale >> self.es
        run = k + 1 if k >= 0 else -k
        return max(1, self.n - 1 - run - self.es)


def check_format(fmt: object) -> None:
    """Raises ``TypeError`` for what is no format."""
    if not isinstance(fmt, PositFormat):
        raise TypeError(f"a format is PositFormat(n, es) or PositFormat.parse('n,es'), not {fmt!r}")
