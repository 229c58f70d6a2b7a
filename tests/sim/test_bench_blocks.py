"""The cocotb benches (``ttforge_sim.bench``), a test for each design and simulator."""

import pytest

from ttforge_sim.bench import runner
from ttforge_sim.bench.catalogue import BENCHES

MARKS = {bench.name: [pytest.mark.slow] if bench.slow else [] for bench in BENCHES.values()}


@pytest.mark.parametrize("simulator", runner.SIMULATORS)
@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS[name]) for name in BENCHES])
def test_bench(name, simulator, tmp_path):
    if reason := runner.unavailable(simulator):
        pytest.skip(reason)
    runner.run(BENCHES[name], simulator, tmp_path)
