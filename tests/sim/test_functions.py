"""Networks with element-wise functions on the simulated accelerator: golden = RTL."""

import sys
from pathlib import Path

import pytest
from accelerators import ALONE
from slowly import mostly_slow

from trainwright.check.step import check_step
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from function_networks import (
    between_layers,
    guide_network,
    image_network,
    kernels_dropped,
    random_kernel,
    two_layers,
    with_functions,
)
from graph_cases import colour_network, graph_network

NEAR = 0.05
"""Part of the measured cycles by which the cycle model may be wrong."""


pytestmark = pytest.mark.usefixtures("first_program")


@pytest.fixture(scope="module")
def rtl():
    with RtlAccelerator(ALONE, memory_bytes=1 << 22) as accelerator:
        yield accelerator


@mostly_slow("seed", range(12), quick=[1])
def test_random_networks_with_functions_are_exact_on_rtl(rtl, seed):
    rtl.memory = MemoryModel(read_latency=5 + 9 * seed, bandwidth=0.5, stall=0.3, seed=seed + 1)
    network, batch = colour_network(seed) if seed % 3 == 1 else graph_network(seed, windows=False)
    checked = check_step(with_functions(network, seed), batch, rtl, seed=seed)
    assert checked.comparison.values and checked.comparison.mismatches == {}


@pytest.mark.filterwarnings("ignore:function_networks.py")
@pytest.mark.parametrize(
    ("seed", "over"),
    ((7, ""), (8, "features"), pytest.param(9, "channels", marks=pytest.mark.slow)),
)
def test_random_kernels_of_users_are_exact_on_rtl(rtl, seed, over):
    rtl.memory = MemoryModel(read_latency=9, bandwidth=0.5, stall=0.3, seed=seed)
    network = between_layers(random_kernel(seed, over), channels=over == "channels")
    checked = check_step(network, 16, rtl, seed=seed)
    assert checked.comparison.values and checked.comparison.mismatches == {}


@pytest.mark.parametrize(
    "table",
    ({"pool": [2, 4], "function": "max_pool"}, {"function": "batch_norm(0.25, 0.5)"}),
    ids=("max_pool", "batch_norm"),
)
def test_kernels_of_the_library_are_exact_on_rtl(rtl, table):
    rtl.memory = MemoryModel(read_latency=9, bandwidth=0.5, stall=0.3, seed=1)
    network = image_network(table, [8, 8] if "pool" in table else [64, 8])
    checked = check_step(network, 13, rtl)
    assert checked.comparison.values and checked.comparison.mismatches == {}


def test_kernels_of_the_guide_are_exact_on_rtl(rtl, tmp_path):
    rtl.memory = MemoryModel(read_latency=9, bandwidth=0.5, stall=0.3, seed=1)
    with kernels_dropped():
        checked = check_step(guide_network(tmp_path), 16, rtl)
    assert checked.comparison.values and checked.comparison.mismatches == {}


@pytest.mark.parametrize("function", ("tanh", "leaky_relu(0.1)"))
def test_functions_take_the_cycles_that_the_model_predicts(rtl, function):
    rtl.memory = MemoryModel()
    checked = check_step(two_layers(function), 64, rtl)
    assert checked.comparison.mismatches == {}
    assert checked.step.predicted_cycles == pytest.approx(checked.counters.cycles, rel=NEAR)
