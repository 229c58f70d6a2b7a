"""The slices of an ECP5: which LUTs and registers of a placed design can move, and where to.

A tile of logic has four slices, each of two places for a LUT and for a register. What may be in a
tile together is what nextpnr asks for (``Arch::slices_compatible``), and a little less: nothing
moves into a tile with distributed RAM.
"""

import re
from collections import defaultdict
from typing import NamedTuple

from trainwright_boards.refinement.placed import Placed
from trainwright_boards.refinement.placed_timing import INSIDE, LUT, REGISTER

PLACES = 8
"""Of a tile, for LUTs, and as many for registers."""
SITE = re.compile(r"SLICE([A-D])\.(K|FF|RAMW)(\d?)")
"""A place for a LUT, a register, or the inputs of distributed RAM."""
_ROWS_OF_RAM = ("DPRAM", "RAMW_BLOCK")
_TILE_SHARES = ("CLK", "LSR"), ("CLKMUX", "LSRMUX", "SRMODE", "GSR")
_SLICE_SHARES = ("CE",), ("CEMUX", "GSR")
"""Nets and parameters that registers of a tile, and of a slice, have in common."""


_Cells = dict[tuple[int, int], list[int | None]]
"""By tile, and place."""


class Unit(NamedTuple):
    """What moves together: a LUT, a register, a LUT and the register that takes its output, or the
    two LUTs of a multiplexer in one slice, of which the first has the output."""

    luts: tuple[int, ...]
    register: int | None = None

    @property
    def cells(self) -> tuple[int, ...]:
        """All of them."""
        return self.luts if self.register is None else (*self.luts, self.register)


class Slices:
    """Places that are free, and ``units``: all that can move alone.

    Carry chains, multiplexers of more than two LUTs, distributed RAM, and registers that take the
    output of one of these keep their places.
    """

    def __init__(self, placed: Placed):
        self._placed = placed
        self._luts: _Cells = defaultdict(lambda: [None] * PLACES)
        self._registers: _Cells = defaultdict(lambda: [None] * PLACES)
        self._with_ram: set[tuple[int, int]] = set()
        inside = [
            (user, placed.drivers[net].cell)
            for net, users in placed.users.items()
            for user in users
            if user.port in INSIDE and net in placed.drivers
        ]
        self._wide = {cell for user, driver in inside for cell in (user.cell, driver)}
        wider = {
            cell for user, driver in inside if user.port != "F1" for cell in (user.cell, driver)
        }
        self._pairs = {
            user.cell: driver
            for user, driver in inside
            if user.port == "F1" and user.cell not in wider and driver not in wider
        }
        self._carry = {n for n in range(len(placed.cells)) if self._mode(n) == "CCU2"}
        for cell, site in enumerate(placed.site):
            if found := SITE.fullmatch(site):
                self._fill(cell, placed.tile(cell), found[2], place_of(site))
        shares = [n for n, kind in enumerate(placed.kinds) if kind == REGISTER]
        self._of_tile = {n: self._shared(n, *_TILE_SHARES) for n in shares}
        self._of_slice = {n: self._shared(n, *_SLICE_SHARES) for n in shares}
        tiles = [*self._luts, *self._registers]
        self._columns = range(
            min((x for x, _ in tiles), default=0), 1 + max((x for x, _ in tiles), default=0)
        )
        self._rows = {y for _, y in tiles}
        self.units = self._movable()

    def free(self, tile: tuple[int, int], unit: Unit) -> int | None:
        """A place of a tile that can take a unit; None: there is none."""
        if tile[0] not in self._columns or tile[1] not in self._rows or tile in self._with_ram:
            return None
        registers = self._registers[tile]
        if unit.register is not None:
            other = next((n for n in registers if n is not None and n != unit.register), None)
            if other is not None and self._of_tile[other] != self._of_tile[unit.register]:
                return None
        places = range(0, PLACES, max(len(unit.luts), 1))
        return next((place for place in places if self._fits(tile, place, unit)), None)

    def move(self, unit: Unit, tile: tuple[int, int], place: int) -> None:
        """To a place that is free for it."""
        for offset, cell in enumerate(unit.luts):
            self._put(self._luts, cell, tile, place + offset, "K")
        if unit.register is not None:
            self._put(self._registers, unit.register, tile, place, "FF")

    def _put(self, cells: _Cells, cell: int, tile: tuple[int, int], place: int, site: str) -> None:
        cells[self._placed.tile(cell)][place_of(self._placed.site[cell])] = None
        cells[tile][place] = cell
        self._placed.move(cell, tile, f"SLICE{'ABCD'[place // 2]}.{site}{place % 2}")

    def _fits(self, tile: tuple[int, int], place: int, unit: Unit) -> bool:
        luts, registers = self._luts[tile], self._registers[tile]
        register, beside = registers[place], registers[place ^ 1]
        if any(luts[place + offset] is not None for offset in range(len(unit.luts))):
            return False
        if len(unit.luts) == 1 and luts[place ^ 1] in self._carry:
            return False
        if unit.register is None:
            # a multiplexer takes the input that a register without a LUT would have
            return len(unit.luts) < 2 or register is None
        if register is not None or (not unit.luts and luts[place] in self._wide):
            return False
        shared = self._of_slice
        return beside in (None, unit.register) or shared[beside] == shared[unit.register]

    def _fill(self, cell: int, tile: tuple[int, int], what: str, place: int) -> None:
        if what == "K":
            self._luts[tile][place] = cell
        elif what == "FF":
            self._registers[tile][place] = cell
        if what == "RAMW" or self._mode(cell) in _ROWS_OF_RAM:
            self._with_ram.add(tile)

    def _movable(self) -> list[Unit]:
        placed = self._placed
        plain = {
            cell
            for cell, kind in enumerate(placed.kinds)
            if kind == LUT and not self._mode(cell) and cell not in self._wide and placed.site[cell]
        }
        units, alone = [], set(plain)
        for cell, kind in enumerate(placed.kinds):
            if kind != REGISTER or not placed.site[cell].startswith("SLICE"):
                continue
            net = placed.net(cell, "DI")
            if net is None:
                units.append(Unit((), cell))
            elif net in placed.drivers and (lut := placed.drivers[net].cell) in plain:
                units.append(Unit((lut,), cell))
                alone.discard(lut)
        units += [Unit((lut,)) for lut in sorted(alone)]
        return units + [Unit(pair) for pair in sorted(self._pairs.items())]

    def _mode(self, cell: int) -> str:
        return self._placed.parameter(cell, "MODE") if self._placed.kinds[cell] == LUT else ""

    def _shared(self, cell: int, nets: tuple[str, ...], parameters: tuple[str, ...]) -> tuple:
        found = (self._placed.net(cell, port) for port in nets)
        return (*found, *(self._placed.parameter(cell, name) for name in parameters))


def place_of(site: str) -> int:
    """The place that a site of a LUT or register is."""
    found = SITE.fullmatch(site)
    assert found is not None
    return "ABCD".index(found[1]) * 2 + int(found[3] or 0)
