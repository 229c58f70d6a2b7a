"""The watchdog: to the cycle, after how many it says that a run hangs."""

from typing import Any

from amaranth.hdl import Signal

from trainwright_hw.control.watchdog import WATCHDOG_WIDTH, Watchdog
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof


def to_the_cycle(bench: ProofBench, block: Any) -> None:
    """Claim the exact cycle of the alarm, for any constant limit and any progress."""
    dut = block()
    inside = bench.add(dut)
    limit = Signal(WATCHDOG_WIDTH, name="limit_before")
    bench.m.d.sync += limit.eq(dut.limit)
    bench.assume(~bench.settled(1) | (dut.limit == limit))
    # cycles in a row, up to the one before the last, in which nothing moved; at most the limit
    still = Signal(WATCHDOG_WIDTH + 1, name="still")
    quiet = bench.past(dut.waiting & ~dut.progress, init=1)
    with bench.m.If(~quiet):
        bench.m.d.sync += still.eq(0)
    with bench.m.Elif((dut.limit == 0) | (still != dut.limit)):
        bench.m.d.sync += still.eq((still + 1)[:WATCHDOG_WIDTH])
    bench.goal(dut.expired == ((dut.limit != 0) & (still == dut.limit)))
    bench.lemma(inside["again"] == ~quiet)
    bench.lemma(inside["count"] == still)
    bench.lemma((dut.limit == 0) | (still <= dut.limit))


PROOFS = (
    Proof(
        name="watchdog.bound",
        claim="it expires exactly after `limit` consecutive cycles without progress",
        block=Watchdog,
        build=to_the_cycle,
        mutant=Mutant("count == self.limit)", "count + 1 == self.limit)"),
    ),
)
