"""The write-back unit: encoder, statistics and result queue of PE1 and PE2."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.random_bits import LANE_WIDTH, RANDOM_CYCLES, RandomBits
from trainwright_hw.arith.select import select
from trainwright_hw.control.command_contexts import per_engine
from trainwright_hw.control.engine_ports import StatisticsPort, slot_width
from trainwright_hw.storage.ports import WritePort
from trainwright_hw.stream.delay_line import delay_line, skew
from trainwright_hw.writeback.digits import highest_level
from trainwright_hw.writeback.lanes import EncodedLanes, chosen
from trainwright_hw.writeback.ports import (
    TILE_LAYOUT,
    ColumnPort,
    RowPort,
    column_lead,
    row_lead,
)
from trainwright_hw.writeback.result_queue import ResultQueue
from trainwright_hw.writeback.slots import BLIND, SLOT_LAYOUT, Slots, least_credit
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

BANK = 16
"""Words of a distributed RAM."""


class WriteBack(wiring.Component):
    """Unit from sums of both arrays to rows of the scratchpad: encoded, counted, queued.

    In each cycle one slot, of a row of either engine (``Slots``), passes the encoder of the
    accelerator's number format (in fixed point the requantiser): value n on lane n, n cycles after
    value 0; the words are then aligned. PE1 delivers tiles by columns: its unit r's value of column
    n comes n + r cycles after the very first value, which is when lane n is due for row r, if row r
    begins r cycles after row 0. So lanes that choose among PE1's units transpose a tile, which
    takes as many slots as it has rows.

    With wide tensors values have up to 16 bits, still with one slot and one statistic each; the
    result queue writes them in words, digit by digit.

    Members: ``pe1``, ``pe2``: the engines' ports; ``statistics``; ``z``, a write port of the
    scratchpad; ``writer``, the engine whose row is offered there: 0 PE1, 1 PE2.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._arithmetic = lane_format(parameters)
        self._due = row_lead(self._arithmetic) - 1
        super().__init__(
            {
                "pe1": In(ColumnPort(parameters)),
                "pe2": In(RowPort(parameters)),
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
        engines = (self.pe1, self.pe2)
        settings = {
            name: per_engine(m, engines, lambda port, name=name: port.command[name], name)
            for name in ("z_row_stride", *arithmetic.settings.values())
        }
        width = slot_width(p)
        slot = per_engine(m, engines, lambda port: port.command.slot[:width], "slot")
        self._schedule(m, slots, results, settings["z_row_stride"])

        # Everything that belongs to a slot travels with it: when an engine's value arrives, the
        # slot tells whose row it is, in which place and with which settings.
        passed = delay_line(m, slots.slot.as_value(), self.latency + 1, "slot", reset_less=False)
        stages = [data.View(SLOT_LAYOUT, slot) for slot in passed]
        # PE2 learns a cycle ahead which row is due, so that its drain can put the row into a
        # register.
        before, due = stages[first_due - 1], stages[first_due]
        m.d.comb += [
            self.pe2.next_due.eq(before.pe2),
            self.pe2.next_row.eq(before.number),
            self.pe2.next_context.eq(before.context),
        ]
        for name, field in arithmetic.settings.items():
            setting = settings[field](before.pe2, before.context)
            # Registered: the selection by engine and context would precede the encoder's first
            # stage.
            register = Signal.like(getattr(lanes, name))
            m.d.sync += register.eq(setting)
            m.d.comb += getattr(lanes, name).eq(register)
        m.d.comb += [
            lanes.of_column.eq(due.pe1),
            lanes.number.eq(due.number),
            *(to.eq(value) for to, value in zip(lanes.column, self.pe1.value, strict=True)),
            *(to.eq(value) for to, value in zip(lanes.row, self.pe2.value, strict=True)),
        ]
        if p.stochastic_rounding:
            self._randomise(m, due, stages[first_due + RANDOM_CYCLES], lanes)

        leaving = stages[-1]
        m.d.comb += [
            statistics.valid.eq(leaving.pe1 | leaving.pe2),
            statistics.engine.eq(leaving.pe2),
            statistics.final.eq(leaving.final),
            statistics.slot.eq(slot(leaving.pe2, leaving.context)),
            results.push.eq(leaving.pe1 | leaving.pe2),
            results.engine.eq(leaving.pe2),
            results.address.eq(leaving.address),
            results.final.eq(leaving.final),
            self.writer.eq(results.writer),
        ]
        # Statistics and queue take the same cycle's words: a row is counted exactly when it is
        # queued.
        if p.wide_tensors:
            highest = per_engine(
                m, engines, lambda port: highest_level(port.command.out_width, p), "highest"
            )
            m.d.comb += results.highest.eq(highest(leaving.pe2, leaving.context))
        for lane, word in enumerate(lanes.word):
            m.d.comb += [results.row[lane].eq(word), statistics.word[lane].eq(word)]
        for name in lanes.flags:
            m.d.comb += Cat(*getattr(statistics, name)).eq(Cat(*getattr(lanes, name)))
        for number, port in enumerate(engines):
            m.d.comb += [
                port.final_row.eq(results.final_written[number]),
                port.item.eq(statistics.taken[number]),
                port.back_pressured.eq(results.back_pressured[number]),
            ]
        return m

    def _schedule(self, m: Module, slots, results, stride) -> None:
        """Connect the slots, and the credit that they take."""
        columns, rows = self.pe1, self.pe2
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
        # One threshold for both engines, so that neither takes every place before the other finds
        # enough. Below the threshold PE2 has been granted at most two slots.
        # Where PE1 is alone, the blind cycles of PE2's grants need no reserve.
        alone = results.left >= least - BLIND + 2
        m.d.sync += [
            slots.row_credit.eq(enough),
            columns.credit.eq(Mux(wanted, enough & ~slots.recent, alone)),
        ]

    def _randomise(self, m: Module, due, drawn, encoded) -> None:
        """Connect random bits: by column for PE1, whose units use them in turn; by row for PE2."""
        p = self._parameters
        stream = per_engine(m, (self.pe1, self.pe2), lambda port: port.stream, "stream")
        # PE1 delivers a column at a time, and its units use one key's bytes in turn; PE2 delivers a
        # row, whose key covers all lanes. Both make the bits that the golden model draws.
        m.submodules.by_column = by_column = RandomBits(units=p.pe1_rows)
        m.submodules.by_row = by_row = RandomBits(units=p.lanes)
        lead = column_lead(self._arithmetic)
        # the tile whose columns are due now
        tile = data.View(
            TILE_LAYOUT,
            delay_line(m, self.pe1.tile.as_value(), lead, "tile")[-1],
        )
        # The delay matches the array's latency: the tile's columns come out when its key is needed.
        start = delay_line(m, self.pe1.start, lead, "start", reset_less=False)[-1]
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
        columns, number = chosen(m, p, drawn.pe1, drawn.number, "of_byte")
        m.d.comb += [
            to.eq(Mux(columns[lane], select(units, number[lane]), lanes[lane]))
            for lane, to in enumerate(encoded.random)
        ]
