"""Results on their way to the scratchpad, and the credit reserved for them beforehand."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import WritePort, banks_asked
from trainwright_hw.stream.registered_queue import RegisteredQueue, counted_queue
from trainwright_hw.writeback.digits import (
    LEVEL_WIDTH,
    DigitPlaces,
    digits_of,
    whole_row_layout,
)
from trainwright_hw.writeback.ports import KINDS, ROWS_WIDTH


class ResultQueue(wiring.Component):
    """Queue of ``depth`` rows of both kinds between the write-back unit and the scratchpad.

    Credit is taken for a row before it is started, because it cannot be back-pressured afterwards:
    for ``reserve_rows`` rows in a cycle of ``reserve``, and for one in a cycle of ``reserve_row``.
    ``left`` places are left then. Rows may be pushed in any order; they leave in the order of their
    pushes.

    ``kind`` is the row's. ``final`` marks the last row of a command; ``final_written``, one bit
    per kind, is high in the cycle in which the port takes it. ``back_pressured``: in the cycle
    before, a row of that kind waited for the port.

    With wide tensors rows hold whole values, and ``highest`` is the level of their highest digit:
    the port is offered each digit as a row of its own, at the next address; statements above about
    a leaving row then apply to its last digit.

    ``unregistered``: rows and their destinations come later in their cycles, with fewer LUTs.

    Members: also ``push`` with ``address`` and ``row``; ``z``, the write port; ``writer``, the
    kind whose row is offered there. Throughput is one row per cycle; a row is offered the cycle
    after its push.
    """

    def __init__(
        self, parameters: AcceleratorParameters, *, depth: int, unregistered: bool = False
    ):
        self._parameters = parameters
        self._depth, self._unregistered = depth, unregistered
        super().__init__(
            {
                "reserve": In(1),
                "reserve_rows": In(ROWS_WIDTH),
                "reserve_row": In(1),
                "left": Out(range(depth + 1)),
                "push": In(1),
                "kind": In(1),
                "final": In(1),
                "final_written": Out(len(KINDS)),
                "back_pressured": Out(len(KINDS)),
                "address": In(LOCAL_WIDTH),
                "row": In(whole_row_layout(parameters)),
                **({"highest": In(LEVEL_WIDTH)} if parameters.wide_tensors else {}),
                "z": Out(WritePort(parameters)),
                "writer": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        request = self.z.request
        rows = counted_queue(
            width=len(self.row.as_value()), depth=self._depth, unregistered=self._unregistered
        )
        # Credit counts places that are reserved, not places that are used: rows between the
        # reservation and the push are included.
        free = Signal(range(self._depth + 1), init=self._depth)
        accepted, final = Signal(), Signal()
        # registered: the arbiters end long paths, and a row has many bits
        returned = Signal()
        through = self._digits if self._parameters.wide_tensors else self._rows
        is_whole = through(m, rows, final)
        writers = Cat(~self.writer, self.writer)
        m.d.comb += [
            rows.r_en.eq(returned),
            accepted.eq(request.valid & request.ready),
            self.final_written.eq(Mux(accepted & final, writers, 0)),
            # Combinational, so that an engine sees this cycle's reservations; the register below
            # keeps it.
            self.left.eq(
                free - Mux(self.reserve, self.reserve_rows, 0) + returned - self.reserve_row
            ),
        ]
        m.d.sync += [
            returned.eq(accepted if is_whole is None else accepted & is_whole),
            self.back_pressured.eq(Mux(request.valid & ~request.ready, writers, 0)),
            free.eq(self.left),
        ]
        return m

    def _rows(self, m: Module, rows: RegisteredQueue | SyncFIFO, final: Signal) -> None:
        """Offer each row, whole as it is."""
        request = self.z.request
        banks = len(self.z.banks)
        width = banks + LOCAL_WIDTH + 2
        m.submodules.places = places = RegisteredQueue(
            width=width, depth=self._depth, counted=True, flags=banks if self._unregistered else 0
        )
        m.submodules.rows = rows
        asked = banks_asked(self._parameters, Const(1), self.address)
        new = Cat(asked, self.address, self.final, self.kind)
        m.d.comb += places.w_data.eq(new)
        if self._unregistered:
            ahead = places
            m.d.comb += places.w_en.eq(self.push)
        else:
            # A short queue holds the oldest places, and takes the arbiters' late grants in place of
            # the deep queue.
            m.submodules.next_places = ahead = RegisteredQueue(width=width, depth=2, flags=banks)
            m.d.comb += [
                # A row that finds both queues empty goes straight to the short one: offered a cycle
                # after its push.
                places.w_en.eq(self.push & (places.r_rdy | ~ahead.w_rdy)),
                places.r_en.eq(ahead.w_rdy),
                ahead.w_en.eq(self.push | places.r_rdy),
                ahead.w_data.eq(Mux(places.r_rdy, places.r_data, new)),
            ]
        m.d.comb += [
            rows.w_en.eq(self.push),
            rows.w_data.eq(self.row),
            request.valid.eq(ahead.r_rdy),
            Cat(self.z.banks, request.payload, final, self.writer).eq(ahead.r_data),
            ahead.r_en.eq(request.ready),
            self.z.row.eq(rows.r_data),
        ]

    def _digits(self, m: Module, rows: RegisteredQueue | SyncFIFO, final: Signal) -> Value:
        """Offer each digit of each row; return whether the digit at the port is its row's last."""
        request = self.z.request
        m.submodules.places = places = DigitPlaces(self._parameters, depth=self._depth)
        m.submodules.rows = rows
        digit, place = places.digit, places.place
        level, is_highest = Signal.like(digit.level), Signal()  # of the accepted digit
        whole = data.View(whole_row_layout(self._parameters), rows.r_data)
        m.d.sync += [level.eq(digit.level), is_highest.eq(digit.is_highest)]
        m.d.comb += [
            places.push.eq(self.push),
            *(place[name].eq(getattr(self, name)) for name in place.shape().members),
            rows.w_en.eq(self.push),
            rows.w_data.eq(self.row),
            request.valid.eq(places.valid),
            request.payload.eq(digit.address),
            self.z.banks.eq(digit.banks),
            final.eq(digit.final),
            self.writer.eq(digit.kind),
            places.ready.eq(request.ready),
            self.z.row.eq(digits_of(m, self._parameters, whole, level, is_highest)),
        ]
        return digit.level == 0
