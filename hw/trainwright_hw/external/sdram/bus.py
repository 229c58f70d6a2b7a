"""Conversion of AXI4 bursts and of the host's accesses to accesses of an SDRAM."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.link.protocol import WORD_BYTES
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import Axi4, bus_widths
from trainwright_hw.external.on_chip_memory import DECERR, OKAY
from trainwright_hw.external.sdram.request import TAG, request_layout
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_hw.link.host_port import HostPort
from trainwright_hw.storage.banks import granted
from trainwright_hw.stream.registered_queue import RegisteredQueue

ASKED_BEATS = 16
"""Maximum beats requested and not yet taken: more than arrive during one request's latency."""
WAITING = 4
"""Accesses that wait for the chip."""


class Side:
    """Requester of accesses: ``request`` while ``wanted``, taken in a cycle of ``given``."""

    def __init__(self, layout: data.StructLayout, name: str):
        self.wanted = Signal(name=f"{name}_wanted")
        self.given = Signal(name=f"{name}_given")
        self.request = Signal(layout, name=f"{name}_request")


class SdramBus(wiring.Component):
    """Arbiter of accesses, at most one beat in two cycles: the chip needs that long for a beat.

    Accepts one burst of each direction at a time, INCR, whole beats. If both directions want the
    memory they alternate, a burst each; a write that waits for its data blocks nobody. The host's
    accesses precede any beat. A write is answered when nothing can overtake it. Accesses outside of
    the memory are answered with DECERR, and change nothing.

    Members: ``axi``; ``host``; ``request``, and ``read_valid``, ``read_data`` and ``read_tag`` as
    in ``SdramEngine``.
    """

    def __init__(self, parameters: AcceleratorParameters, timing: SdramTiming):
        self._beat_bits = exact_log2(parameters.beat_bytes)
        self._address_width = exact_log2(timing.memory_bytes)
        self._layout = request_layout(timing, parameters.data_width)
        super().__init__(
            {
                "axi": In(Axi4(**bus_widths(parameters))),
                "host": In(HostPort(self._address_width - exact_log2(WORD_BYTES))),
                "request": Out(stream.Signature(self._layout)),
                "read_valid": In(1),
                "read_data": In(parameters.data_width),
                "read_tag": In(TAG),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The queue decouples bus and chip, which is busy with refresh and row changes at times of
        # its own.
        m.submodules.queue = queue = RegisteredQueue(width=self._layout.size, depth=WAITING)
        read, write, host = (Side(self._layout, name) for name in ("read", "write", "host"))
        self._read_side(m, read)
        self._write_side(m, write)
        self._host_side(m, host)
        # Reads and writes alternate burst by burst; the host goes first, since it asks rarely.
        write_turn = Signal(name="turn")  # the next burst is a write
        write_first = Signal()
        sides = (host, write, read)
        given = Cat(side.given for side in sides)
        wanted = (
            host.wanted,
            ~host.wanted & write_first,
            ~host.wanted & read.wanted & ~write_first,
        )
        # Registered, because it selects whole beats. A requester waits until it is granted.
        m.d.sync += given.eq(Mux(queue.w_rdy & ~given.any(), Cat(wanted), 0))
        m.d.comb += [
            write_first.eq(write.wanted & (write_turn | ~read.wanted)),
            queue.w_en.eq(given.any()),
            queue.w_data.eq(granted(given, [Value.cast(side.request) for side in sides])),
            self.request.valid.eq(queue.r_rdy),
            self.request.payload.eq(queue.r_data),
            queue.r_en.eq(self.request.ready),
        ]
        with m.If(write.given):
            m.d.sync += write_turn.eq(~self.axi.wlast)
        with m.If(read.given):
            m.d.sync += write_turn.eq(read.request.tag.last)
        return m

    def _place(self, address: Value) -> tuple[Value, Value]:
        """Return the beat of a byte address, and whether it is outside of the memory."""
        # Addresses wrap inside the chip: bits above its size are checked, not stored.
        outside = address[self._address_width :].any()
        return address[self._beat_bits : self._address_width], outside

    def _at(self, request, beat: Value) -> Value:
        """Assign a beat's number to a request."""
        return Cat(request.column, request.bank, request.row).eq(beat)

    def _read_side(self, m: Module, side: Side) -> None:
        axi, request = self.axi, side.request
        place, outside = self._place(axi.araddr)
        beat, left, wrong = Signal.like(place), Signal(9), Signal()
        count = range(ASKED_BEATS + 1)
        busy, credit, has_credit = Signal(), Signal(count, init=ASKED_BEATS), Signal(name="some")
        last = left == 1
        m.d.comb += [
            axi.arready.eq(~busy),
            side.wanted.eq(busy & has_credit),
            self._at(request, beat),
            request.tag.wrong.eq(wrong),
            request.tag.last.eq(last),
        ]
        # The beats of a refused burst are read all the same, and answered with an error each: the
        # protocol asks for the full number.
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [beat.eq(place), left.eq(axi.arlen + 1), wrong.eq(outside), busy.eq(1)]
        with m.If(side.given):
            m.d.sync += [beat.eq(beat + 1), left.eq(left - 1), busy.eq(~last)]
        m.submodules.beats = beats = RegisteredQueue(
            width=len(self.read_data) + 2, depth=ASKED_BEATS
        )
        taken = axi.rvalid & axi.rready
        # Each beat that is requested needs a place in the queue, because the SDRAM cannot be held.
        with m.If(side.given & ~taken):
            m.d.sync += [credit.eq(credit - 1), has_credit.eq(credit != 1)]
        with m.Elif(taken & ~side.given):
            m.d.sync += [credit.eq(credit + 1), has_credit.eq(1)]
        with m.Else():
            m.d.sync += has_credit.eq(credit != 0)
        is_wrong = Signal()
        m.d.comb += [
            beats.w_en.eq(self.read_valid & ~self.read_tag.host),
            beats.w_data.eq(Cat(self.read_data, self.read_tag.last, self.read_tag.wrong)),
            Cat(axi.rdata, axi.rlast, is_wrong).eq(beats.r_data),
            # The tag says which beats are wrong: a later burst may be right.
            axi.rresp.eq(Mux(is_wrong, DECERR, OKAY)),
            axi.rvalid.eq(beats.r_rdy),
            beats.r_en.eq(axi.rready),
        ]

    def _write_side(self, m: Module, side: Side) -> None:
        axi, request = self.axi, side.request
        place, outside = self._place(axi.awaddr)
        beat, busy, wrong = Signal.like(place), Signal(), Signal()
        m.d.comb += [
            axi.awready.eq(~busy & ~axi.bvalid),
            axi.wready.eq(side.given),
            axi.bresp.eq(Mux(wrong, DECERR, OKAY)),
            side.wanted.eq(busy & axi.wvalid),
            self._at(request, beat),
            request.write.eq(1),
            # A burst outside the memory is taken and dropped: no byte is enabled.
            request.enable.eq(Mux(wrong, 0, axi.wstrb)),
            request.data.eq(axi.wdata),
        ]
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [beat.eq(place), busy.eq(1), wrong.eq(outside)]
        with m.If(side.given):
            m.d.sync += beat.eq(beat + 1)
            # The response comes as soon as the last beat is queued: later reads pass the same
            # queue, so they see it.
            with m.If(axi.wlast):
                m.d.sync += [busy.eq(0), axi.bvalid.eq(1)]

    def _host_side(self, m: Module, side: Side) -> None:
        host, request = self.host, side.request
        words = len(self.read_data) // (8 * WORD_BYTES)
        word_bits = exact_log2(words)
        word = host.address[:word_bits] if word_bits else C(0, 1)
        reading, done = Signal(), Signal()
        m.d.comb += [
            side.wanted.eq(host.request & ~reading & ~done),
            self._at(request, host.address[word_bits:]),
            request.tag.host.eq(1),
            request.write.eq(host.write),
            # The host writes words, the memory stores beats: each word goes to every place of the
            # beat, and one place is enabled.
            request.data.eq(host.write_data.replicate(words)),
            request.enable.eq(Cat((word == n).replicate(WORD_BYTES) for n in range(words))),
            host.done.eq(done),
        ]
        m.d.sync += done.eq(0)
        with m.If(side.given):
            m.d.sync += [reading.eq(~host.write), done.eq(host.write)]
        with m.If(self.read_valid & self.read_tag.host):
            m.d.sync += [
                reading.eq(0),
                done.eq(1),
                host.read_data.eq(self.read_data.word_select(word, 8 * WORD_BYTES)),
            ]
