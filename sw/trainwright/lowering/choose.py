"""Which array computes what, from operands in which layouts: a beam search over estimated clocks.

Operations are taken in order. For each, one array computes all of it or both divide it along an
axis; their parts may even lie in different layouts, if what reads them is divided alike. An operand
that does not lie as it is needed is loaded (factors, inputs) or transposed by PE1's array.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from trainwright.compiler.errors import CompileError
from trainwright.graph.ir import Add, Einsum, Graph, Mask, Op, View, Window
from trainwright.lowering.impls import (
    Impl,
    Need,
    dot_cycles,
    implementations,
    outer_cycles,
    up,
)
from trainwright.lowering.layout import Axes, Layout
from trainwright.lowering.windows import is_plain, slid
from trainwright.parameters import AcceleratorParameters

BEAM = 24
"""Partial programs kept after each operation."""
MOST_OF_AN_ARRAY = 8
"""Implementations of one array that are tried."""
MOST_AXES = 4
"""Axes along which an operation is divided between the arrays that are tried."""
AFTER = 50
"""Cycles from the last step of a command to the first of one that reads its results."""
SLICES = 4
"""Slices in which a large tensor is made, by the estimate."""
BEAT = 1.25
"""Cycles of a beat of the external memory."""

Cut = tuple[str, int, int] | None
"""Values of one axis: first, and the one after the last."""


@dataclass(frozen=True)
class Lies:
    """A tensor, or its values in ``cut``, in a layout, and when."""

    lanes: Axes
    padded: Axes | None
    """Axes of the rows that are padded; ``None`` where none can be."""
    cut: Cut
    ready: float
    """When it can first be read: slices of a large tensor are read while others are made."""
    done: float = 0.0
    """When all of it is there."""

    def serves(self, need: Need, cut: Cut) -> bool:
        """Whether it can be read as needed."""
        return self.lanes == need.lanes and (self.cut is None or self.cut == cut)

    def pads(self, axes: Axes) -> bool:
        """Whether these axes can be padded."""
        return not axes or self.padded in ((), axes)


@dataclass(frozen=True)
class Work:
    """An operation, or its values in ``cut``, by one array."""

    impl: Impl | None
    """``None`` for an element-wise operation."""
    cut: Cut


@dataclass(frozen=True)
class Choice:
    """How an operation is computed: by one array or by two."""

    op: Op
    works: tuple[Work, ...]
    lanes: Axes
    """Of an element-wise operation's operands and result."""


@dataclass(frozen=True)
class Way:
    """What a search prefers."""

    weight: float
    """Of a cycle of loads: much where the scratchpad is short."""
    flow: bool
    """Whether a slice of a large tensor is read while the next is made."""
    apart: bool
    """Whether the arrays may make parts of a tensor in different layouts."""


@dataclass(frozen=True)
class Given:
    """A tensor that lies in outer memory: as one likes it, or along these lanes alone."""

    layout: Layout | None = None

    @property
    def lanes(self) -> Axes | None:
        """The axes along the lanes, where they are fixed."""
        return self.layout.lanes if self.layout else None


Pad = tuple[str, Axes, Axes]
"""A tensor, its lanes, and the axes of its rows that are padded."""


@dataclass(frozen=True)
class Chosen:
    """How each operation of a program is computed, and what is padded."""

    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...]


@dataclass(frozen=True)
class _State:
    dots: float
    """When PE1 is free."""
    outers: float
    loads: float
    lies: Mapping[str, tuple[Lies, ...]]
    choices: tuple[Choice, ...]
    pads: tuple[Pad, ...] = ()
    weight: float = 0.02

    @property
    def score(self) -> float:
        late, early = max(self.dots, self.outers), min(self.dots, self.outers)
        return late + 0.3 * early + self.weight * self.loads

    def key(self, flexible: Collection[str]) -> tuple:
        return tuple(
            (name, *sorted((x.lanes, x.padded or (), x.cut or ()) for x in lies))
            for name, lies in self.lies.items()
            if lies and name not in flexible
        )


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
        self.kept = set(kept)
        """Tensors that must lie whole in one layout: others read them later."""
        self.flexible = {name for name, one in given.items() if one.lanes is None}
        self.last: dict[str, int] = {}
        for n, op in enumerate(graph.ops):
            for name in op.operands:
                self.last[name] = n
                if name in graph.windows:
                    self.last[graph.windows[name].x] = n

    def search(self) -> Chosen:
        """The best choice found for every operation."""
        lies: dict[str, tuple[Lies, ...]] = {}
        for name, given in self.given.items():
            lies[name] = (
                ()
                if given.layout is None
                else (Lies(given.layout.lanes, given.layout.padded or None, None, 0.0),)
            )
        states = [_State(0.0, 0.0, 0.0, lies, (), (), self.way.weight)]
        for n, op in enumerate(self.graph.ops):
            states = self._pruned((new for state in states for new in self._step(state, op)), n)
            if not states:
                raise CompileError(f"{op.out}: no array can compute it; use other sizes or ranks")
        return Chosen(states[0].choices, states[0].pads)

    def _pruned(self, states: Iterator[_State], n: int) -> list[_State]:
        best: dict[tuple, _State] = {}
        for state in states:
            lies = {
                name: found
                for name, found in state.lies.items()
                if self.last.get(name, -1) > n or name in self.kept
            }
            state = replace(state, lies=lies)
            key = state.key(self.flexible)
            if key not in best or state.score < best[key].score:
                best[key] = state
        return sorted(best.values(), key=lambda state: state.score)[:BEAM]

    # Operands.

    def _values(self, name: str, cut: Cut) -> int:
        count = self.graph.count(name)
        if cut:
            count = count // self.graph.sizes[cut[0]] * (cut[2] - cut[1])
        return count

    def _rows(self, name: str, lanes: Axes, cut: Cut) -> float:
        sizes = self._sizes(cut)
        size = prod(sizes[a] for a in lanes)
        return self._values(name, cut) / size * up(size, self.p.lanes)

    def _sizes(self, cut: Cut) -> Mapping[str, int]:
        return {**self.graph.sizes, cut[0]: cut[2] - cut[1]} if cut else self.graph.sizes

    def _fetch(self, state: _State, need: Need, cut: Cut) -> tuple[_State, float] | None:
        """The state in which an operand lies as needed, and when it does."""
        if cut and cut[0] not in self.graph.tensors[need.tensor].axes:
            cut = None
        lies = state.lies.get(need.tensor, ())
        for found in lies:
            if found.serves(need, cut):
                return self._padded(state, need.tensor, found, need.padded), found.ready
        given = self.given.get(need.tensor)
        if given and given.lanes is None:
            loads = state.loads + BEAT * self._rows(need.tensor, need.lanes, cut)
            new = Lies(need.lanes, need.padded, cut, loads)
            state = self._padded(replace(state, loads=loads), need.tensor, None, need.padded, new)
            return state, loads
        if need.tensor in self.graph.windows:
            return self._surrounded(state, need, cut)
        there = [found for found in lies if found.cut is None or found.cut == cut]
        if not there:
            return None
        apart = [found for found in there if not set(found.lanes) & set(need.lanes)]
        return self._transposed(state, need, cut, (apart or there)[0], 1 if apart else 2)

    def _surrounded(self, state: _State, need: Need, cut: Cut) -> tuple[_State, float] | None:
        """Windows, where their source is with zeros around it."""
        window = self.graph.windows[need.tensor]
        if set(need.lanes) & slid(self.graph, need.tensor):
            return None
        got = self._fetch(state, Need(window.x, need.lanes), cut)
        if got is None:
            return None
        state, ready = got
        if not is_plain(self.graph, window) and window.x not in self.given:
            outers = max(state.outers, ready) + self._rows(window.x, need.lanes, cut)
            state, ready = replace(state, outers=outers), outers + AFTER
        new = Lies(need.lanes, need.padded, cut, ready)
        return self._with(state, need.tensor, None, new), ready

    def _padded(
        self, state: _State, name: str, found: Lies | None, axes: Axes, new: Lies | None = None
    ) -> _State:
        """The state in which a tensor that lies somewhere is padded."""
        if new is None:
            assert found
            if not axes or not found.pads(axes) or found.padded == axes:
                return state
            new = replace(found, padded=axes)
        state = self._with(state, name, found, new)
        if axes:
            state = replace(state, pads=(*state.pads, (name, new.lanes, axes)))
        return state

    def _transposed(
        self, state: _State, need: Need, cut: Cut, found: Lies, times: int
    ) -> tuple[_State, float]:
        sizes, lanes = self._sizes(cut), self.p.lanes
        values = float(self._values(need.tensor, cut))
        for axes in (need.lanes, found.lanes):
            size = prod(sizes[a] for a in axes)
            values *= up(size, lanes) * lanes / size
        dots = max(state.dots, found.ready) + times * values / self.p.pe1_rows
        size = prod(self.graph.sizes[a] for a in need.lanes)
        if times == 1:
            state = self._padded(state, need.tensor, found, need.lanes if size % lanes else ())
        new = Lies(need.lanes, need.padded, cut, dots + AFTER)
        state = replace(state, dots=dots)
        return self._padded(state, need.tensor, None, need.padded, new), dots + AFTER

    @staticmethod
    def _with(state: _State, name: str, old: Lies | None, new: Lies) -> _State:
        lies = tuple(x for x in state.lies.get(name, ()) if x != old)
        return replace(state, lies={**state.lies, name: (*lies, new)})

    # Operations.

    def _step(self, state: _State, op: Op) -> Iterator[_State]:
        match op:
            case View():
                yield from self._view(state, op)
            case Window():
                lanes = self.graph.tensors[op.x].axes[-1:]
                yield replace(state, choices=(*state.choices, Choice(op, (), lanes)))
            case Einsum():
                yield from self._single(state, op)
                yield from self._shared(state, op)
            case Add() | Mask():
                yield from self._elementwise(state, op)

    def _view(self, state: _State, op: View) -> Iterator[_State]:
        lanes = self.graph.tensors[op.x].axes[-1:]
        got = self._fetch(state, Need(op.x, lanes), None)
        if got:
            new, ready = got
            lies = {**new.lies, op.out: (Lies(lanes, None, None, ready),)}
            yield replace(new, lies=lies, choices=(*new.choices, Choice(op, (), lanes)))

    def _elementwise(self, state: _State, op: Add | Mask) -> Iterator[_State]:
        seen = {x.lanes for name in op.operands for x in state.lies.get(name, ())}
        broadcast = self.graph.tensors[op.operands[1]].axes != self.graph.tensors[op.out].axes
        if broadcast:
            seen = {self.graph.tensors[op.out].axes[-1:]}
        for lanes in sorted(seen):
            new, ready = state, 0.0
            for name in op.operands[: 1 if broadcast else 2]:
                got = self._fetch(new, Need(name, lanes), None)
                if got is None:
                    break
                new, ready = got[0], max(ready, got[1])
            else:
                cycles = self._rows(op.out, lanes, None) / self.p.lanes
                outers = max(new.outers, ready) + cycles
                lies = {**new.lies, op.out: (Lies(lanes, (), None, outers + AFTER),)}
                choice = Choice(op, (Work(None, None),), lanes)
                yield replace(new, outers=outers, lies=lies, choices=(*new.choices, choice))

    def _impls(self, op: Einsum) -> tuple[list[Impl], list[Impl]]:
        if not hasattr(self, "_cache"):
            self._cache: dict[str, tuple[list[Impl], list[Impl]]] = {}
        if op.out not in self._cache:
            every = implementations(self.graph, op, self.p)
            dots, outers = [i for i in every if i.dot], [i for i in every if not i.dot]
            self._cache[op.out] = self._varied(dots), self._varied(outers)
        return self._cache[op.out]

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
        sizes = self._sizes(cut)
        free = prod(sizes[a] for a in self.graph.tensors[op.out].axes)
        summed = prod(sizes[a] for a in self.graph.summed(op))
        if impl.dot:
            return dot_cycles(self.p, sizes, free, summed, (impl.rows, impl.along, impl.inner))
        return outer_cycles(self.p, sizes, free, summed, (impl.rows, impl.along))

    def _run(
        self, state: _State, op: Einsum, impl: Impl, cut: Cut
    ) -> tuple[_State, float, float] | None:
        """The state after one array's work, and when its result can be read and is whole."""
        ready = whole = 0.0
        for need in impl.needs:
            got = self._fetch(state, need, cut)
            if got is None:
                return None
            state, when = got
            ready = max(ready, when)
            lies = state.lies[need.tensor]
            whole = max(whole, *(x.done for x in lies if x.lanes == need.lanes), 0.0)
        cycles = self._cycles(op, impl, cut)
        start = max(state.dots if impl.dot else state.outers, ready)
        done = max(start + cycles, whole + cycles / SLICES)
        state = replace(state, dots=done) if impl.dot else replace(state, outers=done)
        early = done
        if self._large(op.out):
            early = start + cycles / SLICES
        return state, early + AFTER, done + AFTER

    def _large(self, name: str) -> bool:
        """Whether a tensor is made and read in slices."""
        return self.way.flow and self.graph.count(name) > self.p.scratchpad_rows * self.p.lanes // 4

    def _fetched(self, state: _State, works: Sequence[tuple[Impl, Cut]]) -> _State | None:
        """The state in which the operands of works lie as needed."""
        for impl, cut in works:
            for need in impl.needs:
                got = self._fetch(state, need, cut)
                if got is None:
                    return None
                state = got[0]
        return state

    def _single(self, state: _State, op: Einsum) -> Iterator[_State]:
        if self._fixed(state, op):
            return
        dots, outers = self._impls(op)
        for impl in (*dots, *outers):
            got = self._run(state, op, impl, None)
            if got:
                new, ready, done = got
                lies = {**new.lies, op.out: (Lies(impl.along, (), None, ready, done),)}
                choice = Choice(op, (Work(impl, None),), ())
                yield replace(new, lies=lies, choices=(*new.choices, choice))

    def _shared(self, state: _State, op: Einsum) -> Iterator[_State]:
        dots, outers = self._impls(op)
        for dot in dots:
            for outer in (o for o in outers if o.along == dot.along):
                for axis in self._axes(op, dot, outer):
                    yield from self._divided(state, op, (dot, outer), axis)
        if op.out in self.kept or not self.way.apart:
            return
        for dot in dots[:MOST_OF_AN_ARRAY]:
            for outer in outers[:MOST_OF_AN_ARRAY]:
                if dot.along != outer.along:
                    for axis in self._axes(op, dot, outer):
                        if self._goes_on(op.out, axis):
                            yield from self._divided(state, op, (dot, outer), axis)

    def _goes_on(self, name: str, axis: str) -> bool:
        """Whether all that reads a tensor can be divided along an axis, too."""
        return all(
            isinstance(op, Einsum) and axis in self.graph.tensors[op.out].axes
            for op in self.graph.ops
            if name in op.operands
        )

    def _fixed(self, state: _State, op: Einsum) -> set[Cut]:
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
        sizes = self.graph.sizes
        axes = [
            axis
            for axis in self.graph.tensors[op.out].axes
            if sizes[axis] > 1 and self._divides(axis, dot) and self._divides(axis, outer)
        ]
        return sorted(axes, key=lambda axis: -min(sizes[axis], 16))[:MOST_AXES]

    @staticmethod
    def _divides(axis: str, impl: Impl) -> bool:
        if axis in impl.rows[1:] or (axis in impl.rows and not impl.dot):
            return False
        return axis not in impl.along or impl.along == (axis,)

    def _divided(
        self, state: _State, op: Einsum, pair: tuple[Impl, Impl], axis: str
    ) -> Iterator[_State]:
        size = self.graph.sizes[axis]
        unit = self.p.lanes if any(axis in impl.along for impl in pair) else 1
        fixed = self._fixed(state, op)
        dot, outer = pair
        if fixed:
            if any(cut[0] != axis for cut in fixed if cut):
                return
            middle = {cut[2] for cut in fixed if cut and cut[1] == 0}
        else:
            share = (outer.cycles + state.outers - state.dots) / (dot.cycles + outer.cycles)
            best = round(size * min(1.0, max(0.0, share)) / unit) * unit
            middle = {min(max(best, unit), (size - 1) // unit * unit)} - {0}
        for m in sorted(middle):
            if m % unit:
                continue
            there = self._fetched(state, ((outer, (axis, m, size)), (dot, (axis, 0, m))))
            got = there and self._run(there, op, dot, (axis, 0, m))
            got2 = got and self._run(got[0], op, outer, (axis, m, size))
            if not got or not got2:
                continue
            new = got2[0]
            parts = (Lies(dot.along, (), None, max(got[1], got2[1]), max(got[2], got2[2])),)
            if dot.along != outer.along:
                parts = (
                    Lies(dot.along, (), (axis, 0, m), got[1], got[2]),
                    Lies(outer.along, (), (axis, m, size), got2[1], got2[2]),
                )
            works = (Work(dot, (axis, 0, m)), Work(outer, (axis, m, size)))
            choice = Choice(op, works, ())
            yield replace(new, lies={**new.lies, op.out: parts}, choices=(*new.choices, choice))


def choose(
    graph: Graph,
    given: Mapping[str, Given],
    kept: Sequence[str],
    p: AcceleratorParameters,
    way: Way,
) -> Chosen:
    """How each operation of a program is computed."""
    return Chooser(graph, given, kept, p, way).search()
