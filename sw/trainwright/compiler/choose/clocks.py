"""States of the search: estimated clocks of the arrays and the loads, and where tensors lie.

A state has a clock for each array and one for the loads, and the replicas of every tensor: its
layouts and the time from which each can be read. ``OperandSources`` finds the
cheapest origin of an operand and advances the clocks by what it takes. ``choose`` is the only user.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from trainwright.compiler.base.estimates import BEAT_CYCLES, RESULT_LATENCY
from trainwright.compiler.forms.choices import Choice, Cut, Pad
from trainwright.compiler.forms.external import Sources
from trainwright.compiler.forms.impls import Need, up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import is_plain, slid
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters
from trainwright.program.elementwise import SUM
from trainwright.program.engines import EVERY_ARRAY, TRANSPOSER, transpose_cycles
from trainwright.program.fields import Engine
from trainwright.support.memo import CachedMethod

NONE = (0.0,) * len(EVERY_ARRAY)
"""No cycles of any array."""


class Replica(NamedTuple):
    """Copy of a tensor, or of its values in ``cut``, in one layout."""

    lanes: Axes
    padded: Axes | None
    """Axes of the rows that are padded; () where any can be, ``None`` where none can be."""
    cut: Cut
    ready: float
    """Time from which the replica can be read."""

    def pads(self, axes: Axes) -> bool:
        """Return whether these axes can be padded."""
        return not axes or self.padded in ((), axes)


class SearchState:
    """Result of the choices so far: when each array is free, and where tensors lie."""

    # Slots, as a search makes hundreds of thousands of states.
    __slots__ = ("choices", "clocks", "loads", "pads", "replicas", "shared")

    def __init__(
        self,
        clocks: Sequence[float],
        loads: float,
        replicas: dict[str, tuple[Replica, ...]],
        choices: tuple[Choice, ...] = (),
        pads: tuple[Pad, ...] = (),
        shared: Sequence[float] = NONE,
    ):
        self.clocks, self.loads = [*clocks], loads
        """Cycles of each array, and cycles of the loads."""
        self.shared = shared
        """Cycles of each array in operations that both divide: the other array can take them."""
        self.replicas, self.choices, self.pads = replicas, choices, pads

    def copy(self) -> "SearchState":
        """Return a state to go on from; only clocks and the dictionary of replicas are copied."""
        replicas = self.replicas.copy()
        return SearchState(self.clocks, self.loads, replicas, self.choices, self.pads, self.shared)

    def advance(self, engine: Engine, ready: float, cycles: float) -> float:
        """Let an array work from ``ready`` on; return when the result can be read."""
        place, clocks = EVERY_ARRAY.index(engine), self.clocks
        end = clocks[place] = max(clocks[place], ready) + cycles
        return end + RESULT_LATENCY

    def key(self, names: Iterable[str]) -> tuple:
        """Return the layouts of some tensors: later operations see nothing else of these tensors.

        The search keeps the state with the best score for each key. Clocks are not in the key, so
        it may drop a state with a better clock for a single later operation.
        """
        layouts_by_tensor: list[tuple] = []
        for name in names:
            if replicas := self.replicas.get(name):
                layouts = [(x.lanes, x.padded or (), x.cut or ()) for x in replicas]
                if len(layouts) > 1:
                    layouts.sort()
                layouts_by_tensor.append((name, *layouts))
        return tuple(layouts_by_tensor)


class OperandSources:
    """Origins of operands, in states whose clocks it advances."""

    def __init__(self, graph: Graph, given: Mapping[str, Sources], p: AcceleratorParameters):
        self.graph, self.given, self.p = graph, given, p
        self.axes = {name: frozenset(t.axes) for name, t in graph.tensors.items()}
        self.free = {name for name, sources in given.items() if not sources} | set(graph.windows)
        """Given tensors whose layout the compiler may choose, and windows."""
        self.steady = False
        """Whether no operation waits for a result, as each array works on an earlier block then."""

    def sizes(self, cut: Cut) -> Mapping[str, int]:
        """Return the sizes of all axes within a cut."""
        return {**self.graph.sizes, cut[0]: cut[2] - cut[1]} if cut else self.graph.sizes

    def at(self, time: float) -> float:
        """Return when a result that is computed at ``time`` can be read."""
        return 0.0 if self.steady else time

    def _values(self, name: str, cut: Cut) -> int:
        count = self.graph.count(name)
        if cut:
            count = count // self.graph.sizes[cut[0]] * (cut[2] - cut[1])
        return count

    @CachedMethod
    def rows(self, name: str, lanes: Axes, cut: Cut) -> float:
        """Count the rows of a tensor within a cut."""
        size = prod(self.sizes(cut)[a] for a in lanes)
        rows = up(size, self.p.lanes) * self.graph.tensors[name].digits
        return self._values(name, cut) / size * rows

    def fetch(self, state: SearchState, need: Need, cut: Cut) -> float | None:
        """Return when an operand can be read as needed; ``None`` if never. Changes the state.

        The cheapest origin is taken: a replica in this layout, a load, or a transpose.
        """
        name, present = need.tensor, list[Replica]()
        if cut and cut[0] not in self.axes[name]:
            cut = None
        for replica in state.replicas.get(name, ()):
            if replica.cut is None or replica.cut == cut:
                if replica.lanes == need.lanes:
                    self._pad(state, name, replica, need.padded)
                    return replica.ready
                present.append(replica)
        if name in self.graph.windows:
            return self._windows(state, need, cut)
        if name in self.free:
            state.loads += BEAT_CYCLES * self.rows(name, need.lanes, cut)
            ready = self.at(state.loads)
            self._new(state, name, Replica(need.lanes, need.padded, cut, ready))
            return ready
        return self._transposed(state, need, cut, present) if present else None

    def _windows(self, state: SearchState, need: Need, cut: Cut) -> float | None:
        """Return when windows can be read: once their source lies with zeros around it."""
        window = self.graph.windows[need.tensor]
        if slid(self.graph, need.tensor).intersection(need.lanes):
            return None
        ready = self.fetch(state, Need(window.x, need.lanes), cut)
        if ready is None:
            return None
        if not is_plain(self.graph, window) and window.x not in self.given:
            # A computed source is copied among rows of zeros by a sum, a row a cycle; a source from
            # external memory is loaded among them.
            rows = self.rows(window.x, need.lanes, None)
            ready = self.at(state.advance(SUM.spec.engine, ready, rows))
        self._new(state, need.tensor, Replica(need.lanes, (), cut, ready))
        return ready

    def _new(self, state: SearchState, name: str, new: Replica) -> None:
        """Add a replica of a tensor to a state."""
        state.replicas[name] = (*state.replicas.get(name, ()), new)
        if new.padded:
            state.pads = (*state.pads, (name, new.lanes, new.padded))

    def _pad(self, state: SearchState, name: str, replica: Replica, axes: Axes) -> None:
        """Pad a replica, if its rows allow that."""
        if not axes or not replica.pads(axes) or replica.padded == axes:
            return
        rest = tuple(x for x in state.replicas[name] if x != replica)
        state.replicas[name] = (*rest, replica._replace(padded=axes))
        state.pads = (*state.pads, (name, replica.lanes, axes))

    @CachedMethod
    def _turned(self, name: str, wanted: Axes, lying: Axes, cut: Cut) -> float:
        """Return the cycles to transpose a tensor from some lanes to others."""
        sizes, lanes = self.sizes(cut), self.p.lanes
        values = float(self._values(name, cut)) * self.graph.tensors[name].digits
        for axes in (wanted, lying):
            size = prod(sizes[a] for a in axes)
            values *= up(size, lanes) * lanes / size
        return transpose_cycles(values / lanes, self.p)

    def _transposed(
        self, state: SearchState, need: Need, cut: Cut, present: Sequence[Replica]
    ) -> float:
        """Return when an operand can be read once one of these replicas is transposed."""
        wanted = need.lanes
        apart = next(
            (replica for replica in present if frozenset(replica.lanes).isdisjoint(wanted)), None
        )
        # A replica whose lanes share no axis with those wanted is transposed once. Any other one is
        # transposed twice: first to lanes that share an axis with neither.
        origin = apart or present[0]
        cycles = self._turned(need.tensor, wanted, origin.lanes, cut) * (1 if apart else 2)
        ready = self.at(state.advance(TRANSPOSER.engine, origin.ready, cycles))
        if apart and prod(self.graph.sizes[a] for a in wanted) % self.p.lanes:
            self._pad(state, need.tensor, origin, wanted)
        self._new(state, need.tensor, Replica(wanted, need.padded, cut, ready))
        return ready
