"""Decide which operations are computed together, a slice of their results at a time.

A tensor too large to lie in the scratchpad whole is computed and used up slice by slice: the
operations that compute and read it form one group, cut along axes that all their results have. Such
a cut divides no sum, so it changes no bit of a result. Where no such axis exists the tensor goes
through external memory ("spilled"), or its sums are taken in parts. ``Groups`` takes the choices of
``choose`` and sorts its groups so that each can be computed after those before; ``cut.costs`` and
``cut.stages`` build on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trainwright.compiler.forms.choices import Choice, Chosen, ProgramSpec
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import share
from trainwright.graph.network import SAMPLES

BUDGETS = (0.12, 0.065, 0.035, 0.15, 0.25, 0.45, 0.01)
"""Shares of the scratchpad that the slices of a stage may take, the likely best first.

Small slices come first: tensors that are read together then find room in different banks, and two
reads of one bank take twice the cycles.
"""
LARGEST = max(BUDGETS)
"""Share of the scratchpad above which no slice of a group is tried."""


@dataclass
class Group:
    """Operations of one stage, by their numbers in the program."""

    members: list[int]
    big: set[str]
    chained: bool = False
    """Whether the group holds every operation on samples, and its slices are of samples alone."""


class Groups:
    """Groups of the operations of one program.

    A tensor of more than ``large`` rows is used up in slices. With ``deep`` sums are cut along
    several axes, too. With ``chained`` all operations on samples are one group if possible: the
    small ones before and after a large tensor are then computed next to other slices.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        chosen: Chosen,
        *,
        large: int,
        deep: bool = False,
        chained: bool = False,
    ):
        self.large, self.deep, self.chained = large, deep, chained
        self.graph, self.given, self.p = spec.graph, spec.given, spec.p
        self.chosen, self.stored = chosen, set(spec.stored)
        self.choices = chosen.choices
        self.place = {choice.op.out: n for n, choice in enumerate(self.choices)}
        self.readers: dict[str, list[int]] = {}
        for n, choice in enumerate(self.choices):
            for name in choice.op.operands:
                self.readers.setdefault(name, []).append(n)
        self._rows: dict[str, int] = {}
        self._lanes = self._every_layout()
        self._known: dict[tuple[int, bool], list[tuple]] = {}
        self._reads: dict[tuple[int, ...], list[str]] = {}
        self._read_in: dict[tuple[tuple[int, ...], str], float] = {}
        self.groups = self._grouped()

    # -- groups ------------------------------------------------------------------------------------
    def rows(self, name: str) -> int:
        """Return the rows of a tensor in the layout in which it is computed, or first read."""
        if name not in self._rows:
            self._rows[name] = self._count(name)
        return self._rows[name]

    def _count(self, name: str) -> int:
        window = self.graph.windows.get(name)
        if window:
            return int(self.rows(window.x) * share(self.graph, window, {}))
        lanes = next(iter(self._layouts(name)), self.graph.tensors[name].axes[-1:])
        size = prod(self.graph.sizes[a] for a in lanes)
        digits = self.graph.tensors[name].digits
        return self.graph.count(name) // size * up(size, self.p.lanes) * digits

    def _layouts(self, name: str) -> list[Axes]:
        return self._lanes.get(name, [])

    def _every_layout(self) -> dict[str, list[Axes]]:
        """Return for each tensor the axes along the lanes, as it is written and as it is read."""
        lanes: dict[str, list[Axes]] = {}
        for choice in self.choices:
            for work in choice.works:
                if work.impl is None:
                    lanes.setdefault(choice.op.out, []).append(choice.lanes)
                    continue
                lanes.setdefault(work.impl.z, []).append(work.impl.along)
                for need in work.impl.needs:
                    lanes.setdefault(need.tensor, []).append(need.lanes)
        return lanes

    def _common(self, members: Sequence[int]) -> set[str]:
        """Return the axes that all results have."""
        sets = [set(self.graph.tensors[self.choices[n].op.out].axes) for n in members]
        return {a for a in set.intersection(*sets) if self.graph.sizes[a] > 1}

    def _grouped(self) -> list[Group]:
        """Join operations to groups, and sort the groups so that each follows what it reads."""
        group_by_op = {n: Group([n], set()) for n in range(len(self.choices))}
        names = set(self.place) | set(self.graph.given)
        large = [name for name in names if self.rows(name) > self.large]
        # The largest tensor chooses first: it gains most from slices, and every join removes axes
        # that a later join could be cut along.
        for name in sorted(large, key=lambda name: (-self.rows(name), name)):
            members = {n for n in self.readers.get(name, ()) if not self.choices[n].op.is_alias}
            members |= {self.place[name]} if name in self.place else set()
            # A view or an unfolding has no rows of its own: its readers take slices of the source.
            if name in self.place and self.choices[self.place[name]].op.is_alias:
                for n in members:
                    group_by_op[n].big.add(name)
                continue
            if name not in self.place:  # in external memory: each reader loads its slices
                for n in members:
                    group_by_op[n].big.add(name)
                continue
            joined = sorted({m for n in members for m in group_by_op[n].members})
            # Without a common axis a join would cut sums: the members stay apart and the tensor is
            # cut in each of them on its own.
            if not self._common(joined):
                for n in members:
                    group_by_op[n].big.add(name)
                continue
            group = Group(joined, {name}.union(*(group_by_op[n].big for n in members)))
            # Even the smallest slices of all members would not fit side by side.
            if self._least(group) > LARGEST * self.p.scratchpad_rows:
                for n in members if self.deep else (self.place[name],):
                    group_by_op[n].big.add(name)
                continue
            before = dict(group_by_op)
            group_by_op |= {n: group for n in joined}
            # A join may close a cycle: a third operation would have to come before and after the
            # group.
            if self._sorted(group_by_op) is None:
                group_by_op = before
        ordered = self._sorted(self._chain(group_by_op) if self.chained else group_by_op)
        assert ordered is not None
        return ordered

    @property
    def chain(self) -> bool:
        """Return whether all operations on samples form one group."""
        return any(group.chained for group in self.groups)

    def _chain(self, group_by_op: dict[int, Group]) -> dict[int, Group]:
        """Join all operations on samples to one group, if that is possible."""
        sampled = [
            n
            for n, choice in enumerate(self.choices)
            if SAMPLES in self.graph.tensors[choice.op.out].axes
        ]
        joined = sorted({m for n in sampled for m in group_by_op[n].members})
        big = {self.choices[n].op.out for n in sampled}
        group = Group(joined, big, chained=True)
        if len(sampled) < 2 or SAMPLES not in self._common(joined) | self._partial(group):
            return group_by_op
        chain = group_by_op | dict.fromkeys(joined, group)
        return group_by_op if self._sorted(chain) is None else chain

    def _sorted(self, group_by_op: dict[int, Group]) -> list[Group] | None:
        """Return the groups, each after what it reads; ``None`` where two wait for each other."""
        groups = list({id(group): group for group in group_by_op.values()}.values())
        done: set[int] = set()
        ordered: list[Group] = []
        while groups:
            for group in groups:
                needs = {
                    self.place[name]
                    for n in group.members
                    for name in self.choices[n].op.operands
                    if name in self.place
                }
                if needs <= done | set(group.members):
                    break
            else:
                return None
            groups.remove(group)
            ordered.append(group)
            done |= set(group.members)
        return ordered

    # -- cuts --------------------------------------------------------------------------------------
    def _unit(self, axis: str, choices: Sequence[Choice]) -> int:
        """Return the unit of an axis's slices, 0: it cannot be cut, -1: a slice has one value."""
        unit, single = 1, False
        for choice in choices:
            # A value depends on its whole group, so that no slice has a part of one.
            if axis in choice.op.over:
                return 0
            lanes = [choice.lanes] if choice.lanes else []
            for name in (choice.op.out, *choice.op.operands):
                lanes += self._layouts(name)
                if name in self.given and not self.given[name].again:
                    lanes += [given.lanes for given in self.given[name].stored if given.lanes]
            for work in choice.works:
                if work.impl:
                    lanes += [work.impl.along, *(need.lanes for need in work.impl.needs)]
                    # PE2 takes the rows of a tile as one even index; an inner axis of it that is
                    # cut breaks the index, unless a slice has a single value of the axis.
                    single |= axis in work.impl.rows[1:] and not work.impl.array.along_lanes
            for group in lanes:
                if axis in group:
                    # Lanes can be cut only between whole rows, so an axis that shares the lanes
                    # stays whole.
                    if group != (axis,):
                        return 0
                    unit = self.p.lanes
        names = {name for choice in choices for name in (choice.op.out, *choice.op.operands)}
        # Rows of zeros follow the whole run of padded axes: a slice would lack them.
        if any(axis in axes for name, _, axes in self.chosen.pads if name in names):
            return 0
        return (-1 if unit == 1 else 0) if single else unit

    def _partial(self, group: Group) -> set[str]:
        """Return the axes along which sums can be cut: every member sums or keeps them."""
        shared: set[str] | None = None
        for n in group.members:
            op = self.choices[n].op
            axes = set(self.graph.tensors[op.out].axes)
            axes |= set(self.graph.summed(op))
            shared = axes if shared is None else shared & axes
        shared = shared or set()
        shared &= {axis for name in group.big for axis in self.graph.tensors[name].axes}
        return {a for a in shared if self.graph.sizes[a] > 1} - self._common(group.members)

    def _need(self, group: Group, chunks: dict[str, int]) -> float:
        """Return the rows that the large tensors of a group take in a slice."""
        total = 0.0
        for name in group.big:
            window = self.graph.windows.get(name)
            if window:
                total += self.rows(window.x) * share(self.graph, window, chunks)
                continue
            part = self.rows(name)
            for axis in self.graph.tensors[name].axes:
                if axis in chunks:
                    part *= chunks[axis] / self.graph.sizes[axis]
            total += part
        return total

    def _least(self, group: Group) -> float:
        """Return the rows that the large tensors of a group take in the smallest slices."""
        choices = [self.choices[n] for n in group.members]
        axes = self._common(group.members) | self._partial(group)
        chunks = {axis: abs(self._unit(axis, choices)) for axis in axes}
        return self._need(group, {axis: unit for axis, unit in chunks.items() if unit})

    @cached_property
    def spilled(self) -> set[str]:
        """Return the large tensors with a reader outside of the stage that computes them.

        With ``deep`` the bound is half as high for results of a group that is sliced: the slices of
        its larger tensors need the rows.
        """
        names = set()
        for group in self.groups:
            large = self.large // 2 if self.deep and group.big else self.large
            for n in group.members:
                name = self.choices[n].op.out
                outside = set(self.readers.get(name, ())) - set(group.members)
                view = self.choices[n].op.is_alias
                if outside and not view and self.rows(name) > large:
                    names.add(name)
        return names
