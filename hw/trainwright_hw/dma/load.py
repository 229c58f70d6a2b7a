"""The LOAD engine: external memory to scratchpad and program memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.bus.axi import Axi4Read, bus_widths
from trainwright_hw.bus.axi_reader import AxiReader
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT, OrderPort
from trainwright_hw.dma.transfer import BurstSource, TransferEngine, connect_checks
from trainwright_hw.dma.unpack import Unpack, target_ports


class LoadEngine(wiring.Component):
    """Engine of LOAD (``trainwright.program.descriptors.Transfer``).

    Bursts are requested ahead of the data, across runs, and from one command to the next: a command
    is taken as soon as all bursts of the previous one were requested. Throughput is a beat per
    cycle, with two beats per row of 16-bit words.

    Members: those of ``TransferEngine``; ``axi``; ``scratchpad`` and ``program``, the write ports
    of the targets. In ``status``, ``stall_operand`` means waiting for the memory, ``stall_result``
    for the scratchpad. With ``sample_loads`` the engine also executes SAMPLES
    (``trainwright.program.samples``), and has ``order``, the registers of the samples' generator.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                **TransferEngine(self.parameters).members,
                "axi": Out(Axi4Read(**bus_widths(parameters))),
                **target_ports(parameters),
                **({"order": Out(OrderPort())} if parameters.sample_loads else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = BurstSource(
            self.parameters, samples=bool(self.parameters.sample_loads)
        )
        m.submodules.reader = reader = AxiReader(self.parameters)
        m.submodules.unpack = unpack = Unpack(self.parameters)
        connect(m, source.burst, reader.burst)
        connect_checks(m, self, source)
        connect(m, reader.beats, unpack.beats)
        connect(m, flipped(self.axi), reader.axi)
        for name in target_ports(self.parameters):
            connect(m, flipped(getattr(self, name)), getattr(unpack, name))
        if self.parameters.sample_loads:
            connect(m, source.order, flipped(self.order))

        held = Signal(TRANSFER_LAYOUT)
        fresh = Signal()  # a command was loaded into `held` a cycle ago
        handing = Signal()  # the data side has not taken it yet
        m.d.comb += [
            self.command.ready.eq(~fresh & ~handing & ~source.busy),
            source.command.eq(held),
            source.start.eq(fresh),
            unpack.command.payload.eq(held),
            unpack.command.valid.eq(handing),
            self.error.eq(reader.error),
            self.status.busy.eq(fresh | handing | source.busy | unpack.busy),
            self.status.older.eq(self.status.busy),
            self.status.stall_operand.eq(unpack.starved),
            self.status.stall_result.eq(unpack.blocked),
        ]
        m.d.sync += fresh.eq(0)
        with m.If(unpack.command.ready):
            m.d.sync += handing.eq(0)
        # No check of `valid`: an invalid payload does no harm, and the enable is earlier.
        with m.If(self.command.ready):
            m.d.sync += held.eq(self.command.payload)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [fresh.eq(1), handing.eq(1)]
        return m
