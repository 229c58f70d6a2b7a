"""Operand fetch of PE4: the steps of the nest, and the rows that each step needs."""

from amaranth.hdl import C, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe1.entry_fetch import EntryFetch
from trainwright_hw.compute.readers import FETCH_DEPTH, RowReader
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.storage.ports import ReadPort, row_layout
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.writeback.ports import ROWS_WIDTH

STEPS_DEPTH = 16
"""Steps whose rows may be in flight: more than there are rows in flight."""


def step_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out one step: its tile, its place in reduction and command, its command's context.

    With narrow words also whether a digit begins with the step.
    """
    return data.StructLayout({**STEP_MEMBERS, **({"digit": 1} if parameters.narrow else {})})


STEP_MEMBERS = {
    "z": LOCAL_WIDTH,
    "rows": ROWS_WIDTH,
    "first": 1,
    "last": 1,
    "final": 1,
    "context": 1,
}


class StepFetch(wiring.Component):
    """Fetcher of the ``pe1_rows`` rows of each step of the nest, and of its entries.

    ``load`` takes a command of ``command_context`` while ``free``, which means that every row of
    the previous command was requested. Rows appear at ``row`` in order, ``pe1_rows`` per step, as
    from ``RowReader``. Steps appear at ``step``, held while ``step_valid``, which means that all
    entries have arrived. A cycle of ``step_ready`` (only while ``step_valid``) takes the step; its
    entries then appear at ``entry``, and each cycle of ``entry_ready`` removes one. Throughput is a
    row and an entry per cycle, without gaps between steps.

    With posits or address checks, rows of a tile past ``last_rows`` repeat the last valid row,
    because memory there may hold no numbers or not exist.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "free": Out(1),
                "load": In(1),
                "command": In(COMPUTE_LAYOUT),
                "command_context": In(1),
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "row_valid": Out(1),
                "row_ready": In(1),
                "row": Out(row_layout(parameters)),
                "level": Out(range(FETCH_DEPTH + 1)),
                "step_valid": Out(1),
                "step_ready": In(1),
                "step": Out(step_layout(parameters)),
                "entry_ready": In(1),
                "entry": Out(row_layout(parameters)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        rows = self._parameters.pe1_rows
        m.submodules.nest = nest = LoopNest(self._parameters)
        m.submodules.reader = reader = RowReader(self._parameters)
        # Rows and steps are queued apart: rows are requested long before the array takes their
        # step.
        m.submodules.steps = steps = RegisteredQueue(
            width=self.step.shape().size, depth=STEPS_DEPTH
        )
        m.submodules.entries = entries = EntryFetch(self._parameters)
        connect(m, reader.port, flipped(self.x))
        connect(m, entries.g, flipped(self.g))

        # --- settings of the command whose steps start --------------------------------------------

        last_rows, stride = Signal(ROWS_WIDTH), Signal(LOCAL_WIDTH)
        context = Signal()
        # Follow the offered command while free: that a command is loaded is known late in a cycle.
        with m.If(self.free):
            m.d.sync += [
                last_rows.eq(self.command.last_rows),
                stride.eq(self.command.x_row_stride),
                context.eq(self.command_context),
            ]

        # --- a row of the tile is requested in every cycle ----------------------------------------

        # The first address of a step comes from the nest; later ones add the row stride.
        step = nest.step.payload
        row, address, start = Signal(range(rows)), Signal(LOCAL_WIDTH), Signal()
        is_first, credit = Signal(init=1), Signal()
        # The next step's address is ready while the last rows of the present one are requested.
        now = Mux(is_first, step.x, address)
        tile_rows = Mux(step.tile_last, last_rows, rows)
        m.d.comb += [
            # A step starts only if both queues take it: its rows and its entries belong together.
            credit.eq(steps.w_rdy & entries.credit),
            start.eq(reader.credit & Mux(is_first, nest.step.valid & credit, 1)),
            self.free.eq(nest.free & is_first),
            nest.step.ready.eq(start & is_first),
            reader.start.eq(start),
            reader.address.eq(now),
        ]
        with m.If(start):
            m.d.sync += [
                row.eq(row + 1),
                is_first.eq(row == rows - 1),
                address.eq(now + Mux(self._more(m, tile_rows, start, is_first), stride, 0)),
            ]

        # --- the step waits in a queue until all of its entries are there -------------------------

        entry = data.View(self.step.shape(), steps.w_data)
        copied = ("z", "first", "last", "final", *(["digit"] if self._parameters.narrow else []))
        m.d.comb += [
            nest.load.eq(self.load),
            nest.command.eq(self.command),
            steps.w_en.eq(nest.step.valid & nest.step.ready),
            *(entry[name].eq(step[name]) for name in copied),
            entry.rows.eq(tile_rows),
            entry.context.eq(context),
            self.row_valid.eq(reader.valid),
            reader.ready.eq(self.row_ready),
            self.row.eq(reader.row),
            self.level.eq(reader.level),
            self.step_valid.eq(steps.r_rdy & entries.whole),
            steps.r_en.eq(self.step_ready),
            self.step.as_value().eq(steps.r_data),
            entries.configure.eq(self.load),
            entries.configure_context.eq(self.command_context),
            entries.stride.eq(self.command.g_row_stride),
            entries.step.eq(steps.w_en),
            entries.context.eq(context),
            entries.address.eq(step.g),
            entries.claim.eq(self.step_ready),
            entries.take.eq(self.entry_ready),
            self.entry.eq(entries.row),
        ]
        return m

    # Without coded formats any stored word is a number, and a row too many is harmless.
    def _more(self, m: Module, tile_rows: Value, start: Value, is_first: Value) -> Value:
        """Return whether another row of the tile follows the requested one."""
        if not (self._parameters.formats or self._parameters.address_checks):
            return C(1, 1)
        left = Signal(ROWS_WIDTH)  # rows of the tile that follow
        left_now = Mux(is_first, tile_rows - 1, left)
        with m.If(start & (left_now != 0)):
            m.d.sync += left.eq(left_now - 1)
        return left_now != 0
