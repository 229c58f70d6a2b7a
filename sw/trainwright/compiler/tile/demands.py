"""Collect the demands of all readers of each tensor, before any piece of the tensor is made.

A piece is copied for every reader that the order of its axes does not suit. Some readers need axes
next to each other, some need rows of zeros behind them, and slices need the axis that is cut to be
outermost. Knowing all demands, the tiler can choose an order that suits all readers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from trainwright.compiler.cut.slices import Stage, block_axis
from trainwright.compiler.forms.choices import Choice, Cut, Pad
from trainwright.compiler.forms.impls import Impl, Need
from trainwright.compiler.forms.layout import Axes
from trainwright.graph.ir import Graph, View

Key = tuple[str, Axes]
"""Layout: the name of a tensor, and its axes along the lanes."""


@dataclass(frozen=True)
class Demands:
    """Demands of all choices of a program on the pieces of each tensor."""

    graph: Graph
    lanes: int
    groups: dict[Key, list[Axes]] = field(default_factory=dict)
    """Axes that should be adjacent, by layout."""
    hard: dict[Key, list[Axes]] = field(default_factory=dict)
    """Axes of results that must be adjacent: an array can write them in no other way."""
    padding: dict[Key, Axes] = field(default_factory=dict)
    """Adjacent axes that rows of zeros follow, by layout."""
    lead: dict[str, Axes] = field(default_factory=dict)
    """Axes that come first in the rows of a tensor, so that rows of a slice are contiguous."""
    cuts: dict[Key, set[Cut]] = field(default_factory=dict)
    """Parts of the tensor that arrays read, by layout."""

    @classmethod
    def of(
        cls, graph: Graph, stages: Sequence[Stage], pads: Sequence[Pad], lanes: int
    ) -> "Demands":
        """Collect for each tensor the axes that are read as one axis, padded, or divided."""
        demands = cls(graph, lanes)
        every = [choice for stage in stages for choice in stage.choices]
        demands._collect(every, pads)
        demands._leads(every, stages)
        return demands

    def _collect(self, every: Sequence[Choice], pads: Sequence[Pad]) -> None:
        for choice in every:
            for work in choice.works:
                needs = tuple(Need(name, choice.lanes) for name in choice.op.operands)
                if work.impl:
                    self._grouped(work.impl)
                    needs = work.impl.needs
                for need in needs:
                    key = need.tensor, need.lanes
                    cut = work.cut
                    if cut and cut[0] not in self.graph.tensors[need.tensor].axes:
                        cut = None
                    self.cuts.setdefault(key, set()).add(cut)
                    if window := self.graph.windows.get(need.tensor):
                        # Windows read values beyond the cut, so the whole tensor is needed.
                        self.cuts.setdefault((window.x, need.lanes), set()).add(None)
        for name, lanes, axes in pads:
            self._group(name, lanes, axes, pad=True)
        for choice in every:
            for work in choice.works:
                if (impl := work.impl) and impl.array.along_lanes:
                    # Rows of PE1's tiles come after entries: ``Tiler._even`` can use fewer axes for
                    # rows, but not for entries.
                    self._group(impl.x, impl.inner, impl.rows)
                    self._group(impl.z, impl.along, impl.rows)

    def _grouped(self, impl: Impl) -> None:
        if impl.array.along_lanes:
            self._group(impl.g, impl.inner, impl.along, pad=True)
        else:
            self.hard.setdefault((impl.z, impl.along), []).append(impl.rows)

    def _group(self, name: str, lanes: Axes, axes: Axes, *, pad: bool = False) -> None:
        # A single axis needs no neighbour.
        if len(axes) > 1:
            self.groups.setdefault((name, lanes), []).append(axes)
        if pad and prod(self.graph.sizes[a] for a in axes) % self.lanes:
            self.padding.setdefault((name, lanes), axes)

    def _leads(self, every: Sequence[Choice], stages: Sequence[Stage]) -> None:
        """Set the axes that come first in each tensor: axes that slices or arrays divide."""
        views = {n for c in every if isinstance(c.op, View) for n in (c.op.out, c.op.x)}
        wanted: dict[str, dict[str, None]] = {}
        for stage in stages:
            loops = [
                *([block_axis(self.graph)] if stage.blocked else []),
                *(axis for axis, _ in stage.loops),
            ]
            for choice in stage.choices:
                cuts = [w.cut[0] for w in choice.works if w.cut]
                for name in (choice.op.out, *choice.op.operands):
                    # With the axes of an operation's groups (`over`) outermost, neighbouring rows
                    # belong to different groups, and so to different threads.
                    first = [*cuts, *loops, *choice.op.over]
                    wanted.setdefault(name, {}).update(dict.fromkeys(first))
        # Rows of zeros follow a whole run of axes: no axis of the run may be moved to the front.
        padded = {(name, a) for (name, _), axes in self.padding.items() for a in axes}
        for name, axes in wanted.items():
            if name not in views:
                mine = self.graph.tensors[name].axes
                self.lead[name] = tuple(a for a in axes if a in mine and (name, a) not in padded)
