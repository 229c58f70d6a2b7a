"""A training step in every class of number formats: the simulated RTL against the golden model."""

from dataclasses import replace

import pytest
from format_kinds import KINDS

from trainwright.check.step import check_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

P = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=8192, accumulator_width=44
)
STALLS = MemoryModel(read_latency=90, write_latency=9, bandwidth=0.4, stall=0.6, seed=3)
MOST = 4
"""Formats whose tables a block RAM holds; with one more, words are decoded by shifts."""


@pytest.mark.slow
@pytest.mark.parametrize("shifts", [False, True], ids=["tables", "shifts"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rtl_step_in_format_equals_the_golden_model(kind: type, shifts: bool) -> None:
    network = load_network("digits").with_formats(KINDS[kind].training)
    names = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
    assert len(names) <= MOST
    if shifts:
        names += tuple(f"posit({n},0)" for n in range(5, 10))[: MOST + 1 - len(names)]
    p = replace(P, formats=names)
    assert bool(p.decoder_tables) is not shifts
    with RtlAccelerator(p, memory_bytes=1 << 22) as rtl:
        for memory in (MemoryModel(), STALLS):
            rtl.memory = memory
            outcome = check_step(network, 3, rtl, seed=7)
            assert outcome.comparison.mismatches == {}
            assert outcome.comparison.values > 1000
