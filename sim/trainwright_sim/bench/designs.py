"""Designs under test that are not one component of ``trainwright_hw`` as it stands."""

from amaranth.hdl import Const, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import NUMBER_WIDTH
from trainwright_hw.arith.requantiser import Requantiser
from trainwright_hw.bus.axi import Axi4Lite
from trainwright_hw.bus.axi_lite import LiteBridge
from trainwright_hw.compute.pe1.engine import Pe1
from trainwright_hw.compute.pe2.engine import Pe2
from trainwright_hw.compute.pe2.fetch import OperandFetch
from trainwright_hw.control.counters import Counters, Events
from trainwright_hw.control.csr import ENGINES, ERROR_WIDTH, Registers
from trainwright_hw.control.engine_ports import StatisticsPort
from trainwright_hw.control.statistics_slots import StatisticsSlots
from trainwright_hw.control.watchdog import WATCHDOG_WIDTH
from trainwright_hw.storage.ports import WritePort
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.stream.round_robin import RoundRobin
from trainwright_hw.stream.skid_buffer import SkidBuffer
from trainwright_hw.writeback.unit import WriteBack

CLIENTS = 5
"""Clients of the arbiter."""
QUEUE_WIDTH, QUEUE_DEPTH = 8, 5
"""Bits and words of the registered queue; the skid buffer has the same width."""


class Flat(wiring.Component):
    """A component with every port a plain signal, named by its path joined with ``_``.

    ``ready`` of a stream that is always ready is no signal, and left out. ``prefix`` goes before
    the names of ports that are plain already. Raises ``ValueError`` where two names are the same.
    """

    def __init__(self, inner: wiring.Component, *, prefix: str = ""):
        self._inner = inner
        self._ports: dict[str, Value] = {}
        members = {}
        for path, member, port in inner.signature.flatten(inner):
            name = "_".join(str(part) for part in path)
            name = prefix + name if len(path) == 1 else name
            value = Value.cast(port)
            if isinstance(value, Const):
                continue
            if name in members:
                raise ValueError(f"two ports of {type(inner).__name__} are named {name!r}")
            self._ports[name] = value
            members[name] = member.flow(value.shape())
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = self._inner
        for name, inside in self._ports.items():
            outside = getattr(self, name)
            is_output = self.signature.members[name].flow == Out
            m.d.comb += outside.eq(inside) if is_output else inside.eq(outside)
        return m


class WithWriteBack(wiring.Component):
    """PE1 or PE2 with a write-back unit of its own.

    Members: the engine's, but for ``results``; ``statistics`` and ``z`` of the unit.
    """

    def __init__(self, engine: Pe1 | Pe2, parameters: AcceleratorParameters):
        self._engine, self._parameters = engine, parameters
        members = dict(engine.signature.members)
        del members["results"]
        super().__init__(
            {
                **members,
                "statistics": Out(StatisticsPort(parameters)),
                "z": Out(WritePort(parameters)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.engine = engine = self._engine
        m.submodules.write_back = unit = WriteBack(self._parameters)
        for name, member in engine.signature.members.items():
            inside = getattr(engine, name)
            if member.is_port and member.flow == Out:
                m.d.comb += getattr(self, name).eq(inside)
            elif member.is_port:
                m.d.comb += inside.eq(getattr(self, name))
            elif name != "results":
                connect(m, inside, flipped(getattr(self, name)))
        connect(m, engine.results, unit.columns if isinstance(engine, Pe1) else unit.rows)
        connect(m, unit.statistics, flipped(self.statistics))
        connect(m, unit.z, flipped(self.z))
        return m


def pe1(parameters: AcceleratorParameters) -> wiring.Component:
    """Connect PE1's engine to the write-back unit and the scratchpad."""
    return WithWriteBack(Pe1(parameters), parameters)


def pe2(parameters: AcceleratorParameters) -> wiring.Component:
    """Connect PE2's engine to the write-back unit and the scratchpad."""
    return WithWriteBack(Pe2(parameters), parameters)


def requantiser(parameters: AcceleratorParameters) -> wiring.Component:
    """Make the requantiser of PE2's engine."""
    return Requantiser(
        lanes=parameters.lanes,
        value_width=parameters.vector_width,
        word_width=parameters.word_width,
    )


def fetch(parameters: AcceleratorParameters) -> wiring.Component:
    """Make ``OperandFetch``, with a prefix because ``final`` would clash with a word of C++."""
    return Flat(OperandFetch(parameters), prefix="o_")


class Queue(wiring.Component):
    """``RegisteredQueue`` with its members as ports."""

    def __init__(self):
        bits = {"w_data": In(QUEUE_WIDTH), "w_en": In(1), "w_rdy": Out(1)}
        bits |= {"r_data": Out(QUEUE_WIDTH), "r_en": In(1), "r_rdy": Out(1)}
        super().__init__({**bits, "level": Out(range(QUEUE_DEPTH + 1))})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = RegisteredQueue(width=QUEUE_WIDTH, depth=QUEUE_DEPTH)
        for name, member in self.signature.members.items():
            inside, outside = getattr(queue, name), getattr(self, name)
            m.d.comb += outside.eq(inside) if member.flow == Out else inside.eq(outside)
        return m


def queue(_: AcceleratorParameters) -> wiring.Component:
    """Make the registered queue."""
    return Queue()


def skid(_: AcceleratorParameters) -> wiring.Component:
    """Make the skid buffer."""
    return SkidBuffer(QUEUE_WIDTH)


def round_robin(_: AcceleratorParameters) -> wiring.Component:
    """Make the arbiter."""
    return RoundRobin(CLIENTS)


class HostInterface(wiring.Component):
    """Host's side of the accelerator: AXI4-Lite bridge, registers, counters and statistics.

    Members: ``lite``; ``ports``, the engines' statistics; ``events`` of the counters; the rest as
    in ``Registers``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "lite": In(Axi4Lite()),
                "ports": In(StatisticsPort(parameters)).array(2),
                "events": In(Events()),
                "start": Out(1),
                "address": Out(32),
                "length": Out(32),
                "running": In(1),
                "finished": In(1),
                "error": In(ERROR_WIDTH),
                "descriptor": In(NUMBER_WIDTH),
                "hung": In(ENGINES),
                "last": In(NUMBER_WIDTH).array(ENGINES),
                "watchdog": Out(WATCHDOG_WIDTH),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.bridge = bridge = LiteBridge()
        m.submodules.registers = registers = Registers(self._parameters)
        m.submodules.counters = counters = Counters()
        m.submodules.statistics = statistics = StatisticsSlots(self._parameters, engines=2)
        connect(m, flipped(self.lite), bridge.lite)
        connect(m, bridge.bus, registers.bus)
        connect(m, counters.values, registers.values)
        connect(m, flipped(self.events), counters.events)
        for outer, inner in zip(self.ports, statistics.ports, strict=True):
            connect(m, flipped(outer), inner)
        for name in ("running", "finished", "error", "descriptor", "hung"):
            m.d.comb += getattr(registers, name).eq(getattr(self, name))
        m.d.comb += [to.eq(last) for to, last in zip(registers.last, self.last, strict=True)]
        for name in ("start", "address", "length", "watchdog", "interrupt"):
            m.d.comb += getattr(self, name).eq(getattr(registers, name))
        m.d.comb += [
            counters.clear.eq(registers.start),
            statistics.clear.eq(registers.start),
            statistics.read.eq(registers.read),
            statistics.slot.eq(registers.slot),
            registers.read_done.eq(statistics.read_done),
            registers.totals.eq(statistics.totals),
        ]
        return m
