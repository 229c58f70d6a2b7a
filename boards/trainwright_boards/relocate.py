"""Move cells of slow paths to better places, however far away.

nextpnr's ``static`` placer minimises wires and ignores timing, and its refinement moves a cell by a
few tiles at a time. So the units of an accelerator are placed well, but some logic between two
units ends up on the far side of one. This module moves such cells one unit at a time, a LUT, a
register, or several that share a slice, to where the paths through them are shortest. All other
cells stay, so that nearly all wires keep their length.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright_boards.paths import BEL, COMB, FF, WIDE, Paths, Place, wire

LIMITS = (0.93, 0.98)
"""Shares of the allowed time beyond which a path counts as slow.

Cells on slow paths are moved. The first limit applies until nothing more can be gained, then the
next one.
"""
ROUNDS = 40
GAIN = 15.0
"""Least gain of a move, in ps."""
FAR = 8
"""Distance from the best tile, in tiles, within which a free place is searched."""
WIRES = 0.02
"""Weight of the delays of all wires of a cell; without it, wires would get longer for nothing."""
SLICES = ("SLICEA", "SLICEB", "SLICEC", "SLICED")
SITES = ("K0", "K1", "FF0", "FF1")
_CONTROL = ("CLKMUX", "CEMUX", "LSRMUX", "SRMODE", "GSR", "LSR_OVER_CE")
"""Settings that all registers in half a tile share, in addition to clock, enable and reset.

The device itself requires less.
"""


@dataclass(frozen=True)
class Moved:
    """Changes that ``relocate`` made: the number of moved cells, and the longest path in ps."""

    cells: int
    before: float
    after: float


@dataclass(frozen=True)
class _Unit:
    """Cells of a slice that move together: a LUT or two joined ones, and a register behind it."""

    cells: tuple[int, ...]
    inputs: tuple[int, ...]
    """Edges to the unit's LUTs."""
    outputs: tuple[int, ...]
    """Edges from the unit's LUTs and registers."""
    to_register: bool
    """Whether outputs of the LUTs also go to the unit's own register."""
    register_inputs: tuple[int, ...]
    register_outputs: tuple[int, ...]


class _Sites:
    """Map of the sites: the cell at each, and the free sites that a unit may take."""

    def __init__(self, paths: Paths):
        self._paths = paths
        self.at: dict[tuple[Place, str], int] = {}
        self._memories: set[Place] = set()
        """Tiles with LUT memories: registers there would share their clock and their enable."""
        self._logic: set[Place] = set()
        for n, cell in enumerate(paths.cells):
            place = paths.places[n]
            if place is not None and paths.sites[n].startswith("SLICE"):
                self.at[place, paths.sites[n]] = n
                if cell["type"] == COMB:
                    self._logic.add(place)
                    if paths.mode(n) not in ("LOGIC", "CCU2"):
                        self._memories.add(place)
        self._controls = {n: self._control(n) for n, c in enumerate(paths.cells) if c["type"] == FF}

    def _control(self, n: int) -> tuple:
        parameters = self._paths.cells[n]["parameters"]
        nets = (self._paths.bit(n, port) for port in ("CLK", "LSR", "CE"))
        return (*nets, *(parameters.get(name) for name in _CONTROL))

    def free(self, unit: _Unit, place: Place) -> list[str] | None:
        """Return a site in a tile for each of the unit's cells; ``None`` if there is no room."""
        if place not in self._logic:
            return None
        kinds = [self._paths.sites[n].split(".")[1] for n in unit.cells]
        registers = [n for n in unit.cells if self._paths.cells[n]["type"] == FF]
        if place in self._memories and (registers or len(unit.cells) > 1):
            return None
        for number, name in enumerate(SLICES):
            here = {kind: self._other(unit, place, f"{name}.{kind}") for kind in SITES}
            luts = [here[kind] for kind in ("K0", "K1")]
            if any(n is not None and self._paths.mode(n) != "LOGIC" for n in luts):
                continue
            if registers and not self._share(unit, registers, place, SLICES[number & 2 :][:2]):
                continue
            for sites in self._turned(unit, kinds):
                if all(here[site] is None for site in sites) and self._selectable(
                    unit, sites, here
                ):
                    return [f"{name}.{site}" for site in sites]
        return None

    def move(self, unit: _Unit, place: Place, sites: list[str]) -> None:
        paths = self._paths
        for n in unit.cells:
            old = paths.places[n]
            assert old is not None
            del self.at[old, paths.sites[n]]
        for n, site in zip(unit.cells, sites, strict=True):
            paths.places[n], paths.sites[n] = place, site
            self.at[place, site] = n

    def _other(self, unit: _Unit, place: Place, site: str) -> int | None:
        cell = self.at.get((place, site))
        return None if cell in unit.cells else cell

    def _share(self, unit: _Unit, registers: list[int], place: Place, half: tuple) -> bool:
        """Return whether all registers in the half of a tile would use the same controls."""
        present = (self._other(unit, place, f"{lut}.{ff}") for lut in half for ff in ("FF0", "FF1"))
        controls = {self._controls[n] for n in (*registers, *present) if n is not None}
        return len(controls) == 1

    def _turned(self, unit: _Unit, kinds: list[str]) -> Iterator[list[str]]:
        """Yield the unit's sites in a slice as they are, and in the other half of the slice."""
        yield kinds
        if len({kind[-1] for kind in kinds}) == 1:
            other = {"0": "1", "1": "0"}
            yield [kind[:-1] + other[kind[-1]] for kind in kinds]

    def _selectable(self, unit: _Unit, sites: list[str], here: Mapping[str, int | None]) -> bool:
        """Return whether the wire that registers and joined LUTs share is free.

        A register's direct input and the select input of two joined LUTs are the same wire.
        """
        for n, site in zip(unit.cells, sites, strict=True):
            other = here[("FF" if site[0] == "K" else "K") + site[-1]]
            taken = other is not None and self._paths.bit(other, "M") is not None
            if taken and self._paths.bit(n, "M") is not None:
                return False
        return True


def relocate(module: dict[str, Any], period_ps: float) -> Moved:
    """Move cells of a placed design until no path is longer than ``period_ps``.

    Path delays are estimates of ``paths``. Moving also ends when no move is worth it. Only the
    attributes with the cells' sites change, and equal modules get equal changes.
    """
    paths = Paths(module)
    sites = _Sites(paths)
    units = _units(paths)
    unit_of = {n: unit for unit in units for n in unit.cells}
    before = now = paths.look()
    best, places = _badness(paths, period_ps), (list(paths.places), list(paths.sites))
    shares = list(LIMITS)
    for _ in range(ROUNDS):
        if now <= period_ps or not shares:
            break
        moved = _round(paths, sites, unit_of, shares[0] * period_ps)
        now = paths.look()
        if (improved := _badness(paths, period_ps)) < best:
            best, places = improved, (list(paths.places), list(paths.sites))
        if not moved:
            shares.pop(0)
    paths.places, paths.sites = places
    count = 0
    for n, cell in enumerate(paths.cells):
        if (place := paths.places[n]) is not None and n in unit_of:
            new = f"X{place[0]}/Y{place[1]}/{paths.sites[n]}"
            count += cell["attributes"][BEL] != new
            cell["attributes"][BEL] = new
    return Moved(count, before, paths.look())


def _badness(paths: Paths, period: float) -> tuple[float, float]:
    return sum(max(0.0, length - period) for length in paths.length), max(paths.length, default=0.0)


def _units(paths: Paths) -> list[_Unit]:
    """Return the units that can be moved: no carries, LUT memories, or four joined LUTs."""
    slices: dict[tuple[Place, str], list[int]] = {}
    for n, cell in enumerate(paths.cells):
        place, site = paths.places[n], paths.sites[n]
        if place is not None and site.startswith("SLICE") and cell["type"] in (COMB, FF):
            slices.setdefault((place, site.split(".")[0]), []).append(n)
    return [unit for cells in slices.values() for unit in _units_of(paths, cells)]


def _units_of(paths: Paths, cells: list[int]) -> Iterator[_Unit]:
    """Yield the units of a slice, grouped by what binds its cells to each other.

    A slice stays if it has a register behind a LUT elsewhere, or joins LUTs of several slices.
    """
    group = {n: n for n in cells}
    for n in cells:
        ties = ("DI",) if paths.cells[n]["type"] == FF else ("F1", "FXA", "FXB")
        for port in ties:
            if (source := paths.driver(n, port)) is not None:
                driver = paths.outputs[source][0]
                if driver not in group:
                    return
                old, new = group[n], group[driver]
                group = {cell: new if key == old else key for cell, key in group.items()}
    for number in dict.fromkeys(group.values()):
        unit = _unit(paths, [n for n in cells if group[n] == number])
        if unit is not None:
            yield unit


def _unit(paths: Paths, cells: list[int]) -> _Unit | None:
    """Return the unit of tied cells of a slice; None if the cells have to stay where they are."""
    luts = sorted(
        (n for n in cells if paths.cells[n]["type"] == COMB), key=lambda n: paths.sites[n]
    )
    registers = [n for n in cells if paths.cells[n]["type"] == FF]
    if len(registers) > 1 or len(luts) > 2:
        return None
    if any(paths.mode(n) != "LOGIC" for n in luts):
        return None
    joined = [n for n in luts if (n, "OFX") in paths.number]
    if joined != luts[: len(luts) - 1]:  # of two the first one gives the joined output
        return None
    last = (joined or luts or [None])[0]
    out: list[int] = []
    for n in luts:
        for port in ("F", "OFX"):
            edges = paths.out[paths.number[n, port]] if (n, port) in paths.number else []
            inner = [e for e in edges if paths.edges[e].cell in cells]
            if n == last and port == ("OFX" if joined else "F"):
                out += edges
            elif len(inner) < len(edges):
                return None  # also used by itself
    if any(paths.edges[e].wired and paths.edges[e].cell not in cells for e in out):
        return None

    def entering(members: list[int]) -> tuple[int, ...]:
        """Return the edges from outside the unit to some of its cells, if they need a wire."""
        edges = ((e, paths.edges[e]) for n in members for e in paths.into[n])
        outside = ((e, edge) for e, edge in edges if paths.outputs[edge.source][0] not in cells)
        return tuple(e for e, edge in outside if not edge.wired)

    leaving = tuple(e for e in out if paths.edges[e].cell not in cells)
    driving = [paths.number[n, "Q"] for n in registers if (n, "Q") in paths.number]
    of_register = (e for output in driving for e in paths.out[output])
    return _Unit(
        (*luts, *registers), entering(luts), leaving, len(leaving) < len(out), entering(registers),
        tuple(e for e in of_register if paths.edges[e].cell not in cells),
    )  # fmt: skip


@dataclass(frozen=True)
class _Ends:
    """Ends of the wires of a unit: delay without the wire, tile, and weight of the length."""

    luts_in: list[tuple[float, Place | None, float]]
    luts_out: list[tuple[float, Place | None, float]]
    register: list[tuple[float, Place | None, float]]
    to_register: bool

    def cost(self, at: Place, limit: float) -> float:
        """Return how much too long the unit's paths are at a place, plus a little for wires."""
        excess = length = 0.0
        arrivals = []
        for ends in (self.luts_in, self.luts_out):
            times = []
            for time, place, weight in ends:
                delay = wire(place, at)
                times.append(time + delay)
                length += weight * delay
            arrivals.append(times)
        into, out = arrivals
        first, last = max(into, default=0.0), max(out, default=float("-inf"))
        if self.to_register:
            last = max(last, 0.0)
        excess += sum(time + last - limit for time in into if time + last > limit)
        excess += sum(first + time - limit for time in out if first + time > limit)
        for time, place, weight in self.register:
            delay = wire(place, at)
            length += weight * delay
            excess += max(0.0, time + delay - limit)
        return excess + WIRES * length


def _ends(paths: Paths, unit: _Unit) -> _Ends:
    def weight(edge: int) -> float:
        return min(1.0, 3.0 / len(paths.out[paths.edges[edge].source]))

    def before(edge: int) -> Place | None:
        return paths.places[paths.outputs[paths.edges[edge].source][0]]

    def through(edge: int) -> float:
        """Return the delay inside the unit: for inputs, two joined LUTs count as one."""
        return max((inside for _, inside in paths.edges[edge].through), default=0.0)

    arrival = paths.arrival
    joined = len([n for n in unit.cells if paths.cells[n]["type"] == COMB]) == 2
    luts_in = []
    for e in unit.inputs:
        edge = paths.edges[e]
        inside = WIDE if joined and edge.port != "M" else through(e)
        luts_in.append((arrival[edge.source] + inside, before(e), weight(e)))
    luts_out = [
        (paths.after[e], paths.places[paths.edges[e].cell], weight(e)) for e in unit.outputs
    ]
    register = [
        (arrival[paths.edges[e].source], before(e), weight(e)) for e in unit.register_inputs
    ]
    for e in unit.register_outputs:
        edge = paths.edges[e]
        register.append((arrival[edge.source] + paths.after[e], paths.places[edge.cell], weight(e)))
    return _Ends(luts_in, luts_out, register, unit.to_register)


def _round(paths: Paths, sites: _Sites, unit_of: Mapping[int, _Unit], limit: float) -> int:
    """Move units on paths beyond ``limit``, the slowest first; return how many were moved.

    A unit that shares such a path with a moved unit stays in this round: its times have changed.
    """
    slow: dict[_Unit, float] = {}
    for n, edge in enumerate(paths.edges):
        if paths.length[n] > limit and not edge.wired:
            for cell in (paths.outputs[edge.source][0], edge.cell):
                if (unit := unit_of.get(cell)) is not None:
                    slow[unit] = max(slow.get(unit, 0.0), paths.length[n])
    moved, stays = 0, set()
    for unit in sorted(slow, key=lambda unit: (-slow[unit], unit.cells)):
        if unit in stays:
            continue
        ends = _ends(paths, unit)
        here = paths.places[unit.cells[0]]
        assert here is not None
        target = _better(ends, limit, here, lambda place, unit=unit: sites.free(unit, place))
        if target is None:
            continue
        sites.move(unit, *target)
        moved += 1
        for e in (*unit.inputs, *unit.register_inputs):
            if paths.length[e] > limit:
                stays.add(unit_of.get(paths.outputs[paths.edges[e].source][0]))
        for e in (*unit.outputs, *unit.register_outputs):
            if paths.length[e] > limit:
                stays.add(unit_of.get(paths.edges[e].cell))
    return moved


def _better(ends: _Ends, limit: float, here: Place, free) -> tuple[Place, list[str]] | None:
    """Return the best free place for a unit and its sites there; ``None`` if none is better."""
    now = ends.cost(here, limit) - GAIN
    ranked = sorted((ends.cost(place, limit), place) for place in _candidates(ends))[:4]
    best: tuple[float, Place, list[str]] | None = None
    for cost, (x, y) in ranked:
        if cost >= (best[0] if best else now):
            break
        for distance in range(FAR + 1):
            near = [
                (x + dx, y + dy)
                for dx in range(-distance, distance + 1)
                for dy in sorted({abs(dx) - distance, distance - abs(dx)})
            ]
            before = best
            for place in near:
                cost = ends.cost(place, limit)
                if cost < (best[0] if best else now) and (sites := free(place)) is not None:
                    best = cost, place, sites
            if best is not before:
                break
    return None if best is None else best[1:]


def _candidates(ends: _Ends) -> list[Place]:
    """Return promising places: the ends of the slowest paths, between them, and the middle."""
    into = _slowest(ends.luts_in) + _slowest(ends.register)
    out = _slowest(ends.luts_out) + _slowest(ends.register)
    places = {*into, *out}
    for x, y in into:
        for to_x, to_y in out:
            places |= {(x, to_y), (to_x, y)}
            for part in (1, 2, 3):
                places.add((x + part * (to_x - x) // 4, y + part * (to_y - y) // 4))
    every = [p for _, p, _ in (*ends.luts_in, *ends.luts_out, *ends.register) if p is not None]
    if every:
        middle = len(every) // 2
        places.add((sorted(x for x, _ in every)[middle], sorted(y for _, y in every)[middle]))
    return sorted(places)


def _slowest(ends: list[tuple[float, Place | None, float]]) -> list[Place]:
    ordered = sorted(((time, place) for time, place, _ in ends if place is not None), reverse=True)
    return [place for _, place in ordered[:3]]
