"""Describe which columns of a part are left after cuts.

A cut column stays in the state as zeros, in its row and lane, so that no part has to move. The
programs of a step were compiled for the smaller ranks and expect rows without gaps. ``Live`` says
how to get from one to the other: runs of indices along the first axis, products with selecting rows
along the lanes. ``update`` and ``memory`` use it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.onchip.layout import LANES, WeightLayout

Kept = tuple[tuple[int, ...], ...]
"""Columns of each bond that are left, in rising order."""


def whole(layout: WeightLayout) -> Kept:
    """Return every column of every bond."""
    return tuple(tuple(range(bond.left.columns)) for bond in layout.bonds)


def is_prefix(columns: Sequence[int]) -> bool:
    """Return whether there is no gap: the programs then find columns where they expect them."""
    return list(columns) == list(range(len(columns)))


@dataclass(frozen=True)
class Live:
    """Columns of a part that are left."""

    left: tuple[int, ...]
    """Indices of the first axis that are left."""
    right: tuple[int, ...]
    """Words of a row that are left, where a bond's columns lie along the lanes; else empty."""
    select: str
    """Name of the buffer that selects these words; empty where there are no gaps."""

    @property
    def packed(self) -> bool:
        """Whether the part lies as the programs expect it."""
        return is_prefix(self.left) and not self.select

    def runs(self, most: int) -> list[tuple[int, int, int]]:
        """Return runs of indices as (first index, its place among those left, count).

        A run has at most ``most`` indices.
        """
        runs: list[tuple[int, int, int]] = []
        for place, index in enumerate(self.left):
            if runs and sum(runs[-1][::2]) == index and runs[-1][2] < most:
                first, start, count = runs[-1]
                runs[-1] = first, start, count + 1
            else:
                runs.append((index, place, 1))
        return runs


def live_parts(layout: WeightLayout, kept: Kept) -> list[Live]:
    """Return what is left of every part of a layout."""
    left: dict[int, tuple[int, ...]] = {}
    right: dict[int, tuple[int, ...]] = {}
    names: dict[int, str] = {}
    for number, (bond, columns) in enumerate(zip(layout.bonds, kept, strict=True)):
        # The part on the right of a bond has the bond's columns along its first axis, the part on
        # its left has them along the lanes.
        left[bond.right.part] = columns
        right[bond.left.part] = columns
        if not is_prefix(columns):
            names[bond.left.part] = select_name(number)
    return [
        Live(left.get(n, tuple(range(part.blocks))), right.get(n, ()), names.get(n, ""))
        for n, part in enumerate(layout.parts)
    ]


def select_name(bond: int) -> str:
    """Return the name of the buffer of a bond's selecting rows."""
    return f"bond {bond + 1}"


def select_rows(columns: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return (32, LANES) rows that move the words of ``columns`` to the lowest lanes and back.

    As factors of products of rows: the first 16 rows gather the words, the last 16 scatter them.
    """
    gather = np.zeros((LANES, LANES), np.int64)
    gather[np.arange(len(columns)), list(columns)] = 1
    return np.concatenate([gather, gather.T])
