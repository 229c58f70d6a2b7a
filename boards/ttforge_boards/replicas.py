"""Copies of registers that too many cells listen to, one a unit of the design.

The reset, above all: one net of thousands of cells goes all over the device and ends the longest
paths; a copy's net stays with its unit.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

MANY = 1000
"""Users from which on a register is copied."""
FEW = 50
"""Users for which a unit has no copy of its own."""
REGISTER = "TRELLIS_FF"


def unit_of(cell: str) -> str:
    """The unit of a flattened design that a cell is in, by its name."""
    parts = cell.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["accelerator"] else 2])


def replicate(netlist: Path, top: str) -> int:
    """Add copies to a netlist of yosys' ``write_json``; how many.

    A copy has all of the register's inputs and parameters, and so its value in every cycle.
    """
    document: dict[str, Any] = json.loads(netlist.read_text())
    module = document["modules"][top]
    cells, nets = module["cells"], module["netnames"]
    registers = {
        cell["connections"]["Q"][0]: name
        for name, cell in cells.items()
        if cell["type"] == REGISTER and cell["connections"].get("Q")
    }
    users: dict[int, list[tuple[str, list[Any], int]]] = defaultdict(list)
    free = 2
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            for place, bit in enumerate(bits):
                free = max(free, bit + 1) if isinstance(bit, int) else free
                if cell["port_directions"][port] == "input" and bit in registers:
                    users[bit].append((unit_of(name), bits, place))
    named = (bit for net in nets.values() for bit in net["bits"] if isinstance(bit, int))
    free = max(free, *(bit + 1 for bit in named), 2)
    count = 0
    for bit, listeners in users.items():
        if len(listeners) < MANY:
            continue
        units: dict[str, list[tuple[list[Any], int]]] = defaultdict(list)
        for unit, bits, place in listeners:
            units[unit].append((bits, place))
        original = registers[bit]
        for unit, its in sorted(units.items()):
            if len(its) < FEW or len(units) == 1:
                continue
            copy = json.loads(json.dumps(cells[original]))
            copy["connections"]["Q"] = [free + count]
            name = f"{unit}.{original}"
            cells[name] = copy
            nets[name] = {"bits": [free + count], "attributes": {}}
            for bits, place in its:
                bits[place] = free + count
            count += 1
    netlist.write_text(json.dumps(document))
    return count
