"""Export an accelerator for an UltraScale+ device, with models of the multipliers it instantiates.

The vendor's tools make everything else.
"""

from pathlib import Path

from trainwright_hw.build.convert import TOP
from trainwright_sim.netlist.design import CELLS, RTLIL, NetlistDesign

MODELS = Path(__file__).with_name("xcup_cells.v")

netlist_rtlil = NetlistDesign(
    family="xcup",
    passes=f"read_rtlil {RTLIL}; hierarchy -top {TOP}; proc; flatten; memory_collect",
    models=MODELS.read_text(),
    replacement=f"techmap -autoproc -map {CELLS}; select -assert-none t:DSP48E2",
)
