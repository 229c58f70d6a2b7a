"""A third array in hardware: a copy of the packages has its class, and matches the golden model."""

import pytest
from third_array import copy_with_third_array, run_python

USE = """
from collections import Counter

from trainwright.check.step import check_step
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

SLOW = MemoryModel(read_latency=90, write_latency=9, bandwidth=0.4, stall=0.6, seed=3)
p, network = AcceleratorParameters(@PARAMETERS@, scratchpad_rows=8192), load_network("digits")
step = compile_step(network, 16, p)
descriptors = (*step.forward.descriptors, *step.backward.descriptors)
commands = Counter(d.operation.name for d in descriptors)
assert commands["PE5"] > 3, commands
with RtlAccelerator(p, memory_bytes=1 << 22) as rtl:
    for memory in (MemoryModel(), SLOW):
        rtl.memory = memory
        done = check_step(network, 16, rtl, seed=7)
        assert done.comparison.mismatches == {}, done.comparison.mismatches
        assert done.comparison.values > 5e4
        assert done.counters.busy_pe3 > 1000, done.counters
"""
SIZES = {
    True: "lanes=4, pe1_rows=2, pe2_rows=4",
    False: "lanes=4, pe1_rows=2, pe2_rows=4, vector_engine=1, stochastic_rounding=True",
}


@pytest.mark.slow
@pytest.mark.parametrize("along_lanes", SIZES, ids=("columns", "rows"))
def test_third_array_in_hardware_matches_golden_model(tmp_path, along_lanes):
    """Every row, byte and statistic of a step; the array of columns is taller than PE1."""
    environment = copy_with_third_array(tmp_path, along_lanes=along_lanes, hardware=True)
    run_python(environment, "-m", "trainwright.program.records")
    run_python(environment, "-c", USE.replace("@PARAMETERS@", SIZES[along_lanes]))
