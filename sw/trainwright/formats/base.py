"""What every number format of a tensor has.

A word stands for an integer, and a tensor has one exponent: value = integer x 2^exponent. The
exponent is always that of the integer's last bit, whatever the format, so that a sum of products of
x and g has the exponent ``e_x + e_g`` and is brought to an exponent ``e_z`` by

    shift = e_z - e_x - e_g

For a posit the integer is its value x 2^S: a tensor whose posit 1 is to stand for 2^E has the
exponent E - S.
"""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNDERFLOWS = ("never", "zero")
"""What becomes of a sum that is closer to 0 than the smallest posit: that posit (the standard's
rule), or the nearer of it and 0, which is 0 where both are as near."""
SUM_WIDTH = 62
"""Bits of a sum at most, its sign included."""
MAX_SHIFT = 63


class FormatError(ValueError):
    """A format that does not exist, or a word that a format does not have."""


class Format(ABC):
    """A number format of words of ``width`` bits.

    Words are signed integers, -2^(width - 1) to 2^(width - 1) - 1, sign-extended wherever they lie:
    their order is that of the values. All functions are exact and take arrays of any shape.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """Bits of a word."""

    @property
    @abstractmethod
    def scale(self) -> int:
        """S: the integer of the value 1 is 2^S; 0 in fixed point."""

    @property
    @abstractmethod
    def decoded_width(self) -> int:
        """Bits of the integer of any word, its sign included."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The greatest word that a sum is encoded to."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The greatest size of any word's integer."""

    @property
    def storage_width(self) -> int:
        """Bits of a word in memory: 4, 8 or 16."""
        return next(bits for bits in (4, 8, 16) if bits >= self.width)

    def fits(self, operand_width: int) -> bool:
        """Whether every integer fits a signed operand of a multiplier."""
        return self.decoded_width <= operand_width

    @abstractmethod
    def decode(self, words: npt.ArrayLike) -> Integers:
        """The integers of words. Raises ``FormatError`` for a word that stands for none."""

    @abstractmethod
    def encode(
        self, sums: npt.ArrayLike, shift: int, *, underflow: str = "never"
    ) -> tuple[Integers, Flags, Flags]:
        """The words nearest to sums / 2^shift; which are saturated; which underflow.

        ``sums``: exact integers of up to ``SUM_WIDTH`` bits; ``shift``: 0 to ``MAX_SHIFT``. One
        rounding, ties to the even word, what is beyond the greatest word saturating.
        ``underflow`` is one of ``UNDERFLOWS``, and of no meaning in fixed point, where nothing
        counts as an underflow. Raises ``ValueError`` for anything else.
        """

    def magnitude(self, words: npt.ArrayLike) -> Integers:
        """What statistics add up: |word|. A posit's is nearly the logarithm of its value."""
        return np.abs(self._checked(words))

    def _checked(self, words: npt.ArrayLike) -> Integers:
        """The words as int64. Raises ``FormatError`` for what is no integer of ``width`` bits."""
        given = np.asarray(words)
        if given.dtype.kind not in "iu":
            raise FormatError(f"words of {self} are integers, not {given.dtype}")
        checked = given.astype(np.int64)
        limit = 1 << (self.width - 1)
        outside = (checked < -limit) | (checked >= limit)
        if outside.any():
            raise FormatError(
                f"words of {self} are {-limit} to {limit - 1}, not {given[outside].flat[0]}"
            )
        return checked


def checked_sums(sums: npt.ArrayLike, shift: int, underflow: str) -> Integers:
    """The sums as int64. Raises ``ValueError`` for what ``Format.encode`` does not take."""
    if not 0 <= shift <= MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    if underflow not in UNDERFLOWS:
        raise ValueError(f"underflow must be one of {', '.join(UNDERFLOWS)}, not {underflow!r}")
    given = np.asarray(sums)
    if given.dtype.kind not in "iu":
        raise ValueError(f"sums must be integers, not {given.dtype}")
    limit = 1 << (SUM_WIDTH - 1)
    if given.size and not (-limit <= int(given.min()) and int(given.max()) < limit):
        raise ValueError(f"sums must have at most {SUM_WIDTH} bits, sign included")
    return given.astype(np.int64)


def sum_width(terms: int, x: Format, g: Format) -> int:
    """Bits, with a sign, that hold every sum of ``terms`` products of integers of two formats."""
    return (terms * x.most * g.most).bit_length() + 1
