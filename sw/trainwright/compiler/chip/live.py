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

from trainwright.onchip.layout import WeightLayout, line_rows

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
    select: str
    """Name of the buffer that selects these words; empty where there are no gaps."""
    line_rows: int
    """Rows of a line as the programs have it."""

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
    """Return the columns and rows of every part of a layout that the kept columns leave."""
    bonds, selecting = [*zip(layout.bonds, kept, strict=True)], select_rows(layout, kept)
    names = {layout.bonds[n].left.part: select_name(n) for n in selecting}
    # The part on the right of a bond has the bond's columns along its first axis, the part on its
    # left has them along the lanes.
    left = {bond.right.part: columns for bond, columns in bonds}
    lines = {bond.left.part: line_rows(len(columns), layout.lanes) for bond, columns in bonds}
    return [
        Live(left.get(n, tuple(range(part.blocks))), names.get(n, ""), lines.get(n, part.line_rows))
        for n, part in enumerate(layout.parts)
    ]


def select_name(bond: int) -> str:
    """Return the name of the buffer of a bond's selecting rows."""
    return f"bond {bond + 1}"


def select_rows(layout: WeightLayout, kept: Kept) -> dict[int, npt.NDArray[np.int64]]:
    """Return rows that move the words of columns to the lowest lanes and back, by number of bond.

    Bonds whose columns lie as the programs have them need none. The rows are factors of products of
    rows: for each row of a program's line a row for each lane and row of the state's line, which
    gather its words, then the same with both lines exchanged, which scatter them.
    """
    selecting, lanes = dict[int, npt.NDArray[np.int64]](), layout.lanes
    for number, (bond, columns) in enumerate(zip(layout.bonds, kept, strict=True)):
        full, left = (line_rows(n, lanes) for n in (bond.left.columns, len(columns)))
        if is_prefix(columns) and full == left:
            continue
        gather = np.zeros((left * lanes, full * lanes), np.int64)
        gather[np.arange(len(columns)), list(columns)] = 1
        tiles = (_tiles(matrix, lanes) for matrix in (gather, gather.T))
        selecting[number] = np.concatenate([*tiles])
    return selecting


def _tiles(matrix: npt.NDArray[np.int64], lanes: int) -> npt.NDArray[np.int64]:
    """Return the tiles of ``lanes`` x ``lanes`` of a matrix, row by row, one below the other."""
    rows, columns = (size // lanes for size in matrix.shape)
    return matrix.reshape(rows, lanes, columns, lanes).swapaxes(1, 2).reshape(-1, lanes)
