"""The cocotb benches (``trainwright_sim.bench``), a test for each design and simulator."""

import pytest

from trainwright_sim.bench import runner
from trainwright_sim.bench.catalogue import BENCHES

ELSEWHERE = ("top", "sequencer", "scratchpad", "statistics", "nest", "fetch", "pe1-posits")
"""Benches whose blocks other default tests have: programs, what issues them, statistics and rows of
the scratchpad `tests/hw/test_top.py` and most of these files, loop nests `test_nest.py`, fetching
`test_pe2.py`, posits `test_lane_format.py` and `test_top.py`. Building and running the seven takes
more than a minute; `scripts/coverage` runs them, too."""


def is_slow(bench, simulator: str) -> bool:
    """Return whether a bench is left to the slow tests.

    Icarus is a second opinion of the same benches, 33 of them in 6 minutes of processor time, and
    `scripts/test` installs it for the exported Verilog.
    """
    return simulator in bench.slow or simulator == "icarus" or bench.name in ELSEWHERE


CASES = [
    pytest.param(
        bench,
        simulator,
        id=f"{bench.name}-{simulator}",
        marks=[pytest.mark.slow] if is_slow(bench, simulator) else [],
    )
    for bench in BENCHES.values()
    for simulator in bench.simulators
]


@pytest.mark.parametrize(("bench", "simulator"), CASES)
def test_block_bench_passes_in_simulator(bench, simulator, tmp_path):
    if reason := runner.unavailable(simulator):
        pytest.skip(reason)
    runner.run(bench, simulator, tmp_path)
