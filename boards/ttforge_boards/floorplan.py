"""Where the multipliers of an accelerator go on an ECP5: each sum's terms side by side.

Left to itself, place and route fills the rows of DSP blocks, which cross the whole device, in any
order, and a product then has 30 tiles to go to its adder, of 128 in all (docs/boards.md).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ttforge.parameters import AcceleratorParameters
from ttforge_boards.board import Part
from ttforge_boards.tools import BuildError

ACCELERATOR = "soc.accelerator"
BEL = "BEL"
"""The attribute that ties a cell to its place."""


def pe1_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Cells of each row of PE1: its products are added up."""
    return [
        [f"{ACCELERATOR}.pe1.array.product_{row}_{lane}_multiplier" for lane in range(p.lanes)]
        for row in range(p.pe1_rows)
    ]


def pe2_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Cells of each lane of PE2: they share an operand, and their sums a requantiser with the
    shifters of the vector unit."""
    return [
        [
            *(
                f"{ACCELERATOR}.pe2.array.product_{row}_{lane}_multiplier"
                for row in range(p.pe2_rows)
            ),
            *(f"{ACCELERATOR}.pe2.vector.{name}_{lane}_wide_multiplier" for name in ("x", "g")),
        ]
        for lane in range(p.lanes)
    ]


def multiplier_places(p: AcceleratorParameters, part: Part) -> dict[str, str]:
    """The place of every multiplier, by the cell's name.

    PE2's lanes are dealt out evenly to the part's rows of multipliers, PE1's rows go before them
    where there is room. A group for which a row has no room is left to place and route.
    """
    places: dict[str, str] = {}
    lanes, rows = pe2_groups(p), pe1_groups(p)
    for number, sites in enumerate(part.multiplier_rows):
        last = number == len(part.multiplier_rows) - 1
        share = len(lanes) if last else -(-len(lanes) // (len(part.multiplier_rows) - number))
        behind = list(_fitting(lanes[:share], len(sites)))
        del lanes[: len(behind)]
        before = list(_fitting(rows, len(sites) - sum(map(len, behind))))
        del rows[: len(before)]
        cells = [cell for group in (*before, *behind) for cell in group]
        places.update(zip(cells, sites, strict=False))
    return places


def _fitting(groups: Sequence[list[str]], room: int) -> Iterator[list[str]]:
    for group in groups:
        room -= len(group)
        if room < 0:
            return
        yield group


def tie(netlist: Path, top: str, places: Mapping[str, str]) -> None:
    """Write the places into a netlist of yosys' ``write_json``.

    Raises ``BuildError`` for a cell that it has not.
    """
    document: dict[str, Any] = json.loads(netlist.read_text())
    cells = document["modules"][top]["cells"]
    for name, place in places.items():
        if name not in cells:
            raise BuildError(f"the netlist {netlist} has no cell {name}, which has a place")
        cells[name]["attributes"][BEL] = place
    netlist.write_text(json.dumps(document))
