"""Tables of the vector engine: a base and a slope an entry, both of 18 bits, one block RAM.

A table maps a fraction x of ``FRACTION`` bits. Its upper ``INDEX_WIDTH`` bits name the entry, the
lower ones are the rest:

    sum = base * 2^SLOPE_SHIFT + slope * rest        exact, at most 35 bits
    result = sum / 2^shift                           by the requantiser, half to even

The base is that of the chord over the entry's interval, moved by half of the chord's largest
deviation, so that the error is the same to both sides. Every constant is rounded once from 30
decimal digits: tables are the same on every machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp

INDEX_WIDTH = 6
ENTRIES = 1 << INDEX_WIDTH
FRACTION = 16
"""Bits of the argument below the point; bits above it are the slot."""
REST_WIDTH = FRACTION - INDEX_WIDTH
WORD_WIDTH = 18
"""Bits of base and slope, two's complement; 18 x 18 is the multiplier of the device."""
SLOPE_SHIFT = 16
"""Bits that a slope has below the point in addition to those of a base."""


@dataclass(frozen=True)
class FunctionTable:
    """``bases`` and ``slopes`` int64 (slots x ENTRIES,), of WORD_WIDTH bits."""

    bases: npt.NDArray[np.int64]
    slopes: npt.NDArray[np.int64]

    def __call__(self, x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the exact sums of inputs x >= 0, in units of the base / 2^SLOPE_SHIFT."""
        base, product = self.terms(x)
        return (base << SLOPE_SHIFT) + product

    def terms(
        self, x: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the base of each input, and its slope * rest."""
        entry, rest = x >> REST_WIDTH, x & ((1 << REST_WIDTH) - 1)
        return self.bases[entry], self.slopes[entry] * rest


def make_table(
    function: Callable[[Any], Any],
    spans: list[tuple[int, int]],
    *,
    base_width: int,
    entries: int = ENTRIES,
    limits: Mapping[int, int] | None = None,
) -> FunctionTable:
    """Tabulate ``function`` (of mpmath numbers): equal intervals, ``entries`` for each [low, high).

    Bases are in units of 2^-base_width. A base or slope one unit beyond WORD_WIDTH bits saturates.
    ``limits`` gives values that the table has exactly at arguments where it ends.
    """
    bases, slopes = [], []
    limits = limits or {}
    with mpmath.workdps(30):
        for low, high in spans:
            step = mpmath.mpf(high - low) / entries
            for n in range(entries):
                left, right = low + n * step, low + (n + 1) * step
                first, last = (limits[x] if x in limits else function(x) for x in (left, right))
                bend = function((left + right) / 2) - (first + last) / 2
                if left in limits or right in limits:
                    bend = 0
                bases.append(_nearest((first + bend / 2) * 2**base_width))
                slope = (last - first) * mpmath.mpf(2) ** (base_width + SLOPE_SHIFT - REST_WIDTH)
                slopes.append(_nearest(slope))
    return FunctionTable(*(clamp(np.array(column), WORD_WIDTH) for column in (bases, slopes)))


def _nearest(value: Any) -> int:
    return int(mpmath.nint(value))
