"""Lay out a tensor's values in rows of lanes, and address parts of tensors in them.

A layout has some axes along the lanes, flattened and padded with zeros to whole rows, and the rest
in rows. Adjacent axes of the rows can be padded together with rows of zeros, so that they can be
read as whole entries. An address is linear in every index, which is all that a loop nest can do.
Where values are cut into digits, each row of values is as many rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.limits import MOST_COUNT


class CutError(CompileError):
    """Part of a tensor that cannot lie as needed: another cut or layout has to be tried."""


Ranges = Mapping[str, tuple[int, int]]
"""First value and the one after the last, of axes that are cut."""
Axes = tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Axes in rows, outermost first; axes along the lanes; axes of the rows that are padded."""

    rows: Axes
    lanes: Axes
    padded: Axes = ()
    unit: int = 1
    """Number of rows of which the rows along the lanes are a multiple."""

    @property
    def text(self) -> str:
        """Layout as people read it: ``j1 j2 s/``."""
        padded = f" +{'.'.join(self.padded)}" if self.padded else ""
        return f"{' '.join(self.rows)} {'.'.join(self.lanes)}/{padded}"


ROW = Layout(("row",), ("lane",))
"""Layout of a constant."""


def counts_of(axes: Iterable[str], sizes: Mapping[str, int], ranges: Ranges) -> dict[str, int]:
    """Return the number of values of each axis within ``ranges``."""
    counts = {a: sizes[a] for a in axes}
    for axis, (low, high) in ranges.items():
        if axis in counts:
            counts[axis] = high - low
    return counts


@dataclass(frozen=True, eq=False)
class Piece:
    """Tensor, or the part of it in ``ranges``, in rows of the scratchpad or of external memory.

    Pieces with one ``storage`` have the same rows: a view of a tensor has the rows of the tensor.
    """

    tensor: str
    layout: Layout
    counts: Mapping[str, int]
    ranges: Ranges
    width: int
    """Lanes of a row."""
    storage: "Storage"
    steps: Mapping[str, int] | None = None
    """Rows from one value of an axis to the next, where the layout does not give them."""
    first: int = 0
    """Rows of the storage before the piece's first row."""
    digits: int = 1
    """Rows that a row of values takes: one for each digit, the highest first."""

    @classmethod
    def new(
        cls, tensor: str, layout: Layout, counts: Mapping[str, int], ranges: Ranges, width: int,
        *, label: str = "", digits: int = 1,
    ) -> "Piece":  # fmt: skip
        """Return a piece in rows of its own, which have the name ``label`` if not the tensor's."""
        unplaced = Storage(label or tensor, 0)
        piece = cls(tensor, layout, counts, dict(ranges), width, unplaced, digits=digits)
        return replace(piece, storage=Storage(unplaced.name, piece.rows))

    @cached_property
    def blocks(self) -> int:
        """Rows of values along the lanes."""
        unit = self.layout.unit
        values = prod(self.counts[a] for a in self.layout.lanes)
        return -(-values // (unit * self.width)) * unit

    @cached_property
    def strides(self) -> dict[str, int]:
        """Rows from one value of an axis to the next; the entry '' is the size of the piece."""
        if self.steps is not None:
            return {**self.steps, "": self.storage.rows}
        strides, stride, padded = {}, self.blocks * self.digits, self.layout.padded
        for n, axis in reversed(list(enumerate(self.layout.rows))):
            strides[axis] = stride
            stride *= self.counts[axis]
            # The whole run of padded axes is known once its outermost axis is passed: round its
            # rows up there.
            if padded and axis == padded[0]:
                inner = strides[padded[-1]]
                size = prod(self.counts[a] for a in padded)
                if self.layout.rows[n : n + len(padded)] != padded:
                    raise CutError(f"{self.tensor} cannot be padded in {self.layout.text}")
                stride = inner * (-(-size // self.width) * self.width)
        strides[""] = stride
        return strides

    @property
    def rows(self) -> int:
        """Rows of the piece, padding included."""
        return self.strides[""]

    @property
    def padding(self) -> tuple[int, int, int]:
        """Rows of zeros of a padded piece: the first, their count, rows to the next such run."""
        padded, strides = self.layout.padded, self.strides
        inner, size = strides[padded[-1]], prod(self.counts[a] for a in padded)
        padded_size = -(-size // self.width) * self.width
        return inner * size, inner * (padded_size - size), inner * padded_size

    @property
    def is_padded(self) -> bool:
        """Whether the piece has rows of zeros."""
        size = prod(self.counts[a] for a in self.layout.padded)
        return bool(self.layout.padded) and size % self.width != 0

    def covers(self, ranges: Ranges) -> bool:
        """Return whether the piece has all values of ``ranges``."""
        for axis, (lo, hi) in self.ranges.items():
            asked = ranges.get(axis)
            # An axis that is cut here but not in ``ranges`` is asked for as a whole.
            if asked is None or asked[0] < lo or asked[1] > hi:
                return False
        return True


@dataclass(frozen=True, eq=False)
class Storage:
    """Rows of the scratchpad that hold a piece; a placement returns their ``Addresses``."""

    name: str
    rows: int


Addresses = Mapping[Storage, int]
"""First row of each storage."""


@dataclass(frozen=True)
class Part:
    """Values of a piece within ``ranges``, as an operand of a loop nest."""

    piece: Piece
    ranges: Ranges

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of values of each axis."""
        return counts_of(self.piece.counts, self.piece.counts, self.ranges)

    @cached_property
    def offset(self) -> int:
        """Rows from the start of the piece. Raises ``CutError``."""
        piece, rows = self.piece, self.piece.first
        for axis, (lo, _) in self.ranges.items():
            if axis not in piece.counts:
                continue
            first = lo - piece.ranges.get(axis, (0, 0))[0]
            if axis in piece.layout.lanes:
                # Rows are what has addresses: a part can begin at a lane only if it is the first of
                # a row.
                if piece.layout.lanes != (axis,) or first % piece.width:
                    raise CutError(
                        f"{piece.tensor} has {axis} along the lanes and is cut there at {first}"
                    )
                rows += first // piece.width * piece.digits
            else:
                rows += first * piece.strides[axis]
        return rows

    @property
    def is_even(self) -> bool:
        """Whether the part has whole rows: the lanes are cut only at a first lane."""
        try:
            return self.offset >= 0
        except CutError:
            return False

    @property
    def digits(self) -> int:
        """Rows that a row of values takes, one for each digit."""
        return self.piece.digits

    @property
    def blocks(self) -> int:
        """Rows of values along the lanes."""
        lanes = self.piece.layout.lanes
        return -(-prod(self.counts[a] for a in lanes) // self.piece.width)

    @property
    def rows(self) -> int:
        """Rows of values, one for all digits."""
        return prod(self.counts[a] for a in self.piece.layout.rows) * self.blocks

    def stride(self, axis: str) -> int:
        """Return the rows from one value of an axis to the next; 0 where there is no such axis."""
        return 0 if axis in self.piece.layout.lanes else self.piece.strides.get(axis, 0)

    def joint(self, axes: Axes) -> int | None:
        """Return the rows from one value of several axes to the next; ``None`` where it varies."""
        # An axis with one value never steps, so its stride does not matter.
        wide = [a for a in axes if self.counts[a] > 1]
        for outer, inner in pairwise(wide):
            if self.stride(outer) != self.stride(inner) * self.counts[inner]:
                return None
        return self.stride((wide or list(axes))[-1]) if axes else 0


@dataclass(frozen=True)
class RowLevel:
    """Level of a nest over rows of several parts: its count, and the step of each part."""

    count: int
    steps: tuple[int, ...]


def joined_levels(levels: Sequence[RowLevel]) -> list[RowLevel]:
    """Join levels whose rows follow each other evenly, innermost last; drop single iterations."""
    joined: list[RowLevel] = []
    for level in sorted(levels, key=lambda level: level.steps, reverse=True):
        if level.count == 1:
            continue
        last = joined[-1] if joined else None
        even = last and last.steps == tuple(step * level.count for step in level.steps)
        if last and even and last.count * level.count <= MOST_COUNT:
            joined[-1] = RowLevel(last.count * level.count, level.steps)
        else:
            joined.append(level)
    return joined
