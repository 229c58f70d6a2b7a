"""Runs to bursts, and the bursts at the memory port: none crosses 4 KiB."""

from typing import Any

from amaranth.hdl import Signal

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import BURST_BOUNDARY_BYTES
from trainwright_hw.bus.axi_reader import AxiReader
from trainwright_hw.bus.axi_writer import AxiWriter
from trainwright_hw.bus.bursts import Bursts
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

PARAMETERS = AcceleratorParameters()
PAGE = BURST_BOUNDARY_BYTES.bit_length() - 1


def bursts(bench: ProofBench, block: Any) -> tuple[Any, Opened]:
    """Add the block, and assume runs of at least one beat."""
    dut = block(PARAMETERS)
    inside = bench.add(dut)
    bench.assume(~dut.run.valid | (dut.run.payload.beats != 0))
    active, beat, left = inside["active"], inside["beat"], inside["left"]
    to_boundary, most = inside["to_boundary"], PARAMETERS.burst_beats
    place = beat[: most.bit_length() - 1]
    bench.lemma(~active | (left != 0))
    bench.lemma(~active | (to_boundary + place == most))
    bench.lemma(~active | (inside["final"] == (left <= to_boundary)))
    return dut, inside


def within_page(address: Any, beats: Any) -> Any:
    """Return whether the last byte is in the same 4 KiB page as the first."""
    return address[:PAGE] + beats * PARAMETERS.beat_bytes <= BURST_BOUNDARY_BYTES


def cover(bench: ProofBench, block: Any) -> None:
    """Claim that the bursts cover exactly the run: the next byte and the beats left match."""
    dut, inside = bursts(bench, block)
    run, burst = dut.run, dut.burst
    address, left = Signal(PARAMETERS.address_width), Signal(len(run.payload.beats))
    low = PARAMETERS.beat_bytes.bit_length() - 1
    with bench.m.If(run.valid & run.ready):
        bench.m.d.sync += [
            address.eq(run.payload.address >> low << low),
            left.eq(run.payload.beats),
        ]
    with bench.m.Elif(burst.valid & burst.ready):
        bench.m.d.sync += [
            address.eq(address + burst.payload.beats * PARAMETERS.beat_bytes),
            left.eq(left - burst.payload.beats),
        ]
    bench.goal(burst.valid == (left != 0))
    bench.goal(dut.busy == burst.valid)
    bench.goal(~burst.valid | (burst.payload.address == address))
    bench.goal(~burst.valid | ((burst.payload.beats != 0) & (burst.payload.beats <= left)))
    last = burst.valid & (burst.payload.beats == left)
    bench.goal(run.ready == (~burst.valid | (burst.ready & last)))
    bench.lemma(~inside["active"] | (inside["left"] == left))


def read_page(bench: ProofBench, block: Any) -> None:
    """Claim that no burst on the reader's address channel crosses a page."""
    dut, _ = bursts(bench, block)
    reader = AxiReader(PARAMETERS)
    bench.add(reader, "reader")
    _connect(bench, dut, reader)
    axi = reader.axi
    bench.goal(~axi.arvalid | within_page(axi.araddr, axi.arlen + 1))
    bench.goal(axi.arlen < PARAMETERS.burst_beats)


def write_page(bench: ProofBench, block: Any) -> None:
    """Claim that no burst on the writer's address channel crosses a page."""
    dut, _ = bursts(bench, block)
    writer = AxiWriter(PARAMETERS)
    bench.add(writer, "writer")
    _connect(bench, dut, writer)
    axi = writer.axi
    bench.goal(~axi.awvalid | within_page(axi.awaddr, axi.awlen + 1))
    bench.goal(axi.awlen < PARAMETERS.burst_beats)


def _connect(bench: ProofBench, dut: Any, master: Any) -> None:
    bench.m.d.comb += [
        master.burst.valid.eq(dut.burst.valid),
        master.burst.payload.address.eq(dut.burst.payload.address),
        master.burst.payload.beats.eq(dut.burst.payload.beats),
        dut.burst.ready.eq(master.burst.ready),
    ]


_BOUNDARY = Mutant("most - run_beat[: exact_log2(most)] if most > 1 else 1", "most")

PROOFS = (
    Proof(
        name="bursts.cover",
        claim="the bursts of a run hold each of its beats once, in order",
        block=Bursts,
        build=cover,
        mutant=Mutant("left <= to_boundary + most", "left < to_boundary + most"),
    ),
    Proof(
        name="axi-read.page",
        claim="no read burst crosses 4 KiB or is longer than `burst_beats`",
        block=Bursts,
        build=read_page,
        mutant=_BOUNDARY,
    ),
    Proof(
        name="axi-write.page",
        claim="no write burst crosses 4 KiB or is longer than `burst_beats`",
        block=Bursts,
        build=write_page,
        mutant=_BOUNDARY,
    ),
)
