"""Commands before they have addresses: what is computed or moved, from which parts to which.

``tile`` makes them, ``schedule`` orders them, ``emit`` turns them into descriptors.
"""

from dataclasses import dataclass
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
    """Tensor in external memory, with the layout of its rows there."""

    tensor: str
    layout: Layout
    ranges: Ranges
    element_bytes: int
    view_of: str = ""
    """Tensor that this one is a view of; empty if it is none."""
    digits: int = 1
    """Rows of a row of values: the digits that the host cuts them into."""

    @property
    def name(self) -> str:
        """Name of the buffer: one for each tensor, layout and range."""
        # Constants have the layout of ``forms.layout.ROW``, and one buffer each.
        if self.layout.lanes == ("lane",):
            return self.tensor
        cut = "".join(f"[{a}:{lo}:{hi}]" for a, (lo, hi) in sorted(self.ranges.items()))
        cut += f" in {self.digits} digits" if self.digits > 1 else ""
        return f"{self.tensor}: {self.layout.text}{cut}"

    # Two descriptions of one buffer are equal values; mappings in them cannot be hashed.
    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """Command of an engine. ``cycles`` is what the engine takes for it alone."""

    engine: Engine
    cycles: float
    reads: tuple[Piece, ...] = ()
    writes: tuple[Piece, ...] = ()

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Rows of the scratchpad that the command touches."""
        return tuple(piece.storage for piece in (*self.writes, *self.reads))


@dataclass(frozen=True, eq=False, kw_only=True)
class Contract(Call):
    """Contraction of ``x`` and ``g`` to ``z``."""

    op: Op
    impl: Impl
    x: Part
    g: Part
    z: Part
    macs: int
    part: bool = False
    """Whether the command computes one of several parts of a sum."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Accumulate(Call):
    """Addition of a part ``x`` of a sum to the sum so far in ``z``."""

    x: Part
    z: Part
    last: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Transpose(Call):
    """Transpose of ``x`` to ``z``, with other axes along the lanes."""

    x: Part
    z: Part


@dataclass(frozen=True, eq=False, kw_only=True)
class Copy(Call):
    """Copy of ``x`` to ``z``, with the same axes along the lanes, in as many digits or more."""

    x: Part
    z: Part


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Call):
    """Addition or mask of ``x`` and ``g``, on some blocks of the lanes of ``z``.

    ``blocks`` are the first block and their number; with ``broadcast`` ``g`` has one block for all.
    """

    op: Add | Mask
    x: Part
    g: Part
    z: Part
    blocks: tuple[int, int]
    broadcast: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class PassCall(Call):
    """Passes of the vector engine: a kernel of each value of ``operands`` to ``z``."""

    op: Kernel
    passes: tuple[VectorPass, ...]
    operands: tuple[Part, ...]
    z: Part


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupCall(Call):
    """Passes of the vector engine for a kernel over groups of values."""

    op: Kernel
    passes: "GroupPlan"
    operands: tuple[Part, ...]
    z: Part
    scratch: Piece | None
    """Rows that join the sums of threads."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Move(Call):
    """Load of ``part`` from ``outer``, or store to it."""

    outer: External
    part: Part


@dataclass(frozen=True, eq=False, kw_only=True)
class Clear(Call):
    """Rows of zeros for all of a piece, or only for its padding."""

    first: int
    """First row, from the start of the piece."""
    rows: int
    """Rows without a gap."""
    step: int
    """Rows from one run of such rows to the next."""
    times: int
