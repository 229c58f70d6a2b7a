"""Simulate what `trainwright build` places and routes: back end ``netlist:FOLDER``.

This simulates the netlist of a whole ECP5 board behind a serial line with the board's own rate. It
is slow: about 10,000 cycles a second for 128 multipliers, and one byte on the line takes 200
cycles. The PLL is replaced by the incoming clock and is always locked.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError, Run
from trainwright.link.backend import LinkAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import Progress
from trainwright_hw.build.convert import TOP
from trainwright_sim import tools
from trainwright_sim.board import SimulatedLine
from trainwright_sim.build import build, tell
from trainwright_sim.engines import SERIAL
from trainwright_sim.netlist import cells
from trainwright_sim.netlist.design import CELLS, FINISH, JSON
from trainwright_sim.netlist.design import FILE as RTLIL

NETLIST, SYSTEM, BUILT_TOP = "top.json", "system.json", "top"
"""Files in a build's folder, and the name of the netlist's top module."""
PATIENCE = 1e-3
"""Seconds of simulated time for an answer, which comes within a few thousand cycles or never."""
RUN_SECONDS = 3600.0
AROUND = """
module EHXPLLL(
  input CLKI, CLKFB, RST, STDBY, PHASESEL0, PHASESEL1, PHASEDIR, PHASESTEP, PHASELOADREG,
  input PLLWAKESYNC, ENCLKOP, output CLKOP, LOCK
);
  parameter CLKI_DIV = 1, CLKFB_DIV = 1, CLKOP_DIV = 1, CLKOP_CPHASE = 0, CLKOP_FPHASE = 0;
  parameter CLKOP_ENABLE = "", FEEDBK_PATH = "";
  assign CLKOP = CLKI, LOCK = 1'b1;
endmodule
"""
WRAPPER = f"""
module {TOP}(input clk, input rst, input rx, output tx, output interrupt);
  {BUILT_TOP} built(.clk_in(clk), .rx(rx), .tx(tx), .lamp(interrupt));
endmodule
"""
SCRIPT = (
    f"read_json {JSON}; techmap -autoproc -map {CELLS}; "
    "techmap -autoproc -map +/lattice/cells_sim_ecp5.v; "
    "select -assert-none t:DP16KD t:MULT18X18D t:LUT4 t:CCU2C t:TRELLIS_* t:EHXPLLL; "
    f"read_verilog wrapper.v; {FINISH}"
)


def netlist_rtlil(folder: Path, cache: Cache) -> str:
    """Return the netlist of a build's folder as RTLIL with the ports that ``SERIAL`` drives.

    The result is cached. Raises ``AcceleratorError`` where there is no netlist or yosys fails.
    """
    document = json.loads(_text(folder / NETLIST))
    module = document["modules"][BUILT_TOP]
    # yosys rejects nets that have the name of a cell, as those of copied registers do
    module["netnames"] = {}
    cells_of = module["cells"].items()
    module["cells"] = {name: cell for name, cell in cells_of if cell["type"] != "$scopeinfo"}
    text = json.dumps({"modules": {BUILT_TOP: module}})
    yosys = tools.yosys()
    material = "\n".join((text, cells.verilog(), AROUND, WRAPPER, SCRIPT, yosys.version))
    key = "built-" + hashlib.sha256(material.encode()).hexdigest()[:32]
    if cache.find(key) is None:
        with cache.building(key) as work:
            if work is not None:
                files = {JSON: text, CELLS: cells.verilog() + AROUND, "wrapper.v": WRAPPER}
                for name, content in files.items():
                    (work / name).write_text(content)
                command = [*yosys.command, "-q", "-p", SCRIPT]
                done = subprocess.run(command, cwd=work, capture_output=True, text=True)
                if done.returncode:
                    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
                    raise AcceleratorError(f"yosys failed on {folder / NETLIST}: {' '.join(last)}")
                (work / JSON).unlink()
    return (cache.entry(key) / RTLIL).read_text()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise AcceleratorError(
            f"no netlist to simulate: cannot read {path} ({error.strerror}); "
            "`trainwright build BOARD` makes it, --backend netlist:FOLDER names its folder"
        ) from error


class NetlistBoard(LinkAccelerator):
    """A build's netlist behind its serial line; ``target`` is the build's folder.

    The memory of the board begins as zeros, so zeros are not sent to places that nothing has
    written. ``memory_bytes`` is ignored: the build decides the size. Raises ``AcceleratorError``
    where there is no netlist of an ECP5 with block RAM as memory.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        memory_bytes: int = 0,
        target: str = "",
        progress: Progress = tell,
        cache: str | Path | None = None,
    ):
        if not target:
            raise ValueError("name the build's folder, as in netlist:build/ulx3s-85f")
        folder, kept = Path(target), Cache(None if cache is None else Path(cache))
        system = json.loads(_text(folder / SYSTEM))
        if (system["family"], system["memory"]) != ("ecp5", "block"):
            raise AcceleratorError(
                f"{folder} is a build for {system['family']} with {system['memory']} memory: only "
                "netlists of an ECP5 with block RAM as memory are simulated"
            )
        rtlil = netlist_rtlil(folder, kept)
        library = build(rtlil, harness=SERIAL, cache=kept, progress=progress)
        line = SimulatedLine(library, divisor=system["divisor"], clock_hz=system["clock_hz"])
        self._known: npt.NDArray[np.bool_] | None = None
        super().__init__(parameters, line, patience=PATIENCE, run_seconds=RUN_SECONDS)
        self._known = np.zeros(self.memory_bytes, bool)

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        """Put bytes into the memory; omit zeros where the memory still holds its initial zeros."""
        place = slice(address, address + data.size)
        if self._known is not None:
            inside = address >= 0 and place.stop <= self._known.size
            if inside and not data.any() and not self._known[place].any():
                return
            self._known[place] = True
        super().write(address, data)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        """Execute a program, which may write anywhere. See ``LinkAccelerator.run``."""
        if self._known is not None:
            self._known[:] = True
        return super().run(program, address, trace=trace)
