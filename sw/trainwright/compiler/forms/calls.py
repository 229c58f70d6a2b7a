"""Commands before they have addresses: what is computed or moved, from which parts to which.

``tile`` makes them, ``schedule`` orders them, ``emit`` turns them into descriptors.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.impls import Impl
from trainwright.compiler.forms.layout import Part, Storage
from trainwright.graph.ir import Kernel, Op
from trainwright.program.elementwise import SUM, ArrayBody
from trainwright.program.fields import Engine

if TYPE_CHECKING:
    from trainwright.compiler.forms.passes import PassPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """Command of an engine. ``cycles`` is what the engine takes for it alone."""

    engine: Engine
    cycles: float
    reads: tuple[Part, ...] = ()
    """Operands in the scratchpad."""
    writes: tuple[Part, ...] = ()
    """Result first."""

    @cached_property
    def sources(self) -> tuple[Storage, ...]:
        """Rows of the scratchpad that the command reads."""
        return tuple(part.piece.storage for part in self.reads)

    @cached_property
    def targets(self) -> tuple[Storage, ...]:
        """Rows of the scratchpad that the command writes."""
        return tuple(part.piece.storage for part in self.writes)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Rows of the scratchpad that the command touches."""
        return (*self.targets, *self.sources)


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayCall(Call):
    """Command of an array, with two operands: the first and the second one of the descriptor."""

    exact: bool = False
    """Whether the result keeps the exponent: a copy, or two parts of a sum added."""
    counted: bool = True
    """Whether statistics of the result are the tensor's: those of copies and parts are not."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Contract(ArrayCall):
    """Contraction of two operands, or of parts of them for a part of a sum."""

    op: Op
    impl: Impl
    macs: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Transpose(ArrayCall):
    """Transpose, with other axes along the lanes, by a product of the identity, read first."""

    exact: bool = True
    counted: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(ArrayCall):
    """Addition or mask of two operands, on some blocks of the lanes of the result.

    A copy adds a row of zeros; where the result has more digits, values are cut anew. Parts of a
    sum are added one by one to the sum so far.
    """

    body: ArrayBody = SUM
    blocks: tuple[int, int] | None = None
    """First block and number of blocks; None: all."""
    broadcast: bool = False
    """Whether the second operand has one block for all."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PassCall(Call):
    """Passes of the vector engine for a kernel, of each value or over groups of values.

    Rows that join the sums of threads, if there are any, are written, too.
    """

    op: Kernel
    passes: "PassPlan"


@dataclass(frozen=True, eq=False, kw_only=True)
class Move(Call):
    """Load from ``outer``, or store to it."""

    outer: External


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
