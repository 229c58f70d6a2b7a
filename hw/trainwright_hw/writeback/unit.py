"""The write-back unit: encoder, statistics and result queue of the arrays."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.random_bits import LANE_WIDTH, RANDOM_CYCLES, RandomBits
from trainwright_hw.arith.select import select
from trainwright_hw.control.command_contexts import per_port
from trainwright_hw.control.engine_ports import StatisticsPort, slot_width
from trainwright_hw.storage.ports import WritePort
from trainwright_hw.stream.delay_line import delay_line, skew
from trainwright_hw.writeback.digits import highest_level
from trainwright_hw.writeback.lanes import EncodedLanes, chosen
from trainwright_hw.writeback.ports import (
    KINDS,
    TILE_LAYOUT,
    ColumnPort,
    RowPort,
    column_lead,
    row_lead,
    tallest_tile,
)
from trainwright_hw.writeback.result_queue import ResultQueue
from trainwright_hw.writeback.slots import BLIND, SLOT_LAYOUT, Slots, least_credit
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

BANK = 16
"""Words of a distributed RAM."""


class WriteBack(wiring.Component):
    """Unit from sums of all arrays to rows of the scratchpad: encoded, counted, queued.

    There is a port for each kind of array (``KINDS``), which one array uses at a time.

    In each cycle one slot, of a row of either kind (``Slots``), passes the encoder of the
    accelerator's number format (in fixed point the requantiser): value n on lane n, n cycles after
    value 0; the words are then aligned.

    A tile comes by columns or by rows. By columns, unit r of the array delivers its value of column
    n in cycle n + r of the tile. Row r passes the encoder from cycle r on, so lane n needs its
    value for row r in cycle r + n, the same cycle. Lane n therefore takes the value of unit r, and
    the tile is transposed without a buffer, in as many slots as it has rows.

    With wide tensors values have up to 16 bits, still with one slot and one statistic each; the
    result queue writes them in words, digit by digit.

    Members: ``columns``, ``rows``: the ports; ``statistics``; ``z``, a write port of the
    scratchpad; ``writer``, the kind whose row is offered there, by its number in ``KINDS``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._arithmetic = lane_format(parameters)
        self._due = row_lead(self._arithmetic) - 1
        super().__init__(
            {
                "columns": In(ColumnPort(parameters, rows=tallest_tile(parameters, "columns"))),
                "rows": In(RowPort(parameters)),
                "statistics": Out(StatisticsPort(parameters)),
                "z": Out(WritePort(parameters)),
                "writer": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a slot to its row at the result queue."""
        encode_cycles = self._arithmetic.encode_cycles(self._parameters.lanes)
        return self._due + 1 + encode_cycles  # + 1: the value's register

    @property
    def depth(self) -> int:
        """Rows of the result queue, in whole distributed RAMs.

        Enough for a row per cycle from the reservation of a row's credit until its return, in
        addition to the minimum credit.
        """
        rows = self.latency + 2 + least_credit(self._parameters)
        return -(-rows // BANK) * BANK

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self._parameters
        m.submodules.slots = slots = Slots(p)
        arithmetic, first_due = self._arithmetic, self._due
        m.submodules.lanes = lanes = EncodedLanes(p)
        m.submodules.statistics = statistics = StatisticsAccumulator(p, arithmetic=arithmetic)
        m.submodules.results = results = ResultQueue(p, depth=self.depth)
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))
        ports = [getattr(self, kind) for kind in KINDS]
        settings = {
            name: per_port(m, ports, lambda port, name=name: port.command[name], name)
            for name in ("z_row_stride", *arithmetic.settings.values())
        }
        width = slot_width(p)
        slot = per_port(m, ports, lambda port: port.command.slot[:width], "slot")
        self._schedule(m, slots, results, settings["z_row_stride"])

        # Everything that belongs to a slot travels with it: when an array's value arrives, the
        # slot tells whose row it is, in which place and with which settings.
        passed = delay_line(m, slots.slot.as_value(), self.latency + 1, "slot", reset_less=False)
        stages = [data.View(SLOT_LAYOUT, slot) for slot in passed]
        # An array learns a cycle ahead which row is due, so that its drain can put the row into a
        # register.
        before, due = stages[first_due - 1], stages[first_due]
        m.d.comb += [
            self.rows.next_due.eq(before.rows),
            self.rows.next_row.eq(before.number),
            self.rows.next_context.eq(before.context),
        ]
        for name, field in arithmetic.settings.items():
            setting = settings[field](before.rows, before.context)
            # Registered: the selection by kind and context would precede the encoder's first
            # stage.
            register = Signal.like(getattr(lanes, name))
            m.d.sync += register.eq(setting)
            m.d.comb += getattr(lanes, name).eq(register)
        m.d.comb += [
            lanes.of_column.eq(due.columns),
            lanes.number.eq(due.number),
            *(to.eq(value) for to, value in zip(lanes.column, self.columns.value, strict=True)),
            *(to.eq(value) for to, value in zip(lanes.row, self.rows.value, strict=True)),
        ]
        if p.stochastic_rounding:
            self._randomise(m, due, stages[first_due + RANDOM_CYCLES], lanes)

        self._queue(m, stages[-1], slot, lanes, statistics, results)
        return m

    def _queue(self, m: Module, leaving, slot, lanes, statistics, results) -> None:
        """Count and queue the row of the slot that leaves the encoder."""
        p, ports = self._parameters, [getattr(self, kind) for kind in KINDS]
        m.d.comb += [
            statistics.valid.eq(leaving.columns | leaving.rows),
            statistics.kind.eq(leaving.rows),
            statistics.final.eq(leaving.final),
            statistics.slot.eq(slot(leaving.rows, leaving.context)),
            results.push.eq(leaving.columns | leaving.rows),
            results.kind.eq(leaving.rows),
            results.address.eq(leaving.address),
            results.final.eq(leaving.final),
            self.writer.eq(results.writer),
        ]
        # Statistics and queue take the same cycle's words: a row is counted exactly when it is
        # queued.
        if p.wide_tensors:
            highest = per_port(
                m, ports, lambda port: highest_level(port.command.out_width, p), "highest"
            )
            m.d.comb += results.highest.eq(highest(leaving.rows, leaving.context))
        for lane, word in enumerate(lanes.word):
            m.d.comb += [results.row[lane].eq(word), statistics.word[lane].eq(word)]
        for name in lanes.flags:
            m.d.comb += Cat(*getattr(statistics, name)).eq(Cat(*getattr(lanes, name)))
        for number, port in enumerate(ports):
            m.d.comb += [
                port.final_row.eq(results.final_written[number]),
                port.item.eq(statistics.taken[number]),
                port.back_pressured.eq(results.back_pressured[number]),
            ]

    def _schedule(self, m: Module, slots, results, stride) -> None:
        """Connect the slots, and the credit that they take."""
        columns, rows = self.columns, self.rows
        enough, wanted, least = Signal(), Signal(), least_credit(self._parameters)
        m.d.comb += [
            slots.start.eq(columns.start),
            slots.tile.eq(columns.tile),
            slots.column_stride.eq(stride(0, slots.column_context)),
            slots.row_start.eq(rows.start),
            slots.row_tile.eq(rows.tile),
            slots.row_stride.eq(stride(1, slots.row_context)),
            rows.ready.eq(slots.ready),
            rows.prompt.eq(slots.prompt),
            # Credit is reserved when a tile starts, before its rows exist: nothing can hold a row
            # that is on its way through the encoder.
            results.reserve.eq(columns.start),
            results.reserve_rows.eq(columns.tile.rows),
            results.reserve_row.eq(slots.row_taken),
            enough.eq(results.left >= least),
            wanted.eq(slots.active | rows.offered),
        ]
        # Both kinds need the same credit to start, so that neither takes every place before the
        # other finds enough. When credit falls below this threshold, at most two slots have been
        # granted to tiles by rows already. While tiles come only by columns, no more than these two
        # need a reserve.
        alone = results.left >= least - BLIND + 2
        m.d.sync += [
            slots.row_credit.eq(enough),
            columns.credit.eq(Mux(wanted, enough & ~slots.recent, alone)),
        ]

    def _randomise(self, m: Module, due, drawn, encoded) -> None:
        """Connect random bits: by column, of which units use them in turn, and by row."""
        p = self._parameters
        stream = per_port(m, (self.columns, self.rows), lambda port: port.stream, "stream")
        # The units of a column use one key's bytes in turn; the key of a row covers all lanes. Both
        # make the bits that the golden model draws.
        m.submodules.by_column = by_column = RandomBits(units=tallest_tile(p, "columns"))
        m.submodules.by_row = by_row = RandomBits(units=p.lanes)
        lead = column_lead(self._arithmetic)
        # the tile whose columns are due now
        tile = data.View(
            TILE_LAYOUT,
            delay_line(m, self.columns.tile.as_value(), lead, "tile")[-1],
        )
        # The delay matches the array's latency: the tile's columns come out when its key is needed.
        start = delay_line(m, self.columns.start, lead, "start", reset_less=False)[-1]
        z, context, column = Signal(LOCAL_WIDTH), Signal(), Signal(LANE_WIDTH)
        m.d.sync += column.eq(column + 1)
        with m.If(start):
            m.d.sync += [z.eq(tile.z), context.eq(tile.context), column.eq(0)]
        m.d.comb += [
            by_column.stream.eq(stream(0, context)),
            by_column.key.eq(Cat(column, z)),
            by_row.stream.eq(stream(1, due.context)),
            # Lane 0 of the key: a row has one key, its lanes use different bytes.
            by_row.key.eq(Cat(C(0, LANE_WIDTH), due.address)),
        ]
        # Lane n is encoded n cycles after lane 0, and its byte has to wait as long.
        units = skew(m, list(by_column.random), "of_unit")
        lanes = skew(m, list(by_row.random), "of_lane")
        columns, number = chosen(m, p, drawn.columns, drawn.number, "of_byte")
        m.d.comb += [
            to.eq(Mux(columns[lane], select(units, number[lane]), lanes[lane]))
            for lane, to in enumerate(encoded.random)
        ]
