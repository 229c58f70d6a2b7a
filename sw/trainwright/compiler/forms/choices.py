"""Choices of a search for one program: arrays, layouts, divisions, and where tensors lie before.

``choose`` returns ``Chosen``; ``cut`` and ``tile`` read it. ``ProgramSpec`` says what external
memory imposes on a program.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainwright.compiler.forms.external import Sources
from trainwright.compiler.forms.impls import Impl
from trainwright.compiler.forms.layout import Axes, Layout, Ranges
from trainwright.graph.ir import Graph, Op
from trainwright.parameters import AcceleratorParameters

AFTER = 50
"""Cycles from the last step of a command to the first step of one that reads its results."""
BEAT = 1.25
"""Cycles of a beat of external memory, on average."""

Cut = tuple[str, int, int] | None
"""Range of one axis: its name, the first value, and the one after the last; None: all values."""
Pad = tuple[str, Axes, Axes]
"""Padding of a tensor: its name, its lanes, and the axes of its rows that are padded."""


def ranges_of(cut: Cut) -> Ranges:
    """Return a cut as ranges."""
    return {cut[0]: (cut[1], cut[2])} if cut else {}


def cut_of(ranges: Ranges) -> Cut:
    """Return ranges of at most one axis as a cut."""
    return next(((axis, *values) for axis, values in ranges.items()), None)


@dataclass(frozen=True)
class Work:
    """Operation, or its values in ``cut``, on one array."""

    impl: Impl | None
    """Implementation; ``None`` for an element-wise operation."""
    cut: Cut


@dataclass(frozen=True)
class Choice:
    """Computation of an operation, by one array or by two."""

    op: Op
    works: tuple[Work, ...]
    lanes: Axes
    """Axes along the lanes of operands and result, for an element-wise operation."""


@dataclass(frozen=True)
class SearchMode:
    """Preferences of one search for arrays and layouts."""

    weight: float
    """Weight of a cycle of loads in the score: large where the scratchpad is short."""
    due: bool
    """Whether arrays are balanced with what only one of them can compute later."""
    apart: bool
    """Whether the arrays may compute parts of a tensor in different layouts."""
    sums: bool = False
    """Whether both arrays may sum parts in different layouts, each its own."""
    sliced: bool = False
    """Whether small axes of huge tensors are left to slices (``compiler.choose.huge``)."""
    large: bool = False
    """Whether ``sliced`` also holds for tensors that are only large."""
    steady: bool = False
    """Whether operations are computed for block after block of samples.

    Nothing waits for anything then, and only the sum of each array's work counts.
    """
    piped: bool = False
    """Whether one array computes the slices of a huge tensor that the other one reads.

    Otherwise each array computes its own slices from end to end.
    """
    shared: bool = False
    """Whether, with ``piped``, both arrays may compute slices that either reads."""


Stored = Mapping[str, Layout | None]
"""Tensors that a program writes to external memory: in a layout, or (None) as they were computed.
"""


@dataclass(frozen=True)
class ProgramSpec:
    """Program to be compiled: what it computes, on which accelerator, from and to which memory."""

    graph: Graph
    given: Mapping[str, Sources]
    """Tensors that the program reads from external memory."""
    stored: Stored
    p: AcceleratorParameters
    which: str = ""
    """Name of the program in messages: forward or backward."""
    parted: Collection[str] = ()
    """Stored tensors of which some values may lie in another layout than the rest."""

    @property
    def in_rows(self) -> bool:
        """Whether some tensors lie in rows of a state on the chip, to be loaded again."""
        return any(source.again for sources in self.given.values() for source in sources)


@dataclass(frozen=True)
class Chosen:
    """Computation of every operation of a program, and what is padded."""

    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...]

    @property
    def apart(self) -> set[str]:
        """Tensors of which the arrays compute parts in different layouts."""
        return {
            choice.op.out
            for choice in self.choices
            if len({work.impl.along for work in choice.works if work.impl}) > 1
        }
