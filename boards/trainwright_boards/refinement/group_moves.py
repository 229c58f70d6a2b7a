"""Moves of several units at once.

A long wire between two knots of LUTs and registers stays as it is where each of these would lose by
a move alone: what one wire loses the next one gains. All that lies around one end goes nearer to
the other end together.
"""

from collections import deque

import numpy as np

from trainwright_boards.refinement.movable import WIRE_WEIGHT, Movable, lateness
from trainwright_boards.refinement.slices import Unit, place_of

LATEST = 60
"""The rank of the longest path that the limit follows."""
PATHS = 400
"""Of the longest: their longest wires are looked at."""
WIRES = 40
"""That are looked at in a round, at most."""
LONG = 1.5
"""ns from which on a wire is."""
NEAR, MOST, USERS = 4, 40, 12
"""Of a group: tiles from its first unit, units, and users of a net that holds it together."""
FRACTIONS = (1.0, 0.5, 0.25)
"""Of the wire, that a group is moved by."""
GAIN = 0.02
"""Of the cost of the whole design, where a path at the limit is 1."""


class GroupMoves:
    """Changes a ``Movable``, round by round."""

    def __init__(self, movable: Movable):
        self._movable = movable
        timing = movable.timing
        self._into: dict[int, list[int]] = {}
        for arc in np.nonzero(~timing.end)[0].tolist():
            self._into.setdefault(int(timing.reach[arc]), []).append(arc)

    def run(self) -> int:
        """Look at the longest wire of each of the longest paths; how many groups moved."""
        timing = self._movable.timing
        limit, moved, seen = self._movable.limit(LATEST), 0, set()
        ends = np.nonzero(timing.end)[0]
        for end in ends[np.argsort(-timing.path[ends], kind="stable")][:PATHS].tolist():
            if timing.path[end] < limit or len(seen) == WIRES:
                break
            delay = timing.delays()
            wire = max(self._path(end, delay), key=lambda arc: delay[arc])
            if wire not in seen and delay[wire] >= LONG:
                seen.add(wire)
                moved += self._shorten(wire, limit)
        return moved

    def _path(self, end: int, delay: np.ndarray) -> list[int]:
        """The arcs of the longest path to an end."""
        timing, found = self._movable.timing, [end]
        while before := self._into.get(int(timing.begin[found[-1]])):
            late = [timing.arrival[timing.begin[arc]] + delay[arc] for arc in before]
            found.append(before[int(np.argmax(late))])
        return found

    def _shorten(self, wire: int, limit: float) -> bool:
        """Move a group at one of its ends; whether the whole design gains by that."""
        movable, timing = self._movable, self._movable.timing
        cells = int(timing.source[wire]), int(timing.sink[wire])
        tiles = [np.array(movable.placed.tile(cell)) for cell in cells]
        units = [int(movable.unit_of[cell]) for cell in cells]
        best, choice = self._cost(limit) - GAIN, None
        for this, other in ((1, 0), (0, 1)):
            if units[this] < 0:
                continue
            group = self._around(units[this], units[other])
            for fraction in FRACTIONS:
                by = (tiles[other] - tiles[this]) * fraction
                before = self._shift(group, by)
                timing.analyse()
                cost = self._cost(limit)
                if cost < best:
                    best, choice = cost, (group, by)
                for unit, tile, place in reversed(before):
                    movable.slices.move(unit, tile, place)
        if choice:
            self._shift(*choice)
        timing.analyse()
        return choice is not None

    def _around(self, first: int, other: int) -> list[int]:
        """Units near the first, that nets of few users join to it; not the other one."""
        movable, placed, timing = self._movable, self._movable.placed, self._movable.timing
        x, y = movable.tile(first)
        found, seen, open_ = [first], {first, other}, deque([first])
        while open_ and len(found) < MOST:
            pins = movable.pins[open_.popleft()]
            for arc, cell in zip(pins.arcs.tolist(), pins.others.tolist(), strict=True):
                unit = int(movable.unit_of[cell])
                away = abs(placed.x[cell] - x) + abs(placed.y[cell] - y)
                if unit < 0 or unit in seen or away > NEAR or timing.users[arc] > USERS:
                    continue
                seen.add(unit)
                found.append(unit)
                open_.append(unit)
        return found

    def _shift(self, group: list[int], by: np.ndarray) -> list[tuple[Unit, tuple[int, int], int]]:
        """By so many tiles, each to what is free there; the places of before, of what moved."""
        movable, before = self._movable, []
        for number in group:
            unit, tile = movable.units[number], movable.tile(number)
            x, y = np.rint(tile + by).astype(int).tolist()
            if free := movable.free_near((x, y), unit, 1):
                before.append((unit, tile, place_of(movable.placed.site[unit.cells[0]])))
                movable.slices.move(unit, *free[0])
        return before

    def _cost(self, limit: float) -> float:
        """Of the whole design."""
        timing = self._movable.timing
        wire = WIRE_WEIGHT * (timing.delays() / timing.users).sum()
        return float(wire + lateness(timing.ends(), limit).sum())
