"""What can be moved in a placed ECP5 design, what it is connected to, and how late that is."""

from typing import NamedTuple

import numpy as np

from trainwright_boards.refinement.placed import Placed
from trainwright_boards.refinement.placed_timing import LUT_TO_OUTPUT, PlacedTiming
from trainwright_boards.refinement.slices import Slices, Unit

MARGIN, GOAL = 0.5, 7.5
"""The limit lies ``MARGIN`` ns below one of the longest paths, and not below ``GOAL``."""
SCALE = 0.5
"""ns that make a path count e times as much."""
STEEPEST = 20.0
"""Exponents end here."""
WIRE_WEIGHT = 0.02
"""For a ns of a net's wires, beside 1 for a path at the limit."""
REACH = 9
"""Tiles around a point where a place is looked for, along each axis."""


class Pins(NamedTuple):
    """The arcs at a unit: into its LUTs, out of these, into its register, out of it."""

    arcs: np.ndarray
    others: np.ndarray
    """The cells at their other ends."""
    bounds: tuple[int, int, int]
    """Where the second, third and fourth kind begin."""
    within: np.ndarray
    """ns from the inputs of the first kind to those of the LUT with the output."""


def lateness(path: np.ndarray, limit: float) -> np.ndarray:
    """What paths of so many ns cost: exp((path - limit) / ``SCALE``)."""
    return np.exp(np.minimum((path - limit) / SCALE, STEEPEST))


class Movable:
    """Of a placed design: ``placed``, ``timing``, ``slices``; ``units`` of these, the arcs at each
    (``pins``), and of each cell its unit (``unit_of``, -1 where it has none)."""

    def __init__(self, placed: Placed):
        self.placed = placed
        self.timing = PlacedTiming(placed)
        self.slices = Slices(placed)
        self.units = self.slices.units
        self.unit_of = np.full(len(placed.cells), -1)
        for number, unit in enumerate(self.units):
            self.unit_of[list(unit.cells)] = number
        self.pins = [
            self._pins_of(unit, arcs)
            for unit, arcs in zip(self.units, self._arcs_of_units(), strict=True)
        ]
        around = range(-REACH, REACH + 1)
        self._around = sorted(
            ((x, y) for x in around for y in around), key=lambda d: (abs(d[0]) + abs(d[1]), d)
        )

    def limit(self, rank: int) -> float:
        """ns, from the longest path of that rank."""
        latest = np.sort(self.timing.ends())[-rank:]
        return max(GOAL, float(latest[0]) - MARGIN) if len(latest) else GOAL

    def tile(self, number: int) -> tuple[int, int]:
        """Of a unit."""
        return self.placed.tile(self.units[number].cells[0])

    def free_near(
        self, point: tuple[int, int], unit: Unit, count: int
    ) -> list[tuple[tuple[int, int], int]]:
        """The free places nearest to a point: their tiles, and which of these they are."""
        found = []
        for x, y in self._around:
            tile = point[0] + x, point[1] + y
            place = self.slices.free(tile, unit)
            if place is not None:
                found.append((tile, place))
                if len(found) == count:
                    break
        return found

    def _arcs_of_units(self) -> list[tuple[list[int], ...]]:
        """Of each unit, the arcs of ``Pins`` by kind."""
        timing, units = self.timing, self.units
        found: list[tuple[list[int], ...]] = [([], [], [], []) for _ in units]
        for arc in np.nonzero(~timing.inside)[0].tolist():
            source, sink = timing.source[arc], timing.sink[arc]
            of_source, of_sink = self.unit_of[source], self.unit_of[sink]
            if of_source == of_sink:
                continue
            if of_source >= 0:
                found[of_source][1 if source in units[of_source].luts else 3].append(arc)
            if of_sink >= 0:
                found[of_sink][0 if sink in units[of_sink].luts else 2].append(arc)
        return found

    def _pins_of(self, unit: Unit, kinds: tuple[list[int], ...]) -> Pins:
        into_lut, out_of_lut, into_register, out_of_register = (np.array(k, int) for k in kinds)
        timing = self.timing
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
        return Pins(np.concatenate(kinds).astype(int), np.concatenate(others), bounds, within)
