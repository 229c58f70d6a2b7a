"""Which array computes what, from operands in which layouts: a beam search over estimated clocks.

Operations are taken in order. For each, one array computes all of it or both divide it along an
axis; their parts may even lie in different layouts, if what reads them is divided alike. An operand
that does not lie as it is needed is loaded (factors, inputs) or transposed by PE1's array.
"""

from bisect import insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.progress import count, is_spent
from trainwright.compiler.choose.balance import balanced
from trainwright.compiler.choose.clocks import Lies, Loaded, State, There
from trainwright.compiler.choose.divisions import Divisions
from trainwright.compiler.choose.huge import Sliced, sliced_axes
from trainwright.compiler.choose.pairs import Pair
from trainwright.compiler.forms.choices import AFTER, Choice, Chosen, Cut, Given, Stored, Way, Work
from trainwright.compiler.forms.impls import Impl, Need
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.passes import lowered, pass_cycles
from trainwright.graph.ir import Add, Einsum, Graph, Kernel, Mask, Op, Unfold, View
from trainwright.parameters import AcceleratorParameters

LESSER = 0.3
"""Of the cycles of the array with less to do, what counts."""
INFINITE = float("inf")
MOST_OF_A_PAIR = 2
"""Axes tried for two implementations whose results lie alike."""
BEAM = 24
"""Partial programs kept after each operation."""
LEAST_BEAM = 6
"""Partial programs kept after each operation of a graph of any length."""
MOST_STATES = 1536
"""Partial programs kept in all, from which on fewer are kept after each operation.

64 operations have ``BEAM``. The programs of an encoder take between 233,000 and 253,000 cycles with
6, 12 and 24 partial programs, in no order: what is kept beyond a few is chance.
"""
WIDER = 4
"""As many more where what is given lies in rows: many differ in what they transpose first."""
RECENT = 16
"""Operations after the last reader for which states differ by the layout of a stored tensor.

Without them a search of few operations has fewer different states, and worse results: 0.5 % more
cycles of `fashion-conv`. Layouts of all tensors, however old, are a third of the time of an
encoder's search and lead to the same program.
"""
SLACK = 0.25
"""Of the least cycles of a program, what a state may be worse than the best one."""
SLICES = 16
"""Slices of a tensor, of which one array makes one while the other one reads the one before."""


class _Try(NamedTuple):
    """What an operation can make of a state."""

    least: float
    """The score that it has at least."""
    state: State
    works: tuple[Work, ...] | None = None
    """How the operation is computed after ``state``; ``None`` where ``state`` has it."""
    dots: float = 0.0
    outers: float = 0.0
    """When the arrays are free after it at the earliest."""
    shared: tuple[float, float] = (0.0, 0.0)
    """As ``State.shared`` after it."""


def _shared(state: State, dots: float, outers: float) -> tuple[float, float]:
    """As ``State.shared`` after an operation that both arrays divide."""
    return state.shared[0] + dots, state.shared[1] + outers


class Chooser(Divisions):
    """Searches one program."""

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Given],
        kept: Stored,
        p: AcceleratorParameters,
        parted: Collection[str] = (),
    ):
        super().__init__(graph, given, kept, p, parted)
        self.turned = {name: layout.lanes for name, layout in kept.items() if layout}
        """The lanes with which tensors are stored, where these are not those they are made with."""
        self.flexible = {name for name, one in given.items() if one.is_free}
        wider = WIDER if any(one.again for one in given.values()) else 1
        self.beam = wider * min(BEAM, max(LEAST_BEAM, MOST_STATES // max(1, len(graph.ops))))
        last: dict[str, int] = {}
        for n, op in enumerate(graph.ops):
            last |= dict.fromkeys((op.out, *self._read(op)), n)
        self.over: dict[int, list[str]] = {}
        """By operation: tensors whose layouts tell no states apart after it."""
        for name, n in last.items():
            self.over.setdefault(n + (RECENT if name in self.kept else 0), []).append(name)
        self.due = 0.0, 0.0
        self.slack = SLACK * graph.work / p.multipliers

    def search(self, way: Way) -> Chosen:
        """The best choice found for every operation. Raises ``CompileError``."""
        self.way, self.operands.steady = way, way.steady
        self._slice(sliced_axes(self.graph, self.p, large=way.large) if way.sliced else {})
        lies: dict[str, tuple[Lies, ...]] = {}
        for name, given in self.given.items():
            lies[name] = tuple(
                Lies(one.layout.lanes, () if one.again else one.layout.padded or None, one.cut, 0.0)
                for one in given.stored
                if one.layout
            )
        states = [State((0.0, 0.0, 0.0), lies, (), ())]
        for n, op in enumerate(self.graph.ops):
            self.due = self._later(n)
            tries = (one for state in states for one in self._tries(state, op))
            states = self._pruned(op, sorted(tries, key=lambda one: one.least), n)
            if not states:
                raise CompileError(f"{op.out}: no array can compute it; use other sizes or ranks")
        if not way.steady:
            return Chosen(states[0].choices, states[0].pads)
        best = min(
            (balanced(self.graph, state, self.cycles, self.p.lanes) for state in states),
            key=lambda one: one.cycles,
        )
        return Chosen(best.choices, best.pads)

    def _read(self, op: Op) -> tuple[str, ...]:
        """Return the tensors that an operation reads, sources of windows included."""
        windows = self.graph.windows
        return (*op.operands, *(windows[name].x for name in op.operands if name in windows))

    def _later(self, n: int) -> tuple[float, float]:
        """Cycles of each array after operation ``n`` for what the other one cannot compute: an
        operand lies in outer memory in a layout that only one of them reads.
        """
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

    def _score(
        self,
        dots: float,
        outers: float,
        loads: float,
        shared: tuple[float, float],
    ) -> float:
        dots, outers = dots + self.due[0], outers + self.due[1]
        if self.way.steady:  # arrays are balanced in the end
            even = max((dots + outers) / 2, dots - shared[0], outers - shared[1])
            return max(even, loads) + self.way.weight * loads
        return max(dots, outers) + LESSER * min(dots, outers) + self.way.weight * loads

    def _pruned(self, op: Op, tries: Sequence[_Try], n: int) -> list[State]:
        """The best states, of those with the same future one: ``tries`` begin with the least score
        that each can have, and those are not made that cannot be among the best.
        """
        best: dict[tuple, tuple[float, int, State]] = {}
        scores: list[float] = []
        evaluated = 0
        self.operands.forget()
        over = self.over.get(n, ())
        names = (op.out, *self._read(op))
        touched = [name for name in dict.fromkeys(names) if name not in self.flexible]
        untouched = self.flexible.union(touched)
        # Tries of a state differ in the tensors that the operation touches, so the others are
        # compared once a state: comparing all of them took a fifth of a search.
        others: dict[int, int] = {}
        numbers: dict[tuple, int] = {}
        for number, one in enumerate(tries):
            most = min(scores[0] + self.slack if scores else INFINITE,
                       scores[self.beam - 1] if len(scores) >= self.beam else INFINITE)  # fmt: skip
            if one.least > most:
                break
            state = one.state
            if id(state) not in others:
                key = state.key(name for name in state.lies if name not in untouched)
                others[id(state)] = numbers.setdefault(key, len(numbers))
            number_of_others = others[id(state)]
            if one.works is not None:
                if self._least(one, op) > most:
                    continue
                evaluated += 1
                state = self._made(state, op, one.works)
                if state is None:
                    continue
            score = self._score(state.dots, state.outers, state.loads, state.shared)
            if len(scores) >= self.beam and score > scores[self.beam - 1]:
                continue
            for name in over:
                state.lies.pop(name, None)
            key = number_of_others, state.key(touched)
            if key in best:
                if score >= best[key][0]:
                    continue
                scores.remove(best[key][0])
            best[key] = score, number, state
            insort(scores, score)
        count("states", evaluated)
        return [
            state for _, _, state in sorted(best.values(), key=lambda one: one[:2])[: self.beam]
        ]

    def _least(self, one: _Try, op: Op) -> float:
        """The score that a state has at least, with what its operands take."""
        assert isinstance(op, Einsum) and one.works
        state, operands = one.state, self.operands
        dots, outers, loads = state.dots, state.outers, state.loads
        readable: list[float] = []
        fetched: dict[str, dict[tuple[Axes, Cut], float]] = {}
        for work in reversed(one.works):
            assert work.impl
            latest = 0.0
            for need in work.impl.needs:
                name = need.tensor
                cut = operands.cut_of(name, work.cut)
                known = fetched.setdefault(name, {})
                ready = known.get((need.lanes, cut))
                if ready is None:
                    source = operands.source(state.lies.get(name, ()), need, cut)
                    if source is None:
                        return INFINITE
                    if isinstance(source, There):
                        ready = source.found.ready
                    elif isinstance(source, Loaded):
                        loads += source.cycles
                        ready = operands.at(loads) if source.cycles else 0.0
                    elif known:  # the layout just made may be the better source
                        ready = 0.0
                    else:
                        dots = max(dots, source.found.ready) + source.cycles
                        ready = operands.at(dots + AFTER)
                    known[need.lanes, cut] = ready
                latest = max(latest, ready)
            readable.append(latest)
        for work, ready in zip(one.works, reversed(readable), strict=True):
            assert work.impl
            cycles = self.cycles(op, work.impl, work.cut)
            if work.impl.dot:
                dots = max(dots, ready) + cycles
            else:
                outers = max(outers, ready) + cycles
        return self._score(dots, outers, loads, one.shared)

    # Operations.

    def _tries(self, state: State, op: Op) -> Iterator[_Try]:
        """What an operation can make of a state."""
        match op:
            case View():
                made = self._view(state, op)
            case Unfold():
                new = state.copy()
                new.choices = (*new.choices, Choice(op, (), self.graph.tensors[op.x].axes[-1:]))
                made = iter((new,))
            case Einsum():
                yield from self._contractions(state, op)
                return
            case Add() | Mask() | Kernel():
                made = self._elementwise(state, op)
        for new in made:
            yield _Try(self._score(new.dots, new.outers, new.loads, new.shared), new)

    def _contractions(self, state: State, op: Einsum) -> Iterator[_Try]:
        fixed = self._fixed(state, op)
        piped = self.way.piped and op.out in self.sliced
        if not fixed and (piped or not self.sliced.get(op.out, Sliced()).divided):
            dots, outers = self._impls(op)
            for impl in self._lying(state, op, [*dots, *outers]):
                one = impl.cycles if impl.dot else 0.0, 0.0 if impl.dot else impl.cycles
                yield self._try(state, (Work(impl, None),), *one)
        if self.way.piped and op.out not in self.sliced and set(op.operands) & set(self.sliced):
            return  # it would have slices transposed
        if piped and not self.way.shared:
            return
        yield from self._sums(state, op, fixed)
        for pairs in self._alike(op) if piped else self._every_pair(op):
            tries = [
                self._divided(state, pair, middle)
                for pair in pairs
                for middle in pair.middles(state, self.due, fixed)
            ]
            if tries and not fixed:
                yield from sorted(tries, key=lambda one: one.least)[:MOST_OF_A_PAIR]
            else:
                yield from tries

    def _sums(self, state: State, op: Einsum, fixed: set[Cut]) -> Iterator[_Try]:
        """A sum divided between the arrays: an operand lies in parts along an axis of it."""
        cuts = [cut for cut in fixed if cut and cut[0] in self.graph.summed(op)]
        if len(cuts) != 2 or len(fixed) != 2:
            return
        dots, outers = self._impls(op)
        for dot in dots:
            for outer in (o for o in outers if o.along == dot.along):
                for first, second in (sorted(cuts), sorted(cuts)[::-1]):
                    works = Work(dot, first), Work(outer, second)
                    yield self._try(
                        state, works, self.cycles(op, dot, first), self.cycles(op, outer, second)
                    )

    def _lying(self, state: State, op: Einsum, impls: list[Impl]) -> list[Impl]:
        """Those of an operation outside the slices that have nothing transposed or padded that
        slices read, if there are any: it would lie there whole, and twice.
        """
        if not self.way.piped or op.out in self.sliced:
            return impls
        makers = self.graph.makers
        read = {n for name in self.sliced if name in makers for n in makers[name].operands}
        read -= self.operands.free
        found = [
            impl
            for impl in impls
            if all(
                need.tensor not in read
                or (
                    not need.padded
                    and any(one.lanes == need.lanes for one in state.lies.get(need.tensor, ()))
                )
                for need in impl.needs
            )
        ]
        return found or impls

    def _divided(self, state: State, pair: Pair, middle: int) -> _Try:
        dots, outers, works = pair.divided(middle)
        return self._try(state, works, dots, outers)

    def _try(self, state: State, works: tuple[Work, ...], dots: float, outers: float) -> _Try:
        shared = _shared(state, dots, outers) if len(works) > 1 else state.shared
        dots, outers = state.dots + dots, state.outers + outers
        score = self._score(dots, outers, state.loads, shared)
        return _Try(score, state, works, dots, outers, shared)

    def _view(self, state: State, op: View) -> Iterator[State]:
        lanes = self.graph.tensors[op.x].axes[-1:]
        new = state.copy()
        got = self.operands.fetch(new, Need(op.x, lanes), None)
        if got is not None:
            new.lies[op.out] = (Lies(lanes, None, None, got),)
            new.choices = (*new.choices, Choice(op, (), lanes))
            yield new

    def _elementwise(self, state: State, op: Add | Mask | Kernel) -> Iterator[State]:
        seen = {x.lanes for name in op.operands for x in state.lies.get(name, ())}
        broadcast = self.graph.tensors[op.operands[-1]].axes != self.graph.tensors[op.out].axes
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
                rows = self.operands.rows(op.out, lanes, None) / self.p.lanes
                cycles = rows
                if isinstance(op, Kernel):
                    cycles = pass_cycles(lowered(op, self.graph.tensors), rows, self.p)
                new.outers = max(new.outers, ready) + cycles
                ready = self.operands.at(new.outers + AFTER)
                new.lies[op.out] = (Lies(lanes, (), None, ready),)
                new.choices = (*new.choices, Choice(op, (Work(None, None),), lanes))
                yield new

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
        cycles = self.cycles(op, impl, work.cut)
        if impl.dot:
            state.dots = max(state.dots, ready) + cycles
            return self.operands.at(state.dots + AFTER)
        state.outers = max(state.outers, ready) + cycles
        return self.operands.at(state.outers + AFTER)

    def _made(self, state: State, op: Op, works: Sequence[Work]) -> State | None:
        """The state with an operation by one array, or by both, PE1 first; ``None`` where operands
        cannot lie as they are needed.
        """
        assert isinstance(op, Einsum)
        new, there = state.copy(), list[float]()
        for work in reversed(works):
            assert work.impl
            ready = self._fetched(new, work.impl, work.cut)
            if ready is None:
                return None
            there.append(ready)
        if len(works) > 1:
            first, second = (self.cycles(op, work.impl, work.cut) for work in works if work.impl)
            new.shared = _shared(state, first, second)
        done = [self._run(new, op, w, at) for w, at in zip(works, reversed(there), strict=True)]
        along = [work.impl.along for work in works if work.impl]
        if self.way.piped and op.out in self.sliced and works[0].impl:  # slice by slice
            done = [at - works[0].impl.cycles * (1 - 1 / SLICES) for at in done]
        if len(set(along)) == 1:
            new.lies[op.out] = (Lies(along[0], (), None, max(done)),)
        else:
            new.lies[op.out] = tuple(
                Lies(lanes, (), work.cut, ready)
                for lanes, work, ready in zip(along, works, done, strict=True)
            )
        new.choices = (*new.choices, Choice(op, tuple(works), ()))
        if op.out in self.turned:
            self.operands.fetch(new, Need(op.out, self.turned[op.out]), None)
        return new

    def _fixed(self, state: State, op: Einsum) -> set[Cut]:
        """The cuts of operands that lie in parts of different layouts."""
        found: set[Cut] = set()
        for name in op.operands:
            lies = state.lies.get(name, ())
            if name in self.graph.windows or (name in self.given and not self.given[name].parts):
                continue
            if all(x.cut for x in lies):
                found |= {x.cut for x in lies}
        return found


def choose(
    graph: Graph,
    given: Mapping[str, Given],
    kept: Stored,
    p: AcceleratorParameters,
    ways: Sequence[Way],
    parted: Collection[str] = (),
) -> list[Chosen]:
    """How each operation of a program is computed, in several ways. Raises ``CompileError``.

    What is ``kept`` lies in one layout in the end; what is ``parted`` may lie in two, some values
    in each.
    """
    chooser = Chooser(graph, given, kept, p, parted)
    found: list[Chosen] = []
    for way in ways:
        if found and is_spent():
            break
        chosen = chooser.search(way)
        if chosen not in found:
            found.append(chosen)
    return found
