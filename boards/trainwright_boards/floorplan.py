"""Place the multipliers and the scratchpad of an accelerator on an ECP5.

Left alone, place and route fills the rows of DSP blocks, which cross the whole device, in any
order. A product may then be 30 tiles away from its adder, on a device 128 tiles wide
(docs/reference/timing-closure.md). So the terms of each sum are placed side by side, and what one
unit of an array passes to the next travels only to a neighbour.

Block RAMs are in such rows, too. Block RAMs with the same bits of scratchpad rows are neighbours,
because a client selects one of them. All block RAMs of a bank are close together, because each
address of the bank goes to all of them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.parameters import AcceleratorParameters
from trainwright_boards.board import Part
from trainwright_boards.tools import BuildError

ACCELERATOR = "soc.accelerator"
PROGRAM_MEMORY = f"{ACCELERATOR}.sequencer.memory."
"""Prefix of the names of the program memory's block RAMs."""
BEL = "BEL"
"""The attribute that ties a cell to its place."""


def _in_multipliers(units: Sequence, p: AcceleratorParameters) -> Sequence:
    """Return the units whose products use hardware multipliers.

    With narrow words that is every other unit; the rest are made of logic.
    """
    return units[:: 1 + p.narrow]


def pe1_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Return the multiplier cells of each row of PE1, whose products are added up."""
    return [
        [f"{ACCELERATOR}.pe1.array.product_{row}_{lane}_multiplier" for lane in range(p.lanes)]
        for row in _in_multipliers(range(p.pe1_rows), p)
    ]


def pe2_groups(p: AcceleratorParameters) -> list[list[str]]:
    """Return the multiplier cells of each lane of PE2.

    They share an operand, and their sums share a requantiser with the vector unit's shifters.
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
    """Return the site of every multiplier, by the cell's name.

    PE1's rows fill the part's rows of multipliers from the first one, PE2's lanes from the last
    one, so each array has its own region of the device. Where an array takes several rows, it turns
    round at the end of each. A group that fits no row is left to place and route.
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
    """Return the site of every block RAM in the scratchpad's banks, by the cell's name.

    The banks lie in the middle of as few rows of the part as can hold them, with a whole bank in
    one row. Within a row they are ordered by their bits, and for the same bits by bank. Without
    enough room, no sites are returned.
    """
    banks: list[list[str]] = [[] for _ in range(p.scratchpad_banks)]
    name = re.compile(re.escape(f"{ACCELERATOR}.scratchpad.banks.bank") + r"(\d+)\.(\d+)\.(\d+)")
    matches = (name.fullmatch(cell) for cell in module["cells"])
    for match in sorted((m for m in matches if m), key=lambda m: tuple(map(int, m.groups()))):
        banks[int(match[1])].append(match[0])
    for count in range(1, len(part.block_ram_rows) + 1):
        rows = part.block_ram_rows[:count]
        shares = [banks[n::count] for n in range(count)]
        lines = [[cell for cells in zip(*share, strict=True) for cell in cells] for share in shares]
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
