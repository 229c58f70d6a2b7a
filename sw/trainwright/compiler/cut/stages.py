"""Cut the operations of a program into stages: which are computed together, and in which slices.

A tensor too large to lie in the scratchpad whole is computed and used up slice by slice: the
operations that compute and read it form one group, cut along axes that all their results have. Such
a cut divides no sum, so it changes no bit of a result. Where no such axis exists the tensor goes
through external memory ("spilled"), or its sums are taken in parts.

A cut is a tuple of loops, each an axis and the number of its values in a slice. ``Stages.options``
yields lists of stages, the likely fastest first; ``step.drafts`` takes as many as it has patience
for. In a long scratchpad a cut is judged by the share of the scratchpad that its slices take
(``CutTuning.budgets``). In a short one (``deep``) most cuts would not fit, so they are ranked by
estimated cycles and rows. Estimates only have to put cuts in order: the best ones are tiled, issued
and timed afterwards.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, permutations
from math import prod
from typing import NamedTuple

from trainwright.compiler.base.progress import count
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.forms.choices import Choice, Chosen, Cut, ProgramSpec
from trainwright.compiler.forms.external import word_bytes
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import share
from trainwright.graph.ir import Op, axes_of
from trainwright.graph.network import SAMPLES
from trainwright.program.fields import Engine
from trainwright.support.memo import CachedMethod

UNCUT, ONE = 0, -1
"""Units of an axis that cannot be cut, and of an axis whose slices have exactly one value."""
Loops = tuple[tuple[str, int], ...]
"""Axes that are cut and how many values a slice has, outermost first."""


@dataclass(eq=False)
class Group:
    """Operations of one stage, by their numbers in the program."""

    members: tuple[int, ...]
    large: set[str]
    """Tensors that the group computes or reads slice by slice."""
    chained: bool = False
    """Whether the group holds every operation on samples, and its slices are of samples alone."""


class _Read(NamedTuple):
    """Tensor that a group reads and does not compute."""

    name: str
    axes: frozenset[str]
    rows: int
    weight: int
    """Cost of loading a row, from ``Stages._weight``."""
    given: bool

    def rows_loaded(self, counted: Sequence[tuple[str, int]]) -> list[int]:
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


_Nest = tuple[tuple[str, int, int], ...]
"""Loops of a nest, outermost first: axis, values of a slice, size of the axis."""
_Depths = dict[str, int]
"""Depth of loops from which each operand stays loaded, by name."""


def _depths(
    reads: Sequence[_Read], loaded: Sequence[list[int]], nest: _Nest, room: float
) -> _Depths:
    """Return operands that stay loaded in ``room`` rows, as ``Stages._loads``.

    ``loaded`` has the rows that each operand loads (``_Read.rows_loaded``).
    """
    depths, candidates = _Depths(), []
    for read, rows in zip(reads, loaded, strict=True):
        # No loop loads the tensor twice where the last number is the first.
        if not read.given or rows[-1] == rows[0]:
            continue
        inner = 1.0
        # A tensor that stays from a smaller depth on, further outside, takes more rows and
        # saves more loads.
        for depth, (axis, chunk, size) in enumerate(nest):
            saved = rows[-1] - rows[depth]
            if saved > 0:
                candidates.append((-saved / inner / read.rows, read.name, depth, inner, read.rows))
            if axis in read.axes:
                inner *= chunk / size
    # A greedy choice, not the best knapsack: gains are estimates. The name breaks ties, so that
    # a program depends on nothing but its network, batch and accelerator.
    for _, name, depth, inner, rows in sorted(candidates):
        if name not in depths and (kept := inner * rows) <= room:
            depths[name] = depth
            room -= kept
    return depths


def _nest_loads(reads: Sequence[_Read], nest: _Nest, room: float) -> tuple[float, _Depths]:
    """Return the rows that all slices load, weighted, and the operands kept in ``room`` rows."""
    counted = [(axis, up(size, chunk)) for axis, chunk, size in nest]
    loaded = [read.rows_loaded(counted) for read in reads]
    depths = _depths(reads, loaded, nest, room) if room else {}
    total = 0.0
    for read, rows in zip(reads, loaded, strict=True):
        if read.weight:
            total += rows[depths.get(read.name, -1)] * read.weight
    return total, depths


# Searches of one compilation ask for few nests many times: `fashion` in 2,048 rows for 2,900 in
# 12,900 calls, which took 11 of 21 s.
@lru_cache(4096)
def _by_loads(reads: tuple[_Read, ...], outer: _Nest, inner: _Nest, room: float) -> "array[int]":
    """Return the numbers of the permutations of ``outer``, those that load least first."""
    loads = [_nest_loads(reads, (*order, *inner), room)[0] for order in permutations(outer)]
    return array("H", sorted(range(len(loads)), key=loads.__getitem__))


class _Slicing(NamedTuple):
    """Loops over the slices of a group, in an order that may still be open."""

    loops: Loops
    any_order: bool = False
    """Whether ``Stages._ordered`` chooses the order of the loops later."""


class _Judged(NamedTuple):
    """Slicing with the measures by which slicings of a group are compared, the best the least."""

    added: int
    """Rows that are added because sums are taken in parts."""
    slices: int
    sampled: int
    """-1 if samples are cut. With ``deep`` it is always 0: loads decide there."""
    rows: float
    """Rows of a slice of the large tensors."""
    slicing: _Slicing


class Stages:
    """Stages of one program: its groups of operations, and the cuts of each.

    A tensor of more rows than the scratchpad divided by ``large_divisor`` is used up in slices.
    With ``deep`` sums are cut along several axes, too. With ``chained`` all operations on samples
    are one group if possible: the small ones before and after a large tensor are then computed next
    to other slices.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        chosen: Chosen,
        *,
        large_divisor: int,
        deep: bool = False,
        chained: bool = False,
    ):
        self.graph, self.given, self.p = spec.graph, spec.given, spec.p
        self.large_rows = self.p.scratchpad_rows // large_divisor
        self.deep, self.chained = deep, chained
        self.chosen, self.stored = chosen, set(spec.stored)
        self.choices = chosen.choices
        self.makers = {choice.op.out: n for n, choice in enumerate(self.choices)}
        self.readers: dict[str, list[int]] = {}
        for n, choice in enumerate(self.choices):
            for name in choice.op.operands:
                self.readers.setdefault(name, []).append(n)
        self._lanes = self._every_layout()
        self.groups = self._grouped()

    # -- groups ------------------------------------------------------------------------------------
    @CachedMethod
    def rows(self, name: str) -> int:
        """Return the rows of a tensor in the layout in which it is computed, or first read."""
        window = self.graph.windows.get(name)
        if window:
            return int(self.rows(window.x) * share(self.graph, window, {}))
        lanes = next(iter(self._lanes.get(name, ())), self.graph.tensors[name].axes[-1:])
        size = prod(self.graph.sizes[a] for a in lanes)
        digits = self.graph.tensors[name].digits
        return self.graph.count(name) // size * up(size, self.p.lanes) * digits

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
        group_by_op = {n: Group((n,), set()) for n in range(len(self.choices))}
        names = set(self.makers) | set(self.graph.given)
        large = [name for name in names if self.rows(name) > self.large_rows]
        # The largest tensor chooses first: it gains most from slices, and every join removes axes
        # that a later join could be cut along.
        for name in sorted(large, key=lambda name: (-self.rows(name), name)):
            members = {n for n in self.readers.get(name, ()) if not self.choices[n].op.is_alias}
            members |= {self.makers[name]} if name in self.makers else set()
            joined = tuple(sorted({m for n in members for m in group_by_op[n].members}))
            # A view or an unfolding has no rows of its own: its readers take slices of the source.
            # Each reader of a tensor in external memory loads its slices. Without a common axis a
            # join would cut sums: members stay apart, and the tensor is cut in each on its own.
            alias = name in self.makers and self.choices[self.makers[name]].op.is_alias
            if alias or name not in self.makers or not self._common(joined):
                for n in members:
                    group_by_op[n].large.add(name)
                continue
            group = Group(joined, {name}.union(*(group_by_op[n].large for n in members)))
            # Even the smallest slices of all members would not fit side by side.
            if self._least(group) > TUNING.cut.largest * self.p.scratchpad_rows:
                for n in members if self.deep else (self.makers[name],):
                    group_by_op[n].large.add(name)
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

    def _chain(self, group_by_op: dict[int, Group]) -> dict[int, Group]:
        """Join all operations on samples to one group, if that is possible."""
        sampled = [
            n
            for n, choice in enumerate(self.choices)
            if SAMPLES in self.graph.tensors[choice.op.out].axes
        ]
        joined = tuple(sorted({m for n in sampled for m in group_by_op[n].members}))
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
                    self.makers[name]
                    for n in group.members
                    for name in self.choices[n].op.operands
                    if name in self.makers
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
        """Return the values that a slice has a multiple of along an axis; or ``UNCUT``, ``ONE``."""
        unit, single = 1, False
        for choice in choices:
            # A value depends on its whole group, so that no slice has a part of one.
            if axis in choice.op.over:
                return UNCUT
            lanes = [choice.lanes] if choice.lanes else []
            for name in (choice.op.out, *choice.op.operands):
                lanes += self._lanes.get(name, ())
                sources = self.given.get(name, ())
                lanes += [source.layout.lanes for source in sources if not source.reloadable]
            for work in choice.works:
                if work.impl:
                    lanes += [work.impl.along, *(need.lanes for need in work.impl.needs)]
                    # Such an array takes the rows of a tile as one even index; an inner axis of it
                    # that is cut breaks the index, unless a slice has a single value of the axis.
                    single |= axis in work.impl.rows[1:] and not work.impl.array.along_lanes
            for group in lanes:
                if axis in group:
                    # Lanes can be cut only between whole rows, so an axis that shares the lanes
                    # stays whole.
                    if group != (axis,):
                        return UNCUT
                    unit = self.p.lanes
        names = {name for choice in choices for name in (choice.op.out, *choice.op.operands)}
        # Rows of zeros follow the whole run of padded axes: a slice would lack them.
        if any(axis in axes for name, _, axes in self.chosen.pads if name in names):
            return UNCUT
        return (ONE if unit == 1 else UNCUT) if single else unit

    def _partial(self, group: Group) -> set[str]:
        """Return the axes along which sums can be cut: every member sums or keeps them."""
        ops = [self.choices[n].op for n in group.members]
        shared = set.intersection(*(axes_of(self.graph, op) for op in ops))
        shared &= {axis for name in group.large for axis in self.graph.tensors[name].axes}
        return {a for a in shared if self.graph.sizes[a] > 1} - self._common(group.members)

    def _large_rows(self, group: Group, chunks: dict[str, int]) -> float:
        """Return the rows that the large tensors of a group take in a slice."""
        total = 0.0
        for name in group.large:
            window = self.graph.windows.get(name)
            if window:
                total += self.rows(window.x) * share(self.graph, window, chunks)
                continue
            total += self._part(name, tuple(chunks.items()))
        return total

    def _least(self, group: Group) -> float:
        """Return the rows that the large tensors of a group take in the smallest slices."""
        choices = [self.choices[n] for n in group.members]
        axes = self._common(group.members) | self._partial(group)
        units = {axis: self._unit(axis, choices) for axis in axes}
        smallest = {axis: abs(unit) for axis, unit in units.items() if unit != UNCUT}
        return self._large_rows(group, smallest)

    @cached_property
    def spilled(self) -> set[str]:
        """Return the large tensors with a reader outside of the stage that computes them.

        With ``deep`` the bound is half as high for results of a group that is sliced: the slices of
        its larger tensors need the rows.
        """
        names = set()
        for group in self.groups:
            most = self.large_rows // 2 if self.deep and group.large else self.large_rows
            for n in group.members:
                name = self.choices[n].op.out
                outside = set(self.readers.get(name, ())) - set(group.members)
                view = self.choices[n].op.is_alias
                if outside and not view and self.rows(name) > most:
                    names.add(name)
        return names

    # -- costs of cuts -----------------------------------------------------------------------------

    def _loads(self, group: Group, loops: Loops) -> tuple[float, _Depths]:
        """Return the rows that all slices load, weighted, and the operands that stay loaded.

        Each of these comes with the depth of loops from which it stays. A tensor that several
        slices read is worth keeping, but rows are few: the tensors that save most loads for a row
        are taken first, until the share of ``CutTuning.loaded_share`` is used.
        """
        return _nest_loads(self._read(group), self._nest(loops), self._room)

    @property
    def _room(self) -> float:
        """Rows for operands that stay loaded."""
        return TUNING.cut.loaded_share * self.p.scratchpad_rows if self.deep else 0.0

    def _nest(self, loops: Iterable[tuple[str, int]]) -> _Nest:
        return tuple((axis, chunk, self.graph.sizes[axis]) for axis, chunk in loops)

    def _counted(self, loops: Loops) -> list[tuple[str, int]]:
        """Return the axes of loops with the slices along each."""
        return [(axis, up(self.graph.sizes[axis], chunk)) for axis, chunk in loops]

    # Six loops have 720 orders, and each order asks for every operand: without the cache this took
    # four fifths of the compile time of `fashion-conv`.
    @CachedMethod
    def _read(self, group: Group) -> tuple[_Read, ...]:
        """Return the tensors that a group reads and does not compute, by name."""
        ops = [self.choices[n].op for n in group.members]
        names = {name for op in ops for name in op.operands} - {op.out for op in ops}
        return tuple(
            _Read(
                name, frozenset(self.graph.tensors[name].axes), self.rows(name),
                self._weight(name), name in self.given,
            )
            for name in sorted(names)
        )  # fmt: skip

    def _weight(self, name: str) -> int:
        """Return the cost of loading a row; 0 for a tensor that stays in the scratchpad."""
        if name in self.given:
            return word_bytes(self.graph.tensors[name])
        # A spilled tensor was stored in the layout of its maker, so that most readers have it
        # transposed after the load.
        return TUNING.cut.transposed_row if name in self.spilled else 0

    def _added(self, group: Group, loops: Loops) -> int:
        """Return the rows that are added because sums are taken in parts."""
        ops = [self.choices[n].op for n in group.members]
        return sum(self.rows(op.out) * (self._parts(op, loops) - 1) for op in ops)

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
        slices = self._slices(loops)
        beats = self._loads(group, loops)[0] * self.p.beat_cycles
        added = self._added(group, loops)
        # Arrays and memory work at the same time, so the slower one counts. A quarter of the
        # traffic counts in addition: loads of the first slice and stores of the last have nothing
        # to overlap with.
        return (
            max(self._cycles(group) + added, beats) + TUNING.cut.slice_cycles * slices + beats / 4
        )

    def _stage_rows(self, group: Group, loops: Loops, *, any_order: bool = False) -> float:
        """Estimate the rows of a stage: slices in several places, and tensors that stay whole.

        With ``any_order`` return a lower bound that holds for every order of the loops: no tensor
        stays while a loop runs that does not need it.
        """
        results = {self.choices[n].op.out: self.choices[n].op for n in group.members}
        depths = {} if any_order else self._loads(group, loops)[1]
        spilled, total = self.spilled, 0.0
        for name in sorted({*results, *(read.name for read in self._read(group))}):
            rows, cut = self.rows(name), self._part(name, loops)
            layouts = self._layouts_in(group, name)
            if name in results:
                outside = name in self.stored or set(self.readers.get(name, ())) - {*group.members}
                summed = self._parts(results[name], loops) > 1
                # A result that later stages read stays whole; any other result needs a few slices
                # only. A sum in parts needs two slices more: one part is computed while another is
                # added.
                stays = outside and (name not in spilled)
                total += (rows if stays else TUNING.cut.slices_held * cut) + (
                    2 * cut if summed else 0
                )
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

    @CachedMethod
    def _layouts_in(self, group: Group, name: str) -> float:
        """Count the layouts in which a group reads a tensor, each by the share that it reads."""
        parts: dict[Axes, float] = {}
        for work in (work for n in group.members for work in self.choices[n].works):
            for need in work.impl.needs if work.impl else ():
                if need.tensor == name:
                    part = self._share(name, work.cut)
                    parts[need.lanes] = max(parts.get(need.lanes, 0.0), part)
        return max(1.0, sum(parts.values()))

    def _share(self, name: str, cut: Cut) -> float:
        """Return the share of a tensor's values that lies in a cut."""
        if cut is None or cut[0] not in self.graph.tensors[name].axes:
            return 1.0
        return (cut[2] - cut[1]) / self.graph.sizes[cut[0]]

    def _parts(self, op: Op, loops: Loops) -> int:
        """Return the number of parts that loops cut the sums of a result into."""
        summed = self.graph.summed(op)
        return prod(count for axis, count in self._counted(loops) if axis in summed)

    # -- cuts of stages ----------------------------------------------------------------------------

    def _chunks(self, group: Group, axes: Iterable[str]) -> list[tuple[str, list[int]]]:
        """Return the axes that can be cut, each with the values that a slice can have."""
        choices, sizes, cuttable = [self.choices[n] for n in group.members], self.graph.sizes, []
        for axis in sorted(axes):
            unit = self._unit(axis, choices)
            if unit == ONE:
                cuttable.append((axis, [1]))
            elif unit != UNCUT and sizes[axis] > unit:
                # Divisors leave no short last slice; a prime size has none but 1, hence the units.
                chunks = [c for c in range(unit, sizes[axis], unit) if sizes[axis] % c == 0]
                cuttable.append((axis, chunks or [c for c in (unit, 2 * unit) if c < sizes[axis]]))
        return cuttable

    # Cached, because both ``_ranked`` and ``_judged`` ask.
    @CachedMethod
    def _loops(self, group: Group, *, parts: bool) -> Sequence[_Slicing]:
        """Return the cuts of a group; with ``parts`` those that cut sums."""
        cuts = tuple(self._new_loops(group, parts=parts))
        count("cuts", len(cuts))
        return cuts

    def _new_loops(self, group: Group, *, parts: bool) -> Iterator[_Slicing]:
        """Find the cuts that ``_loops`` returns; sums are cut innermost or outermost."""
        axes = self._chunks(group, self._common(group.members))
        if group.chained:
            for axis, chunks in self._chunks(group, {SAMPLES}):
                yield from (_Slicing(((axis, chunk),)) for chunk in chunks)
            return
        if not parts:
            yield _Slicing(())
        elif self.deep:
            yield from self._deep(group, axes)
        for number in range(1 - parts, min(TUNING.cut.axes, len(axes)) + 1):
            for order in permutations(axes, number):
                for loops in _chunked(order, ()):
                    if not parts:
                        yield _Slicing(loops)
                        continue
                    for axis, chunks in self._chunks(group, self._partial(group)):
                        for chunk in chunks:
                            # Innermost, the parts of one slice follow each other and the running
                            # sum stays near; outermost, the operands of a part are loaded once.
                            yield _Slicing((*loops, (axis, chunk)))
                            if loops and not self.deep:
                                yield _Slicing(((axis, chunk), *loops))

    def _deep(self, group: Group, common: list[tuple[str, list[int]]]) -> Iterator[_Slicing]:
        """Find cuts of sums along several axes, in an order that is chosen later."""
        partial = self._chunks(group, self._partial(group))
        for number in range(2, TUNING.cut.axes + 1):
            for summed in combinations(partial, number):
                for free in range(min(TUNING.cut.axes, len(common)) + 1):
                    for kept in combinations(common, free):
                        for loops in _chunked((*kept, *summed), ()):
                            yield _Slicing(loops, any_order=True)

    def _fits(self, group: Group, loops: Loops, *, any_order: bool = False) -> bool:
        """Return whether a cut fits in the scratchpad, by the estimate of ``_stage_rows``."""
        # The bound is a sum of float products: without slack, rounding could refuse a cut whose
        # exact estimate fits. 1e-9 is above such errors and far below a row.
        slack = 1 + 1e-9 if any_order else 1.0
        rows = self._stage_rows(group, loops, any_order=any_order)
        return rows <= TUNING.cut.full_share * self.p.scratchpad_rows * slack

    def _ordered(self, group: Group, slicing: _Slicing) -> Loops:
        """Return the loops of a slicing, in the best order if the order is free.

        Axes along which arrays divide are innermost, so that both arrays have work in every
        iteration; the rest take the order that loads least of those that fit, or of all.
        """
        if not slicing.any_order:
            return slicing.loops
        loops = slicing.loops
        works = [work for n in group.members for work in self.choices[n].works]
        divided = {work.cut[0] for work in works if work.cut}
        inner = tuple(loop for loop in loops if loop[0] in divided)
        outer = tuple(loop for loop in loops if loop[0] not in divided)
        permuted = list(permutations(outer))
        numbers = _by_loads(self._read(group), self._nest(outer), self._nest(inner), self._room)
        # Rows take longer to count than loads, and the order that loads least mostly fits.
        best = (*permuted[numbers[0]], *inner)
        if not self._fits(group, loops, any_order=True):
            return best
        orders = ((*permuted[number], *inner) for number in numbers)
        return next((order for order in orders if self._fits(group, order)), best)

    def options(self) -> Iterator[list[Stage]]:
        """Yield cuts of all stages, the likely fastest first.

        With ``deep``, cuts of the heaviest stage by estimated cycles come first, then the cuts by
        shares of the scratchpad that have the fewest slices.
        """
        if not self.deep:
            yield from self._options(TUNING.cut.budgets)
            return
        yield from self._deepest()
        every = list(self._options(sorted(TUNING.cut.budgets, reverse=True)))
        yield from sorted(every, key=lambda option: sum(self._slices(s.loops) for s in option))[
            : TUNING.cut.budget_cuts
        ]

    def _slices(self, loops: Loops) -> int:
        return prod(count for _, count in self._counted(loops))

    def _deepest(self) -> Iterator[list[Stage]]:
        """Yield cuts of the heaviest stage, each with the best cut of every other stage."""
        every = [self._ranked(group) for group in self.groups]
        if not all(every):
            return
        heavy = max(range(len(every)), key=lambda n: self._cycles(self.groups[n]))
        for loops in every[heavy][: TUNING.cut.heaviest_cuts]:
            cuts = [loops if n == heavy else ranked[0] for n, ranked in enumerate(every)]
            option = [self._stage(g, cut) for g, cut in zip(self.groups, cuts, strict=True)]
            for together in (2, 1) if loops else (1,):
                option[heavy] = replace(option[heavy], together=together)
                yield list(option)

    def _ranked(self, group: Group) -> list[Loops]:
        """Return the cuts of a group that fit, the likely fastest first."""
        if not group.large:
            return [()]
        count("cuts", sum(len(self._loops(group, parts=parts)) for parts in (False, True)))
        # Six loops have 720 orders, so no order is searched for slices too large in any order: for
        # `fashion-conv` this drops all 9,164 cuts of sums along several axes.
        orders = dict.fromkeys(
            self._ordered(group, slicing)
            for parts in (False, True)
            for slicing in self._loops(group, parts=parts)
            if self._fits(group, slicing.loops, any_order=True)
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
                    if budget * 2 < TUNING.cut.largest and any(stage.loops for stage in option):
                        yield [replace(s, together=2 if s.loops else 1) for s in option]

    def _option(self, budget: float, *, parts: bool) -> list[list[Stage]]:
        """Return up to two lists of stages that keep to a share of the scratchpad, or none.

        With ``parts`` a sum is cut where that gives small enough slices with fewer rows to add.
        """
        best: list[list[Loops]] = []
        for group in self.groups:
            cuts = self._within(group, budget, parts=parts and bool(group.large))
            cuts = cuts or self._within(group, budget, parts=False)
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
        return Stage(choices, loops, kept=tuple(self._loads(group, loops)[1].items()))

    def _within(self, group: Group, budget: float, *, parts: bool) -> list[_Judged]:
        """Return the slicings of a group that keep to a share of the scratchpad."""
        most = budget * self.p.scratchpad_rows
        return [judged for judged in self._judged(group, parts=parts) if judged.rows <= most]

    def _best(self, group: Group, candidates: Sequence[_Judged]) -> list[Loops]:
        """Return the loops that add as few rows and have as few slices as the first candidate.

        Loops along samples come first (not with ``deep``), then those that load the fewest rows.
        """
        first, ranked = candidates[0], []
        for judged in candidates:
            if (judged.added, judged.slices) == (first.added, first.slices):
                loops = self._ordered(group, judged.slicing)
                ranked.append((judged.sampled, self._loads(group, loops)[0], judged.rows, loops))
        return [loops for *_, loops in sorted(ranked)]

    @CachedMethod
    def _judged(self, group: Group, *, parts: bool) -> list[_Judged]:
        """Return the slicings of a group with their measures, the best first."""
        return sorted(
            _Judged(
                added=self._added(group, slicing.loops),
                slices=self._slices(slicing.loops),
                sampled=0 if self.deep else -sum(a == SAMPLES for a, _ in slicing.loops),
                rows=self._large_rows(group, dict(slicing.loops)),
                slicing=slicing,
            )
            for slicing in self._loops(group, parts=parts)
        )


def _chunked(axes: Sequence[tuple[str, list[int]]], loops: Loops) -> Iterator[Loops]:
    if not axes:
        yield loops
        return
    for chunk in axes[0][1]:
        yield from _chunked(axes[1:], (*loops, (axes[0][0], chunk)))
