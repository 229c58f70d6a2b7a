"""Registers behind block RAM, moved into it.

What an ECP5's block RAM gives comes 5.7 ns after the clock, and from its own output register after
1.0 ns; yosys leaves registers that follow it where they are.
"""

from collections import defaultdict
from typing import Any

BLOCK_RAM = "DP16KD"
WIDEST = 36
"""Width at which both ports' outputs are those of port B."""
OUTPUTS = 18
PLAIN = {"CEMUX": "1", "CLKMUX": "CLK", "REGSET": "RESET"}
"""Parameters of a register that takes its input in every cycle, and begins as 0."""

Cell = dict[str, Any]


def absorb(module: dict[str, Any], *, but: str | None = None) -> int:
    """Move what can be moved in a module of yosys' ``write_json`` for an ECP5; how many registers.

    ``but``: block RAM whose names begin so keeps its registers outside, where the placer puts each
    beside what follows it. Else that is where every output of a port that is used goes to one
    register alone, of the same clock, without enable and reset, and the block RAM has no reset,
    which would be theirs too.
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
    """The register behind each output of ``sides`` that is used; none unless all can move."""
    clock, enable = (ram["connections"][f"{pin}{sides[-1]}"] for pin in ("CLK", "OCE"))
    resets = [ram["connections"].get(f"RST{side}", ["0"]) for side in "AB"]
    if enable != ["1"] or resets != [["0"], ["0"]]:
        return {}
    found: dict[str, str] = {}
    for output in (f"DO{side}{n}" for side in sides for n in range(OUTPUTS)):
        for bit in ram["connections"].get(output, ()):
            its = users.get(bit, [])
            if len(its) > 1 or (its and not _is_plain(cells, *its[0], clock)):
                return {}
            if its:
                found[output] = its[0][0]
    return found


def _is_plain(cells: dict[str, Cell], name: str, port: str, clock: list[Any]) -> bool:
    """Whether an input is that of a register which a block RAM's own can stand for."""
    cell = cells.get(name)
    if cell is None or cell["type"] != "TRELLIS_FF" or port != "DI":
        return False
    parameters, connections = cell["parameters"], cell["connections"]
    return (
        all(parameters.get(key, value).strip() == value for key, value in PLAIN.items())
        and connections["CLK"] == clock
        and connections.get("LSR", ["0"]) in (["0"], [])
    )
