"""The ways to cut the stages of a program, the likely ones first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, permutations
from math import prod
from typing import NamedTuple

from trainwright.compiler.base.progress import count
from trainwright.compiler.cut.costs import Costs, Loops
from trainwright.compiler.cut.groups import BUDGETS, LARGEST, Group
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.forms.impls import up
from trainwright.graph.network import SAMPLES

FULL = 0.92
"""Part of the scratchpad that a stage may take, by an estimate, where it is short."""
MOST_CUTS = 5
"""Ways to cut a stage that are tried where the scratchpad is short."""
MOST_USUAL = 6
"""Ways to cut all stages within parts of the scratchpad that are tried then, too."""
MOST_AXES = 3
"""Axes that a stage is cut along."""


class _Cuts(NamedTuple):
    """Axes that are cut and the values of a slice of each."""

    loops: Loops
    any_order: bool = False
    """Whether the order of the loops is chosen later, by ``Stages._ordered``."""


class Stages(Costs):
    """The stages of one program, cut."""

    def _chunks(self, group: Group, axes: Iterable[str]) -> list[tuple[str, list[int]]]:
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

    def _loops(self, group: Group, *, parts: bool) -> Sequence[_Cuts]:
        """Return the ways to cut a group; with ``parts`` sums are cut, too."""
        # Kept, as both ``_ranked`` and ``_ways`` ask.
        key = tuple(group.members), parts
        if key not in self._cuts:
            self._cuts[key] = tuple(self._new_loops(group, parts=parts))
            count("cuts", len(self._cuts[key]))
        return self._cuts[key]

    @cached_property
    def _cuts(self) -> dict[tuple[tuple[int, ...], bool], tuple[_Cuts, ...]]:
        """Ways to cut groups, by their members and whether sums are cut."""
        return {}

    def _new_loops(self, group: Group, *, parts: bool) -> Iterator[_Cuts]:
        """Find ``_loops``; sums are cut innermost or outermost."""
        axes = self._chunks(group, self._common(group.members))
        if group.chained:
            for axis, chunks in self._chunks(group, {SAMPLES}):
                yield from (_Cuts(((axis, chunk),)) for chunk in chunks)
            return
        if not parts:
            yield _Cuts(())
        elif self.deep:
            yield from self._deep(group, axes)
        for number in range(1 - parts, min(MOST_AXES, len(axes)) + 1):
            for some in permutations(axes, number):
                for loops in _chunked(some, ()):
                    if not parts:
                        yield _Cuts(loops)
                        continue
                    for axis, chunks in self._chunks(group, self._partial(group)):
                        for chunk in chunks:
                            yield _Cuts((*loops, (axis, chunk)))
                            if loops and not self.deep:
                                yield _Cuts(((axis, chunk), *loops))

    def _deep(self, group: Group, common: list[tuple[str, list[int]]]) -> Iterator[_Cuts]:
        """Find ways to cut sums along several axes, in an order that is chosen later."""
        partial = self._chunks(group, self._partial(group))
        for number in range(2, MOST_AXES + 1):
            for summed in combinations(partial, number):
                for free in range(min(MOST_AXES, len(common)) + 1):
                    for some in combinations(common, free):
                        for loops in _chunked((*some, *summed), ()):
                            yield _Cuts(loops, any_order=True)

    def _fits(self, group: Group, loops: Loops, *, any_order: bool = False) -> bool:
        """Return whether there are rows for a cut, by an estimate; see ``_rows_for``."""
        # The slack is above the rounding errors of the bound and far below a row.
        slack = 1 + 1e-9 if any_order else 1.0
        rows = self._rows_for(group, loops, any_order=any_order)
        return rows <= FULL * self.p.scratchpad_rows * slack

    def _ordered(self, group: Group, cuts: _Cuts) -> Loops:
        """Return the loops of cuts, in the best order if the order is free.

        Axes along which arrays divide are innermost, the rest in the order that loads least of
        those for which there are rows, or of all.
        """
        if not cuts.any_order:
            return cuts.loops
        loops = cuts.loops
        works = [work for n in group.members for work in self.choices[n].works]
        divided = {work.cut[0] for work in works if work.cut}
        inner = tuple(one for one in loops if one[0] in divided)
        outer = [one for one in loops if one[0] not in divided]
        orders = [(*some, *inner) for some in permutations(outer)]
        # Rows take longer to count than loads, and the order that loads least mostly fits.
        orders.sort(key=lambda order: self._loaded(group, order))
        if not self._fits(group, loops, any_order=True):
            return orders[0]
        return next((order for order in orders if self._fits(group, order)), orders[0])

    def options(self) -> Iterator[list[Stage]]:
        """Ways to cut all stages, the likely ones first; ``deep``, that with most to compute in the
        ways that are likely fastest, then all in the fewest slices.
        """
        if not self.deep:
            yield from self._options(BUDGETS)
            return
        yield from self._deepest()
        every = list(self._options(sorted(BUDGETS, reverse=True)))
        yield from sorted(every, key=lambda option: sum(map(self._slices, option)))[:MOST_USUAL]

    def _slices(self, stage: Stage) -> int:
        return prod(up(self.graph.sizes[a], c) for a, c in stage.loops)

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

    def _ranked(self, group: Group) -> list[Loops]:
        """Ways to cut a group for which there are rows, the likely fastest first."""
        if not group.big:
            return [()]
        count("cuts", sum(len(self._loops(group, parts=parts)) for parts in (False, True)))
        # Six loops have 720 orders, so no order is searched for slices too large in any order:
        # for `fashion-conv` this holds for all 9,164 cuts of sums along several axes.
        found = dict.fromkeys(
            self._ordered(group, cuts)
            for parts in (False, True)
            for cuts in self._loops(group, parts=parts)
            if self._fits(group, cuts.loops, any_order=True)
        )
        fitting = [loops for loops in found if self._fits(group, loops)]
        return sorted(fitting, key=lambda loops: (self._time(group, loops), loops))

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
            best.append(self._best(group, ways))
        return [
            [
                self._stage(group, ways[n % len(ways)])
                for group, ways in zip(self.groups, best, strict=True)
            ]
            for n in range(min(2, max(len(ways) for ways in best)))
        ]

    def _stage(self, group: Group, loops: Loops) -> Stage:
        choices = tuple(self.choices[n] for n in group.members)
        return Stage(choices, loops, kept=self._kept(group, loops))

    def _within(self, number: int, budget: float, *, parts: bool) -> list[tuple]:
        """The ways of a group that keep to a part of the scratchpad."""
        key = number, parts
        if key not in self._known:
            self._known[key] = self._ways(self.groups[number], parts=parts)
        most = budget * self.p.scratchpad_rows
        return [way for way in self._known[key] if way[3] <= most]

    def _best(self, group: Group, ways: Sequence[tuple]) -> list[Loops]:
        """Of the ways with as few added rows and slices as the first: those along samples first,
        but ``deep``, then those that load fewest rows.
        """
        loaded = []
        for added, slices, sampled, need, cuts in ways:
            if (added, slices) == ways[0][:2]:
                loops = self._ordered(group, cuts)
                loaded.append((sampled, self._loaded(group, loops), need, loops))
        return [loops for *_, loops in sorted(loaded)]

    def _ways(self, group: Group, *, parts: bool) -> list[tuple]:
        """Rows added, slices, samples cut or not (but ``deep``), rows of a slice, loops: the best
        first.
        """
        return sorted(
            (
                self._added(group, cuts.loops),
                prod(up(self.graph.sizes[a], c) for a, c in cuts.loops),
                0 if self.deep else -sum(a == SAMPLES for a, _ in cuts.loops),
                self._need(group, dict(cuts.loops)),
                cuts,
            )
            for cuts in self._loops(group, parts=parts)
        )


def _chunked(axes: Sequence[tuple[str, list[int]]], loops: Loops) -> Iterator[Loops]:
    if not axes:
        yield loops
        return
    for chunk in axes[0][1]:
        yield from _chunked(axes[1:], (*loops, (axes[0][0], chunk)))


__all__ = ["BUDGETS", "Stages"]
