"""Netlists that yosys makes for an ECP5 and a GW5A, with models of their cells, compute the same
bits."""

import random

import pytest

from trainwright.accelerator import Run
from trainwright.check.step import check_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.netlist import ecp5, gowin

SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)


class Untraced:
    """An accelerator as a board is: a run leaves memory, statistics and counters."""

    def __init__(self, inner: RtlAccelerator):
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        return self._inner.run(program, address)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [4])
@pytest.mark.parametrize("family", [ecp5, gowin], ids=["ecp5", "gw5a"])
def test_a_step_of_digits_on_the_netlist_is_exact(family, batch):
    network = load_network("digits")
    seed = random.Random(batch).randrange(1000)
    with RtlAccelerator(
        SMALL,
        memory_bytes=1 << 20,
        design=family.netlist_rtlil,
        trace=False,
        watchdog_cycles=200_000,
    ) as netlist:
        outcome = check_step(network, batch, Untraced(netlist), seed=seed)
        assert outcome.comparison.mismatches == {}
        assert outcome.comparison.values > 1000
        cycles = outcome.counters.cycles
    with RtlAccelerator(SMALL, memory_bytes=1 << 20, trace=False) as rtl:
        outcome = check_step(network, batch, Untraced(rtl), seed=seed)
        assert outcome.comparison.mismatches == {}
        assert outcome.counters.cycles == cycles
