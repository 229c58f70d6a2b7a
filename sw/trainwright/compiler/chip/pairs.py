"""Which commands of a resident step touch the same: rows, bytes, and what else orders them."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from trainwright.program.footprint import Touch

Numbers = npt.NDArray[np.int64]
Numbered = tuple[int, Touch]
"""A command's number, and something that it touches."""


class Pairs:
    """Of two of ``count`` commands, by number: whether one writes what the other touches, whether
    the first reads what the second writes.
    """

    def __init__(self, touched: Sequence[Numbered], count: int) -> None:
        self._conflicts, self._reads = [0] * count, [0] * count
        for one, hit, table, owner in conflicts(touched):
            for mask, chosen in (
                (self._conflicts, hit),
                (self._reads, hit & (table[:, 3] > touched[one][1].write)),
            ):
                for other in set(owner[chosen].tolist()):
                    mask[owner[one]] |= 1 << other

    def conflict(self, one: int, other: int) -> bool:
        """Whether one of them writes what the other touches."""
        return bool(self._conflicts[one] >> other & 1)

    def reads(self, one: int, other: int) -> bool:
        """Whether the first reads what the second writes."""
        return bool(self._reads[one] >> other & 1)


def conflicts(
    touched: Sequence[Numbered],
) -> Iterator[tuple[int, npt.NDArray[np.bool_], Numbers, Numbers]]:
    """For each touch: its place, which others are of the same rows where one of both writes, the
    table of all touches (space, start, stop, write) and the command of each.
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
        (spaces.setdefault(one.space, len(spaces)), one.start, one.stop, one.write)
        for _, one in touched
    ]
    return np.array(rows, np.int64), np.array([number for number, _ in touched], np.int64)
