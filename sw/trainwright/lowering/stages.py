"""Which operations are computed together, a slice of their results at a time, and in what slices.

A tensor too large to lie in the scratchpad whole is made and used up slice by slice: the operation
that makes it and those that read it are one stage, cut along axes that all their results have. So
no sum is ever cut. Where there is no such axis the tensor goes through the outer memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from math import prod

from trainwright.graph.ir import Einsum, Graph, View, Window
from trainwright.lowering.choices import Choice, Chosen, Cut, Given
from trainwright.lowering.impls import up
from trainwright.lowering.layout import Axes
from trainwright.lowering.slices import Stage
from trainwright.lowering.windows import share
from trainwright.parameters import AcceleratorParameters

BUDGETS = (0.12, 0.065, 0.035, 0.15, 0.25, 0.45, 0.01)
"""Parts of the scratchpad that the slices of a stage may take, the likely ones first: slices must
be small enough for what is read together to lie in different banks."""
LARGEST = max(BUDGETS)
FULL = 0.92
"""Part of the scratchpad that a stage may take, by an estimate, where it is short."""
PLACES = 3
"""Slices of a tensor that are there at once."""
SLICE = 200
"""Cycles that arrays lose at a slice, about."""
MOST_CUTS = 5
"""Ways to cut a stage that are tried where the scratchpad is short."""
KEPT = 0.25
"""Part of the scratchpad that may hold what is read again in other slices."""
TURNED = 4
"""Loads of what the host writes that cost as much as one of what was stored."""
MOST_AXES = 3
"""Axes that a stage is cut along."""

Loops = tuple[tuple[str, int], ...]


@dataclass
class _Group:
    """Operations of one stage, by their places in the program."""

    members: list[int]
    big: set[str]


class Stages:
    """The stages of one program; a tensor of more than ``large`` rows is used up in slices.

    With ``deep`` sums are cut along several axes, too.
    """

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Given],
        chosen: Chosen,
        stored: Sequence[str],
        p: AcceleratorParameters,
        *,
        large: int,
        deep: bool = False,
    ):
        self.given, self.large, self.deep = given, large, deep
        self.graph, self.chosen, self.stored, self.p = graph, chosen, set(stored), p
        self.choices = chosen.choices
        self.place = {choice.op.out: n for n, choice in enumerate(self.choices)}
        self.readers: dict[str, list[int]] = {}
        for n, choice in enumerate(self.choices):
            for name in choice.op.operands:
                self.readers.setdefault(name, []).append(n)
        self._lanes = self._every_layout()
        self._known: dict[tuple[int, bool], list[tuple]] = {}
        self.groups = self._grouped()

    # Groups.

    def rows(self, name: str) -> int:
        """Rows of a tensor in the layout in which it is made, or first read."""
        window = self.graph.windows.get(name)
        if window:
            return int(self.rows(window.x) * share(self.graph, window, {}))
        lanes = next(iter(self._layouts(name)), self.graph.tensors[name].axes[-1:])
        size = prod(self.graph.sizes[a] for a in lanes)
        return self.graph.count(name) // size * up(size, self.p.lanes)

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

    def _grouped(self) -> list[_Group]:
        """Groups in an order in which they can be computed."""
        of = {n: _Group([n], set()) for n in range(len(self.choices))}
        names = set(self.place) | set(self.graph.given)
        large = [name for name in names if self.rows(name) > self.large]
        for name in sorted(large, key=lambda name: (-self.rows(name), name)):
            members = {
                n
                for n in self.readers.get(name, ())
                if not isinstance(self.choices[n].op, View | Window)
            }
            members |= {self.place[name]} if name in self.place else set()
            if name in self.place and isinstance(self.choices[self.place[name]].op, View | Window):
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
            group = _Group(joined, {name}.union(*(of[n].big for n in members)))
            if self._least(group) > LARGEST * self.p.scratchpad_rows:
                for n in members if self.deep else (self.place[name],):
                    of[n].big.add(name)
                continue
            before = dict(of)
            of |= {n: group for n in joined}
            if self._sorted(of) is None:
                of = before
        ordered = self._sorted(of)
        assert ordered is not None
        return ordered

    def _sorted(self, of: dict[int, _Group]) -> list[_Group] | None:
        """The groups, each after all that it reads; ``None`` where they wait for each other."""
        groups = list({id(group): group for group in of.values()}.values())
        done: set[int] = set()
        ordered: list[_Group] = []
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
                if name in self.given and (fixed := self.given[name].lanes):
                    lanes.append(fixed)
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

    def _partial(self, group: _Group) -> set[str]:
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

    def _chunks(self, group: _Group, axes: Iterable[str]) -> list[tuple[str, list[int]]]:
        """Of each axis that can be cut, the values that a slice can have."""
        choices, sizes, found = [self.choices[n] for n in group.members], self.graph.sizes, []
        for axis in sorted(axes):
            unit = self._unit(axis, choices)
            if unit == -1:
                found.append((axis, [1]))
            elif unit and sizes[axis] > unit:
                chunks = [c for c in range(unit, sizes[axis], unit) if sizes[axis] % c == 0]
                found.append((axis, chunks or [c for c in (unit, 2 * unit) if c < sizes[axis]]))
        return found

    def _loops(self, group: _Group, *, parts: bool) -> Iterator[Loops]:
        """Ways to cut a group; with ``parts`` sums are cut, too, innermost."""
        axes = self._chunks(group, self._common(group.members))
        if not parts:
            yield ()
        elif self.deep:
            yield from self._deep(group, axes)
        for count in range(1 - parts, min(MOST_AXES, len(axes)) + 1):
            for some in permutations(axes, count):
                for loops in _chunked(some, ()):
                    if not parts:
                        yield loops
                        continue
                    for axis, chunks in self._chunks(group, self._partial(group)):
                        for chunk in chunks:
                            yield (*loops, (axis, chunk))

    def _deep(self, group: _Group, common: list[tuple[str, list[int]]]) -> Iterator[Loops]:
        """Ways to cut sums along several axes, in the order in which least is loaded."""
        partial = self._chunks(group, self._partial(group))
        for count in range(2, MOST_AXES + 1):
            for summed in combinations(partial, count):
                for free in range(min(MOST_AXES, len(common)) + 1):
                    for some in combinations(common, free):
                        for loops in _chunked((*some, *summed), ()):
                            yield self._ordered(group, loops)

    def _ordered(self, group: _Group, loops: Loops) -> Loops:
        """The same cuts, those along which arrays divide innermost, the others in the order in
        which least is loaded of those for which there are rows."""
        works = [work for n in group.members for work in self.choices[n].works]
        divided = {work.cut[0] for work in works if work.cut}
        inner = tuple(one for one in loops if one[0] in divided)
        outer = [one for one in loops if one[0] not in divided]
        orders = [(*some, *inner) for some in permutations(outer)]
        most = FULL * self.p.scratchpad_rows
        fitting = [order for order in orders if self._rows_for(group, order) <= most]
        return min(fitting or orders, key=lambda order: self._loaded(group, order))

    def _loaded(self, group: _Group, loops: Loops) -> float:
        """Rows of large tensors that are loaded, over all slices; those that lie in outer memory in
        some layout count more, as they are transposed."""
        total, depths = 0.0, dict(self._kept(group, loops))
        for name in self._read(group):
            total += self._again(name, loops[: depths.get(name)]) * self._weight(name)
        return total

    def _read(self, group: _Group) -> list[str]:
        """What a group reads and does not make."""
        made = {self.choices[n].op.out for n in group.members}
        names = {name for n in group.members for name in self.choices[n].op.operands}
        return sorted(names - made)

    def _weight(self, name: str) -> int:
        """What loading a row costs: its bytes, more where it has to be transposed; nothing where it
        stays in the scratchpad."""
        if name in self.given:
            return 1 if self.graph.tensors[name].format.width <= 8 else 2
        return TURNED if name in self.spilled else 0

    def _again(self, name: str, loops: Loops) -> float:
        """Rows of a tensor that are loaded, where what is loaded stays within these loops."""
        axes, sizes = self.graph.tensors[name].axes, self.graph.sizes
        deepest = max((n for n, (axis, _) in enumerate(loops) if axis in axes), default=-1)
        again = (up(sizes[a], c) for a, c in loops[: deepest + 1] if a not in axes)
        return self.rows(name) * prod(again)

    def _kept(self, group: _Group, loops: Loops) -> tuple[tuple[str, int], ...]:
        """What is given and stays where slices read it again, as far as there are rows: that first
        which saves most for a row."""
        if not self.deep:
            return ()
        sizes, found = self.graph.sizes, dict[str, int]()
        ways = []
        for name in (name for name in self._read(group) if name in self.given):
            axes, whole = self.graph.tensors[name].axes, self._again(name, loops)
            for depth in range(len(loops)):
                saved = whole - self._again(name, loops[:depth])
                inner = prod(c / sizes[a] for a, c in loops[:depth] if a in axes)
                if saved > 0:
                    ways.append((-saved / inner / self.rows(name), name, depth, inner))
        left = KEPT * self.p.scratchpad_rows
        for _, name, depth, inner in sorted(ways):
            if name not in found and (rows := inner * self.rows(name)) <= left:
                found[name] = depth
                left -= rows
        return tuple(found.items())

    def _added(self, group: _Group, loops: Loops) -> int:
        """Rows that are added where sums are taken in parts."""
        total = 0
        for n in group.members:
            op = self.choices[n].op
            if isinstance(op, Einsum):
                summed, sizes = self.graph.summed(op), self.graph.sizes
                parts = prod(up(sizes[axis], chunk) for axis, chunk in loops if axis in summed)
                total += self.rows(op.out) * (parts - 1)
        return total

    def _need(self, group: _Group, chunks: dict[str, int]) -> float:
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

    def _least(self, group: _Group) -> float:
        """Rows that the large tensors of a group take in the smallest slices."""
        choices = [self.choices[n] for n in group.members]
        axes = self._common(group.members) | self._partial(group)
        chunks = {axis: abs(self._unit(axis, choices)) for axis in axes}
        return self._need(group, {axis: unit for axis, unit in chunks.items() if unit})

    @cached_property
    def spilled(self) -> set[str]:
        """Large tensors that not all operations read in the stage that makes them; ``deep``, also
        less large ones beside larger ones that are used up in slices."""
        found = set()
        for group in self.groups:
            large = self.large // 2 if self.deep and group.big else self.large
            for n in group.members:
                name = self.choices[n].op.out
                outside = set(self.readers.get(name, ())) - set(group.members)
                view = isinstance(self.choices[n].op, View | Window)
                if outside and not view and self.rows(name) > large:
                    found.add(name)
        return found

    def options(self) -> Iterator[list[Stage]]:
        """Ways to cut all stages, the likely ones first; ``deep``, the fewest slices first."""
        yield from self._deepest() if self.deep else self._options(BUDGETS)

    def _deepest(self) -> Iterator[list[Stage]]:
        """Ways to cut the stage with most to compute, all others in the best way."""
        every = [self._ranked(group) for group in self.groups]
        if not all(every):
            return
        heavy = max(range(len(every)), key=lambda n: self._cycles(self.groups[n]))
        for loops in every[heavy][:MOST_CUTS]:
            ways = [loops if n == heavy else some[0] for n, some in enumerate(every)]
            option = [self._stage(g, one) for g, one in zip(self.groups, ways, strict=True)]
            for together in (2, 1) if loops else (1,):
                option[heavy] = replace(option[heavy], together=together)
                yield list(option)

    def _ranked(self, group: _Group) -> list[Loops]:
        """Ways to cut a group for which there are rows, the likely fastest first."""
        if not group.big:
            return [()]
        found = dict.fromkeys(
            loops for parts in (False, True) for loops in self._loops(group, parts=parts)
        )
        most = FULL * self.p.scratchpad_rows
        fitting = [loops for loops in found if self._rows_for(group, loops) <= most]
        return sorted(fitting, key=lambda loops: (self._time(group, loops), loops))

    def _cycles(self, group: _Group) -> float:
        """Cycles of the array with more to do."""
        total = {True: 0.0, False: 0.0}
        for n in group.members:
            for work in self.choices[n].works:
                if work.impl:
                    share = self._share(self.choices[n].op.out, work.cut)
                    total[work.impl.dot] += work.impl.cycles * share
        return max(total.values())

    def _time(self, group: _Group, loops: Loops) -> float:
        """Cycles of a stage, by an estimate: of the arrays, or of the outer memory."""
        slices = prod(up(self.graph.sizes[a], c) for a, c in loops)
        beats = self._loaded(group, loops) * self.p.beat_cycles
        added = self._added(group, loops)
        return max(self._cycles(group) + added, beats) + SLICE * slices + beats / 4

    def _rows_for(self, group: _Group, loops: Loops) -> float:
        """Rows that a stage takes, by an estimate: slices in several places, what stays whole."""
        made = {self.choices[n].op.out: self.choices[n].op for n in group.members}
        depths, spilled, total = dict(self._kept(group, loops)), self.spilled, 0.0
        for name in sorted({*made, *self._read(group)}):
            rows, cut = self.rows(name), self._part(name, loops)
            layouts = self._layouts_in(group, name)
            if name in made:
                outside = name in self.stored or set(self.readers.get(name, ())) - {*group.members}
                summed = self._added_to(name, made[name], loops)
                whole = outside and (name not in spilled)
                total += (rows if whole else PLACES * cut) + (2 * cut if summed else 0)
            elif name in self.given or name in spilled:
                there = self._part(name, loops[: depths.get(name)])
                total += layouts * min(rows, there + cut)
            else:
                axes = self.graph.tensors[name].axes
                lead = next((n for n, (a, _) in enumerate(loops) if a not in axes), len(loops))
                there = self._part(name, loops[:lead])
                total += rows + (layouts - 1) * min(rows, there + cut)
        return total

    def _part(self, name: str, loops: Loops) -> float:
        """Rows of a tensor within an iteration of loops."""
        axes, sizes = self.graph.tensors[name].axes, self.graph.sizes
        return self.rows(name) * prod(c / sizes[a] for a, c in loops if a in axes)

    def _layouts_in(self, group: _Group, name: str) -> float:
        """Layouts in which a group reads a tensor; of a layout of some values alone, their part."""
        parts: dict[Axes, float] = {}
        for work in (work for n in group.members for work in self.choices[n].works):
            for need in work.impl.needs if work.impl else ():
                if need.tensor == name:
                    part = self._share(name, work.cut)
                    parts[need.lanes] = max(parts.get(need.lanes, 0.0), part)
        return max(1.0, sum(parts.values()))

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

    def _options(self, budgets: Sequence[float]) -> Iterator[list[Stage]]:
        for budget in budgets:
            for parts in (False, True):
                for option in self._option(budget, parts=parts):
                    yield option
                    if budget * 2 < LARGEST and any(stage.loops for stage in option):
                        yield [replace(s, together=2 if s.loops else 1) for s in option]

    def _option(self, budget: float, *, parts: bool) -> list[list[Stage]]:
        """Stages that keep to a part of the scratchpad: the fewest slices first.

        With ``parts`` sums are cut where that gives slices that are small enough with fewer rows
        that are added.
        """
        best: list[list[Loops]] = []
        for number, group in enumerate(self.groups):
            ways = self._within(number, budget, parts=parts and bool(group.big))
            ways = ways or self._within(number, budget, parts=False)
            if not ways:
                return []
            best.append([loops for *cost, _, loops in ways if cost[:2] == list(ways[0][:2])])
        return [
            [
                self._stage(group, ways[n % len(ways)])
                for group, ways in zip(self.groups, best, strict=True)
            ]
            for n in range(min(2, max(len(ways) for ways in best)))
        ]

    def _stage(self, group: _Group, loops: Loops) -> Stage:
        choices = tuple(self.choices[n] for n in group.members)
        return Stage(choices, loops, kept=self._kept(group, loops))

    def _within(self, number: int, budget: float, *, parts: bool) -> list[tuple]:
        """The ways of a group that keep to a part of the scratchpad."""
        key = number, parts
        if key not in self._known:
            self._known[key] = self._ways(self.groups[number], parts=parts)
        most = budget * self.p.scratchpad_rows
        return [way for way in self._known[key] if way[3] <= most]

    def _ways(self, group: _Group, *, parts: bool) -> list[tuple]:
        """Rows added, slices, samples cut or not, rows of a slice, loops: the best first. ``deep``,
        rows loaded for samples."""
        return sorted(
            (
                self._added(group, loops),
                prod(up(self.graph.sizes[a], c) for a, c in loops),
                self._loaded(group, loops) if self.deep else -sum(a == "s" for a, _ in loops),
                self._need(group, dict(loops)),
                loops,
            )
            for loops in self._loops(group, parts=parts)
        )


def _chunked(axes: Sequence[tuple[str, list[int]]], loops: Loops) -> Iterator[Loops]:
    if not axes:
        yield loops
        return
    for chunk in axes[0][1]:
        yield from _chunked(axes[1:], (*loops, (axes[0][0], chunk)))


__all__ = ["BUDGETS", "Stages"]
