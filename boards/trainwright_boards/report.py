"""Resources and timing of a build, in the names of the design."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainwright_boards.board import Part
from trainwright_boards.tools import BuildError

CELLS = {
    "ecp5": {
        "luts": {"TRELLIS_COMB": 1},
        "flip_flops": {"TRELLIS_FF": 1},
        "multipliers": {"MULT18X18D": 1},
        "block_rams": {"DP16KD": 1},
    },
    "gw5a": {
        "luts": {"LUT4": 1, "ALU": 1, "RAM16SDP4": 4},
        "flip_flops": {"DFF": 1},
        "multipliers": {"MULTALU27X18": 1},
        "block_rams": {"BSRAM": 1},
    },
    "nexus": {
        "luts": {"OXIDE_COMB": 1},
        "flip_flops": {"OXIDE_FF": 1},
        "multipliers": {"MULT18_CORE": 1},
        "block_rams": {"OXIDE_EBR": 1},
    },
}
"""Cells that nextpnr counts as each of our resources, and how many of the resource a cell takes. A
sum of a GW5A takes the place of a LUT. Its distributed RAM takes four LUTs, which are counted, and
keeps four more from any other use."""
GW5A_BLOCK_RAMS = ("SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B", "pROM", "pROMX9")
XILINX_CELLS = {
    "luts": {
        r"LUT[1-6]": 1,
        r"SRL\w+": 1,
        r"RAM(32|64)X1[SD]": 2,
        r"RAM(32|64)M": 4,
        r"RAM(32M16|64M8|32X16DR8|64X8SW)": 8,
    },
    "flip_flops": {r"FD[RSCP]E(_1)?": 1},
    "multipliers": {r"DSP48E[12]": 1},
    "block_rams": {r"RAMB36E[12]": 2, r"RAMB18E[12]": 1},
}
"""Cells of 7 series and UltraScale+; block RAMs of 18 Kbit."""
NETLIST_CELLS = {
    "ecp5": {
        "luts": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
        "flip_flops": {"TRELLIS_FF": 1},
        "multipliers": {"MULT18X18D": 1},
        "block_rams": {"DP16KD": 1},
    },
    "gw5a": {
        "luts": dict.fromkeys(("LUT1", "LUT2", "LUT3", "LUT4", "ALU"), 1)
        | dict.fromkeys(("RAM16SDP1", "RAM16SDP2", "RAM16SDP4"), 8),
        "multipliers": {"MULTALU27X18": 1},
        "block_rams": dict.fromkeys(GW5A_BLOCK_RAMS, 1),
    },
    "nexus": {
        "luts": {"LUT4": 1, "CCU2": 2, "WIDEFN9": 2, "DPR16X4": 6},
        "flip_flops": {r"FD1P3[BDIJ]X": 1},
        "multipliers": {"MULT18X18": 1},
        "block_rams": {"(P?DP|PDPSC)16K": 1},
    },
    "xc7": XILINX_CELLS,
    "xcup": XILINX_CELLS,
}
"""Cells of a netlist before it is placed, as regular expressions; the placed design has no fewer.
A distributed RAM of an ECP5 takes the four LUTs of two slices and the slice that writes it."""
COUNTED = ("LUT", "RAM", "SRL", "DSP", "URAM", "MULT", "DP16K", "PDP")
"""Beginnings of types of cells that are an error if ``NETLIST_CELLS`` lacks them."""
MARKS = (
    *("$TRELLIS", "_TRELLIS_", "_LUT4", "_CCU2C", "_PFUMX", "_L6MUX"),
    *("_LUT", "_ALU", "_MUX2_", "_DFF", "_RAM16SDP", "_SDP", "_DPB", "_DPX9B", "_IBUF", "_OBUF"),
)
"""Marks at which the tools' additions to a name begin."""
LEAST_SPARE = 0.1
"""Share of the LUTs that a build leaves free."""


class RoomError(BuildError):
    """A netlist has more cells than its part has places."""


def read_timing(path: Path) -> dict[str, Any]:
    """Return the report of place and route. Raises ``BuildError`` if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BuildError(f"no report of place and route in {path}: {error}") from error


def resources(timing: Mapping[str, Any], part: Part) -> dict[str, dict[str, int]]:
    """Return ``used`` and ``available`` for each of ``CELLS``."""
    counted = timing["utilization"]
    available = {"luts": part.luts, "multipliers": part.multipliers, "block_rams": part.block_rams}
    table = {}
    for name, cells in CELLS[part.family].items():
        used = sum(weight * int(counted[cell]["used"]) for cell, weight in cells.items())
        total = available.get(name)
        if total is None:
            total = sum(int(counted[cell]["available"]) for cell in cells)
        table[name] = {"used": used, "available": total}
    return table


def netlist_resources(cells: Mapping[str, int], part: Part) -> dict[str, dict[str, int]]:
    """Return ``used`` and ``available`` of each of ``NETLIST_CELLS``; ``cells`` counts by type.

    The placed design has at least as many LUTs.
    """
    available = {
        "luts": part.luts,
        "flip_flops": part.luts * part.flip_flops_per_lut,
        "multipliers": part.multipliers,
        "block_rams": part.block_rams,
    }
    used = count_cells(cells, part.family)
    return {kind: {"used": used[kind], "available": available[kind]} for kind in used}


def count_cells(cells: Mapping[str, int], family: str) -> dict[str, int]:
    """Return the number of each kind of ``NETLIST_CELLS``; ``cells`` counts by type.

    Raises ``BuildError`` for an unknown kind of LUT, memory or multiplier.
    """
    kinds = NETLIST_CELLS[family]
    totals = dict.fromkeys(kinds, 0)
    for cell, number in cells.items():
        weights = [
            (kind, weight)
            for kind, patterns in kinds.items()
            for pattern, weight in patterns.items()
            if re.fullmatch(pattern, cell)
        ]
        if not weights and cell.startswith(COUNTED):
            raise BuildError(f"cannot tell what {number} cells {cell} take: report it")
        for kind, weight in weights:
            totals[kind] += number * weight
    return totals


def check_room(
    cells: Mapping[str, int], part: Part, reckoned: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Raise ``RoomError`` where a netlist has more cells than a part has places.

    ``cells`` counts them by type. Placers notice a lack of places late; one of them never ends.
    ``reckoned`` has the expected numbers for the message, by kind of ``NETLIST_CELLS``.
    """
    lacking = []
    for kind, counts in netlist_resources(cells, part).items():
        used, available = counts["used"], counts["available"]
        if kind == "luts":
            available = int(available * (1 - LEAST_SPARE))
        if used > available:
            expected = f" ({reckoned[kind]} were reckoned with)" if kind in reckoned else ""
            spare = f", {LEAST_SPARE:.0%} being left free" if kind == "luts" else ""
            name = kind.replace("_", " ").replace("luts", "LUTs").replace("rams", "RAMs")
            lacking.append(f"{used} {name}{expected}, the {part.name} has {available}{spare}")
    if lacking:
        raise RoomError(
            f"the netlist does not fit: it has {' and '.join(lacking)}; choose a smaller --preset"
        )


def clocks(timing: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the achieved and the requested frequency of every clock, in MHz."""
    return {
        _plain(name): {"fmax_mhz": figures["achieved"], "asked_mhz": figures["constraint"]}
        for name, figures in timing["fmax"].items()
    }


def critical_path(timing: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the slowest path within a clock, with type, ends and delay of each step."""
    within = [p for p in timing["critical_paths"] if _clock(p["from"]) == _clock(p["to"])]
    paths = within or timing["critical_paths"]
    if not paths:
        return []
    slowest = max(paths, key=lambda path: sum(step["delay"] for step in path["path"]))
    return [
        {
            "type": step["type"],
            "from": _plain(step["from"]["cell"]),
            "to": _plain(step["to"]["cell"]),
            "net": _plain(step.get("net", "")),
            "ns": step["delay"],
        }
        for step in slowest["path"]
    ]


def _clock(event: str) -> str:
    return event.split()[-1]


def _plain(name: str) -> str:
    """Return a name as it is in the design, without the additions of the tools."""
    name = name.removeprefix("$glbnet$")
    for mark in MARKS:
        name = name.split(mark)[0]
    return name


def spare_luts(usage: Mapping[str, Mapping[str, int]]) -> float:
    """Return the share of free LUTs. Raises ``BuildError`` if less than ``LEAST_SPARE``."""
    luts = usage["luts"]
    spare = 1 - luts["used"] / luts["available"]
    if spare < LEAST_SPARE:
        raise BuildError(
            f"{luts['used']} of {luts['available']} LUTs are used, which leaves less than "
            f"{LEAST_SPARE:.0%} to spare: choose a smaller --preset"
        )
    return spare
