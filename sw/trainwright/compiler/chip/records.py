"""Describe the records of a data set whose samples are more than an image and a label.

A record contains what the host would write for a sample: the sample's rows of every buffer that
depends on it, byte by byte as the programs read them. SAMPLES copies the beats of a record to rows
of the scratchpad, and STORE writes the low bytes of these rows to the buffers. Neither transposes,
so every buffer needs samples in rows (a sequence of tokens is a sample).
"""

from dataclasses import dataclass

from trainwright.compiler.base.compiled import CompiledStep
from trainwright.compiler.chip.memory import TARGETS
from trainwright.compiler.forms.layout import RowLevel, joined_levels
from trainwright.compiler.step.adapter import PackedBuffer
from trainwright.compiler.step.rows import sample_axis, sample_tensors
from trainwright.onchip.choices import label_bytes
from trainwright.program.descriptors import TransferLevel

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
