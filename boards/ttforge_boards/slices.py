"""The slices of an ECP5: which LUTs and registers of a placed design can move, and where to.

A tile of logic has four slices, each of two places for a LUT and for a register. What may be in a
tile together is what nextpnr asks for (``Arch::slices_compatible``), and a little less: nothing
moves into a tile with distributed RAM.
"""

import re
from collections import defaultdict
from typing import NamedTuple

from ttforge_boards.placed import Placed
from ttforge_boards.placed_timing import INSIDE, LUT, REGISTER

PLACES = 8
"""Of a tile, for LUTs, and as many for registers."""
_SITE = re.compile(r"SLICE([A-D])\.(K|FF|RAMW)(\d?)")
_ROWS_OF_RAM = ("DPRAM", "RAMW_BLOCK")
_TILE_SHARES = ("CLK", "LSR"), ("CLKMUX", "LSRMUX", "SRMODE", "GSR")
_SLICE_SHARES = ("CE",), ("CEMUX", "GSR")
"""Nets and parameters that registers of a tile, and of a slice, have in common."""


_Cells = dict[tuple[int, int], list[int | None]]
"""By tile, and place."""


class Unit(NamedTuple):
    """What moves together: a LUT, a register, or a LUT and the register that takes its output."""

    lut: int | None
    register: int | None

    @property
    def cell(self) -> int:
        """One of the two."""
        found = self.register if self.lut is None else self.lut
        assert found is not None
        return found


class Slices:
    """Places that are free, and ``units``: all that can move alone.

    Carry chains, wide multiplexers, distributed RAM, and registers at the output of one of these
    keep their places.
    """

    def __init__(self, placed: Placed):
        self._placed = placed
        self._luts: _Cells = defaultdict(lambda: [None] * PLACES)
        self._registers: _Cells = defaultdict(lambda: [None] * PLACES)
        self._with_ram: set[tuple[int, int]] = set()
        self._wide = {
            cell
            for net, users in placed.users.items()
            for user in users
            if user.port in INSIDE and net in placed.drivers
            for cell in (user.cell, placed.drivers[net].cell)
        }
        self._carry = {n for n in range(len(placed.cells)) if self._mode(n) == "CCU2"}
        for cell, site in enumerate(placed.site):
            if found := _SITE.fullmatch(site):
                self._fill(cell, placed.tile(cell), found[2], _place(site))
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
        places = range(PLACES)
        return next((place for place in places if self._fits(tile, place, unit)), None)

    def move(self, unit: Unit, tile: tuple[int, int], place: int) -> None:
        """To a place that is free for it."""
        old, from_ = self._placed.tile(unit.cell), _place(self._placed.site[unit.cell])
        for cells, cell, site in (
            (self._luts, unit.lut, "K"),
            (self._registers, unit.register, "FF"),
        ):
            if cell is not None:
                cells[old][from_] = None
                cells[tile][place] = cell
                self._placed.move(cell, tile, f"SLICE{'ABCD'[place // 2]}.{site}{place % 2}")

    def _fits(self, tile: tuple[int, int], place: int, unit: Unit) -> bool:
        luts, registers = self._luts[tile], self._registers[tile]
        lut, register = luts[place], registers[place]
        if unit.lut is not None:
            if lut is not None or luts[place ^ 1] in self._carry:
                return False
            if unit.register is None and register is not None and self._takes_lut(register):
                return False
        if unit.register is not None:
            beside = registers[place ^ 1]
            if register is not None or lut in self._wide:
                return False
            if beside is not None and beside != unit.register:
                return self._of_slice[beside] == self._of_slice[unit.register]
        return True

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
            if not self._takes_lut(cell):
                units.append(Unit(None, cell))
                continue
            net = placed.net(cell, "DI")
            lut = placed.drivers[net].cell if net in placed.drivers else None
            if lut in plain:
                units.append(Unit(lut, cell))
                alone.discard(lut)
        return units + [Unit(lut, None) for lut in sorted(alone)]

    def _takes_lut(self, register: int) -> bool:
        return self._placed.net(register, "DI") is not None

    def _mode(self, cell: int) -> str:
        return self._placed.parameter(cell, "MODE") if self._placed.kinds[cell] == LUT else ""

    def _shared(self, cell: int, nets: tuple[str, ...], parameters: tuple[str, ...]) -> tuple:
        found = (self._placed.net(cell, port) for port in nets)
        return (*found, *(self._placed.parameter(cell, name) for name in parameters))


def _place(site: str) -> int:
    found = _SITE.fullmatch(site)
    assert found is not None
    return "ABCD".index(found[1]) * 2 + int(found[3] or 0)
