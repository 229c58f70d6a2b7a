"""Moves cells of a placed ECP5 design to where its longest paths become shorter.

nextpnr's placers weigh nets by their share of the longest path, and mostly see wire: a register
may lie at one end of the device with all of its users at the other. Here every LUT and register on
a long path is offered places between those that it is connected to, of which it takes the best by
``PlacedTiming``'s estimate: the sum of exp((path - limit) / ``SCALE``) over the paths through it,
and a little for wire. Half of the device is empty, so that places are nearly always free, and
nothing has to be exchanged.
"""

from typing import Any, NamedTuple

import numpy as np

from ttforge_boards.placed import Placed
from ttforge_boards.placed_timing import CLOCK_TO_OUTPUT, LUT_TO_OUTPUT, PlacedTiming, wires
from ttforge_boards.slices import Slices, Unit

PASSES = 40
"""Times that every cell on a long path is looked at, at most."""
FEW = 5
"""Cells moved in a pass, with fewer it is the last."""
LATEST, MARGIN, GOAL = 200, 0.5, 7.5
"""The limit of a pass lies ``MARGIN`` ns below the ``LATEST`` th longest path, and not below
``GOAL``."""
SCALE = 0.5
"""ns that make a path count e times as much."""
STEEPEST = 20.0
"""Exponents end here."""
WIRE_WEIGHT = 0.02
"""For a ns of a net's wires, beside 1 for a path at the limit."""
GAIN = 0.98
"""A place is taken that costs at most so much of the one before."""
BATCH = 100
"""Cells moved between two analyses."""
TRIED = 4
"""Free places near each point that is tried."""
REACH = 9
"""Tiles around a point where a place is looked for, along each axis."""
SEED = 1


class Refined(NamedTuple):
    """The longest path by estimate, ns, before and after, and how many cells or pairs moved."""

    before: float
    after: float
    moved: int


def refine(module: dict[str, Any]) -> Refined:
    """Change the module of a placed design; the same one gives the same result."""
    return _Refinement(Placed(module)).run()


class _Pins(NamedTuple):
    """The arcs at a unit: into its LUTs, out of these, into its register, out of it."""

    arcs: np.ndarray
    others: np.ndarray
    """The cells at their other ends."""
    bounds: tuple[int, int, int]
    """Where the second, third and fourth kind begin."""
    within: np.ndarray
    """ns from the inputs of the first kind to those of the LUT with the output."""


class _Refinement:
    def __init__(self, placed: Placed):
        self._placed = placed
        self._timing = PlacedTiming(placed)
        self._slices = Slices(placed)
        self._pins = [
            self._pins_of(unit, arcs)
            for unit, arcs in zip(self._slices.units, self._arcs_of_units(), strict=True)
        ]
        self._random = np.random.default_rng(SEED)
        around = range(-REACH, REACH + 1)
        self._around = sorted(
            ((x, y) for x in around for y in around), key=lambda d: (abs(d[0]) + abs(d[1]), d)
        )

    def run(self) -> Refined:
        before, moved = self._timing.longest, 0
        for _ in range(PASSES):
            now = self._pass()
            moved += now
            if now < FEW:
                break
        return Refined(before, self._timing.longest, moved)

    def _pass(self) -> int:
        """Look at every unit on a long path, longest first; how many moved."""
        timing = self._timing
        latest = np.sort(timing.ends())[-LATEST:]
        limit = max(GOAL, float(latest[0]) - MARGIN) if len(latest) else GOAL
        worst = np.zeros(len(self._slices.units))
        late = np.nonzero((timing.path > limit - 2 * SCALE) & ~timing.inside)[0]
        for cells in (timing.source[late], timing.sink[late]):
            units = self._unit_of[cells]
            np.maximum.at(worst, units[units >= 0], timing.path[late][units >= 0])
        moved = 0
        for unit in np.argsort(-worst, kind="stable")[: np.count_nonzero(worst)]:
            if self._improve(int(unit), limit):
                moved += 1
                if moved % BATCH == 0:
                    timing.analyse()
        timing.analyse()
        return moved

    def _improve(self, number: int, limit: float) -> bool:
        """Move a unit to the best place found; whether there was one."""
        unit, pins = self._slices.units[number], self._pins[number]
        if not len(pins.arcs):
            return False
        places = [
            (tile, place)
            for point in self._points(unit, pins, limit)
            for tile, place in self._free_near(point, unit)
        ]
        here = self._placed.tile(unit.cells[0])
        tiles = np.array([here, *(tile for tile, _ in places)], float)
        cost = self._cost(unit, pins, tiles, limit)
        best = int(cost.argmin())
        if best == 0 or cost[best] > GAIN * cost[0]:
            return False
        self._slices.move(unit, *places[best - 1])
        return True

    def _points(self, unit: Unit, pins: _Pins, limit: float) -> list[tuple[int, int]]:
        """Where to look: among the cells at the other ends, weighted by how late these arcs are."""
        placed = self._placed
        x, y = placed.x[pins.others], placed.y[pins.others]
        weight = WIRE_WEIGHT + _late(self._timing.path[pins.arcs], limit)
        mean_x, mean_y = np.average(x, weights=weight), np.average(y, weights=weight)
        here = placed.x[unit.cells[0]], placed.y[unit.cells[0]]
        points = [
            (_median(x, weight), _median(y, weight)),
            (mean_x, mean_y),
            ((here[0] + mean_x) / 2, (here[1] + mean_y) / 2),
            here + self._random.integers(-6, 7, 2),
        ]
        return [(round(float(x)), round(float(y))) for x, y in points]

    def _free_near(self, point: tuple[int, int], unit: Unit) -> list:
        """The free places nearest to a point."""
        found = []
        for x, y in self._around:
            tile = point[0] + x, point[1] + y
            place = self._slices.free(tile, unit)
            if place is not None:
                found.append((tile, place))
                if len(found) == TRIED:
                    break
        return found

    def _cost(self, unit: Unit, pins: _Pins, tiles: np.ndarray, limit: float) -> np.ndarray:
        """Of each of some tiles."""
        placed, timing, arcs = self._placed, self._timing, pins.arcs
        dx = tiles[:, :1] - placed.x[pins.others]
        dy = tiles[:, 1:] - placed.y[pins.others]
        delay = wires(dx, dy) + timing.own[arcs]
        cost = WIRE_WEIGHT * (delay / timing.users[arcs]).sum(1)
        arrival, beyond = timing.arrival[timing.begin[arcs]], timing.beyond(arcs)
        lut_out, register_in, register_out = pins.bounds
        if unit.luts:
            late = delay[:, :lut_out] + arrival[:lut_out] + pins.within
            early = delay[:, lut_out:register_in] + beyond[lut_out:register_in]
            after = early.max(1, initial=0.0 if unit.register is None else LUT_TO_OUTPUT)
            cost += _late(late + after[:, None], limit).sum(1)
            cost += _late(early + late.max(1, initial=0.0)[:, None], limit).sum(1)
        cost += _late(
            delay[:, register_in:register_out] + arrival[register_in:register_out], limit
        ).sum(1)
        from_register = delay[:, register_out:] + CLOCK_TO_OUTPUT + beyond[register_out:]
        cost += _late(from_register, limit).sum(1)
        return cost

    def _arcs_of_units(self) -> list[tuple[list[int], ...]]:
        """Of each unit, the arcs of ``_Pins`` by kind."""
        timing, units = self._timing, self._slices.units
        self._unit_of = np.full(len(self._placed.cells), -1)
        for number, unit in enumerate(units):
            self._unit_of[list(unit.cells)] = number
        found: list[tuple[list[int], ...]] = [([], [], [], []) for _ in units]
        for arc in np.nonzero(~timing.inside)[0].tolist():
            source, sink = timing.source[arc], timing.sink[arc]
            of_source, of_sink = self._unit_of[source], self._unit_of[sink]
            if of_source == of_sink:
                continue
            if of_source >= 0:
                found[of_source][1 if source in units[of_source].luts else 3].append(arc)
            if of_sink >= 0:
                found[of_sink][0 if sink in units[of_sink].luts else 2].append(arc)
        return found

    def _pins_of(self, unit: Unit, kinds: tuple[list[int], ...]) -> _Pins:
        into_lut, out_of_lut, into_register, out_of_register = (np.array(k, int) for k in kinds)
        timing = self._timing
        others = [
            timing.source[into_lut],
            timing.sink[out_of_lut],
            timing.source[into_register],
            timing.sink[out_of_register],
        ]
        ends = np.cumsum([len(kind) for kind in kinds])
        bounds = int(ends[0]), int(ends[1]), int(ends[2])
        first = unit.luts[:1]
        within = np.where(np.isin(timing.sink[into_lut], first), 0.0, LUT_TO_OUTPUT)
        return _Pins(np.concatenate(kinds).astype(int), np.concatenate(others), bounds, within)


def _late(path: np.ndarray, limit: float) -> np.ndarray:
    return np.exp(np.minimum((path - limit) / SCALE, STEEPEST))


def _median(of: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(of, kind="stable")
    below = np.cumsum(weight[order])
    return float(of[order][np.searchsorted(below, below[-1] / 2)])
