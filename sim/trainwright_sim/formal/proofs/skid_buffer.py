"""The skid buffer: what is taken at one side leaves at the other."""

from typing import Any

from trainwright_hw.stream.skid_buffer import SkidBuffer
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof


def waiting(bench: ProofBench, block: Any) -> None:
    """Claim that an item that was not taken is offered again unchanged."""
    dut = block(2)
    bench.add(dut)
    waits = bench.past(dut.o.valid & ~dut.o.ready)
    bench.goal(~waits | (dut.o.valid & (dut.o.payload == bench.past(dut.o.payload))))


def passing(bench: ProofBench, block: Any) -> None:
    """Claim that an empty buffer connects both sides, and that no item is lost or doubled."""
    dut = block(2)
    bench.add(dut)
    same = (dut.o.valid == dut.i.valid) & (dut.o.payload == dut.i.payload)
    bench.goal(dut.i.ready == ~dut.holding)
    bench.goal(dut.holding | same)
    entered, left = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
    held = bench.past(dut.holding) + bench.past(entered) - bench.past(left)
    bench.goal(dut.holding == held)


PROOFS = (
    Proof(
        name="skid-buffer.waiting",
        claim="an item stays unchanged until it is taken",
        block=SkidBuffer,
        build=waiting,
        mutant=Mutant("with m.If(~self.holding):", "with m.If(~self.holding | ~self.o.ready):"),
    ),
    Proof(
        name="skid-buffer.passing",
        claim="an empty buffer passes items on at once; no item is lost or doubled",
        block=SkidBuffer,
        build=passing,
        mutant=Mutant("self.i.ready.eq(~self.holding)", "self.i.ready.eq(1)"),
    ),
)
