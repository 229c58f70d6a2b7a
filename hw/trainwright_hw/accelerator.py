"""The accelerator: every block, put together."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS, ENGINES, SPEC_OF, TRACED, rivals
from trainwright.program.fields import (
    LOCAL_WIDTH,
    MOST_DESCRIPTORS,
    NUMBER_WIDTH,
    Engine,
    Operation,
)
from trainwright_hw.bus.axi import Axi4, Axi4Lite, bus_widths
from trainwright_hw.bus.axi_lite import LiteBridge
from trainwright_hw.compute.arrays import HARDWARE
from trainwright_hw.compute.vector.engine import VectorEngine
from trainwright_hw.control.counters import Counters
from trainwright_hw.control.csr import Registers
from trainwright_hw.control.sequencer import Sequencer
from trainwright_hw.control.statistics_slots import StatisticsSlots
from trainwright_hw.dma.load import LoadEngine
from trainwright_hw.dma.store import StoreEngine
from trainwright_hw.storage.scratchpad import Scratchpad
from trainwright_hw.storage.shared import ReadInTurn, WriteByEither
from trainwright_hw.writeback.ports import KINDS, kind_of
from trainwright_hw.writeback.turns import share_port
from trainwright_hw.writeback.unit import WriteBack

CLASSES = {Engine.LOAD: LoadEngine, Engine.STORE: StoreEngine, **HARDWARE}
"""Class of each engine."""

PASSES = SPEC_OF[Operation.VECTOR].unit
"""Array that shares its ports with the vector engine."""

EVENTS = ("accept", "busy", "older", "stall_operand", "stall_result")
"""Bits of ``trace_events`` for each engine.

In order: a command is taken; a command is not done; a command before the last one is not done; the
engine waits for operands or memory; the engine waits for credit or the write port.
"""


def accelerator_signature(
    parameters: AcceleratorParameters, *, trace: bool = False
) -> wiring.Signature:
    """Return the ports of ``Accelerator``."""
    members = {
        "m_axi": Out(Axi4(**bus_widths(parameters))),
        "s_axil": In(Axi4Lite()),
        "interrupt": Out(1),
    }
    if trace:
        for engine in TRACED:
            members[f"trace_{engine}_valid"] = Out(1)
            members[f"trace_{engine}_address"] = Out(LOCAL_WIDTH)
            members[f"trace_{engine}_row"] = Out(parameters.lanes * parameters.word_width)
        members["trace_events"] = Out(len(EVENTS) * len(ENGINES))
        members["trace_number"] = Out(NUMBER_WIDTH)
    return wiring.Signature(members)


class Accelerator(wiring.Component):
    """The whole accelerator (``docs/reference/accelerator.md``).

    Members: ``m_axi``, the memory port; ``s_axil``, the host's port; ``interrupt``. With ``trace``
    also, for each engine of ``TRACED``, ``trace_{engine}_valid``, ``_address`` and
    ``_row``, valid in the cycle after a scratchpad write of that engine was taken; and
    ``trace_events``, for each of ``EVENTS`` one bit per engine of ``ENGINES``, with
    ``trace_number``, the descriptor that is being issued, or ``MOST_DESCRIPTORS`` while the program
    is loaded.
    """

    def __init__(self, parameters: AcceleratorParameters, *, trace: bool = False):
        self.parameters = parameters
        self.trace = trace
        super().__init__(accelerator_signature(parameters, trace=trace))

    def elaborate(self, platform):
        m = Module()
        engines = {spec.unit: CLASSES[spec.engine](self.parameters) for spec in ENGINES}
        for name, engine in engines.items():
            m.submodules[name] = engine
        load, store = engines["load"], engines["store"]
        arrays = [engines[spec.unit] for spec in ARRAYS.values()]
        m.submodules.write_back = write_back = WriteBack(self.parameters)
        m.submodules.sequencer = sequencer = Sequencer(self.parameters)
        vector = VectorEngine(self.parameters) if self.parameters.vector_engine else None
        # The vector engine counts on its own port: its results do not pass the write-back unit.
        ports = [write_back.statistics, *([vector.statistics] if vector else [])]
        m.submodules.statistics = statistics = StatisticsSlots(self.parameters, engines=len(ports))

        connect_bus(m, load.axi, self.m_axi)
        connect_bus(m, store.axi, self.m_axi)
        connect(m, load.program, sequencer.program)
        owns = self._results(m, engines, write_back)
        for port, to in zip(ports, statistics.ports, strict=True):
            connect(m, port, to)
        if vector is not None:
            m.submodules.vector = vector
        busy = self._commands(m, sequencer, engines, vector)
        m.d.comb += [
            sequencer.busy.eq(Cat(busy.values())),
            sequencer.older.eq(Cat(engine.status.older for engine in engines.values())),
            sequencer.settling.eq(statistics.busy),
            sequencer.read_error.eq(load.error),
            sequencer.write_error.eq(store.error),
        ]
        if self.parameters.exponents:
            self._file(m, sequencer, statistics, vector)
        if self.parameters.stochastic_rounding:
            m.d.comb += [array.stream.eq(sequencer.stream) for array in arrays]
        if self.parameters.formats:
            m.d.comb += sequencer.format_error.eq(reduce(or_, [array.invalid for array in arrays]))
        self._memories(m, sequencer, engines, vector, write_back, owns)
        if self.trace:
            # Recorded for `trainwright profile` alone: without a trace none of this exists.
            events = [self._events(unit) for unit in engines.values()]
            if vector is not None:  # both share a port of the sequencer
                shared = list(engines).index(PASSES)
                events[shared] = [
                    mine | theirs
                    for mine, theirs in zip(events[shared], self._events(vector), strict=True)
                ]
            m.d.comb += [
                self.trace_events.eq(
                    Cat(*(bits for by_event in zip(*events, strict=True) for bits in by_event))
                ),
                self.trace_number.eq(
                    Mux(sequencer.loading, MOST_DESCRIPTORS, sequencer.descriptor)
                ),
            ]
        self._host(m, sequencer, statistics, engines, busy)
        return m

    @staticmethod
    def _results(m: Module, engines: dict, write_back) -> dict[str, Value]:
        """Connect arrays to the write-back unit; return whether each owns the port of its kind."""
        owns: dict[str, Value] = {}
        for kind in KINDS:
            names = [a.unit for a in ARRAYS.values() if kind_of(a) == kind]
            port = getattr(write_back, kind)
            owns |= zip(names, share_port(m, port, [engines[n] for n in names]), strict=True)
        return owns

    def _commands(self, m: Module, sequencer, engines: dict, vector) -> dict[str, Value]:
        """Connect engines to the sequencer; return whether each is busy."""
        busy = {name: engine.status.busy for name, engine in engines.items()}
        # The vector engine and the array whose reader and writer it shares take turns, and so do
        # arrays that share a port of the write-back unit.
        for spec in ENGINES:
            name = spec.unit
            sharers = [busy[rival.unit] for rival in rivals(spec)]
            sharers += [vector.status.busy] if vector is not None and name == PASSES else []
            self._offer(m, getattr(sequencer, name), engines[name].command, sharers)
        if vector is not None:
            self._offer(m, sequencer.vector, vector.command, [busy[PASSES]])
            m.d.comb += vector.stream.eq(sequencer.stream)
            busy[PASSES] |= vector.status.busy
        return busy

    @staticmethod
    def _events(unit) -> list[Value]:
        """Return the bits of an engine in the order of ``EVENTS``."""
        accepts = unit.command.valid & unit.command.ready
        return [accepts, *(getattr(unit.status, name) for name in EVENTS[1:])]

    @staticmethod
    def _offer(m: Module, source, command, sharers: Sequence[Value]) -> None:
        """Connect the commands of an engine, which it takes only while no sharer is busy."""
        if not sharers:
            connect(m, source, command)
            return
        busy = reduce(or_, sharers)
        m.d.comb += [
            command.payload.eq(source.payload),
            command.valid.eq(source.valid & ~busy),
            source.ready.eq(command.ready & ~busy),
        ]

    def _file(self, m: Module, sequencer, statistics, vector) -> None:
        """Connect the exponent file."""
        connect(m, sequencer.sums, statistics.taken)
        if vector is not None:
            scalars = zip(vector.scalars, sequencer.scalars, strict=True)
            m.d.comb += [
                vector.place.eq(sequencer.place),
                sequencer.word.eq(vector.word),
                *(to.eq(value) for to, value in scalars),
            ]

    def _memories(
        self, m: Module, sequencer, engines: dict, vector, write_back, owns: dict[str, Value]
    ) -> None:
        """Connect the scratchpad; report whether anything moves in it or at the memory port."""
        # A vector engine borrows an array's read port and the results' write port: the scratchpad
        # would need one more of each, whose arbiters would slow all clients.
        p, load, store = self.parameters, engines["load"], engines["store"]
        reader, writer = engines[PASSES].x, write_back.z
        if vector is not None:
            m.submodules.shared_read = read = ReadInTurn(p)
            m.submodules.shared_write = write = WriteByEither(p)
            # registered: neither engine makes requests in its first busy cycle
            m.d.sync += read.seconds.eq(vector.status.busy)
            for client, of_client in zip((reader, vector.read), read.clients, strict=True):
                connect(m, client, of_client)
            for client, of_client in zip((writer, vector.z), write.clients, strict=True):
                connect(m, client, of_client)
            reader, writer = read.port, write.port
        readers = [store.scratchpad]
        for array in (spec.unit for spec in ARRAYS.values()):
            readers += [reader if array == PASSES else engines[array].x, engines[array].g]
        writers = [load.scratchpad, writer]
        m.submodules.scratchpad = scratchpad = Scratchpad(
            p, readers=len(readers), writers=len(writers)
        )
        if p.address_checks:
            m.d.comb += sequencer.outside.eq(scratchpad.outside | load.outside | store.outside)
        for client, port in zip(readers, scratchpad.read, strict=True):
            connect(m, client, port)
        for client, port in zip(writers, scratchpad.write, strict=True):
            connect(m, client, port)
        bus = self.m_axi
        ports = [port.request for port in (*scratchpad.read, *scratchpad.write)]
        # Anything that moves shows the watchdog that the program is alive.
        progress = Cat(
            *(port.valid & port.ready for port in ports),
            *(bus_valid & bus_ready for bus_valid, bus_ready in handshakes(bus)),
        )
        moved = Signal.like(progress)  # registered: inputs arrive late, from the whole design
        m.d.sync += [moved.eq(progress), sequencer.progress.eq(moved.any())]
        if self.trace:
            self._trace(m, "load", load.scratchpad, C(1))
            for spec in ARRAYS.values():
                is_own, name = write_back.writer == KINDS.index(kind_of(spec)), spec.unit
                is_own = is_own & owns[name] if rivals(spec) else is_own
                self._trace(m, name, write_back.z, is_own)
            if vector is not None:
                self._trace_turn(m, write_back, vector)

    def _trace(self, m: Module, engine: str, port, is_own: Value) -> None:
        request = port.request
        # One cycle later, as the row follows the address of its request.
        m.d.sync += [
            getattr(self, f"trace_{engine}_valid").eq(request.valid & request.ready & is_own),
            getattr(self, f"trace_{engine}_address").eq(request.payload),
        ]
        m.d.comb += getattr(self, f"trace_{engine}_row").eq(port.row)

    def _trace_turn(self, m: Module, write_back, vector) -> None:
        """Trace the vector engine's rows as those of the array with which it alternates."""
        request = vector.z.request
        taken = Signal()
        m.d.sync += taken.eq(request.valid & request.ready)
        # Overrides the array's assignments above: only one of both writes at a time.
        with m.If(request.valid & request.ready):
            m.d.sync += [
                getattr(self, f"trace_{PASSES}_valid").eq(1),
                getattr(self, f"trace_{PASSES}_address").eq(request.payload),
            ]
        with m.If(taken):
            m.d.comb += getattr(self, f"trace_{PASSES}_row").eq(vector.z.row)

    def _host(self, m: Module, sequencer, statistics, engines: dict, busy: dict) -> None:
        """Connect registers and counters to the host's port."""
        m.submodules.bridge = bridge = LiteBridge()
        m.submodules.registers = registers = Registers(self.parameters)
        m.submodules.counters = counters = Counters()
        connect(m, flipped(self.s_axil), bridge.lite)
        connect(m, bridge.bus, registers.bus)
        connect(m, counters.values, registers.values)
        if self.parameters.sample_loads:
            connect(m, engines["load"].order, registers.order)
        if self.parameters.address_checks:
            m.d.comb += [engines[name].window.eq(registers.window) for name in ("load", "store")]
        if self.parameters.exponents:
            connect(m, sequencer.host, registers.exponents)
            connect(m, sequencer.steps, registers.steps)
        m.d.comb += [
            sequencer.start.eq(registers.start),
            sequencer.address.eq(registers.address),
            sequencer.length.eq(registers.length),
            registers.running.eq(sequencer.running),
            registers.finished.eq(sequencer.finished),
            registers.error.eq(sequencer.error),
            registers.descriptor.eq(sequencer.descriptor),
            registers.hung.eq(sequencer.hung),
            *(to.eq(last) for to, last in zip(registers.last, sequencer.last, strict=True)),
            sequencer.watchdog.eq(registers.watchdog),
            # Counts belong to a run: a start clears them before the first descriptor is read.
            statistics.clear.eq(registers.start),
            statistics.read.eq(registers.read),
            statistics.slot.eq(registers.slot),
            registers.read_done.eq(statistics.read_done),
            registers.totals.eq(statistics.totals),
            self.interrupt.eq(registers.interrupt),
            counters.clear.eq(registers.clear),
        ]
        bus = self.m_axi
        events = {
            "cycles": sequencer.running,
            **{f"busy_{name}": of_engine for name, of_engine in busy.items()},
            **{
                f"stall_{name}_{what}": getattr(engines[name].status, f"stall_{what}")
                for name in (spec.unit for spec in ARRAYS.values())
                for what in ("operand", "result")
            },
            "wait_engine": sequencer.waiting,
            "beats_read": bus.rvalid & bus.rready,
            "beats_written": bus.wvalid & bus.wready,
            "stall_load": engines["load"].status.stall_operand,
            "stall_store": engines["store"].status.stall_result,
        }
        m.d.comb += [getattr(counters.events, name).eq(event) for name, event in events.items()]


def handshakes(bus) -> list[tuple]:
    """Return valid and ready of every channel."""
    return [
        (getattr(bus, f"{n}valid"), getattr(bus, f"{n}ready")) for n in ("ar", "r", "aw", "w", "b")
    ]


def connect_bus(m: Module, part, whole) -> None:
    """Connect an engine's channels to those of the memory port."""
    for path, member, value in part.signature.flatten(part):
        outer = getattr(whole, path[0])
        m.d.comb += outer.eq(value) if member.flow == Out else value.eq(outer)
