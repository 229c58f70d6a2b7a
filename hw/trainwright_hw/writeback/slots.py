"""Assignment of the write-back unit's slots, one per cycle, to rows of tiles."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import KINDS, PLAN_AHEAD, ROWS_WIDTH, TILE_LAYOUT, tallest_tile
from trainwright_hw.writeback.tile_rows import TileRows

_ROW = {"number": ROWS_WIDTH, "address": LOCAL_WIDTH, "final": 1, "context": 1}
SLOT_LAYOUT = data.StructLayout({**dict.fromkeys(KINDS, 1), **_ROW})
"""Slot: the kind of array that owns the slot (none if it is free), and the row to write.

Fields of the row: number in the tile, address, whether it is the last row of its command, and the
context of that command.
"""

BLIND = 4
"""Rows of tiles by rows, at most, that get slots after a tile by columns starts."""


class Slots(wiring.Component):
    """Scheduler of one slot per cycle: tiles by columns cannot wait, tiles by rows fill the gaps.

    A tile by columns (``start``, ``tile``) gets a slot for each of its rows, in consecutive cycles
    that begin ``PLAN_AHEAD`` + 1 cycles later. A tile by rows (``row_start``, ``row_tile``),
    allowed while ``ready``, gets a slot for each of its rows, from the next cycle on, in cycles in
    which no tile by columns has the slot and ``row_credit`` was high. ``prompt``: a tile by rows
    can have the slot of the next cycle.

    ``recent``: since the previous tile by columns, tiles by rows had fewer slots than the tallest
    one needs, so that a tile by columns should not start now. ``active``: a tile by rows has rows
    without a slot.

    Further members: ``column_stride`` and ``row_stride``, the strides of the commands of
    ``column_context`` and ``row_context``; ``row_taken``, high while a tile by rows has the slot of
    this cycle; ``slot``, the slot of this cycle.
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
        taken = delay_line(m, columns.valid, PLAN_AHEAD + 1, "taken", reset_less=False)
        of_column = delay_line(m, known.as_value(), PLAN_AHEAD + 1, "of_column")[-1]
        granted = Signal()  # this cycle's slot is free for a tile by rows
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
            self.slot.columns.eq(taken[-1]),
            self.slot.rows.eq(self.row_taken),
            Cat(*(self.slot[name] for name in _ROW)).eq(
                Mux(taken[-1], of_column, of_row.as_value())
            ),
        ]
        # An array sees `recent` two cycles later, and decides in another cycle: hence the 3.
        cycles = max(1, sum(tallest_tile(self._parameters, kind) for kind in KINDS) - 3)
        left = Signal(range(cycles + 1))
        with m.If(self.start):
            m.d.sync += [left.eq(cycles - 1), self.recent.eq(1)]
        with m.Elif(self.recent):
            m.d.sync += [left.eq(left - 1), self.recent.eq(left != 0)]
        return m


def least_credit(parameters: AcceleratorParameters) -> int:
    """Return the free places with which a tile by columns may start.

    Rows of tiles by rows that were granted before take up to ``BLIND`` of them.
    """
    return tallest_tile(parameters, "columns") + BLIND
