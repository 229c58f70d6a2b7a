"""Posits as tables for the C kernel (``native/numbers.h``), made from ``trainwright.formats``."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from trainwright.formats import UNDERFLOWS, Format, Posit

WORDS = 1 << 16
_SHIFT = 40
"""Bits below an integer's last one at which bounds are asked for: more than any bound has."""
_FRACTION_BITS = 52


@dataclass(frozen=True)
class Table:
    """What the kernel's ``Number`` has of a format; by rule for what underflows, never first.

    A place holds the sizes that share their exponent and their first ``kept`` bits. Place 0 is
    below one half, where every size but 0 rounds alike; the last one is beyond the largest word.
    """

    integers: npt.NDArray[np.float32]
    """(65536,) by word as uint16; NaN where a word stands for no number."""
    kept: int
    first: int
    """Float64 bits of the least size of place 0, without the fraction bits that are not kept."""
    largest: float
    bounds: tuple[npt.NDArray[np.float64], ...]
    """(places,) the least size of the next word, where that lies in the place; else infinity."""
    words: tuple[npt.NDArray[np.int64], ...]
    """(places,) the word of the least size of the place."""


@cache
def table(fmt: Format) -> Table:
    """The table of a posit."""
    assert isinstance(fmt, Posit)
    words = np.arange(-fmt.largest, fmt.largest + 1)
    decoded = fmt.decode(words)
    integers = np.full(WORDS, np.nan, np.float32)
    integers[words.astype(np.uint16)] = decoded
    kept, top = max(0, fmt.n - 3 - fmt.es), int(decoded[-1]).bit_length()
    starts = np.arange(1 << kept, (1 << kept) + ((top + 1) << kept))  # places from one half on
    exponents, fractions = (starts >> kept) - 1, starts & ((1 << kept) - 1)
    least = np.ldexp(1 + fractions / (1 << kept), exponents - 1)
    first = int(least[:1].view(np.int64)[0] >> (_FRACTION_BITS - kept)) - 1
    sizes = np.concatenate([[0.0], least])
    rules = [_rule(fmt, sizes, underflow) for underflow in UNDERFLOWS]
    bounds, found = zip(*rules, strict=True)
    return Table(integers, kept, first, float(decoded[-1]), bounds, found)


def _rule(
    fmt: Posit, sizes: npt.NDArray[np.float64], underflow: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(bounds, words) of places that begin at ``sizes``."""
    exact = np.ldexp(sizes, _SHIFT).astype(np.int64)
    words, _, _ = fmt.encode(exact, _SHIFT, underflow=underflow)
    every = _bounds(fmt, underflow)
    bounds = np.append(every, np.inf)[words]  # every[w]: from it on the word is w + 1
    after = np.append(sizes[1:], np.inf)
    return np.where(bounds < after, bounds, np.inf), words


def _bounds(fmt: Posit, underflow: str) -> npt.NDArray[np.float64]:
    """The least sizes, as float64, that are encoded to each of the words 1 to ``fmt.largest``."""
    low = np.zeros(fmt.largest, np.int64)
    high = np.full(fmt.largest, 1 << (fmt.decoded_width + _SHIFT), np.int64)
    wanted = np.arange(1, fmt.largest + 1)
    while (high - low > 1).any():  # encoded(low) < wanted <= encoded(high)
        middle = (low + high) // 2
        reached = fmt.encode(middle, _SHIFT, underflow=underflow)[0] >= wanted
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    tie = high % 2 == 1  # which goes to the word below: what is greater by anything goes above
    bounds = np.ldexp(np.where(tie, high - 1, high).astype(np.float64), -_SHIFT)
    return np.where(tie, np.nextafter(bounds, np.inf), bounds)
