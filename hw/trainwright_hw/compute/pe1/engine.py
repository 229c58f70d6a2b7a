"""PE1 and PE4: equation 5, contraction along the lanes."""

from itertools import pairwise

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.random_bits import LANE_WIDTH, RandomBits
from trainwright_hw.arith.requantiser import Requantiser, thermometer
from trainwright_hw.compute.pe1.dot_array import DOT_CYCLES, DotProductArray
from trainwright_hw.compute.pe1.fetch import StepFetch
from trainwright_hw.compute.pe1.transposer import Transposer
from trainwright_hw.control.command_contexts import CommandContexts, per_context
from trainwright_hw.control.engine_ports import ComputeEngine
from trainwright_hw.storage.ports import ENTRY_LATENCY, FactorReadPort, ReadPort, WritePort
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.writeback.result_queue import ROWS_WIDTH, ResultQueue
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

SWAP_CYCLES = ENTRY_LATENCY + 2
"""Cycles from the decision to start a step to its first entry at the array."""

TILES_IN_FLIGHT = 8
"""Tiles between the start of their last step and their last column at most: a tile starts every
``lanes`` cycles and takes ``lanes + pe1_rows`` + 10."""

RESULT_DEPTH = 32
"""Rows of results on their way, at least."""


def _tile(rows: int) -> data.StructLayout:
    """Where a tile goes; ``written``: which of the array's ``rows`` are its own."""
    return data.StructLayout(
        {"z": LOCAL_WIDTH, "rows": ROWS_WIDTH, "written": rows, "final": 1, "context": 1}
    )


class Pe1(wiring.Component):
    """Engine of PE1 and PE4 (``trainwright.program.descriptors.Compute``).

    A step of the nest takes ``lanes`` cycles: one entry of the factor store, or one row of the
    scratchpad (PE4), a cycle against ``pe1_rows`` stationary rows. The next step's rows are loaded
    (and PE4's entries fetched), and the tiles before are requantised, transposed and written, under
    it. A step starts only when its rows and entries are there, the last one of a reduction only
    when the result queue has credit for its tile; from there on nothing waits.

    The next command is taken while the last results of the one before are on their way: it may
    read rows that are not yet written, unless it waits for its own engine.

    All ``pe1_rows`` rows of a tile are fetched, also those past ``last_rows``: what they hold has
    no effect.

    Members: those of ``ComputeEngine``; ``x``, ``g``: ``ReadPort``; ``store``: ``FactorReadPort``
    of ``lanes`` elements; ``z``: ``WritePort``. ``stall_operand``: the array is free and the next
    step's rows or entries are not there. ``stall_result``: they are, but there is no credit for the
    tile; or at the end rows wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._tile = _tile(parameters.pe1_rows)
        super().__init__(
            {
                **ComputeEngine(parameters).members,
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "store": Out(FactorReadPort(parameters, parameters.lanes)),
                "z": Out(WritePort(parameters)),
            }
        )
        self._load = Signal()
        self._start = Signal()  # of a step
        self._shadow_ready = Signal()
        self._idle = Signal(init=1)  # the array takes a step in the next cycle
        self._swap = Signal()  # it swaps in the next cycle

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.contexts = contexts = CommandContexts()
        m.submodules.fetch = fetch = StepFetch(parameters)
        m.submodules.array = array = DotProductArray(parameters)
        m.submodules.requantiser = requantiser = Requantiser(
            lanes=parameters.pe1_rows,
            value_width=parameters.accumulator_width,
            with_random=bool(parameters.stochastic_rounding),
        )
        m.submodules.statistics = statistics = StatisticsAccumulator(lanes=parameters.pe1_rows)
        m.submodules.transposer = transposer = Transposer(parameters)
        m.submodules.results = results = ResultQueue(
            parameters,
            tile_rows=parameters.pe1_rows,
            # from a tile's last step, until which there must be credit, to that of its last row
            depth=max(RESULT_DEPTH, parameters.lanes + 2 * parameters.pe1_rows + 16),
        )
        m.submodules.tiles = tiles = RegisteredQueue(width=self._tile.size, depth=TILES_IN_FLIGHT)
        for name in ("x", "g"):
            connect(m, getattr(fetch, name), flipped(getattr(self, name)))
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))

        self._take_command(m, contexts, fetch, requantiser)
        self._load_shadow(m, fetch, array)
        self._start_step(m, fetch, results, tiles)
        self._stream(m, fetch, array)
        self._write(m, contexts, array, requantiser, statistics, transposer, tiles, results)
        self._control(m, contexts, fetch, results)
        if parameters.stochastic_rounding:
            self._randomise(m, fetch, array, requantiser)
        return m

    def _take_command(self, m, contexts, fetch, requantiser) -> None:
        command = self.command.payload
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            contexts.accept.eq(self._load),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            fetch.command_context.eq(contexts.context),
            requantiser.configure.eq(contexts.free),
            requantiser.configure_context.eq(contexts.context),
            requantiser.shift.eq(command.shift),
            requantiser.out_width.eq(command.out_width),
        ]
        # from a register: the sequencer and what it tells of commands are behind it
        m.d.sync += self.command.ready.eq(fetch.free & contexts.free & ~self._load)

    def _load_shadow(self, m: Module, fetch, array) -> None:
        """Rows of the next step to the shadow set, from the cycle of a swap on."""
        rows = self._parameters.pe1_rows
        missing = Signal(range(rows + 1), init=rows)
        following = Signal.like(missing)  # in the next cycle
        m.d.comb += [
            fetch.row_ready.eq(missing != 0),
            array.load.eq(fetch.row_valid & fetch.row_ready),
            array.load_row.eq(rows - missing),
            array.row.eq(fetch.row),
            following.eq(Mux(self._swap, rows, missing - array.load)),
        ]
        # The rows that are missing in the next cycle will be there when the array swaps: at most
        # `most` of them are missing, and as many are here. One that is loaded now counts for both,
        # so that no sum comes before the comparisons.
        most, load = SWAP_CYCLES, array.load
        here = Cat(C(1, 1), thermometer(fetch.level))  # bit n: n rows or more
        some = Cat((missing == n) & here[n] for n in range(1, most + 1)).any()
        few = Mux(load, (missing == most + 1) & here[most + 1], missing == 0)
        of_all = Mux(load, here[rows + 1], here[rows]) if rows <= most else C(0, 1)
        m.d.sync += [
            missing.eq(following),
            self._shadow_ready.eq(Mux(self._swap, of_all, some | few)),
        ]

    def _start_step(self, m: Module, fetch, results, tiles) -> None:
        """Start a step when its rows are there, and credit for its tile if it completes one."""
        step = fetch.step
        blocked, completes = Signal(), Signal()
        tile = Signal(self._tile, reset_less=True)
        m.d.comb += [
            blocked.eq(step.last & ~results.credit),
            self._start.eq(self._idle & self._shadow_ready & fetch.step_valid & ~blocked),
            fetch.step_ready.eq(self._start),
            results.reserve.eq(completes),
            results.reserve_rows.eq(tile.rows),
            tiles.w_en.eq(completes),
            tiles.w_data.eq(tile),
        ]
        # a cycle later, long before the next step can start and the tile is complete
        m.d.sync += [
            completes.eq(self._start & step.last),
            *(tile[name].eq(step[name]) for name in ("z", "rows", "final", "context")),
            tile.written.eq(thermometer(step.rows)),
        ]

    def _stream(self, m: Module, fetch, array) -> None:
        """The entries of a step, one a cycle, to the array."""
        parameters, step = self._parameters, fetch.step
        lanes = parameters.lanes
        stages = range(ENTRY_LATENCY + 1)
        number = [Signal(range(lanes), name=f"number_{stage}") for stage in stages]
        flags = [Signal(5, name=f"flags_{stage}") for stage in stages]
        valid, first, last, context, from_pad = flags[0]
        valid_now, first_now, last_now, context_now, from_pad_now = flags[-1]
        for delayed in (number, flags):
            m.d.sync += [later.eq(earlier) for earlier, later in pairwise(delayed)]
        m.d.comb += [
            self.store.enable.eq(valid & ~from_pad),
            fetch.entry_ready.eq(valid_now & from_pad_now),
            self._swap.eq(valid_now & (number[-1] == 0)),
        ]
        # from registers to the array's own: an entry goes to all its rows
        m.d.sync += [
            array.valid.eq(valid_now),
            array.first.eq(first_now),
            array.last.eq(last_now),
            array.context.eq(context_now),
            array.number.eq(number[-1]),
            array.swap.eq(self._swap),
        ]
        word = signed(parameters.word_width)
        for to, element, row in zip(array.entry, self.store.entry, fetch.entry, strict=True):
            stored, chosen = Signal(word), Signal(word, reset_less=True)
            m.d.sync += chosen.eq(Mux(from_pad_now, row.as_signed(), stored))
            m.d.comb += [stored.eq(element.as_signed()), to.eq(chosen)]
        with m.If(self._start):
            m.d.sync += [
                Cat(valid, first, last, context).eq(Cat(1, step.first, step.last, step.context)),
                from_pad.eq(step.from_pad),
                number[0].eq(0),
                self._idle.eq(lanes == 1),
                self.store.address.eq(step.g),
            ]
        with m.Elif(valid):
            m.d.sync += [
                valid.eq(~self._idle),
                number[0].eq(number[0] + 1),
                self._idle.eq(self._idle | (number[0] == lanes - 2)),
                self.store.address.eq(self.store.address + 1),
            ]

    def _write(
        self, m, contexts, array, requantiser, statistics, transposer, tiles, results
    ) -> None:
        """Complete sums through requantiser and transposer to the result queue."""
        command, tile = self.command.payload, data.View(self._tile, tiles.r_data)
        z_row_stride = per_context(
            m, contexts.free, contexts.context, command.z_row_stride, "z_row_stride"
        )
        slot = per_context(m, contexts.free, contexts.context, command.slot, "slot")
        m.d.comb += [
            requantiser.valid.eq(array.result_valid),
            requantiser.context.eq(array.next_context),
            statistics.valid.eq(requantiser.result_valid),
            statistics.enable.eq(tile.written),
            statistics.final.eq(transposer.complete & tile.final),
            statistics.slot.eq(slot(tile.context)),
            transposer.next_valid.eq(requantiser.next_valid),
            transposer.valid.eq(requantiser.result_valid),
            transposer.rows.eq(tile.rows),
            transposer.z.eq(tile.z),
            transposer.z_row_stride.eq(z_row_stride(tile.context)),
            transposer.final.eq(tile.final),
            tiles.r_en.eq(transposer.complete),
            results.push.eq(transposer.push),
            results.address.eq(transposer.address),
            results.row.eq(transposer.row),
            results.final.eq(transposer.final_row),
        ]
        for row, word in enumerate(requantiser.word):
            m.d.comb += [
                requantiser.value[row].eq(array.value[row]),
                transposer.word[row].eq(word),
                statistics.word[row].eq(word),
                statistics.saturated[row].eq(requantiser.saturated[row]),
            ]

    def _randomise(self, m: Module, fetch, array, requantiser) -> None:
        """Random bits of the column that goes to the requantiser in the next cycle."""
        m.submodules.random = random = RandomBits(units=self._parameters.pe1_rows)
        # where the tile goes, beside the entries on their way through stores and array
        stages = ENTRY_LATENCY + 1 + DOT_CYCLES
        z = [Signal(LOCAL_WIDTH, name=f"z_{stage}", reset_less=True) for stage in range(stages)]
        with m.If(self._start):
            m.d.sync += z[0].eq(fetch.step.z)
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(z)]
        lane = Signal(LANE_WIDTH)
        m.d.comb += [
            lane.eq(array.next_number),
            random.configure.eq(self._load),
            random.configure_context.eq(requantiser.configure_context),
            random.stream.eq(self.stream),
            random.context.eq(array.next_context),
            random.key.eq(Cat(lane, z[-1])),
            requantiser.stochastic.eq(self.command.payload.stochastic),
            Cat(requantiser.random).eq(Cat(random.random)),
        ]

    def _control(self, m: Module, contexts, fetch, results) -> None:
        """Busy from a command until its rows and its statistics are out."""
        operands = Signal()
        item = self.statistics.item
        m.d.comb += [
            operands.eq(self._shadow_ready & fetch.step_valid),
            contexts.final_step.eq(self._start & fetch.step.final),
            contexts.final_row.eq(results.final_written),
            contexts.item.eq(item.valid & item.ready),
            self.status.busy.eq(contexts.busy),
            self.status.older.eq(contexts.older),
            self.status.stall_operand.eq(contexts.stepping & self._idle & ~operands),
            self.status.stall_result.eq(
                Mux(
                    contexts.stepping,
                    self._idle & operands & ~self._start,
                    results.back_pressured,
                )
            ),
        ]
