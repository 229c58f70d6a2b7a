"""Operand fetch of PE1: the steps of the nest, and the rows that each makes stationary."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out, connect, flipped

from ttforge.parameters import AcceleratorParameters
from ttforge.program.fields import LOCAL_WIDTH
from ttforge_hw.drain import ROWS_WIDTH
from ttforge_hw.fetch import FETCH_DEPTH, RowReader
from ttforge_hw.nest import LoopNest
from ttforge_hw.ports import COMPUTE_LAYOUT, ReadPort, row_layout

STEPS_DEPTH = 16
"""Steps whose rows may be on their way: more than there are rows in flight."""

STEP_LAYOUT = data.StructLayout(
    {"g": LOCAL_WIDTH, "z": LOCAL_WIDTH, "rows": ROWS_WIDTH, "first": 1, "last": 1, "final": 1}
)
"""One step: its first store entry, the tile it belongs to, its place in reduction and command."""


class StepFetch(wiring.Component):
    """Walks the nest and fetches the ``pe1_rows`` rows of each step.

    ``load`` takes a command. Rows come at ``row`` in order, ``pe1_rows`` a step, as of
    ``RowReader``; steps at ``step``, held while ``step_valid`` and taken in a cycle of
    ``step_ready`` (only while ``step_valid``). A row a cycle; no gap between steps.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "load": In(1),
                "command": In(COMPUTE_LAYOUT),
                "x": Out(ReadPort(parameters)),
                "row_valid": Out(1),
                "row_ready": In(1),
                "row": Out(row_layout(parameters)),
                "level": Out(range(FETCH_DEPTH + 1)),
                "step_valid": Out(1),
                "step_ready": In(1),
                "step": Out(STEP_LAYOUT),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        rows = self._parameters.pe1_rows
        m.submodules.nest = nest = LoopNest(self._parameters)
        m.submodules.reader = reader = RowReader(self._parameters)
        m.submodules.steps = steps = SyncFIFO(width=STEP_LAYOUT.size, depth=STEPS_DEPTH)
        connect(m, reader.port, flipped(self.x))

        last_rows, stride = Signal(ROWS_WIDTH), Signal(LOCAL_WIDTH)
        with m.If(self.load):
            m.d.sync += [
                last_rows.eq(self.command.last_rows),
                stride.eq(self.command.x_row_stride),
            ]
        # The first row of a step is requested as the nest gives it, the others count up.
        step = nest.step.payload
        row, address, start = Signal(range(rows)), Signal(LOCAL_WIDTH), Signal()
        is_first = row == 0
        now = Mux(is_first, step.x, address)
        m.d.comb += [
            start.eq(reader.room & Mux(is_first, nest.step.valid & steps.w_rdy, 1)),
            nest.step.ready.eq(start & is_first),
            reader.start.eq(start),
            reader.address.eq(now),
        ]
        with m.If(start):
            m.d.sync += [row.eq(row + 1), address.eq(now + stride)]

        entry = data.View(STEP_LAYOUT, steps.w_data)
        m.d.comb += [
            nest.load.eq(self.load),
            nest.command.eq(self.command),
            steps.w_en.eq(nest.step.valid & nest.step.ready),
            *(entry[name].eq(step[name]) for name in ("g", "z", "first", "last", "final")),
            entry.rows.eq(Mux(step.tile_last, last_rows, rows)),
            self.row_valid.eq(reader.valid),
            reader.ready.eq(self.row_ready),
            self.row.eq(reader.row),
            self.level.eq(reader.level),
            self.step_valid.eq(steps.r_rdy),
            steps.r_en.eq(self.step_ready),
            self.step.as_value().eq(steps.r_data),
        ]
        return m
