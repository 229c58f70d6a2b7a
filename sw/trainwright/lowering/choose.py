"""Which array computes what, from operands in which layouts: a beam search over estimated clocks.

Operations are taken in order. For each, one array computes all of it or both divide it along an
axis; their parts may even lie in different layouts, if what reads them is divided alike. An operand
that does not lie as it is needed is loaded (factors, inputs) or transposed by PE1's array.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from trainwright.compiler.errors import CompileError
from trainwright.graph.ir import Add, Einsum, Graph, Mask, Op, View, Window
from trainwright.graph.network import SAMPLES
from trainwright.lowering.choices import AFTER, Choice, Chosen, Cut, Given, Way, Work
from trainwright.lowering.clocks import Lies, Operands, State
from trainwright.lowering.impls import (
    Impl,
    Need,
    dot_cycles,
    outer_cycles,
)
from trainwright.lowering.slices import Sliced, sliced_axes, sliced_implementations
from trainwright.parameters import AcceleratorParameters

BEAM = 24
"""Partial programs kept after each operation."""
SLACK = 0.25
"""Of the least cycles of a program, what a state may be worse than the best one."""
MOST_OF_AN_ARRAY = 8
"""Implementations of one array that are tried where the arrays' results lie apart."""
SLICES = 16
"""Slices of a tensor, of which one array makes one while the other one reads the one before."""
MOST_AXES = 4
"""Axes along which an operation is divided between the arrays that are tried."""


class Chooser:
    """Searches one program."""

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Given],
        kept: Sequence[str],
        p: AcceleratorParameters,
        way: Way,
    ):
        self.graph, self.given, self.p, self.way = graph, given, p, way
        self.operands = Operands(graph, given, p)
        self.sliced = sliced_axes(graph, p) if way.sliced else {}
        self.kept = set(kept)
        """Tensors that must lie whole in one layout: others read them later."""
        self.flexible = {name for name, one in given.items() if one.lanes is None}
        self.last: dict[str, int] = {}
        for n, op in enumerate(graph.ops):
            for name in op.operands:
                self.last[name] = n
                if name in graph.windows:
                    self.last[graph.windows[name].x] = n
        self._pairs: dict[str, list[tuple[Impl, Impl, str]]] = {}
        self._known: dict[str, tuple[list[Impl], list[Impl]]] = {}
        self._times: dict[tuple[int, Cut], float] = {}
        self._best = float("inf")
        """The best score of an operation so far."""
        self.due = 0.0, 0.0
        self.slack = SLACK * graph.macs / p.multipliers

    def search(self) -> Chosen:
        """The best choice found for every operation."""
        lies: dict[str, tuple[Lies, ...]] = {}
        for name, given in self.given.items():
            lies[name] = (
                ()
                if given.layout is None
                else (Lies(given.layout.lanes, given.layout.padded or None, None, 0.0),)
            )
        states = [State((0.0, 0.0, 0.0), lies, (), ())]
        for n, op in enumerate(self.graph.ops):
            self._best, self.due = float("inf"), self._later(n)
            states = self._pruned((new for state in states for new in self._step(state, op)), n)
            if not states:
                raise CompileError(f"{op.out}: no array can compute it; use other sizes or ranks")
        return Chosen(states[0].choices, states[0].pads)

    def _later(self, n: int) -> tuple[float, float]:
        """Cycles of each array after operation ``n`` for what the other one cannot compute: an
        operand lies in outer memory in a layout that only one of them reads."""
        due = [0.0, 0.0]
        if not self.way.due:
            return 0.0, 0.0
        for op in self.graph.ops[n + 1 :]:
            fixed = [name for name in op.operands if name in self.given]
            fixed = [name for name in fixed if self.given[name].lanes]
            if isinstance(op, Einsum) and fixed:
                dots, outers = (
                    [impl for impl in impls if self._reads(impl, fixed)]
                    for impls in self._impls(op)
                )
                if bool(dots) != bool(outers):
                    due[not dots] += min(impl.cycles for impl in (*dots, *outers))
        return due[0], due[1]

    def _reads(self, impl: Impl, names: Sequence[str]) -> bool:
        """Whether an implementation reads these tensors as they lie in outer memory."""
        lanes = {need.tensor: need.lanes for need in impl.needs}
        return all(lanes[name] == self.given[name].lanes for name in names)

    def _score(self, dots: float, outers: float, loads: float) -> float:
        dots, outers = dots + self.due[0], outers + self.due[1]
        return max(dots, outers) + 0.3 * min(dots, outers) + self.way.weight * loads

    def _pruned(self, states: Iterator[State], n: int) -> list[State]:
        best: dict[tuple, tuple[float, int, State]] = {}
        for number, state in enumerate(states):
            score = self._score(state.dots, state.outers, state.loads)
            for name in [name for name in state.lies if self._over(name, n)]:
                del state.lies[name]
            key = state.key(self.flexible)
            if key not in best or score < best[key][0]:
                best[key] = score, number, state
        return [state for _, _, state in sorted(best.values(), key=lambda one: one[:2])[:BEAM]]

    def _over(self, name: str, n: int) -> bool:
        return self.last.get(name, -1) <= n and name not in self.kept

    def _hopeless(self, state: State, dots: float, outers: float) -> bool:
        """Whether what comes of a state, with these clocks at least, is much worse than another."""
        return self._score(dots, outers, state.loads) > self._best + self.slack

    def _note(self, state: State) -> State:
        """Remember the score of a state that is made."""
        self._best = min(self._best, self._score(state.dots, state.outers, state.loads))
        return state

    # Operations.

    def _step(self, state: State, op: Op) -> Iterator[State]:
        match op:
            case View():
                yield from self._view(state, op)
            case Window():
                new = state.copy()
                new.choices = (*new.choices, Choice(op, (), self.graph.tensors[op.x].axes[-1:]))
                yield new
            case Einsum():
                fixed = self._fixed(state, op)
                sliced = self.sliced.get(op.out, Sliced())
                piped = self.way.piped and op.out in self.sliced
                if not fixed and (piped or not sliced.divided):
                    yield from self._single(state, op)
                if not piped:
                    yield from self._shared(state, op, fixed)
            case Add() | Mask():
                yield from self._elementwise(state, op)

    def _view(self, state: State, op: View) -> Iterator[State]:
        lanes = self.graph.tensors[op.x].axes[-1:]
        new = state.copy()
        got = self.operands.fetch(new, Need(op.x, lanes), None)
        if got is not None:
            new.lies[op.out] = (Lies(lanes, None, None, got),)
            new.choices = (*new.choices, Choice(op, (), lanes))
            yield new

    def _elementwise(self, state: State, op: Add | Mask) -> Iterator[State]:
        seen = {x.lanes for name in op.operands for x in state.lies.get(name, ())}
        broadcast = self.graph.tensors[op.operands[1]].axes != self.graph.tensors[op.out].axes
        if broadcast:
            seen = {self.graph.tensors[op.out].axes[-1:]}
        for lanes in sorted(seen):
            new, ready = state.copy(), 0.0
            for name in op.operands[: 1 if broadcast else 2]:
                got = self.operands.fetch(new, Need(name, lanes), None)
                if got is None:
                    break
                ready = max(ready, got)
            else:
                cycles = self.operands.rows(op.out, lanes, None) / self.p.lanes
                new.outers = max(new.outers, ready) + cycles
                new.lies[op.out] = (Lies(lanes, (), None, new.outers + AFTER),)
                new.choices = (*new.choices, Choice(op, (Work(None, None),), lanes))
                yield new

    def _impls(self, op: Einsum) -> tuple[list[Impl], list[Impl]]:
        if op.out not in self._known:
            axes = self.sliced.get(op.out, Sliced()).cut
            every = sliced_implementations(self.graph, op, self.p, axes)
            dots, outers = [i for i in every if i.dot], [i for i in every if not i.dot]
            self._known[op.out] = self._varied(dots), self._varied(outers)
        return self._known[op.out]

    @staticmethod
    def _varied(impls: list[Impl]) -> list[Impl]:
        """The fastest for each layout of the result and of the operands."""
        found: dict[tuple, Impl] = {}
        for impl in impls:
            if impl.cycles <= 2.5 * impls[0].cycles:
                found.setdefault((impl.along, impl.inner if impl.dot else impl.rows), impl)
        return list(found.values())

    def _cycles(self, op: Einsum, impl: Impl, cut: Cut) -> float:
        if cut is None:
            return impl.cycles
        key = id(impl), cut
        if key not in self._times:
            sizes = self.operands.sizes(cut)
            free = prod(sizes[a] for a in self.graph.tensors[op.out].axes)
            summed = prod(sizes[a] for a in self.graph.summed(op))
            self._times[key] = (
                dot_cycles(self.p, sizes, free, summed, (impl.rows, impl.along, impl.inner))
                if impl.dot
                else outer_cycles(self.p, sizes, free, summed, (impl.rows, impl.along))
            )
        return self._times[key]

    def _fetched(self, state: State, impl: Impl, cut: Cut) -> float | None:
        """When the operands of a work can be read."""
        ready = 0.0
        for need in impl.needs:
            got = self.operands.fetch(state, need, cut)
            if got is None:
                return None
            ready = max(ready, got)
        return ready

    def _run(self, state: State, op: Einsum, work: Work, ready: float) -> float:
        """Let an array work: when its result can be read."""
        impl = work.impl
        assert impl
        cycles = self._cycles(op, impl, work.cut)
        if impl.dot:
            state.dots = max(state.dots, ready) + cycles
            return state.dots + AFTER
        state.outers = max(state.outers, ready) + cycles
        return state.outers + AFTER

    def _single(self, state: State, op: Einsum) -> Iterator[State]:
        dots, outers = self._impls(op)
        for impl in (*dots, *outers):
            clocks = (
                state.dots + impl.cycles * impl.dot,
                state.outers + impl.cycles * (not impl.dot),
            )
            if self._hopeless(state, *clocks):
                continue
            new = state.copy()
            there = self._fetched(new, impl, None)
            if there is not None:
                work = Work(impl, None)
                ready = self._run(new, op, work, there)
                if self.way.piped and op.out in self.sliced:  # slice by slice
                    ready -= impl.cycles * (1 - 1 / SLICES)
                new.lies[op.out] = (Lies(impl.along, (), None, ready),)
                new.choices = (*new.choices, Choice(op, (work,), ()))
                yield self._note(new)

    def _shared(self, state: State, op: Einsum, fixed: set[Cut]) -> Iterator[State]:
        if op.out not in self._pairs:
            self._pairs[op.out] = list(self._divisions(op))
        for dot, outer, axis in self._pairs[op.out]:
            yield from self._divided(state, op, (dot, outer), axis, fixed)

    def _divisions(self, op: Einsum) -> Iterator[tuple[Impl, Impl, str]]:
        """Both arrays' implementations and an axis that they can divide."""
        dots, outers = self._impls(op)
        for dot in dots:
            for outer in (o for o in outers if o.along == dot.along):
                axes = self._axes(op, dot, outer)
                # slices are of samples: then both arrays have something of each
                for axis in sorted(axes, key=lambda axis: axis == SAMPLES):
                    yield dot, outer, axis
        if op.out in self.kept or not self.way.apart:
            return
        for dot in dots[:MOST_OF_AN_ARRAY]:
            for outer in outers[:MOST_OF_AN_ARRAY]:
                if dot.along != outer.along:
                    for axis in self._axes(op, dot, outer):
                        if self._goes_on(op.out, axis):
                            yield dot, outer, axis

    def _goes_on(self, name: str, axis: str) -> bool:
        """Whether all that reads a tensor can be divided along an axis, too."""
        return all(
            isinstance(op, Einsum) and axis in self.graph.tensors[op.out].axes
            for op in self.graph.ops
            if name in op.operands
        )

    def _fixed(self, state: State, op: Einsum) -> set[Cut]:
        """The cuts of operands that lie in parts of different layouts."""
        found: set[Cut] = set()
        for name in op.operands:
            lies = state.lies.get(name, ())
            if name in self.given or name in self.graph.windows:
                continue
            if all(x.cut for x in lies):
                found |= {x.cut for x in lies}
        return found

    def _axes(self, op: Einsum, dot: Impl, outer: Impl) -> list[str]:
        """Axes along which both arrays can divide an operation."""
        sizes, divided = self.graph.sizes, self.sliced.get(op.out, Sliced()).divided
        axes = [
            axis
            for axis in divided or self.graph.tensors[op.out].axes
            if sizes[axis] > 1 and self._divides(axis, dot) and self._divides(axis, outer)
        ]
        return sorted(axes, key=lambda axis: -min(sizes[axis], 16))[:MOST_AXES]

    @staticmethod
    def _divides(axis: str, impl: Impl) -> bool:
        if axis in impl.rows[1:] or (axis in impl.rows and not impl.dot):
            return False
        return axis not in impl.along or impl.along == (axis,)

    def _divided(
        self, state: State, op: Einsum, pair: tuple[Impl, Impl], axis: str, fixed: set[Cut]
    ) -> Iterator[State]:
        size = self.graph.sizes[axis]
        unit = self.p.lanes if any(axis in impl.along for impl in pair) else 1
        dot, outer = pair
        if fixed:
            if any(cut[0] != axis for cut in fixed if cut):
                return
            middle = {cut[2] for cut in fixed if cut and cut[1] == 0}
        else:
            ahead = state.outers + self.due[1] - state.dots - self.due[0]
            share = (outer.cycles + ahead) / (dot.cycles + outer.cycles)
            best = round(size * min(1.0, max(0.0, share)) / unit) * unit
            middle = {min(max(best, unit), (size - 1) // unit * unit)} - {0}
        for m in sorted(middle):
            if m % unit == 0:
                yield from self._parted(
                    state, op, Work(dot, (axis, 0, m)), Work(outer, (axis, m, size))
                )

    def _parted(self, state: State, op: Einsum, first: Work, second: Work) -> Iterator[State]:
        """Both arrays work: PE1 ``first``, PE2 ``second``."""
        dot, outer = first.impl, second.impl
        assert dot
        assert outer
        least = (
            state.dots + self._cycles(op, dot, first.cut),
            state.outers + self._cycles(op, outer, second.cut),
        )
        if self._hopeless(state, *least):
            return
        new = state.copy()
        there2 = self._fetched(new, outer, second.cut)
        if there2 is None:
            return
        there = self._fetched(new, dot, first.cut)
        if there is None:
            return
        ready, ready2 = self._run(new, op, first, there), self._run(new, op, second, there2)
        parts = (Lies(dot.along, (), None, max(ready, ready2)),)
        if dot.along != outer.along:
            parts = (
                Lies(dot.along, (), first.cut, ready),
                Lies(outer.along, (), second.cut, ready2),
            )
        new.lies[op.out] = parts
        new.choices = (*new.choices, Choice(op, (first, second), ()))
        yield self._note(new)


def choose(
    graph: Graph,
    given: Mapping[str, Given],
    kept: Sequence[str],
    p: AcceleratorParameters,
    way: Way,
) -> Chosen:
    """How each operation of a program is computed."""
    return Chooser(graph, given, kept, p, way).search()
