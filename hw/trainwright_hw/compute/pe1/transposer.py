"""Transposer of PE1: results come entry by entry and leave row by row."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import row_layout
from trainwright_hw.writeback.result_queue import ROWS_WIDTH, select


class Transposer(wiring.Component):
    """``lanes`` columns of ``pe1_rows`` words in, up to ``pe1_rows`` rows of ``lanes`` words out.

    In a cycle of ``valid``, ``word`` holds the next column of a tile; ``next_valid`` is ``valid``
    of the next cycle. With the last (``complete``; ``rows``, ``z``, ``z_row_stride`` and ``final``
    are read in that cycle) the tile moves to the second half of the ping-pong buffer, and from the
    next cycle on its first ``rows`` rows leave one a cycle (``push``, ``address``, ``row``;
    ``final_row`` with the last of a ``final`` tile) at ``z``, ``z + z_row_stride``, .... A tile is
    never longer in leaving than the next in arriving, so nothing here waits.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._rows = parameters.pe1_rows
        self._lanes = parameters.lanes
        self._word = signed(parameters.word_width)
        super().__init__(
            {
                "next_valid": In(1),
                "valid": In(1),
                "word": In(self._word).array(parameters.pe1_rows),
                "z": In(LOCAL_WIDTH),
                "z_row_stride": In(LOCAL_WIDTH),
                "rows": In(ROWS_WIDTH),
                "final": In(1),
                "complete": Out(1),
                "push": Out(1),
                "address": Out(LOCAL_WIDTH),
                "row": Out(row_layout(parameters)),
                "final_row": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        number = Signal(range(self._lanes))
        with m.If(self.valid):
            m.d.sync += number.eq(number + 1)
        # from a register: a tile's move has a thousand bits
        m.d.sync += self.complete.eq(
            self.next_valid & (number == Mux(self.valid, self._lanes - 2, self._lanes - 1))
        )
        row, remaining = Signal(range(self._rows)), Signal(ROWS_WIDTH)
        stride, final = Signal(LOCAL_WIDTH), Signal()
        m.d.comb += self.final_row.eq(final & (remaining == 0))
        with m.If(self.complete):
            m.d.sync += [
                self.push.eq(1),
                row.eq(0),
                remaining.eq(self.rows - 1),
                self.address.eq(self.z),
                stride.eq(self.z_row_stride),
                final.eq(self.final),
            ]
        with m.Elif(self.push):
            m.d.sync += [
                self.push.eq(remaining != 0),
                row.eq(row + 1),
                remaining.eq(remaining - 1),
                self.address.eq(self.address + stride),
            ]
        for lane in range(self._lanes):
            leaving = [
                Signal(self._word, name=f"leaving_{r}_{lane}", reset_less=True)
                for r in range(self._rows)
            ]
            arriving = self.word
            if lane < self._lanes - 1:  # the last column needs no place to wait
                arriving = [
                    Signal(self._word, name=f"arriving_{r}_{lane}", reset_less=True)
                    for r in range(self._rows)
                ]
                with m.If(self.valid & (number == lane)):
                    m.d.sync += [to.eq(word) for to, word in zip(arriving, self.word, strict=True)]
            with m.If(self.complete):
                m.d.sync += [to.eq(word) for to, word in zip(leaving, arriving, strict=True)]
            m.d.comb += self.row[lane].eq(select(leaving, row))
        return m
