"""A memory copier behind the accelerator's ports: enough of a design to try the simulator on."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered

from trainwright.accelerator import registers
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ENGINES, TRACED
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright_hw.accelerator import accelerator_signature
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_hw.bus.axi import BURST_INCR

OFFSET = 0xF00
"""Register: bytes from the program to its copy; 0 only reads. ``DEFAULT_OFFSET`` after reset."""
FAULT = 0xF04
"""Register: one of the ``FAULT_`` numbers, to misbehave on purpose; 0 after reset."""
DEFAULT_OFFSET = 0x10000

FAULT_EARLY_LAST = 1  # WLAST on every beat
FAULT_WITHDRAWN = 2  # WVALID falls before WREADY
FAULT_CROSSING = 3  # read bursts cross 4 KiB
FAULT_SILENT = 4  # the run never ends
FAULT_STATUS = 5  # the run ends with an error
FAULT_BEYOND = 6  # read addresses are outside the memory

BUFFER_BEATS = 256


class Copier(wiring.Component):
    """Copies the descriptors of a program, one burst each, instead of executing them.

    Ports and registers are those of the accelerator (``docs/reference/accelerator.md``), with
    CYCLES as the only counter. The sum of statistics slot 0 is the number of beats read. Each beat
    read is traced as a row written by LOAD: its number, and the beat followed by zeros.
    ``FAULT_STATUS`` stops at once with error 3 in descriptor 7, ``FAULT_BEYOND`` reads 1 GiB
    further up.
    """

    def __init__(self, parameters: AcceleratorParameters, *, trace: bool = False):
        self.parameters = parameters
        self.trace = trace
        super().__init__(accelerator_signature(parameters, trace=trace))

    def elaborate(self, platform):
        m = Module()
        bus = self.m_axi
        self.start, self.clear, self.finish = Signal(), Signal(), Signal()
        self.busy, self.done, self.error = Signal(), Signal(), Signal(8)
        self.source, self.length = Signal(32), Signal(16)
        self.offset, self.fault = Signal(32, init=DEFAULT_OFFSET), Signal(8)
        self.cycles, self.beats_read = Signal(64), Signal(32)
        self._host_port(m)

        m.submodules.buffer = buffer = SyncFIFOBuffered(
            width=self.parameters.data_width, depth=BUFFER_BEATS
        )
        beats = DESCRIPTOR_BYTES // self.parameters.beat_bytes
        m.d.comb += [
            Cat(bus.arlen, bus.arsize, bus.arburst).eq(self._burst(beats)),
            Cat(bus.awlen, bus.awsize, bus.awburst).eq(self._burst(beats)),
            bus.wstrb.eq(-1),
            bus.bready.eq(1),
            bus.rready.eq(1),
        ]
        self._read_side(m, buffer, beats)
        self._write_side(m, buffer, beats)
        with m.If(self.busy):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self.finish):
            m.d.sync += [self.busy.eq(0), self.done.eq(1)]
        return m

    def _burst(self, beats: int) -> Cat:
        size = self.parameters.beat_bytes.bit_length() - 1
        return Cat(Const(beats - 1, 8), Const(size, 3), Const(BURST_INCR, 2))

    def _read_side(self, m: Module, buffer: SyncFIFOBuffered, beats: int) -> None:
        bus = self.m_axi
        asked, reserved = Signal(16), Signal(range(BUFFER_BEATS + 1))
        ask, taken = bus.arvalid & bus.arready, buffer.r_en & buffer.r_rdy
        m.d.comb += [
            bus.arvalid.eq(self.busy & (asked != self.length) & (reserved <= BUFFER_BEATS - beats)),
            bus.araddr.eq(
                self.source
                + asked * DESCRIPTOR_BYTES
                + Mux(self.fault == FAULT_CROSSING, 4096 - DESCRIPTOR_BYTES // 2, 0)
                + Mux(self.fault == FAULT_BEYOND, 1 << 30, 0)
            ),
            buffer.w_data.eq(bus.rdata),
            buffer.w_en.eq(bus.rvalid),
        ]
        m.d.sync += reserved.eq(reserved + Mux(ask, beats, 0) - taken)
        with m.If(ask):
            m.d.sync += asked.eq(asked + 1)
        with m.If(bus.rvalid):
            m.d.sync += self.beats_read.eq(self.beats_read + 1)
            with m.If(bus.rresp != 0):
                m.d.sync += self.error.eq(4)
        if self.trace:
            engine = TRACED[0]
            m.d.comb += [
                getattr(self, f"trace_{engine}_valid").eq(bus.rvalid),
                getattr(self, f"trace_{engine}_address").eq(self.beats_read),
                getattr(self, f"trace_{engine}_row").eq(bus.rdata),
                # each burst is a command of LOAD, numbered as the descriptor that it reads
                self.trace_events.eq(Cat(ask, Const(0, len(ENGINES) - 1), self.busy)),
                self.trace_number.eq(asked),
            ]
        with m.If(self.start):
            m.d.sync += [asked.eq(0), self.beats_read.eq(0)]

    def _write_side(self, m: Module, buffer: SyncFIFOBuffered, beats: int) -> None:
        bus = self.m_axi
        asked, written, answered, beat = Signal(16), Signal(16), Signal(16), Signal(8)
        copies = self.offset != 0
        total = Mux(copies, self.length, 0)
        blink = Signal()
        m.d.sync += blink.eq(~blink)
        last = beat == beats - 1
        m.d.comb += [
            bus.awvalid.eq(self.busy & (asked != total)),
            bus.awaddr.eq(self.source + self.offset + asked * DESCRIPTOR_BYTES),
            bus.wvalid.eq(
                buffer.r_rdy & (written != asked) & ((self.fault != FAULT_WITHDRAWN) | blink)
            ),
            bus.wdata.eq(buffer.r_data),
            bus.wlast.eq(last | (self.fault == FAULT_EARLY_LAST)),
            buffer.r_en.eq(~copies | (bus.wvalid & bus.wready)),
            self.finish.eq(
                self.busy
                & (answered == total)
                & (self.beats_read == self.length * beats)
                & (self.fault != FAULT_SILENT)
                | self.busy & (self.fault == FAULT_STATUS)
            ),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += asked.eq(asked + 1)
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += beat.eq(Mux(last, 0, beat + 1))
            with m.If(last):
                m.d.sync += written.eq(written + 1)
        with m.If(bus.bvalid):
            m.d.sync += answered.eq(answered + 1)
            with m.If(bus.bresp != 0):
                m.d.sync += self.error.eq(5)
        with m.If(self.start):
            m.d.sync += [asked.eq(0), written.eq(0), answered.eq(0), self.error.eq(0)]
            with m.If(self.fault == FAULT_STATUS):
                m.d.sync += self.error.eq(3)

    def _host_port(self, m: Module) -> None:
        port = self.s_axil
        enable = Signal()
        m.d.comb += self.interrupt.eq(enable & self.done)
        descriptor = Mux(self.fault == FAULT_STATUS, 7, 0)
        readable = {
            registers.IDENTITY: Const(registers.IDENTITY_VALUE, 32),
            registers.FINGERPRINT: Const(self.parameters.fingerprint, 32),
            registers.STATUS: Cat(
                self.busy, self.done, self.error != 0, Const(0, 5), self.error, descriptor
            ),
            registers.COUNTERS_BASE: self.cycles[:32],
            registers.COUNTERS_BASE + 4: self.cycles[32:],
            registers.STATISTICS_BASE: self.beats_read,
        }
        writable = {
            registers.PROGRAM_ADDRESS: self.source,
            registers.PROGRAM_LENGTH: self.length,
            registers.INTERRUPT_ENABLE: enable,
            OFFSET: self.offset,
            FAULT: self.fault,
        }
        readable |= writable
        write = port.awvalid & port.wvalid & ~port.bvalid
        read = port.arvalid & ~port.rvalid
        m.d.comb += [port.awready.eq(write), port.wready.eq(write), port.arready.eq(read)]
        with m.If(port.bready):
            m.d.sync += port.bvalid.eq(0)
        with m.If(port.rready):
            m.d.sync += port.rvalid.eq(0)
        with m.If(read):
            m.d.sync += [port.rvalid.eq(1), port.rdata.eq(0)]
            with m.Switch(port.araddr):
                for address, value in readable.items():
                    with m.Case(address):
                        m.d.sync += port.rdata.eq(value)
        control = write & (port.awaddr == registers.CONTROL)
        m.d.comb += [
            self.start.eq(control & port.wdata[0]),
            self.clear.eq(control & port.wdata[1]),
        ]
        with m.If(self.clear):
            m.d.sync += [self.done.eq(0), self.error.eq(0)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), self.done.eq(0), self.cycles.eq(0)]
        with m.If(write):
            m.d.sync += port.bvalid.eq(1)
            with m.Switch(port.awaddr):
                for address, register in writable.items():
                    with m.Case(address):
                        m.d.sync += register.eq(port.wdata)


def to_rtlil(parameters: AcceleratorParameters, *, trace: bool = False) -> str:
    """Convert the copier to RTLIL, in place of ``trainwright_hw.build.convert.to_rtlil``."""
    return component_to_rtlil(Copier(parameters, trace=trace))
