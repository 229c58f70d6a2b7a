"""Logic levels of a netlist."""

from collections.abc import Mapping
from typing import Any

FREE = ("PFUMX", "L6MUX21", "MUXF7", "MUXF8", "MUXF9", "INV")
"""Multiplexers within a slice: LUTs of more inputs are made of them."""
CARRIES = ("CCU2C", "CARRY4", "CARRY8")
REGISTERS = ("TRELLIS_FF", "DP16KD", "MULT18X18D", "FD", "RAMB", "DSP48E2", "SRL")
"""Beginnings of the types of cells at which paths end and new ones begin."""
CARRY_IN = ("CIN", "CI")


def logic_levels(module: Mapping[str, Any]) -> int:
    """Return the number of LUTs on the longest path between registers.

    The module is from yosys' JSON. A carry chain counts as one level, whatever its length, and so
    do a function that takes several LUTs and a read of distributed RAM.
    """
    drivers: dict[int, str] = {}
    cells = {
        name: cell
        for name, cell in module["cells"].items()
        if not cell["type"].startswith(REGISTERS)
    }
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                drivers |= {bit: name for bit in bits if isinstance(bit, int)}
    levels: dict[str, int] = {}
    for name in cells:
        _level(name, cells, drivers, levels)
    return max(levels.values(), default=0)


def _level(name: str, cells: Mapping, drivers: Mapping[int, str], levels: dict[str, int]) -> None:
    """Compute the levels of a cell and of all it depends on, without recursion: chains are long."""
    stack = [name]
    while stack:
        top = stack[-1]
        if top in levels:
            stack.pop()
            continue
        cell = cells[top]
        inputs = [
            (drivers[bit], port)
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            for bit in bits
            if bit in drivers
        ]
        missing = [driver for driver, _ in inputs if driver not in levels]
        if missing:
            stack += missing
            continue
        own = cell["type"] not in FREE
        levels[top] = (
            max(
                (levels[driver] + (own and not _chained(cells, driver, cell, port)))
                for driver, port in [*inputs]
            )
            if inputs
            else int(own)
        )
        stack.pop()


def _chained(cells: Mapping, driver: str, cell: Mapping, port: str) -> bool:
    """Return whether a carry passes from one cell of a chain to the next."""
    both = cell["type"] in CARRIES and cells[driver]["type"] in CARRIES
    return both and port in CARRY_IN
