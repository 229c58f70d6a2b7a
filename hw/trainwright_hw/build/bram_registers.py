"""Registers behind block RAM, moved into the block RAM.

The output of an ECP5's block RAM is valid 5.7 ns after the clock, or 1.0 ns from its own output
register, but yosys leaves following registers outside.
"""

from collections import defaultdict
from typing import Any

BLOCK_RAM = "DP16KD"
WIDEST = 36
"""Width at which port B carries both ports' outputs."""
OUTPUTS = 18
PLAIN = {"CEMUX": "1", "CLKMUX": "CLK", "REGSET": "RESET"}
"""Parameters of a register that loads in every cycle and starts at 0."""

Cell = dict[str, Any]


def absorb(module: dict[str, Any], *, but: str | None = None) -> int:
    """Move registers into block RAM in a module of yosys' ``write_json`` for an ECP5; count them.

    ``but``: block RAM whose names begin so keeps its registers outside, where the placer puts each
    next to the logic that it feeds. Otherwise registers move where every used output of a port goes
    to exactly one register, of the same clock, without enable and reset, and the block RAM has no
    reset, which would apply to them too.
    """
    cells: dict[str, Cell] = module["cells"]
    users: dict[Any, list[tuple[str, str]]] = defaultdict(list)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                for bit in bits:
                    users[bit].append((name, port))
    for port in module["ports"].values():
        if port["direction"] == "output":
            for bit in port["bits"]:
                users[bit].append(("", ""))
    moved = 0
    for name, ram in list(cells.items()):
        if ram["type"] != BLOCK_RAM or (but is not None and name.startswith(but)):
            continue
        wide = int(ram["parameters"]["DATA_WIDTH_B"], 2) == WIDEST
        for sides in ("AB",) if wide else ("A", "B"):
            behind = _registers_behind(ram, sides, cells, users)
            for output, register in behind.items():
                ram["connections"][output] = cells.pop(register)["connections"]["Q"]
            if behind:
                ram["parameters"] |= {f"REGMODE_{side}": "OUTREG" for side in sides}
            moved += len(behind)
    return moved


def _registers_behind(
    ram: Cell, sides: str, cells: dict[str, Cell], users: dict[Any, list[tuple[str, str]]]
) -> dict[str, str]:
    """Return the register behind each used output of ``sides``; none unless all can move."""
    clock, enable = (ram["connections"][f"{pin}{sides[-1]}"] for pin in ("CLK", "OCE"))
    resets = [ram["connections"].get(f"RST{side}", ["0"]) for side in "AB"]
    if enable != ["1"] or resets != [["0"], ["0"]]:
        return {}
    registers: dict[str, str] = {}
    for output in (f"DO{side}{n}" for side in sides for n in range(OUTPUTS)):
        for bit in ram["connections"].get(output, ()):
            readers = users.get(bit, [])
            if len(readers) > 1 or (readers and not _is_plain(cells, *readers[0], clock)):
                return {}
            if readers:
                registers[output] = readers[0][0]
    return registers


def _is_plain(cells: dict[str, Cell], name: str, port: str, clock: list[Any]) -> bool:
    """Return whether a register input can be replaced by a block RAM's own register."""
    cell = cells.get(name)
    if cell is None or cell["type"] != "TRELLIS_FF" or port != "DI":
        return False
    parameters, connections = cell["parameters"], cell["connections"]
    return (
        all(parameters.get(key, value).strip() == value for key, value in PLAIN.items())
        and connections["CLK"] == clock
        and connections.get("LSR", ["0"]) in (["0"], [])
    )
