"""The program of the update: from gradients to state, factors and the images of the next step.

Parts of the state follow one another, large ones in *chunks* of an index range of their first axis.
While the engine is at work on a chunk, the operands of the next are loaded, and the results of the
one before are stored; PE1 makes the images of parts that are done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.compiler.chip.factor_rows import TRANSPOSED, Made, Source, packed_image, row_image
from trainwright.compiler.chip.memory import COLUMNS, FACTORS, STATE, ChipMemory
from trainwright.compiler.chip.packing import PACKING
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.images import Image
from trainwright.compiler.memory import Region
from trainwright.compiler.row_images import Arrangement, RowImage
from trainwright.onchip.layout import LANES, Part
from trainwright.onchip.update_pass import PartUpdate, update_code
from trainwright.program.descriptors import Program
from trainwright.program.vector import Stream, Vector

CHUNK = 128
"""Rows of a chunk, about: an index of the first axis is never divided."""


def update_program(memory: ChipMemory, parts: Sequence[PartUpdate], seed: int) -> Program:
    """From the gradients of a backward pass to state, factors and the images of the next step.

    ``parts`` says how each part of the layout is updated, ``seed`` is the stream of its random
    bits.
    """
    work = Passes(memory, seed)
    jobs = [_PartJob(work, n, parts[n]) for n in _order([one.rows for one in memory.layout.parts])]
    chunks = [chunk for job in jobs for chunk in job.chunks()]
    chunks[0].load()
    before: _Chunk | None = None
    done: list[_PartJob] = []  # their images are made and not stored: two passes later PE1 is ready
    for number, chunk in enumerate(chunks):
        chunk.run()
        if not number:
            _load_constants(work)
        if number + 1 < len(chunks):
            chunks[number + 1].load()
        ready, done = done[:-1], done[-1:]
        _store_images(ready)
        if before:
            before.store(done)
        before = chunk
    assert before
    before.store(done)
    _store_images(done)
    return work.finish("the program of the update")


def _order(rows: Sequence[int]) -> list[int]:
    """Numbers of parts of these ``rows`` in the order of their passes.

    The large ones in the middle: two smaller ones before, so that what is loaded takes less time
    than the pass before it, and the smallest at the end, while the large ones' results are stored.
    """
    falling = sorted(range(len(rows)), key=lambda n: -rows[n])
    small = [n for n in falling if 2 * rows[n] <= rows[falling[0]]]
    ahead = small[1::-1]
    return [*ahead, *(n for n in falling if n not in ahead)]


def _load_constants(work: Passes) -> None:
    work.constant(Arrangement.IDENTITY.value)
    if PACKING in work.memory.buffers:
        work.constant(PACKING)


def gradient_of(part: Part) -> str:
    """Name of the tensor that is the gradient of a part."""
    return f"l{part.layer + 1}.db" if part.index < 0 else f"l{part.layer + 1}.dG{part.index + 1}"


class _PartJob:
    """A part in the scratchpad: state, factors and gradients, in the order of the layout."""

    def __init__(self, work: Passes, number: int, what: PartUpdate) -> None:
        self.work, self.what = work, what
        self.part: Part = work.memory.layout.parts[number]
        self.columns = work.memory.columns[number]
        step = work.memory.step
        images = {
            image.name: (image, buffer)
            for image, buffer in (*step.forward.images, *step.backward.images)
            if image.use and (image.layer, image.index) == (self.part.layer, self.part.index)
        }
        self._images = list(images.values())
        self.per = self.part.rows // self.part.blocks
        self.made: list[Made] = []

    def chunks(self) -> list["_Chunk"]:
        """All of it."""
        step = max(1, CHUNK // self.per)
        blocks = self.part.blocks
        return [_Chunk(self, n, min(step, blocks - n)) for n in range(0, blocks, step)]

    def begin(self) -> None:
        """Rows of the scratchpad, and what the first chunk needs beside its own."""
        work, part = self.work, self.part
        allocate = work.b.pad.allocate
        transposed = any(
            isinstance(image, RowImage) and image.arrangement in TRANSPOSED
            for image, _ in self._images
        )
        rows = LANES * self.per if transposed else part.rows
        self.factors = allocate(f"{part.name} factors", rows).start
        if rows > part.rows:
            work.zeros(self.factors + part.rows, rows - part.rows)
        self.state = allocate(f"{part.name} state", part.rows).start
        self.gradient = allocate(gradient_of(part), part.rows).start
        self.nibbles = self.factors
        if self.what.nibbles:
            self.nibbles = allocate(f"{part.name} nibbles", part.rows).start
        if self.what.left or self.what.right:
            rows = self.columns
            count = rows.right + 1 - rows.left_shift
            first = work.load(COLUMNS, first=rows.left_shift, rows=count).start
            self.column = first - rows.left_shift

    def make_images(self) -> None:
        """What forward and backward pass read, in the scratchpad."""
        part = self.part
        source = Source(self.factors, self.nibbles, (part.shape[0], part.shape[-1]), self.per)
        if part.index < 0:
            self._spread_bias()
        for image, buffer in self._images:
            if isinstance(image, Image):
                self.made.append(packed_image(self.work, image, buffer, source))
            else:
                self.made.append(row_image(self.work, image, buffer, source))

    def _spread_bias(self) -> None:
        """A bias is stored with each value in all words of a row of its own."""
        work, part = self.work, self.part
        spread = work.b.pad.allocate(part.name, part.rows * LANES)
        work.transpose(self.factors, spread.start, blocks=part.rows, of=(1, 0), to=(LANES, 1),
                       tensor=f"{part.name} spread")  # fmt: skip
        self.made.append(Made(part.name, spread.start, part.size))


@dataclass(frozen=True)
class _Chunk:
    """Indices ``first`` and following of a part's first axis."""

    job: _PartJob
    first: int
    blocks: int

    def load(self) -> None:
        """Operands to the scratchpad."""
        job = self.job
        if not self.first:
            job.begin()
        for name, to, row in (
            (STATE, job.state, job.part.row),
            (FACTORS, job.factors, job.part.row),
            (gradient_of(job.part), job.gradient, 0),
        ):
            region = self._rows(name, to)
            job.work.load(name, first=row + self._first, rows=region.count, to=region)

    @property
    def _first(self) -> int:
        return self.first * self.job.per

    def _rows(self, name: str, base: int) -> Region:
        return Region(name, base + self._first, self.blocks * self.job.per)

    def run(self) -> None:
        """The pass."""
        job, what = self.job, self.job.what
        part, per, columns = job.part, job.per, job.columns
        along = [Stream(at + self._first, per, 1) for at in (job.state, job.factors, job.gradient)]
        if what.left or what.right or what.nibbles:
            column = job.column if what.left or what.right else 0
            along += [
                Stream(column + columns.left_shift + self.first, 1),
                Stream(column + columns.left + self.first, 1),
                Stream(column + columns.right_shift), Stream(column + columns.right),
                Stream(job.nibbles + self._first, per, 1),
            ]  # fmt: skip
        d = Vector(
            entry=0, length=1, outer=self.blocks, inner=per, streams=tuple(along),
            reads=what.reads, writes=what.writes, constants=what.constants,
            key=part.row + self._first, tensor=part.name,
        )  # fmt: skip
        job.work.run(update_code(what), d)

    def store(self, done: list[_PartJob]) -> None:
        """State and factors to external memory; images are made where the part is ``done``."""
        job = self.job
        for name, base in ((STATE, job.state), (FACTORS, job.factors)):
            region = self._rows(name, base)
            first = job.part.row + self._first
            job.work.store(name, region.start, region.count, first=first)
        if self.first + self.blocks == job.part.blocks:
            job.make_images()
            done.append(job)


def _store_images(done: list[_PartJob]) -> None:
    for job in done:
        for one in job.made:
            job.work.store(one.name, one.source, one.rows, one.levels)
