"""The rank prior in a resident step: sums of squares, coefficients, and what the update reads.

Coefficients follow from the sums of the step before, at any time before the update. In the update,
words of pulls follow from them and from the exponent of a part's gradient; the squares of a part
are summed when its weights are new.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import gcd

from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip.cuts import Cuts, Looks
from trainwright.compiler.chip.memory import COLUMNS, PRIOR, ChipMemory
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.prior_rows import COST, PriorRows, SideRows
from trainwright.compiler.chip.schedule import Schedule
from trainwright.kernels import VectorPass, lower
from trainwright.onchip import prior_pass as by
from trainwright.onchip.layout import WeightPart
from trainwright.onchip.prior import INTERVAL
from trainwright.onchip.rates import RateTable
from trainwright.program.descriptors import Program
from trainwright.program.vector import THREADS, Stream


def pulls_of(part: WeightPart) -> str:
    """Name of the passes whose shifts are by the exponent of a part's gradient."""
    return f"{part.name} pulls"


def padded_blocks(part: WeightPart) -> int:
    """Indices of a part's first axis, filled up to whole groups of threads; 1 of a lone one."""
    return part.blocks if part.blocks == 1 else -(-part.blocks // THREADS) * THREADS


def in_turn(looks: Looks | None) -> int:
    """Every how many steps the prior's coefficients may be others, and columns cut: in steps of
    numbers that this divides, and sums are those of the step before.
    """
    return gcd(INTERVAL, looks.interval) if looks else INTERVAL


def renewal_program(
    memory: ChipMemory, table: RateTable, looks: Looks | None = None, avoid: Sequence[Region] = ()
) -> Program:
    """Columns left where there are ``looks``, coefficients and exponents by the sums, in memory.

    Rows of the scratchpad that are to ``avoid`` are not used.
    """
    work, turn = Passes(memory), in_turn(looks)
    work.b.pad.avoid(avoid)
    schedule, layout = Schedule(work, table), memory.prior_rows
    with work.in_one_of(turn, 0):
        rows = work.load(PRIOR).start
    if looks:
        schedule.look(looks.interval)
        with work.in_one_of(turn, 0):
            flags = Cuts(work, layout, rows).decide(looks.distance)
            work.store(PRIOR, flags, layout.side_rows, first=layout.field(by.KEPT))
    schedule.phase()
    with work.in_one_of(turn, 0):
        schedule.weights()
        _renew(work, layout, rows)
    return work.finish("the program of the prior's coefficients")


def _renew(work: Passes, layout: PriorRows, rows: int) -> None:
    """Coefficients and exponents of all side rows, to memory."""
    fields = {by.LOW_WORD: by.LOW, by.HIGH_WORD: by.HIGH, by.OFFSET_ROW: by.OFFSET,
              by.COEFFICIENT_ROW: by.COEFFICIENT, by.EXPONENT_ROW: by.EXPONENT}  # fmt: skip
    streams = {
        name: Stream(rows + layout.field(number), layout.block, 1)
        for name, number in fields.items()
    }
    streams[by.COST_ROW] = Stream(rows + layout.of_bonds(COST), 1)
    work.run(
        lower(by.renew_kernel), streams, outer=layout.bonds, inner=layout.block,
        tensor="coefficients of the prior",
    )  # fmt: skip
    first = layout.field(by.COEFFICIENT)
    work.store(PRIOR, rows + first, 2 * layout.side_rows, first=first)


class Prior:
    """The side rows in the scratchpad: sums, coefficients, exponents, and flags of what is cut."""

    def __init__(self, work: Passes, looks: Looks | None = None, *, late: bool = False) -> None:
        """Columns may be cut where there are ``looks``; the update is that of the step before where
        it is ``late``.
        """
        self._work, self._memory, self._turn = work, work.memory, in_turn(looks)
        self._before = (self._turn - 1 + late) % self._turn
        memory: ChipMemory = work.memory
        self._layout, self._flagged = memory.prior_rows, looks is not None
        self._rows = work.b.pad.allocate(PRIOR, self._layout.field(by.KEPT + 1)).start
        self._load(by.COEFFICIENT, by.KEPT if looks else by.EXPONENT)
        with self._before_renewal():  # rows of columns that are not there stay 0
            self._load(by.LOW, by.HIGH)
        self.columns = work.b.pad.allocate(COLUMNS, memory.buffers[COLUMNS].shape[0]).start
        """First row of what the update's passes read, in the places of ``memory.columns``."""
        self._joined = work.b.pad.allocate("sums of threads", 2 * THREADS).start

    def _load(self, first: int, last: int) -> None:
        """Fields ``first`` to ``last`` of all side rows."""
        row, stop = self._layout.field(first), self._layout.field(last + 1)
        to = Region(PRIOR, self._rows + row, stop - row)
        self._work.load(PRIOR, first=row, rows=to.count, to=to)

    def _before_renewal(self) -> AbstractContextManager[None]:
        """In steps before those in which the sums are read."""
        return self._work.in_one_of(self._turn, self._before)

    def _field(self, number: int, row: int = 0, *, outer: int = 0, inner: int = 1) -> Stream:
        return Stream(self._rows + self._layout.field(number) + row, outer, inner)

    def words(self, part: WeightPart) -> None:
        """What the passes of a part read, of both its sides."""
        number = self._memory.layout.parts.index(part)
        sides, rows = self._memory.sides[number], self._memory.columns[number]
        for side, to, count in ((sides.left, (rows.left_shift, rows.left), part.blocks),
                                (sides.right, (rows.right_shift, rows.right), 1)):  # fmt: skip
            if side is None:
                continue
            streams = {
                by.PULL_COEFFICIENT: self._field(by.COEFFICIENT, side),
                by.PULL_EXPONENT: self._field(by.EXPONENT, side),
                by.PULL_FLAG: self._field(by.KEPT, side),
                by.PULL_SHIFT: Stream(self.columns + to[0], 0, 1),
                by.PULL_WORD: Stream(self.columns + to[1], 0, 1),
            }
            self._work.run(
                lower(by.words_kernel, flagged=self._flagged), streams, inner=count,
                tensor=pulls_of(part),
            )  # fmt: skip

    # Sums.

    def add(self, part: WeightPart, state: int, factors: int) -> None:
        """The sums of a part by its new rows from ``state`` and ``factors`` on, those of padded
        and of cut indices 0; before a step of renewal.
        """
        sides = self._memory.sides[self._memory.layout.parts.index(part)]
        if sides.left is None and sides.right is None:
            return
        with self._before_renewal():
            self._add(part, sides, state, factors)

    def _add(self, part: WeightPart, sides: SideRows, state: int, factors: int) -> None:
        self._run(lower(by.clear_kernel, registers=(by.SQUARES, by.RIGHT)), part)
        if sides.left is None:
            self._squares(part, state, factors, outer=part.rows, inner=1, steps=(1, 0))
            self._run(lower(by.add_right_kernel), part)
        else:
            self._blocks(part, state, factors, sides.left)
        if sides.right is not None:
            self._join(part, sides.right)

    def _run(
        self,
        kernel: VectorPass,
        part: WeightPart,
        streams: dict[str, Stream] | None = None,
        **nest: int,
    ) -> None:
        self._work.run(kernel, streams, tensor=f"{part.name} sums", **nest)

    def _squares(
        self, part: WeightPart, state: int, factors: int, *, outer: int, inner: int,
        steps: tuple[int, int],
    ) -> None:  # fmt: skip
        streams = {by.STATE: Stream(state, *steps), by.FACTOR: Stream(factors, *steps)}
        kernel = lower(by.squares_kernel, hidden=part.hidden)
        self._run(kernel, part, streams, outer=outer, inner=inner)

    def _blocks(self, part: WeightPart, state: int, factors: int, left: int) -> None:
        """A block of rows for each thread, 8 of them at a time."""
        per = part.rows // part.blocks
        for first in range(0, part.blocks, THREADS):
            at = first * per
            self._squares(part, state + at, factors + at, outer=per, inner=THREADS, steps=(1, per))
            words = self._sum_words(left + first, inner=1)
            threads = min(THREADS, part.blocks - first)
            self._run(lower(by.flush_left_kernel), part, words, inner=threads)
            self._run(lower(by.add_right_kernel), part)

    def _join(self, part: WeightPart, right: int) -> None:
        """From the threads' sums to a row."""
        halves = {by.LOW_WORD: self._joined, by.HIGH_WORD: self._joined + THREADS}
        threads = {name: Stream(row, 0, 1) for name, row in halves.items()}
        self._run(lower(by.flush_kernel, register=by.RIGHT), part, threads)
        rows = {name: Stream(row, 1) for name, row in halves.items()}
        self._run(lower(by.join_kernel), part, rows, outer=THREADS, inner=THREADS)
        total = lower(by.flush_kernel, register=by.SQUARES)
        self._run(total, part, self._sum_words(right, inner=1), inner=1)

    def _sum_words(self, row: int, *, inner: int) -> dict[str, Stream]:
        """Give the streams of both words of side rows from ``row`` on."""
        fields = {by.LOW_WORD: by.LOW, by.HIGH_WORD: by.HIGH}
        return {name: self._field(n, row, inner=inner) for name, n in fields.items()}

    def store(self) -> None:
        """The sums to memory, for the renewal in the next step."""
        first = self._layout.field(by.LOW)
        with self._before_renewal():
            self._work.store(PRIOR, self._rows + first, 2 * self._layout.side_rows, first=first)
