"""An accelerator synthesised for an ECP5."""

from trainwright_hw.build.bram_registers import absorb
from trainwright_hw.build.convert import TOP
from trainwright_hw.build.synthesis import ecp5_passes
from trainwright_sim.netlist import cells
from trainwright_sim.netlist.design import CELLS, RTLIL, NetlistDesign

netlist_rtlil = NetlistDesign(
    family="ecp5",
    passes=ecp5_passes(RTLIL, TOP),
    models=cells.verilog(),
    # ours first: yosys has empty ones for the same cells
    replacement=(
        f"techmap -autoproc -map {CELLS}; techmap -autoproc -map +/lattice/cells_sim_ecp5.v; "
        "select -assert-none t:DP16KD t:MULT18X18D t:LUT4 t:CCU2C t:TRELLIS_*"
    ),
    edit=absorb,
)
