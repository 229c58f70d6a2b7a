"""Operand fetch of PE4's entries: ``lanes`` rows of the second operand for each step."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.compute.readers import RowReader
from trainwright_hw.control.command_contexts import per_context
from trainwright_hw.storage.ports import ReadPort, row_layout
from trainwright_hw.stream.registered_queue import RegisteredQueue

STEPS_DEPTH = 4
"""Steps, at most, whose entries are not all requested yet."""
LEAST_DEPTH = 24
"""Rows requested ahead, at least: short steps must not wait for the scratchpad's latency."""


class EntryFetch(wiring.Component):
    """Fetcher of ``lanes`` rows per step, up to two steps ahead; a row per cycle.

    Members: ``configure`` is high for one cycle with the ``stride`` of a command and the command's
    ``configure_context``. ``step``, allowed while ``credit``, announces a step: the first entry is
    row ``address``, and further entries follow by the stride of ``context``. ``g`` is the read
    port. ``whole`` is high while all entries of the oldest unclaimed step have arrived. ``claim``,
    allowed while ``whole``, claims that step. The entries then appear at ``row`` in order; each
    cycle of ``take`` removes one entry.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "configure": In(1),
                "configure_context": In(1),
                "stride": In(LOCAL_WIDTH),
                "g": Out(ReadPort(parameters)),
                "credit": Out(1),
                "step": In(1),
                "context": In(1),
                "address": In(LOCAL_WIDTH),
                "whole": Out(1),
                "claim": In(1),
                "take": In(1),
                "row": Out(row_layout(parameters)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        lanes = self._parameters.lanes
        depth = max(2 * lanes, LEAST_DEPTH)
        m.submodules.reader = reader = RowReader(self._parameters, depth=depth)
        m.submodules.steps = steps = RegisteredQueue(width=LOCAL_WIDTH + 1, depth=STEPS_DEPTH)
        connect(m, reader.port, flipped(self.g))
        stride = per_context(m, self.configure, self.configure_context, self.stride, "stride")

        # The first address of a step comes from the queue; later ones add the stride.
        number, address, start = Signal(range(lanes)), Signal(LOCAL_WIDTH), Signal()
        context, first_context, first = Signal(), Signal(), Signal(LOCAL_WIDTH)
        is_first = number == 0
        now = Mux(is_first, first, address)
        m.d.comb += [
            self.credit.eq(steps.w_rdy),
            steps.w_en.eq(self.step),
            steps.w_data.eq(Cat(self.address, self.context)),
            Cat(first, first_context).eq(steps.r_data),
            start.eq(reader.credit & (steps.r_rdy | ~is_first)),
            steps.r_en.eq(start & is_first),
            reader.start.eq(start),
            reader.address.eq(now),
            reader.ready.eq(self.take),
            self.row.eq(reader.row),
        ]
        with m.If(start):
            m.d.sync += [
                number.eq(number + 1),
                address.eq(now + stride(Mux(is_first, first_context, context))),
            ]
            with m.If(is_first):
                m.d.sync += context.eq(first_context)

        # Entries of unclaimed steps that have arrived, up to the last cycle and with this one.
        unclaimed, arrived = Signal(range(depth + 1)), Signal(range(depth + 2), name="there")
        m.d.comb += arrived.eq(unclaimed + reader.port.valid)
        with m.If(self.claim):
            m.d.sync += [unclaimed.eq(arrived - lanes), self.whole.eq(arrived >= 2 * lanes)]
        with m.Else():
            m.d.sync += [unclaimed.eq(arrived), self.whole.eq(arrived >= lanes)]
        return m
