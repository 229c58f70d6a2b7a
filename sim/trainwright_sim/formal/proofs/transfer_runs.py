"""The runs of a transfer against three indices: each run once, where its levels say."""

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal

from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH, TRANSFER_LEVELS
from trainwright_hw.dma.descriptor_walk import Runs
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

LEVELS = range(TRANSFER_LEVELS)


def walked(bench: ProofBench, block: Any) -> None:
    """Claim the runs for any counts and deltas, with starts and steps at any time.

    The counts and deltas do not change while runs are offered.
    """
    m, dut = bench.m, block(LOCAL_WIDTH)
    inside = bench.add(dut)
    counts = [getattr(dut, f"count{level}") for level in LEVELS]
    deltas = [getattr(dut, f"delta{level}") for level in LEVELS]
    bench.assume(Cat(count != 0 for count in counts).all())
    for value in (*counts, *deltas):
        bench.assume(~dut.valid | (value == bench.past(value)))

    running, address = Signal(name="running"), Signal(LOCAL_WIDTH, name="due")
    index = [Signal(COUNT_WIDTH, name=f"index_{level}") for level in LEVELS]
    moves: Any = Const(1)
    following: Any = address
    with m.If(dut.start):
        m.d.sync += [running.eq(1), address.eq(dut.base), *(i.eq(0) for i in index)]
    with m.Elif(dut.next):
        for level in reversed(LEVELS):  # the innermost one is the fastest
            last = index[level] == counts[level] - 1
            m.d.sync += index[level].eq(Mux(moves, Mux(last, 0, index[level] + 1), index[level]))
            following = Mux(moves & ~last, address + deltas[level], following)
            moves &= last
        m.d.sync += [address.eq(following), running.eq(running & ~moves)]
    bench.goal(dut.valid == running)
    bench.goal(~running | (dut.value == address))

    for level in LEVELS:
        left, last = inside["left"][level], inside["last"][level]
        bench.lemma(~running | (index[level] < counts[level]))
        bench.lemma(~running | (left == counts[level] - index[level]))
        bench.lemma(~running | (last == (left == 1)))


PROOFS = (
    Proof(
        name="transfer-runs.walked",
        claim="each run of the transfer's levels comes once, for all counts and deltas",
        block=Runs,
        build=walked,
        mutant=Mutant("last[level].eq(left[level] == 2)", "last[level].eq(left[level] == 3)"),
    ),
)
