"""Which columns of a part are left after cuts.

Its rows stay where they were in the state, while the programs of a step have fewer, without gaps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.onchip.layout import LANES, WeightLayout

Kept = tuple[tuple[int, ...], ...]
"""The columns of each bond that are left, rising."""


def whole(layout: WeightLayout) -> Kept:
    """Every column."""
    return tuple(tuple(range(bond.left.columns)) for bond in layout.bonds)


def is_prefix(columns: Sequence[int]) -> bool:
    """Whether there is no gap: columns that are left are then where the programs expect them."""
    return list(columns) == list(range(len(columns)))


@dataclass(frozen=True)
class Live:
    """What is left of a part."""

    left: tuple[int, ...]
    """Indices of its first axis."""
    right: tuple[int, ...]
    """Words of a row, where a bond's columns lie along the lanes; else none is said."""
    select: str
    """Buffer that selects these words, where there are gaps."""

    @property
    def packed(self) -> bool:
        """Whether the part is as the programs expect it."""
        return is_prefix(self.left) and not self.select

    def runs(self, most: int) -> list[tuple[int, int, int]]:
        """(first index, its place among those left, count) of runs of at most ``most`` indices."""
        found: list[tuple[int, int, int]] = []
        for place, index in enumerate(self.left):
            if found and sum(found[-1][::2]) == index and found[-1][2] < most:
                first, start, count = found[-1]
                found[-1] = first, start, count + 1
            else:
                found.append((index, place, 1))
        return found


def live_parts(layout: WeightLayout, kept: Kept) -> list[Live]:
    """Of every part of a layout."""
    left: dict[int, tuple[int, ...]] = {}
    right: dict[int, tuple[int, ...]] = {}
    names: dict[int, str] = {}
    for number, (bond, columns) in enumerate(zip(layout.bonds, kept, strict=True)):
        left[bond.right.part] = columns
        right[bond.left.part] = columns
        if not is_prefix(columns):
            names[bond.left.part] = select_name(number)
    return [
        Live(left.get(n, tuple(range(part.blocks))), right.get(n, ()), names.get(n, ""))
        for n, part in enumerate(layout.parts)
    ]


def select_name(bond: int) -> str:
    """Buffer of a bond's selecting rows."""
    return f"bond {bond + 1}"


def select_rows(columns: Sequence[int]) -> npt.NDArray[np.int64]:
    """(32, LANES): as factors of products of rows, 16 rows that take the words of ``columns`` to
    the lowest lanes, and 16 that take them back.
    """
    gather = np.zeros((LANES, LANES), np.int64)
    gather[np.arange(len(columns)), list(columns)] = 1
    return np.concatenate([gather, gather.T])
