"""Posits of up to 16 bits, as integers on a grid.

With S = (n - 2) 2^es every value of posit(n, es) is a multiple of its smallest one, 2^-S, and at
most 2^S: an integer of 2S + 2 bits, sign included. Products and sums of such integers are exact,
and a sum is rounded by comparing it with the bounds between words.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trainwright.formats.base import (
    SUM_WIDTH,
    Flags,
    Format,
    FormatError,
    Integers,
    checked_sums,
)

CLAMPED_WIDTH = 18
"""Bits that the integers of a clamped format fit: the operand of a MULT18X18D."""
SIZES = (3, 16)
"""Least and greatest n."""
EXPONENT_BITS = (0, 4)


@dataclass(frozen=True)
class Posit(Format):
    """posit(``n``, ``es``), ``clamped`` or not; words of n = 3 to 16 bits, es = 0 to 4.

    A clamped format saturates at the largest posit whose integer has at most ``CLAMPED_WIDTH``
    bits; the words beyond it are never encoded and stand for nothing. NaR is no value either.

    Raises ``FormatError`` outside these ranges, where the integers of all words do not fit
    ``SUM_WIDTH`` bits, and for a clamped format that either needs no clamp or ends below 1.
    """

    n: int
    es: int
    clamped: bool = False

    def __post_init__(self) -> None:
        for name, value, limits in (("n", self.n, SIZES), ("es", self.es, EXPONENT_BITS)):
            least, greatest = limits
            if type(value) is not int or not least <= value <= greatest:
                raise FormatError(f"posits have {name} from {least} to {greatest}, not {value!r}")
        full = 2 * self.scale + 2
        if full > SUM_WIDTH:
            raise FormatError(f"the integers of {self} need {full} bits; there are {SUM_WIDTH}")
        if self.clamped and full <= CLAMPED_WIDTH:
            plain = Posit(self.n, self.es)
            raise FormatError(f"{self}: {plain} fits {CLAMPED_WIDTH} bits whole, choose it")
        if self.clamped and self.scale >= CLAMPED_WIDTH - 1:
            raise FormatError(f"{self}: {CLAMPED_WIDTH} bits hold none of its values from 1 on")

    def __str__(self) -> str:
        return f"posit({self.n},{self.es}){'c' if self.clamped else ''}"

    @property
    def width(self) -> int:
        """n."""
        return self.n

    @property
    def scale(self) -> int:
        """S = (n - 2) 2^es."""
        return (self.n - 2) << self.es

    @property
    def decoded_width(self) -> int:
        """2S + 2, or ``CLAMPED_WIDTH`` where clamped."""
        return CLAMPED_WIDTH if self.clamped else 2 * self.scale + 2

    @property
    def largest(self) -> int:
        """2^(n - 1) - 1, or the greatest word whose integer fits where clamped."""
        if not self.clamped:
            return (1 << (self.n - 1)) - 1
        fitting = [value < 1 << (CLAMPED_WIDTH - 1) for value in _positives(self.n, self.es)]
        return sum(fitting) - 1

    @property
    def most(self) -> int:
        """That of the word ``largest``: 2^(2S), or less where clamped."""
        return _positives(self.n, self.es)[self.largest]

    def decode(self, words: npt.ArrayLike) -> Integers:
        """See ``Format.decode``: value x 2^S."""
        checked = self._checked(words)
        if (bad := np.abs(checked) > self.largest).any():
            word = int(checked[bad].flat[0])
            nar = word == -(1 << (self.n - 1))
            what = "NaR" if nar else f"beyond its greatest, {self.largest}"
            raise FormatError(f"the word {word} of {self} is no number: it is {what}")
        return np.sign(checked) * np.array(_positives(self.n, self.es))[np.abs(checked)]

    def nearest(self, values: npt.NDArray[np.float64], *, underflow: str = "zero") -> Integers:
        """The words nearest to real numbers in units of the integers' last bit; one rounding.

        ``underflow`` as in ``encode``. Of formats of up to 18 bits.
        """
        sizes = np.minimum(np.abs(values), 2.0**_SIZE_BITS)
        scaled = np.ldexp(sizes, _BITS_BELOW)
        whole = np.floor(scaled)
        inexact = (whole != scaled).astype(np.int64)  # on no bound between words
        words, _, _ = self.encode(
            whole.astype(np.int64) | inexact, _BITS_BELOW, underflow=underflow
        )
        return words * np.sign(values).astype(np.int64)

    def encode(
        self, sums: npt.ArrayLike, shift: int, *, underflow: str = "never"
    ) -> tuple[Integers, Flags, Flags]:
        """See ``Format.encode``. Ties are those of the encoding, as the posit standard has them.

        Saturated: what is beyond the largest posit. Underflow: what is not 0 and closer to it than
        the smallest posit, whatever becomes of it.
        """
        values = checked_sums(sums, shift, underflow)
        sizes = np.abs(values)
        words = np.searchsorted(_bounds(self, shift, underflow), sizes, side="right")
        most = _positives(self.n, self.es)[self.largest] << shift
        saturated = sizes > min(most, 1 << SUM_WIDTH)
        return np.sign(values) * words, saturated, (sizes > 0) & (sizes < 1 << min(shift, 62))


_SIZE_BITS = 20
"""Bits above the point of the sizes that ``nearest`` tells apart: beyond all integers."""
_BITS_BELOW = 40
"""Bits below it: more than any bound between words has."""


@lru_cache
def _positives(n: int, es: int) -> tuple[int, ...]:
    """The integers of the words 0 to 2^(n - 1) - 1."""
    return (0, *(_positive(word, n, es) for word in range(1, 1 << (n - 1))))


def _positive(word: int, n: int, es: int) -> int:
    """The value of a word above 0, times 2^S."""
    scale = (n - 2) << es
    body = format(word, f"0{n - 1}b")
    run = len(body) - len(body.lstrip(body[0]))
    k = run - 1 if body[0] == "1" else -run
    rest = body[run + 1 :]
    exponent, fraction = rest[:es].ljust(es, "0"), rest[es:]
    power = (k << es) + int(exponent or "0", 2) + scale - len(fraction)
    return int("1" + fraction, 2) << power


@lru_cache(maxsize=1024)
def _bounds(fmt: Posit, shift: int, underflow: str) -> Integers:
    """The least |sum| that is encoded to each of the words 1 to ``fmt.largest``.

    The bound below word w is the posit of one bit more between w - 1 and w, on a grid finer by
    2^(2^es); what lies on it goes to the even word.
    """
    finer = _positives(fmt.n + 1, fmt.es)
    bounds = []
    for word in range(1, fmt.largest + 1):
        numerator = finer[2 * word - 1] << shift
        least = -(-numerator >> (1 << fmt.es))  # rounded up
        if word % 2 and least << (1 << fmt.es) == numerator:
            least += 1  # the tie is of the even word below
        bounds.append(min(least, 1 << SUM_WIDTH))
    bounds[0] = 1 if underflow == "never" else ((1 << shift) >> 1) + 1
    return np.array(bounds, dtype=np.int64)
