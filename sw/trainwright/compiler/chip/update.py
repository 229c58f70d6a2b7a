"""Compile the update: from gradients to state, factors and the images of the next step.

Parts of the state follow one another, large ones in *chunks* of an index range of their first axis.
While the vector engine works on a chunk, the operands of the next chunk are loaded and the results
of the previous chunk are stored; PE1 makes the images of parts that are done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.exponents import ExponentSlots, moment_name
from trainwright.compiler.chip.memory import CODES, STATE, ChipMemory, gradient_of
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.compiler.chip.prior import CutRule, Prior, padded_blocks
from trainwright.compiler.chip.schedule import Schedule
from trainwright.compiler.step.adapter import PackedBuffer
from trainwright.onchip import update as by
from trainwright.onchip.layout import WeightPart
from trainwright.onchip.schedule import RateTable
from trainwright.program.descriptors import Level, Program
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.vector import Stream

CHUNK = 128
"""Rows of a chunk, about: an index of the first axis is never divided."""


@dataclass(frozen=True)
class UpdateRule:
    """Settings of the updates of a run."""

    table: RateTable
    pulled: bool = False
    """Whether there is a rank prior."""
    cut_rule: CutRule | None = None
    """Rule by which the accelerator cuts columns; None if it cuts none."""
    optimiser: str = "esgd"

    def of(self, part: WeightPart, memory: ChipMemory) -> by.PartUpdate:
        """Return how a part is updated."""
        left, right = memory.prior_rows.sides_of(part)
        return by.PartUpdate(
            hidden=part.hidden, rate_shift=by.BIAS_RATE_SHIFT * (part.index < 0),
            left=self.pulled and left is not None, right=self.pulled and right is not None,
            cuts=self.cut_rule is not None, momentum=self.optimiser == "momentum",
        )  # fmt: skip


def update_program(
    memory: ChipMemory,
    rule: UpdateRule,
    slots: ExponentSlots,
    *,
    order: Sequence[int],
    gradients: Mapping[int, int],
    avoid: Mapping[int, Sequence[Region]],
    reuse: bool = False,
) -> Program:
    """Return the program from the gradients of a backward pass to state, factors and images.

    Parts are updated in the ``order`` of their numbers; exponents come from ``slots``.
    Both mappings are by the number of a part: ``gradients`` has the first row of each gradient that
    is in the scratchpad, ``avoid`` the rows that the part may not use. With ``reuse`` the rows of a
    part are free for other parts once it is stored.
    """
    # The schedule's rows are allocated before those of any part, so they avoid what the first part
    # does.
    work = Passes(memory, slots, avoid[order[0]])
    Schedule(work, rule.table).rates()
    prior = Prior(work, rule.cut_rule) if rule.pulled else None
    jobs = [_PartJob(work, n, rule, prior, avoid[n], gradients.get(n)) for n in order]
    chunks = [chunk for job in jobs for chunk in job.chunks(reuse=reuse)]
    # Software pipeline: load of chunk n + 1, pass over chunk n, store of chunk n - 1 are issued
    # together, and work on different banks.
    next(chunks[0])
    # Last chunks of parts whose images are computed but not stored. A store waits for PE1, and the
    # sequencer with it, so it is issued two passes later, when PE1 is ready.
    done: list[Iterator[bool]] = []
    for number, chunk in enumerate(chunks):
        next(chunk)
        # After the first pass is issued: the identity is not needed before, and would delay its
        # operands.
        if not number and any(job.part.index < 0 or not job.live.packed for job in jobs):
            work.constant(IDENTITY)
            for lanes in (lanes for job in jobs for lanes in job.spreads.values()):
                if lanes < work.p.lanes:
                    work.first_lanes(lanes)
        if number + 1 < len(chunks):
            next(chunks[number + 1])
        ready, done = done[:-1], done[-1:]
        for last in ready:
            next(last)
        if number and next(chunks[number - 1]):
            done.append(chunks[number - 1])
        next(chunk)  # last, so that the other engines have their commands while it runs
    next(chunks[-1])
    for last in (*done, chunks[-1]):
        next(last)
    if prior:
        prior.store()
    return work.finish("the program of the update")


class _PartJob:
    """Part in the scratchpad: state, factors and gradients, in the order of the layout.

    A part is stored index by index of its first axis. A *line* holds the elements along the lanes:
    one row of the scratchpad, or several if there are more elements than lanes.
    """

    def __init__(
        self, work: Passes, number: int, rule: UpdateRule, prior: Prior | None,
        avoid: Sequence[Region], gradient: int | None,
    ) -> None:  # fmt: skip
        """Collect what the update of a part needs.

        With a ``prior`` the sums of squares are taken, and words of pulls follow from its side
        rows. ``gradient`` is the first row of the gradient, where it is in the scratchpad.
        """
        self.ready = gradient
        """First row of the gradient if it is in the scratchpad already; None: load it."""
        self.work, self.prior, self._avoid = work, prior, avoid
        self.part: WeightPart = work.memory.layout.parts[number]
        self.what = rule.of(self.part, work.memory)
        self.place = work.memory.place_of(self.part)
        self.live = work.memory.live(self.part)
        self.per = self.part.rows // self.part.blocks
        """Rows of an index of the first axis in the state."""
        self.left_per = self.per // self.part.line_rows * self.live.line_rows
        """Rows of an index of the first axis as the programs have it."""
        self._used = len(self.live.left) * self.left_per
        image = work.memory.factors.get((self.part.layer, self.part.index))
        # Without gaps the factors themselves are kept where the programs read them.
        self._image = None if image == self.place[0] else image
        self._held: list[Region] = []

    def _rows(self, name: str, count: int, bank: Bank) -> Region:
        region = self.work.rows(name, count, bank)
        self._held.append(region)
        return region

    @property
    def _scalars(self) -> tuple[Scalar, ...]:
        """Moved exponent of the part's pass, and for momentum the shift of its rate."""
        slots = self.work.slots
        assert slots
        now, before = slots[gradient_of(self.part)], slots[moment_name(self.part.name)]
        offset = by.momentum_offset(self.part)
        # The moments were stored at the exponent of the last gradient. Where the new gradient has
        # another one they are shifted by the difference: a multiplication for an exponent that
        # fell, a shift for one that rose.
        scalars = (
            Scalar(ScalarKind.POWER, by.MOVED_CONSTANT, before, now),
            Scalar(ScalarKind.SHIFT, by.MOVED_SHIFT, now, before),
            Scalar(ScalarKind.VALUE, by.RATE_CONSTANT, minus=now, offset=offset),
        )
        return scalars if self.what.momentum else scalars[:2]

    @property
    def spreads(self) -> dict[str, int]:
        """Buffers of a bias, with the lanes of a row that hold samples: other lanes must hold 0.

        Whole rows of samples and a last row that is not full read buffers of their own.
        """
        step, name, lanes = self.work.memory.step, self.part.name, self.part.lanes
        names = step.aliases.get(name, (name,)) if self.part.index < 0 else ()
        buffers = {alias: step.buffers.get(alias) for alias in names}
        outers = {n: b.outer if isinstance(b, PackedBuffer) else None for n, b in buffers.items()}
        return {
            n: min(lanes, prod(outer.piece.counts[a] for a in outer.layout.lanes)) if outer
            else lanes for n, outer in outers.items()
        }  # fmt: skip

    def chunks(self, *, reuse: bool) -> list[Iterator[bool]]:
        """Return the part as chunks of about ``CHUNK`` rows, each to be emitted in stages."""
        runs = self.live.runs(max(1, CHUNK // self.per))
        return [self._chunk(*run, reuse=reuse) for run in runs]

    def _chunk(self, first: int, place: int, blocks: int, *, reuse: bool) -> Iterator[bool]:
        """Emit indices of the first axis from ``first`` on in stages: load, pass, sum, store.

        ``place`` is that of the first index among those that are left: gradients have no gaps. The
        last chunk of a part computes its images, yields true, and has one more stage to store them;
        its rows are free afterwards to ``reuse``.
        """
        work, part, last = self.work, self.part, place + blocks == len(self.live.left)
        if not place:
            self.begin()
        state, factors = (STATE, part.row, self.state), (*self.place, self.factors)
        kept = [
            (row + first * self.per, Region(name, base + first * self.per, blocks * self.per))
            for name, row, base in (state, factors)
        ]
        for row, to in kept:
            work.load(to.name, first=row, rows=to.count, to=to)
        self._load_gradient(place, blocks)
        yield False
        self._passes(first, place, blocks)
        yield False
        if self.prior and last:
            self.prior.add(part, self.state, self.factors)
        yield False
        for row, rows in kept:
            work.store(rows.name, rows.start, rows.count, first=row)
        images = [*self._images()] if last else []
        yield last
        for image in images:
            work.store(*image)
        for region in self._held if reuse else ():
            work.pad.free(region)
        yield False

    def _load_gradient(self, place: int, blocks: int) -> None:
        """Load the gradient of a chunk, and bring its words to the lanes of the state."""
        name, first, rows = gradient_of(self.part), place * self.left_per, blocks * self.left_per
        if self.ready is None:
            to = Region(name, self.compact + first, rows)
            self.work.load(name, first=first, rows=rows, to=to)
        # The gradient comes without the lanes that were cut; a product with the scattering rows
        # puts every word back to the lane of its column.
        if self.live.select:
            lines = self.live.line_rows, self.part.line_rows
            # Rows that scatter follow the rows that gather (``memory.select_rows``).
            scatter = self.select() + lines[0] * lines[1] * self.part.lanes
            row = self.gradient + place * self.per
            self.move(self.compact + first, scatter, row, rows // lines[0], lines, name)

    def _passes(self, first: int, place: int, blocks: int) -> None:
        """Emit the pass over a chunk, or a pass for each index if a line has several rows."""
        part, per, lines = self.part, self.per, self.part.line_rows
        # Rows of nests: an index, the counts of both levels, and the steps of ``Prior.pulls``.
        nests = [(n, per // lines, lines, 0, 1) for n in range(blocks)]
        if lines == 1 or not self.what.right:
            nests = [(0, blocks, per, 1, 0)]
        for index, outer, inner, left, right in nests:
            row = (first + index) * per
            streams = {
                by.STATE: Stream(self.state + row, inner, 1),
                by.FACTOR: Stream(self.factors + row, inner, 1),
                by.GRADIENT: Stream(self.gradient + (place + index) * per, inner, 1),
            }
            if self.prior:
                streams |= self.prior.pulls(part, first + index, left, right)
            # Random bits follow from the row of the state, whatever the order of the parts, so that
            # any order has the same bits.
            self.work.run(
                self.what.lowered(), streams, outer=outer, inner=inner, key=part.row + row,
                tensor=f"{part.name} update", scalars=self._scalars,
            )  # fmt: skip

    def begin(self) -> None:
        """Allocate rows, and load what the first chunk needs in addition to its own."""
        work, part, used = self.work, self.part, self._used
        work.pad.avoid(self._avoid)
        # Sums of squares take eight indices at a time, a thread each, so the last group is filled
        # up.
        padded = padded_blocks(part) * self.per if self.prior else part.rows
        held = len(self.live.left) * self.per
        count = max(held if self.live.packed else part.rows, padded if self.prior else 0)
        self.factors = self._rows(f"{part.name} factors", count, Bank.FACTORS).start
        # Rows that the programs read: the factors themselves, unless columns between them were cut.
        self._left = self.factors
        if self._image:
            self._left = self._rows(f"{part.name} left", used, Bank.IMAGES).start
        self.state = self._rows(f"{part.name} state", padded, Bank.STATE).start
        # Rows of indices that were cut or pad a group count as 0 in the sums.
        for n in range(padded_blocks(part) if self.prior else 0):
            if n not in self.live.left:
                work.clear(self.state + (n + 1) * self.per, self.per)
                work.clear(self.factors + (n + 1) * self.per, self.per)
        ready, name = self.ready, gradient_of(part)
        if ready is None or self.live.select:
            self.gradient = self._rows(name, held, Bank.GRADIENTS).start
        else:
            self.gradient = ready
        # Where columns have gaps the gradient comes without them, and is moved back to the lanes
        # of the state first.
        self.compact = self.gradient if ready is None else ready
        if ready is None and self.live.select:
            self.compact = self._rows(name, used, Bank.IMAGES).start
        if self.prior:
            self.prior.words(part)

    def _images(self) -> Iterator[tuple[str, int, int]]:
        """Compute what forward and backward pass read: yield its buffer, first row, and rows."""
        if self.part.index < 0:
            yield from self._spread_bias()
        if self._image:
            self._bring_together()
            yield self._image, self._left, self._used

    def select(self) -> int:
        """Return the first of the rows that select the words left of a row, or all words."""
        name = self.live.select or (CODES if self.part.code else IDENTITY)
        return self.work.constant(name).start

    def _bring_together(self) -> None:
        """Gather the factor without its cut columns, and encode its words if it is coded."""
        code, lines = self.part.code, (self.part.line_rows, self.live.line_rows)
        rounding = code.fields(self.work.p.format_number(code.format)) if code else {}
        for first, place, count in self.live.runs(self.part.lanes):
            source, to = self.factors + first * self.per, self._left + place * self.left_per
            self.move(source, self.select(), to, count * self.per // lines[0], lines,
                      f"{self.part.name} left", **rounding)  # fmt: skip

    def move(
        self, source: int, select: int, to: int, count: int, lines: tuple[int, int], tensor: str,
        **rounding: Any,
    ) -> None:  # fmt: skip
        """Move the words of ``count`` lines to other lanes.

        ``lines``: rows of a line before and after. ``select``: first of the rows that choose words.
        """
        if not self.live.select:  # no word changes its lane
            count, lines = count * lines[0], (1, 1)
        (rows, rows_then), lanes = lines, self.part.lanes
        self.work.products(
            source, select, to, count, steps=(rows, 1, rows_then), tensor=tensor,
            levels=[Level(rows_then, g=rows * lanes, z=1)] if rows_then > 1 else [],
            summed=[Level(rows, x=1, g=lanes)] if rows > 1 else [], **rounding,
        )  # fmt: skip

    def _spread_bias(self) -> Iterator[tuple[str, int, int]]:
        """Spread a bias to a row a value, in all words, as the forward pass adds it."""
        work, part = self.work, self.part
        spread = self._rows(part.name, part.rows * part.lanes, Bank.IMAGES)
        work.transpose(self.factors, spread.start, (Level(part.rows, g=1, z=part.lanes),),
                       source=0, to=1, tensor=f"{part.name} spread")  # fmt: skip
        for name, lanes in self.spreads.items():
            image = spread
            if lanes < part.lanes:
                image = self._rows(part.name, spread.count, Bank.IMAGES)
                work.products(spread.start, work.first_lanes(lanes).start, image.start,
                              spread.count, tensor=f"{part.name} in its lanes")  # fmt: skip
            yield name, image.start, part.size
