"""Operand fetch of PE2: both rows of each step of the loop nest."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe2.operands import Operands
from trainwright_hw.compute.readers import FETCH_DEPTH, RowReader
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.storage.ports import ReadPort, row_layout
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.writeback.ports import ROWS_WIDTH

OPERAND_CYCLES = 2
"""Cycles from the acceptance of a step to its operands."""


class OperandFetch(wiring.Component):
    """Fetcher of both operands of PE3, BIAS and MASK: a step per cycle if the memories keep up.

    ``load``, allowed while ``free``, accepts a command of ``command_context``; ``free`` means that
    all steps of the previous command have started. The step at the output is held while ``valid``,
    and accepted in a cycle of ``valid & ready``:

    - ``first``, ``last``: first and last step of the reduction; ``final``: the command's last step;
      with narrow words ``digit``: a digit begins;
    - ``z``, ``rows``: destination of the tile, and how many of its rows are written;
    - ``context``: context of the step's command.

    Operands follow ``OPERAND_CYCLES`` later, for one cycle: hundreds of registers depend on the few
    bits that accept a step, and so get a cycle of their own.

    - ``x_operand``: the row of the first operand, its words not decoded;
    - ``g_operand``: the second operand. PE3: the group's words in words 0 to ``pe2_rows`` - 1.
      BIAS, MASK: the whole row.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._group_bits = (parameters.lanes // parameters.pe2_rows).bit_length() - 1
        row = row_layout(parameters)
        super().__init__(
            {
                "free": Out(1),
                "load": In(1),
                "command": In(COMPUTE_LAYOUT),
                "command_context": In(1),
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "valid": Out(1),
                "ready": In(1),
                "x_operand": Out(row),
                "g_operand": Out(row),
                "first": Out(1),
                "last": Out(1),
                "final": Out(1),
                "z": Out(LOCAL_WIDTH),
                "rows": Out(ROWS_WIDTH),
                "context": Out(1),
                **({"digit": Out(1)} if parameters.narrow else {}),
            }
        )
        # settings of the command whose steps start
        self._context = Signal()
        self._by_group = Signal()  # PE3: second operands are groups of a row
        self._last_rows = Signal(ROWS_WIDTH)
        self._tile_rows = Signal(ROWS_WIDTH)

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.nest = nest = LoopNest(parameters)
        m.submodules.x_reader = x_reader = RowReader(parameters)
        m.submodules.g_reader = g_reader = RowReader(parameters)
        connect(m, x_reader.port, flipped(self.x))
        connect(m, g_reader.port, flipped(self.g))
        self._take_command(m)

        # --- a step leaves the nest: its rows are read, what else it has waits in a queue ---------

        step = nest.step.payload
        start = Signal()
        taken = Signal()
        rows = Mux(step.tile_last, self._last_rows, self._tile_rows)
        group = step.g & ((1 << self._group_bits) - 1)
        m.submodules.steps = steps = RegisteredQueue(
            width=5 + parameters.narrow + LOCAL_WIDTH + ROWS_WIDTH + self._group_bits,
            depth=FETCH_DEPTH,
            counted=True,
        )
        # Kind of second operand: of the step at the output, and of the step taken a cycle ago,
        # whose rows leave the readers now.
        by_group, group_there = Signal(), Signal(max(1, self._group_bits))
        kinds = Cat(by_group, group_there[: self._group_bits])
        was_taken, was_by_group, was_group = Signal(), Signal(), Signal.like(group_there)
        outputs = (self.first, self.last, self.final, self.z, self.rows, self.context)
        digit = ([self.digit], [step.digit]) if parameters.narrow else ([], [])
        m.d.comb += [
            nest.load.eq(self.load),
            nest.command.eq(self.command),
            self.free.eq(nest.free),
            # All queues fill and empty together except for latency: one credit serves all.
            nest.step.ready.eq(x_reader.credit),
            start.eq(nest.step.valid & nest.step.ready),
            x_reader.start.eq(start),
            x_reader.address.eq(step.x),
            g_reader.start.eq(start),
            g_reader.address.eq(Mux(self._by_group, step.g >> self._group_bits, step.g)),
            steps.w_en.eq(start),
            steps.w_data.eq(
                Cat(
                    *(step.first, step.last, step.final, step.z, rows, self._context),
                    *digit[1],
                    *(self._by_group, group),
                )
            ),
            Cat(*outputs, *digit[0], kinds).eq(steps.r_data),
            self.valid.eq(
                _supply(m, "rows", x_reader, taken) & _supply(m, "second_rows", g_reader, taken)
            ),
            taken.eq(self.valid & self.ready),
            steps.r_en.eq(taken),
            x_reader.ready.eq(was_taken),
            g_reader.ready.eq(was_taken),
        ]

        # --- the rows of a step follow it by a cycle, as operands ---------------------------------

        m.submodules.operands = operands = Operands(parameters)
        m.d.comb += [
            operands.x.eq(x_reader.row),
            operands.g.eq(g_reader.row),
            operands.by_group.eq(was_by_group),
            operands.group.eq(was_group),
            self.x_operand.eq(operands.x_operand),
            self.g_operand.eq(operands.g_operand),
        ]
        m.d.sync += [
            was_taken.eq(taken),
            was_by_group.eq(by_group),
        ]
        if self._group_bits:  # a register that is always 0 confuses yosys' opt_merge
            m.d.sync += was_group.eq(group_there)
        return m

    def _take_command(self, m: Module) -> None:
        """Keep the settings of the command whose steps start next."""
        operation = self.command.operation
        is_contraction = reduce(
            or_, [operation == a.contraction for a in ARRAYS.values() if not a.along_lanes]
        )
        # Follow the offered command while free: that a command is loaded is known late in a cycle.
        with m.If(self.free):
            m.d.sync += [
                self._context.eq(self.command_context),
                self._by_group.eq(is_contraction),
                self._last_rows.eq(Mux(is_contraction, self.command.last_rows, 1)),
                self._tile_rows.eq(Mux(is_contraction, self._parameters.pe2_rows, 1)),
            ]


def _supply(m: Module, name: str, reader: RowReader, taken: Value) -> Signal:
    """Return whether the reader holds a row that no step was taken for.

    It comes from a register, because the reader's own output lags behind by a cycle.
    """
    count, present = (
        Signal(range(FETCH_DEPTH + 1), name=f"{name}_left"),
        Signal(name=f"{name}_there"),
    )
    with m.If(reader.arrives & ~taken):
        m.d.sync += [count.eq(count + 1), present.eq(1)]
    with m.If(~reader.arrives & taken):
        m.d.sync += [count.eq(count - 1), present.eq(count != 1)]
    return present
