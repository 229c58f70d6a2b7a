"""Verilator with fewer passes before it: three quarters of a build's time, two thirds of the speed.

For designs of which a test simulates thousands of cycles, not millions.
"""

from dataclasses import replace
from functools import partial

from trainwright_sim import build, engines

PASSES = (
    "proc; flatten; opt_expr -mux_undef -undriven -mux_bool; opt_merge; opt_clean; memory_collect"
)
QUICK = replace(
    engines.VERILATOR,
    generate=partial(engines._verilator, passes=PASSES),
    options=(PASSES, *engines.VERILATOR_OPTIONS),
)
COMPILE = tuple("-O1" if option == "-O2" else option for option in build.COMPILE)
