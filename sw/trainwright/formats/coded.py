"""Formats whose words are decoded: one linear piece of the encoding per power of two.

The encoding W maps a size to a real number. The word of a size is the integer nearest to W(size),
so a size is rounded once. Between 2^p and 2^(p + 1) it is linear,

    W(2^p (1 + f)) = W(2^p) + f (W(2^(p + 1)) - W(2^p))        0 <= f < 1

and the difference is a power of two. So a format is its *knots* W(2^p). From them come the integers
of words, the bounds between words, the tables of the C kernel (``trainwright.golden.tables``) and
the decoders and encoders in hardware (``trainwright_hw.arith``).
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import floor

import numpy as np
import numpy.typing as npt

from trainwright.formats.base import (
    SUM_WIDTH,
    Flags,
    Format,
    FormatError,
    Integers,
    Range,
    check_no_nan,
    checked_sums,
)

OPERAND_WIDTH = 18
"""Bits of a multiplier's operand, a MULT18X18D's, where an accelerator has coded formats."""


@dataclass(frozen=True)
class Binade:
    """Sizes x from 2^p to 2^(p + 1), whose words are (x >> cut) ^ prefix.

    The bit of x below ``cut`` is the half by which a word is rounded; all lower bits are sticky. At
    either end of posits there are fewer words than binades: ``cut`` then lies so far above p that
    half and sticky bits stand for bits of the exponent.

    A negative integer is complemented first, and so is its word: -x - 1 has the complement of the
    bits of x. Signed sums then need no negation, as in the requantiser.
    """

    cut: int
    prefix: int
    sticky: bool
    """Whether lost bits of the exponent count as sticky, although a positive integer has no bit for
    them."""


class Coded(Format):
    """Format defined by the knots of its encoding, with words from -``largest`` to ``largest``."""

    coded = True
    zero_only = False
    """Whether sums below the smallest number always go to the nearer of 0 and that number, whatever
    ``underflow`` asks for."""

    @property
    @abstractmethod
    def identifier(self) -> str:
        """Name of the format in names of hardware signals."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Greatest word that a sum is encoded to."""

    @property
    @abstractmethod
    def mean_range(self) -> Range:
        """Range of means of |word|: that of fixed point suits evenly spaced words alone."""

    @property
    @abstractmethod
    def most_saturated(self) -> float | None:
        """Part of a tensor's values that may saturate, whatever its mean; None: no such limit."""

    @abstractmethod
    def knot(self, place: int) -> Fraction:
        """Return W(2^place), for ``place`` from 0 to one above the leading bit of ``most``."""

    @abstractmethod
    def why_no_number(self, word: int) -> str:
        """Explain why a word beyond ``largest`` stands for no number."""

    @property
    def narrower(self) -> str:
        """Format to choose where integers of this one are too wide, in words."""
        return "fewer bits"

    def words(self) -> Integers:
        """List the words that are numbers, in order."""
        return np.arange(-self.largest, self.largest + 1)

    @property
    def definition(self) -> tuple[object, ...]:
        """See ``Format.definition``: words and knots."""
        knots = [self.knot(place) for place in range(self.most.bit_length() + 1)]
        return self.width, self.scale, self.zero_only, self.words().tolist(), knots

    @property
    def most(self) -> int:
        """Integer of the word ``largest``."""
        return int(_sizes(self)[self.largest])

    @property
    def decoded_width(self) -> int:
        """Bits of the greatest integer, and a sign."""
        return self.most.bit_length() + 1

    @property
    def binades(self) -> tuple[Binade, ...]:
        """Binades by the place p of the leading bit, from 0 to the place of the largest integer."""
        return _binades(self)

    def decode(self, words: npt.ArrayLike) -> Integers:
        """See ``Format.decode``: value x 2^S."""
        checked = self._checked(words)
        if (bad := np.abs(checked) > self.largest).any():
            word = int(checked[bad].flat[0])
            raise FormatError(
                f"the word {word} of {self} is no number: it is {self.why_no_number(word)}"
            )
        return np.sign(checked) * _sizes(self)[np.abs(checked)]

    def nearest(self, values: npt.NDArray[np.float64], *, underflow: str = "zero") -> Integers:
        """See ``Format.nearest``."""
        check_no_nan(values, self)
        # The sums that ``encode`` takes have room for the integer bits, and for those below them.
        size_bits = max(_SIZE_BITS, self.decoded_width)
        below = _SIZE_BITS + _BITS_BELOW - size_bits
        sizes = np.minimum(np.abs(values), 2.0**size_bits)
        scaled = np.ldexp(sizes, below)
        whole = np.floor(scaled)
        inexact = (whole != scaled).astype(np.int64)  # sticky bit: no bound has bits this low
        words, _, _ = self.encode(whole.astype(np.int64) | inexact, below, underflow=underflow)
        return words * np.sign(values).astype(np.int64)

    def encode(
        self, sums: npt.ArrayLike, shift: int, *, underflow: str = "never"
    ) -> tuple[Integers, Flags, Flags]:
        """See ``Format.encode``. Sums midway between two words by W go to the even word.

        Sums beyond the largest number count as saturated. Sums other than 0 that are nearer to 0
        than the smallest number count as underflows, whichever word they become.
        """
        values = checked_sums(sums, shift, underflow)
        sizes = np.abs(values)
        rule = "zero" if self.zero_only else underflow
        words = np.searchsorted(_bounds(self, shift, rule), sizes, side="right")
        saturated = sizes > min(self.most << shift, 1 << SUM_WIDTH)
        return np.sign(values) * words, saturated, (sizes > 0) & (sizes < 1 << min(shift, 62))


_SIZE_BITS = 20
"""Integer bits of the sizes that ``nearest`` distinguishes: more than integers of operands have.
Formats of more bits, up to the 58 of posit(16,1), take theirs from the bits below the point."""
_BITS_BELOW = 40
"""Bits below the point: more than any bound between words needs. Bounds of wide formats need one,
and the last bit of a sum says whether lower bits were cut off."""


def slope(fmt: Coded, place: int) -> int:
    """Return log2 of the words from 2^``place`` to twice that: bits of a fraction if 0 or more."""
    low, high = fmt.knot(place), fmt.knot(place + 1)
    words = max(high - low, Fraction(0))
    bits = words.numerator.bit_length() - words.denominator.bit_length()
    # Hardware and C kernel encode a sum by a shift and an XOR, which only such knots allow.
    if words != Fraction(2) ** bits or (low / words).denominator != 1:
        raise FormatError(
            f"{fmt}: knot({place}) is {low} and knot({place + 1}) is {high}; the "
            f"difference must be a power of two that divides knot({place})"
        )
    return bits


@lru_cache
def _inverse(fmt: Coded, halves: bool) -> tuple[Fraction, ...]:
    """Invert W at 0, 1, .. ``fmt.largest``; with ``halves`` at 1/2, 3/2, .. below that word."""
    first = Fraction(1, 2) if halves else Fraction(0)
    wanted = [first + n for n in range(fmt.largest + (not halves))]
    inverse, place = [], 0
    low, high = fmt.knot(0), fmt.knot(1)
    for at in wanted:
        while at >= high:
            place += 1
            low, high = high, fmt.knot(place + 1)
        # below the first knot the encoding starts at 0, too
        inverse.append(at / low if at < low else (1 + (at - low) / (high - low)) * (1 << place))
    return tuple(inverse)


@lru_cache
def _sizes(fmt: Coded) -> Integers:
    """Tabulate the integers of the words from 0 on.

    Raises ``FormatError`` where a class gives knots or a ``largest`` that no table can follow: a
    fraction would be cut off, and two words would stand for one integer.
    """
    if fmt.largest >= 1 << (fmt.width - 1):
        raise FormatError(
            f"{fmt}: the largest word is {fmt.largest}; {fmt.width} bits have words to "
            f"{(1 << (fmt.width - 1)) - 1}"
        )
    if fmt.largest < 1:
        raise FormatError(f"{fmt}: the largest word is {fmt.largest}, which must be at least 1")
    if not isinstance(fmt.knot(0), Fraction | int):
        raise FormatError(
            f"{fmt}: knot(0) is {fmt.knot(0)!r}, which rounds: return Fraction(..), which does not"
        )
    if fmt.knot(0) < 0:  # several integers would have the word 0
        raise FormatError(f"{fmt}: knot(0) is {fmt.knot(0)}, which must not be below 0")
    place = 0
    while fmt.knot(place) <= fmt.largest:
        slope(fmt, place)  # refuses knots that do not grow, before a search among them
        place += 1
    for word, size in enumerate(_inverse(fmt, halves=False)):
        if size.denominator != 1:
            raise FormatError(
                f"{fmt}: the word {word} would stand for {size}, no integer; start with knots of "
                "subnormal numbers, 2^p for p = 0, 1, .."
            )
    return np.array([int(size) for size in _inverse(fmt, halves=False)], dtype=np.int64)


@lru_cache
def _binades(fmt: Coded) -> tuple[Binade, ...]:
    return tuple(_binade(fmt, place) for place in range(fmt.most.bit_length()))


def _binade(fmt: Coded, place: int) -> Binade:
    first, bits = fmt.knot(place), slope(fmt, place)
    if place == fmt.most.bit_length() - 1:
        # Where words end at a power of two, larger sums show by the bits that are cut off: the
        # encoder cuts no bit of the greatest integer itself.
        bits = max(bits, 0)
    if bits >= 0:
        return Binade(place - bits, int(first) ^ (1 << bits), False)
    # Some bits of the exponent are cut off: the first of them is the half, the rest are sticky.
    word, lost = floor(first), int((first - floor(first)) * (1 << -bits))
    half, rest = lost >> (-bits - 1), lost & ((1 << (-bits - 1)) - 1)
    if half:
        return Binade(place + 1, word, rest != 0)
    # The half is 0. A negative sum has the complement: a half of 1, and sticky zeros of `rest`.
    whole = rest == (1 << (-bits - 1)) - 1
    return Binade(place + (2 if whole else 3), word, False)


@lru_cache(maxsize=1024)
def _bounds(fmt: Coded, shift: int, underflow: str) -> Integers:
    """Tabulate the least |sum| that is encoded to each of the words 1 to ``fmt.largest``.

    The bound below word w is where W is w - 1/2; what lies on it goes to the even word.
    """
    _sizes(fmt)  # rejects bad knots: with knots that do not grow the search would not end
    bounds = []
    for word, bound in enumerate(_inverse(fmt, halves=True), 1):
        numerator = bound.numerator << shift
        least = -(-numerator // bound.denominator)  # rounded up
        if word % 2 and least * bound.denominator == numerator:
            least += 1  # the tie is of the even word below
        bounds.append(min(least, 1 << SUM_WIDTH))
    bounds[0] = 1 if underflow == "never" else ((1 << shift) >> 1) + 1
    return np.array(bounds, dtype=np.int64)
