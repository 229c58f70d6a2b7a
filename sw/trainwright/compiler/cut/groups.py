"""Operations that are computed together, a slice of their results at a time, and what is cut.

A tensor too large to lie in the scratchpad whole is made and used up slice by slice: the operation
that makes it and those that read it are one stage, cut along axes that all their results have. So
no sum is ever cut. Where there is no such axis the tensor goes through the outer memory.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trainwright.compiler.forms.choices import Choice, Chosen, Given
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import share
from trainwright.graph.ir import Einsum, Graph, Unfold, View
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters

BUDGETS = (0.12, 0.065, 0.035, 0.15, 0.25, 0.45, 0.01)
"""Parts of the scratchpad that the slices of a stage may take, the likely ones first: slices must
be small enough for what is read together to lie in different banks."""
LARGEST = max(BUDGETS)


@dataclass
class Group:
    """Operations of one stage, by their places in the program."""

    members: list[int]
    big: set[str]
    chained: bool = False
    """Whether it is all that is computed of samples: then slices are of samples alone."""


class Groups:
    """The stages of one program; a tensor of more than ``large`` rows is used up in slices.

    With ``deep`` sums are cut along several axes, too. With ``chained`` all that is computed of
    samples is one stage, if it can be: what is small, before and after what is used up in slices,
    is then computed beside other slices.
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Given],
        chosen: Chosen,
        stored: Collection[str],
        p: AcceleratorParameters,
        *,
        large: int,
        deep: bool = False,
        chained: bool = False,
    ):
        self.given, self.large, self.deep, self.chained = given, large, deep, chained
        self.graph, self.chosen, self.stored, self.p = graph, chosen, set(stored), p
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

    # Groups.

    def rows(self, name: str) -> int:
        """Rows of a tensor in the layout in which it is made, or first read."""
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
        """Of each tensor the axes along the lanes, as it is made and as it is read."""
        found: dict[str, list[Axes]] = {}
        for choice in self.choices:
            for work in choice.works:
                if work.impl is None:
                    found.setdefault(choice.op.out, []).append(choice.lanes)
                    continue
                found.setdefault(work.impl.z, []).append(work.impl.along)
                for need in work.impl.needs:
                    found.setdefault(need.tensor, []).append(need.lanes)
        return found

    def _common(self, members: Sequence[int]) -> set[str]:
        """The axes that all results have."""
        sets = [set(self.graph.tensors[self.choices[n].op.out].axes) for n in members]
        return {a for a in set.intersection(*sets) if self.graph.sizes[a] > 1}

    def _grouped(self) -> list[Group]:
        """Groups in an order in which they can be computed."""
        of = {n: Group([n], set()) for n in range(len(self.choices))}
        names = set(self.place) | set(self.graph.given)
        large = [name for name in names if self.rows(name) > self.large]
        for name in sorted(large, key=lambda name: (-self.rows(name), name)):
            members = {
                n
                for n in self.readers.get(name, ())
                if not isinstance(self.choices[n].op, View | Unfold)
            }
            members |= {self.place[name]} if name in self.place else set()
            if name in self.place and isinstance(self.choices[self.place[name]].op, View | Unfold):
                for n in members:
                    of[n].big.add(name)
                continue
            if name not in self.place:  # given: each reader takes its slices
                for n in members:
                    of[n].big.add(name)
                continue
            joined = sorted({m for n in members for m in of[n].members})
            if not self._common(joined):
                for n in members:
                    of[n].big.add(name)
                continue
            group = Group(joined, {name}.union(*(of[n].big for n in members)))
            if self._least(group) > LARGEST * self.p.scratchpad_rows:
                for n in members if self.deep else (self.place[name],):
                    of[n].big.add(name)
                continue
            before = dict(of)
            of |= {n: group for n in joined}
            if self._sorted(of) is None:
                of = before
        ordered = self._sorted(self._chain(of) if self.chained else of)
        assert ordered is not None
        return ordered

    @property
    def chain(self) -> bool:
        """Whether all that is computed of samples is one stage."""
        return any(group.chained for group in self.groups)

    def _chain(self, of: dict[int, Group]) -> dict[int, Group]:
        """The groups with one of all that is computed of samples, where there can be one."""
        sampled = [
            n
            for n, choice in enumerate(self.choices)
            if SAMPLES in self.graph.tensors[choice.op.out].axes
        ]
        joined = sorted({m for n in sampled for m in of[n].members})
        big = {self.choices[n].op.out for n in sampled}
        group = Group(joined, big, chained=True)
        if len(sampled) < 2 or SAMPLES not in self._common(joined) | self._partial(group):
            return of
        chain = of | dict.fromkeys(joined, group)
        return of if self._sorted(chain) is None else chain

    def _sorted(self, of: dict[int, Group]) -> list[Group] | None:
        """The groups, each after all that it reads; ``None`` where they wait for each other."""
        groups = list({id(group): group for group in of.values()}.values())
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

    # Cuts.

    def _unit(self, axis: str, choices: Sequence[Choice]) -> int:
        """Of what the slices of an axis are multiples; 0 where it cannot be cut, -1: one value."""
        unit, single = 1, False
        for choice in choices:
            lanes = [choice.lanes] if choice.lanes else []
            for name in (choice.op.out, *choice.op.operands):
                lanes += self._layouts(name)
                if name in self.given and not self.given[name].again:
                    lanes += [one.lanes for one in self.given[name].stored if one.lanes]
            for work in choice.works:
                if work.impl:
                    lanes += [work.impl.along, *(need.lanes for need in work.impl.needs)]
                    single |= axis in work.impl.rows[1:] and not work.impl.dot
            for group in lanes:
                if axis in group:
                    if group != (axis,):
                        return 0
                    unit = self.p.lanes
        names = {name for choice in choices for name in (choice.op.out, *choice.op.operands)}
        if any(axis in axes for name, _, axes in self.chosen.pads if name in names):
            return 0
        return (-1 if unit == 1 else 0) if single else unit

    def _partial(self, group: Group) -> set[str]:
        """Axes along which sums can be taken in parts: members either sum them or keep them."""
        found: set[str] | None = None
        for n in group.members:
            op = self.choices[n].op
            axes = set(self.graph.tensors[op.out].axes)
            axes |= set(self.graph.summed(op)) if isinstance(op, Einsum) else set()
            found = axes if found is None else found & axes
        found = found or set()
        found &= {axis for name in group.big for axis in self.graph.tensors[name].axes}
        return {a for a in found if self.graph.sizes[a] > 1} - self._common(group.members)

    def _need(self, group: Group, chunks: dict[str, int]) -> float:
        """Rows that the large tensors of a group take in a slice."""
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
        """Rows that the large tensors of a group take in the smallest slices."""
        choices = [self.choices[n] for n in group.members]
        axes = self._common(group.members) | self._partial(group)
        chunks = {axis: abs(self._unit(axis, choices)) for axis in axes}
        return self._need(group, {axis: unit for axis, unit in chunks.items() if unit})

    @cached_property
    def spilled(self) -> set[str]:
        """Large tensors that not all operations read in the stage that makes them; ``deep``, also
        less large ones beside larger ones that are used up in slices.
        """
        found = set()
        for group in self.groups:
            large = self.large // 2 if self.deep and group.big else self.large
            for n in group.members:
                name = self.choices[n].op.out
                outside = set(self.readers.get(name, ())) - set(group.members)
                view = isinstance(self.choices[n].op, View | Unfold)
                if outside and not view and self.rows(name) > large:
                    found.add(name)
        return found
