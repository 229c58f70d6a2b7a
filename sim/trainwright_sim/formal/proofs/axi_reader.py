"""The AXI read master: its requests, and a place for every beat that it asked for."""

from typing import Any, NamedTuple

from amaranth.hdl import Signal

from trainwright_hw.bus.axi_reader import AxiReader
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.block_queue import structure_of_block
from trainwright_sim.formal.proofs.bursts import PARAMETERS


class Reading(NamedTuple):
    """The reader and what is on its way: ``beats`` and ``bursts`` asked for and not answered."""

    dut: Any
    inside: Opened
    beats: Signal
    bursts: Signal


def reader(bench: ProofBench, block: Any) -> Reading:
    """Add a reader, and assume a memory that answers every burst, in any number of cycles."""
    dut, p = block(PARAMETERS), PARAMETERS
    inside = bench.add(dut)
    axi, asked = dut.axi, dut.burst.valid & dut.burst.ready
    size = dut.burst.payload.beats
    bench.assume(~dut.burst.valid | ((size != 0) & (size <= p.burst_beats)))
    beats, bursts = Signal(16, name="beats_to_come"), Signal(16, name="bursts_to_come")
    landed = axi.rvalid & axi.rlast
    with bench.m.If(asked):
        bench.m.d.sync += beats.eq(beats + size - axi.rvalid)
    with bench.m.Else():
        bench.m.d.sync += beats.eq(beats - axi.rvalid)
    bench.m.d.sync += bursts.eq(bursts + asked - landed)
    rest, later_bursts = beats - 1, bursts - axi.rlast
    bench.assume(
        ~axi.rvalid | ((beats != 0) & (rest >= later_bursts) & ((rest == 0) == (later_bursts == 0)))
    )
    bench.lemma((beats >= bursts) & ((beats == 0) == (bursts == 0)))
    words = structure_of_block(bench, inside["fifo"], inside, "fifo.")
    bench.lemma(inside["flying"] == bursts)
    bench.lemma(bursts <= p.outstanding_bursts)
    bench.lemma(inside["credit"] + beats + inside["taken"] + words == dut.depth)
    return Reading(dut, inside, beats, bursts)


def stable(bench: ProofBench, block: Any) -> None:
    """Claim that an address stays unchanged until it is taken."""
    axi = reader(bench, block).dut.axi
    waits = bench.past(axi.arvalid & ~axi.arready)
    for value in (axi.araddr, axi.arlen):
        bench.goal(~waits | (axi.arvalid & (value == bench.past(value))))


def places(bench: ProofBench, block: Any) -> None:
    """Claim that the reader never requests more beats than it has room for."""
    reading = reader(bench, block)
    dut, fifo = reading.dut, reading.inside["fifo"]
    bench.goal(reading.bursts <= PARAMETERS.outstanding_bursts)
    bench.goal(~reading.inside["fifo.keep"] | (reading.inside["fifo.stored"] != fifo.depth))
    bench.goal(dut.axi.rready)
    unread = Signal(16)
    bench.m.d.sync += unread.eq(unread + dut.axi.rvalid - (dut.beats.valid & dut.beats.ready))
    bench.goal(reading.beats + unread <= dut.depth)
    words = reading.inside["fifo.arrived"] + reading.inside["fifo.stored"]
    words = words + reading.inside["fifo.reading"] + reading.inside["fifo.ahead"].level
    bench.lemma(unread == words)


PROOFS = (
    Proof(
        name="axi-read.stable",
        claim="address and length stay while ARVALID waits for ARREADY",
        block=AxiReader,
        build=stable,
        mutant=Mutant("(~axi.arvalid | axi.arready)", "(~axi.arvalid | ~axi.arready)"),
    ),
    Proof(
        name="axi-read.places",
        claim="at most `outstanding_bursts` bursts, no beat without a place; RREADY is high",
        block=AxiReader,
        build=places,
        mutant=Mutant("credit >= p.burst_beats", "credit >= 0"),
    ),
)
