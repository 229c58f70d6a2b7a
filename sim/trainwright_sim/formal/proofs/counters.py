"""The counters: every event counts once, in all 64 bits, which no simulation reaches."""

from typing import Any

from amaranth.hdl import Signal

from trainwright_hw.control.counters import COUNTER_WIDTH, COUNTERS, Counters
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

EVENT_CYCLES = 2
"""Cycles from an event to its count."""


def counted(bench: ProofBench, block: Any) -> None:
    """Claim that each counter counts its events since the last clear."""
    dut = block()
    bench.add(dut)
    for name in COUNTERS:
        count = getattr(dut.values, name)
        due = bench.past(getattr(dut.events, name), EVENT_CYCLES)
        before, cleared = Signal(COUNTER_WIDTH, name=f"{name}_before"), bench.past(dut.clear)
        bench.m.d.sync += before.eq(count)
        after = (before + bench.past(due))[:COUNTER_WIDTH]
        in_run = bench.settled(EVENT_CYCLES + 2)
        bench.goal(~in_run | cleared | (count == after))
        bench.goal(~in_run | ~cleared | (count == 0))


PROOFS = (
    Proof(
        name="counters.counted",
        claim="a count is one more after each event, in any of its 64 bits, and 0 after a clear",
        block=Counters,
        build=counted,
        mutant=Mutant("count.eq(count + 1)", "count.eq(count | 1)"),
        depth=EVENT_CYCLES + 2,
    ),
)
