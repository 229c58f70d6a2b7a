"""A third array in hardware: a copy of the packages has its class, and matches the golden model."""

import json

import pytest
from third_array import copy_with_third_array, run_python

HOST_STEP = """
from collections import Counter

from trainwright.check.hazards import check_hazards
from trainwright.check.step import check_step
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

SLOW = MemoryModel(read_latency=90, write_latency=9, bandwidth=0.4, stall=0.6, seed=3)
p = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=4, scratchpad_rows=8192)
network = load_network("digits")
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
        predicted = step.predicted_cycles / done.counters.cycles
        assert memory is SLOW or abs(predicted - 1) < 0.02, predicted
    hazards = check_hazards(rtl)
assert hazards.mismatches == {} and hazards.values > 1e5, hazards.mismatches
assert any("PE3" in name for name in hazards.tensors), hazards.tensors
"""
COMMAND = """
import sys
from importlib.metadata import entry_points

(command,) = entry_points(group="console_scripts", name="trainwright")
sys.exit(command.load()())
"""
PASSES = "lanes=8 pe1_rows=2 pe2_rows=4 vector_engine=1 exponents=64 sample_loads=1"


@pytest.mark.slow
def test_third_array_of_columns_in_hardware_matches_golden_model(tmp_path):
    """Every row, byte and statistic of a step; PE1 and the taller array take turns."""
    environment = copy_with_third_array(tmp_path, hardware=True)
    run_python(environment, "-m", "trainwright.program.records")
    run_python(environment, "-c", HOST_STEP)


@pytest.mark.slow
def test_third_array_of_rows_in_hardware_matches_golden_model_with_passes(tmp_path):
    """PE2 takes turns with the array and with the vector engine, in steps without the host."""
    environment = copy_with_third_array(tmp_path, along_lanes=False, hardware=True)
    run_python(environment, "-m", "trainwright.program.records")
    sizes = [part for size in PASSES.split() for part in ("--accelerator", size)]
    options = ["--network", "digits", "--batch", "16", "--update", "chip", "--json", *sizes]
    printed = run_python(environment, "-c", COMMAND, "check", "--backend", "rtl", *options)
    outcome = json.loads(printed)
    assert (outcome["mismatches"], outcome["host_writes"]) == (0, 0)
    assert outcome["busy_pe3"] > 10_000 and outcome["steps"] == 8
