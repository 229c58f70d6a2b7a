"""Choices of a search for one program: arrays, layouts and divisions between the arrays.

``choose`` takes a ``ProgramSpec``, which has the layouts that external memory imposes, and returns
``Chosen`` for ``cut`` and ``tile``.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trainwright.compiler.forms.external import Sources
from trainwright.compiler.forms.impls import Impl
from trainwright.compiler.forms.layout import Axes, Layout, Ranges
from trainwright.graph.ir import Graph, Op
from trainwright.parameters import AcceleratorParameters

Cut = tuple[str, int, int] | None
"""Range of an axis: name, first value, and the value after the last; None: all values."""
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
    """Work of one array: an operation, or only the values in ``cut`` of its result."""

    impl: Impl | None
    """Implementation; ``None`` for an element-wise operation."""
    cut: Cut


@dataclass(frozen=True)
class Choice:
    """Computation of an operation, by one array or divided between both."""

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
    """Whether balancing the arrays counts later operations that only one array can compute."""
    apart: bool
    """Whether the arrays may compute parts of a tensor in different layouts."""
    lesser: float = 0.3
    """Weight of the least busy array's cycles in the score, where the busiest one's count 1."""
    sums: bool = False
    """Whether each array may compute a part of a sum from operands in a layout of its own."""
    sliced: bool = False
    """Whether small axes of huge tensors stay out of tiles and lanes, so that slices can be cut
    along them (``compiler.choose.huge``)."""
    large: bool = False
    """Whether ``sliced`` also applies to tensors that are large but not huge."""
    steady: bool = False
    """Whether operations are computed for one block of samples after the other.

    No array then waits for the other, and only the total work of each array counts.
    """
    piped: bool = False
    """Whether one array computes the slices of a huge tensor that the other array reads.

    Otherwise each array reads only slices that it computed itself.
    """
    shared: bool = False
    """Whether, with ``piped``, each array may compute slices that both arrays read."""


Stored = Mapping[str, Layout | None]
"""Layouts in which a program stores tensors in external memory; None: as computed."""


@dataclass(frozen=True)
class ProgramSpec:
    """Program to compile: graph, accelerator, and tensors read from and stored in memory."""

    graph: Graph
    given: Mapping[str, Sources]
    """Tensors that the program reads from external memory."""
    stored: Stored
    p: AcceleratorParameters
    which: str = ""
    """Name of the program in messages: forward or backward."""
    parted: Collection[str] = ()
    """Stored tensors that may be stored in two parts of different layouts."""

    @property
    def in_rows(self) -> bool:
        """Whether the program reads tensors in the rows of a state on the chip."""
        return any(source.reloadable for sources in self.given.values() for source in sources)


@dataclass(frozen=True)
class Chosen:
    """Computation of every operation of a program, and padding of tensors."""

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
