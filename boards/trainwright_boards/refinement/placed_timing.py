"""How long the paths of a placed ECP5 design are, by an estimate of its wires.

Good enough to see which of them are too long, in a twentieth of a second: what nextpnr says of a
routed design differs from it by what the wires of a net have to go around.
"""

from collections import defaultdict, deque

import numpy as np

from trainwright_boards.netlist import CLOCK_PORTS
from trainwright_boards.refinement.placed import Pin, Placed
from trainwright_boards.tools import BuildError

LUT, REGISTER, RAM, MULTIPLIER = "TRELLIS_COMB", "TRELLIS_FF", "DP16KD", "MULT18X18D"
WRITER = "TRELLIS_RAMW"
"""The inputs of a distributed RAM."""
CLOCKS = frozenset(port for ports in CLOCK_PORTS.values() for port in ports)
WRITES = ("WRE", "WAD0", "WAD1", "WAD2", "WAD3", "WD")
"""Of a distributed RAM: paths end there."""
SECOND = ("FXA", "FXB")
OF_SECOND = (*SECOND, "M", "OFX")
"""Ports of a multiplexer of multiplexers, which shares its cell with a LUT."""
INSIDE = ("FCI", "F1", *SECOND)
"""Inputs that are wired within a slice or to the one beside it."""

# ns, of speed grade 6; only how they compare matters here
CLOCK_TO_OUTPUT = 0.53
MULTIPLIER_TO_OUTPUT, RAM_TO_OUTPUT, RAM_REGISTER_TO_OUTPUT = 0.74, 5.6, 0.9
LUT_TO_OUTPUT, MUX_TO_OUTPUT, SUM_TO_OUTPUT = 0.24, 0.33, 0.38
INTO_CARRY, CARRY_OF_SLICE = 0.45, 0.06
RESET_SETUP, WRITE_SETUP, BLOCK_SETUP = 0.42, 0.39, 0.2
WIRE, NEAR_TILE, FAR_TILE, NEAR = 0.5, 0.102, 0.062, 7
"""A wire, and what it takes more for each tile on its way, up to ``NEAR`` of them and beyond, along
each axis: medians of routed designs."""


def wires(dx: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """ns of wires over so many columns and rows of tiles."""
    dx, dy = np.abs(dx), np.abs(dy)
    near = np.minimum(dx, NEAR) + np.minimum(dy, NEAR)
    return WIRE + FAR_TILE * (dx + dy) + (NEAR_TILE - FAR_TILE) * near


class PlacedTiming:
    """Arcs, from a cell that drives a net to one that uses it, and what ``analyse`` found.

    Of each arc: ``source`` and ``sink``, cells; ``begin`` and ``reach``, their nodes; ``users``, of
    its net; ``end``, whether paths end there; ``inside``, whether it is a wire of the slice's own;
    ``own``, ns of the cells at its two ends; ``path``, ns of the longest path through it.

    Of each node: ``arrival``, ns from a clock edge to its inputs, or to the output of one that
    begins a path; ``tail``, ns from there to the end of the longest path, 0 where none goes on. A
    cell is a node of its number; the second multiplexer of a LUT, that has other inputs than it,
    is one more.
    """

    def __init__(self, placed: Placed):
        self._placed = placed
        arcs = []
        for net, driver in placed.drivers.items():
            if placed.kinds[driver.cell] not in (LUT, REGISTER, RAM, MULTIPLIER):
                continue
            users = [user for user in placed.users[net] if self._counts(user)]
            arcs += [(driver, user, len(users)) for user in users]
        second = sorted({user.cell for _, user, _ in arcs if user.port in SECOND})
        node = {cell: len(placed.cells) + n for n, cell in enumerate(second)}
        self._nodes = len(placed.cells) + len(node)

        def node_of(pin: Pin) -> int:
            return node.get(pin.cell, pin.cell) if pin.port in OF_SECOND else pin.cell

        self.source = np.array([driver.cell for driver, _, _ in arcs], int)
        self.sink = np.array([user.cell for _, user, _ in arcs], int)
        self.begin = np.array([node_of(driver) for driver, _, _ in arcs], int)
        self.reach = np.array([node_of(user) for _, user, _ in arcs], int)
        self.users = np.array([users for _, _, users in arcs], int)
        self.end = np.array([self._ends(user) for _, user, _ in arcs], bool)
        self.inside = np.array([_inside(driver, user) for driver, user, _ in arcs], bool)
        self.own = np.array(
            [self._out(driver) + self._into(user) for driver, user, _ in arcs], float
        )
        self._launches = np.zeros(self._nodes)
        self._launches[: len(placed.cells)] = [self._launch(n) for n in range(len(placed.cells))]
        self._forward, self._backward = self._order()
        self.arrival = self.tail = self.path = np.zeros(0)
        self.analyse()

    def analyse(self) -> None:
        """Find ``arrival``, ``tail`` and ``path`` again, with cells where they are now."""
        delay = self.delays()
        self.arrival = self._launches.copy()
        for arcs, first, nodes in self._forward:
            late = self.arrival[self.begin[arcs]] + delay[arcs]
            self.arrival[nodes] = np.maximum.reduceat(late, first)
        self.tail = np.zeros(len(self.arrival))
        for arcs, first, nodes in self._backward:
            self.tail[nodes] = np.maximum.reduceat(self.beyond(arcs) + delay[arcs], first)
        self.path = self.arrival[self.begin] + delay + self.beyond(slice(None))

    def delays(self) -> np.ndarray:
        """ns of every arc."""
        placed = self._placed
        dx = placed.x[self.source] - placed.x[self.sink]
        dy = placed.y[self.source] - placed.y[self.sink]
        return np.where(self.inside, 0.0, wires(dx, dy)) + self.own

    def beyond(self, arcs: np.ndarray | slice) -> np.ndarray:
        """ns from the sinks of arcs to the ends of their paths."""
        return np.where(self.end[arcs], 0.0, self.tail[self.reach[arcs]])

    def ends(self) -> np.ndarray:
        """ns of the longest path to each end of paths."""
        return self.path[self.end]

    @property
    def longest(self) -> float:
        """ns of the longest path; 0 where there is none."""
        return float(self.ends().max(initial=0.0))

    def _launch(self, cell: int) -> float:
        kind = self._placed.kinds[cell]
        if kind == RAM:
            modes = (self._placed.parameter(cell, f"REGMODE_{port}") for port in "AB")
            return RAM_REGISTER_TO_OUTPUT if "OUTREG" in modes else RAM_TO_OUTPUT
        return {REGISTER: CLOCK_TO_OUTPUT, MULTIPLIER: MULTIPLIER_TO_OUTPUT}.get(kind, 0.0)

    def _counts(self, user: Pin) -> bool:
        """Not a clock's, nor a pad's: nothing says when that is due."""
        known = (LUT, REGISTER, RAM, MULTIPLIER, WRITER)
        return self._placed.kinds[user.cell] in known and user.port not in CLOCKS

    def _ends(self, user: Pin) -> bool:
        return self._placed.kinds[user.cell] != LUT or user.port in WRITES

    def _out(self, driver: Pin) -> float:
        if self._placed.kinds[driver.cell] != LUT or driver.port == "FCO":
            return 0.0
        if self._placed.parameter(driver.cell, "MODE") == "CCU2":
            return SUM_TO_OUTPUT
        return LUT_TO_OUTPUT if driver.port == "F" else MUX_TO_OUTPUT

    def _into(self, user: Pin) -> float:
        kind = self._placed.kinds[user.cell]
        if kind == REGISTER:
            return RESET_SETUP if user.port == "LSR" else 0.0
        if kind != LUT:
            return BLOCK_SETUP
        if user.port in WRITES:
            return WRITE_SETUP
        if self._placed.parameter(user.cell, "MODE") != "CCU2":
            return 0.0
        if user.port != "FCI":
            return INTO_CARRY
        return CARRY_OF_SLICE if self._placed.names[user.cell].endswith("COMB0") else 0.0

    def _order(self) -> tuple[list, list]:
        """Arcs to LUTs by the levels of these, and arcs from LUTs, last level first."""
        kinds = self._placed.kinds
        from_lut = np.array([kinds[cell] == LUT for cell in self.source], bool)
        level = self._levels(from_lut)
        into, out = np.nonzero(~self.end)[0], np.nonzero(from_lut)[0]
        return (
            _grouped(into, level[self.reach[into]], self.reach),
            _grouped(out, -level[self.begin[out]], self.begin),
        )

    def _levels(self, from_lut: np.ndarray) -> np.ndarray:
        """The most LUTs on the way from a register. Raises ``BuildError`` for a loop of LUTs."""
        level, waits = np.zeros(self._nodes, int), np.zeros(self._nodes, int)
        after: dict[int, list[int]] = defaultdict(list)
        for arc in np.nonzero(~self.end & from_lut)[0].tolist():
            after[int(self.begin[arc])].append(int(self.reach[arc]))
            waits[self.reach[arc]] += 1
        ready = deque(np.nonzero(waits == 0)[0].tolist())
        while ready:
            node = ready.popleft()
            for sink in after[node]:
                level[sink] = max(level[sink], level[node] + 1)
                waits[sink] -= 1
                if not waits[sink]:
                    ready.append(sink)
        if waits.any():
            cell = next(n for n in np.nonzero(waits)[0].tolist() if n < len(self._placed.cells))
            raise BuildError(f"a loop of LUTs goes to {self._placed.names[cell]}")
        return level


def _inside(driver: Pin, user: Pin) -> bool:
    return user.port in INSIDE or (driver.port, user.port) == ("F", "DI")


def _grouped(arcs: np.ndarray, level: np.ndarray, node: np.ndarray) -> list:
    """Of each level: its arcs by node, where those of a node begin, and the nodes."""
    order = np.lexsort((node[arcs], level))
    arcs, level = arcs[order], level[order]
    found = []
    for one in np.unique(level):
        its = arcs[level == one]
        of = node[its]
        first = np.nonzero(np.r_[True, of[1:] != of[:-1]])[0]
        found.append((its, first, of[first]))
    return found
