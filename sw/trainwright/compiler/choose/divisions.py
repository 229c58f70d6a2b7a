"""Divide contractions between two arrays: where, by which implementations, and how to move it.

- ``Divisions`` lists the implementations of each contraction, and the pairs of two arrays that can
  divide it; ``choose.Chooser`` searches among them.
- ``balanced`` moves every division of a program until all arrays have equally much to do. It is for
  programs of blocks of samples, in which no array waits for another one.
- ``variants`` divides along axes that slices are cut along, so that each array has slices of its
  own, and the arrays do not read the same rows at the same time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import add, sub

from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.clocks import NONE, OperandSources, SearchState
from trainwright.compiler.choose.huge import Sliced, sliced_axes, sliced_implementations
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.forms.choices import Choice, Chosen, Cut, ProgramSpec, SearchMode, Work
from trainwright.compiler.forms.impls import Impl, contraction_cycles
from trainwright.compiler.forms.layout import Axes
from trainwright.graph.ir import Einsum, Graph
from trainwright.graph.network import SAMPLES, SEQUENCES
from trainwright.program.engines import EVERY_ARRAY
from trainwright.support.memo import CachedMethod


def divides(axis: str, impl: Impl) -> bool:
    """Return whether an array can compute only some values of an axis of its result."""
    # Rows of a tile are one index with equal steps over their axes. A cut through any but the
    # outermost axis leaves gaps in it; PE2 takes the rows from one operand's lanes, so that no axis
    # of them can be cut.
    if axis in impl.rows[1:] or (axis in impl.rows and not impl.array.along_lanes):
        return False
    # Lanes hold several axes as one index, too: only an axis that has the lanes for itself is cut.
    return axis not in impl.along or impl.along == (axis,)


def variants(graph: Graph, stages: Sequence[Stage], lanes: int) -> Iterator[list[Stage]]:
    """Yield the stages unchanged, then with operations divided along axes of slices."""
    yield list(stages)
    for number, stage in enumerate(stages):
        # Innermost first: its slices alternate most often between the arrays.
        for axis, _ in reversed(stage.loops):
            choices = tuple(_along(graph, choice, axis, lanes) for choice in stage.choices)
            if choices != stage.choices:
                new = list(stages)
                new[number] = replace(stage, choices=choices)
                yield new
                break


def _along(graph: Graph, choice: Choice, axis: str, lanes: int) -> Choice:
    """Return an operation divided along an axis, or unchanged where that is impossible."""
    if len(choice.works) != 2 or not isinstance(choice.op, Einsum):
        return choice
    first, second = choice.works
    if not (first.impl and second.impl and first.cut) or first.impl.along != second.impl.along:
        return choice
    impls = first.impl, second.impl
    axes = graph.tensors[choice.op.out].axes
    # A division along a summed axis gives parts of a sum, whose operands lie for one array each.
    if first.cut[0] not in axes:
        return choice
    if axis not in axes or not all(divides(axis, impl) for impl in impls):
        return choice
    size, share = graph.sizes[axis], first.cut[2] / graph.sizes[first.cut[0]]
    unit = lanes if axis in first.impl.along else 1
    middle = round(share * size / unit) * unit
    # The arrays were balanced for ``share``: a coarse axis that moves more work would undo that.
    if not 0 < middle < size or abs(middle / size - share) > TUNING.choose.moved_share:
        return choice
    works = Work(first.impl, (axis, 0, middle)), Work(second.impl, (axis, middle, size))
    return replace(choice, works=works)


class Pair:
    """Implementations of two arrays for an operation that is divided along an axis."""

    def __init__(self, op: Einsum, impls: tuple[Impl, Impl], axis: str, divisions: "Divisions"):
        self.op, self.impls, self.axis, self.taken = op, impls, axis, divisions.taken
        self.size = divisions.graph.sizes[axis]
        """Values of the axis, of which the first array computes the first ones."""
        self.unit = divisions.p.lanes if any(axis in impl.along for impl in impls) else 1
        """Values between two possible places of the division: whole rows of lanes, if it has any.
        """

    def middles(self, state: SearchState, due: Sequence[float], fixed: set[Cut]) -> Sequence[int]:
        """Return where to divide the axis: at a place that ends both arrays together.

        Operands that lie in parts impose the place of their own ``fixed`` cuts. ``due`` are the
        cycles of later operations that only one array can compute.
        """
        size, unit = self.size, self.unit
        if fixed:
            if any(cut[0] != self.axis for cut in fixed if cut):
                return ()
            places = {cut[2] for cut in fixed if cut and cut[1] == 0}
            return sorted(m for m in places if m % unit == 0)
        first, second = self.impls
        # Solve clocks[first] + due[first] + m * a = clocks[second] + due[second] + (1 - m) * b for
        # the share m, with cycles a and b of the whole operation: both arrays are done at the same
        # time, with what only one of them can do later.
        clocks, i, j = state.clocks, first.number, second.number
        ahead = clocks[j] + due[j] - clocks[i] - due[i]
        share = (second.cycles + ahead) / (first.cycles + second.cycles)
        nearest = round(size * min(1.0, max(0.0, share)) / unit) * unit
        # Each array gets at least one unit, and the second what is left over.
        middle = min(max(nearest, unit), (size - 1) // unit * unit)
        return (middle,) if middle else ()

    @CachedMethod
    def divided(self, middle: int) -> tuple[list[float], tuple[Work, Work]]:
        """Return the cycles of each array, and the works."""
        first, second = (self.axis, 0, middle), (self.axis, middle, self.size)
        works = Work(self.impls[0], first), Work(self.impls[1], second)
        return self.taken(self.op, works), works


class Divisions:
    """Implementations of the contractions of one program, and pairs for two arrays."""

    def __init__(self, spec: ProgramSpec):
        self.graph, self.given, self.p, self.parted = spec.graph, spec.given, spec.p, spec.parted
        self.mode = SearchMode(weight=0.0, due=False, apart=False)
        self.operands = OperandSources(self.graph, self.given, self.p)
        self.sliced: Mapping[str, Sliced] = {}
        self.stored = set(spec.stored)
        """Tensors that end up whole in one layout, as later programs read them, except for
        ``parted`` ones."""
        self._times: dict[tuple[int, Cut], float] = {}

    def use(self, mode: SearchMode) -> None:
        """Take the preferences of a search; forget implementations that have axes of its slices."""
        self.mode, self.operands.steady = mode, mode.steady
        sliced = sliced_axes(self.graph, self.p, large=mode.large) if mode.sliced else {}
        if sliced != self.sliced or mode.steady:
            self.sliced = sliced
            self._times.clear()
            for name in ("impls", "undivided", "alike", "_all_pairs", "_read_along"):
                self.__dict__.pop(name, None)

    @CachedMethod
    def impls(self, op: Einsum) -> list[list[Impl]]:
        """Return the implementations of each array, the fastest of each layout."""
        axes = self.sliced.get(op.out, Sliced()).cut
        if self.mode.steady:
            # Blocks of a few sequences do not fill rows of lanes; blocks of samples do.
            axes |= {SEQUENCES}
        every = sliced_implementations(self.graph, op, self.p, axes)
        return [self._varied([i for i in every if i.engine is engine]) for engine in EVERY_ARRAY]

    @staticmethod
    def _varied(impls: list[Impl]) -> list[Impl]:
        """Return the fastest implementation for each layout of the result and of the operands."""
        fastest: dict[tuple, Impl] = {}
        for impl in impls:
            if impl.cycles <= TUNING.choose.slowest * impls[0].cycles:
                fastest.setdefault((impl.along, impl.inner or impl.rows), impl)
        return list(fastest.values())

    def cycles(self, op: Einsum, impl: Impl, cut: Cut) -> float:
        """Return an array's cycles for an operation, or for its values in a cut."""
        if cut is None:
            return impl.cycles
        key = id(impl), cut
        if key not in self._times:
            sizes = self.operands.sizes(cut)
            self._times[key] = contraction_cycles(self.graph, op, impl, self.p, sizes)
        return self._times[key]

    def taken(self, op: Einsum, works: Sequence[Work]) -> list[float]:
        """Return the cycles of each array for some works."""
        taken = [*NONE]
        for work in works:
            if work.impl:
                taken[work.impl.number] += self.cycles(op, work.impl, work.cut)
        return taken

    @CachedMethod
    def undivided(self, op: Einsum, impl: Impl) -> tuple[list[float], tuple[Work, ...]]:
        """Return the cycles of each array, and the work, where one does all of an operation."""
        works = (Work(impl, None),)
        return self.taken(op, works), works

    def every_pair(self, op: Einsum) -> list[list[Pair]]:
        """Return pairs of implementations with axes to divide, grouped by the layouts they lead to.

        A group has one pair of implementations and several axes.
        """
        if (op.out in self.stored and op.out not in self.parted) or not self.mode.apart:
            return self.alike(op)
        return self._all_pairs(op, self.mode.sums)

    @CachedMethod
    def _all_pairs(self, op: Einsum, sums: bool) -> list[list[Pair]]:
        """Return the pairs of ``every_pair`` for a value of ``SearchMode.sums``."""
        return [*self.alike(op), *self._parted(op, sums)]

    @CachedMethod
    def alike(self, op: Einsum) -> list[list[Pair]]:
        """Return the pairs of ``every_pair`` whose parts have the same layout."""
        pairs: list[list[Pair]] = []
        for firsts, seconds in combinations(self.impls(op), 2):
            for impls in ((a, b) for a in firsts for b in seconds if a.along == b.along):
                axes = self._axes(op, impls)
                # Samples last: slices are mostly of samples, and along another axis both arrays
                # have a share of every slice.
                axes.sort(key=lambda axis: axis == SAMPLES)
                pairs.append([Pair(op, impls, axis, self) for axis in axes])
        return pairs

    def _parted(self, op: Einsum, sums: bool) -> Iterator[list[Pair]]:
        """Yield pairs whose parts have different layouts, each read by its own array later."""
        most = TUNING.choose.apart_in_blocks if self.mode.steady else TUNING.choose.apart
        read = [
            [impl for impl in impls if impl.along in self._read_along(op.out, place)][:most]
            for place, impls in enumerate(self.impls(op))
        ]
        for firsts, seconds in combinations(read, 2):
            for impls in ((a, b) for a in firsts for b in seconds if a.along != b.along):
                for axis in self._axes(op, impls):
                    if self._goes_on(op.out, axis, sums):
                        yield [Pair(op, impls, axis, self)]

    @CachedMethod
    def _read_along(self, name: str, array: int) -> set[Axes]:
        """Return the axes along the lanes with which an array's implementations read a tensor."""
        return {
            need.lanes
            for op in self.graph.ops
            if isinstance(op, Einsum) and name in op.operands
            for impl in self.impls(op)[array]
            for need in impl.needs
            if need.tensor == name
        }

    def _goes_on(self, name: str, axis: str, sums: bool) -> bool:
        """Return whether every reader of a tensor can be divided along the axis, too.

        With ``sums`` a reader may also sum over the axis: each array sums its own part.
        """
        sums = sums and name not in self.stored
        return all(
            isinstance(op, Einsum) and (sums or axis in self.graph.tensors[op.out].axes)
            for op in self.graph.ops
            if name in op.operands
        )

    def _axes(self, op: Einsum, impls: Sequence[Impl]) -> list[str]:
        """Return axes along which the arrays of ``impls`` can divide an operation."""
        sizes, divided = self.graph.sizes, self.sliced.get(op.out, Sliced()).divided
        axes = [
            axis
            for axis in divided or self.graph.tensors[op.out].axes
            if sizes[axis] > 1 and all(divides(axis, impl) for impl in impls)
        ]
        if self.mode.steady:
            # A block of samples, or of sequences, is the unit of work: divided along samples, one
            # array would wait for the other one's share of each block.
            axes = [axis for axis in axes if axis not in (SAMPLES, SEQUENCES)]
            axes = [axis for axis in axes if self._goes_on(op.out, axis, self.mode.sums)] or axes
        # Long axes can be divided more evenly; beyond 16 values the gain is below 1/16.
        return sorted(axes, key=lambda axis: -min(sizes[axis], 16))[: TUNING.choose.divided_axes]


@dataclass(frozen=True)
class _Joint:
    """Operations that are divided together, at one value of one axis."""

    axis: str
    size: int
    """Values of the axis."""
    unit: int
    """Values between two possible places of the division."""
    members: tuple[int, ...]
    """Numbers of the operations among all choices."""

    def moved(self, choice: Choice, middle: int) -> Choice:
        """Return a member, divided at ``middle``."""
        cuts = (self.axis, 0, middle), (self.axis, middle, self.size)
        works = tuple(replace(w, cut=c) for w, c in zip(choice.works, cuts, strict=True))
        return replace(choice, works=works)


def _joints(graph: Graph, choices: Sequence[Choice], lanes: int) -> Iterator[_Joint]:
    """Yield the operations that are divided together.

    Usually that is one operation. Where a tensor lies in two layouts, its maker and its readers
    have to be divided at the same value: each array reads the layout that it wrote.
    """
    linked_by_axis: dict[str, list[int]] = {}
    alone: list[int] = []
    two_layouts = {c.op.out for c in choices if len({w.impl.along for w in c.works if w.impl}) > 1}
    for n, choice in enumerate(choices):
        if len(choice.works) != 2 or not (cut := choice.works[0].cut):
            continue
        if two_layouts & {choice.op.out, *choice.op.operands}:
            linked_by_axis.setdefault(cut[0], []).append(n)
        else:
            alone.append(n)
    for members in (*linked_by_axis.values(), *([n] for n in alone)):
        cut = choices[members[0]].works[0].cut
        assert cut
        every = [w.impl.along for n in members for w in choices[n].works if w.impl]
        unit = lanes if any(cut[0] in along for along in every) else 1
        yield _Joint(cut[0], graph.sizes[cut[0]], unit, tuple(members))


def balanced(divisions: Divisions, state: SearchState) -> tuple[float, Chosen]:
    """Move every division of a state to where all arrays have equally much to do.

    Return the cycles of the busiest array, or of the loads if these take longer, and the choices.
    """
    choices = list(state.choices)

    def taken(divided: Sequence[Choice]) -> list[float]:
        """Return the cycles of each array."""
        every = [divisions.taken(c.op, c.works) for c in divided if isinstance(c.op, Einsum)]
        return [sum(cycles) for cycles in zip(*every, strict=True)]

    clocks: Sequence[float] = state.clocks
    joints = list(_joints(divisions.graph, choices, divisions.p.lanes))
    # Coordinate descent: moving one division changes the sums that the others balance.
    for _ in range(TUNING.choose.balance_rounds):
        for joint in joints:
            members = [choices[n] for n in joint.members]
            rest = [*map(sub, clocks, taken(members))]
            moves = []
            # All places are tried: cycles jump where a part fills another tile or row of lanes.
            for middle in range(joint.unit, joint.size, joint.unit):
                moved = [joint.moved(choice, middle) for choice in members]
                moved_clocks = [*map(add, rest, taken(moved))]
                moves.append((max(moved_clocks), middle, moved_clocks, moved))
            if moves:
                _, _, clocks, moved = min(moves, key=lambda move: move[:2])
                for n, choice in zip(joint.members, moved, strict=True):
                    choices[n] = choice
    return max(*clocks, state.loads), Chosen(tuple(choices), state.pads)
