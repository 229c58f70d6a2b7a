"""Estimate what a cut of a stage costs: rows, loads and cycles.

A cut is a tuple of loops, each an axis and the number of its values in a slice. ``Costs`` adds to
the groups of ``cut.groups`` the rows that a cut takes in the scratchpad, the rows that it loads
over all slices, and a time made of both. ``cut.stages`` ranks cuts by these figures. They only have
to put cuts in order: the best ones are tiled, issued and timed afterwards.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

from trainwright.compiler.cut.groups import Group, Groups
from trainwright.compiler.forms.choices import Cut
from trainwright.compiler.forms.digits import word_bytes
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Axes
from trainwright.graph.ir import Op
from trainwright.program.fields import Engine

Loops = tuple[tuple[str, int], ...]
"""Axes that are cut and how many values a slice has, outermost first."""
PLACES = 3
"""Slices of a tensor that are in the scratchpad at once: one is written, one read, one on its way.
"""
SLICE = 200
"""Approximate cycles that the arrays lose between two slices."""
KEPT = 0.25
"""Share of the scratchpad that tensors may take which stay loaded because other slices read them.
"""
TURNED = 4
"""Cost of loading a row that is then transposed. Rows read as they lie cost their word's bytes."""


class _Read(NamedTuple):
    """Tensor that a group reads and does not compute."""

    name: str
    axes: frozenset[str]
    rows: int
    weight: int
    """Cost of loading a row, from ``Costs._weight``."""
    given: bool

    def again(self, counted: Sequence[tuple[str, int]]) -> list[int]:
        """Return the rows loaded by the first 0, 1, 2, .. loops (axis, slices) of a nest.

        Inner loops along other axes reuse the rows that are loaded, so only loops outside the
        tensor's deepest axis count.
        """
        loaded, outside, times = [self.rows], 1, 1
        for axis, slices in counted:
            if axis in self.axes:
                times = outside
            else:
                outside *= slices
            loaded.append(self.rows * times)
        return loaded


class Costs(Groups):
    """Groups of operations, and the cost of every cut of them."""

    @cached_property
    def _constants(self) -> dict[tuple[int, ...], list[_Read]]:
        """Cache of ``_read_as``, by the members of a group."""
        return {}

    def _loaded(self, group: Group, loops: Loops) -> float:
        """Return the rows that all slices load, weighted by ``_weight``."""
        total, depths = 0.0, dict(self._kept(group, loops))
        counted = self._counted(loops)
        for read in self._read_as(group):
            if read.weight:
                total += read.again(counted[: depths.get(read.name)])[-1] * read.weight
        return total

    def _counted(self, loops: Loops) -> list[tuple[str, int]]:
        """Return the axes of loops with the slices along each."""
        return [(axis, up(self.graph.sizes[axis], chunk)) for axis, chunk in loops]

    def _read(self, group: Group) -> list[str]:
        """Return the tensors that a group reads and does not compute."""
        key = tuple(group.members)
        if key not in self._reads:
            results = {self.choices[n].op.out for n in key}
            names = {name for n in key for name in self.choices[n].op.operands}
            self._reads[key] = sorted(names - results)
        return self._reads[key]

    def _read_as(self, group: Group) -> list[_Read]:
        """Return the operands of a group, each with its rows and weight, from a cache."""
        # Six loops have 720 orders, and each order asks for every operand: without the cache this
        # took four fifths of the compile time of `fashion-conv`.
        key = tuple(group.members)
        if key not in self._constants:
            self._constants[key] = [
                _Read(
                    name, frozenset(self.graph.tensors[name].axes), self.rows(name),
                    self._weight(name), name in self.given,
                )
                for name in self._read(group)
            ]  # fmt: skip
        return self._constants[key]

    def _weight(self, name: str) -> int:
        """Return the cost of loading a row; 0 for a tensor that stays in the scratchpad."""
        if name in self.given:
            return word_bytes(self.graph.tensors[name])
        # A spilled tensor was stored in the layout of its maker, so that most readers have it
        # transposed by PE1 after the load.
        return TURNED if name in self.spilled else 0

    def _kept(self, group: Group, loops: Loops) -> tuple[tuple[str, int], ...]:
        """Return operands that stay loaded, each with the depth of loops from which it stays.

        A tensor that several slices read is worth keeping, but rows are few: the tensors that save
        most loads for a row are taken first, until ``KEPT`` of the scratchpad is used.
        """
        if not self.deep:
            return ()
        sizes, depths = self.graph.sizes, dict[str, int]()
        counted, candidates = self._counted(loops), []
        for read in self._read_as(group):
            if not read.given:
                continue
            again, inner = read.again(counted), 1.0
            if again[-1] == again[0]:
                continue  # no loop loads the tensor twice
            # A tensor that stays from a smaller depth on, further outside, takes more rows and
            # saves more loads.
            for depth, (axis, chunk) in enumerate(loops):
                saved = again[-1] - again[depth]
                if saved > 0:
                    candidates.append((-saved / inner / read.rows, read.name, depth, inner))
                if axis in read.axes:
                    inner *= chunk / sizes[axis]
        left = KEPT * self.p.scratchpad_rows
        # A greedy choice, not the best knapsack: gains are estimates. The name breaks ties, so that
        # a program depends on nothing but its network, batch and accelerator.
        for _, name, depth, inner in sorted(candidates):
            if name not in depths and (rows := inner * self.rows(name)) <= left:
                depths[name] = depth
                left -= rows
        return tuple(depths.items())

    def _added(self, group: Group, loops: Loops) -> int:
        """Return the rows that PE2 adds because sums are taken in parts."""
        total = 0
        for n in group.members:
            op = self.choices[n].op
            summed, sizes = self.graph.summed(op), self.graph.sizes
            parts = prod(up(sizes[axis], chunk) for axis, chunk in loops if axis in summed)
            total += self.rows(op.out) * (parts - 1)
        return total

    def _cycles(self, group: Group) -> float:
        """Return the cycles of the array with more to do."""
        total: defaultdict[Engine, float] = defaultdict(float)
        for n in group.members:
            for work in self.choices[n].works:
                if work.impl:
                    share = self._share(self.choices[n].op.out, work.cut)
                    total[work.impl.engine] += work.impl.cycles * share
        return max(total.values(), default=0.0)

    def _time(self, group: Group, loops: Loops) -> float:
        """Estimate the cycles of a stage from those of its arrays and of the external memory."""
        slices = prod(up(self.graph.sizes[a], c) for a, c in loops)
        beats = self._loaded(group, loops) * self.p.beat_cycles
        added = self._added(group, loops)
        # Arrays and memory work at the same time, so the slower one counts. A quarter of the
        # traffic counts in addition: loads of the first slice and stores of the last have nothing
        # to overlap with.
        return max(self._cycles(group) + added, beats) + SLICE * slices + beats / 4

    def _rows_for(self, group: Group, loops: Loops, *, any_order: bool = False) -> float:
        """Estimate the rows of a stage: slices in several places, and tensors that stay whole.

        With ``any_order`` return a lower bound that holds for every order of the loops: no tensor
        stays while a loop runs that does not need it.
        """
        results = {self.choices[n].op.out: self.choices[n].op for n in group.members}
        depths = {} if any_order else dict(self._kept(group, loops))
        spilled, total = self.spilled, 0.0
        for name in sorted({*results, *self._read(group)}):
            rows, cut = self.rows(name), self._part(name, loops)
            layouts = self._layouts_in(group, name)
            if name in results:
                outside = name in self.stored or set(self.readers.get(name, ())) - {*group.members}
                summed = self._added_to(results[name], loops)
                # A result that later stages read stays whole; any other result needs a few slices
                # only. A sum in parts needs two slices more: one part is computed while another is
                # added.
                whole = outside and (name not in spilled)
                total += (rows if whole else PLACES * cut) + (2 * cut if summed else 0)
            elif name in self.given or name in spilled:
                resident = cut if any_order else self._part(name, loops[: depths.get(name)])
                total += layouts * min(rows, resident + cut)
            else:
                axes = self.graph.tensors[name].axes
                # What an earlier stage left in the scratchpad is there whole. A further layout of
                # it is transposed slice by slice, and stays while the leading loops do not change
                # it.
                lead = next((n for n, (a, _) in enumerate(loops) if a not in axes), len(loops))
                resident = cut if any_order else self._part(name, loops[:lead])
                total += rows + (layouts - 1) * min(rows, resident + cut)
        return total

    def _part(self, name: str, loops: Loops) -> float:
        """Return the rows of a tensor within one iteration of loops."""
        axes, sizes = self.graph.tensors[name].axes, self.graph.sizes
        return self.rows(name) * prod(c / sizes[a] for a, c in loops if a in axes)

    def _layouts_in(self, group: Group, name: str) -> float:
        """Count the layouts in which a group reads a tensor, each by the share that it reads."""
        key = tuple(group.members), name
        if key not in self._read_in:
            parts: dict[Axes, float] = {}
            for work in (work for n in group.members for work in self.choices[n].works):
                for need in work.impl.needs if work.impl else ():
                    if need.tensor == name:
                        part = self._share(name, work.cut)
                        parts[need.lanes] = max(parts.get(need.lanes, 0.0), part)
            self._read_in[key] = max(1.0, sum(parts.values()))
        return self._read_in[key]

    def _share(self, name: str, cut: Cut) -> float:
        """Return the share of a tensor's values that lies in a cut."""
        if cut is None or cut[0] not in self.graph.tensors[name].axes:
            return 1.0
        return (cut[2] - cut[1]) / self.graph.sizes[cut[0]]

    def _added_to(self, op: Op, loops: Loops) -> bool:
        """Return whether loops cut the sums of a result into parts."""
        summed, sizes = self.graph.summed(op), self.graph.sizes
        return any(axis in summed and chunk < sizes[axis] for axis, chunk in loops)
