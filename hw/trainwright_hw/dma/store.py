"""The STORE engine: scratchpad rows to external memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.bus.axi import Axi4Write, bus_widths
from trainwright_hw.bus.axi_writer import AxiWriter
from trainwright_hw.bus.bursts import burst_layout
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT
from trainwright_hw.dma.transfer import (
    BurstSource,
    LocalRuns,
    TransferEngine,
    connect_checks,
)
from trainwright_hw.storage.ports import ReadPort
from trainwright_hw.stream.registered_queue import RegisteredQueue

FIFO_ROWS = 16
"""Rows between the scratchpad and the memory."""


class StoreEngine(wiring.Component):
    """Engine of STORE (``trainwright.program.descriptors.Transfer``).

    Rows are read while bursts of earlier rows are written, across runs, and from one command to the
    next: a command is taken as soon as all rows and bursts of the previous one were requested.
    Throughput is a beat per cycle, with two beats per row of 16-bit words. ``busy`` lasts until
    every response has arrived.

    Members: those of ``TransferEngine``; ``axi``; ``scratchpad``, the read port. In ``status``,
    ``stall_operand`` means waiting for the scratchpad, ``stall_result`` for the memory.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                **TransferEngine(self.parameters).members,
                "axi": Out(Axi4Write(**bus_widths(parameters))),
                "scratchpad": Out(ReadPort(parameters)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = BurstSource(self.parameters)
        m.submodules.locals = locals_ = LocalRuns()
        m.submodules.writer = writer = AxiWriter(self.parameters)
        connect(m, flipped(self.axi), writer.axi)
        connect_checks(m, self, source)
        held = Signal(TRANSFER_LAYOUT)
        fresh = Signal()
        narrow = Signal()  # elements of one byte
        front = Signal()  # not all rows and bursts of the command are requested
        rows_valid = self._rows(m, locals_, writer)
        m.d.comb += [
            front.eq(fresh | source.busy | locals_.busy),
            self.command.ready.eq(~front),
            source.command.eq(held),
            source.start.eq(fresh),
            locals_.command.eq(held),
            locals_.start.eq(fresh),
            writer.burst.valid.eq(source.burst.valid),
            *(
                writer.burst.payload[name].eq(source.burst.payload[name])
                for name, _ in burst_layout(self.parameters)
            ),
            writer.burst.payload.flag.eq(narrow),
            source.burst.ready.eq(writer.burst.ready),
            self.error.eq(writer.error),
            self.status.busy.eq(front | writer.flying),
            self.status.older.eq(self.status.busy),
            self.status.stall_operand.eq(writer.flag_valid & ~rows_valid),
            self.status.stall_result.eq(writer.blocked | (writer.flying & ~writer.flag_valid)),
        ]
        # A cycle after `held`, which is when they are first used.
        m.d.sync += [
            narrow.eq(held.element_bytes == 1),
            locals_.items.eq(Mux(held.element_bytes == 1, held.beats, held.beats >> 1)),
        ]
        m.d.sync += fresh.eq(0)
        # No check of `valid`: an invalid payload does no harm, and the enable is earlier.
        with m.If(~front):
            m.d.sync += held.eq(self.command.payload)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += fresh.eq(1)
        return m

    def _rows(self, m: Module, locals_: LocalRuns, writer: AxiWriter):
        """Convert rows from the scratchpad to beats; return whether a row is available."""
        data_width, word_width = self.parameters.data_width, self.parameters.word_width
        width = self.parameters.lanes * word_width
        m.submodules.rows = fifo = SyncFIFOBuffered(width=width, depth=FIFO_ROWS + 1)
        credit = Signal(
            range(FIFO_ROWS + 1), init=FIFO_ROWS
        )  # free places in the queue for requested rows
        upper = Signal()  # the row's second beat is next
        # This queue keeps the arbiters' late answer out of the address generator.
        m.submodules.addresses = addresses = RegisteredQueue(width=LOCAL_WIDTH, depth=2)
        request = self.scratchpad.request
        asked, taken = Signal(), Signal()
        row = fifo.r_data
        low_bytes = Cat(row.word_select(n, word_width)[:8] for n in range(self.parameters.lanes))
        m.d.comb += [
            request.valid.eq(addresses.r_rdy),
            request.payload.eq(addresses.r_data),
            addresses.r_en.eq(request.ready),
            addresses.w_data.eq(locals_.address.payload),
            addresses.w_en.eq(asked),
            asked.eq(locals_.address.valid & addresses.w_rdy & (credit != 0)),
            locals_.address.ready.eq(asked),
            fifo.w_en.eq(self.scratchpad.valid),
            fifo.w_data.eq(self.scratchpad.row),
            writer.beats.valid.eq(fifo.r_rdy),
            taken.eq(writer.beats.valid & writer.beats.ready),
            fifo.r_en.eq(taken & (writer.flag | upper)),
        ]
        with m.If(writer.flag):
            m.d.comb += writer.beats.payload.eq(low_bytes)
        with m.Else():
            m.d.comb += writer.beats.payload.eq(row.word_select(upper, data_width))
        with m.If(taken & ~writer.flag):
            m.d.sync += upper.eq(~upper)
        with m.If(asked ^ fifo.r_en):  # both are late: no adder behind them
            m.d.sync += credit.eq(Mux(asked, credit - 1, credit + 1))
        return fifo.r_rdy
