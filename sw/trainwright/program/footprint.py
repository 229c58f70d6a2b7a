"""Rows of the accelerator's own memories that a descriptor reads and writes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Transfer, digit_count
from trainwright.program.engines import contraction_of, tile_rows
from trainwright.program.fields import Operation, Target
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector

PAD = Target.SCRATCHPAD.name
"""The scratchpad."""


Grid = tuple[int, tuple[tuple[int, int], ...]]
"""Addresses: the first, and axes of (count, stride)."""


@dataclass(frozen=True)
class Touch:
    """Rows ``start`` to ``stop`` (exclusive) of a memory; with ``grids`` only the rows in these."""

    space: str
    start: int
    stop: int
    write: bool
    grids: tuple[Grid, ...] = field(default=(), compare=False)

    def overlaps(self, other: "Touch") -> bool:
        """Return whether the ranges of both have a row of the same memory in common."""
        return self.space == other.space and self.start < other.stop and other.start < self.stop

    def meets(self, other: "Touch") -> bool:
        """Return whether both touch a row of the same memory."""
        if not (self.grids and other.grids):
            return self.overlaps(other)
        return self.overlaps(other) and bool(self._mask & other._mask)

    @cached_property
    def _mask(self) -> int:
        """Rows of the grids as a mask, bit n for row n."""
        total = 0
        for start, axes in self.grids:
            mask = 1 << (start + sum(min((n - 1) * step, 0) for n, step in axes))
            for count, step in axes:
                # Doubling: the pattern shifted by all its copies so far, so that a level costs
                # log(count) shifts.
                copies = 1
                while copies < count:
                    more = min(copies, count - copies)
                    mask |= mask << (more * abs(step))
                    copies += more
            total |= mask
        return total


def _touch(grids: Sequence[Grid], digits: int = 1, *, write: bool) -> Touch:
    """Return the rows of some grids, with ``digits`` rows for each address."""
    spans = [_span(*grid) for grid in grids]
    if digits > 1:
        grids = [(start, (*axes, (digits, 1))) for start, axes in grids]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    return Touch(PAD, low, high + digits, write, tuple(grids))


def _span(start: int, axes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the greatest address for axes of (count, stride)."""
    low = high = start
    for count, stride in axes:
        reach = (count - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


def _tiled(d: Compute, rows: int, start: int, name: str, row_stride: int) -> list[Grid]:
    """Return rows of an operand with rows a tile, without those past ``last_rows``."""
    levels = d.levels if name == "x" else d.outer
    rest = [(v.count, getattr(v, name)) for i, v in enumerate(levels) if i != d.tile_level]
    tile = d.levels[d.tile_level]
    step, last = getattr(tile, name), tile.count - 1
    grids: list[Grid] = [(start + last * step, (*rest, (d.last_rows, row_stride)))]
    if last:
        grids.append((start, (*rest, (last, step), (rows, row_stride))))
    return grids


def _entries(d: Compute, axes: Sequence[tuple[int, int]], groups: int) -> tuple[Grid, ...]:
    """Return the rows of the second operand, whose addresses count groups, ``groups`` to a row.

    Empty where the axes do not make whole rows.
    """
    rows = [(n, step // groups) for n, step in axes if step % groups == 0]
    within = [(n - 1) * step for n, step in axes if step % groups and n > 1]
    if any(reach < 0 for reach in within) or d.g % groups + sum(within) >= groups:
        return ()
    return ((d.g // groups, tuple(rows)),)


def result_digits(d: Compute, p: AcceleratorParameters) -> int:
    """Return the rows, one for each digit, that a row of results is written to."""
    return digit_count(d.out_width) if p.wide_tensors else 1


def rows_of_run(d: Transfer, p: AcceleratorParameters) -> int:
    """Return the rows of a run; 0 where its beats do not make whole rows."""
    rows, rest = divmod(d.beats * p.beat_bytes, p.lanes * d.element_bytes)
    return 0 if rest else rows


def rows_written(d: Compute | Transfer | Samples, p: AcceleratorParameters) -> int:
    """Count the rows that an execution of ``d`` writes."""
    if isinstance(d, Samples):
        return d.samples * (d.rows + 1)
    if isinstance(d, Transfer):
        return d.runs * d.beats // d.element_bytes if d.operation is Operation.LOAD else 0
    rows = tile_rows(d.operation, p)
    # A tile at the end of the tile level is short; each of the other levels repeats such a tile.
    short = d.tiles // d.levels[d.tile_level].count
    return ((d.tiles - short) * rows + short * d.last_rows) * result_digits(d, p)


def external(d: Transfer | Samples, p: AcceleratorParameters) -> tuple[int, int]:
    """Return the first byte of external memory, and the byte after the last, with registers at 0.

    SAMPLES that are drawn touch the whole set.
    """
    if isinstance(d, Samples):
        last = (d.total if d.drawn else d.samples) - 1
        return d.address, d.address + last * d.stride + d.record_beats * p.beat_bytes
    low, high = _span(d.address, [(v.count, v.address) for v in d.levels])
    return low, high + d.beats * p.beat_bytes


def footprint(
    d: Compute | Transfer | Samples | Vector, p: AcceleratorParameters
) -> tuple[Touch, ...]:
    """Return everything that ``d`` touches with its registers at 0, without external memory.

    Rows that PE1's engine fetches past ``last_rows`` and does not use are left out too.
    """
    if isinstance(d, Transfer):
        return (_local(d, p),)
    if isinstance(d, Samples):
        low, high = _span(d.local, [(d.samples, d.local_step), (d.rows, 1)])
        return (
            Touch(PAD, low, high + 1, True),
            Touch(PAD, d.targets, d.targets + d.samples, True),
        )
    if isinstance(d, Vector):
        return _streams(d)
    array = contraction_of(d.operation)
    by_entries = array is not None and array.along_lanes
    count = tile_rows(d.operation, p)
    x = _tiled(d, count, d.x, "x", d.x_row_stride if by_entries else 0)
    z = _tiled(d, count, d.z, "z", d.z_row_stride)
    g_axes = [(level.count, level.g) for level in d.levels]
    if by_entries:
        g_axes.append((p.lanes, d.g_row_stride))
    low, high = _span(d.g, g_axes)
    # A group has as many words as a tile has rows.
    groups = p.lanes // count if array and not by_entries else 1
    g = Touch(PAD, low // groups, high // groups + 1, False, _entries(d, g_axes, groups))
    return (
        _touch(x, write=False),
        g,
        _touch(z, result_digits(d, p), write=True),
    )


def stream_span(d: Vector, number: int) -> tuple[int, int]:
    """Return the least and the greatest row of a stream."""
    stream = d.streams[number]
    return _span(stream.base, [(d.outer, stream.outer), (d.inner, stream.inner)])


def _streams(d: Vector) -> tuple[Touch, ...]:
    touched = [(n, False) for n in d.users(d.reads)] + [(n, True) for n in d.users(d.writes)]
    spans = [(*stream_span(d, number), write) for number, write in touched]
    return tuple(Touch(PAD, low, high + 1, write) for low, high, write in spans)


def _local(d: Transfer, p: AcceleratorParameters) -> Touch:
    run = rows_of_run(d, p)
    axes = (*((v.count, v.local) for v in d.levels), (run, 1))
    return _touch([(d.local, axes)], write=d.operation is Operation.LOAD)
