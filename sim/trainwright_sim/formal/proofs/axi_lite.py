"""The AXI4-Lite subordinate: an answer to every access, one access for every answer."""

from typing import Any, NamedTuple

from amaranth.hdl import Mux, Signal

from trainwright_hw.bus.axi_lite import LiteBridge
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof


class Channel(NamedTuple):
    """Count of transfers taken on a channel but not used yet, and the last payload."""

    open: Signal
    payload: Signal


def bridge(bench: ProofBench, block: Any) -> tuple[Any, Opened]:
    """Add a bridge to the bench; the registers behind it may answer a read in any cycle."""
    dut = block()
    return dut, bench.add(dut)


def taken(bench: ProofBench, name: str, valid: Any, ready: Any, payload: Any, used: Any) -> Channel:
    """Count the transfers that a channel took and that were not used yet."""
    count, last = Signal(4, name=f"{name}_open"), Signal(len(payload), name=f"{name}_payload")
    bench.m.d.sync += count.eq(count + (valid & ready) - used)
    with bench.m.If(valid & ready):
        bench.m.d.sync += last.eq(payload)
    return Channel(count, last)


def stable(bench: ProofBench, block: Any) -> None:
    """Claim that responses stay unchanged until they are taken."""
    dut, _ = bridge(bench, block)
    lite = dut.lite
    bench.lemma(~(dut.bus.read & lite.rvalid))
    for valid, ready, payload in (
        (lite.bvalid, lite.bready, (lite.bresp,)),
        (lite.rvalid, lite.rready, (lite.rdata, lite.rresp)),
    ):
        waits = bench.past(valid & ~ready)
        for value in payload:
            bench.goal(~waits | (valid & (value == bench.past(value))))


def writes(bench: ProofBench, block: Any) -> None:
    """Claim one write and one response for each pair of address and data, in any order."""
    dut, inside = bridge(bench, block)
    lite, bus = dut.lite, dut.bus
    address = taken(bench, "aw", lite.awvalid, lite.awready, lite.awaddr, bus.write)
    data = taken(bench, "w", lite.wvalid, lite.wready, lite.wdata, bus.write)
    strobes = taken(bench, "strobe", lite.wvalid, lite.wready, lite.wstrb, bus.write)
    answers = Signal(4)
    bench.m.d.sync += answers.eq(answers + bus.write - (lite.bvalid & lite.bready))
    bench.goal((address.open <= 1) & (data.open <= 1))
    bench.goal(~bus.write | ((address.open == 1) & (data.open == 1)))
    bench.goal((address.open == 0) | (bus.write_address == address.payload >> 2))
    bench.goal((data.open == 0) | (bus.write_data == data.payload))
    for byte in range(len(lite.wstrb)):
        mask = bus.write_mask.word_select(byte, 8)
        bench.goal((data.open == 0) | (mask == strobes.payload[byte].replicate(8)))
    bench.goal(answers == lite.bvalid)
    waits = (address.open == 1) & (data.open == 1) & ~lite.bvalid
    bench.goal(~waits | bus.write)
    bench.lemma(inside["addressed"] == address.open)
    bench.lemma(inside["filled"] == data.open)


def reads(bench: ProofBench, block: Any) -> None:
    """Claim that there is one read at a time, with its address and its answer."""
    dut, _ = bridge(bench, block)
    lite, bus = dut.lite, dut.bus
    done = bus.read & bus.read_done
    address = taken(bench, "ar", lite.arvalid, lite.arready, lite.araddr, done)
    answer = Signal(len(lite.rdata))
    bench.m.d.sync += answer.eq(Mux(done, bus.read_data, answer))
    answers = Signal(4)
    bench.m.d.sync += answers.eq(answers + done - (lite.rvalid & lite.rready))
    bench.goal(bus.read == (address.open == 1))
    bench.goal(address.open + answers <= 1)
    bench.goal(~bus.read | (bus.read_address == address.payload >> 2))
    bench.goal(lite.rvalid == (answers == 1))
    bench.goal(~lite.rvalid | (lite.rdata == answer))


PROOFS = (
    Proof(
        name="axi-lite.stable",
        claim="responses stay, unchanged, until they are taken",
        block=LiteBridge,
        build=stable,
        mutant=Mutant("awake & ~bus.read & ~lite.rvalid", "awake & ~bus.read"),
    ),
    Proof(
        name="axi-lite.writes",
        claim="one write and one response for each address with its data, in any order",
        block=LiteBridge,
        build=writes,
        mutant=Mutant("awake & ~filled", "awake & (~filled | ~lite.bvalid)"),
    ),
    Proof(
        name="axi-lite.reads",
        claim="one read at a time, answered once with what the register gave",
        block=LiteBridge,
        build=reads,
        mutant=Mutant("bus.read & bus.read_done", "bus.read_done"),
    ),
)
