"""The rank prior in a resident step: sums of squares, coefficients, and what the update reads.

Coefficients follow from the sums of the step before, at any time before the update. In the update,
words of pulls follow from them and from the exponent of a part's gradient; the squares of a part
are summed when its weights are new.
"""

from collections.abc import Sequence

from trainwright.compiler.chip.memory import COLUMNS, PRIOR, ChipMemory, SideRows
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.schedule import Schedule, mask, rows_pass
from trainwright.compiler.memory import Region
from trainwright.onchip import prior_pass as by
from trainwright.onchip.layout import Part
from trainwright.onchip.prior import INTERVAL
from trainwright.onchip.rates import RateTable
from trainwright.program.descriptors import Program
from trainwright.program.vector import THREADS, Stream


def pulls_of(part: Part) -> str:
    """Name of the passes whose shifts are by the exponent of a part's gradient."""
    return f"{part.name} pulls"


def padded_blocks(part: Part) -> int:
    """Indices of a part's first axis, filled up to whole groups of threads; 1 of a lone one."""
    return part.blocks if part.blocks == 1 else -(-part.blocks // THREADS) * THREADS


def renewal_program(memory: ChipMemory, table: RateTable, avoid: Sequence[Region] = ()) -> Program:
    """Coefficients and exponents by the sums, in memory, in one of INTERVAL steps.

    Rows of the scratchpad that are to ``avoid`` are not used.
    """
    work = Passes(memory)
    work.b.pad.avoid(avoid)
    schedule, count = Schedule(work, table), memory.side_count
    schedule.phase()
    with work.in_one_of_eight(0):
        rows = work.load(PRIOR).start
        schedule.weights()
        rows_pass(
            work, by.renew_code(), [Stream(rows + n * count, 0, 1) for n in range(by.FIELDS)],
            reads=mask(*range(by.FIELDS)), writes=mask(by.COEFFICIENT, by.EXPONENT),
            inner=count, constants=by.RENEW_CONSTANTS, tensor="coefficients of the prior",
        )  # fmt: skip
        first = by.COEFFICIENT * count
        work.store(PRIOR, rows + first, 2 * count, first=first)
    return work.finish("the program of the prior's coefficients")


class Prior:
    """The side rows in the scratchpad: sums, coefficients and exponents."""

    def __init__(self, work: Passes) -> None:
        self._work, self._memory = work, work.memory
        memory: ChipMemory = work.memory
        self._count = memory.side_count
        self._rows = work.b.pad.allocate(PRIOR, (by.EXPONENT + 1) * self._count).start
        first = by.COEFFICIENT * self._count
        pulls = Region(PRIOR, self._rows + first, 2 * self._count)
        work.load(PRIOR, first=first, rows=pulls.count, to=pulls)
        self.columns = work.b.pad.allocate(COLUMNS, memory.buffers[COLUMNS].shape[0]).start
        """First row of what the update's passes read, in the places of ``memory.columns``."""
        self._joined = work.b.pad.allocate("sums of threads", 2 * THREADS).start

    def _field(self, number: int, row: int = 0, *, outer: int = 0, inner: int = 1) -> Stream:
        return Stream(self._rows + number * self._count + row, outer, inner)

    def words(self, part: Part) -> None:
        """What the passes of a part read, of both its sides."""
        number = self._memory.layout.parts.index(part)
        sides, rows = self._memory.sides[number], self._memory.columns[number]
        for side, to, count in ((sides.left, (rows.left_shift, rows.left), part.blocks),
                                (sides.right, (rows.right_shift, rows.right), 1)):  # fmt: skip
            if side is None:
                continue
            rows_pass(
                self._work, by.words_code(),
                (self._field(by.COEFFICIENT, side), self._field(by.EXPONENT, side),
                 *(Stream(self.columns + row, 0, 1) for row in to)),
                reads=mask(by.READ_COEFFICIENT, by.READ_EXPONENT),
                writes=mask(by.WRITE_SHIFT, by.WRITE_WORD), inner=count,
                constants=by.WORDS_OF_PULL, tensor=pulls_of(part),
            )  # fmt: skip

    # Sums.

    def add(self, part: Part, state: int, factors: int) -> None:
        """The sums of a part by its new rows from ``state`` and ``factors`` on, those of padded
        and of cut indices 0; before a step of renewal."""
        sides = self._memory.sides[self._memory.layout.parts.index(part)]
        if sides.left is None and sides.right is None:
            return
        with self._work.in_one_of_eight(INTERVAL - 1):
            self._add(part, sides, state, factors)

    def _add(self, part: Part, sides: SideRows, state: int, factors: int) -> None:
        self._pass(by.clear_code(by.SQUARES, by.RIGHT), part)
        if sides.left is None:
            self._squares(part, state, factors, outer=part.rows, inner=1, steps=(1, 0))
            self._pass(by.add_right_code(), part)
        else:
            self._blocks(part, state, factors, sides.left)
        if sides.right is not None:
            self._join(part, sides.right)

    def _pass(self, code, part: Part, streams=(), **fields) -> None:
        rows_pass(
            self._work, code, streams, constants=by.WORDS_CONSTANTS, tensor=f"{part.name} sums",
            **fields,
        )  # fmt: skip

    def _squares(
        self, part: Part, state: int, factors: int, *, outer: int, inner: int,
        steps: tuple[int, int],
    ) -> None:  # fmt: skip
        rows_pass(
            self._work, by.squares_code(part.hidden),
            [Stream(first, *steps) for first in (state, factors)],
            reads=mask(by.STATE, by.FACTOR), outer=outer, inner=inner,
            constants=by.squares_constants(part.hidden), tensor=f"{part.name} sums",
        )  # fmt: skip

    def _blocks(self, part: Part, state: int, factors: int, left: int) -> None:
        """A block of rows for each thread, 8 of them at a time."""
        per = part.rows // part.blocks
        for first in range(0, part.blocks, THREADS):
            at = first * per
            self._squares(part, state + at, factors + at, outer=per, inner=THREADS, steps=(1, per))
            self._pass(
                by.flush_left_code(), part,
                [self._field(number, left + first) for number in (by.LOW, by.HIGH)],
                writes=mask(by.LOW, by.HIGH), inner=min(THREADS, part.blocks - first),
            )  # fmt: skip
            self._pass(by.add_right_code(), part)

    def _join(self, part: Part, right: int) -> None:
        """From the threads' sums to a row."""
        halves = (self._joined, self._joined + THREADS)
        both = mask(by.LOW, by.HIGH)
        self._pass(by.flush_code(by.RIGHT), part, [Stream(row, 0, 1) for row in halves],
                   writes=both)  # fmt: skip
        self._pass(by.join_code(), part, [Stream(row, 1) for row in halves], reads=both,
                   outer=THREADS)  # fmt: skip
        row = [self._field(number, right) for number in (by.LOW, by.HIGH)]
        self._pass(by.flush_code(by.SQUARES), part, row, writes=both, inner=1)

    def store(self) -> None:
        """The sums to memory, for the renewal in the next step."""
        with self._work.in_one_of_eight(INTERVAL - 1):
            self._work.store(PRIOR, self._rows + by.LOW * self._count, 2 * self._count)
