"""Copies of registers that too many cells listen to, one a unit of the design.

The reset, above all: one net of thousands of cells goes all over the device and ends the longest
paths; a copy's net stays with its unit.
"""

from collections import defaultdict
from copy import deepcopy
from typing import Any

from ttforge_boards.edit import add_cell, free_bit

MANY = 1000
"""Users from which on a register is copied."""
FEW = 50
"""Users for which a unit has no copy of its own."""
REGISTER = "TRELLIS_FF"


def unit_of(cell: str) -> str:
    """The unit of a flattened design that a cell is in, by its name.

    That is a block of an engine, or of the system beside the accelerator; a cell of none stands for
    itself.
    """
    parts = cell.split(".")
    return ".".join(parts[: 4 if parts[1:2] == ["accelerator"] else 2])


def replicate(module: dict[str, Any]) -> int:
    """Add copies to a module of yosys' ``write_json``; how many.

    A copy has all of the register's inputs and parameters, and so its value in every cycle.
    """
    cells = module["cells"]
    users: dict[int, dict[str, list[tuple[list[Any], int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    registers = {
        bit: name
        for name, cell in cells.items()
        if cell["type"] == REGISTER
        for bit in cell["connections"].get("Q", ())
    }
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            for place, bit in enumerate(bits):
                if cell["port_directions"][port] == "input" and bit in registers:
                    users[bit][unit_of(name)].append((bits, place))
    first = bit = free_bit(module)
    for original, units in users.items():
        if sum(map(len, units.values())) < MANY or len(units) == 1:
            continue
        for unit, its in sorted(units.items()):
            if len(its) < FEW:
                continue
            copy = deepcopy(cells[registers[original]])
            copy["connections"]["Q"] = [bit]
            add_cell(module, f"{unit}.{registers[original]}", copy, "Q")
            for bits, place in its:
                bits[place] = bit
            bit += 1
    return bit - first
