"""Kernels over groups on the simulated accelerator: golden = RTL = the graph's own values."""

import sys
from pathlib import Path

import pytest
from accelerators import ALONE
from slowly import mostly_slow

from trainwright.check.step import check_step
from trainwright.timing import predict
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from group_cases import CASES, between, compiled, random_case, require_exact
from sequence_networks import decoder, dropping_classifier, small_encoder
from test_overlapping_pools import CASES as CASES_OF_POOLS
from test_overlapping_pools import pooling

NEAR, FEW = 0.05, 200
"""Part of the measured cycles by which the cycle model may be wrong, and cycles: a short program is
little but the starts of passes."""


pytestmark = pytest.mark.usefixtures("first_program")


@pytest.fixture(scope="module")
def rtl():
    with RtlAccelerator(ALONE, memory_bytes=1 << 22) as accelerator:
        yield accelerator


@pytest.mark.parametrize("name", CASES)
def test_group_kernel_between_contractions_is_exact_on_rtl(rtl, name):
    rtl.memory = MemoryModel()
    function, sizes, over = CASES[name]
    step = compiled(between(function, sizes, over, next(iter(sizes))), ALONE)
    for program, ran in zip((step.forward, step.backward), require_exact(step, rtl), strict=True):
        predicted = predict(program.descriptors, ALONE).cycles
        assert predicted == pytest.approx(ran.run.counters.cycles, rel=NEAR, abs=FEW)


@mostly_slow("seed", range(24), quick=range(2))
def test_random_group_kernels_are_exact_on_rtl(rtl, seed):
    rtl.memory = MemoryModel(read_latency=5 + 9 * (seed % 7), bandwidth=0.5, stall=0.3, seed=seed)
    require_exact(compiled(random_case(seed), ALONE), rtl, seed)


@pytest.mark.parametrize(
    ("network", "batch"),
    (
        pytest.param(small_encoder(), 1, marks=pytest.mark.slow),
        (dropping_classifier(), 2),
        pytest.param(decoder(padding=True), 2, marks=pytest.mark.slow),
    ),
    ids=("plain", "drops", "decoder"),
)
def test_small_encoder_is_exact_on_rtl(rtl, network, batch):
    """Compare a step of a network of tokens with every kind of table."""
    rtl.memory = MemoryModel()
    checked = check_step(network, batch, rtl)
    assert checked.comparison.values and checked.comparison.mismatches == {}
    assert checked.step.predicted_cycles == pytest.approx(checked.counters.cycles, rel=NEAR)


@pytest.mark.parametrize("case", CASES_OF_POOLS[:2], ids=("padded", "overlapping"))
def test_overlapping_pool_is_exact_on_rtl(rtl, case):
    rtl.memory = MemoryModel()
    checked = check_step(pooling(*case), 5, rtl)
    assert checked.comparison.values and checked.comparison.mismatches == {}
    assert checked.step.predicted_cycles == pytest.approx(checked.counters.cycles, rel=NEAR)
