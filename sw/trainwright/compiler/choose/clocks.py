"""Estimated clocks of the arrays and the loads, and where tensors lie: the states of a search."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from trainwright.compiler.forms.choices import AFTER, BEAT, Choice, Cut, Given, Pad
from trainwright.compiler.forms.impls import Need, up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import is_plain, slid
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters


class Lies(NamedTuple):
    """A tensor, or its values in ``cut``, in a layout, and when."""

    lanes: Axes
    padded: Axes | None
    """Axes of the rows that are padded; ``None`` where none can be."""
    cut: Cut
    ready: float
    """When it can be read."""

    def pads(self, axes: Axes) -> bool:
        """Whether these axes can be padded."""
        return not axes or self.padded in ((), axes)


class State:
    """The operations so far: when each array is free, what lies where, what was chosen."""

    __slots__ = ("choices", "dots", "lies", "loads", "outers", "pads", "shared")

    def __init__(
        self,
        clocks: tuple[float, float, float],
        lies: dict[str, tuple[Lies, ...]],
        choices: tuple[Choice, ...],
        pads: tuple[Pad, ...],
        shared: tuple[float, float] = (0.0, 0.0),
    ):
        self.dots, self.outers, self.loads = clocks
        self.shared = shared
        """Cycles of each array that the other one can take over: of what both divide."""
        self.lies, self.choices, self.pads = lies, choices, pads

    def copy(self) -> "State":
        """A state to go on from."""
        clocks = self.dots, self.outers, self.loads
        return State(clocks, self.lies.copy(), self.choices, self.pads, self.shared)

    def key(self, names: Iterable[str]) -> tuple:
        """Return the layouts of some tensors: all that later operations can tell of them."""
        found: list[tuple] = []
        for name in names:
            if lies := self.lies.get(name):
                layouts = [(x.lanes, x.padded or (), x.cut or ()) for x in lies]
                if len(layouts) > 1:
                    layouts.sort()
                found.append((name, *layouts))
        return tuple(found)


class There(NamedTuple):
    """Operand that lies as needed."""

    found: Lies


class Loaded(NamedTuple):
    """Operand that is loaded as needed, or windows of a tensor."""

    cycles: float


class Turned(NamedTuple):
    """Operand that PE1 transposes."""

    found: Lies
    cycles: float
    apart: bool
    """Whether at once: the lanes before and after have no axis in common."""


Source = There | Loaded | Turned


class Operands:
    """Has operands lie as they are needed, in states that it changes."""

    def __init__(self, graph: Graph, given: Mapping[str, Given], p: AcceleratorParameters):
        self.graph, self.given, self.p = graph, given, p
        self.axes = {name: frozenset(t.axes) for name, t in graph.tensors.items()}
        self.free = {name for name, one in given.items() if one.is_free} | set(graph.windows)
        """What lies as one likes, and windows."""
        self.steady = False
        """Whether all can be read at once: arrays are at work on what was made before."""
        self._rows: dict[tuple[str, Axes, Cut], float] = {}
        self._turns: dict[tuple[str, Axes, Axes, Cut], float] = {}
        self._sources: dict[tuple[int, int, Cut], tuple[Source | None, tuple[Lies, ...], Need]] = {}

    def sizes(self, cut: Cut) -> Mapping[str, int]:
        """Sizes of the axes within a cut."""
        return {**self.graph.sizes, cut[0]: cut[2] - cut[1]} if cut else self.graph.sizes

    def at(self, time: float) -> float:
        """When what is there at a time can be read."""
        return 0.0 if self.steady else time

    def _values(self, name: str, cut: Cut) -> int:
        count = self.graph.count(name)
        if cut:
            count = count // self.graph.sizes[cut[0]] * (cut[2] - cut[1])
        return count

    def rows(self, name: str, lanes: Axes, cut: Cut) -> float:
        """Rows of a tensor."""
        key = name, lanes, cut
        if key not in self._rows:
            size = prod(self.sizes(cut)[a] for a in lanes)
            rows = up(size, self.p.lanes) * self.graph.tensors[name].digits
            self._rows[key] = self._values(name, cut) / size * rows
        return self._rows[key]

    def fetch(self, state: State, need: Need, cut: Cut) -> float | None:
        """When an operand can be read as needed; ``None``: never."""
        name = need.tensor
        cut = self.cut_of(name, cut)
        source = self.source(state.lies.get(name, ()), need, cut)
        if source is None:
            return None
        if isinstance(source, There):
            self._pad(state, name, source.found, need.padded)
            return source.found.ready
        if isinstance(source, Turned):
            return self._transposed(state, need, cut, source)
        if name in self.graph.windows:
            return self._windows(state, need, cut)
        state.loads += source.cycles
        ready = self.at(state.loads)
        self._new(state, name, Lies(need.lanes, need.padded, cut, ready))
        return ready

    def cut_of(self, name: str, cut: Cut) -> Cut:
        """Return the cut of a tensor: none where it lacks the axis."""
        return cut if cut is None or cut[0] in self.axes[name] else None

    def source(self, lies: tuple[Lies, ...], need: Need, cut: Cut) -> "Source | None":
        """Return from where an operand comes as needed; ``None``: from nowhere."""
        # Hundreds of tries of an operation ask the same of tuples that their states share. An
        # entry keeps its tuple and its need alive, so that numbers of both stay theirs.
        key = id(lies), id(need), cut
        if key not in self._sources:
            self._sources[key] = self._source(lies, need, cut), lies, need
        return self._sources[key][0]

    def forget(self) -> None:
        """Drop what is known of sources: the next operation asks for other tensors."""
        self._sources.clear()

    def _source(self, lies: tuple[Lies, ...], need: Need, cut: Cut) -> "Source | None":
        name = need.tensor
        there: list[Lies] = []
        for found in lies:
            if found.cut is None or found.cut == cut:
                if found.lanes == need.lanes:
                    return There(found)
                there.append(found)
        if name in self.graph.windows:
            return Loaded(0.0)
        if name in self.free:
            return Loaded(BEAT * self.rows(name, need.lanes, cut))
        return self._turn(need, cut, there) if there else None

    def _windows(self, state: State, need: Need, cut: Cut) -> float | None:
        """When windows can be read: their source as needed, with zeros around it."""
        window = self.graph.windows[need.tensor]
        if slid(self.graph, need.tensor).intersection(need.lanes):
            return None
        ready = self.fetch(state, Need(window.x, need.lanes), cut)
        if ready is None:
            return None
        if not is_plain(self.graph, window) and window.x not in self.given:
            state.outers = max(state.outers, ready) + self.rows(window.x, need.lanes, None)
            ready = self.at(state.outers + AFTER)
        self._new(state, need.tensor, Lies(need.lanes, (), cut, ready))
        return ready

    def _new(self, state: State, name: str, new: Lies) -> None:
        """A tensor lies in another layout, too."""
        state.lies[name] = (*state.lies.get(name, ()), new)
        if new.padded:
            state.pads = (*state.pads, (name, new.lanes, new.padded))

    def _pad(self, state: State, name: str, found: Lies, axes: Axes) -> None:
        """Pad a tensor that lies somewhere, if that can still be."""
        if not axes or not found.pads(axes) or found.padded == axes:
            return
        others = tuple(x for x in state.lies[name] if x != found)
        state.lies[name] = (*others, found._replace(padded=axes))
        state.pads = (*state.pads, (name, found.lanes, axes))

    def _turn(self, need: Need, cut: Cut, there: Sequence[Lies]) -> "Turned":
        """From what PE1 transposes an operand, its cycles, and whether at once."""
        lanes, wanted = self.p.lanes, need.lanes
        apart = next((one for one in there if frozenset(one.lanes).isdisjoint(wanted)), None)
        found = apart or there[0]
        key = need.tensor, wanted, found.lanes, cut
        if key not in self._turns:
            sizes, values = self.sizes(cut), float(self._values(need.tensor, cut))
            values *= self.graph.tensors[need.tensor].digits
            for axes in (wanted, found.lanes):
                size = prod(sizes[a] for a in axes)
                values *= up(size, lanes) * lanes / size
            self._turns[key] = values / self.p.pe1_rows * (1 if apart else 2)
        return Turned(found, self._turns[key], apart is not None)

    def _transposed(self, state: State, need: Need, cut: Cut, turned: "Turned") -> float:
        state.dots = max(state.dots, turned.found.ready) + turned.cycles
        size = prod(self.graph.sizes[a] for a in need.lanes)
        if turned.apart and size % self.p.lanes:
            self._pad(state, need.tensor, turned.found, need.lanes)
        ready = self.at(state.dots + AFTER)
        self._new(state, need.tensor, Lies(need.lanes, need.padded, cut, ready))
        return ready
