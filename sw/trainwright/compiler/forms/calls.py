"""Commands before they have addresses: what is computed or moved, from which parts to which."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainwright.compiler.forms.impls import Impl
from trainwright.compiler.forms.layout import Layout, Part, Piece, Ranges, Storage
from trainwright.graph.ir import Add, Kernel, Mask, Op
from trainwright.kernels import VectorPass
from trainwright.program.fields import Engine

if TYPE_CHECKING:
    from trainwright.compiler.forms.group_passes import GroupPlan


@dataclass(frozen=True)
class External:
    """A tensor in outer memory, as its rows lie there."""

    tensor: str
    layout: Layout
    ranges: Ranges
    element_bytes: int
    of: str = ""
    """The tensor that it is a view of, where it is one."""
    digits: int = 1
    """Rows of a row of values: the digits that the host cuts them into."""

    @property
    def name(self) -> str:
        """Of its buffer: one for each tensor, layout and range."""
        if self.layout.lanes == ("lane",):
            return self.tensor
        cut = "".join(f"[{a}:{lo}:{hi}]" for a, (lo, hi) in sorted(self.ranges.items()))
        cut += f" in {self.digits} digits" if self.digits > 1 else ""
        return f"{self.tensor}: {self.layout.text}{cut}"

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(eq=False, kw_only=True)
class Call:
    """One command. ``cycles`` is what its engine takes alone."""

    engine: Engine
    cycles: float
    reads: tuple[Piece, ...] = ()
    writes: tuple[Piece, ...] = ()
    start: float = field(default=0.0)
    """When it starts, by the estimate of the schedule."""
    end: float = field(default=0.0)
    late: bool = False
    """Whether it may wait: nothing in the program needs it."""

    @property
    def storages(self) -> tuple[Storage, ...]:
        """What it touches of the scratchpad."""
        return tuple(piece.storage for piece in (*self.writes, *self.reads))


@dataclass(eq=False, kw_only=True)
class Contract(Call):
    """A contraction of ``x`` and ``g`` to ``z``."""

    op: Op
    impl: Impl
    x: Part
    g: Part
    z: Part
    macs: int
    part: bool = False
    """Whether it makes one part of several of a sum."""


@dataclass(eq=False, kw_only=True)
class Accumulate(Call):
    """A part ``x`` of a sum added to what is there in ``z``."""

    x: Part
    z: Part
    last: bool


@dataclass(eq=False, kw_only=True)
class Transpose(Call):
    """``x`` as ``z``, other axes along the lanes."""

    x: Part
    z: Part


@dataclass(eq=False, kw_only=True)
class Copy(Call):
    """``x`` as ``z``, the same axes along the lanes, in as many digits or more."""

    x: Part
    z: Part


@dataclass(eq=False, kw_only=True)
class Elementwise(Call):
    """An addition or a mask of ``x`` and ``g``, on blocks of samples of ``z``.

    ``blocks`` are those of the lanes of x and z, ``g`` has one where it is broadcast.
    """

    op: Add | Mask
    x: Part
    g: Part
    z: Part
    blocks: tuple[int, int]
    broadcast: bool


@dataclass(eq=False, kw_only=True)
class PassCall(Call):
    """A pass of the vector engine: ``kernel`` of each value of ``operands`` to ``z``."""

    op: Kernel
    kernel: VectorPass
    operands: tuple[Part, ...]
    z: Part


@dataclass(eq=False, kw_only=True)
class GroupCall(Call):
    """Passes of the vector engine for a kernel over groups of values."""

    op: Kernel
    passes: "GroupPlan"
    operands: tuple[Part, ...]
    z: Part
    scratch: Piece | None
    """Rows that join the sums of threads."""


@dataclass(eq=False, kw_only=True)
class Move(Call):
    """A load of ``part`` from ``outer``, or a store to it."""

    outer: External
    part: Part


@dataclass(eq=False, kw_only=True)
class Clear(Call):
    """Rows of zeros for all of a piece, or where it is padded alone."""

    piece: Piece
    padding: bool = False

    @property
    def places(self) -> tuple[int, int, int, int]:
        """First row, rows without a gap, rows from one place to the next, and places."""
        if not self.padding:
            return 0, self.piece.rows, self.piece.rows, 1
        first, rows, step = self.piece.padding
        return first, rows, step, self.piece.rows // step
