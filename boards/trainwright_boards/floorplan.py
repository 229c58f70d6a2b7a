"""Where the multipliers and the scratchpad of an accelerator go on an ECP5.

Left to itself, place and route fills the rows of DSP blocks, which cross the whole device, in any
order, and a product then has 30 tiles to go to its adder, of 128 in all (docs/timing-closure.md).
So each sum's terms are side by side, and what the units of an array pass from one to the next has
to go to a neighbour only. Block RAMs lie in such rows too: those with the same bits of a row of the
scratchpad, of which its clients choose one, are neighbours, and all of them close together, as
each address of a bank goes to all that it has.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.parameters import AcceleratorParameters
from trainwright_boards.board import Part
from trainwright_boards.tools import BuildError

ACCELERATOR = "soc.accelerator"
PROGRAM_MEMORY = f"{ACCELERATOR}.sequencer.memory."
"""How its block RAMs are called."""
BEL = "BEL"
"""The attribute that ties a cell to its place."""


def _in_multipliers(units: Sequence, p: AcceleratorParameters) -> Sequence:
    """Units whose products are in hardware multipliers: of narrow words every other one, the others
    are made of logic.
    """
    return units[:: 1 + p.narrow]


def pe1_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Cells of each row of PE1: its products are added up."""
    return [
        [f"{ACCELERATOR}.pe1.array.product_{row}_{lane}_multiplier" for lane in range(p.lanes)]
        for row in _in_multipliers(range(p.pe1_rows), p)
    ]


def pe2_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Cells of each lane of PE2: they share an operand, and their sums a requantiser with the
    shifters of the vector unit.
    """
    rows = _in_multipliers(range(p.pe2_rows), p)
    shifters = _in_multipliers(("x", "g"), p)
    return [
        [
            *(f"{ACCELERATOR}.pe2.array.product_{row}_{lane}_multiplier" for row in rows),
            *(f"{ACCELERATOR}.pe2.vector.{name}_{lane}_wide_multiplier" for name in shifters),
        ]
        for lane in range(p.lanes)
    ]


def multiplier_places(p: AcceleratorParameters, part: Part) -> dict[str, str]:
    """The place of every multiplier, by the cell's name.

    PE1's rows fill the part's rows of multipliers from the first, PE2's lanes from the last: each
    array has a part of the device. Where an array takes several of them it turns round at the end
    of one. A group for which no row has room is left to place and route.
    """
    free = [list(sites) for sites in part.multiplier_rows]
    places: dict[str, str] = {}
    for groups, rows, end in ((pe2_groups(p), free[::-1], -1), (pe1_groups(p), free, 0)):
        filled: list[list[tuple[list[str], list[str]]]] = [[] for _ in rows]
        for group in groups:
            number = next((n for n, row in enumerate(rows) if len(row) >= len(group)), None)
            if number is not None:
                row = rows[number]
                taken = row[-len(group) :] if end else row[: len(group)]
                row[:] = row[: -len(group)] if end else row[len(group) :]
                filled[number].append((group, taken))
        last = max((n for n, blocks in enumerate(filled) if blocks), default=0)
        for number, blocks in enumerate(filled):
            # the last one begins at the side at which all of them are filled
            sites = [taken for _, taken in blocks][:: -1 if (last - number) % 2 else 1]
            for (group, _), taken in zip(blocks, sites, strict=True):
                places.update(zip(group, taken, strict=True))
    return places


def scratchpad_places(
    module: Mapping[str, Any], p: AcceleratorParameters, part: Part
) -> dict[str, str]:
    """The place of every block RAM of the scratchpad's banks, by the cell's name.

    In the middle of as few of the part's rows as take them, a bank all in one row: bits by bits,
    and for the same bits bank by bank. No places at all where there is no room like that.
    """
    banks: list[list[str]] = [[] for _ in range(p.scratchpad_banks)]
    name = re.compile(re.escape(f"{ACCELERATOR}.scratchpad.banks.bank") + r"(\d+)\.(\d+)\.(\d+)")
    found = (name.fullmatch(cell) for cell in module["cells"])
    for match in sorted((m for m in found if m), key=lambda m: tuple(map(int, m.groups()))):
        banks[int(match[1])].append(match[0])
    for count in range(1, len(part.block_ram_rows) + 1):
        rows = part.block_ram_rows[:count]
        shares = [banks[n::count] for n in range(count)]
        lines = [[cell for cells in zip(*its, strict=True) for cell in cells] for its in shares]
        if all(len(line) <= len(row) for line, row in zip(lines, rows, strict=True)):
            places: dict[str, str] = {}
            for line, row in zip(lines, rows, strict=True):
                begin = (len(row) - len(line)) // 2
                places.update(zip(line, row[begin:], strict=False))
            return places
    return {}


def tie(module: Mapping[str, Any], places: Mapping[str, str]) -> None:
    """Write the places into a module of yosys' ``write_json``.

    Raises ``BuildError`` for a cell that it has not.
    """
    for name, place in places.items():
        if name not in module["cells"]:
            raise BuildError(f"the netlist has no cell {name}, which has a place")
        module["cells"][name]["attributes"][BEL] = place
