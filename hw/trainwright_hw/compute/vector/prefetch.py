"""Prefetch of the rows that a pass's instructions read, in the order in which they read."""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.program.vector import CODE_DEPTH, THREADS
from trainwright.program.vector import Memory as Rows
from trainwright_hw.compute.vector.lane import INSTRUCTION_LAYOUT
from trainwright_hw.compute.vector.walker import STREAM_WIDTH

PLACE_WIDTH = (CODE_DEPTH - 1).bit_length()
ROWS_WIDTH = 24


class Blocks(wiring.Component):
    """Remaining rows of a pass, in blocks of ``THREADS``.

    ``start`` takes ``rows``; ``next`` goes on to the next block. ``size`` is the rows of this
    block; ``last`` says that no block follows.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "rows": In(ROWS_WIDTH),
                "next": In(1),
                "size": Out(range(THREADS + 1)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        left = Signal(ROWS_WIDTH)
        m.d.comb += [
            self.last.eq(left <= THREADS),
            self.size.eq(Mux(self.last, left, THREADS)),
        ]
        with m.If(self.start):
            m.d.sync += left.eq(self.rows)
        with m.Elif(self.next):
            m.d.sync += left.eq(left - THREADS)
        return m


class Prefetch(wiring.Component):
    """Walker over a pass's instructions, block by block, that requests a row per cycle.

    ``write`` stores ``instruction`` at ``place``. ``start`` begins a pass of instructions ``entry``
    to ``final`` over ``rows`` rows. A cycle of ``take`` requests the next row of stream ``number``;
    it follows a cycle of ``may``, and requires that fewer than ``depth`` rows are in flight or
    waiting. ``used``: a row was taken.
    """

    def __init__(self, depth: int):
        self._depth = depth
        super().__init__(
            {
                "write": In(1),
                "place": In(PLACE_WIDTH),
                "instruction": In(INSTRUCTION_LAYOUT),
                "start": In(1),
                "entry": In(PLACE_WIDTH),
                "final": In(PLACE_WIDTH),
                "rows": In(ROWS_WIDTH),
                "may": In(1),
                "used": In(1),
                "number": Out(STREAM_WIDTH),
                "take": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.blocks = blocks = Blocks()
        m.submodules.code = code = Memory(shape=1 + STREAM_WIDTH, depth=CODE_DEPTH, init=[])
        writer, reader = code.write_port(), code.read_port(domain="comb")
        active, at, thread = Signal(), Signal(PLACE_WIDTH), Signal(range(THREADS))
        reads, done, ask = reader.data[0], Signal(), Signal()
        # Credit is a register computed a cycle ahead: the comparison of the count is not in the
        # path to the scratchpad.
        rows, credit = Signal(range(self._depth + 1)), Signal(init=1)
        # Count up only where no row leaves in the same cycle, and down only where none is asked.
        with m.If(ask & ~self.used):
            m.d.sync += [rows.eq(rows + 1), credit.eq(rows != self._depth - 1)]
        with m.If(~ask & self.used):
            m.d.sync += [rows.eq(rows - 1), credit.eq(1)]
        m.d.comb += [
            writer.en.eq(self.write),
            writer.addr.eq(self.place),
            # Only these fields of an instruction matter here: whether it reads, and which stream.
            writer.data[0].eq(self.instruction.memory == Rows.READ),
            writer.data[1:].eq(self.instruction.stream),
            reader.addr.eq(at),
            ask.eq(active & reads & credit & self.may),
            # Instructions that read nothing take one cycle here; the walk runs ahead of the
            # execution.
            done.eq(active & (~reads | (ask & (thread == blocks.size - 1)))),
            blocks.start.eq(self.start),
            blocks.rows.eq(self.rows),
            blocks.next.eq(done & (at == self.final)),
        ]
        # A register between the walk over the instructions and the walk over the stream.
        m.d.sync += [self.take.eq(ask), self.number.eq(reader.data[1:])]
        with m.If(ask):
            m.d.sync += thread.eq(thread + 1)
        with m.If(done):
            m.d.sync += [thread.eq(0), at.eq(Mux(at == self.final, self.entry, at + C(1)))]
            with m.If((at == self.final) & blocks.last):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += [active.eq(1), at.eq(self.entry), thread.eq(0)]
        return m
