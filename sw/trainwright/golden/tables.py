"""Tables of coded formats for the C kernel (``native/numbers.h``)."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from trainwright.formats import UNDERFLOWS, Coded, slope

WORDS = 1 << 16
FRACTION_BITS = 23
"""Bits of a size as the kernel looks it up: the bits of a float32."""
LEAST_EXPONENT = -2
"""Exponent of the sizes of place 0."""
REGISTER_PLACES = 32
"""Places that fit two vector registers."""
_BYTE_WORDS = 128


@dataclass(frozen=True)
class Table:
    """Tables of a format, as the kernel's ``Number`` has them.

    A *size* is |sum| / 2^shift as a float32, cut, its last bit set where it was inexact: no bound
    between words lies that close to another. Sizes of one exponent share a *place*: place 0 is
    below one half, place 1 below 1, and so on, the last one from the largest word's exponent on, or
    beyond. With the fraction f, an integer, the word is (start + f) / 2^cut, to nearest, ties to
    even, and no more than the greatest; 0 has the word 0.
    """

    integers: npt.NDArray[np.float32]
    """(65536,) by word as uint16; NaN where a word stands for no number."""
    starts: npt.NDArray[np.int64]
    """Integers added to a size's fraction, (rules, places); underflow rule "never" is first."""
    cuts: npt.NDArray[np.int64]
    """Bits cut off the sum of start and fraction, (places,)."""
    greatest: int
    """Greatest word."""
    registers: npt.NDArray[np.uint32] | None
    """Starts and cuts for vector registers, (rules + 1, 32); None where they do not fit 32 bits."""
    upper: npt.NDArray[np.uint8] | None
    """Upper halves of the float32 of each word from 0 on, as bytes, (2, 128); None above 8 bits.

    Integers of words of up to 8 bits have no bits in the lower half.
    """

    @property
    def largest(self) -> float:
        """Integer of the greatest word, as a float."""
        return float(self.integers[self.greatest])


@cache
def table(fmt: Coded) -> Table:
    """Return the table of a format that is decoded."""
    words = fmt.words()
    integers = np.full(WORDS, np.nan, np.float32)
    # Index by the word's bits: negative words are the upper half of the table.
    integers[words.astype(np.uint16)] = fmt.decode(words)
    starts, cuts = _places(fmt)
    return Table(
        integers, starts, cuts, fmt.largest, _registers(starts, cuts), _upper(fmt, integers)
    )


def _places(fmt: Coded) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (starts, cuts): the encoding of a size at full length is start + f."""
    top = fmt.most.bit_length() - 1
    whole = FRACTION_BITS + 1  # below it in place 0, 1 and the last one: f / 2^24 is under one half
    # a largest number that is the first of its place shares the last place with what is beyond
    inner = [_place(fmt, place) for place in range(top if fmt.most == 1 << top else top + 1)]
    last = (fmt.largest << whole, whole)
    rows = []
    for underflow in UNDERFLOWS:
        never = underflow == "never" and not fmt.zero_only
        below = [1 << whole, 1 << whole] if never else [0, 1 << (whole - 1)]
        rows.append([*below, *(start for start, _ in inner), last[0]])
    return np.array(rows), np.array([whole, whole, *(cut for _, cut in inner), last[1]])


def _place(fmt: Coded, place: int) -> tuple[int, int]:
    """(start, cut) of the sizes from 2^place on, below the largest number."""
    cut = FRACTION_BITS - slope(fmt, place)
    return int(fmt.knot(place) * (1 << cut)), cut


def _registers(
    starts: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32] | None:
    missing = REGISTER_PLACES - len(cuts)
    # a start, its fraction and the half that rounds it have to stay below 2^32
    beyond = starts + (1 << FRACTION_BITS) + (1 << cuts >> 1)
    if missing < 0 or beyond.max() > 1 << 32:
        return None
    return np.pad(np.vstack([starts, cuts]), ((0, 0), (0, missing)), "edge").astype(np.uint32)


def _upper(fmt: Coded, integers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8] | None:
    if fmt.width > 8:
        return None
    halves = np.zeros(_BYTE_WORDS, np.uint16)
    bits = integers[: fmt.largest + 1].view(np.uint32)
    assert not (bits & 0xFFFF).any()
    halves[: fmt.largest + 1] = bits >> 16
    return np.stack([halves & 0xFF, halves >> 8]).astype(np.uint8)
