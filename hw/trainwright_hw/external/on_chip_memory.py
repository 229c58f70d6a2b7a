"""On-chip memory as the accelerator's external memory, with a port for the host."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, ReadPort, WritePort
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from trainwright.link.protocol import WORD_BYTES
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import Axi4, bus_widths
from trainwright_hw.link.host_port import HostPort
from trainwright_hw.stream.registered_queue import RegisteredQueue

OKAY, DECERR = 0, 3
READ_AHEAD = 8
"""Beats in flight from the memory: more than its latency, for a throughput of one per cycle."""


class OnChipMemory(wiring.Component):
    """Block RAM of ``memory_bytes`` behind an AXI4 port: a beat per cycle in each direction.

    Accepts one burst of each direction at a time, INCR, whole beats. The first beat of a read comes
    four cycles after its address. A write is in the memory when its response is given. Accesses
    outside of the memory are answered with DECERR. The host's accesses are made between bursts.

    Members: ``axi``; ``host``, a ``HostPort``.
    """

    def __init__(self, parameters: AcceleratorParameters, *, memory_bytes: int):
        self.memory_bytes = memory_bytes
        self._beat_bits = exact_log2(parameters.beat_bytes)
        self._address_width = exact_log2(memory_bytes)
        self._data_width = parameters.data_width
        super().__init__(
            {
                "axi": In(Axi4(**bus_widths(parameters))),
                "host": In(HostPort(self._address_width - exact_log2(WORD_BYTES))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = 1 << (self._address_width - self._beat_bits)
        m.submodules.memory = memory = Memory(shape=self._data_width, depth=depth, init=[])
        words = self._data_width // (8 * WORD_BYTES)
        word_bits = exact_log2(words)
        host_word = self.host.address[:word_bits] if word_bits else C(0, 1)
        host_beat = self.host.address[word_bits:]
        read_done = self._read_side(m, memory.read_port(), host_word, host_beat)
        write_done = self._write_side(m, memory.write_port(granularity=8), host_word, host_beat)
        m.d.comb += self.host.done.eq(read_done | write_done)
        return m

    def _place(self, address: Value) -> tuple[Value, Value]:
        """Return the beat of a byte address, and whether it is outside of the memory."""
        outside = address[self._address_width :].any()
        return address[self._beat_bits : self._address_width], outside

    def _read_side(self, m: Module, port: ReadPort, host_word: Value, host_beat: Value) -> Signal:
        axi, host = self.axi, self.host
        beat, outside = self._place(axi.araddr)
        address, left, wrong = Signal.like(port.addr), Signal(9), Signal()  # up to 256 beats left
        busy = Signal()  # left != 0, registered: arready drives a long path
        # The memory is read in every cycle. Requested beats pass its output, a register behind it
        # (both span the whole device), and a queue whose places are counted as credit.
        m.submodules.beats = beats = RegisteredQueue(width=2 + self._data_width, depth=READ_AHEAD)
        free, credit = Signal(range(READ_AHEAD + 1), init=READ_AHEAD), Signal(init=1)
        issue, taken = Signal(), Signal()
        reading, arrived = Signal(), Signal()
        # flags of the beat in `reading`, and in `arrived`: last of its burst, outside the memory
        flags, later_flags = Signal(2), Signal(2)
        word, host_reading = Signal(self._data_width, reset_less=True), Signal()
        m.d.comb += [
            axi.arready.eq(~busy),
            issue.eq(busy & credit),
            port.addr.eq(address),
            beats.w_en.eq(arrived),
            beats.w_data.eq(Cat(later_flags, word)),
            axi.rvalid.eq(beats.r_rdy),
            axi.rlast.eq(beats.r_data[0]),
            axi.rresp.eq(Mux(beats.r_data[1], DECERR, OKAY)),
            axi.rdata.eq(beats.r_data[2:]),
            beats.r_en.eq(axi.rready),
            taken.eq(axi.rvalid & axi.rready),
        ]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [address.eq(beat), left.eq(axi.arlen + 1), busy.eq(1), wrong.eq(outside)]
        with m.If(issue):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1), busy.eq(left != 1)]
        with m.If(issue & ~taken):
            m.d.sync += [free.eq(free - 1), credit.eq(free != 1)]
        with m.If(taken & ~issue):
            m.d.sync += [free.eq(free + 1), credit.eq(1)]
        m.d.sync += [
            reading.eq(issue),
            flags.eq(Cat(left == 1, wrong)),
            arrived.eq(reading),
            later_flags.eq(flags),
            word.eq(port.data),
        ]
        # A read of the host passes four registers: `address`, the memory's output, `word`,
        # `host_data`. The flags follow it, and keep the host from asking again.
        at_output, nearly = Signal(), Signal()
        between = ~busy & ~axi.arvalid
        wanted = host.request & ~host.write & ~host_reading & ~at_output & ~nearly & ~host.done
        m.d.sync += [
            host_reading.eq(wanted & between),
            at_output.eq(host_reading),
            nearly.eq(at_output),
        ]
        with m.If(wanted & between):
            m.d.sync += address.eq(host_beat)
        done, host_data = Signal(), Signal(8 * WORD_BYTES)
        m.d.sync += [
            done.eq(nearly),
            host_data.eq(word.word_select(host_word, 8 * WORD_BYTES)),
        ]
        m.d.comb += host.read_data.eq(host_data)
        return done

    def _write_side(self, m: Module, port: WritePort, host_word: Value, host_beat: Value) -> Signal:
        axi, host = self.axi, self.host
        beat, outside = self._place(axi.awaddr)
        address, writing, wrong = Signal.like(port.addr), Signal(), Signal()
        # registers in front of the memory: its address and enable drive long wires
        enable, data = Signal(len(port.en)), Signal(self._data_width)
        where = Signal.like(port.addr)
        m.d.comb += [
            port.en.eq(enable),
            port.addr.eq(where),
            port.data.eq(data),
            axi.awready.eq(~writing & ~axi.bvalid),
            axi.wready.eq(writing),
            axi.bresp.eq(Mux(wrong, DECERR, OKAY)),
        ]
        m.d.sync += [enable.eq(0), where.eq(address), data.eq(axi.wdata)]
        with m.If(axi.bready):
            m.d.sync += axi.bvalid.eq(0)
        with m.If(axi.awvalid & axi.awready):
            m.d.sync += [address.eq(beat), writing.eq(1), wrong.eq(outside)]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += [enable.eq(Mux(wrong, 0, axi.wstrb)), address.eq(address + 1)]
            with m.If(axi.wlast):
                m.d.sync += [writing.eq(0), axi.bvalid.eq(1)]
        done = Signal()
        m.d.sync += done.eq(0)
        with m.If(host.request & host.write & ~done & ~writing & ~axi.awvalid):
            words = self._data_width // (8 * WORD_BYTES)
            m.d.sync += [
                done.eq(1),
                where.eq(host_beat),
                data.eq(host.write_data.replicate(words)),
                enable.eq(Cat((host_word == n).replicate(WORD_BYTES) for n in range(words))),
            ]
        return done
