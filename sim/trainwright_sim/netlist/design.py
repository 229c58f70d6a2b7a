"""An accelerator synthesised for a device, as RTLIL that can be simulated again."""

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.accelerator import AcceleratorError
from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import BuildLog, ToolError
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import TOP, to_rtlil
from trainwright_hw.build.synthesis import ADDERS_TEXT, write_adders
from trainwright_sim import tools

FILE = "netlist.il"
RTLIL, CELLS = "design.il", "cells.v"
JSON = "synthesised.json"
FINISH = (
    f"hierarchy -top {TOP}; proc; flatten; opt -fast; opt_clean -purge; "
    f"attrmap -remove src -remove hdlname; write_rtlil {FILE}"
)
_REMEDY = "Another version of yosys may do: name it in YOSYS."


@dataclass(frozen=True, kw_only=True)
class NetlistDesign:
    """A ``trainwright_sim.backend.Design``: synthesis as of a board, then a model for every cell.

    Netlists are kept in the user's cache. Raises ``AcceleratorError`` where yosys fails.
    """

    family: str
    """Device family, as ``trainwright_hw.arith.multiplier.DevicePlatform`` names it."""
    passes: str
    """Passes of yosys that map ``RTLIL`` to cells."""
    models: str
    """Verilog of the cells that yosys has as black boxes."""
    replacement: str
    """Passes that put models in place of cells; they find ``models`` in ``CELLS``."""
    contents: str | None = None
    """Pattern that matches initial contents of a block RAM, if the models cannot hold any."""
    edit: Callable[[dict[str, Any]], object] | None = None
    """Change that a board's build makes to the module of yosys' ``write_json``."""

    def __call__(self, parameters: AcceleratorParameters, *, trace: bool = False) -> str:
        """Return the synthesised design as RTLIL."""
        rtlil = to_rtlil(parameters, trace=trace, target=DevicePlatform(self.family))
        scripts = [
            f"{self.passes}; write_rtlil synthesised.il; write_json {JSON}",
            f"read_json {JSON}; {self.replacement}; {FINISH}",
        ]
        edit = "" if self.edit is None else Path(inspect.getfile(self.edit)).read_text()
        version = tools.yosys().version
        material = [rtlil, self.models, ADDERS_TEXT, scripts, edit, version, asdict(parameters)]
        key = "netlist-" + hashlib.sha256(json.dumps(material).encode()).hexdigest()[:32]
        cache = Cache()
        if cache.find(key) is None:
            with cache.building(key) as folder:
                if folder is not None:
                    self._synthesise(folder, cache.log(key), rtlil, scripts)
        return (cache.entry(key) / FILE).read_text()

    def _synthesise(self, folder: Path, log: Path, rtlil: str, scripts: list[str]) -> None:
        (folder / RTLIL).write_text(rtlil)
        (folder / CELLS).write_text(self.models)
        write_adders(folder)
        first, second = scripts
        try:
            build = BuildLog(log, folder, "the netlist")
            build.run(tools.yosys(), ["-q", "-p", first], remedy=_REMEDY)
            if self.edit is not None:
                document = json.loads((folder / JSON).read_text())
                self.edit(document["modules"][TOP])
                (folder / JSON).write_text(json.dumps(document))
            build.run(tools.yosys(), ["-q", "-p", second], remedy=_REMEDY)
        except ToolError as error:
            raise AcceleratorError(str(error)) from error
        netlist = (folder / "synthesised.il").read_text()
        if self.contents is not None and re.search(self.contents, netlist):
            raise AcceleratorError(
                "a block RAM of the netlist has contents, which its model has not"
            )
