"""Which engine has the write-back unit's slot of each cycle, and what leaves in it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import AHEAD, ROWS_WIDTH, TILE_LAYOUT
from trainwright_hw.writeback.tile_rows import TileRows

_ROW = {"number": ROWS_WIDTH, "address": LOCAL_WIDTH, "final": 1, "context": 1}
SLOT_LAYOUT = data.StructLayout({"pe1": 1, "pe2": 1, **_ROW})
"""A slot: whether it is one of PE1 or of PE2; the number of its row in the tile, the row's address,
whether it is the last one of its command, and the command's context."""

BLIND = 4
"""Rows of PE2 whose slots are granted before a tile of PE1 counts."""


class Slots(wiring.Component):
    """A slot a cycle: PE1's rows come when they come, PE2's take what they leave.

    A tile of PE1 (``start``, ``tile``) has a slot for each of its rows from ``AHEAD`` + 1 cycles
    later on. A tile of PE2 (``row_start``, ``row_tile``), allowed while ``ready``, has one for each
    of its rows, from the next cycle on, where PE1 has none and there is ``row_credit``;
    ``prompt``: in the next cycle it has.

    ``recent``: a tile of PE1 that started at once now would leave PE2 less than ``pe2_rows`` slots
    since the one before. ``active``: PE2 has rows that have no slot yet.

    Members: also ``column_stride`` and ``row_stride``, those of ``column_context`` and
    ``row_context``; ``row_taken``: PE2 has this cycle's slot; ``slot``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "tile": In(TILE_LAYOUT),
                "column_context": Out(1),
                "column_stride": In(LOCAL_WIDTH),
                "row_start": In(1),
                "row_tile": In(TILE_LAYOUT),
                "row_context": Out(1),
                "row_stride": In(LOCAL_WIDTH),
                "row_credit": In(1),
                "row_taken": Out(1),
                "ready": Out(1),
                "prompt": Out(1),
                "recent": Out(1),
                "active": Out(1),
                "slot": Out(SLOT_LAYOUT),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.columns = columns = TileRows()
        m.submodules.rows = rows = TileRows()
        fields = data.StructLayout(_ROW)
        known, of_row = Signal(fields), Signal(fields)
        for view, source in ((known, columns), (of_row, rows)):
            m.d.comb += [view[name].eq(getattr(source, name)) for name in _ROW]
        taken = delay_line(m, columns.valid, AHEAD + 1, "taken", reset_less=False)
        of_column = delay_line(m, known.as_value(), AHEAD + 1, "of_column")[-1]
        granted = Signal()  # this cycle's slot is PE2's if it wants it
        m.d.sync += [self.prompt.eq(~taken[-3] & self.row_credit), granted.eq(self.prompt)]
        m.d.comb += [
            columns.start.eq(self.start),
            columns.tile.eq(self.tile),
            columns.take.eq(1),
            self.column_context.eq(columns.context),
            columns.stride.eq(self.column_stride),
            rows.start.eq(self.row_start),
            rows.tile.eq(self.row_tile),
            rows.take.eq(granted),
            self.row_context.eq(rows.context),
            rows.stride.eq(self.row_stride),
            self.row_taken.eq(rows.valid & granted),
            self.ready.eq(~rows.valid | (rows.last & granted)),
            self.active.eq(rows.valid),
            self.slot.pe1.eq(taken[-1]),
            self.slot.pe2.eq(self.row_taken),
            Cat(*(self.slot[name] for name in _ROW)).eq(
                Mux(taken[-1], of_column, of_row.as_value())
            ),
        ]
        # PE1 learns of it in the next cycle but one, and what it then decides is known a cycle late
        cycles = max(1, self._parameters.pe1_rows + self._parameters.pe2_rows - 3)
        left = Signal(range(cycles + 1))
        with m.If(self.start):
            m.d.sync += [left.eq(cycles - 1), self.recent.eq(1)]
        with m.Elif(self.recent):
            m.d.sync += [left.eq(left - 1), self.recent.eq(left != 0)]
        return m


def least_credit(parameters: AcceleratorParameters) -> int:
    """Free places with which a tile of PE1 may start, whatever PE2 was granted meanwhile."""
    return parameters.pe1_rows + BLIND
