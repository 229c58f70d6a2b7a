"""The cocotb benches (``trainwright_sim.bench``), a test for each design and simulator."""

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES

CASES = [
    pytest.param(
        bench,
        simulator,
        id=f"{bench.name}-{simulator}",
        marks=[pytest.mark.slow] if simulator in bench.slow else [],
    )
    for bench in BENCHES.values()
    for simulator in bench.simulators
]


@pytest.mark.parametrize(("bench", "simulator"), CASES)
def test_bench(bench, simulator, tmp_path):
    if reason := runner.unavailable(simulator):
        pytest.skip(reason)
    runner.run(bench, simulator, tmp_path)
