"""The cocotb benches (``trainwright_sim.bench``), a test for each design and simulator."""

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES

ELSEWHERE = "top"
"""Programs on whole accelerators: `tests/hw/test_top.py` and most of these files have them, and
`scripts/coverage` runs this bench."""
CASES = [
    pytest.param(
        bench,
        simulator,
        id=f"{bench.name}-{simulator}",
        marks=[pytest.mark.slow] if simulator in bench.slow or bench.name == ELSEWHERE else [],
    )
    for bench in BENCHES.values()
    for simulator in bench.simulators
]


@pytest.mark.parametrize(("bench", "simulator"), CASES)
def test_bench(bench, simulator, tmp_path):
    if reason := runner.unavailable(simulator):
        pytest.skip(reason)
    runner.run(bench, simulator, tmp_path)
