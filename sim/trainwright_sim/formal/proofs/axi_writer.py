"""The AXI write master: stable payloads, WLAST where a burst ends, responses counted."""

from dataclasses import replace
from typing import Any, NamedTuple

from amaranth.hdl import Const, Mux, Signal

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi_writer import AxiWriter
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.bursts import PARAMETERS

FEW = replace(PARAMETERS, outstanding_bursts=8)
"""Parameters of fewer bursts in flight, as the proof has a lemma for each."""


class Writing(NamedTuple):
    """Writer in the bench, with counts of its bursts.

    ``bursts`` are the bursts without a response; ``unsent`` of these have beats left to send.
    """

    dut: Any
    inside: Opened
    bursts: Signal
    unsent: Signal


def writer(bench: ProofBench, block: Any, p: AcceleratorParameters = PARAMETERS) -> Writing:
    """Add a writer, and assume a memory that answers a burst only after all its beats."""
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


def stable(bench: ProofBench, block: Any) -> None:
    """Claim that addresses and beats stay unchanged until they are taken."""
    axi = writer(bench, block).dut.axi
    for valid, ready, payload in (
        (axi.awvalid, axi.awready, (axi.awaddr, axi.awlen)),
        (axi.wvalid, axi.wready, (axi.wdata, axi.wlast, axi.wstrb)),
    ):
        waits = bench.past(valid & ~ready)
        for value in payload:
            bench.goal(~waits | (valid & (value == bench.past(value))))


def counts(bench: ProofBench, block: Any) -> None:
    """Claim limits on the bursts in flight and on the bursts that wait for data."""
    writing = writer(bench, block)
    queue = writing.inside["queue"]
    bench.goal(writing.bursts <= PARAMETERS.outstanding_bursts)
    bench.goal(~queue.w_en | queue.w_rdy)
    bench.goal(writing.dut.flying == (writing.bursts != 0))
    bench.goal(writing.dut.axi.bready)


def last(bench: ProofBench, block: Any) -> None:
    """Claim that any one burst, followed from its address, ends with its last beat."""
    dut, inside, _, unsent = writer(bench, block, FEW)
    axi, m, queue = dut.axi, bench.m, inside["queue"]
    beat, final = axi.wvalid & axi.wready, axi.wvalid & axi.wready & axi.wlast
    chosen, is_inside = bench.free(1, "chosen"), Signal(name="there")
    length, ahead = Signal(8, name="length"), Signal(8, name="bursts_ahead")
    place = Signal(8, name="place")  # beats taken since the last WLAST
    m.d.sync += [
        place.eq(Mux(final, 0, place + beat)),
        ahead.eq(Mux(is_inside, ahead, unsent) - final),
    ]
    with m.If(is_inside & final & (ahead == 0)):
        m.d.sync += is_inside.eq(0)
    with m.Elif(chosen & ~is_inside & dut.burst.valid & dut.burst.ready):
        m.d.sync += [is_inside.eq(1), length.eq(dut.burst.payload.beats)]
    bench.goal(~(is_inside & beat & (ahead == 0)) | (axi.wlast == (place + 1 == length)))
    # The queue holds the length of the chosen burst until its last beat is on the channel.
    level, produce, consume = (inside[f"queue.{n}"] for n in ("inner_level", "produce", "consume"))
    waits, sent = axi.wvalid & axi.wlast, inside["sent"]
    index = Signal(8)
    m.d.comb += index.eq(ahead - waits)
    width = len(dut.burst.payload.beats)
    address = (consume + index - queue.r_rdy)[: len(consume)]
    stored = inside.memory("queue.storage", address, queue.width)
    known = Mux(queue.r_rdy & (index == 0), queue.r_data, stored)[:width]
    single = is_inside & ~((ahead == 0) & waits)
    bench.lemma(~is_inside | (ahead < unsent))
    bench.lemma((length != 0) | ~is_inside)
    bench.lemma(~single | (known == length))
    bench.lemma(~(is_inside & ~single) | (place + 1 == length))
    bench.lemma((produce - consume)[: len(produce)] == level[: len(produce)])
    bench.lemma(Mux(waits, sent == 0, sent == place + axi.wvalid))
    bench.lemma((sent == 0) | queue.r_rdy)
    bench.lemma(~queue.r_rdy | ((sent < queue.r_data[:width]) & in_range(queue.r_data[:width])))
    for number in range(queue.depth - 1):
        beats = inside.memory("queue.storage", Const(number, len(consume)), queue.width)[:width]
        used = (number - consume)[: len(consume)] < level
        bench.lemma(~used | in_range(beats))


def in_range(beats: Any) -> Any:
    """Return whether a number of beats is a legal length of a burst."""
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
