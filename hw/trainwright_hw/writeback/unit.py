"""The write-back unit: requantiser, statistics and result queue of PE1 and PE2."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.random_bits import LANE_WIDTH, RandomBits
from trainwright_hw.arith.requantiser import LANE_CYCLES, Requantiser
from trainwright_hw.control.command_contexts import per_engine
from trainwright_hw.control.engine_ports import StatisticsPort
from trainwright_hw.storage.ports import WritePort
from trainwright_hw.stream.delay_line import delay_line, deskew
from trainwright_hw.writeback.ports import ROW_LEAD, ColumnPort, RowPort
from trainwright_hw.writeback.result_queue import ResultQueue, select
from trainwright_hw.writeback.slots import SLOT_LAYOUT, Slots, least_credit
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

DUE = ROW_LEAD - 1
"""Cycles from a slot to its values at the ports."""
BANK = 16
"""Words of a distributed RAM."""


class WriteBack(wiring.Component):
    """Sums of both arrays to rows of the scratchpad: requantised, counted, queued.

    A slot a cycle, of a column of PE1 or a row of PE2 (``Slots``), passes the requantiser: value n
    n cycles after value 0, on lane n. The words of a column leave on as many rows. Row r of a tile
    of PE1 takes from lane r, at lane n the word of column n: n cycles after lane 0, as lane n's own
    word of a row of PE2 comes. So a tile is transposed by the choice of a lane's word, before the
    words of a row, whose lanes are a cycle apart, are brought together.

    Members: ``pe1``, ``pe2``: the engines' ports; ``statistics``; ``z``, a write port of the
    scratchpad; ``writer``, the engine whose row is offered there: 0 PE1, 1 PE2.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "pe1": In(ColumnPort(parameters)),
                "pe2": In(RowPort(parameters)),
                "statistics": Out(StatisticsPort()),
                "z": Out(WritePort(parameters)),
                "writer": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a slot to its row at the result queue."""
        # the value's own register, and the chosen word's
        return DUE + 1 + LANE_CYCLES + 1 + self._parameters.lanes - 1

    @property
    def depth(self) -> int:
        """Of the result queue: rows on their way, from the credit taken for them until it is there
        again, and those that a tile of PE1 asks for; whole distributed RAMs."""
        rows = self.latency + DUE + 2 + least_credit(self._parameters)
        return -(-rows // BANK) * BANK

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self._parameters
        m.submodules.slots = slots = Slots(p)
        m.submodules.requantiser = requantiser = Requantiser(
            lanes=p.lanes,
            value_width=p.vector_width,
            with_random=bool(p.stochastic_rounding),
        )
        m.submodules.statistics = statistics = StatisticsAccumulator(lanes=p.lanes)
        m.submodules.results = results = ResultQueue(p, depth=self.depth)
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))
        engines = (self.pe1, self.pe2)
        names = ["slot", "z_row_stride", "shift", "out_width"]
        names += ["stochastic"] if p.stochastic_rounding else []
        settings = {
            name: per_engine(m, engines, lambda port, name=name: port.command[name], name)
            for name in names
        }
        self._schedule(m, slots, results, settings["z_row_stride"])

        passed = delay_line(m, slots.slot.as_value(), self.latency + 1, "slot", reset_less=False)
        stages = [data.View(SLOT_LAYOUT, slot) for slot in passed]
        before, due, ready = stages[DUE - 1], stages[DUE], stages[DUE + 1 + LANE_CYCLES]
        m.d.comb += [
            self.pe2.next_due.eq(before.rows),
            self.pe2.next_row.eq(before.number),
            self.pe2.next_context.eq(before.context),
        ]
        for name in names[2:]:
            setting = settings[name](before.rows, before.context)
            m.d.sync += getattr(requantiser, name).eq(setting)
        for lane, to in enumerate(requantiser.value):
            value = Signal.like(to, name=f"value_{lane}", reset_less=True)
            # of two at most one is not 0
            columns = self.pe1.value[lane] if lane < p.pe1_rows else C(0, 1)
            m.d.sync += value.eq((self.pe2.value[lane] | columns).as_signed())
            m.d.comb += to.eq(value)
        if p.stochastic_rounding:
            self._randomise(m, slots, due, requantiser)
        self._rows(m, ready, requantiser, statistics, results)

        leaving = stages[-1]
        m.d.comb += [
            statistics.valid.eq(leaving.written),
            statistics.engine.eq(leaving.rows),
            statistics.final.eq(leaving.final),
            statistics.slot.eq(settings["slot"](leaving.rows, leaving.context)),
            results.push.eq(leaving.written),
            results.engine.eq(leaving.rows),
            results.address.eq(leaving.address),
            results.final.eq(leaving.final),
            self.writer.eq(results.writer),
        ]
        for number, port in enumerate(engines):
            m.d.comb += [
                port.final_row.eq(results.final_written[number]),
                port.item.eq(statistics.taken[number]),
                port.back_pressured.eq(results.back_pressured[number]),
            ]
        return m

    def _schedule(self, m: Module, slots, results, stride) -> None:
        """Slots, and the credit that they take."""
        columns, rows = self.pe1, self.pe2
        enough = Signal()
        m.d.comb += [
            slots.column.eq(columns.slot),
            slots.start.eq(columns.start),
            slots.tile.eq(columns.tile),
            slots.column_stride.eq(stride(0, slots.column_context)),
            slots.row_start.eq(rows.start),
            slots.row_tile.eq(rows.tile),
            slots.row_stride.eq(stride(1, slots.row_context)),
            rows.ready.eq(slots.ready),
            rows.prompt.eq(slots.prompt),
            results.reserve.eq(columns.start),
            results.reserve_rows.eq(columns.tile.rows),
            results.reserve_row.eq(slots.row_taken),
            enough.eq(results.left >= least_credit(self._parameters)),
        ]
        # one level for both, so that neither takes every place before the other finds enough
        m.d.sync += [
            slots.row_credit.eq(enough),
            columns.credit.eq(enough & ~(slots.recent & (slots.active | rows.offered))),
        ]

    def _randomise(self, m: Module, slots, due, requantiser) -> None:
        """Random bits of the column or row that is due."""
        engines = (self.pe1, self.pe2)
        place = Cat(slots.entry, slots.origin)
        entry_width = len(slots.entry)
        place = delay_line(m, place, DUE + 1, "place")[-1]
        m.submodules.random = random = RandomBits(units=self._parameters.lanes)
        stream = per_engine(m, engines, lambda port: port.stream, "stream")
        of_column = Cat(place[:entry_width], C(0, LANE_WIDTH - entry_width), place[entry_width:])
        m.d.comb += [
            random.stream.eq(stream(due.rows, due.context)),
            random.key.eq(Mux(due.columns, of_column, Cat(C(0, LANE_WIDTH), due.address))),
            Cat(requantiser.random).eq(Cat(random.random)),
        ]

    def _rows(self, m: Module, ready, requantiser, statistics, results) -> None:
        """The words of each row, brought together."""
        p = self._parameters
        columns = delay_line(m, ready.columns, p.lanes, "of_column")
        number = delay_line(
            m, ready.number[: (p.pe1_rows - 1).bit_length()], p.lanes, "row_of_tile"
        )
        words = [Cat(*of) for of in zip(requantiser.word, requantiser.saturated, strict=True)]
        chosen = []
        for lane in range(p.lanes):
            of_tile, index = words[: p.pe1_rows], Signal.like(number[lane], name=f"index_{lane}")
            m.d.comb += index.eq(Mux(columns[lane], number[lane], lane))
            word = select(of_tile, index)
            if lane >= p.pe1_rows:
                word = Mux(columns[lane], word, words[lane])
            register = Signal(len(words[0]), name=f"word_of_row_{lane}", reset_less=True)
            m.d.sync += register.eq(word)
            chosen.append(register)
        for lane, word in enumerate(deskew(m, chosen, "word")):
            m.d.comb += [
                results.row[lane].eq(word[:-1]),
                statistics.word[lane].eq(word[:-1].as_signed()),
                statistics.saturated[lane].eq(word[-1]),
            ]
