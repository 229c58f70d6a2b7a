"""Posits as tables for the C kernel (``native/numbers.h``), made from ``trainwright.formats``."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from trainwright.formats import UNDERFLOWS, Format, Posit

WORDS = 1 << 16
FRACTION_BITS = 23
"""Of a size as the kernel looks it up: those of a float32."""
LEAST_EXPONENT = -2
"""Of the sizes of place 0."""
REGISTER_PLACES = 32
"""Places that fit two vector registers."""
_BYTE_WORDS = 128


@dataclass(frozen=True)
class Table:
    """What the kernel's ``Number`` has of a format.

    A *size* is |sum| / 2^shift as a float32, cut, its last bit set where it was inexact: no bound
    between words lies that close to another. Sizes of one exponent share a *place*: place 0 is
    below one half, place 1 below 1, and so on, the last one from the largest word's exponent on, or
    beyond. With the fraction f, an integer, the word is (start + f) / 2^cut, to nearest, ties to
    even, and no more than the greatest; 0 has the word 0.
    """

    integers: npt.NDArray[np.float32]
    """(65536,) by word as uint16; NaN where a word stands for no number."""
    starts: npt.NDArray[np.int64]
    """(rules, places); by rule for what underflows, never first."""
    cuts: npt.NDArray[np.int64]
    """(places,)."""
    greatest: int
    """The greatest word."""
    registers: npt.NDArray[np.uint32] | None
    """(rules + 1, 32): starts and cuts where these fit 32 bits and their places are so few."""
    upper: npt.NDArray[np.uint8] | None
    """(2, 128) lower and upper byte of the upper half of the float32 of each word from 0 on; of
    words of up to 8 bits, whose integers have no other bits."""

    @property
    def largest(self) -> float:
        """The integer of the greatest word."""
        return float(self.integers[self.greatest])


@cache
def table(fmt: Format) -> Table:
    """The table of a posit."""
    assert isinstance(fmt, Posit)
    words = np.arange(-fmt.largest, fmt.largest + 1)
    integers = np.full(WORDS, np.nan, np.float32)
    integers[words.astype(np.uint16)] = fmt.decode(words)
    starts, cuts = _places(fmt)
    return Table(
        integers, starts, cuts, fmt.largest, _registers(fmt, starts, cuts), _upper(fmt, integers)
    )


def _places(fmt: Posit) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(starts, cuts): the encoding of a size written out at full length is start + f."""
    top = int(fmt.decode(fmt.largest)).bit_length() - 1
    whole = FRACTION_BITS + 1  # below it in place 0, 1 and the last one: f / 2^24 is under one half
    inner = [_place(fmt, exponent) for exponent in range(min(top + 1, 2 * fmt.scale))]
    last = (fmt.largest << whole, whole)
    rows = []
    for underflow in UNDERFLOWS:
        below = [1 << whole, 1 << whole] if underflow == "never" else [0, 1 << (whole - 1)]
        rows.append([*below, *(start for start, _ in inner), last[0]])
    return np.array(rows), np.array([whole, whole, *(cut for _, cut in inner), last[1]])


def _place(fmt: Posit, exponent: int) -> tuple[int, int]:
    """(start, cut) of the sizes from 2^exponent on, below the largest posit."""
    k, low = divmod(exponent - fmt.scale, 1 << fmt.es)
    regime, bits = (((1 << (k + 1)) - 1) << 1, k + 2) if k >= 0 else (1, 1 - k)
    return (
        (regime << fmt.es | low) << FRACTION_BITS,
        bits + fmt.es + FRACTION_BITS - (fmt.n - 1),
    )


def _registers(
    fmt: Posit, starts: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32] | None:
    missing = REGISTER_PLACES - len(cuts)
    if missing < 0 or fmt.n + fmt.es > 32 - FRACTION_BITS:
        return None
    return np.pad(np.vstack([starts, cuts]), ((0, 0), (0, missing)), "edge").astype(np.uint32)


def _upper(fmt: Posit, integers: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8] | None:
    if fmt.n > 8:
        return None
    halves = np.zeros(_BYTE_WORDS, np.uint16)
    bits = integers[: fmt.largest + 1].view(np.uint32)
    assert not (bits & 0xFFFF).any()
    halves[: fmt.largest + 1] = bits >> 16
    return np.stack([halves & 0xFF, halves >> 8]).astype(np.uint8)
