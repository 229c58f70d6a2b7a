"""Rows of one tile, in order."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.writeback.ports import ROWS_WIDTH, TILE_LAYOUT


class TileRows(wiring.Component):
    """Generator of the numbers and addresses of a tile's rows; each is held until ``take``.

    ``start`` with ``tile`` is allowed while ``valid`` is low and in the cycle that takes the last
    row: the first row follows in the next cycle. ``last``: the tile's last row; ``final``: the
    command's. ``stride`` is the stride of the command of ``context``.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "tile": In(TILE_LAYOUT),
                "stride": In(LOCAL_WIDTH),
                "take": In(1),
                "valid": Out(1),
                "number": Out(ROWS_WIDTH),
                "address": Out(LOCAL_WIDTH),
                "last": Out(1),
                "final": Out(1),
                "context": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        left = Signal(ROWS_WIDTH)  # rows after this one
        final = Signal()
        m.d.comb += self.final.eq(final & self.last)
        with m.If(self.start):
            m.d.sync += [
                self.valid.eq(1),
                self.number.eq(0),
                self.address.eq(self.tile.z),
                left.eq(self.tile.rows - 1),
                self.last.eq(self.tile.rows == 1),
                final.eq(self.tile.final),
                self.context.eq(self.tile.context),
            ]
        with m.Elif(self.take):
            m.d.sync += [
                self.valid.eq(self.valid & ~self.last),
                self.number.eq(self.number + 1),
                self.address.eq(self.address + self.stride),
                left.eq(left - 1),
                self.last.eq(left == 1),
            ]
        return m
