"""An accelerator synthesised for a device, as RTLIL that can be simulated again."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from ttforge.accelerator import AcceleratorError
from ttforge.native.cache import Cache
from ttforge.native.tools import BuildLog, ToolError
from ttforge.parameters import AcceleratorParameters
from ttforge_hw.convert import TOP, to_rtlil
from ttforge_hw.multiplier import Target
from ttforge_hw.synthesis import ADDERS_TEXT, write_adders
from ttforge_sim import tools

FILE = "netlist.il"
RTLIL, CELLS = "design.il", "cells.v"
FINISH = (
    f"hierarchy -top {TOP}; proc; flatten; opt -fast; opt_clean -purge; "
    f"attrmap -remove src -remove hdlname; write_rtlil {FILE}"
)
_REMEDY = "Another version of yosys may do: name it in YOSYS."


@dataclass(frozen=True, kw_only=True)
class NetlistDesign:
    """A ``ttforge_sim.backend.Design``: synthesis as of a board, then a model for every cell.

    Netlists are kept in the user's cache. Raises ``AcceleratorError`` where yosys fails.
    """

    family: str
    """Of ``ttforge_hw.multiplier.Target``."""
    passes: str
    """From ``RTLIL`` to cells."""
    models: str
    """Verilog of the cells that yosys has as black boxes."""
    replacement: str
    """Passes that put models in place of cells; they find ``models`` in ``CELLS``."""
    contents: str
    """What matches the initial contents of a block RAM, which no model has."""

    def __call__(self, parameters: AcceleratorParameters, *, trace: bool = False) -> str:
        """The RTLIL."""
        rtlil = to_rtlil(parameters, trace=trace, target=Target(self.family))
        script = f"{self.passes}; write_rtlil synthesised.il; {self.replacement}; {FINISH}"
        version = tools.yosys().version
        material = [rtlil, self.models, ADDERS_TEXT, script, version, asdict(parameters)]
        key = "netlist-" + hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]
        cache = Cache()
        if cache.find(key) is None:
            with cache.building(key) as folder:
                if folder is not None:
                    self._synthesise(folder, cache.log(key), rtlil, script)
        return (cache.entry(key) / FILE).read_text()

    def _synthesise(self, folder: Path, log: Path, rtlil: str, script: str) -> None:
        (folder / RTLIL).write_text(rtlil)
        (folder / CELLS).write_text(self.models)
        write_adders(folder)
        try:
            BuildLog(log, folder, "the netlist").run(
                tools.yosys(), ["-q", "-p", script], remedy=_REMEDY
            )
        except ToolError as error:
            raise AcceleratorError(str(error)) from error
        if re.search(self.contents, (folder / "synthesised.il").read_text()):
            raise AcceleratorError(
                "a block RAM of the netlist has contents, which its model has not"
            )
