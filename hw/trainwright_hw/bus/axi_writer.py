"""AXI write channels: send bursts and their beats, and count the responses."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import BURST_INCR, Axi4Write, bus_widths
from trainwright_hw.bus.bursts import burst_layout, burst_width


def write_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out a burst to write, with a flag that the writer shows next to the data of the burst."""
    return burst_layout(parameters, flag=1)


class AxiWriter(wiring.Component):
    """Writer of bursts, whose addresses run up to ``outstanding_bursts`` ahead of the data.

    Throughput is one burst and one beat per cycle. All strobes are set, or none in a burst that is
    ``outside``. Once its address was sent, all beats of a burst must follow.

    Members: ``axi``, the write channels; ``burst``, a stream of bursts to write; ``beats``, a
    stream of the data, of which none is taken before ``flag_valid``; ``flag``, valid with
    ``flag_valid``, the flag of the burst that the next beat belongs to; ``flying``, high while a
    response is outstanding; ``blocked``, high while a beat waits for the memory; ``error``, high
    for one cycle per error response.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                "axi": Out(Axi4Write(**bus_widths(parameters))),
                "burst": In(stream.Signature(write_layout(parameters))),
                "beats": In(stream.Signature(parameters.data_width)),
                "flag": Out(1),
                "flag_valid": Out(1),
                "flying": Out(1),
                "blocked": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi = self.axi
        m.d.comb += [
            axi.awsize.eq(exact_log2(self.parameters.beat_bytes)),
            axi.awburst.eq(BURST_INCR),
            # Without address checks every beat is written whole; a program never stores a part of a
            # beat.
            *([] if self.parameters.address_checks else [axi.wstrb.eq(~0)]),
            # Responses are counted and not matched: bursts are answered in order.
            axi.bready.eq(1),
        ]
        m.d.sync += self.error.eq(axi.bvalid & axi.bresp[1])
        self._beats(m, self._addresses(m))
        return m

    def _addresses(self, m: Module) -> SyncFIFOBuffered:
        """Send addresses; return the queue of bursts that wait for their data."""
        axi, burst = self.axi, self.burst.payload
        most = self.parameters.outstanding_bursts
        waiting = Cat(burst.beats, burst.flag)
        if self.parameters.address_checks:
            waiting = Cat(waiting, burst.outside)
        m.submodules.queue = queue = SyncFIFOBuffered(width=len(waiting), depth=most + 1)
        flying = Signal(range(most + 1))
        asked = Signal()
        m.d.comb += [
            # Count bursts until their response, not until their data: STORE is done only when none
            # of its data can still be on the way to memory.
            self.burst.ready.eq((~axi.awvalid | axi.awready) & (flying != most)),
            asked.eq(self.burst.valid & self.burst.ready),
            queue.w_en.eq(asked),
            queue.w_data.eq(waiting),
            self.flying.eq(flying != 0),
        ]
        with m.If(asked):
            m.d.sync += [axi.awaddr.eq(burst.address), axi.awlen.eq(burst.beats - 1)]
        with m.If(asked | axi.awready):
            m.d.sync += axi.awvalid.eq(asked)
        # A burst and a response in one cycle leave the count as it is.
        with m.If(asked ^ axi.bvalid):
            m.d.sync += flying.eq(Mux(asked, flying + 1, flying - 1))
        return queue

    def _beats(self, m: Module, queue: SyncFIFOBuffered) -> None:
        """Send the data of queued bursts."""
        axi = self.axi
        width = burst_width(self.parameters)
        sent = Signal(width)
        take, last = Signal(), Signal()
        m.d.comb += [
            self.flag.eq(queue.r_data[width]),
            self.flag_valid.eq(queue.r_rdy),
            self.beats.ready.eq(queue.r_rdy & (~axi.wvalid | axi.wready)),
            self.blocked.eq(axi.wvalid & ~axi.wready),
            take.eq(self.beats.valid & self.beats.ready),
            # Compare with the length at the head of the queue, which has the length of each burst.
            last.eq(sent + 1 == queue.r_data[:width]),
            queue.r_en.eq(take & last),
        ]
        with m.If(take):
            m.d.sync += [axi.wdata.eq(self.beats.payload), axi.wlast.eq(last), sent.eq(sent + 1)]
            if self.parameters.address_checks:
                # A burst outside the window is sent with no byte enabled: AXI does not allow to
                # withdraw an address.
                m.d.sync += axi.wstrb.eq((~queue.r_data[-1]).replicate(len(axi.wstrb)))
            with m.If(last):
                m.d.sync += sent.eq(0)
        # The registered beat may wait at the bus while the next beats are prepared.
        with m.If(take | axi.wready):
            m.d.sync += axi.wvalid.eq(take)
