"""Moves of one unit at a time: every LUT and register on a long path is offered places among those
that it is connected to, of which it takes the best."""

import numpy as np

from trainwright_boards.refinement.movable import SCALE, WIRE_WEIGHT, Movable, Pins, lateness
from trainwright_boards.refinement.placed_timing import CLOCK_TO_OUTPUT, LUT_TO_OUTPUT, wires
from trainwright_boards.refinement.slices import Unit

LATEST = 200
"""The rank of the longest path that the limit follows."""
GAIN = 0.98
"""A place is taken that costs at most so much of the one before."""
BATCH = 100
"""Units moved between two analyses."""
TRIED = 4
"""Free places near each point that is tried."""
ANYWHERE = 6
"""Tiles that one of these points lies away, at most, along each axis."""
SEED = 1


class SingleMoves:
    """Changes a ``Movable``, pass by pass."""

    def __init__(self, movable: Movable):
        self._movable = movable
        self._random = np.random.default_rng(SEED)

    def run(self) -> int:
        """Look at every unit on a long path, longest first; how many moved."""
        timing, unit_of = self._movable.timing, self._movable.unit_of
        limit = self._movable.limit(LATEST)
        worst = np.zeros(len(self._movable.units))
        late = np.nonzero((timing.path > limit - 2 * SCALE) & ~timing.inside)[0]
        for cells in (timing.source[late], timing.sink[late]):
            units = unit_of[cells]
            np.maximum.at(worst, units[units >= 0], timing.path[late][units >= 0])
        moved = 0
        for number in np.argsort(-worst, kind="stable")[: np.count_nonzero(worst)].tolist():
            if self._improve(number, limit):
                moved += 1
                if moved % BATCH == 0:
                    timing.analyse()
        timing.analyse()
        return moved

    def _improve(self, number: int, limit: float) -> bool:
        """Move a unit to the best place found; whether there was one."""
        movable = self._movable
        unit, pins = movable.units[number], movable.pins[number]
        if not len(pins.arcs):
            return False
        here = movable.tile(number)
        places = [
            (tile, place)
            for point in self._points(here, pins, limit)
            for tile, place in movable.free_near(point, unit, TRIED)
        ]
        tiles = np.array([here, *(tile for tile, _ in places)], float)
        cost = self._cost(unit, pins, tiles, limit)
        best = int(cost.argmin())
        if best == 0 or cost[best] > GAIN * cost[0]:
            return False
        movable.slices.move(unit, *places[best - 1])
        return True

    def _points(self, here: tuple[int, int], pins: Pins, limit: float) -> list[tuple[int, int]]:
        """Where to look: among the cells at the other ends, weighted by how late these arcs are."""
        placed = self._movable.placed
        x, y = placed.x[pins.others], placed.y[pins.others]
        weight = WIRE_WEIGHT + lateness(self._movable.timing.path[pins.arcs], limit)
        mean = np.array([np.average(x, weights=weight), np.average(y, weights=weight)])
        points = [
            (_median(x, weight), _median(y, weight)),
            mean,
            (here + mean) / 2,
            here + self._random.integers(-ANYWHERE, ANYWHERE + 1, 2),
        ]
        return [(round(float(x)), round(float(y))) for x, y in points]

    def _cost(self, unit: Unit, pins: Pins, tiles: np.ndarray, limit: float) -> np.ndarray:
        """Of each of some tiles."""
        placed, timing, arcs = self._movable.placed, self._movable.timing, pins.arcs
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
            cost += lateness(late + after[:, None], limit).sum(1)
            cost += lateness(early + late.max(1, initial=0.0)[:, None], limit).sum(1)
        to_register = delay[:, register_in:register_out] + arrival[register_in:register_out]
        from_register = delay[:, register_out:] + CLOCK_TO_OUTPUT + beyond[register_out:]
        cost += lateness(to_register, limit).sum(1)
        cost += lateness(from_register, limit).sum(1)
        return cost


def _median(of: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(of, kind="stable")
    below = np.cumsum(weight[order])
    return float(of[order][np.searchsorted(below, below[-1] / 2)])
