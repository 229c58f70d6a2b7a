"""Assignment of the write-back unit's slots, one per cycle, to engines."""

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
"""Slot: the engine that owns the slot (none if it is free), and the row to write.

Fields of the row: number in the tile, address, whether it is the last row of its command, and the
context of that command.
"""

BLIND = 4
"""Rows of PE2, at most, that still get slots after a tile of PE1 starts, before PE2 is held off."""


class Slots(wiring.Component):
    """Scheduler of one slot per cycle: PE1's rows cannot wait, PE2's rows fill the gaps.

    A tile of PE1 (``start``, ``tile``) gets a slot for each of its rows, in consecutive cycles that
    begin ``AHEAD`` + 1 cycles later. A tile of PE2 (``row_start``, ``row_tile``), allowed while
    ``ready``, gets a slot for each of its rows, from the next cycle on, in cycles in which PE1 has
    no slot and ``row_credit`` was high. ``prompt``: PE2 can have the slot of the next cycle.

    ``recent``: the previous tile of PE1 left PE2 fewer than ``pe2_rows`` slots so far, so that a
    tile of PE1 should not start now. ``active``: PE2 has rows without a slot.

    Further members: ``column_stride`` (PE1) and ``row_stride`` (PE2), the strides of the commands
    of ``column_context`` and ``row_context``; ``row_taken``, high while PE2 has the slot of this
    cycle; ``slot``, the slot of this cycle.
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
        granted = Signal()  # this cycle's slot is free for PE2
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
        # PE1 sees `recent` two cycles later, and its decision takes another cycle: hence the 3.
        cycles = max(1, self._parameters.pe1_rows + self._parameters.pe2_rows - 3)
        left = Signal(range(cycles + 1))
        with m.If(self.start):
            m.d.sync += [left.eq(cycles - 1), self.recent.eq(1)]
        with m.Elif(self.recent):
            m.d.sync += [left.eq(left - 1), self.recent.eq(left != 0)]
        return m


def least_credit(parameters: AcceleratorParameters) -> int:
    """Return the free places with which a tile of PE1 may start, despite PE2's pending grants."""
    return parameters.pe1_rows + BLIND
