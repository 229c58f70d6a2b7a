"""Cut columns in a resident step: decide which columns of each bond are left, and what they cost.

This runs at the start of an update, every ``CutRule.interval`` steps. A cut here only sets flags: a
flagged column gets a shift below 0, and the passes of the update clear its words
(``onchip.cut_pass``). The kernels are the same that define the result in integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.memory import PRIOR
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.prior_rows import PriorRows
from trainwright.kernels import VectorPass, lower
from trainwright.onchip import cut_pass as by
from trainwright.program.vector import THREADS, Stream


@dataclass(frozen=True)
class CutRule:
    """Steps at which columns are cut, and how weak a column has to be."""

    interval: int
    """Steps from one look at the columns to the next."""
    distance: int
    """Powers of two below the strongest column of a bond (``onchip.prior.cut_distance``)."""


class Cuts:
    """Flags of all columns in the scratchpad, in the places of side rows."""

    def __init__(self, work: Passes, layout: PriorRows, rows: int) -> None:
        """Take rows for the flags; ``rows`` is the first row of PRIOR.

        ``Schedule.look`` has to come before: it says whether this step looks at the columns.
        """
        self._work, self._layout, self._rows = work, layout, rows
        self._flags = work.pad.allocate(f"{PRIOR} flags", layout.padded * layout.block).start
        self._bases: dict[str, int] = dict.fromkeys((by.FLAGS_OUT, by.SPREAD), self._flags)
        self._bases |= {name: rows + layout.field(name) for name in (by.LOW, by.HIGH, by.KEPT)}
        """First rows of streams over side rows."""
        self._identity = work.constant(IDENTITY).start
        self._joint = {
            name: Stream(work.pad.allocate(f"{PRIOR} {name}", THREADS).start, 0, 1)
            for name in (by.MOST, by.FIRST)
            if layout.line_rows > 1
        }
        """Rows of what several rows of a bond's columns have in common."""

    def decide(self, distance: int) -> int:
        """Set the flags of the columns left and the costs at these ranks; return the flags' row."""
        for bond in range(0, self._layout.bonds, THREADS):
            self._decide(bond, distance)
        for bond in range(0, self._layout.bonds, THREADS):
            self._cost(bond)
        return self._flags

    def _sides(self, names: Sequence[str], bond: int, row: int) -> dict[str, Stream]:
        """Return streams over rows of eight bonds, a bond for each thread."""
        block = self._layout.block
        return {n: Stream(self._bases[n] + bond * block + row, 1, block) for n in names}

    def _run(self, kernel: VectorPass, streams: dict[str, Stream], *, outer: int = 1) -> None:
        if outer > 0:  # the last rows of a line may have no column
            self._work.run(kernel, streams, outer=outer, tensor="cuts")

    def _decide(self, bond: int, distance: int) -> None:
        rows = self._layout.line_rows
        # The strongest column of a bond decides about all. If columns take several rows, a first
        # sweep finds the strongest one, and the flags of that sweep do not count.
        for second_sweep in (False, True)[:rows]:
            for row in range(rows):
                decide = lower(by.decide_kernel, distance=distance, row=row, rows=rows,
                               lanes=self._work.p.lanes, second_sweep=second_sweep)  # fmt: skip
                self._decide_row(decide, bond, row, final=second_sweep or rows == 1)

    def _decide_row(self, decide: VectorPass, bond: int, row: int, *, final: bool) -> None:
        lanes, identity = self._work.p.lanes, Stream(self._identity, 1)
        first = self._layout.line_rows + row * lanes
        columns = min(lanes, self._layout.block - first)
        # A thread sees one word of a row. To compare the columns of a right side, which lie along a
        # row, the identity picks them out, a column a pass.
        right = self._sides((by.LOW, by.HIGH), bond, first)
        self._run(lower(by.gather_kernel), right | {by.IDENTITY: identity}, outer=columns)
        streams = self._sides((by.LOW, by.HIGH, by.KEPT, by.FLAGS_OUT), bond, row)
        streams[by.LEFT] = Stream(self._rows + self._layout.of_bonds(by.LEFT) + 1 + bond, 0, 1)
        self._run(decide, streams | self._joint)
        if final:
            spread = self._sides((by.SPREAD,), bond, first)
            self._run(lower(by.spread_kernel), spread | {by.IDENTITY: identity}, outer=columns)

    def _cost(self, bond: int) -> None:
        firsts = {name: self._layout.of_bonds(name) for name in by.BOND_FIELDS}
        # Fields of bonds have a row before the first and one behind the last bond, so the next
        # bond of bond n is at row n + 2.
        firsts |= {by.BEFORE: firsts[by.LEFT], by.AFTER: firsts[by.LEFT] + 2}
        streams = {n: Stream(self._rows + first + bond, 0, 1) for n, first in firsts.items()}
        self._run(lower(by.cost_kernel), streams)
