"""Run the rank prior in a resident step: sums of squares, coefficients, and words for the update.

A pull is the integer that the prior adds to the gradient of a weight. A *renewal* computes the
coefficients of the pulls from the sums of squares of the step before, at any time before the
update. The update computes the pulls from the coefficients and from the exponent of a part's
gradient, in every step, and sums the squares of a part's new weights in the steps before a renewal.
``renewal_interval`` says which steps renew.

A cut runs at the start of an update, every ``CutRule.interval`` steps, and only sets flags: a
flagged column gets a shift below 0, and the passes of the update clear its words. All kernels are
those that define the result in integers (``onchip.prior``).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import gcd

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.exponents import ExponentSlots
from trainwright.compiler.chip.memory import PRIOR, ChipMemory, PriorRows, gradient_of
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.schedule import Schedule
from trainwright.kernels import Register, VectorPass, lower
from trainwright.onchip import prior as by
from trainwright.onchip import update
from trainwright.onchip.layout import WeightPart
from trainwright.onchip.schedule import RateTable
from trainwright.program.descriptors import Program
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.vector import THREADS, Stream


@dataclass(frozen=True)
class CutRule:
    """Steps at which columns are cut, and how weak a column has to be."""

    interval: int
    """Steps from one look at the columns to the next."""
    distance: int
    """Powers of two below the strongest column of a bond (``onchip.prior.cut_distance``)."""


def padded_blocks(part: WeightPart) -> int:
    """Round a part's indices up to whole groups of threads; a single one stays single."""
    return part.blocks if part.blocks == 1 else -(-part.blocks // THREADS) * THREADS


def renewal_interval(cut_rule: CutRule | None) -> int:
    """Return a number that divides all steps that renew coefficients or may cut columns.

    Both use the sums of the step before. A rule whose own interval is no multiple of ``INTERVAL``
    needs more steps: the greatest common divisor has them all.
    """
    return gcd(by.INTERVAL, cut_rule.interval) if cut_rule else by.INTERVAL


def renewal_program(
    memory: ChipMemory,
    table: RateTable,
    cut_rule: CutRule | None,
    avoid: Sequence[Region],
    slots: ExponentSlots,
) -> Program:
    """Return the program that cuts columns and renews coefficients and exponents, all in memory.

    Columns are cut where there is a ``cut_rule``. Rows of the scratchpad in ``avoid`` are not used.
    """
    work, interval = Passes(memory, slots, avoid), renewal_interval(cut_rule)
    schedule, layout = Schedule(work, table), memory.prior_rows
    with work.in_one_of(interval, 0):
        rows = work.load(PRIOR).start
    if cut_rule:
        schedule.look(cut_rule.interval)
        with work.in_one_of(interval, 0):
            flags = Cuts(work, layout, rows).decide(cut_rule.distance)
            work.store(PRIOR, flags, layout.side_rows, first=layout.field(by.KEPT))
    with work.in_one_of(by.INTERVAL, 0):
        schedule.weights()
        streams = {name: Stream(rows + layout.field(name), layout.block, 1) for name in by.STORED}
        streams[by.COST] = Stream(rows + layout.of_bonds(by.COST), 1)
        work.run(
            lower(by.renew_kernel), streams, outer=layout.bonds, inner=layout.block,
            tensor="coefficients of the prior",
        )  # fmt: skip
        first = layout.field(by.COEFFICIENT)
        work.store(PRIOR, rows + first, 2 * layout.side_rows, first=first)
    return work.finish("the program of the prior's coefficients")


class Prior:
    """Side rows in the scratchpad: sums, coefficients, exponents, and flags of cut columns."""

    def __init__(self, work: Passes, cut_rule: CutRule | None = None) -> None:
        """Load the side rows that this update needs.

        Columns may be cut where there is a ``cut_rule``.
        """
        self._work, self._interval = work, renewal_interval(cut_rule)
        self._layout, self._flagged = work.memory.prior_rows, cut_rule is not None
        self._rows = work.pad.allocate(PRIOR, len(by.FIELDS) * self._layout.side_rows).start
        self._load(by.COEFFICIENT, by.KEPT if cut_rule else by.EXPONENT)
        with self._before_renewal():  # rows of columns that are not there stay 0
            self._load(by.LOW, by.HIGH)
        self._joined = work.pad.allocate("sums of threads", 2 * THREADS).start

    def _load(self, first: str, last: str) -> None:
        """Load fields ``first`` to ``last`` of all side rows."""
        row, count = self._layout.field(first), self._layout.side_rows
        count *= by.FIELDS.index(last) + 1 - by.FIELDS.index(first)
        self._work.load(PRIOR, first=row, rows=count, to=Region(PRIOR, self._rows + row, count))

    def _before_renewal(self) -> AbstractContextManager[None]:
        """Restrict what is added to steps before those that read the sums."""
        # Sums are read at the start of steps 0, n, 2n, ..., so they are taken in the steps before.
        return self._work.in_one_of(self._interval, self._interval - 1)

    def _fields(self, names: Sequence[str], row: int, *steps: int) -> dict[str, Stream]:
        """Return streams over fields of side rows from ``row`` on."""
        first = self._rows + row
        return {name: Stream(first + self._layout.field(name), *steps) for name in names}

    def pulls(self, part: WeightPart, index: int, left: int, right: int) -> dict[str, Stream]:
        """Return the streams that the update of a part reads from an index of its first axis on.

        Rows of the left bond step by ``left`` at the outer level of a nest, those of the right bond
        by ``right`` at the inner level.
        """
        sides = zip(self._layout.sides_of(part), (index, 0), ((left,), (0, right)), strict=True)
        streams = dict[str, Stream]()
        for names, (row, first, steps) in zip(update.SIDES, sides, strict=True):
            if row is not None:
                words = self._fields((by.SHIFT, by.WORD), row + first, *steps)
                streams |= zip(names, words.values(), strict=True)
        return streams

    def words(self, part: WeightPart) -> None:
        """Compute what the passes of a part read for both its sides."""
        assert self._work.slots
        # A pull is computed in absolute units and added to a gradient's integers, so it is divided
        # by 2^exponent of the gradient.
        exponent = self._work.slots[gradient_of(part)]
        scalars = (Scalar(ScalarKind.VALUE, by.MINUS_GRADIENT, minus=exponent),)
        kernel = lower(by.words_kernel, flagged=self._flagged)
        counts = part.blocks, part.line_rows
        for side, count in zip(self._layout.sides_of(part), counts, strict=True):
            if side is not None:
                self._work.run(
                    kernel, self._fields(by.FIELDS, side, 0, 1), inner=count,
                    tensor=f"{part.name} pulls of the prior", scalars=scalars,
                )  # fmt: skip

    # -- sums --------------------------------------------------------------------------------------
    def add(self, part: WeightPart, state: int, factors: int) -> None:
        """Sum the squares of a part's new rows from ``state`` and ``factors`` on.

        Only steps before a renewal do so. Rows of padded and of cut indices have to be 0. Biases,
        and factors of layers without a bond, have no columns that a prior could shrink.
        """
        (left, right), lines = self._layout.sides_of(part), part.line_rows
        apart = left is not None and part.blocks > 1
        with self._before_renewal():
            if left is not None and apart:
                self._add_blocks(part, state, factors, left)
            elif left is not None:
                # A thread for each block would give seven of eight threads a block of zeros.
                self._add_rows(part, state, factors, 1)
                self._join(part, left, across=True)
            for n in range(lines if right is not None else 0):
                # One sweep sums the columns of both bonds, if a line is one row and the left bond
                # has several columns. Else the right bond has sweeps of its own.
                if not apart or lines > 1:
                    self._add_rows(part, state + n, factors + n, lines)
                assert right is not None
                self._join(part, right + n, across=False)

    def _run(
        self, kernel: VectorPass, part: WeightPart, streams: dict[str, Stream] | None = None,
        **nest: int,
    ) -> None:  # fmt: skip
        self._work.run(kernel, streams, tensor=f"{part.name} sums of the prior", **nest)

    def _squares(
        self, part: WeightPart, state: int, factors: int, steps: tuple[int, int], **nest: int
    ) -> None:
        """Add the squares of rows to SQUARES of their threads."""
        streams = {update.STATE: Stream(state, *steps), update.FACTOR: Stream(factors, *steps)}
        self._run(lower(by.squares_kernel, hidden=part.hidden), part, streams, **nest)

    def _add_rows(self, part: WeightPart, state: int, factors: int, step: int) -> None:
        """Sum every ``step``-th row in RIGHT; any split of the rows over the threads will do."""
        self._run(lower(by.clear_kernel, registers=by.SUMS), part)
        self._squares(part, state, factors, (step, 0), outer=part.rows // step, inner=1)
        self._run(lower(by.add_right_kernel), part)

    def _add_blocks(self, part: WeightPart, state: int, factors: int, left: int) -> None:
        """Sum a block of rows in each thread, eight blocks at a time, and all of them in RIGHT."""
        per = part.rows // part.blocks
        self._run(lower(by.clear_kernel, registers=by.SUMS), part)
        for first in range(0, part.blocks, THREADS):
            at, threads = first * per, min(THREADS, part.blocks - first)
            self._squares(part, state + at, factors + at, (1, per), outer=per, inner=THREADS)
            # A block is an index of the first axis: its sum is a left column of its own, and counts
            # for the right columns as well.
            self._flush(part, by.SQUARES, self._sum_words(left + first), threads, across=True)
            self._run(lower(by.add_right_kernel), part)

    def _flush(
        self, part: WeightPart, register: Register, words: dict[str, Stream], threads: int, *,
        across: bool = False,
    ) -> None:  # fmt: skip
        kernel = lower(by.flush_kernel, register=register, across=across)
        self._run(kernel, part, words, inner=threads)

    def _join(self, part: WeightPart, row: int, *, across: bool) -> None:
        """Write the sum of RIGHT over all threads to a side row; ``across``: and over the lanes."""
        # Threads cannot read each other's registers: their sums go through rows of the scratchpad.
        halves = {by.LOW: self._joined, by.HIGH: self._joined + THREADS}
        threads = {name: Stream(row, 0, 1) for name, row in halves.items()}
        self._flush(part, by.RIGHT, threads, THREADS)
        rows = {name: Stream(row, 1) for name, row in halves.items()}
        self._run(lower(by.join_kernel), part, rows, outer=THREADS, inner=THREADS)
        self._flush(part, by.SQUARES, self._sum_words(row), 1, across=across)

    def _sum_words(self, row: int) -> dict[str, Stream]:
        """Give the streams of both words of side rows from ``row`` on."""
        return self._fields((by.LOW, by.HIGH), row, 0, 1)

    def store(self) -> None:
        """Store the sums for the renewal in the next step."""
        first = self._layout.field(by.LOW)
        with self._before_renewal():
            self._work.store(PRIOR, self._rows + first, 2 * self._layout.side_rows, first=first)


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
