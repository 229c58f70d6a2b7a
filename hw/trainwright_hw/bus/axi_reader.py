"""AXI read channels: bursts out, beats back."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import BURST_INCR, Axi4Read, bus_widths
from trainwright_hw.bus.bursts import burst_layout
from trainwright_hw.stream.block_queue import BlockQueue

FIFO_BEATS = 128
"""Minimum beats requested ahead of their use; they hide as many cycles of memory latency."""


class AxiReader(wiring.Component):
    """Reader of bursts that delivers their beats in order.

    A burst is requested only if the outstanding beats fit the data FIFO, so that ``rready`` can
    always be high, and if fewer than ``outstanding_bursts`` are in flight. Throughput is one burst
    and one beat per cycle.

    Members: ``axi``, the read channels; ``burst``, a stream of bursts to read; ``beats``, a stream
    of beats read; ``error``, high for one cycle per beat with an error response.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        self.depth = max(FIFO_BEATS, 2 * parameters.burst_beats)
        super().__init__(
            {
                "axi": Out(Axi4Read(**bus_widths(parameters))),
                "burst": In(stream.Signature(burst_layout(parameters))),
                "beats": Out(stream.Signature(parameters.data_width)),
                "error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi, burst, p = self.axi, self.burst.payload, self.parameters
        m.submodules.fifo = fifo = BlockQueue(width=p.data_width, depth=self.depth)
        credit = Signal(range(self.depth + 1), init=self.depth)  # free places for beats
        flying = Signal(range(p.outstanding_bursts + 1))
        asked, landed = Signal(), Signal()
        taken = Signal()  # a beat was taken a cycle ago; registered, because it ends long paths
        m.d.comb += [
            axi.arsize.eq(exact_log2(p.beat_bytes)),
            axi.arburst.eq(BURST_INCR),
            axi.rready.eq(1),
            fifo.w_en.eq(axi.rvalid),
            fifo.w_data.eq(axi.rdata),
            self.beats.valid.eq(fifo.r_rdy),
            self.beats.payload.eq(fifo.r_data),
            fifo.r_en.eq(self.beats.ready),
            self.burst.ready.eq(
                (~axi.arvalid | axi.arready)
                & (credit >= p.burst_beats)
                & (flying != p.outstanding_bursts)
            ),
            asked.eq(self.burst.valid & self.burst.ready),
            landed.eq(axi.rvalid & axi.rlast),
        ]
        with m.If(asked):
            m.d.sync += [axi.araddr.eq(burst.address), axi.arlen.eq(burst.beats - 1)]
        with m.If(asked | axi.arready):
            m.d.sync += axi.arvalid.eq(asked)
        with m.If(asked ^ landed):
            m.d.sync += flying.eq(Mux(asked, flying + 1, flying - 1))
        m.d.sync += taken.eq(self.beats.valid & self.beats.ready)
        with m.If(asked):
            m.d.sync += credit.eq(credit + taken - burst.beats)
        with m.Elif(taken):
            m.d.sync += credit.eq(credit + 1)
        m.d.sync += self.error.eq(axi.rvalid & axi.rresp[1])
        return m
