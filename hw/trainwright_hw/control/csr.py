"""Host registers (``trainwright.accelerator.registers``): their accesses and contents."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.accelerator.registers import (
    CONTROL,
    COUNTER_OFFSETS,
    FINGERPRINT,
    IDENTITY,
    IDENTITY_VALUE,
    INTERRUPT_ENABLE,
    LAST,
    ORDER,
    PROGRAM_ADDRESS,
    PROGRAM_LENGTH,
    STATISTICS_BYTES,
    STATUS,
    STATUS_FIELDS,
    STEP,
    TIMES,
    WATCHDOG,
    WINDOW,
    exponents_base,
    statistics_base,
)
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import EVERY_ENGINE
from trainwright.program.fields import NUMBER_WIDTH
from trainwright_hw.bus.axi import LITE_DATA_WIDTH
from trainwright_hw.bus.axi_lite import RegisterBus
from trainwright_hw.control.counters import COUNTER_WIDTH, COUNTERS, Values
from trainwright_hw.control.engine_ports import (
    HostSlot,
    OrderPort,
    StepPort,
    slot_width,
    totals_layout,
    window_layout,
)
from trainwright_hw.control.watchdog import WATCHDOG_WIDTH

ERROR_WIDTH = 8
ENGINES = len(EVERY_ENGINE)


def _status(**values: Value) -> Value:
    """Assemble STATUS from a value for each of its fields."""
    parts: list[Value] = []
    for field in STATUS_FIELDS.values():
        if gap := field.low - len(Cat(*parts)):
            parts.append(C(0, gap))
        parts.append(values[field.name])
        assert len(values[field.name]) == field.width
    return Cat(*parts)


class Registers(wiring.Component):
    """Control, status, counters and statistics as the host sees them.

    Members: ``bus``, the host's accesses; ``start``, high for one cycle after the host starts an
    idle accelerator; ``clear``, high in the same cycle and after a reset; ``address`` and
    ``length`` of the program; ``running``, ``finished`` (high for one cycle), ``error`` (a code, 0
    for none), ``descriptor``, ``hung`` and ``last`` from the sequencer, and ``watchdog`` for it;
    ``values`` of the counters; with ``sample_loads``, ``order`` of the samples' generator; with
    ``address_checks``, ``window``; with an exponent file, the file as ``exponents``, and ``steps``
    of the repetition; ``read``, ``slot``, ``read_done`` and ``totals`` of the statistics;
    ``interrupt``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        self._times = Signal(LITE_DATA_WIDTH, name="times", init=1)
        self._writes = Signal(name="writes_exponent")
        window = window_layout(parameters)
        # Until the host sets a window, programs may touch every page.
        everything = {"first": 0, "last": (1 << window["last"].width) - 1}
        of_file = {"exponents": In(HostSlot()), "steps": In(StepPort())}
        super().__init__(
            {
                "bus": In(RegisterBus()),
                "start": Out(1),
                "clear": Out(1, init=1),
                "address": Out(LITE_DATA_WIDTH),
                "length": Out(LITE_DATA_WIDTH),
                "running": In(1),
                "finished": In(1),
                "error": In(ERROR_WIDTH),
                "descriptor": In(NUMBER_WIDTH),
                "hung": In(ENGINES),
                "last": In(NUMBER_WIDTH).array(ENGINES),
                "watchdog": Out(WATCHDOG_WIDTH),
                "values": In(Values()),
                "read": Out(1),
                "slot": Out(slot_width(parameters)),
                "read_done": In(1),
                "totals": In(totals_layout(parameters)),
                "interrupt": Out(1),
                **({"order": In(OrderPort())} if parameters.sample_loads else {}),
                **(of_file if parameters.exponents else {}),
                **({"window": Out(window, init=everything)} if parameters.address_checks else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        done, failed, enable = Signal(), Signal(), Signal()
        code = Signal(ERROR_WIDTH)
        self._write(m, done, failed, code, enable)
        with m.If(self.finished):
            m.d.sync += [done.eq(self.error == 0), failed.eq(self.error != 0), code.eq(self.error)]
        # Level, not pulse: the line falls when the host has cleared what caused it.
        m.d.comb += self.interrupt.eq(enable & (done | failed))
        status = _status(
            BUSY=self.running, DONE=done, ERROR=failed, HUNG=self.hung, CODE=code,
            DESCRIPTOR=self.descriptor,
        )  # fmt: skip
        self._read(m, status, enable)
        return m

    def _write(self, m: Module, done, failed, code, enable) -> None:
        bus = self.bus

        def masked(register):
            mask = bus.write_mask[: len(register)]
            return (register & ~mask) | (bus.write_data & mask)

        written = bus.write_data & bus.write_mask
        begin = Signal()
        # Registered, because start and clear drive a thousand registers.
        m.d.sync += [self.start.eq(begin), self.clear.eq(begin)]
        with m.If(bus.write), m.Switch(bus.write_address):
            with m.Case(CONTROL >> 2):
                # A start is ignored while a program runs.
                m.d.comb += begin.eq(written[0] & ~self.running & ~self.start)
                # A start clears the outcome of the last run: the host never reads an old DONE.
                with m.If(written[1] | begin):
                    m.d.sync += [done.eq(0), failed.eq(0), code.eq(0)]
            with m.Case(PROGRAM_ADDRESS >> 2):
                m.d.sync += self.address.eq(masked(self.address))
            with m.Case(PROGRAM_LENGTH >> 2):
                m.d.sync += self.length.eq(masked(self.length))
            with m.Case(INTERRUPT_ENABLE >> 2):
                m.d.sync += enable.eq(masked(enable))
            with m.Case(WATCHDOG >> 2):
                m.d.sync += self.watchdog.eq(masked(self.watchdog))
            # Registers in other blocks are written there: each has a write bit, and all share data
            # and mask.
            for bit in range(len(self._order())):
                with m.Case((ORDER >> 2) + bit):
                    m.d.comb += self.order.write[bit].eq(1)
            for number, register in enumerate(self._window()):
                with m.Case((WINDOW >> 2) + number):
                    m.d.sync += register.eq(masked(register))
            if self.parameters.exponents:
                with m.Case(TIMES >> 2):
                    m.d.sync += self._times.eq(masked(self._times))
                with m.Case(STEP >> 2):
                    m.d.comb += self.steps.write.eq(~self.running)
        of_others = [self.order] if self.parameters.sample_loads else []
        if self.parameters.exponents:
            of_others.append(self.steps)
        for port in of_others:
            m.d.comb += [port.keep.eq(~bus.write_mask), port.value.eq(bus.write_data)]
        if self.parameters.exponents:
            to_exponent, written_slot = self._exponent(bus.write_address)
            _, read_slot = self._exponent(bus.read_address)
            m.d.comb += [
                self.steps.times.eq(self._times),
                self._writes.eq(bus.write & to_exponent & ~self.running),
            ]
            # Registered, because the file may be on the other side of the device.
            m.d.sync += [
                self.exponents.write.eq(self._writes),
                self.exponents.slot.eq(Mux(self._writes, written_slot, read_slot)),
                self.exponents.data.eq(bus.write_data),
            ]

    def _exponent(self, address: Value) -> tuple[Value, Value]:
        """Return whether an address belongs to an exponent, and the exponent's slot."""
        width, base = exact_log2(self.parameters.exponents), exponents_base(self.parameters) >> 2
        if not base % (1 << width):
            return address[width:] == base >> width, address[:width]
        # The array has 2 * base slots, so that its base is not aligned to its size: its addresses
        # are base to 3 * base - 1, and the slot is the address with the highest bit inverted.
        assert 1 << width == 2 * base
        half = address[width - 1 :]
        return (half == 1) | (half == 2), address[:width] ^ base

    def _order(self) -> tuple:
        """List the registers of the samples' order, if there are any."""
        if not self.parameters.sample_loads:
            return ()
        return self.order.next, self.order.increment, self.order.left

    def _window(self) -> tuple[Value, ...]:
        """List the registers of the window, if there are any."""
        if not self.parameters.address_checks:
            return ()
        return self.window.first, self.window.last

    def _read(self, m: Module, status, enable) -> None:
        """Answer reads: of registers two cycles later, of statistics once the slot was read."""
        bus = self.bus
        slot_shift = exact_log2(STATISTICS_BYTES // 4)
        slot_width = exact_log2(self.parameters.statistics_depth)
        base = statistics_base(self.parameters) >> 2
        in_statistics = Signal()
        # Statistics have another latency than plain registers, so each kind has an answer register.
        word, total = Signal(LITE_DATA_WIDTH), Signal(LITE_DATA_WIDTH)
        m.d.comb += [
            in_statistics.eq(
                bus.read_address[slot_shift + slot_width :] == base >> (slot_shift + slot_width)
            ),
            self.slot.eq(bus.read_address[slot_shift : slot_shift + slot_width]),
            self.read.eq(bus.read & in_statistics & ~bus.read_done),
            bus.read_data.eq(Mux(in_statistics, total, word)),
        ]
        looked = Signal()  # the word of each group is registered
        m.d.sync += looked.eq(bus.read & ~bus.read_done)
        answered = Mux(in_statistics, self.read_done, looked)
        if self.parameters.exponents:
            in_exponents, _ = self._exponent(bus.read_address)
            waits = ~bus.read_done & ~self.exponents.done
            m.d.sync += self.exponents.read.eq(bus.read & in_exponents & waits & ~self._writes)
            answered = Mux(in_exponents, self.exponents.done, answered)
        m.d.sync += bus.read_done.eq(bus.read & ~bus.read_done & answered)
        # Both answers are zero unless selected, so that joining them needs no multiplexer.
        m.d.sync += [total.eq(0), word.eq(0)]
        with m.Switch(bus.read_address[:slot_shift]):
            with m.Case(0):
                m.d.sync += total.eq(self.totals.sum[:LITE_DATA_WIDTH])
            with m.Case(1):
                m.d.sync += total.eq(self.totals.sum[LITE_DATA_WIDTH:])
            for number, name in enumerate(("saturations", "underflows"), 2):
                if name in totals_layout(self.parameters).members:
                    with m.Case(number):
                        m.d.sync += total.eq(self.totals[name])
        self._select_register(m, word, self._plain_words(status, enable) | self._counter_words())
        if self.parameters.exponents:
            with m.If(self._exponent(bus.read_address)[0]):
                m.d.sync += word.eq(self.exponents.value)

    def _plain_words(self, status: Value, enable: Value) -> dict[int, Value]:
        """Return the word of each register that is no counter, by offset."""
        plain: dict[int, Value] = {
            IDENTITY: C(IDENTITY_VALUE, LITE_DATA_WIDTH),
            FINGERPRINT: C(self.parameters.fingerprint, LITE_DATA_WIDTH),
            STATUS: status,
            PROGRAM_ADDRESS: self.address,
            PROGRAM_LENGTH: self.length,
            INTERRUPT_ENABLE: enable,
            WATCHDOG: self.watchdog,
            **{LAST + 2 * n: Cat(*self.last[n : n + 2]) for n in range(0, ENGINES, 2)},
            **{ORDER + 4 * number: register for number, register in enumerate(self._order())},
            **{WINDOW + 4 * number: register for number, register in enumerate(self._window())},
        }
        if self.parameters.exponents:
            plain |= {TIMES: self._times, STEP: self.steps.step}
        return plain

    def _select_register(self, m: Module, word: Signal, words: dict[int, Value]) -> None:
        """Let ``word`` follow the word of ``words`` that is read, two cycles later."""
        # Two pipelined stages of multiplexers: the first selects a register in each group of eight,
        # the second a group. A single stage would be the longest path of the host's side.
        bus, groups = self.bus, dict[int, dict[int, Value]]()
        for offset, value in words.items():
            groups.setdefault(offset >> 5, {})[offset >> 2 & 7] = value
        for number, members in groups.items():
            chosen = Signal(LITE_DATA_WIDTH, name=f"group_{number}", reset_less=True)
            m.d.sync += chosen.eq(0)
            with m.Switch(bus.read_address[:3]):
                for index, value in members.items():
                    with m.Case(index):
                        m.d.sync += chosen.eq(value)
            with m.If(bus.read_address[3:] == number):
                m.d.sync += word.eq(chosen)

    def _counter_words(self) -> dict:
        """Return both words of each counter by offset; beats are shown as bytes."""
        words = {}
        for offset, name in zip(COUNTER_OFFSETS, COUNTERS, strict=True):
            value = getattr(self.values, name)
            if name.startswith("beats"):
                beat_shift = exact_log2(self.parameters.beat_bytes)
                # Show beats as bytes: a shift by a constant costs nothing.
                value = Cat(C(0, beat_shift), value[: COUNTER_WIDTH - beat_shift])
            words[offset] = value[:LITE_DATA_WIDTH]
            words[offset + 4] = value[LITE_DATA_WIDTH:]
        return words
