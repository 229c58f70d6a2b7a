"""Compile the samples of the next step: from records of a data set to inputs and targets.

SAMPLES fetches up to 16 samples at a time to rows of the scratchpad, and STORE writes the rows of
each to the buffers of the batch.

The record of an image has its pixels, and its row a sample is one order of the input. A range of
pixels of all samples is loaded again, and PE1 transposes it to the other order, samples along the
lanes. So few rows of the scratchpad will do. Where a whole batch fits, the second load is left out.

The record of any other sample contains what the host would write for it: the sample's rows of every
buffer that depends on it, byte by byte as the programs read them. Nothing is transposed, so every
buffer needs samples in rows (a sequence of tokens is a sample).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from trainwright.compiler.base.compiled import CompiledStep
from trainwright.compiler.base.memory import Buffer, Region
from trainwright.compiler.base.names import IDENTITY, SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.chip.exponents import ExponentSlots
from trainwright.compiler.chip.memory import (
    DIGITS,
    TARGETS,
    ChipMemory,
    classes_in_rows,
    label_kinds,
)
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.compiler.forms.layout import RowLevel, joined_levels
from trainwright.compiler.step.adapter import PackedBuffer
from trainwright.compiler.step.rows import sample_axis, sample_tensors
from trainwright.onchip.choices import label_bytes
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Level, Program, Transfer, TransferLevel
from trainwright.program.fields import Operation
from trainwright.program.footprint import external
from trainwright.program.samples import Samples

GROUPS = (16, 8, 4, 2, 1)
"""Samples that are fetched at a time: the most that there is room for."""
MOST_PIECE_ROWS = 14
"""Rows of pixels of a sample that are transposed at a time, at most."""
WHOLE_PIECE_ROWS = 7
"""Rows of pixels transposed at a time where all samples are in the scratchpad."""
LEAST_PIECE_ROWS = 3
"""Rows of pixels in a piece below which one piece at a time is better than two smaller ones."""
BUFFERS = 2
"""Groups of samples, and pieces, that are in the scratchpad at once, at most."""


@dataclass(frozen=True)
class SampleRecords:
    """Data set as it lies in external memory (``onchip.samples.records``)."""

    address: int
    """Address of the first record."""
    total: int
    """Records."""
    record_bytes: int
    pixels: int
    """Bits of a pixel."""
    first: int
    """The generator's value at the begin of every epoch (``onchip.samples.first_of``)."""
    length: int
    """Samples of an epoch."""


# -- records of samples
PIXELS = 8
"""Bits of a value in a record: values are bytes."""


@dataclass(frozen=True)
class Content:
    """Rows of one tensor, or labels of words, within a record."""

    tensor: str
    first: int
    """First beat, counted from the start of the record."""
    beats: int
    packed: PackedBuffer | None
    """Buffer of a batch that keeps the rows of each sample together; None for labels."""


@dataclass(frozen=True)
class RecordField:
    """Part of a record that STORE writes to one buffer."""

    buffer: str
    first: int
    """First beat, counted from the start of the record."""
    samples: range
    """Samples of the batch that the buffer holds."""
    stride: int
    """Bytes in the buffer from one sample to the next."""
    beats: int
    """Consecutive beats in the buffer."""
    levels: tuple[TransferLevel, ...] = ()
    """Repetitions of these beats, with steps in the buffer and in the record."""
    element_bytes: int = 1


@dataclass(frozen=True)
class RecordFormat:
    """Contents of a record, and the buffers that receive them."""

    beats: int
    """Beats without the last one, which has the target of the sample."""
    contents: tuple[Content, ...]
    fields: tuple[RecordField, ...]

    @classmethod
    def of(cls, step: CompiledStep) -> "RecordFormat":
        """Return the format of a step."""
        contents, fields, beats = dict[tuple[object, ...], Content](), list[RecordField](), 0
        axis, lanes = sample_axis(step.network), step.parameters.lanes
        for tensor in sample_tensors(step.network):
            for name in step.aliases.get(tensor, ()):
                packed = step.buffers[name]
                assert isinstance(packed, PackedBuffer)
                # A batch of one sequence has no axis of sequences: all rows belong to the sample.
                arranged = packed.of_each(axis) if axis in packed.outer.axes else packed
                outer = arranged.outer
                # Buffers that differ only in the place of the sample axis share rows of a record.
                key = (tensor, outer.layout, outer.element_bytes, tuple(outer.ranges.items()))
                if key not in contents:
                    rows = outer.piece.strides.get(axis, outer.piece.rows)
                    contents[key] = Content(tensor, beats, rows * outer.element_bytes, arranged)
                    beats += contents[key].beats
                fields.append(_field(packed, arranged, axis, contents[key], step.batch))
        network = step.network
        if (words := network.rows_of(network.main)) > 1:
            rows = -(-words // lanes)
            content = Content(TARGETS, beats, rows * label_bytes(network.classes), None)
            contents[TARGETS,], samples, size = content, range(step.batch), content.beats
            fields.append(RecordField(TARGETS, content.first, samples, size * lanes, size))
            beats += size
        return cls(beats, tuple(contents.values()), tuple(fields))


def _field(
    packed: PackedBuffer, arranged: PackedBuffer, axis: str, content: Content, batch: int
) -> RecordField:
    """Return the part of a record that brings a content to one buffer of a step."""
    outer, size, lanes = packed.outer, packed.element_bytes, packed.outer.piece.width
    strides, record_strides = outer.piece.strides, arranged.outer.piece.strides
    rows, each = outer.layout.rows, strides.get(axis, outer.piece.rows) * size
    levels = [
        RowLevel(outer.piece.counts[a], (strides[a] * size * lanes, record_strides[a] * size))
        for a in rows[: rows.index(axis) if axis in rows else 0]
    ]
    samples = range(*outer.ranges.get(axis, (0, batch)))
    nest = tuple(TransferLevel(level.count, *level.steps) for level in joined_levels(levels))
    return RecordField(packed.name, content.first, samples, each * lanes, each, nest)


def _fields(step: CompiledStep) -> tuple[RecordField, ...]:
    """Return the parts of a record, or the pixels of an image as SAMPLES expands them to rows."""
    image = step.buffers.get(SAMPLES_OUTSIDE)
    if image is None:
        return RecordFormat.of(step).fields
    each, beats = image.size // step.batch, image.size // step.batch // step.parameters.lanes
    samples, size = range(step.batch), image.element_bytes
    return (RecordField(SAMPLES_OUTSIDE, 0, samples, each, beats, element_bytes=size),)


# -- the program
def samples_program(
    memory: ChipMemory, data: SampleRecords, avoid: Sequence[Region] = (), *, whole: bool = False,
    slots: ExponentSlots | None = None,
) -> Program:  # fmt: skip
    """Return the program of the next batch in the drawn order.

    It writes ``x.s``, what is read of ``x.i``, and the targets. Rows of the scratchpad in ``avoid``
    are not used. With ``whole`` all samples of the batch are in the scratchpad at once; else a few
    are, and ``x.i`` is made from ``x.s``. Raises ``CompileError`` where the step reads its inputs
    in another form, or too few rows are left.
    """
    work = Passes(memory, slots, avoid)
    if SAMPLES_OUTSIDE in memory.step.buffers:
        images = _Images(work, data)
        if whole:
            images.transpose(images.fetch_whole())
        else:
            images.fetch()
            images.transpose(())
    else:
        _Batch(work, data).fetch()
    return work.finish("the program of the samples")


def buffers_written(step: CompiledStep) -> tuple[str, ...]:
    """Return the names of the buffers that the program of the samples writes."""
    targets = (kind.targets for kind in label_kinds(step.network).values())
    inside = [SAMPLES_INSIDE] if SAMPLES_INSIDE in step.buffers else []
    return *(field.buffer for field in _fields(step)), *targets, *inside


def rows_read(step: CompiledStep, buffer: Buffer) -> range:
    """Return the rows of an input that the step loads, first to last."""
    row_bytes = step.parameters.lanes * buffer.element_bytes
    descriptors = (*step.forward.descriptors, *step.backward.descriptors)
    loaded = [bytes_loaded(d, buffer, step.parameters) for d in descriptors]
    first = min((span.start for span in loaded if span), default=0)
    return range(first // row_bytes, -(-max(span.stop for span in loaded) // row_bytes))


def bytes_loaded(d: Descriptor, buffer: Buffer, p: AcceleratorParameters) -> range:
    """Return the bytes of a buffer that a command loads, first to last; none of other commands."""
    if isinstance(d, Transfer) and d.operation is Operation.LOAD:
        low, high = external(d, p)
        if low < buffer.stop and buffer.address < high:
            return range(low - buffer.address, high - buffer.address)
    return range(0)


class _Batch:
    """Batch on its way through the scratchpad, to the buffers that steps read."""

    def __init__(self, work: Passes, data: SampleRecords) -> None:
        self.work, self.data, self.lanes = work, data, work.p.lanes
        step = self._step = work.memory.step
        self._fields = _fields(step)
        # Bits of a value without its sign. STORE takes the lowest 8 bits of a byte of a record.
        activation = step.network.widths.activation
        self._input_bits = activation - 1 if SAMPLES_OUTSIDE in step.buffers else PIXELS
        self._beats = data.record_bytes // self.lanes - 1  # without that of targets
        self._per = self._beats * 8 // data.pixels  # rows of a sample, as they are fetched
        self._numbered = classes_in_rows(step.network, self.lanes)
        unit = self.lanes if self._numbered else 1
        self._targets = work.pad.allocate(TARGETS, -(-step.batch // unit) * unit)

    def fetch(self) -> None:
        """Fetch all samples, a few at a time, and store each."""
        pad = self.work.pad
        count = next((n for n in GROUPS if n * self._per <= pad.largest_gap), GROUPS[-1])
        count = min(count, self._step.batch)
        places = [pad.allocate(SAMPLES_OUTSIDE, count * self._per)]
        # With two places a group is fetched while the one before is stored.
        while len(places) < BUFFERS and pad.largest_gap >= places[0].count:
            places.append(pad.allocate(SAMPLES_OUTSIDE, places[0].count))
        self._fetch(count, [place.start for place in places])
        for place in places:
            pad.free(place)

    def _fetch(self, count: int, places: Sequence[int]) -> None:
        """Fetch groups of ``count`` samples in the drawn order, and store each.

        They take rows from each of ``places`` in turn.
        """
        data = self.data
        for number, first in enumerate(range(0, self._step.batch, count)):
            place, size = places[number % len(places)], min(count, self._step.batch - first)
            self.work.commands.add(
                Samples(
                    address=data.address, local=place, targets=self._targets.start + first,
                    samples=size, beats=self._beats, stride=data.record_bytes,
                    local_step=self._per, total=data.total, pixels=data.pixels,
                    input_bits=self._input_bits, drawn=True,
                    order_first=data.first, order_length=data.length, tensor=SAMPLES_OUTSIDE,
                )
            )  # fmt: skip
            self._store(place, first, size)
        self._store_targets()

    def _store(self, place: int, first: int, count: int) -> None:
        """Store ``count`` fetched samples, the batch's ``first`` and following."""
        for field in self._fields:
            low = max(first, field.samples.start)
            held = min(first + count, field.samples.stop) - low
            if held <= 0:
                continue
            address = self.work.buffer(field.buffer).address
            address += (low - field.samples.start) * field.stride
            local = place + (low - first) * self._per + field.first
            levels = (TransferLevel(held, field.stride, self._per), *field.levels)
            self.work.commands.add(
                Transfer(
                    operation=Operation.STORE, beats=field.beats, tensor=field.buffer,
                    address=address, local=local, element_bytes=field.element_bytes,
                    levels=tuple(level for level in levels if level.count > 1),
                )
            )  # fmt: skip

    def _store_targets(self) -> None:
        """Store targets as a row for each sample, or numbers of labels along the lanes by PE1."""
        work, first, batch = self.work, self._targets.start, self._step.batch
        kind = label_kinds(self._step.network).get(1)
        if kind is None:  # the records have a field of the labels of words
            return
        if not self._numbered:
            work.store(kind.targets, first, batch)
            return
        in_digits = label_bytes(kind.classes) > 1
        numbers = DIGITS if in_digits else kind.numbers
        if rest := self._targets.count - batch:  # lanes of no sample have no label
            none = work.buffer(numbers).shape[0] - 1
            last = Region(TARGETS, first + batch, rest)
            work.load(numbers, first=none, rows=1, to=last, levels=(TransferLevel(rest, 0, 1),))
        count = self._targets.count // self.lanes
        rows = work.pad.allocate(TARGETS, count)
        # The first row of the identity selects a number that all lanes have; weights join digits.
        weights = work.constant(DIGITS if in_digits else IDENTITY)
        work.products(weights.start, first, rows.start, 1, tensor=TARGETS,
                      levels=(Level(count, g=self.lanes, z=1),))  # fmt: skip
        work.store(kind.targets, rows.start, count)


class _Images(_Batch):
    """Images, which are stored in two orders: pixels and samples along the lanes."""

    def __init__(self, work: Passes, data: SampleRecords) -> None:
        work.constant(IDENTITY, Bank.SAMPLES)
        super().__init__(work, data)
        step = self._step
        self._blocks = -(-step.batch // self.lanes)
        # Rows of whole blocks: the transpose of missing samples fills lanes with zeros.
        self._rows = self._blocks * self.lanes
        self._missing = self._rows - step.batch
        read = rows_read(step, step.buffers[SAMPLES_INSIDE])
        # Row r of ``x.i`` belongs to pixel r // blocks; whole rows of pixels are transposed at
        # once.
        first = read.start // self._blocks // self.lanes
        self._columns = range(first, -(-read.stop // self._blocks // self.lanes))
        self._whole_piece = min(len(self._columns), WHOLE_PIECE_ROWS)
        self._sample_bytes = work.buffer(SAMPLES_OUTSIDE).size // step.batch

    def fetch_whole(self) -> list[Region]:
        """Fetch all samples to regions of the scratchpad of one size, and store them to ``x.s``."""
        blocks, pad, rows = self._blocks, self.work.pad, self.lanes * self._per
        parts = [n for n in range(1, blocks + 1) if not blocks % n]
        pieces = (self._whole_piece * self._rows,) * BUFFERS
        # As few regions as fit: free rows lie in gaps, and a region cannot span two of them.
        fitting = (n for n in parts if pad.has_room((*(blocks // n * rows,) * n, *pieces)))
        parted = next(fitting, parts[-1])
        places = [pad.allocate(SAMPLES_OUTSIDE, blocks // parted * rows) for _ in range(parted)]
        groups = (range(place.start, place.stop, rows) for place in places)
        self.work.clear(places[-1].stop, self._missing * self._per)
        self._fetch(self.lanes, [*chain.from_iterable(groups)])
        return places

    def transpose(self, regions: Sequence[Region]) -> None:
        """Transpose ranges of pixels of all samples to ``x.i``.

        They come from the ``regions`` of the batch, or from ``x.s`` where there are none.
        """
        if not self._columns:
            return
        batch, padded, work = self._step.batch, self._rows, self.work
        # Two places: PE1 fills one while the other is stored.
        size, places = (self._whole_piece, BUFFERS) if regions else self._pieces()
        rows = size * padded
        results = [work.pad.allocate(SAMPLES_INSIDE, rows, top=True) for _ in range(places)]
        loaded = [work.rows(SAMPLES_OUTSIDE, rows, Bank.SAMPLES)
                  for _ in range(0 if regions else places)]  # fmt: skip
        for number, first in enumerate(range(self._columns.start, self._columns.stop, size)):
            count, to = min(size, self._columns.stop - first), results[number % places]
            sources, per = [region.start + first for region in regions], self._per
            if not regions:
                piece, per = loaded[number % places], count
                levels = (TransferLevel(batch, self._sample_bytes, per),)
                work.load(SAMPLES_OUTSIDE, first=first, rows=per, to=piece, levels=levels)
                work.clear(piece.start + padded * per, self._missing * per)
                sources = [piece.start]
            blocks = self._blocks // len(sources)
            for n, source in enumerate(sources):
                work.transpose(
                    source, to.start + n * blocks,
                    (Level(count, g=1, z=padded), Level(blocks, g=self.lanes * per, z=1)),
                    source=per, to=self._blocks, tensor=SAMPLES_INSIDE,
                )  # fmt: skip
            # Only the rows of inputs that exist, not those that fill up a row of pixels.
            rows = min(self._step.network.input_size, self.lanes * (first + count))
            row = self.lanes * first * self._blocks
            rows = rows * self._blocks - row
            work.store(SAMPLES_INSIDE, to.start, rows, first=row)

    def _pieces(self) -> tuple[int, int]:
        """Return the rows of pixels of a piece, and the pieces in the scratchpad at once.

        Two pieces as large as there is room for, so that one is loaded while the other is
        transposed; one piece where two would be smaller than ``LEAST_PIECE_ROWS`` rows.
        """
        all_of_them, padded = len(self._columns), self._rows
        for many, least in ((BUFFERS, LEAST_PIECE_ROWS), (1, 1)):
            count = min(all_of_them, MOST_PIECE_ROWS)
            while count >= min(least, all_of_them):
                many = min(many, -(-all_of_them // count))
                if self.work.pad.has_room((count * padded,) * (2 * many)):
                    return count, many
                # Halving keeps pieces of nearly equal size; the last one may be smaller.
                count = count // 2 if count > 1 else 0
        return 1, 1
