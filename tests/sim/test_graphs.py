"""Programs of random graphs on the simulated RTL: the golden model's bits, the cycle model's time.

One compiled simulation of each accelerator serves all graphs.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from graph_cases import colour_network, deep_network, graph_network, odd_network
from slowly import mostly_slow

from trainwright.check.step import StepCheck, check_step
from trainwright.network import Network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

SIZES = {
    "default": AcceleratorParameters(),
    "8-lanes": AcceleratorParameters(lanes=8, pe1_rows=2, pe2_rows=4, scratchpad_rows=8192),
    "short": AcceleratorParameters(scratchpad_rows=4096, statistics_depth=16, program_depth=64),
}
"""Three accelerators; programs of the last one are longer than its memories."""
BATCHES = (1, 2, 7, 16, 40, 64, 100, 257, 1024)
NEAR = 0.05
"""Share of the measured cycles that the cycle model may be off by."""


KINDS = (
    odd_network,
    lambda n: graph_network(n, windows=False),
    lambda n: graph_network(n, windows=True),
    deep_network,
    colour_network,
)


def any_graph(seed: int, kinds: int = len(KINDS)) -> tuple[Network, int]:
    """Draw orders 1 to 5, odd sizes, skips, shared layers, heads, inputs and convolutions."""
    return KINDS[seed % kinds](seed)


def any_memory(seed: int) -> MemoryModel:
    rng = random.Random(f"memory {seed}")
    return MemoryModel(
        read_latency=rng.randint(5, 200),
        write_latency=rng.randint(1, 60),
        bandwidth=rng.choice((0.1, 0.5, 0.8, 2.0)),
        stall=rng.choice((0.0, 0.3, 0.8)),
        seed=rng.randint(1, 1 << 30),
    )


@pytest.fixture(scope="module")
def default() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(SIZES["default"], memory_bytes=1 << 24) as accelerator:
        yield accelerator


@pytest.fixture(scope="module", params=("8-lanes", "short"))
def other(request) -> Iterator[RtlAccelerator]:
    with RtlAccelerator(SIZES[request.param], memory_bytes=1 << 24) as accelerator:
        yield accelerator


def exact(rtl: RtlAccelerator, network: Network, batch: int, seed: int) -> StepCheck:
    """Check a step: each tensor, statistic and byte equals the golden model's."""
    result = check_step(network, batch, rtl, seed=seed)
    assert result.comparison.values and result.comparison.mismatches == {}
    return result


@mostly_slow("seed", range(60), quick=[6])
@pytest.mark.usefixtures("first_program")
def test_random_graphs_and_memories(default, seed):
    default.memory = any_memory(seed)
    network, batch = any_graph(seed)
    exact(default, network, batch, seed)


@pytest.mark.slow
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("seed", (1, 5, 13))
def test_random_graphs_of_any_batch(default, batch, seed):
    default.memory = any_memory(batch)
    network, _ = any_graph(seed)
    exact(default, network, batch, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 80))
def test_random_graphs_on_other_accelerators(other, seed):
    other.memory = any_memory(seed)
    network, batch = any_graph(seed)
    exact(other, network, batch, seed)


def test_layers_of_one_factor(default):
    layers = [
        {"outputs": [37], "inputs": [64], "ranks": [], "relu": True},
        {"outputs": [10], "inputs": [37], "ranks": []},
    ]
    network = network_from_dict({"classes": 10, "image": [8, 8], "layers": layers})
    default.memory = any_memory(5)
    exact(default, network, 16, 5)


@pytest.mark.slow
def test_more_tensors_than_statistics_slots(default):
    """Several runs of an accelerator with few slots count what one run of another one does."""
    network, batch = any_graph(1)
    few = replace(SIZES["default"], statistics_depth=8)
    with RtlAccelerator(few, memory_bytes=1 << 24) as short:
        result = exact(short, network, batch, 1)
        assert len(result.step.backward.tensors) > 8
    default.memory = MemoryModel()
    whole = exact(default, network, batch, 1)
    assert result.comparison.values == whole.comparison.values


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_cycle_model_of_random_graph_is_near_rtl(default, seed):
    default.memory = MemoryModel()
    network, batch = any_graph(seed, kinds=4)
    result = exact(default, network, batch, seed)
    assert result.step.predicted_cycles == pytest.approx(result.counters.cycles, rel=NEAR)
