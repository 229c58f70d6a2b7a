"""The cocotb benches (``trainwright_sim.bench``), a test for each design and simulator.

All are slow. In continuous integration, `scripts/coverage` runs those of most blocks, and
`tests/sim/test_mutants.py` runs one of them in the default suite.
"""

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES

CASES = [
    pytest.param(bench, simulator, id=f"{bench.name}-{simulator}")
    for bench in BENCHES.values()
    for simulator in bench.simulators
]


@pytest.mark.slow
@pytest.mark.parametrize(("bench", "simulator"), CASES)
def test_block_bench_passes_in_simulator(bench, simulator, tmp_path):
    if reason := runner.unavailable(simulator):
        pytest.skip(reason)
    runner.run(bench, simulator, tmp_path)
