"""Synthesis, and place and route, of a block by itself."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from trainwright.support.native.tools import Progress
from trainwright_boards.estimate import count
from trainwright_boards.job import REPORT_IT, Steps
from trainwright_boards.lanes.blocks import Block, Registered
from trainwright_boards.lanes.levels import logic_levels
from trainwright_boards.tools import BuildError
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import component_to_rtlil, design_to_rtlil
from trainwright_hw.build.synthesis import ecp5_passes, write_adders

PART = ("--25k", "--package", "CABGA381", "--speed", "6")
"""An LFE5U-25F-6."""
ASKED_MHZ = 300
"""Clock requested from place and route: more than any block reaches."""
TOP = "block"
ADDED = ("sites", "lut", "ff", "carry", "distributed_ram", "block_ram", "dsp")
"""Figures that are the differences of two designs where a block has ``less``."""


def measure(block: Block, family: str, folder: Path, *, place: bool, progress: Progress) -> dict:
    """Return the figures of a block: counts per unit, ``levels`` and ``mhz``.

    ``mhz`` is measured with ``place``, for blocks of an ECP5 that are ``placed``. ``sites`` of an
    ECP5 are LUT4 + 2 CCU2C + 4 TRELLIS_DPR16X4. Raises ``BuildError``.
    """
    steps = Steps(folder, progress)
    figures = _synthesised(block.build, family, steps)
    if block.less is not None:
        less = _synthesised(block.less, family, steps)
        figures |= {name: figures[name] - less[name] for name in ADDED}
    figures |= {name: figures[name] / block.units for name in ADDED}
    placed = place and block.placed and family == "ecp5"
    return figures | {"mhz": _fmax(block, steps) if placed else None}


def _synthesised(
    build: Callable[[], wiring.Component], family: str, steps: Steps
) -> dict[str, Any]:
    text = component_to_rtlil(build(), name=TOP, target=DevicePlatform(family))
    cells, levels = _netlist(text, family, steps)
    if family == "xcup":
        used = count(cells, family)
        return {
            "sites": used["luts"],
            "lut": used["luts"],
            "ff": used["flip_flops"],
            "carry": cells.get("CARRY8", 0) + cells.get("CARRY4", 0),
            "distributed_ram": sum(n for cell, n in cells.items() if cell.startswith("RAM32")),
            "block_ram": used["block_rams"],
            "dsp": used["multipliers"],
            "levels": levels,
        }
    lut, carry, ram = (cells.get(name, 0) for name in ("LUT4", "CCU2C", "TRELLIS_DPR16X4"))
    return {
        "sites": lut + 2 * carry + 4 * ram,
        "lut": lut,
        "ff": cells.get("TRELLIS_FF", 0),
        "carry": carry,
        "distributed_ram": ram,
        "block_ram": cells.get("DP16KD", 0),
        "dsp": cells.get("MULT18X18D", 0),
        "levels": levels,
    }


def _netlist(text: str, family: str, steps: Steps) -> tuple[dict[str, int], int]:
    """Return the number of cells by type, and the logic levels; the netlist stays in the folder."""
    (steps.folder / "block.il").write_text(text)
    write_adders(steps.folder)
    passes = ecp5_passes("block.il", TOP) if family == "ecp5" else (
        f"read_rtlil block.il; synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {TOP}"
    )  # fmt: skip
    script = f"{passes}; write_json block.json"
    steps.run("yosys", ["-q", "-p", script], remedy=REPORT_IT, step=family)
    module = json.loads((steps.folder / "block.json").read_text())["modules"][TOP]
    cells: dict[str, int] = {}
    for cell in module["cells"].values():
        cells[cell["type"]] = cells.get(cell["type"], 0) + 1
    return cells, logic_levels(module)


def _fmax(block: Block, steps: Steps) -> float:
    """Return Fmax in MHz of the block between registers, placed and routed alone."""
    design = Registered(block.build())
    target = DevicePlatform("ecp5")
    _netlist(
        design_to_rtlil(design, [*design.ports.values()], name=TOP, target=target), "ecp5", steps
    )
    arguments = [*PART, "--json", "block.json", "--out-of-context", "--freq", str(ASKED_MHZ)]
    arguments += ["--timing-allow-fail", "--seed", "1", "--report", "report.json"]
    steps.run("nextpnr-ecp5", arguments, remedy=REPORT_IT)
    reached = json.loads((steps.folder / "report.json").read_text())["fmax"].values()
    if not reached:
        raise BuildError(f"nextpnr-ecp5 found no clock in {block.name}")
    return min(clock["achieved"] for clock in reached)
