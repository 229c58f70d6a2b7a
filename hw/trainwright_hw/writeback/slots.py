"""Which engine has the write-back unit's slot of each cycle, and what leaves in it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import COLUMN_LEAD, ROW_LEAD, ROWS_WIDTH, TILE_LAYOUT
from trainwright_hw.writeback.tile_rows import TileRows

SLOT_LAYOUT = data.StructLayout(
    {
        "columns": 1,
        "rows": 1,
        "written": 1,
        "number": ROWS_WIDTH,
        "address": LOCAL_WIDTH,
        "final": 1,
        "context": 1,
    }
)
"""A slot: whether it is a column's of PE1 or a row's of PE2; a row that leaves in it (``written``),
its number in its tile, its address, whether it is the last of its command, and the context."""

AHEAD = COLUMN_LEAD - ROW_LEAD + 1
"""Cycles from a column's announcement to the slot that it has."""
BLIND = 4
"""Rows of PE2 whose slots are granted before a tile of PE1 counts."""


class Slots(wiring.Component):
    """A slot a cycle: PE1's columns come when they come, PE2's rows take what they leave.

    A tile of PE1 (``start``, ``tile``) has the slots ``AHEAD`` cycles after each one of ``column``.
    It takes ``lanes`` slots, and its rows leave in the first of them. A tile of PE2 (``row_start``,
    ``row_tile``), allowed while ``ready``, has a slot for each of its rows, from the next cycle on,
    where PE1 has none and there is ``row_credit``; ``prompt``: in the next cycle it has.

    ``recent``: tiles of PE1 that started at once now would leave PE2 less than ``pe2_rows`` slots
    since the one before. ``active``: PE2 has rows that wait, or take slots.

    Members: also ``column_stride`` and ``row_stride``, those of ``column_context`` and
    ``row_context``; ``slot``, with ``origin`` the address where the column's tile begins, and
    ``entry`` the column's number.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "column": In(1),
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
                "entry": Out(range(parameters.lanes)),
                "origin": Out(LOCAL_WIDTH),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self._parameters
        m.submodules.columns = columns = TileRows()
        m.submodules.rows = rows = TileRows()
        window = delay_line(m, self.column, AHEAD + 1, "window", reset_less=False)
        start = delay_line(m, self.start, AHEAD, "start", reset_less=False)
        tile = Signal(TILE_LAYOUT, reset_less=True)
        with m.If(self.start):
            m.d.sync += tile.eq(self.tile)
        granted = Signal()  # this cycle's slot is PE2's if it wants it
        m.d.sync += [self.prompt.eq(~window[-3] & self.row_credit), granted.eq(self.prompt)]
        m.d.comb += [
            columns.start.eq(start[-1]),
            columns.tile.eq(tile),
            columns.take.eq(window[-1]),
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
        ]
        slot, of_column = self.slot, window[-1]
        m.d.comb += [
            slot.columns.eq(of_column),
            slot.rows.eq(self.row_taken),
            slot.written.eq((of_column & columns.valid) | self.row_taken),
            *(
                slot[name].eq(Mux(of_column, getattr(columns, name), getattr(rows, name)))
                for name in ("number", "address", "final", "context")
            ),
        ]
        # all tiles of PE1 have as many slots, so that no start is needed to count them
        with m.If(of_column):
            m.d.sync += self.entry.eq(self.entry + 1)
        if p.stochastic_rounding:
            with m.If(columns.start):
                m.d.sync += self.origin.eq(tile.z)
        # a start is known two cycles after it was decided, and `recent` in the next but one
        cycles = p.lanes + p.pe2_rows - 3
        left = Signal(range(cycles + 1))
        with m.If(self.start):
            m.d.sync += [left.eq(cycles - 1), self.recent.eq(1)]
        with m.Elif(self.recent):
            m.d.sync += [left.eq(left - 1), self.recent.eq(left != 0)]
        return m


def least_credit(parameters: AcceleratorParameters) -> int:
    """Free places with which a tile of PE1 may start, whatever PE2 was granted meanwhile."""
    return parameters.pe1_rows + BLIND
