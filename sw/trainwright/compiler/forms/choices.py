"""What is chosen for a program: arrays, layouts, how arrays divide operations."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.compiler.forms.impls import Impl
from trainwright.compiler.forms.layout import Axes, Layout, Ranges
from trainwright.graph.ir import Op

AFTER = 50
"""Cycles from the last step of a command to the first of one that reads its results."""
BEAT = 1.25
"""Cycles of a beat of the external memory."""

Cut = tuple[str, int, int] | None
"""Values of one axis: first, and the one after the last."""
Pad = tuple[str, Axes, Axes]
"""A tensor, its lanes, and the axes of its rows that are padded."""


def ranges_of(cut: Cut) -> Ranges:
    """A cut as ranges."""
    return {cut[0]: (cut[1], cut[2])} if cut else {}


@dataclass(frozen=True)
class Work:
    """An operation, or its values in ``cut``, by one array."""

    impl: Impl | None
    """``None`` for an element-wise operation."""
    cut: Cut


@dataclass(frozen=True)
class Choice:
    """How an operation is computed: by one array or by two."""

    op: Op
    works: tuple[Work, ...]
    lanes: Axes
    """Of an element-wise operation's operands and result."""


@dataclass(frozen=True)
class SearchMode:
    """Preferences of one search for arrays and layouts."""

    weight: float
    """Of a cycle of loads: much where the scratchpad is short."""
    due: bool
    """Whether arrays are balanced with what only one of them can compute later."""
    apart: bool
    """Whether the arrays may make parts of a tensor in different layouts."""
    sums: bool = False
    """Whether parts in different layouts may be summed by both arrays, each its own."""
    sliced: bool = False
    """Whether small axes of huge tensors are left to slices (``compiler.choose.huge``)."""
    large: bool = False
    """Of ``sliced``: whether those of tensors that are but large are, too."""
    steady: bool = False
    """Whether operations are computed for block after block of samples: then nothing waits for
    anything, and what counts is what each array has to do in all."""
    piped: bool = False
    """Whether one array makes the slices of a huge tensor that the other one reads; else each makes
    its own slices from end to end."""
    shared: bool = False
    """Of ``piped``: whether both arrays may make slices, each some, that either reads."""


@dataclass(frozen=True)
class Given:
    """A tensor that lies in outer memory: as one likes it, or as it was stored, whole or in parts
    of different layouts.
    """

    layout: Layout | None = None
    cut: Cut = None
    """The values that lie in ``layout``, where they are a part of the tensor."""
    parts: tuple["Given", ...] = ()
    """The parts of a tensor that lies in several layouts."""
    again: bool = False
    """Whether each reader may load it anew in an order of rows of its own, also padded; in each of
    ``parts`` it lies whole then."""

    @property
    def is_free(self) -> bool:
        """Whether the host writes it as one likes."""
        return self.layout is None and not self.parts

    @property
    def lanes(self) -> Axes | None:
        """The axes along the lanes, where they are fixed and the same for all values."""
        return self.layout.lanes if self.layout else None

    @property
    def stored(self) -> tuple["Given", ...]:
        """Where it lies, by layouts; nothing where it lies as one likes."""
        return self.parts or (() if self.layout is None else (self,))

    def part(self, lanes: Axes | None, ranges: Ranges) -> "Given | None":
        """That of its layouts which has these values, with ``lanes`` along the lanes, if any."""
        if self.is_free:
            return self
        for one in self.stored:
            if lanes in (None, one.lanes) and (
                one.cut is None or _within(ranges.get(one.cut[0]), one.cut[1:])
            ):
                return one
        return None


Stored = Mapping[str, Layout | None]
"""Tensors that a program writes to outer memory: in a layout, or (None) as they were made."""


def _within(values: tuple[int, int] | None, cut: tuple[int, int]) -> bool:
    return values is not None and cut[0] <= values[0] and values[1] <= cut[1]


@dataclass(frozen=True)
class Chosen:
    """How each operation of a program is computed, and what is padded."""

    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...]

    @property
    def apart(self) -> set[str]:
        """Tensors of which the arrays make parts in different layouts."""
        return {
            choice.op.out
            for choice in self.choices
            if len({work.impl.along for work in choice.works if work.impl}) > 1
        }
