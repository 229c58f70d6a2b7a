"""Enumerate and rank the cuts of a program's stages.

``Stages.options`` yields lists of stages, the likely fastest first; ``step.drafts`` takes as many
as it has patience for. Where the scratchpad is long, a cut is judged by the share of it that slices
take (``BUDGETS``). Where it is short (``deep``), cuts are ranked by estimated cycles and rows
(``cut.costs``), as most of them would not fit.
"""

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
"""Share of a short scratchpad that a stage may take by the estimate; the rest absorbs its errors.
"""
MOST_CUTS = 5
"""Cuts of the heaviest stage that are tried where the scratchpad is short."""
MOST_USUAL = 6
"""Cuts of all stages by shares of the scratchpad that are tried there, too."""
MOST_AXES = 3
"""Axes that a stage is cut along, at most: permutations of more take too long to rank."""


class _Cuts(NamedTuple):
    """Axes that are cut, and the values of a slice of each."""

    loops: Loops
    any_order: bool = False
    """Whether ``Stages._ordered`` chooses the order of the loops later."""


class Stages(Costs):
    """Stages of one program, cut."""

    def _chunks(self, group: Group, axes: Iterable[str]) -> list[tuple[str, list[int]]]:
        """Return the axes that can be cut, each with the values that a slice can have."""
        choices, sizes, cuttable = [self.choices[n] for n in group.members], self.graph.sizes, []
        for axis in sorted(axes):
            unit = self._unit(axis, choices)
            if unit == -1:
                cuttable.append((axis, [1]))
            elif unit and sizes[axis] > unit:
                # Divisors leave no short last slice; a prime size has none but 1, hence the units.
                chunks = [c for c in range(unit, sizes[axis], unit) if sizes[axis] % c == 0]
                cuttable.append((axis, chunks or [c for c in (unit, 2 * unit) if c < sizes[axis]]))
        return cuttable

    def _loops(self, group: Group, *, parts: bool) -> Sequence[_Cuts]:
        """Return the cuts of a group; with ``parts`` those that cut sums."""
        # Cached, because both ``_ranked`` and ``_candidates`` ask.
        key = tuple(group.members), parts
        if key not in self._cuts:
            self._cuts[key] = tuple(self._new_loops(group, parts=parts))
            count("cuts", len(self._cuts[key]))
        return self._cuts[key]

    @cached_property
    def _cuts(self) -> dict[tuple[tuple[int, ...], bool], tuple[_Cuts, ...]]:
        """Cache cuts of groups, by their members and whether sums are cut."""
        return {}

    def _new_loops(self, group: Group, *, parts: bool) -> Iterator[_Cuts]:
        """Find the cuts that ``_loops`` returns; sums are cut innermost or outermost."""
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
            for order in permutations(axes, number):
                for loops in _chunked(order, ()):
                    if not parts:
                        yield _Cuts(loops)
                        continue
                    for axis, chunks in self._chunks(group, self._partial(group)):
                        for chunk in chunks:
                            # Innermost, the parts of one slice follow each other and the running
                            # sum stays near; outermost, the operands of a part are loaded once.
                            yield _Cuts((*loops, (axis, chunk)))
                            if loops and not self.deep:
                                yield _Cuts(((axis, chunk), *loops))

    def _deep(self, group: Group, common: list[tuple[str, list[int]]]) -> Iterator[_Cuts]:
        """Find cuts of sums along several axes, in an order that is chosen later."""
        partial = self._chunks(group, self._partial(group))
        for number in range(2, MOST_AXES + 1):
            for summed in combinations(partial, number):
                for free in range(min(MOST_AXES, len(common)) + 1):
                    for kept in combinations(common, free):
                        for loops in _chunked((*kept, *summed), ()):
                            yield _Cuts(loops, any_order=True)

    def _fits(self, group: Group, loops: Loops, *, any_order: bool = False) -> bool:
        """Return whether a cut fits in the scratchpad, by the estimate of ``_rows_for``."""
        # The bound is a sum of float products: without slack, rounding could refuse a cut whose
        # exact estimate fits. 1e-9 is above such errors and far below a row.
        slack = 1 + 1e-9 if any_order else 1.0
        rows = self._rows_for(group, loops, any_order=any_order)
        return rows <= FULL * self.p.scratchpad_rows * slack

    def _ordered(self, group: Group, cuts: _Cuts) -> Loops:
        """Return the loops of a cut, in the best order if the order is free.

        Axes along which arrays divide are innermost, so that both arrays have work in every
        iteration; the rest take the order that loads least of those that fit, or of all.
        """
        if not cuts.any_order:
            return cuts.loops
        loops = cuts.loops
        works = [work for n in group.members for work in self.choices[n].works]
        divided = {work.cut[0] for work in works if work.cut}
        inner = tuple(loop for loop in loops if loop[0] in divided)
        outer = [loop for loop in loops if loop[0] not in divided]
        orders = [(*permuted, *inner) for permuted in permutations(outer)]
        # Rows take longer to count than loads, and the order that loads least mostly fits.
        orders.sort(key=lambda order: self._loaded(group, order))
        if not self._fits(group, loops, any_order=True):
            return orders[0]
        return next((order for order in orders if self._fits(group, order)), orders[0])

    def options(self) -> Iterator[list[Stage]]:
        """Yield cuts of all stages, the likely fastest first.

        With ``deep``, cuts of the heaviest stage by estimated cycles come first, then the cuts by
        shares of the scratchpad that have the fewest slices.
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
        """Yield cuts of the heaviest stage, each with the best cut of every other stage."""
        every = [self._ranked(group) for group in self.groups]
        if not all(every):
            return
        heavy = max(range(len(every)), key=lambda n: self._cycles(self.groups[n]))
        for loops in every[heavy][:MOST_CUTS]:
            cuts = [loops if n == heavy else ranked[0] for n, ranked in enumerate(every)]
            option = [self._stage(g, cut) for g, cut in zip(self.groups, cuts, strict=True)]
            for together in (2, 1) if loops else (1,):
                option[heavy] = replace(option[heavy], together=together)
                yield list(option)

    def _ranked(self, group: Group) -> list[Loops]:
        """Return the cuts of a group that fit, the likely fastest first."""
        if not group.big:
            return [()]
        count("cuts", sum(len(self._loops(group, parts=parts)) for parts in (False, True)))
        # Six loops have 720 orders, so no order is searched for slices too large in any order: for
        # `fashion-conv` this drops all 9,164 cuts of sums along several axes.
        orders = dict.fromkeys(
            self._ordered(group, cuts)
            for parts in (False, True)
            for cuts in self._loops(group, parts=parts)
            if self._fits(group, cuts.loops, any_order=True)
        )
        fitting = [loops for loops in orders if self._fits(group, loops)]
        return sorted(fitting, key=lambda loops: (self._time(group, loops), loops))

    def _options(self, budgets: Sequence[float]) -> Iterator[list[Stage]]:
        """Yield cuts whose slices keep to shares of the scratchpad."""
        for budget in budgets:
            for parts in (False, True):
                for option in self._option(budget, parts=parts):
                    yield option
                    # Two slices at once take twice the rows: tried only where that is still a share
                    # worth trying.
                    if budget * 2 < LARGEST and any(stage.loops for stage in option):
                        yield [replace(s, together=2 if s.loops else 1) for s in option]

    def _option(self, budget: float, *, parts: bool) -> list[list[Stage]]:
        """Return up to two lists of stages that keep to a share of the scratchpad, or none.

        With ``parts`` a sum is cut where that gives small enough slices with fewer rows to add.
        """
        best: list[list[Loops]] = []
        for number, group in enumerate(self.groups):
            cuts = self._within(number, budget, parts=parts and bool(group.big))
            cuts = cuts or self._within(number, budget, parts=False)
            if not cuts:
                return []
            best.append(self._best(group, cuts))
        # A second list where any stage has a second cut that is as good by these measures: the
        # estimate of the schedule decides between them.
        return [
            [
                self._stage(group, cuts[n % len(cuts)])
                for group, cuts in zip(self.groups, best, strict=True)
            ]
            for n in range(min(2, max(len(cuts) for cuts in best)))
        ]

    def _stage(self, group: Group, loops: Loops) -> Stage:
        choices = tuple(self.choices[n] for n in group.members)
        return Stage(choices, loops, kept=self._kept(group, loops))

    def _within(self, number: int, budget: float, *, parts: bool) -> list[tuple]:
        """Return the cuts of a group that keep to a share of the scratchpad."""
        key = number, parts
        if key not in self._known:
            self._known[key] = self._candidates(self.groups[number], parts=parts)
        most = budget * self.p.scratchpad_rows
        return [candidate for candidate in self._known[key] if candidate[3] <= most]

    def _best(self, group: Group, candidates: Sequence[tuple]) -> list[Loops]:
        """Return the cuts that add as few rows and have as few slices as the first.

        Cuts along samples come first (not with ``deep``), then those that load the fewest rows.
        """
        loaded = []
        for added, slices, sampled, need, cuts in candidates:
            if (added, slices) == candidates[0][:2]:
                loops = self._ordered(group, cuts)
                loaded.append((sampled, self._loaded(group, loops), need, loops))
        return [loops for *_, loops in sorted(loaded)]

    def _candidates(self, group: Group, *, parts: bool) -> list[tuple]:
        """Return (rows added, slices, -1 if samples are cut, rows of a slice, cut), the best first.

        With ``deep`` the third entry is 0: loads decide there.
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
