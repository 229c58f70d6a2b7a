"""A placed design of nextpnr's ``--write``, and what its nets connect."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

PLACE = "NEXTPNR_BEL"
"""The attribute that says where a cell is: X12/Y34/SLICEA.FF0."""
_PLACE = re.compile(r"X(\d+)/Y(\d+)/(.*)")


@dataclass(frozen=True)
class Pin:
    """A port of a cell, by the cell's number."""

    cell: int
    port: str


class Placed:
    """Cells by number, their places, and the pins of each net.

    ``x``, ``y``: columns and rows of tiles, float64; ``site``: what it is within the tile, "" for a
    cell without a place. ``drivers``, ``users``: of a net, by its number in the file. Constants are
    no nets here.
    """

    def __init__(self, module: Mapping[str, Any]):
        self.cells: list[dict[str, Any]] = list(module["cells"].values())
        self.names = list(module["cells"])
        self.kinds = [cell["type"] for cell in self.cells]
        self.x, self.y = np.zeros(len(self.cells)), np.zeros(len(self.cells))
        self.site = [""] * len(self.cells)
        for number, cell in enumerate(self.cells):
            place = _PLACE.match(cell["attributes"].get(PLACE, ""))
            if place:
                self.x[number], self.y[number] = int(place[1]), int(place[2])
                self.site[number] = place[3]
        self.drivers: dict[int, Pin] = {}
        self.users: dict[int, list[Pin]] = defaultdict(list)
        for number, cell in enumerate(self.cells):
            if self.names[number].startswith("$PACKER_"):
                continue
            for port, bits in cell["connections"].items():
                pin = Pin(number, port)
                for bit in bits:
                    if isinstance(bit, str):
                        continue
                    if cell["port_directions"][port] == "output":
                        self.drivers[bit] = pin
                    else:
                        self.users[bit].append(pin)

    def net(self, cell: int, port: str) -> int | None:
        """The net at a port of one bit; None where there is none."""
        bits = self.cells[cell]["connections"].get(port)
        return bits[0] if bits and isinstance(bits[0], int) else None

    def parameter(self, cell: int, name: str) -> str:
        """ "" where the cell has none of that name."""
        return self.cells[cell]["parameters"].get(name, "").strip()

    def tile(self, cell: int) -> tuple[int, int]:
        """Its column and row."""
        return int(self.x[cell]), int(self.y[cell])

    def move(self, cell: int, tile: tuple[int, int], site: str) -> None:
        """To another place, here and in the file's module."""
        self.x[cell], self.y[cell] = tile
        self.site[cell] = site
        self.cells[cell]["attributes"][PLACE] = f"X{tile[0]}/Y{tile[1]}/{site}"
