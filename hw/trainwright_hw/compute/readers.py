"""Reader of scratchpad rows in the order of their addresses."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import ReadPort, row_layout
from trainwright_hw.stream.registered_queue import RegisteredQueue, counted_queue

FETCH_DEPTH = 16
"""Rows between nest and array: cover the scratchpad's latency and its bank conflicts."""


class RowReader(wiring.Component):
    """Reader of scratchpad rows in the order of their addresses, limited by credit.

    A cycle of ``start``, allowed only while ``credit``, queues ``address``. The row appears later
    at the output, where it is held while ``valid`` and taken in a cycle of ``valid & ready``.
    ``level`` counts the rows at the output; a cycle of ``arrives`` adds another row. Throughput is
    a row per cycle; latency is six cycles from ``start`` to ``valid`` if the scratchpad grants the
    request at once. Up to ``depth`` rows are requested ahead. ``unregistered``: the row comes later
    in its cycle, for fewer LUTs.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        depth: int = FETCH_DEPTH,
        unregistered: bool = False,
    ):
        self._depth, self._unregistered = depth, unregistered
        super().__init__(
            {
                "start": In(1),
                "address": In(LOCAL_WIDTH),
                "credit": Out(1, init=1),
                "port": Out(ReadPort(parameters)),
                "valid": Out(1),
                "ready": In(1),
                "row": Out(row_layout(parameters)),
                "arrives": Out(1),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        request = self.port.request
        m.submodules.addresses = addresses = RegisteredQueue(width=LOCAL_WIDTH, depth=self._depth)
        m.submodules.rows = rows = counted_queue(
            width=len(self.row.as_value()), depth=self._depth, unregistered=self._unregistered
        )
        m.d.comb += [
            addresses.w_en.eq(self.start),
            addresses.w_data.eq(self.address),
            request.valid.eq(addresses.r_rdy),
            request.payload.eq(addresses.r_data),
            addresses.r_en.eq(request.ready),
            rows.w_en.eq(self.port.valid),
            rows.w_data.eq(self.port.row.as_value()),
            self.valid.eq(rows.r_rdy),
            self.row.as_value().eq(rows.r_data),
            self.arrives.eq(self.port.valid),
            self.level.eq(rows.level),
            rows.r_en.eq(self.ready),
        ]
        # Responses cannot be back-pressured, so a place in `rows` is reserved when the address is
        # queued. It is released a cycle after its row is taken, because that is known late in a
        # cycle.
        in_flight = Signal(range(self._depth + 1))
        taken = Signal()
        m.d.sync += taken.eq(self.valid & self.ready)
        with m.If(self.start & ~taken):
            m.d.sync += [in_flight.eq(in_flight + 1), self.credit.eq(in_flight != self._depth - 1)]
        with m.If(~self.start & taken):
            m.d.sync += [in_flight.eq(in_flight - 1), self.credit.eq(1)]
        return m
