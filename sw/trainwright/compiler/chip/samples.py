"""The program of the samples: from records of a data set to a step's inputs, and the targets.

LOAD fetches 16 samples at a time, pixels along the lanes: that is the input of a row a sample,
stored while the next are fetched. PE1 transposes them to the other order, samples along the lanes,
a range of pixels after the other, each stored while the next is transposed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.compiler.block_forward import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.chip.memory import TARGETS, ChipMemory
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.compiler.errors import CompileError
from trainwright.compiler.memory import Buffer, Region
from trainwright.compiler.row_images import Arrangement
from trainwright.compiler.step import CompiledStep
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import Program, Transfer, TransferLevel
from trainwright.program.fields import Operation, Target
from trainwright.program.footprint import external
from trainwright.program.samples import Samples

TOGETHER = 14
"""Rows of 16 pixels of a sample that are transposed before they are stored."""
PLACES = 2
"""Of such rows, where there is room for a block of samples alone."""


@dataclass(frozen=True)
class DataSet:
    """A data set as it lies in external memory (``onchip.samples.records``)."""

    address: int
    """Of the first record."""
    total: int
    """Records."""
    record_bytes: int
    pixels: int
    """Bits of a pixel."""
    first: int
    """The generator's value at the begin of every epoch (``onchip.samples.first_of``)."""
    length: int
    """Samples of an epoch."""

    @property
    def beats(self) -> int:
        """Of a record's pixels, 16 bytes each."""
        return self.record_bytes // LANES - 1


def samples_program(memory: ChipMemory, data: DataSet, avoid: Sequence[Region] = ()) -> Program:
    """The next batch in the drawn order: ``x.s``, of ``x.i`` what is read, and ``targets``.

    Rows of the scratchpad that are to ``avoid`` are not used. Raises ``CompileError`` where the
    step reads its inputs in another form, or too few rows are left.
    """
    work = Passes(memory)
    work.b.pad.avoid(avoid)
    batch = _Batch(work, data)
    blocks = memory.step.batch // LANES
    for first in range(0, blocks, batch.together):
        batch.piece(first, min(batch.together, blocks - first))
    work.store(TARGETS, batch.targets.start, memory.step.batch)
    return work.finish("the program of the samples")


def rows_read(step: CompiledStep, buffer: Buffer) -> range:
    """The rows of 16 words of an input that forward and backward pass load, the first to the last;
    all of them where an address is in a register."""
    row_bytes = LANES * buffer.element_bytes
    first, stop = buffer.size // row_bytes, 0
    for d in (*step.forward.descriptors, *step.backward.descriptors):
        if not isinstance(d, Transfer) or d.operation is not Operation.LOAD:
            continue
        low, high = external(d, step.parameters)
        mine = low < buffer.stop and buffer.address < high and d.target is not Target.PROGRAM
        if mine and d.address_register:
            return range(buffer.size // row_bytes)
        if mine:
            first = min(first, (low - buffer.address) // row_bytes)
            stop = max(stop, -(-(high - buffer.address) // row_bytes))
    return range(first, max(first, stop))


class _Batch:
    """A batch in the scratchpad."""

    def __init__(self, work: Passes, data: DataSet) -> None:
        self.work, self.data = work, data
        step = work.memory.step
        if step.inputs != (SAMPLES_INSIDE, SAMPLES_OUTSIDE):
            raise CompileError(
                f"{step.network.name}: samples by address give inputs of plan auto, not of "
                f"{step.plan}; use plan auto"
            )
        self.blocks = step.batch // LANES
        self._per = data.beats * 8 // data.pixels  # rows of a sample, as they are fetched
        self._used = step.buffers[SAMPLES_OUTSIDE].padded // LANES
        read = rows_read(step, step.buffers[SAMPLES_INSIDE])
        first = read.start // self.blocks // LANES
        self._columns = range(first, -(-read.stop // self.blocks // LANES))
        work.constant(Arrangement.IDENTITY.value)
        self.targets = work.b.pad.allocate(TARGETS, step.batch)
        rows = LANES * (self._per + len(self._columns))
        self.together = max(1, min(self.blocks, work.b.pad.largest_gap // rows))
        transposed = self.together * LANES * len(self._columns)
        if self.together == 1:  # a range of pixels at a time, in turn
            transposed = min(transposed, PLACES * LANES * TOGETHER)
        self._inside = work.b.pad.allocate(SAMPLES_INSIDE, max(1, transposed), top=True)
        self._samples = self._places_of_blocks()

    def _places_of_blocks(self) -> list[int]:
        """First rows of the blocks that are there at once: of those of a piece or, where a piece is
        one block, of as many as there is room for."""
        size, pad = LANES * self._per, self.work.b.pad
        if self.together > 1:
            region = self.work.rows(SAMPLES_OUTSIDE, self.together * size, Bank.STATE)
            return list(range(region.start, region.stop, size))
        places = [pad.allocate(SAMPLES_OUTSIDE, size).start]
        while len(places) < self.blocks and pad.largest_gap >= size:
            places.append(pad.allocate(SAMPLES_OUTSIDE, size).start)
        return places

    def piece(self, first: int, count: int) -> None:
        """Blocks of 16 samples, ``count`` of them from ``first``."""
        places = [self._samples[(first + n) % len(self._samples)] for n in range(count)]
        for block, place in enumerate(places):
            self._fetch(first + block, place)
            self._store_outside(first + block, place)
        for start in range(self._columns.start, self._columns.stop, TOGETHER):
            columns = range(start, min(start + TOGETHER, self._columns.stop))
            for block, place in enumerate(places):
                self._transpose(columns, block, place, count)
            self._store_inside(columns, first, count)

    def _fetch(self, number: int, place: int) -> None:
        data, step = self.data, self.work.memory.step
        self.work.b.emit(
            Samples(
                address=data.address, local=place,
                targets=self.targets.start + number * LANES, samples=LANES, beats=data.beats,
                stride=data.record_bytes, local_step=self._per, total=data.total,
                pixels=data.pixels, input_bits=step.network.widths.activation - 1, drawn=True,
                order_first=data.first, order_length=data.length, tensor=SAMPLES_OUTSIDE,
            )
        )  # fmt: skip

    def _transpose(self, columns: range, block: int, place: int, count: int) -> None:
        """Rows of a block's samples to ``count`` blocks along the lanes, one behind the other."""
        self.work.transpose(
            place + columns.start, self._row(columns, count) + block, blocks=len(columns),
            of=(1, self._per), to=(LANES * count, count), tensor=SAMPLES_INSIDE,
        )  # fmt: skip

    def _row(self, columns: range, count: int) -> int:
        """First of the transposed rows."""
        first = columns.start - self._columns.start
        if self.together == 1:
            first = first // TOGETHER % PLACES * TOGETHER
        return self._inside.start + LANES * count * first

    def _store_outside(self, number: int, place: int) -> None:
        buffer = self.work.buffer(SAMPLES_OUTSIDE)
        levels = (TransferLevel(LANES, buffer.row_bytes, self._per),)
        self.work.store(
            SAMPLES_OUTSIDE, place, self._used, levels, first=number * LANES * self._used,
        )  # fmt: skip

    def _store_inside(self, columns: range, first: int, count: int) -> None:
        """Rows of the inputs there are, not of those that fill up a row."""
        buffer, source = self.work.buffer(SAMPLES_INSIDE), self._row(columns, count)
        row = LANES * columns.start
        rows = min(buffer.shape[0], LANES * columns.stop) - row
        if count == self.blocks:
            self.work.store(SAMPLES_INSIDE, source, rows * count, first=row * count)
            return
        levels = (TransferLevel(rows, buffer.row_bytes, count),)
        start = row * self.blocks + first
        self.work.store(SAMPLES_INSIDE, source, count, levels, first=start)
