"""LUTs that do nothing, so that place and route leaves room for wires between those of a design.

nextpnr's placers pack an ECP5 to about 70 % of every region that they fill, and leave the rest of
the device empty: more wires come together there than can be routed. A spacer hangs on a net of few
users, and so stays near its driver; where it lies, nothing else does. Spacers serve placement
alone: routing begins with the placed design without them (docs/reference/timing-closure.md).
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from trainwright_boards.edit import add_cell, free_bit

SPACER = "spacer_"
"""Prefix of the names of spacers."""
LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4}
"""Cells of an ECP5's netlist that take LUTs, and how many."""
PER_LUT = 0.6
"""Spacers for each LUT of the design, which then takes 0.7 / 1.6 = 44 % of its region."""
MOST = 0.675
"""Share of the part's LUTs that the design and its spacers may take together."""
USERS = 3
"""Largest number of readers of a net that gets a spacer."""
CROWDED = re.compile(r"soc\.accelerator\.vector\.(issue|asked|constants|is_|\$signal)")
"""Names of LUTs whose nets get an additional spacer: these LUTs choose among the twenty words of a
descriptor for the vector engine, where more wires come together than anywhere else."""
CROWDED_SHARE = 0.5
"""Share of the wanted spacers below which a design counts as crowded. With none, an LFE5U-12F at
70 % kept the placer that spacers serve busy for 45 minutes without a legal placement."""
_DRIVERS = {"TRELLIS_FF": ("Q",), "LUT4": ("Z",), "CCU2C": ("S0", "S1")}


def add_spacers(module: dict[str, Any], luts: int) -> int:
    """Add spacers to a module of yosys' ``write_json``; return their number.

    ``luts``: LUTs of the part. The nets that get a spacer depend on the netlist alone.
    """
    cells = module["cells"]
    used = used_luts(module)
    nets = _nets(cells)
    count = max(0, min(round(PER_LUT * used), round(MOST * luts) - used, len(nets)))
    hung = [nets[n * len(nets) // count] for n in range(count)] + _crowded(cells, {*nets})
    bit = free_bit(module)
    for n, net in enumerate(hung):
        spacer = {
            "type": "LUT4",
            "parameters": {"INIT": "0" * 16},
            "attributes": {},
            "port_directions": {"A": "input", "Z": "output"},
            "connections": {"A": [net], "Z": [bit + n]},
        }
        add_cell(module, f"{SPACER}{n}", spacer, "Z")
    return len(hung)


def used_luts(module: Mapping[str, Any]) -> int:
    """Return how many LUTs a netlist takes."""
    return sum(LUTS.get(cell["type"], 0) for cell in module["cells"].values())


def is_crowded(module: Mapping[str, Any], luts: int) -> bool:
    """Return whether a part of ``luts`` has room for few of the spacers that a design gets."""
    used = used_luts(module)
    return MOST * luts - used < CROWDED_SHARE * PER_LUT * used


def remove_spacers(module: dict[str, Any]) -> None:
    """Take the spacers out of the module of a placed design of nextpnr's ``--write``.

    nextpnr writes an input without a net as an empty list, which it reads back as a missing input.
    It sets the bits that tie inputs of block RAM and multipliers only for inputs that exist, so
    such inputs get an undefined bit.
    """
    for kind in ("cells", "netnames"):
        module[kind] = {n: entry for n, entry in module[kind].items() if not n.startswith(SPACER)}
    for cell in module["cells"].values():
        for bits in cell["connections"].values():
            if not bits:
                bits.append("x")


def _crowded(cells: Mapping[str, Any], nets: set[int]) -> list[int]:
    """Return those of ``nets`` that LUTs matching ``CROWDED`` drive."""
    luts = (c for name, c in cells.items() if c["type"] == "LUT4" and CROWDED.match(name))
    return [bit for cell in luts for bit in cell["connections"].get("Z", ()) if bit in nets]


def _nets(cells: Mapping[str, Any]) -> list[int]:
    """Return the nets with few readers.

    A register in front of a pad's register drives only that, so its net is left out.
    """
    users = Counter(
        bit
        for cell in cells.values()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input"
        for bit in bits
    )
    return [
        bit
        for cell in cells.values()
        if "syn_useioff" not in cell["attributes"]
        for port in _DRIVERS.get(cell["type"], ())
        for bit in cell["connections"].get(port, ())
        if 1 <= users[bit] <= USERS
    ]
