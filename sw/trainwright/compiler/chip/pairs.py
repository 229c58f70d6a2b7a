"""Find which commands of a resident step touch the same rows, bytes or registers.

A step has too many touches to compare each pair in Python. Numpy compares the table of all touches
with each touch; only grids, whose rows lie apart, are then compared one by one.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from trainwright.program.footprint import Touch

Numbers = npt.NDArray[np.int64]
Numbered = tuple[int, Touch]
"""A command's number, and something that it touches."""


class Pairs:
    """Conflict and read matrices of ``count`` commands, by number.

    Each row is an integer with a bit for each other command.
    """

    def __init__(self, touched: Sequence[Numbered], count: int) -> None:
        self._conflicts, self._reads = [0] * count, [0] * count
        for place, hit, table, owner in conflicts(touched):
            for mask, chosen in (
                (self._conflicts, hit),
                (self._reads, hit & (table[:, 3] > touched[place][1].write)),
            ):
                for other in set(owner[chosen].tolist()):
                    mask[owner[place]] |= 1 << other

    def conflict(self, first: int, second: int) -> bool:
        """Return whether one of two commands writes what the other touches."""
        return bool(self._conflicts[first] >> second & 1)

    def reads(self, first: int, second: int) -> bool:
        """Return whether the first command reads what the second writes."""
        return bool(self._reads[first] >> second & 1)


def conflicts(
    touched: Sequence[Numbered],
) -> Iterator[tuple[int, npt.NDArray[np.bool_], Numbers, Numbers]]:
    """Yield for each touch its place, the touches that conflict with it, and the table they are of.

    A conflict is an overlap where one of both writes. The table has (space, start, stop, write) of
    all touches; the last value is the command of each.
    """
    table, owner = _table(touched)
    for n, (_, mine) in enumerate(touched):
        space, start, stop, write = table.T
        hit = (space == table[n, 0]) & (start < table[n, 2]) & (stop > table[n, 1])
        hit &= (write | table[n, 3]).astype(bool)
        for other in np.flatnonzero(hit).tolist() if mine.grids else ():
            hit[other] = mine.meets(touched[other][1])
        yield n, hit, table, owner


def _table(touched: Sequence[Numbered]) -> tuple[Numbers, Numbers]:
    spaces: dict[str, int] = {}
    rows = [
        (spaces.setdefault(touch.space, len(spaces)), touch.start, touch.stop, touch.write)
        for _, touch in touched
    ]
    return np.array(rows, np.int64), np.array([number for number, _ in touched], np.int64)
