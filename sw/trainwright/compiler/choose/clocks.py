"""States of the search: estimated clocks of the arrays and the loads, and where tensors lie.

A state has three clocks (PE1's array ``dots``, PE2's array ``outers``, the loads) and the replicas
of every tensor: its layouts and the time from which each can be read. ``OperandSources`` finds the
cheapest origin of an operand and advances the clocks by what it takes. ``choose`` is the only user.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

from trainwright.compiler.forms.choices import AFTER, BEAT, Choice, Cut, Given, Pad
from trainwright.compiler.forms.impls import Need, up
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import is_plain, slid
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import transpose_cycles


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
    __slots__ = ("choices", "dots", "loads", "outers", "pads", "replicas", "shared")

    def __init__(
        self,
        clocks: tuple[float, float, float],
        replicas: dict[str, tuple[Replica, ...]],
        choices: tuple[Choice, ...],
        pads: tuple[Pad, ...],
        shared: tuple[float, float] = (0.0, 0.0),
    ):
        self.dots, self.outers, self.loads = clocks
        self.shared = shared
        """Cycles of each array in operations that both divide: the other can take these over."""
        self.replicas, self.choices, self.pads = replicas, choices, pads

    def copy(self) -> "SearchState":
        """Return a state to go on from; only the dictionary of replicas is copied."""
        clocks = self.dots, self.outers, self.loads
        return SearchState(clocks, self.replicas.copy(), self.choices, self.pads, self.shared)

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


class InPlace(NamedTuple):
    """Operand that lies as needed."""

    replica: Replica


class ToLoad(NamedTuple):
    """Operand that is loaded in the layout that it needs, or windows of a tensor."""

    cycles: float


class ToTranspose(NamedTuple):
    """Operand that PE1 transposes."""

    replica: Replica
    cycles: float
    apart: bool
    """Whether one transpose is enough: the lanes before and after have no axis in common."""


Source = InPlace | ToLoad | ToTranspose
"""Origin of an operand in the layout that an implementation needs."""


class OperandSources:
    """Origins of operands, in states whose clocks it advances."""

    def __init__(self, graph: Graph, given: Mapping[str, Given], p: AcceleratorParameters):
        self.graph, self.given, self.p = graph, given, p
        self.axes = {name: frozenset(t.axes) for name, t in graph.tensors.items()}
        self.free = {name for name, source in given.items() if source.is_free} | set(graph.windows)
        """Given tensors whose layout the compiler may choose, and windows."""
        self.steady = False
        """Whether no operation waits for a result, as each array works on an earlier block then."""
        self._rows: dict[tuple[str, Axes, Cut], float] = {}
        self._turns: dict[tuple[str, Axes, Axes, Cut], float] = {}
        self._sources: dict[
            tuple[int, int, Cut], tuple[Source | None, tuple[Replica, ...], Need]
        ] = {}

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

    def rows(self, name: str, lanes: Axes, cut: Cut) -> float:
        """Count the rows of a tensor within a cut."""
        key = name, lanes, cut
        if key not in self._rows:
            size = prod(self.sizes(cut)[a] for a in lanes)
            rows = up(size, self.p.lanes) * self.graph.tensors[name].digits
            self._rows[key] = self._values(name, cut) / size * rows
        return self._rows[key]

    def fetch(self, state: SearchState, need: Need, cut: Cut) -> float | None:
        """Return when an operand can be read as needed; ``None`` if never. Changes the state."""
        name = need.tensor
        cut = self.cut_of(name, cut)
        source = self.source(state.replicas.get(name, ()), need, cut)
        if source is None:
            return None
        if isinstance(source, InPlace):
            self._pad(state, name, source.replica, need.padded)
            return source.replica.ready
        if isinstance(source, ToTranspose):
            return self._transposed(state, need, cut, source)
        if name in self.graph.windows:
            return self._windows(state, need, cut)
        state.loads += source.cycles
        ready = self.at(state.loads)
        self._new(state, name, Replica(need.lanes, need.padded, cut, ready))
        return ready

    def cut_of(self, name: str, cut: Cut) -> Cut:
        """Return the cut of a tensor: none where it lacks the axis."""
        return cut if cut is None or cut[0] in self.axes[name] else None

    def source(self, replicas: tuple[Replica, ...], need: Need, cut: Cut) -> Source | None:
        """Return the origin of an operand in the layout that ``need`` asks for, or ``None``."""
        # Hundreds of candidates of an operation ask about tuples that their states share. An entry
        # keeps its tuple and its need alive, so that no other object gets their id.
        key = id(replicas), id(need), cut
        if key not in self._sources:
            self._sources[key] = self._source(replicas, need, cut), replicas, need
        return self._sources[key][0]

    def forget(self) -> None:
        """Drop what is known of sources: the next operation asks for other tensors."""
        self._sources.clear()

    def _source(self, replicas: tuple[Replica, ...], need: Need, cut: Cut) -> Source | None:
        """Find the cheapest origin: in place, loaded, or transposed."""
        name = need.tensor
        present: list[Replica] = []
        for replica in replicas:
            if replica.cut is None or replica.cut == cut:
                if replica.lanes == need.lanes:
                    return InPlace(replica)
                present.append(replica)
        if name in self.graph.windows:
            # ``fetch`` charges the source of the window instead: the window itself has no rows.
            return ToLoad(0.0)
        if name in self.free:
            return ToLoad(BEAT * self.rows(name, need.lanes, cut))
        return self._turn(need, cut, present) if present else None

    def _windows(self, state: SearchState, need: Need, cut: Cut) -> float | None:
        """Return when windows can be read: once their source lies with zeros around it."""
        window = self.graph.windows[need.tensor]
        if slid(self.graph, need.tensor).intersection(need.lanes):
            return None
        ready = self.fetch(state, Need(window.x, need.lanes), cut)
        if ready is None:
            return None
        if not is_plain(self.graph, window) and window.x not in self.given:
            # A computed source is copied among rows of zeros by PE2, a row a cycle; a source from
            # external memory is loaded among them.
            state.outers = max(state.outers, ready) + self.rows(window.x, need.lanes, None)
            ready = self.at(state.outers + AFTER)
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

    def _turn(self, need: Need, cut: Cut, present: Sequence[Replica]) -> ToTranspose:
        """Return the replica that PE1 transposes, with its cycles."""
        lanes, wanted = self.p.lanes, need.lanes
        apart = next(
            (replica for replica in present if frozenset(replica.lanes).isdisjoint(wanted)), None
        )
        # A replica whose lanes share no axis with those wanted is transposed once. Any other one is
        # transposed twice: first to lanes that share an axis with neither.
        origin = apart or present[0]
        key = need.tensor, wanted, origin.lanes, cut
        if key not in self._turns:
            sizes, values = self.sizes(cut), float(self._values(need.tensor, cut))
            values *= self.graph.tensors[need.tensor].digits
            for axes in (wanted, origin.lanes):
                size = prod(sizes[a] for a in axes)
                values *= up(size, lanes) * lanes / size
            self._turns[key] = transpose_cycles(values / lanes, self.p) * (1 if apart else 2)
        return ToTranspose(origin, self._turns[key], apart is not None)

    def _transposed(
        self, state: SearchState, need: Need, cut: Cut, transpose: ToTranspose
    ) -> float:
        state.dots = max(state.dots, transpose.replica.ready) + transpose.cycles
        size = prod(self.graph.sizes[a] for a in need.lanes)
        if transpose.apart and size % self.p.lanes:
            self._pad(state, need.tensor, transpose.replica, need.lanes)
        ready = self.at(state.dots + AFTER)
        self._new(state, need.tensor, Replica(need.lanes, need.padded, cut, ready))
        return ready
