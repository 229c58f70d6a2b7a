"""PE2: equation 6 and the outer product (PE3), bias, activation and mask."""

from collections.abc import Callable

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH, Operation
from trainwright_hw.arith.random_bits import LANE_WIDTH, RandomBits
from trainwright_hw.arith.requantiser import Requantiser, requantise_cycles
from trainwright_hw.compute.pe2.fetch import OPERAND_CYCLES, OperandFetch
from trainwright_hw.compute.pe2.outer_array import OUTER_CYCLES, OuterProductArray
from trainwright_hw.compute.pe2.vector import VECTOR_CYCLES, VectorUnit
from trainwright_hw.control.command_contexts import CommandContexts, per_context
from trainwright_hw.control.engine_ports import ComputeEngine
from trainwright_hw.storage.ports import FactorReadPort, ReadPort, WritePort
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.result_queue import ROWS_WIDTH, ResultQueue
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

RESULT_DEPTH = 32
"""Rows of results on their way, at least."""

_TILE = data.StructLayout({"z": LOCAL_WIDTH, "rows": ROWS_WIDTH, "final": 1, "context": 1})
_TAIL = data.StructLayout({"address": LOCAL_WIDTH, "final": 1, "context": 1})

assert OUTER_CYCLES == VECTOR_CYCLES  # both meet at the drain


class Pe2(wiring.Component):
    """Engine of PE2, PE3, BIAS and MASK (``trainwright.program.descriptors.Compute``).

    One step of the nest a cycle. The tile of a complete reduction is drained at one row a cycle
    under the next tile's steps, so a reduction of at least ``pe2_rows`` steps costs nothing more
    and a shorter one ``rows`` cycles. A tile's last step waits until the result queue has credit
    for the tile and the tile before it has left the drain buffer in time; from there on nothing
    waits.

    The next command is taken while the last results of the one before are on their way: it may
    read rows that are not yet written, unless it waits for its own engine.

    Members: those of ``ComputeEngine``; ``x``, ``g``: ``ReadPort``; ``store``: ``FactorReadPort``
    of ``pe2_rows`` elements; ``z``: ``WritePort``. ``stall_operand``: no step to take.
    ``stall_result``: a step waits for credit, or at the end rows wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                **ComputeEngine(parameters).members,
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "store": Out(FactorReadPort(parameters, parameters.pe2_rows)),
                "z": Out(WritePort(parameters)),
            }
        )
        self._load = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.contexts = contexts = CommandContexts()
        m.submodules.fetch = fetch = OperandFetch(parameters)
        m.submodules.array = array = OuterProductArray(parameters)
        m.submodules.vector = vector = VectorUnit(parameters)
        m.submodules.requantiser = requantiser = Requantiser(
            lanes=parameters.lanes,
            value_width=parameters.vector_width,
            with_random=bool(parameters.stochastic_rounding),
        )
        m.submodules.statistics = statistics = StatisticsAccumulator(lanes=parameters.lanes)
        m.submodules.results = results = ResultQueue(
            parameters,
            tile_rows=parameters.pe2_rows,
            # from a tile's last step, until which there must be credit, to that of its last row
            depth=max(RESULT_DEPTH, parameters.lanes + 2 * parameters.pe2_rows + 8),
        )
        for name in ("x", "g", "store"):
            connect(m, getattr(fetch, name), flipped(getattr(self, name)))
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))

        fields = self._take_command(m, contexts, fetch, vector, requantiser)
        issue = self._issue(m, fetch, results)
        elementwise = fields["elementwise"](fetch.context)
        stages = OPERAND_CYCLES + 1
        flags = delay_line(
            m,
            Cat(issue & ~elementwise, fetch.last, fetch.context),
            stages,
            "flags",
            reset_less=False,
        )
        for unit in (array, vector):
            m.d.comb += [unit.x_row.eq(fetch.x_operand), unit.g_row.eq(fetch.g_operand)]
        m.d.comb += Cat(array.valid, array.last, vector.context).eq(flags[-1])
        tail = self._drain(m, issue, fields, fetch, array, vector, requantiser)
        self._write(m, tail, fields, requantiser, statistics, results)
        self._control(m, contexts, issue, fetch, results)
        return m

    def _take_command(self, m, contexts, fetch, vector, requantiser) -> dict[str, Callable]:
        """Gives what is needed later of the commands in flight, by context."""
        command, context = self.command.payload, contexts.context
        operation = command.operation
        is_elementwise = (operation == Operation.BIAS) | (operation == Operation.MASK)
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            contexts.accept.eq(self._load),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            fetch.command_context.eq(context),
            vector.configure.eq(contexts.free),
            vector.configure_context.eq(context),
            vector.command.eq(command),
            requantiser.configure.eq(contexts.free),
            requantiser.configure_context.eq(context),
            requantiser.shift.eq(command.shift),
            requantiser.out_width.eq(command.out_width),
        ]
        # from a register: the sequencer and what it tells of commands are behind it
        m.d.sync += self.command.ready.eq(fetch.free & contexts.free & ~self._load)
        fields = {
            "elementwise": is_elementwise,
            "z_row_stride": command.z_row_stride,
            "slot": command.slot,
        }
        return {
            name: per_context(m, contexts.free, context, value, name)
            for name, value in fields.items()
        }

    def _issue(self, m: Module, fetch, results) -> Signal:
        """Take a step, unless it completes a tile that has nowhere to go. Returns the strobe."""
        issue, blocked = Signal(), Signal()
        spacing = Signal(ROWS_WIDTH)  # cycles until the drain buffer may be overwritten
        near = Signal()  # it is not 0
        ends_tile = Signal()
        m.d.comb += [
            blocked.eq(fetch.last & (near | ~results.credit)),
            fetch.ready.eq(~blocked),
            issue.eq(fetch.valid & ~blocked),
            ends_tile.eq(issue & fetch.last),
            results.reserve.eq(ends_tile),
            results.reserve_rows.eq(fetch.rows),
        ]
        with m.If(ends_tile):
            m.d.sync += [spacing.eq(fetch.rows - 1), near.eq(fetch.rows != 1)]
        with m.Elif(near):
            m.d.sync += [spacing.eq(spacing - 1), near.eq(spacing != 1)]
        return issue

    def _drain(self, m: Module, issue, fields, fetch, array, vector, requantiser) -> data.View:
        """Rows of a complete tile to the requantiser, one a cycle; gives where each one goes.

        All of this is of lane 0; array, vector unit and requantiser are skewed.
        """
        lanes = self._parameters.lanes
        stages = OPERAND_CYCLES + OUTER_CYCLES
        tiles = [Signal(_TILE, name=f"tile_{stage}") for stage in range(stages)]
        lands = [Signal(name=f"lands_{stage}") for stage in range(stages)]
        m.d.comb += [
            lands[0].eq(issue & fetch.last),
            *(
                tiles[0][name].eq(getattr(fetch, name))
                for name in ("rows", "z", "final", "context")
            ),
        ]
        for stage in range(1, stages):
            m.d.sync += lands[stage].eq(lands[stage - 1])
            with m.If(lands[stage - 1]):
                m.d.sync += tiles[stage].eq(tiles[stage - 1])

        draining, final = Signal(), Signal()
        row, remaining = Signal(ROWS_WIDTH), Signal(ROWS_WIDTH)
        address, context = Signal(LOCAL_WIDTH), Signal()
        landed = tiles[-1]
        with m.If(lands[-1]):
            m.d.sync += [
                draining.eq(1),
                row.eq(0),
                remaining.eq(landed.rows - 1),
                address.eq(landed.z),
                final.eq(landed.final),
                context.eq(landed.context),
            ]
        with m.Elif(draining):
            m.d.sync += [
                draining.eq(remaining != 0),
                row.eq(row + 1),
                remaining.eq(remaining - 1),
                address.eq(address + fields["z_row_stride"](context)),
            ]
        m.d.comb += array.row.eq(row)
        # a register between the selection of a row and the shifters of the requantiser
        tail = Signal(_TAIL)
        m.d.sync += requantiser.valid.eq(draining)
        with m.If(draining):
            m.d.sync += [
                tail.address.eq(address),
                tail.final.eq(final & (remaining == 0)),
                tail.context.eq(context),
            ]
        elementwise = delay_line(m, fields["elementwise"](context), lanes, "elementwise_at")
        for lane, to in enumerate(requantiser.value):
            value = Signal.like(to, name=f"value_{lane}", reset_less=True)
            m.d.sync += value.eq(Mux(elementwise[lane], vector.value[lane], array.value[lane]))
            m.d.comb += to.eq(value)
        m.d.comb += requantiser.context.eq(context)  # of the row in the next cycle
        if self._parameters.stochastic_rounding:
            self._randomise(m, address, context, requantiser)
        return tail

    def _randomise(self, m: Module, address, context, requantiser) -> None:
        """Random bits of the row that goes to the requantiser in the next cycle."""
        m.submodules.random = random = RandomBits(units=self._parameters.lanes)
        m.d.comb += [
            random.configure.eq(self._load),
            random.configure_context.eq(requantiser.configure_context),
            random.stream.eq(self.stream),
            random.context.eq(context),
            random.key.eq(Cat(C(0, LANE_WIDTH), address)),
            requantiser.stochastic.eq(self.command.payload.stochastic),
            Cat(requantiser.random).eq(Cat(random.random)),
        ]

    def _write(self, m: Module, tail, fields, requantiser, statistics, results) -> None:
        """Requantised rows to the result queue and into the statistics."""
        stages = requantise_cycles(self._parameters.lanes) + 1
        written = data.View(_TAIL, delay_line(m, tail.as_value(), stages, "tail")[-1])
        m.d.comb += [
            results.push.eq(requantiser.result_valid),
            results.address.eq(written.address),
            results.final.eq(written.final),
            statistics.valid.eq(requantiser.result_valid),
            statistics.final.eq(written.final),
            statistics.slot.eq(fields["slot"](written.context)),
            statistics.enable.eq(~0),
        ]
        for lane, word in enumerate(requantiser.word):
            m.d.comb += [
                results.row[lane].eq(word),
                statistics.word[lane].eq(word),
                statistics.saturated[lane].eq(requantiser.saturated[lane]),
            ]

    def _control(self, m: Module, contexts, issue, fetch, results) -> None:
        """Busy from a command until its rows and its statistics are out."""
        item = self.statistics.item
        m.d.comb += [
            contexts.final_step.eq(issue & fetch.final),
            contexts.final_row.eq(results.final_written),
            contexts.item.eq(item.valid & item.ready),
            self.status.busy.eq(contexts.busy),
            self.status.older.eq(contexts.older),
            self.status.stall_operand.eq(contexts.stepping & ~fetch.valid),
            self.status.stall_result.eq(
                Mux(contexts.stepping, fetch.valid & ~issue, results.back_pressured)
            ),
        ]
