"""Commands of an SDRAM: power-up, rows, beats, refreshes."""

from amaranth.hdl import C, Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright_hw.external.sdram.pads import SdramPins
from trainwright_hw.external.sdram.request import BURSTS, TAG, request_layout
from trainwright_hw.external.sdram.timing import SdramCycles, SdramTiming

# Command codes: RAS, CAS and WE, which are low when active.
NOP, ACTIVATE, READ, WRITE = 0b111, 0b011, 0b101, 0b100
PRECHARGE, REFRESH, LOAD_MODE = 0b010, 0b001, 0b000
ALL_BANKS = 1 << 10
"""Address bit that makes PRECHARGE close all banks."""


class SdramEngine(wiring.Component):
    """Executor of accesses in order, each beat as one burst of the chip.

    Words follow each other without gaps, one per cycle, while accesses stay in open rows and in one
    direction. A row stays open in every bank. A read beat comes at least ``read_latency`` cycles
    after its command, and must be taken then.

    Members: ``request``, a stream of accesses; ``read_valid``, ``read_data`` and ``read_tag``, the
    beats read; ``pins``, to be registered once more (``SdramPads``).
    """

    def __init__(self, timing: SdramTiming, cycles: SdramCycles, *, beat_width: int):
        self._timing, self._cycles = timing, cycles
        self._words = beat_width // timing.data_width
        super().__init__(
            {
                "request": In(stream.Signature(request_layout(timing, beat_width))),
                "read_valid": Out(1),
                "read_data": Out(beat_width),
                "read_tag": Out(TAG),
                "pins": Out(SdramPins(timing)),
            }
        )
        # registers of command, pad and pad; the chip; the words of a beat
        self.read_latency = 3 + cycles.cas_latency + self._words + cycles.late_capture

    def elaborate(self, platform) -> Module:
        m = Module()
        self._command(m)
        self._timers(m)
        self._rows(m)
        self._refreshes(m)
        self._write_data(m)
        self._read_data(m)
        with m.FSM():
            self._power_up(m)
            with m.State("REFRESH"):  # all rows are closed
                with m.If(~self._wait[0]):
                    self._give(m, REFRESH, self._cycles.trfc)
                    m.d.comb += self._refreshed.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(~self._wait[0]):
                    self._run(m)
        return m

    def _command(self, m: Module) -> None:
        self._code = Signal(3, init=NOP)
        pins = self.pins
        m.d.comb += [Cat(pins.we_n, pins.cas_n, pins.ras_n).eq(self._code), pins.cke.eq(1)]
        m.d.sync += self._code.eq(NOP)

    def _timers(self, m: Module) -> None:
        """Keep timers until a command may be given: any; PRECHARGE; ACTIVATE; WRITE.

        A timer is a row of ones that is shifted out, so that a single bit tells whether it runs.
        """
        c, words = self._cycles, self._words
        self._wait = Signal(max(c.trcd, c.trp, c.trfc, c.tmrd, words))
        # cycles from READ or WRITE to PRECHARGE: to the end of tRAS, or longer for the access
        left = c.tras - c.trcd
        self._after_read = max(words, left)
        self._after_write = max(words - 1 + c.twr, left)
        self._no_precharge = Signal(max(c.tras, self._after_read, self._after_write))
        self._no_activate = Signal(c.trc)
        # a cycle without driver follows the chip's data; dq_oe is a cycle early
        self._turn = words + c.cas_latency + 2
        self._no_write = Signal(self._turn)
        for timer in (self._wait, self._no_precharge, self._no_activate, self._no_write):
            m.d.sync += timer.eq(timer >> 1)

    def _give(self, m: Module, code: int, cycles: int) -> None:
        """Issue a command, and start the timer until the next one."""
        m.d.sync += [self._code.eq(code), self._wait.eq(_ones(cycles - 1))]

    def _power_up(self, m: Module) -> None:
        c, t, pins = self._cycles, self._timing, self.pins
        left = Signal(range(c.power_up + 1), init=c.power_up)
        refreshes = Signal(range(t.power_up_refreshes + 1), init=t.power_up_refreshes)
        with m.State("POWER_UP"):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                self._give(m, PRECHARGE, c.trp)
                m.d.sync += pins.a.eq(ALL_BANKS)
                m.next = "POWER_UP_REFRESH"
        with m.State("POWER_UP_REFRESH"):
            with m.If(~self._wait[0]):
                self._give(m, REFRESH, c.trfc)
                m.d.sync += refreshes.eq(refreshes - 1)
                with m.If(refreshes == 1):
                    m.next = "LOAD_MODE"
        with m.State("LOAD_MODE"):
            with m.If(~self._wait[0]):
                self._give(m, LOAD_MODE, c.tmrd)
                m.d.sync += [pins.a.eq(exact_log2(self._words) | c.cas_latency << 4), pins.ba.eq(0)]
                m.d.comb += self._refreshed.eq(1)
                m.next = "RUN"

    def _refreshes(self, m: Module) -> None:
        """Raise ``due`` ``trefi`` cycles after the last refresh; a late refresh is made up for."""
        self._refreshed, self._due = Signal(), Signal()
        left = Signal(range(self._cycles.trefi), init=self._cycles.trefi - 1)
        m.d.sync += left.eq(left - 1)
        with m.If(self._refreshed):
            m.d.sync += self._due.eq(0)
        with m.If(left == 0):
            m.d.sync += [left.eq(self._cycles.trefi - 1), self._due.eq(1)]

    def _rows(self, m: Module) -> None:
        """Track the current access, and whether its row, or another row of its bank, is open."""
        request, t = self.request, self._timing
        self._now = now = request.payload
        # `hit` and `other` belong to the current access. No command follows a beat until its words
        # are over, and by then the flags are those of the next access.
        self._looked = Signal()
        self._hit, self._other = Signal(), Signal()
        self._done, self._activated = Signal(), Signal()
        self._open = Signal(1 << t.bank_bits)
        m.submodules.rows = rows = Memory(shape=t.row_bits, depth=1 << t.bank_bits, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        was_done = Signal()
        # If the words of a beat leave time, the next access is requested a cycle later, because its
        # bits are at the data pins, far from the command pins.
        delayed = self._words > min(BURSTS)
        m.d.comb += [
            write.en.eq(self._activated),
            write.addr.eq(now.bank),
            write.data.eq(now.row),
            read.addr.eq(now.bank),
            request.ready.eq(was_done if delayed else self._done),
        ]
        is_open = self._open.bit_select(now.bank, 1)
        same = read.data == now.row
        m.d.sync += [self._hit.eq(is_open & same), self._other.eq(is_open & ~same)]
        m.d.sync += [self._looked.eq(request.valid), was_done.eq(self._done)]
        with m.If(self._activated):
            m.d.sync += self._hit.eq(1)

    def _run(self, m: Module) -> None:
        """Issue a command for the current access, or towards a refresh."""
        c, now, pins = self._cycles, self._now, self.pins
        with m.If(self._due):
            with m.If(~self._no_precharge[0]):
                self._give(m, PRECHARGE, c.trp)
                m.d.sync += [pins.a.eq(ALL_BANKS), self._open.eq(0)]
                m.next = "REFRESH"
        with m.Elif(self._looked):
            m.d.sync += pins.ba.eq(now.bank)
            with m.If(self._hit):
                self._beat(m)
            with m.Elif(self._other):
                with m.If(~self._no_precharge[0]):
                    self._give(m, PRECHARGE, c.trp)
                    m.d.sync += [pins.a.eq(0), self._other.eq(0)]
                    m.d.sync += self._open.bit_select(now.bank, 1).eq(0)
            with m.Elif(~self._no_activate[0]):
                self._give(m, ACTIVATE, c.trcd)
                m.d.sync += [
                    pins.a.eq(now.row),
                    self._no_precharge.eq(_ones(c.tras - 1)),
                    self._no_activate.eq(_ones(c.trc - 1)),
                    self._open.bit_select(now.bank, 1).eq(1),
                ]
                m.d.comb += self._activated.eq(1)

    def _beat(self, m: Module) -> None:
        now, pins, words = self._now, self.pins, self._words
        column = Cat(C(0, exact_log2(words)), now.column)
        with m.If(~now.write):
            self._give(m, READ, words)
            m.d.sync += [
                pins.a.eq(column),
                self._no_precharge.eq(_ones(self._after_read - 1)),
                self._no_write.eq(_ones(self._turn - 1)),
            ]
            m.d.comb += [self._done.eq(1), self._reads.eq(1)]
        with m.Elif(~self._no_write[0]):
            self._give(m, WRITE, words)
            m.d.sync += [
                pins.a.eq(column),
                self._no_precharge.eq(_ones(self._after_write - 1)),
            ]
            m.d.comb += [self._done.eq(1), self._writes.eq(1)]

    def _write_data(self, m: Module) -> None:
        """Drive the words of a beat from its command on.

        ``dq_oe`` is high while they are at the pads, and a cycle before.
        """
        pins, width = self.pins, self._timing.data_width
        self._writes = Signal()
        data, mask = Signal.like(self.read_data), Signal(len(self.read_data) // 8)
        enable = Signal(self._words + 1)
        m.d.sync += [data.eq(data >> width), mask.eq(mask >> width // 8), enable.eq(enable >> 1)]
        with m.If(self._writes):
            m.d.sync += [data.eq(self._now.data), mask.eq(~self._now.enable), enable.eq(~0)]
        m.d.comb += [
            pins.dq_o.eq(data[:width]),
            pins.dqm.eq(mask[: width // 8]),
            pins.dq_oe.eq(enable[0]),
        ]

    def _read_data(self, m: Module) -> None:
        width = self._timing.data_width
        self._reads = Signal()
        under_way = [Cat(self._reads, self._now.tag)]
        for n in range(self.read_latency):
            stage = Signal(len(under_way[0]), name=f"under_way{n}")
            m.d.sync += stage.eq(under_way[-1])
            under_way.append(stage)
        m.d.sync += self.read_data.eq(Cat(self.read_data[width:], self.pins.dq_i))
        m.d.comb += Cat(self.read_valid, self.read_tag).eq(under_way[-1])


def _ones(cycles: int) -> int:
    """Return a timer of ``cycles`` cycles."""
    return (1 << cycles) - 1
