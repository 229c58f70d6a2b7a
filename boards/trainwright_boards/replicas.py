"""Copies of registers that too many cells listen to.

One a unit of the design for the reset, above all: one net of thousands of cells goes all over the
device and ends the longest paths; a copy's net stays with its unit. And several in a unit, for what
chooses the bits of a row: neighbours among these have a copy of their own.
"""

import re
from collections import defaultdict
from copy import deepcopy
from math import ceil
from typing import Any, NamedTuple

from trainwright_boards.edit import add_cell, free_bit

MANY = 1000
"""Users, in several units, from which on each unit has a copy."""
FEW = 12
"""Users in a unit from which on it does."""
MANY_DATA = 100
"""Data inputs in a unit from which on there is a copy for each ``LOT`` of them."""
LOT = 40
CONTROLS = ("CE", "LSR", "CLK")
"""Inputs that registers of a tile share: different nets there would keep them apart."""
REGISTER = "TRELLIS_FF"


class _User(NamedTuple):
    """An input of a cell: a place among the bits of a port."""

    cell: str
    port: str
    bits: list[Any]
    place: int


def unit_of(cell: str) -> str:
    """The unit of a flattened design that a cell is in, by its name.

    That is a block of an engine, or of the system beside the accelerator; for a cell in no block of
    its engine, the engine; "" at the top.
    """
    blocks = cell.split(".")[:-1]
    return ".".join(blocks[: 4 if blocks[1:2] == ["accelerator"] else 2])


def replicate(module: dict[str, Any]) -> int:
    """Add copies to a module of yosys' ``write_json``; how many.

    A copy has all of the register's inputs and parameters, and so its value in every cycle.
    """
    cells = module["cells"]
    registers = {
        bit: name
        for name, cell in cells.items()
        if cell["type"] == REGISTER
        for bit in cell["connections"].get("Q", ())
    }
    users: dict[int, list[_User]] = defaultdict(list)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            for place, bit in enumerate(bits):
                if cell["port_directions"][port] == "input" and bit in registers:
                    users[bit].append(_User(name, port, bits, place))
    first = bit = free_bit(module)
    for original, its in users.items():
        for number, lot in enumerate(_lots(its)):
            copy = deepcopy(cells[registers[original]])
            copy["connections"]["Q"] = [bit]
            unit = unit_of(lot[0].cell)
            add_cell(module, f"{unit}.{registers[original]}.{number}", copy, "Q")
            for user in lot:
                user.bits[user.place] = bit
            bit += 1
    return bit - first


def _lots(users: list[_User]) -> list[list[_User]]:
    """The users of each copy of a register; those that are in none keep the register itself.

    Cells at the top are in none.
    """
    units: dict[str, list[_User]] = defaultdict(list)
    for user in users:
        units[unit_of(user.cell)].append(user)
    units.pop("", None)
    found = []
    several = len(users) >= MANY and len(units) > 1
    for _, its in sorted(units.items()):
        data = [user for user in its if user.port not in CONTROLS]
        if len(data) >= MANY_DATA:
            data.sort(key=lambda user: _in_order(user.cell))
            count = ceil(len(data) / LOT)
            found += [
                data[n * len(data) // count : (n + 1) * len(data) // count] for n in range(count)
            ]
            its = [user for user in its if user.port in CONTROLS]
        if several and len(its) >= FEW:
            found.append(its)
    return found


def _in_order(name: str) -> list[str | int]:
    """A key that has the numbers in names in their order: words of a row, bits of a word."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
