"""An accelerator synthesised for a GW5A."""

from trainwright_hw.build.convert import TOP
from trainwright_hw.build.synthesis import gowin_passes
from trainwright_sim.netlist import gowin_cells
from trainwright_sim.netlist.design import CELLS, RTLIL, NetlistDesign

netlist_rtlil = NetlistDesign(
    family="gw5a",
    passes=gowin_passes(RTLIL, TOP, "gw5a", pads=False),
    models=gowin_cells.verilog(),
    # ours first: yosys has empty ones for the same cells
    replacement=(
        f"techmap -autoproc -map {CELLS}; techmap -autoproc -map +/gowin/cells_sim.v; "
        "select -assert-none t:DPB t:DPX9B t:SDPB t:SDPX9B t:SP t:SPX9 t:MULTALU27X18 t:LUT* "
        "t:MUX2_* t:ALU t:DFF* t:RAM16*"
    ),
    contents=r"parameter \\INIT_RAM_\w+ \d+'[0x]*1",
)
