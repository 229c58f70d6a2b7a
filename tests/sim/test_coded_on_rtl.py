"""Functions in networks of coded formats on the simulated accelerator: golden = RTL."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from accelerators import ALONE

from trainwright.check.step import check_step
from trainwright.check.training import check_training
from trainwright.network import load_network
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from function_networks import two_layers, with_functions
from graph_cases import graph_network
from sequence_networks import dropping_classifier, small_encoder
from test_coded_functions import FLOATS, POSITS, engine_for
from test_overlapping_pools import CASES as POOLS
from test_overlapping_pools import pooling

pytestmark = pytest.mark.usefixtures("first_programs")

NEAR = 0.05
"""Part of the measured cycles by which the cycle model may be wrong."""
CASES = {
    "encoder": (small_encoder(), 1, FLOATS),
    "function": (two_layers("gelu"), 9, FLOATS),
    "posits": (dropping_classifier(), 2, POSITS),
    "pool": (pooling(*POOLS[0]), 3, FLOATS),
    "random": (with_functions(graph_network(2, windows=False)[0], 2), 5, POSITS),
    "encoder-64": (load_network("encoder-64"), 1, FLOATS),
    "encoder-64 of posits": (load_network("encoder-64"), 1, POSITS),
}
FEW = "function", "encoder"
ACCELERATORS = {
    FLOATS: ALONE,
    POSITS: replace(engine_for(small_encoder().with_formats(POSITS)), lanes=4),
}
"""A simulator for all cases of a format; that of floats is also built for other files."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FEW else [pytest.mark.slow]) for n in CASES]
)
def test_functions_in_coded_formats_are_exact_on_rtl(name):
    network, batch, formats = CASES[name]
    network = network.with_formats(formats)
    with RtlAccelerator(ACCELERATORS[formats], memory_bytes=1 << 22) as rtl:
        rtl.memory = MemoryModel(read_latency=11, bandwidth=0.5, stall=0.3, seed=4)
        checked = check_step(network, batch, rtl)
        assert checked.comparison.values and checked.comparison.mismatches == {}
        rtl.memory = MemoryModel()
        checked = check_step(network, batch, rtl, seed=1)
        assert checked.comparison.mismatches == {}
    cycles = checked.counters.cycles
    assert checked.step.predicted_cycles == pytest.approx(cycles, rel=NEAR, abs=200)


@pytest.mark.slow
@pytest.mark.parametrize("formats", (FLOATS, POSITS))
def test_training_on_the_chip_in_coded_formats_is_exact_on_rtl(formats):
    network = load_network("digits").with_formats(formats)
    p = replace(engine_for(network), exponents=64, sample_loads=1)
    with RtlAccelerator(p, memory_bytes=1 << 21) as rtl:
        checked = check_training(network, 16, rtl, steps=2)
    assert checked.comparison.values and checked.comparison.mismatches == {}
    assert checked.columns_cut and checked.host_writes == 0
