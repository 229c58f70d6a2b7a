"""An accelerator synthesised for an ECP5, as RTLIL that can be simulated again."""

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from ttforge.accelerator import AcceleratorError
from ttforge.native.cache import Cache
from ttforge.native.tools import BuildLog, ToolError
from ttforge.parameters import AcceleratorParameters
from ttforge_hw.convert import TOP, to_rtlil
from ttforge_hw.multiplier import Target
from ttforge_hw.synthesis import ADDERS_TEXT, ecp5_passes, write_adders
from ttforge_sim import tools
from ttforge_sim.netlist import cells

FILE = "netlist.il"
CELLS = "cells.v"
SYNTHESIS = ecp5_passes("design.il", TOP) + "; "
MODELS = (  # ours first: yosys has empty ones for the same cells
    f"techmap -autoproc -map {CELLS}; techmap -autoproc -map +/lattice/cells_sim_ecp5.v; "
    "select -assert-none t:DP16KD t:MULT18X18D t:LUT4 t:CCU2C t:TRELLIS_*; "
)
FINISH = (
    f"hierarchy -top {TOP}; proc; flatten; opt -fast; opt_clean -purge; "
    f"attrmap -remove src -remove hdlname; write_rtlil {FILE}"
)
_REMEDY = "Another version of yosys may do: name it in YOSYS."
_INITIAL = re.compile(r"parameter \\INITVAL_\w+ \d+'[0x]*1")


def netlist_rtlil(parameters: AcceleratorParameters, *, trace: bool = False) -> str:
    """A ``ttforge_sim.backend.Design``: synthesis as of a board, then a model for every cell.

    Kept in the user's cache. Raises ``AcceleratorError`` where yosys fails.
    """
    rtlil = to_rtlil(parameters, trace=trace, target=Target("ecp5"))
    text = cells.verilog()
    script = SYNTHESIS + "write_rtlil synthesised.il; " + MODELS + FINISH
    material = [rtlil, text, ADDERS_TEXT, script, tools.yosys().version, asdict(parameters)]
    key = "netlist-" + hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]
    cache = Cache()
    if cache.find(key) is None:
        with cache.building(key) as folder:
            if folder is not None:
                _synthesise(folder, cache.log(key), rtlil, text, script)
    return (cache.entry(key) / FILE).read_text()


def _synthesise(folder: Path, log: Path, rtlil: str, text: str, script: str) -> None:
    (folder / "design.il").write_text(rtlil)
    (folder / CELLS).write_text(text)
    write_adders(folder)
    try:
        BuildLog(log, folder, "the netlist").run(
            tools.yosys(), ["-q", "-p", script], remedy=_REMEDY
        )
    except ToolError as error:
        raise AcceleratorError(str(error)) from error
    if _INITIAL.search((folder / "synthesised.il").read_text()):
        raise AcceleratorError("a block RAM of the netlist has contents, which its model has not")
