"""PE1: equation 5, contraction along the lanes."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Out, connect, flipped

from ttforge.parameters import AcceleratorParameters
from ttforge.program.fields import LOCAL_WIDTH
from ttforge_hw.dot import DotProductArray
from ttforge_hw.drain import ROWS_WIDTH, ResultQueue
from ttforge_hw.ports import (
    READ_LATENCY,
    ComputeEngine,
    ReadPort,
    StorePort,
    WritePort,
)
from ttforge_hw.requantise import Requantiser, Statistics
from ttforge_hw.step_fetch import StepFetch
from ttforge_hw.transpose import Transposer

SWAP_CYCLES = READ_LATENCY + 1
"""Cycles from the decision to start a step to its first entry at the array."""

TILES_IN_FLIGHT = 8
"""Tiles between the start of their last step and their last column at most: a tile starts every
``lanes`` cycles and takes ``lanes`` + 11."""

RESULT_DEPTH = 32
"""Least rows of results on their way that keep the array busy."""

_TILE = data.StructLayout({"z": LOCAL_WIDTH, "rows": ROWS_WIDTH})


class Pe1(wiring.Component):
    """Engine of PE1 (``ttforge.program.descriptors.Compute``).

    A step of the nest takes ``lanes`` cycles: one entry of the factor store a cycle against
    ``pe1_rows`` stationary rows. The next step's rows are loaded, and the tiles before are
    requantised, transposed and written, under it. The last step of a reduction starts only when the
    result queue has room for its tile; from there on nothing waits.

    All ``pe1_rows`` rows of a tile are fetched, also those past ``last_rows``: what they hold has
    no effect.

    Members: those of ``ComputeEngine``; ``x``: ``ReadPort``; ``store``: ``StorePort`` of ``lanes``
    elements; ``z``: ``WritePort``. ``stall_operand``: the array is free and the next step's rows
    are not there. ``stall_result``: they are, but there is no room for the tile; or at the end rows
    wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                **ComputeEngine().members,
                "x": Out(ReadPort(parameters)),
                "store": Out(StorePort(parameters, parameters.lanes)),
                "z": Out(WritePort(parameters)),
            }
        )
        self._load = Signal()
        self._start = Signal()  # of a step
        self._shadow_ready = Signal()
        self._idle = Signal()  # the array takes a step in the next cycle

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.fetch = fetch = StepFetch(parameters)
        m.submodules.array = array = DotProductArray(parameters)
        m.submodules.requantiser = requantiser = Requantiser(
            lanes=parameters.pe1_rows, value_width=parameters.accumulator_width
        )
        m.submodules.statistics = statistics = Statistics(lanes=parameters.pe1_rows)
        m.submodules.transposer = transposer = Transposer(parameters)
        m.submodules.results = results = ResultQueue(
            parameters,
            tile_rows=parameters.pe1_rows,
            depth=max(RESULT_DEPTH, 4 * parameters.pe1_rows),
        )
        m.submodules.tiles = tiles = SyncFIFO(width=_TILE.size, depth=TILES_IN_FLIGHT)
        connect(m, fetch.x, flipped(self.x))
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))

        self._take_command(m, fetch, requantiser, statistics, transposer)
        self._load_shadow(m, fetch, array)
        self._start_step(m, fetch, results, tiles)
        self._stream(m, fetch, array)
        self._write(m, array, requantiser, statistics, transposer, tiles, results)
        self._control(m, fetch, results, statistics)
        return m

    def _take_command(self, m, fetch, requantiser, statistics, transposer) -> None:
        command = self.command.payload
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            requantiser.configure.eq(self._load),
            requantiser.shift.eq(command.shift),
            requantiser.out_width.eq(command.out_width),
            statistics.configure.eq(self._load),
            statistics.slot.eq(command.slot),
        ]
        z_row_stride = Signal(LOCAL_WIDTH)
        m.d.comb += transposer.z_row_stride.eq(z_row_stride)
        with m.If(self._load):
            m.d.sync += z_row_stride.eq(command.z_row_stride)

    def _load_shadow(self, m: Module, fetch, array) -> None:
        """Rows of the next step to the shadow set, from the cycle of a swap on."""
        rows = self._parameters.pe1_rows
        missing = Signal(range(rows + 1), init=rows)
        m.d.comb += [
            fetch.row_ready.eq((missing != 0) | array.swap),
            array.load.eq(fetch.row_valid & fetch.row_ready),
            array.load_row.eq(rows - missing),  # modulo rows: 0 in the cycle of a swap
            array.row.eq(fetch.row),
            # the rows that are missing now will be there when the array swaps
            self._shadow_ready.eq((missing <= SWAP_CYCLES) & (fetch.level >= missing)),
        ]
        with m.If(array.swap):
            m.d.sync += missing.eq(rows - array.load)
        with m.Elif(array.load):
            m.d.sync += missing.eq(missing - 1)

    def _start_step(self, m: Module, fetch, results, tiles) -> None:
        """Start a step when its rows are there, and room for its tile if it completes one."""
        step = fetch.step
        blocked, completes = Signal(), Signal()
        tile = data.View(_TILE, tiles.w_data)
        m.d.comb += [
            blocked.eq(step.last & ~results.room),
            self._start.eq(self._idle & self._shadow_ready & fetch.step_valid & ~blocked),
            completes.eq(self._start & step.last),
            fetch.step_ready.eq(self._start),
            results.reserve.eq(completes),
            results.reserve_rows.eq(step.rows),
            tiles.w_en.eq(completes),
            tile.z.eq(step.z),
            tile.rows.eq(step.rows),
        ]

    def _stream(self, m: Module, fetch, array) -> None:
        """The entries of a step, one a cycle, from the store to the array."""
        lanes = self._parameters.lanes
        number = [Signal(range(lanes), name=f"number_{stage}") for stage in range(READ_LATENCY + 1)]
        flags = [Signal(3, name=f"flags_{stage}") for stage in range(READ_LATENCY + 1)]
        valid, first, last = flags[0]
        for stages in (number, flags):
            m.d.sync += [later.eq(earlier) for earlier, later in pairwise(stages)]
        m.d.comb += [
            self._idle.eq(~valid | (number[0] == lanes - 1)),
            self.store.enable.eq(valid),
            Cat(array.valid, array.first, array.last).eq(flags[-1]),
            array.number.eq(number[-1]),
            array.swap.eq(array.valid & (array.number == 0)),
            *(
                to.eq(element.as_signed())
                for to, element in zip(array.entry, self.store.entry, strict=True)
            ),
        ]
        with m.If(self._start):
            m.d.sync += [
                Cat(valid, first, last).eq(Cat(1, fetch.step.first, fetch.step.last)),
                number[0].eq(0),
                self.store.address.eq(fetch.step.g),
            ]
        with m.Elif(valid):
            m.d.sync += [
                valid.eq(~self._idle),
                number[0].eq(number[0] + 1),
                self.store.address.eq(self.store.address + 1),
            ]

    def _write(self, m, array, requantiser, statistics, transposer, tiles, results) -> None:
        """Complete sums through requantiser and transposer to the result queue."""
        tile = data.View(_TILE, tiles.r_data)
        m.d.comb += [
            requantiser.valid.eq(array.result_valid),
            statistics.valid.eq(requantiser.result_valid),
            statistics.enable.eq(Cat(tile.rows > row for row in range(self._parameters.pe1_rows))),
            transposer.valid.eq(requantiser.result_valid),
            transposer.rows.eq(tile.rows),
            transposer.z.eq(tile.z),
            tiles.r_en.eq(transposer.complete),
            results.push.eq(transposer.push),
            results.address.eq(transposer.address),
            results.row.eq(transposer.row),
        ]
        for row, word in enumerate(requantiser.word):
            m.d.comb += [
                requantiser.value[row].eq(array.value[row]),
                transposer.word[row].eq(word),
                statistics.word[row].eq(word),
                statistics.saturated[row].eq(requantiser.saturated[row]),
            ]

    def _control(self, m: Module, fetch, results, statistics) -> None:
        """Busy from a command until its rows and its statistics are out."""
        running, all_started = Signal(), Signal()
        operands = Signal()
        write = results.z.request
        m.d.comb += [
            operands.eq(self._shadow_ready & fetch.step_valid),
            self.command.ready.eq(~running),
            statistics.finish.eq(all_started & results.empty),
            self.status.busy.eq(running),
            self.status.stall_operand.eq(running & ~all_started & self._idle & ~operands),
            self.status.stall_result.eq(
                Mux(
                    all_started,
                    write.valid & ~write.ready,
                    self._idle & operands & ~self._start,
                )
            ),
        ]
        with m.If(self._load):
            m.d.sync += running.eq(1)
        with m.If(self._start & fetch.step.final):
            m.d.sync += all_started.eq(1)
        with m.If(statistics.port.item.valid & statistics.port.item.ready):
            m.d.sync += [running.eq(0), all_started.eq(0)]
