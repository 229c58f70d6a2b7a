"""The program of the update: from gradients to state, factors and the images of the next step.

Parts of the state follow one another, large ones in *chunks* of an index range of their first axis.
While the engine is at work on a chunk, the operands of the next are loaded, and the results of the
one before are stored; PE1 makes the images of parts that are done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.row_images import Arrangement
from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.memory import COLUMNS, STATE, ChipMemory
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.compiler.chip.prior import Prior, padded_blocks
from trainwright.compiler.chip.schedule import Schedule
from trainwright.onchip import update_pass as by
from trainwright.onchip.layout import LANES, WeightPart
from trainwright.onchip.rates import RateTable
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Program
from trainwright.program.vector import Stream

CHUNK = 128
"""Rows of a chunk, about: an index of the first axis is never divided."""


def update_program(
    memory: ChipMemory,
    parts: Sequence[PartUpdate],
    seed: int,
    table: RateTable | None = None,
    looks: Looks | None = None,
    avoid: Mapping[int, Sequence[Region]] | None = None,
    *,
    of: Sequence[int] = (),
    made: Mapping[int, int] | None = None,
    deferred: bool = False,
    late: bool = False,
    sparing: bool = False,
) -> Program:
    """From the gradients of a backward pass to state, factors and the images of the next step.

    ``parts`` says how each part of the layout is updated, ``seed`` is the stream of its random
    bits. With a ``table`` the program is the same in every step, its ``parts`` are resident,
    ``seed`` is of step 0, and ``looks`` says when columns are cut. Rows of the scratchpad that are
    to ``avoid`` are not used by the part of that number.

    Only the parts of numbers ``of`` are updated, where some are named, one after the other; where
    ``made`` names a row for one, its gradient is in the scratchpad from there on. All
    those that are ``deferred`` have to be in one program. It is ``late`` where it is that of the
    step before. ``sparing``: rows of a part are those of others once it is done.
    """
    work = Passes(memory, seed, by_step=table is not None)
    numbers = of or range(len(parts))
    avoid = avoid or {}
    work.b.pad.avoid(avoid.get(numbers[0], ()))
    prior = None
    if table is not None:
        Schedule(work, table, deferred=deferred).rates()
        if any(one.left or one.right for one in parts):
            prior = Prior(work, looks, late=late)
    jobs = [
        _PartJob(work, n, parts[n], prior, avoid.get(n, ()), (made or {}).get(n)) for n in numbers
    ]
    if not of:
        jobs = _ordered(jobs)
    chunks = [chunk for job in jobs for chunk in job.chunks()]
    chunks[0].load()
    before: _Chunk | None = None
    done: list[_PartJob] = []  # their images are made and not stored: two passes later PE1 is ready
    for number, chunk in enumerate(chunks):
        chunk.run()
        if not number and any(job.moves for job in jobs):
            _load_constants(work)
        if number + 1 < len(chunks):
            chunks[number + 1].load()
        ready, done = done[:-1], done[-1:]
        _store_images(ready)
        if sparing:
            for job in ready:
                job.leave()
        if before:
            before.store(done)
        chunk.sum()  # once the engines that work meanwhile have their commands
        before = chunk
    assert before
    before.store(done)
    _store_images(done)
    if prior:
        prior.store()
    return work.finish("the program of the update")


def _ordered(jobs: list["_PartJob"]) -> list["_PartJob"]:
    """The parts in the order of their passes.

    The large ones in the middle: two smaller ones before, so that what is loaded takes less time
    than the pass before it, and the others at the end, while the large ones' results are stored.
    Of equal size those first whose images take PE1 longest.
    """
    most = max(job.part.rows for job in jobs)
    falling = sorted(jobs, key=lambda job: -job.copies)
    large = [job for job in falling if 2 * job.part.rows > most]
    small = [job for job in falling if job not in large]
    ahead, after = (sorted(some, key=lambda job: job.part.rows) for some in (small[:2], small[2:]))
    return [*ahead, *large, *reversed(after)]


def _load_constants(work: Passes) -> None:
    work.constant(Arrangement.IDENTITY.value)


def is_moved(memory: ChipMemory, part: WeightPart) -> bool:
    """Whether PE1 moves words in the update of a part."""
    return part.index < 0 or not memory.live(part).packed


def gradient_of(part: WeightPart) -> str:
    """Name of the tensor that is the gradient of a part."""
    return f"l{part.layer + 1}.db" if part.index < 0 else f"l{part.layer + 1}.dG{part.index + 1}"


@dataclass(frozen=True)
class _Made:
    """What is to be stored: ``rows`` rows from ``source``."""

    name: str
    source: int
    rows: int


class _PartJob:
    """A part in the scratchpad: state, factors and gradients, in the order of the layout."""

    def __init__(
        self, work: Passes, number: int, what: PartUpdate, prior: Prior | None,
        avoid: Sequence[Region], made: int | None,
    ) -> None:  # fmt: skip
        """With a ``prior`` the sums of squares are taken, and words of pulls by its side rows;
        ``made`` is the first row of the gradient, where it is in the scratchpad.
        """
        self._made = made
        self.work, self.what, self.prior, self._avoid = work, what, prior, avoid
        self.part: WeightPart = work.memory.layout.parts[number]
        self.columns = work.memory.columns[number]
        self.place = work.memory.place_of(self.part)
        self.live = work.memory.live(self.part)
        step = work.memory.step
        mine = self.part.layer, self.part.index
        images = (*step.forward.images, *step.backward.images)
        rows = {image.name: image.entries for image, _ in images
                if image.is_factor and (image.layer, image.index) == mine}  # fmt: skip
        rows.pop(self.place.name, None)  # that is where factors are kept
        self._images = rows
        self.per = self.part.rows // self.part.blocks
        self.made: list[_Made] = []
        self._held: list[Region] = []

    def _rows(self, name: str, count: int, bank: Bank) -> Region:
        region = self.work.rows(name, count, bank)
        self._held.append(region)
        return region

    def leave(self) -> None:
        """What lies in its rows is not needed any more."""
        for region in self._held:
            self.work.b.pad.free(region)
        self._held.clear()

    @property
    def copies(self) -> int:
        """Rows that PE1 makes of its factors, about."""
        spread = LANES * self.part.rows if self.part.index < 0 else 0
        return spread + sum(self._images.values())

    @property
    def has_gradient(self) -> bool:
        """Whether its gradient is in the scratchpad already."""
        return self._made is not None

    @property
    def moves(self) -> bool:
        """Whether PE1 moves words of its gradients or factors."""
        return is_moved(self.work.memory, self.part)

    def chunks(self) -> list["_Chunk"]:
        """All of it."""
        return [_Chunk(self, *run) for run in self.live.runs(max(1, CHUNK // self.per))]

    def begin(self) -> None:
        """Rows of the scratchpad, and what the first chunk needs beside its own."""
        work, part = self.work, self.part
        work.b.pad.avoid(self._avoid)
        used = len(self.live.left) * self.per
        whole = padded_blocks(part) * self.per if self.prior else part.rows
        count = max(used if self.live.packed else part.rows, whole if self.prior else 0)
        self.factors = self._rows(f"{part.name} factors", count, Bank.FACTORS).start
        self._left = self.factors
        if self._images and not self.live.packed:
            self._left = self._rows(f"{part.name} left", used, Bank.IMAGES).start
        self.state = self._rows(f"{part.name} state", whole, Bank.STATE).start
        if self.prior:
            self._clear_gaps()
        made, name = self._made, gradient_of(part)
        if made is None or self.live.select:
            self.gradient = self._rows(name, used, Bank.GRADIENTS).start
        else:
            self.gradient = made
        self.compact = self.gradient if made is None else made
        if made is None and self.live.select:
            self.compact = self._rows(name, used, Bank.IMAGES).start
        if self.prior:
            self.column = self.prior.columns
            self.prior.words(part)
        elif self.what.left or self.what.right:
            rows = self.columns
            count = rows.right + 1 - rows.left_shift
            to = self._rows(COLUMNS, count, Bank.COLUMNS)
            work.load(COLUMNS, first=rows.left_shift, rows=count, to=to)
            self.column = to.start - rows.left_shift

    def _clear_gaps(self) -> None:
        """Rows of indices that are not there are 0 in the sums."""
        there, per = set(self.live.left), self.per
        gaps = [n for n in range(padded_blocks(self.part)) if n not in there]
        for n in gaps:
            self.work.zeros(self.state + n * per, per)
            self.work.zeros(self.factors + n * per, per)

    def make_images(self) -> None:
        """What forward and backward pass read, in the scratchpad."""
        if self.part.index < 0:
            self._spread_bias()
        if self._images and self._left != self.factors:
            self._bring_together()
        used = len(self.live.left) * self.per
        self.made += [_Made(name, self._left, used) for name in self._images]

    def select(self) -> int:
        """Rows that select the words of a row that are left, or all of them."""
        name = self.live.select or Arrangement.IDENTITY.value
        return self.work.constant(name).start

    def _bring_together(self) -> None:
        """The factor without the columns that were cut."""
        per, tensor = self.per, f"{self.part.name} left"
        for first, place, count in self.live.runs(LANES):
            self.work.products(self.factors + first * per, self.select(), self._left + place * per,
                               count * per, tensor=tensor)  # fmt: skip

    def _spread_bias(self) -> None:
        """A bias is stored with each value in all words of a row of its own."""
        work, part = self.work, self.part
        spread = self._rows(part.name, part.rows * LANES, Bank.IMAGES)
        work.transpose(self.factors, spread.start, blocks=part.rows, of=(1, 0), to=(LANES, 1),
                       tensor=f"{part.name} spread")  # fmt: skip
        self.made.append(_Made(part.name, spread.start, part.size))


@dataclass(frozen=True)
class _Chunk:
    """Indices ``first`` and following of a part's first axis."""

    job: _PartJob
    first: int
    place: int
    """Of the first among the indices that are left: their gradients have no gaps."""
    blocks: int

    def load(self) -> None:
        """Operands to the scratchpad."""
        job = self.job
        if not self.place:
            job.begin()
        state = self._rows(STATE, job.state)
        job.work.load(STATE, first=job.part.row + self._first, rows=state.count, to=state)
        to = self._rows(job.place.name, job.factors)
        job.work.load(job.place.name, first=job.place.row + self._first, rows=to.count, to=to)
        name, first, rows = gradient_of(job.part), self.place * job.per, state.count
        if not job.has_gradient:
            job.work.load(name, first=first, rows=rows, to=Region(name, job.compact + first, rows))
        if job.live.select:  # back to the lanes of the state
            job.work.products(
                job.compact + first, job.select() + LANES, job.gradient + first, rows, tensor=name
            )

    @property
    def _first(self) -> int:
        return self.first * self.job.per

    def _rows(self, name: str, base: int) -> Region:
        return Region(name, base + self._first, self.blocks * self.job.per)

    def run(self) -> None:
        """The pass."""
        job, what = self.job, self.job.what
        part, per, columns = job.part, job.per, job.columns
        streams = {
            by.STATE: Stream(job.state + self._first, per, 1),
            by.FACTOR: Stream(job.factors + self._first, per, 1),
            by.GRADIENT: Stream(job.gradient + self.place * per, per, 1),
        }
        if what.left or what.right:
            streams |= {
                by.LEFT_SHIFT: Stream(job.column + columns.left_shift + self.first, 1),
                by.LEFT: Stream(job.column + columns.left + self.first, 1),
                by.RIGHT_SHIFT: Stream(job.column + columns.right_shift),
                by.RIGHT: Stream(job.column + columns.right),
            }
        job.work.run(
            what.lowered(), streams, outer=self.blocks, inner=per, key=part.row + self._first,
            tensor=part.name,
        )  # fmt: skip

    def sum(self) -> None:
        """The part's sums of squares, where it is done."""
        job = self.job
        if job.prior and self.place + self.blocks == len(job.live.left):
            job.prior.add(job.part, job.state, job.factors)

    def store(self, done: list[_PartJob]) -> None:
        """State and factors to external memory; images are made where the part is ``done``."""
        job = self.job
        region = self._rows(STATE, job.state)
        job.work.store(STATE, region.start, region.count, first=job.part.row + self._first)
        first = job.place.row + self._first
        job.work.store(job.place.name, job.factors + self._first, region.count, first=first)
        if self.place + self.blocks == len(job.live.left):
            job.make_images()
            done.append(job)


def _store_images(done: list[_PartJob]) -> None:
    for job in done:
        for one in job.made:
            job.work.store(one.name, one.source, one.rows)
