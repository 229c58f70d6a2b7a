"""Estimated clocks of the arrays and the loads, and where tensors lie: the states of a search."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from trainwright.graph.ir import Graph
from trainwright.lowering.choices import AFTER, BEAT, Choice, Cut, Given, Pad
from trainwright.lowering.impls import Need, up
from trainwright.lowering.layout import Axes
from trainwright.lowering.windows import is_plain, slid
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
        if cut and cut[0] not in self.axes[name]:
            cut = None
        there: list[Lies] = []
        for found in state.lies.get(name, ()):
            if found.cut is None or found.cut == cut:
                if found.lanes == need.lanes:
                    self._pad(state, name, found, need.padded)
                    return found.ready
                there.append(found)
        given = self.given.get(name)
        if given and given.is_free:
            state.loads += BEAT * self.rows(name, need.lanes, cut)
            ready = self.at(state.loads)
            self._new(state, name, Lies(need.lanes, need.padded, cut, ready))
            return ready
        if name in self.graph.windows:
            return self._windows(state, need, cut)
        if not there:
            return None
        return self._transposed(state, need, cut, there)

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

    def least(self, state: State, need: Need, cut: Cut) -> float | None:
        """Cycles that PE1 takes at least to have an operand lie as needed; ``None``: it never can.

        Of tensors that lie as one likes, and of windows: 0.
        """
        name = need.tensor
        if name in self.free:
            return 0.0
        if cut and cut[0] not in self.axes[name]:
            cut = None
        there: list[Lies] = []
        for found in state.lies.get(name, ()):
            if found.cut is None or found.cut == cut:
                if found.lanes == need.lanes:
                    return 0.0
                there.append(found)
        return self._turn(need, cut, there)[1] if there else None

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

    def _turn(self, need: Need, cut: Cut, there: Sequence[Lies]) -> tuple[Lies, float, bool]:
        """From what PE1 transposes an operand, its cycles, and whether at once."""
        lanes, wanted = self.p.lanes, need.lanes
        found, apart = there[0], False
        for one in there:
            if frozenset(one.lanes).isdisjoint(wanted):
                found, apart = one, True
                break
        key = need.tensor, wanted, found.lanes, cut
        if key not in self._turns:
            sizes, values = self.sizes(cut), float(self._values(need.tensor, cut))
            values *= self.graph.tensors[need.tensor].digits
            for axes in (wanted, found.lanes):
                size = prod(sizes[a] for a in axes)
                values *= up(size, lanes) * lanes / size
            self._turns[key] = values / self.p.pe1_rows * (1 if apart else 2)
        return found, self._turns[key], apart

    def _transposed(self, state: State, need: Need, cut: Cut, there: list[Lies]) -> float:
        found, cycles, apart = self._turn(need, cut, there)
        state.dots = max(state.dots, found.ready) + cycles
        size = prod(self.graph.sizes[a] for a in need.lanes)
        if apart and size % self.p.lanes:
            self._pad(state, need.tensor, found, need.lanes)
        ready = self.at(state.dots + AFTER)
        self._new(state, need.tensor, Lies(need.lanes, need.padded, cut, ready))
        return ready
