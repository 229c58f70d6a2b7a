"""Results on their way to the scratchpad, and the credits taken for them beforehand."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import WritePort, banks_asked, row_layout
from trainwright_hw.stream.registered_queue import RegisteredQueue

ROWS_WIDTH = 5
"""Bits of a number of rows, 1 to 16."""


def select(values: Sequence[Value], index: Value) -> Value:
    """``values[index]``, 2^n of them, as a balanced tree of multiplexers."""
    level = list(values)
    for bit in index[: (len(level) - 1).bit_length()]:
        level = [Mux(bit, b, a) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


class ResultQueue(wiring.Component):
    """``depth`` rows between an engine and its write port.

    An engine takes credit for a tile (``reserve``, ``reserve_rows``) before it starts what cannot
    be back-pressured, and only while ``credit`` (``tile_rows`` places are free); it pushes exactly
    the rows it reserved. So nothing between the operands and this queue ever waits. ``final`` marks
    the last row of a command; ``final_written`` is high in the cycle in which the port takes it.

    ``back_pressured``: in the cycle before, a row waited for the port.

    Members: ``reserve``, ``reserve_rows``, ``credit``; ``push`` with ``address``, ``row`` and
    ``final``; ``final_written``; ``z``, the write port. One row a cycle; a row is offered the cycle
    after its push.
    """

    def __init__(self, parameters: AcceleratorParameters, *, tile_rows: int, depth: int):
        if depth < 2 * tile_rows:
            raise ValueError(f"depth must be at least two tiles ({2 * tile_rows}), not {depth!r}")
        self._parameters = parameters
        self._tile_rows = tile_rows
        self._depth = depth
        super().__init__(
            {
                "reserve": In(1),
                "reserve_rows": In(ROWS_WIDTH),
                "credit": Out(1, init=1),
                "push": In(1),
                "final": In(1),
                "final_written": Out(1),
                "back_pressured": Out(1),
                "address": In(LOCAL_WIDTH),
                "row": In(row_layout(parameters)),
                "z": Out(WritePort(parameters)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        request = self.z.request
        banks = len(self.z.banks)
        width = banks + LOCAL_WIDTH + 1
        m.submodules.places = places = RegisteredQueue(width=width, depth=self._depth, counted=True)
        m.submodules.rows = rows = RegisteredQueue(
            width=len(self.row.as_value()), depth=self._depth, counted=True
        )
        # The oldest places, and one that finds none before it. What the arbiters grant is known
        # late: it ends here, and not in the deep queue.
        m.submodules.next_places = ahead = RegisteredQueue(width=width, depth=2, flags=banks)
        new = Cat(banks_asked(self._parameters, Const(1), self.address), self.address, self.final)
        free = Signal(range(self._depth + 1), init=self._depth)
        left = Signal.like(free)
        accepted, final = Signal(), Signal()
        # a place was, a cycle ago: the arbiters end long paths, and a row has many bits
        returned = Signal()
        m.d.comb += [
            places.w_en.eq(self.push & (places.r_rdy | ~ahead.w_rdy)),
            places.w_data.eq(new),
            places.r_en.eq(ahead.w_rdy),
            ahead.w_en.eq(self.push | places.r_rdy),
            ahead.w_data.eq(Mux(places.r_rdy, places.r_data, new)),
            rows.w_en.eq(self.push),
            rows.w_data.eq(self.row),
            request.valid.eq(ahead.r_rdy),
            Cat(self.z.banks, request.payload, final).eq(ahead.r_data),
            ahead.r_en.eq(request.ready),
            self.z.row.eq(rows.r_data),
            rows.r_en.eq(returned),
        ]
        m.d.comb += [
            accepted.eq(request.valid & request.ready),
            self.final_written.eq(accepted & final),
            left.eq(free - Mux(self.reserve, self.reserve_rows, 0) + returned),
        ]
        m.d.sync += [
            returned.eq(accepted),
            self.back_pressured.eq(request.valid & ~request.ready),
            free.eq(left),
            self.credit.eq(left >= self._tile_rows),
        ]
        return m
