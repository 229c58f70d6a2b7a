"""Describe the records of a data set whose samples are more than an image and a label.

A record contains what the host would write for a sample: the sample's rows of every buffer that
depends on it, byte by byte as the programs read them. SAMPLES copies the beats of a record to rows
of the scratchpad, and STORE writes the low bytes of these rows to the buffers. Neither transposes,
so every buffer needs samples in rows (a sequence of tokens is a sample).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.compiler.base.compiled import CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.chip.memory import TARGETS
from trainwright.compiler.step.adapter import PackedBuffer
from trainwright.graph.network import SAMPLES, SEQUENCES, mask_name, share_name
from trainwright.network import Attention, TokenPool
from trainwright.onchip.layout import LANES
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

    @property
    def record_bytes(self) -> int:
        """Bytes of a record, its target included."""
        return (self.beats + 1) * LANES

    @classmethod
    def of(cls, step: CompiledStep) -> "RecordFormat":
        """Return the format of a step. Raises ``CompileError`` if samples are along lanes."""
        contents, fields, beats = dict[tuple[object, ...], Content](), list[RecordField](), 0
        axis = SEQUENCES if step.network.tokens > 1 else SAMPLES
        for tensor in sample_tensors(step):
            for name in step.aliases.get(tensor, ()):
                packed = step.buffers[name]
                assert isinstance(packed, PackedBuffer)
                _require_rows(step, packed, axis)
                arranged = packed.of_each(axis)
                outer = arranged.outer
                # Buffers that differ only in the place of the sample axis share rows of a record.
                key = (tensor, outer.layout, outer.element_bytes, tuple(outer.ranges.items()))
                if key not in contents:
                    rows = outer.piece.strides[axis]
                    contents[key] = Content(tensor, beats, rows * outer.element_bytes, arranged)
                    beats += contents[key].beats
                fields.append(_field(packed, arranged, axis, contents[key], step.batch))
        if (network := step.network).labels > 1:
            own = Content(TARGETS, beats, -(-network.labels // LANES), None)
            contents[TARGETS,] = own
            beats += own.beats
            whole = range(step.batch)
            fields.append(RecordField(TARGETS, own.first, whole, own.beats * LANES, own.beats))
        return cls(beats, tuple(contents.values()), tuple(fields))


def sample_tensors(step: CompiledStep) -> Iterator[str]:
    """Yield the tensors that the host would write for each sample, except masks of dropout."""
    network = step.network
    yield from step.inputs
    if not network.padding:  # without padding these are constants
        return
    for node in network.nodes:
        if isinstance(node, TokenPool):
            yield share_name(network, node)
        elif isinstance(node, Attention):
            yield mask_name(network, node)


def _require_rows(step: CompiledStep, packed: PackedBuffer, axis: str) -> None:
    layout = packed.outer.layout
    if axis not in layout.rows or axis in layout.padded:
        raise CompileError(
            f"{step.network.name}: {packed.name} has samples along the lanes, but records have "
            "them in rows; let the host start each step: --accelerator sample_loads=0"
        )


def _field(
    packed: PackedBuffer, arranged: PackedBuffer, axis: str, content: Content, batch: int
) -> RecordField:
    """Return the part of a record that brings a content to one buffer of a step."""
    outer, size = packed.outer, packed.element_bytes
    strides, own = outer.piece.strides, arranged.outer.piece.strides
    rows = outer.layout.rows
    levels = [
        TransferLevel(outer.piece.counts[a], strides[a] * size * LANES, own[a] * size)
        for a in rows[: rows.index(axis)]
    ]
    return RecordField(
        packed.name, content.first, range(*outer.ranges.get(axis, (0, batch))),
        strides[axis] * size * LANES, strides[axis] * size, tuple(_merged(levels)),
    )  # fmt: skip


def _merged(levels: Sequence[TransferLevel]) -> list[TransferLevel]:
    """Join levels whose runs follow each other evenly, outermost first."""
    joined: list[TransferLevel] = []
    for level in levels:
        last = joined[-1] if joined else None
        even = (level.address * level.count, level.local * level.count)
        if level.count == 1:
            continue
        if last and (last.address, last.local) == even:
            joined[-1] = TransferLevel(last.count * level.count, level.address, level.local)
        else:
            joined.append(level)
    return joined
