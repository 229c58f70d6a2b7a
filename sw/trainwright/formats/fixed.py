"""Fixed point: words that are their own integers."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.formats.base import (
    UNDERFLOWS,
    Flags,
    Format,
    FormatError,
    Integers,
    check_no_nan,
    checked_sums,
)
from trainwright.formats.rounding import limits, requantise
from trainwright.support.arguments import take_numpy_sizes

WIDTHS = (2, 16)
"""Least and greatest width."""


@dataclass(frozen=True)
class Fixed(Format):
    """Two's complement integers of ``bits`` bits. Raises ``FormatError`` for impossible widths.

    ``encode`` is ``trainwright.formats.rounding.requantise``.
    """

    bits: int

    coded = False
    spelling = re.compile(r"fixed\s*\(\s*([0-9]{1,9})\s*\)")
    allowed = "fixed(W) with W from {} to {}".format(*WIDTHS)

    @classmethod
    def read(cls, *groups: str) -> "Fixed":
        """Make the format of W bits."""
        return cls(int(groups[0]))

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "bits")
        least, greatest = WIDTHS
        if type(self.bits) is not int or not least <= self.bits <= greatest:
            raise FormatError(f"fixed point has {least} to {greatest} bits, not {self.bits!r}")

    def __str__(self) -> str:
        return f"fixed({self.bits})"

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self.bits

    @property
    def scale(self) -> int:
        """0: a word is its integer."""
        return 0

    @property
    def decoded_width(self) -> int:
        """Bits of a word: a word is its integer."""
        return self.bits

    @property
    def largest(self) -> int:
        """2^(bits - 1) - 1."""
        return (1 << (self.bits - 1)) - 1

    @property
    def most(self) -> int:
        """2^(bits - 1), of the least word."""
        return 1 << (self.bits - 1)

    @property
    def limits(self) -> tuple[int, int]:
        """-2^(bits - 1) and 2^(bits - 1) - 1."""
        return limits(self.bits)

    @property
    def integer_limits(self) -> tuple[int, int]:
        """The limits of words: a word is its integer."""
        return self.limits

    @property
    def words_text(self) -> str:
        """Bits that hold every word."""
        return f"within {self.bits} bits"

    @property
    def step(self) -> float:
        """2^(bits - 4)."""
        return 2.0 ** (self.bits - 4)

    @property
    def input_exponent(self) -> int:
        """1 - bits: an input of 1 saturates, by one in the last place."""
        return 1 - self.bits

    def decode(self, words: npt.ArrayLike) -> Integers:
        """Return the words themselves."""
        return self._checked(words)

    def encode(
        self, sums: npt.ArrayLike, shift: int, *, underflow: str = "never"
    ) -> tuple[Integers, Flags, Flags]:
        """See ``Format.encode``; no sum underflows."""
        values = checked_sums(sums, shift, underflow)
        return *requantise(values, shift, self.bits), np.zeros(values.shape, dtype=np.bool_)

    def nearest(self, values: npt.NDArray[np.float64], *, underflow: str = "zero") -> Integers:
        """See ``Format.nearest``."""
        if underflow not in UNDERFLOWS:
            raise ValueError(f"underflow must be one of {', '.join(UNDERFLOWS)}, not {underflow!r}")
        check_no_nan(values, self)
        return np.rint(values).clip(*self.limits).astype(np.int64)
