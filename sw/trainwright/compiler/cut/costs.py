"""What cuts of a stage cost, by estimates: rows, loads, cycles."""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

from trainwright.compiler.cut.groups import Group, Groups
from trainwright.compiler.forms.choices import Cut
from trainwright.compiler.forms.digits import word_bytes
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Axes
from trainwright.graph.ir import Einsum

Loops = tuple[tuple[str, int], ...]
"""Axes that are cut and how many values a slice has, outermost first."""
PLACES = 3
"""Slices of a tensor that are there at once."""
SLICE = 200
"""Cycles that arrays lose at a slice, about."""
KEPT = 0.25
"""Part of the scratchpad that may hold what is read again in other slices."""
TURNED = 4
"""Loads of what the host writes that cost as much as one of what was stored."""


class _Read(NamedTuple):
    """Tensor that a group reads and does not make."""

    name: str
    axes: frozenset[str]
    rows: int
    weight: int
    """Cost of loading a row, as of ``Costs._weight``."""
    given: bool

    def again(self, counted: Sequence[tuple[str, int]]) -> list[int]:
        """Return the rows loaded within each prefix of loops (axis, slices), the empty one first.

        Inner loops along other axes reuse what lies there, so only loops outside the tensor's
        deepest axis count.
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
    """Groups of operations, and what ways to cut them cost."""

    @cached_property
    def _constants(self) -> dict[tuple[int, ...], list[_Read]]:
        """Constants of what each group reads, by its members."""
        return {}

    def _loaded(self, group: Group, loops: Loops) -> float:
        """Rows of large tensors that are loaded, over all slices; those that lie in outer memory in
        some layout count more, as they are transposed.
        """
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
        """What a group reads and does not make."""
        key = tuple(group.members)
        if key not in self._reads:
            made = {self.choices[n].op.out for n in key}
            names = {name for n in key for name in self.choices[n].op.operands}
            self._reads[key] = sorted(names - made)
        return self._reads[key]

    def _read_as(self, group: Group) -> list[_Read]:
        """Return what a group reads with the constants that every order of loops asks for."""
        # Orders of six loops are 720, each asks for every tensor: looking these constants up
        # anew took four fifths of the compile time of `fashion-conv`.
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
        """What loading a row costs: its bytes, more where it has to be transposed; nothing where it
        stays in the scratchpad.
        """
        if name in self.given:
            return word_bytes(self.graph.tensors[name])
        return TURNED if name in self.spilled else 0

    def _kept(self, group: Group, loops: Loops) -> tuple[tuple[str, int], ...]:
        """What is given and stays where slices read it again, as far as there are rows: that first
        which saves most for a row.
        """
        if not self.deep:
            return ()
        sizes, depths = self.graph.sizes, dict[str, int]()
        counted, ways = self._counted(loops), []
        for read in self._read_as(group):
            if not read.given:
                continue
            again, inner = read.again(counted), 1.0
            if again[-1] == again[0]:
                continue  # no loop loads it twice
            for depth, (axis, chunk) in enumerate(loops):
                saved = again[-1] - again[depth]
                if saved > 0:
                    ways.append((-saved / inner / read.rows, read.name, depth, inner))
                if axis in read.axes:
                    inner *= chunk / sizes[axis]
        left = KEPT * self.p.scratchpad_rows
        for _, name, depth, inner in sorted(ways):
            if name not in depths and (rows := inner * self.rows(name)) <= left:
                depths[name] = depth
                left -= rows
        return tuple(depths.items())

    def _added(self, group: Group, loops: Loops) -> int:
        """Rows that are added where sums are taken in parts."""
        total = 0
        for n in group.members:
            op = self.choices[n].op
            if isinstance(op, Einsum):
                summed, sizes = self.graph.summed(op), self.graph.sizes
                parts = prod(up(sizes[axis], chunk) for axis, chunk in loops if axis in summed)
                total += self.rows(op.out) * (parts - 1)
        return total

    def _cycles(self, group: Group) -> float:
        """Cycles of the array with more to do."""
        total = {True: 0.0, False: 0.0}
        for n in group.members:
            for work in self.choices[n].works:
                if work.impl:
                    share = self._share(self.choices[n].op.out, work.cut)
                    total[work.impl.dot] += work.impl.cycles * share
        return max(total.values())

    def _time(self, group: Group, loops: Loops) -> float:
        """Cycles of a stage, by an estimate: of the arrays, or of the outer memory."""
        slices = prod(up(self.graph.sizes[a], c) for a, c in loops)
        beats = self._loaded(group, loops) * self.p.beat_cycles
        added = self._added(group, loops)
        return max(self._cycles(group) + added, beats) + SLICE * slices + beats / 4

    def _rows_for(self, group: Group, loops: Loops, *, any_order: bool = False) -> float:
        """Estimate the rows of a stage: slices in several places, and tensors that stay whole.

        With ``any_order`` return a lower bound that holds for every order of the loops: no tensor
        stays while a loop runs that does not need it.
        """
        made = {self.choices[n].op.out: self.choices[n].op for n in group.members}
        depths = {} if any_order else dict(self._kept(group, loops))
        spilled, total = self.spilled, 0.0
        for name in sorted({*made, *self._read(group)}):
            rows, cut = self.rows(name), self._part(name, loops)
            layouts = self._layouts_in(group, name)
            if name in made:
                outside = name in self.stored or set(self.readers.get(name, ())) - {*group.members}
                summed = self._added_to(name, made[name], loops)
                whole = outside and (name not in spilled)
                total += (rows if whole else PLACES * cut) + (2 * cut if summed else 0)
            elif name in self.given or name in spilled:
                there = cut if any_order else self._part(name, loops[: depths.get(name)])
                total += layouts * min(rows, there + cut)
            else:
                axes = self.graph.tensors[name].axes
                lead = next((n for n, (a, _) in enumerate(loops) if a not in axes), len(loops))
                there = cut if any_order else self._part(name, loops[:lead])
                total += rows + (layouts - 1) * min(rows, there + cut)
        return total

    def _part(self, name: str, loops: Loops) -> float:
        """Rows of a tensor within an iteration of loops."""
        axes, sizes = self.graph.tensors[name].axes, self.graph.sizes
        return self.rows(name) * prod(c / sizes[a] for a, c in loops if a in axes)

    def _layouts_in(self, group: Group, name: str) -> float:
        """Layouts in which a group reads a tensor; of a layout of some values alone, their part."""
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
        """The part of the values of a tensor that lies in a cut."""
        if cut is None or cut[0] not in self.graph.tensors[name].axes:
            return 1.0
        return (cut[2] - cut[1]) / self.graph.sizes[cut[0]]

    def _added_to(self, name: str, op: object, loops: Loops) -> bool:
        """Whether a result is a sum in parts."""
        if not isinstance(op, Einsum):
            return False
        summed, sizes = self.graph.summed(op), self.graph.sizes
        return any(axis in summed and chunk < sizes[axis] for axis, chunk in loops)
