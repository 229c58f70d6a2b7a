"""The AXI write master: stable payloads, WLAST where a burst ends, responses counted."""

from dataclasses import replace
from typing import Any, NamedTuple

from amaranth.hdl import Const, Mux, Signal

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi_writer import AxiWriter
from trainwright_sim.formal.bench import Bench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.bursts import PARAMETERS

FEW = replace(PARAMETERS, outstanding_bursts=8)
"""A lemma for each place of a burst: fewer of them."""


class Writing(NamedTuple):
    """The writer; ``bursts`` asked for and not answered, ``unsent`` of which the last beat was not
    taken yet.
    """

    dut: Any
    inside: Opened
    bursts: Signal
    unsent: Signal


def writer(bench: Bench, block: Any, p: AcceleratorParameters = PARAMETERS) -> Writing:
    """With a memory that answers a burst when it has all its beats, or later."""
    dut = block(p)
    inside = bench.add(dut)
    axi, asked, size = dut.axi, dut.burst.valid & dut.burst.ready, dut.burst.payload.beats
    bench.assume(~dut.burst.valid | ((size != 0) & (size <= p.burst_beats)))
    bursts, unsent = Signal(8, name="bursts"), Signal(8, name="unsent")
    bench.m.d.sync += [
        bursts.eq(bursts + asked - axi.bvalid),
        unsent.eq(unsent + asked - (axi.wvalid & axi.wready & axi.wlast)),
    ]
    bench.assume(~axi.bvalid | (bursts > unsent))
    bench.lemma((unsent <= bursts) & (bursts <= p.outstanding_bursts))
    bench.lemma(inside["flying"] == bursts)
    bench.lemma(unsent == inside["queue"].level + (axi.wvalid & axi.wlast))
    level, depth = inside["queue.inner_level"], inside["queue"].depth - 1
    bench.lemma((level <= depth) & (inside["queue.inner_r_rdy"] == (level != 0)))
    return Writing(dut, inside, bursts, unsent)


def stable(bench: Bench, block: Any) -> None:
    """Addresses and beats that were not taken."""
    axi = writer(bench, block).dut.axi
    for valid, ready, payload in (
        (axi.awvalid, axi.awready, (axi.awaddr, axi.awlen)),
        (axi.wvalid, axi.wready, (axi.wdata, axi.wlast, axi.wstrb)),
    ):
        waits = bench.past(valid & ~ready)
        for value in payload:
            bench.goal(~waits | (valid & (value == bench.past(value))))


def counts(bench: Bench, block: Any) -> None:
    """Bursts in flight, and places of those that wait for their data."""
    writing = writer(bench, block)
    queue = writing.inside["queue"]
    bench.goal(writing.bursts <= PARAMETERS.outstanding_bursts)
    bench.goal(~queue.w_en | queue.w_rdy)
    bench.goal(writing.dut.flying == (writing.bursts != 0))
    bench.goal(writing.dut.axi.bready)


def last(bench: Bench, block: Any) -> None:
    """Any one burst, followed from its address to its last beat."""
    dut, inside, _, unsent = writer(bench, block, FEW)
    axi, m, queue = dut.axi, bench.m, inside["queue"]
    beat, final = axi.wvalid & axi.wready, axi.wvalid & axi.wready & axi.wlast
    chosen, there = bench.free(1, "chosen"), Signal(name="there")
    length, ahead = Signal(8, name="length"), Signal(8, name="bursts_ahead")
    place = Signal(8, name="place")  # beats taken since the last WLAST
    m.d.sync += [
        place.eq(Mux(final, 0, place + beat)),
        ahead.eq(Mux(there, ahead, unsent) - final),
    ]
    with m.If(there & final & (ahead == 0)):
        m.d.sync += there.eq(0)
    with m.Elif(chosen & ~there & dut.burst.valid & dut.burst.ready):
        m.d.sync += [there.eq(1), length.eq(dut.burst.payload.beats)]
    bench.goal(~(there & beat & (ahead == 0)) | (axi.wlast == (place + 1 == length)))
    # where its length lies: in the queue, until its last beat is on the channel
    level, produce, consume = (inside[f"queue.{n}"] for n in ("inner_level", "produce", "consume"))
    waits, sent = axi.wvalid & axi.wlast, inside["sent"]
    index = Signal(8)
    m.d.comb += index.eq(ahead - waits)
    width = len(dut.burst.payload.beats)
    address = (consume + index - queue.r_rdy)[: len(consume)]
    stored = inside.memory("queue.storage", address, queue.width)
    known = Mux(queue.r_rdy & (index == 0), queue.r_data, stored)[:width]
    one = there & ~((ahead == 0) & waits)
    bench.lemma(~there | (ahead < unsent))
    bench.lemma((length != 0) | ~there)
    bench.lemma(~one | (known == length))
    bench.lemma(~(there & ~one) | (place + 1 == length))
    bench.lemma((produce - consume)[: len(produce)] == level[: len(produce)])
    bench.lemma(Mux(waits, sent == 0, sent == place + axi.wvalid))
    bench.lemma((sent == 0) | queue.r_rdy)
    bench.lemma(~queue.r_rdy | ((sent < queue.r_data[:width]) & in_range(queue.r_data[:width])))
    for number in range(queue.depth - 1):
        beats = inside.memory("queue.storage", Const(number, len(consume)), queue.width)[:width]
        used = (number - consume)[: len(consume)] < level
        bench.lemma(~used | in_range(beats))


def in_range(beats: Any) -> Any:
    """Whether that is the length of a burst."""
    return (beats != 0) & (beats <= PARAMETERS.burst_beats)


PROOFS = (
    Proof(
        name="axi-write.stable",
        claim="address, length, data, strobes and WLAST stay while VALID waits for READY",
        block=AxiWriter,
        build=stable,
        mutant=Mutant("queue.r_rdy & (~axi.wvalid | axi.wready)", "queue.r_rdy"),
    ),
    Proof(
        name="axi-write.counts",
        claim="at most `outstanding_bursts` bursts, none lost; BREADY is high",
        block=AxiWriter,
        build=counts,
        mutant=Mutant("asked ^ axi.bvalid", "asked & ~axi.bvalid"),
    ),
    Proof(
        name="axi-write.last",
        claim="WLAST is at a burst's last beat and at no other",
        block=AxiWriter,
        build=last,
        mutant=Mutant("sent + 1 == queue.r_data[:width]", "sent == queue.r_data[:width]"),
    ),
)
