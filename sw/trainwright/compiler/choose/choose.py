"""Choose arrays and layouts by a beam search over estimated clocks.

Operations are taken in order. For each, one array computes all of it or two divide it along an
axis; the parts may even lie in different layouts, if what reads them is divided alike. An operand
that does not lie as needed is loaded (factors, inputs) or transposed by an array. A state of the
search has a clock for each array and for the loads; after each operation the best few states are
kept. The result goes to ``cut``; ``step`` calls ``choose`` with several modes and compares
programs.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from operator import add, sub
from typing import NamedTuple

from trainwright.compiler.base.errors import NoCandidateError
from trainwright.compiler.base.progress import count, is_spent
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.clocks import NONE, Replica, SearchState
from trainwright.compiler.choose.divisions import Divisions, balanced
from trainwright.compiler.choose.huge import Sliced
from trainwright.compiler.forms.choices import (
    Choice,
    Chosen,
    Cut,
    ProgramSpec,
    SearchMode,
    Work,
    cut_of,
)
from trainwright.compiler.forms.impls import Impl, Need
from trainwright.compiler.forms.passes import estimated_cycles, may_lie
from trainwright.graph.ir import Einsum, Kernel, Op, Unfold, View
from trainwright.program.elementwise import ArrayBody

INFINITE = float("inf")


class _Candidate(NamedTuple):
    """State after an operation, not computed yet, with a lower bound of its score."""

    least: float
    """Lower bound of the score: later terms only add to it."""
    state: SearchState
    works: tuple[Work, ...] | None = None
    """Works of the operation to add to ``state``; ``None`` if ``state`` has them already."""


class Chooser:
    """Search of one program's choices."""

    def __init__(self, spec: ProgramSpec):
        graph, given = self.graph, self.given = spec.graph, spec.given
        self.p, self.stored, self.divisions = spec.p, set(spec.stored), Divisions(spec)
        self.operands, self.cycles = self.divisions.operands, self.divisions.cycles
        self.mode, self.sliced = self.divisions.mode, self.divisions.sliced
        self.stored_lanes = {name: layout.lanes for name, layout in spec.stored.items() if layout}
        """Lanes that a stored tensor must have, whatever lanes its maker gives it."""
        self.flexible = {name for name, sources in given.items() if not sources}
        self.fixed_lanes = {
            name: sources[0].layout.lanes for name, sources in given.items() if len(sources) == 1
        }
        """Lanes of given tensors that lie in one layout."""
        tune = TUNING.choose
        # Long graphs keep fewer states an operation, so that time grows with their length and not
        # with its square.
        beam = min(tune.beam, max(tune.least_beam, tune.all_states // max(1, len(graph.ops))))
        self.beam = beam * (tune.beam_in_rows if spec.in_rows else 1)
        last: dict[str, int] = {}
        for n, op in enumerate(graph.ops):
            last |= dict.fromkeys((op.out, *self._read(op)), n)
        self.forgotten: dict[int, list[str]] = {}
        """Tensors, by operation, whose layouts no longer distinguish states after it."""
        for name, n in last.items():
            end = n + (tune.recent if name in self.stored else 0)
            self.forgotten.setdefault(end, []).append(name)
        self.due: Sequence[float] = NONE
        self.slack = tune.slack * graph.work / spec.p.multipliers

    def search(self, mode: SearchMode) -> Chosen:
        """Return the best choice found for every operation. Raises ``NoCandidateError``."""
        self.divisions.use(mode)
        self.mode, self.sliced = mode, self.divisions.sliced
        replicas: dict[str, tuple[Replica, ...]] = {}
        for name, sources in self.given.items():
            replicas[name] = tuple(
                Replica(
                    source.layout.lanes,
                    () if source.reloadable else source.layout.padded or None,
                    cut_of(source.ranges),
                    0.0,
                )
                for source in sources
            )
        states = [SearchState(NONE, 0.0, replicas)]
        for n, op in enumerate(self.graph.ops):
            self.due = self._later(n)
            candidates = (new for state in states for new in self._candidates(state, op))
            ascending = sorted(candidates, key=lambda candidate: candidate.least)
            states = self._pruned(op, ascending, n)
            if not states:
                raise NoCandidateError(
                    f"{op.out} can be computed by no array", "use other sizes or ranks"
                )
        if not mode.steady:
            return Chosen(states[0].choices, states[0].pads)
        # Balancing changes the order of the states, so all that are left are balanced.
        every = (balanced(self.divisions, state) for state in states)
        return min(every, key=lambda pair: pair[0])[1]

    def _read(self, op: Op) -> tuple[str, ...]:
        """Return the tensors that an operation reads, sources of windows included."""
        windows = self.graph.windows
        return (*op.operands, *(windows[name].x for name in op.operands if name in windows))

    def _later(self, n: int) -> Sequence[float]:
        """Return each array's cycles after operation ``n`` for work that only this array can do.

        Such an operation has an operand in external memory in a layout that only one array reads.
        Without these cycles the search balances the arrays too early, and one of them idles at the
        end.
        """
        due = [*NONE]
        if not self.mode.due:
            return due
        for op in self.graph.ops[n + 1 :]:
            fixed = [name for name in op.operands if self.fixed_lanes.get(name)]
            if isinstance(op, Einsum) and fixed:
                able = [
                    (place, min(impl.cycles for impl in reading))
                    for place, impls in enumerate(self.divisions.impls(op))
                    if (reading := [impl for impl in impls if self._reads(impl, fixed)])
                ]
                if len(able) == 1:
                    place, cycles = able[0]
                    due[place] += cycles
        return due

    def _reads(self, impl: Impl, names: Sequence[str]) -> bool:
        """Return whether an implementation reads these tensors as they lie in external memory."""
        lanes = {need.tensor: need.lanes for need in impl.needs}
        return all(lanes[name] == self.fixed_lanes[name] for name in names)

    def _score(self, clocks: Sequence[float], loads: float, shared: Sequence[float]) -> float:
        clocks = [*map(add, clocks, self.due)]
        if self.mode.steady:
            # ``balanced`` evens out the shared cycles in the end, as far as they reach: no array
            # can fall below what it has to do alone.
            even = max(sum(clocks) / len(clocks), *map(sub, clocks, shared))
            return max(even, loads) + self.mode.weight * loads
        # The least busy array counts a little: of states with equal maxima, the one with more idle
        # time has room for the operations that follow.
        return max(clocks) + self.mode.lesser * min(clocks) + self.mode.weight * loads

    def _pruned(self, op: Op, candidates: Sequence[_Candidate], n: int) -> list[SearchState]:
        """Return the best states; of several with the same future only the best.

        ``candidates`` are sorted by their lower bounds, so that the loop ends at the first one that
        cannot be among the best, and half of the states are never computed.
        """
        best: dict[tuple, tuple[float, int, SearchState]] = {}
        scores: list[float] = []
        evaluated = 0
        forgotten = self.forgotten.get(n, ())
        names = (op.out, *self._read(op))
        touched = [name for name in dict.fromkeys(names) if name not in self.flexible]
        untouched = self.flexible.union(touched)
        # Candidates of a state differ in the tensors that the operation touches, so all other
        # tensors are compared once a state: comparing them each time took a fifth of a search.
        bystanders: dict[int, int] = {}
        numbers: dict[tuple, int] = {}
        for number, candidate in enumerate(candidates):
            most = min(scores[0] + self.slack if scores else INFINITE,
                       scores[self.beam - 1] if len(scores) >= self.beam else INFINITE)  # fmt: skip
            if candidate.least > most:
                break
            state = candidate.state
            if id(state) not in bystanders:
                key = state.key(name for name in state.replicas if name not in untouched)
                bystanders[id(state)] = numbers.setdefault(key, len(numbers))
            bystander_key = bystanders[id(state)]
            if candidate.works is not None:
                state = self._computed(state, op, candidate.works)
                if state is None:
                    continue
            score = self._score(state.clocks, state.loads, state.shared)
            if score > most:
                continue
            evaluated += candidate.works is not None
            for name in forgotten:
                state.replicas.pop(name, None)
            key = bystander_key, state.key(touched)
            if key in best:
                if score >= best[key][0]:
                    continue
                scores.remove(best[key][0])
            best[key] = score, number, state
            insort(scores, score)
        count("states", evaluated)
        # The number breaks ties: equal scores keep the order in which they were found, so that a
        # program does not depend on addresses of objects.
        ascending = sorted(best.values(), key=lambda entry: entry[:2])
        return [state for _, _, state in ascending[: self.beam]]

    # -- operations --------------------------------------------------------------------------------

    def _candidates(self, state: SearchState, op: Op) -> Iterator[_Candidate]:
        """Yield the states that an operation can lead to."""
        match op:
            case View():
                states = self._view(state, op)
            case Unfold():
                new = state.copy()
                new.choices = (*new.choices, Choice(op, (), self.graph.tensors[op.x].axes[-1:]))
                states = iter((new,))
            case Einsum():
                yield from self._contractions(state, op)
                return
            case Kernel():
                states = self._elementwise(state, op)
        for new in states:
            yield _Candidate(self._score(new.clocks, new.loads, new.shared), new)

    def _contractions(self, state: SearchState, op: Einsum) -> Iterator[_Candidate]:
        fixed = self._fixed(state, op)
        piped = self.mode.piped and op.out in self.sliced
        if not fixed and (piped or not self.sliced.get(op.out, Sliced()).divided):
            impls = [*chain(*self.divisions.impls(op))]
            for impl in self._lying(state, op, impls):
                yield self._candidate(state, *self.divisions.undivided(op, impl))
        if self.mode.piped and op.out not in self.sliced and set(op.operands) & set(self.sliced):
            return  # a division of the arrays would have slices transposed
        if piped and not self.mode.shared:
            return
        yield from self._sums(state, op, fixed)
        for pairs in self.divisions.alike(op) if piped else self.divisions.every_pair(op):
            candidates = [
                self._candidate(state, *pair.divided(middle))
                for pair in pairs
                for middle in pair.middles(state, self.due, fixed)
            ]
            if candidates and not fixed:
                # Axes of one pair lead to nearly the same clocks: a few of them stand for all, and
                # leave places in the beam to other layouts.
                ascending = sorted(candidates, key=lambda candidate: candidate.least)
                yield from ascending[: TUNING.choose.axes_of_a_pair]
            else:
                yield from candidates

    def _sums(self, state: SearchState, op: Einsum, fixed: set[Cut]) -> Iterator[_Candidate]:
        """Divide a sum between two arrays, where an operand lies in parts along a summed axis."""
        cuts = [cut for cut in fixed if cut and cut[0] in self.graph.summed(op)]
        if len(cuts) != 2 or len(fixed) != 2:
            return
        for firsts, seconds in combinations(self.divisions.impls(op), 2):
            for impl in firsts:
                for partner in (i for i in seconds if i.along == impl.along):
                    for first, second in (sorted(cuts), sorted(cuts)[::-1]):
                        works = Work(impl, first), Work(partner, second)
                        yield self._candidate(state, self.divisions.taken(op, works), works)

    def _lying(self, state: SearchState, op: Einsum, impls: list[Impl]) -> list[Impl]:
        """Return the implementations that read the operands of slices as they lie, if any do.

        An operation outside the slices that has such a tensor transposed or padded would keep a
        second, whole layout of it in a scratchpad that is short already.
        """
        if not self.mode.piped or op.out in self.sliced:
            return impls
        makers = self.graph.makers
        read = {n for name in self.sliced if name in makers for n in makers[name].operands}
        read -= self.operands.free
        unmoved = [
            impl
            for impl in impls
            if all(
                need.tensor not in read
                or (
                    not need.padded
                    and any(
                        replica.lanes == need.lanes
                        for replica in state.replicas.get(need.tensor, ())
                    )
                )
                for need in impl.needs
            )
        ]
        return unmoved or impls

    def _candidate(
        self, state: SearchState, cycles: Sequence[float], works: tuple[Work, ...]
    ) -> _Candidate:
        shared = [*map(add, state.shared, cycles)] if len(works) > 1 else state.shared
        score = self._score([*map(add, state.clocks, cycles)], state.loads, shared)
        return _Candidate(score, state, works)

    def _view(self, state: SearchState, op: View) -> Iterator[SearchState]:
        # A view keeps the rows and only renames axes in rows, so the lanes must stay whole.
        lanes = self.graph.tensors[op.x].axes[-1:]
        new = state.copy()
        got = self.operands.fetch(new, Need(op.x, lanes), None)
        if got is not None:
            axes = self.graph.tensors[op.out].axes
            # The lanes may have another name, as keys are the tokens of queries.
            renamed = lanes if set(lanes) <= set(axes) else axes[-1:]
            new.replicas[op.out] = (Replica(renamed, None, None, got),)
            new.choices = (*new.choices, Choice(op, (), lanes))
            yield new

    def _elementwise(self, state: SearchState, op: Kernel) -> Iterator[SearchState]:
        seen = {x.lanes for name in op.operands for x in state.replicas.get(name, ())}
        axes, result = (self.graph.tensors[name].axes for name in (op.operands[-1], op.out))
        if not seen:  # an input lies as its first reader wants it
            seen = {(axis,) for axis in result}
        broadcast = axes != result and not op.over
        if broadcast:
            seen = {self.graph.tensors[op.out].axes[-1:]}
        if op.over:
            # Lanes of an operand may belong to groups in part; whole samples always do, or the
            # last axis of a group alone.
            seen |= {self.graph.tensors[op.out].axes[-1:], op.over[-1:]}
            seen = {lanes for lanes in seen if may_lie(op, self.graph.tensors, lanes)}
        for lanes in sorted(seen):
            new, names = state.copy(), op.operands[: 1 if broadcast else 2]
            ready = self._fetched(new, [Need(name, lanes) for name in names], None)
            if ready is None:
                continue
            if isinstance(op.body, ArrayBody):
                # Count a sixteenth or so of the cycles, as these commands fill gaps between others.
                # `digits` in batches of 80 to 256 takes 0.3 to 3 % more with all.
                cycles = self.operands.rows(op.out, lanes, None) / self.p.lanes
            else:
                cycles = estimated_cycles(op, self.graph.tensors, self.graph.sizes, lanes, self.p)
            ready = self.operands.at(new.advance(op.body.spec.engine, ready, cycles))
            new.replicas[op.out] = (Replica(lanes, (), None, ready),)
            new.choices = (*new.choices, Choice(op, (Work(None, None),), lanes))
            yield new

    def _fetched(self, state: SearchState, needs: Iterable[Need], cut: Cut) -> float | None:
        """Return when operands can be read as needed; ``None`` if never."""
        ready = 0.0
        for need in needs:
            got = self.operands.fetch(state, need, cut)
            if got is None:
                return None
            ready = max(ready, got)
        return ready

    def _run(self, state: SearchState, op: Einsum, work: Work, ready: float) -> float:
        """Advance an array's clock by a work, and return when its result can be read."""
        assert work.impl
        cycles = self.cycles(op, work.impl, work.cut)
        return self.operands.at(state.advance(work.impl.engine, ready, cycles))

    def _computed(self, state: SearchState, op: Op, works: Sequence[Work]) -> SearchState | None:
        """Return the state after an operation by one array or by two, in the order of arrays.

        ``None`` where operands cannot lie as needed.
        """
        assert isinstance(op, Einsum)
        new, readable = state.copy(), list[float]()
        # Fetch operands for the second array first: the first array transposes for both, so a
        # transpose for the second one runs ahead of the first one's own work.
        for work in reversed(works):
            assert work.impl
            ready = self._fetched(new, work.impl.needs, work.cut)
            if ready is None:
                return None
            readable.append(ready)
        if len(works) > 1:
            new.shared = [*map(add, state.shared, self.divisions.taken(op, works))]
        done = [self._run(new, op, w, at) for w, at in zip(works, reversed(readable), strict=True)]
        along = [work.impl.along for work in works if work.impl]
        if self.mode.piped and op.out in self.sliced and works[0].impl:
            # A reader can begin after the first slice, not after all of them.
            done = [at - works[0].impl.cycles * (1 - 1 / TUNING.choose.slices) for at in done]
        if len(set(along)) == 1:
            new.replicas[op.out] = (Replica(along[0], (), None, max(done)),)
        else:
            new.replicas[op.out] = tuple(
                Replica(lanes, (), work.cut, ready)
                for lanes, work, ready in zip(along, works, done, strict=True)
            )
        new.choices = (*new.choices, Choice(op, tuple(works), ()))
        if op.out in self.stored_lanes:
            self.operands.fetch(new, Need(op.out, self.stored_lanes[op.out]), None)
        return new

    def _fixed(self, state: SearchState, op: Einsum) -> set[Cut]:
        """Return the cuts of operands that lie in parts of different layouts."""
        cuts: set[Cut] = set()
        for name in op.operands:
            replicas = state.replicas.get(name, ())
            if name in self.graph.windows or (name in self.given and len(self.given[name]) < 2):
                continue
            if all(x.cut for x in replicas):
                cuts |= {x.cut for x in replicas}
        return cuts


def choose(spec: ProgramSpec, modes: Sequence[SearchMode]) -> list[Chosen]:
    """Return the different choices of several search modes. Raises ``NoCandidateError``."""
    chooser = Chooser(spec)
    results: list[Chosen] = []
    for mode in modes:
        if results and is_spent():
            break
        chosen = chooser.search(mode)
        if chosen not in results:
            results.append(chosen)
    return results
