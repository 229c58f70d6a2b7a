"""PE2: equation 6 and the outer product (PE3), bias, activation and mask."""

import itertools

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from ttforge.parameters import AcceleratorParameters
from ttforge.program.fields import LOCAL_WIDTH, Operation
from ttforge_hw.drain import ROWS_WIDTH, ResultQueue
from ttforge_hw.fetch import OperandFetch
from ttforge_hw.outer import OUTER_CYCLES, OuterProductArray
from ttforge_hw.ports import ComputeEngine, ReadPort, StorePort, WritePort
from ttforge_hw.requantise import REQUANTISE_CYCLES, Requantiser, Statistics
from ttforge_hw.vector import VECTOR_CYCLES, VectorUnit

RESULT_DEPTH = 32
"""Rows of results on their way: two tiles of 16, four of 8."""

assert OUTER_CYCLES == VECTOR_CYCLES  # both meet at the drain


class Pe2(wiring.Component):
    """Engine of PE2, PE3, BIAS and MASK (``ttforge.program.descriptors.Compute``).

    One step of the nest a cycle. The tile of a complete reduction is drained at one row a cycle
    under the next tile's steps, so a reduction of at least ``pe2_rows`` steps costs nothing more
    and a shorter one ``rows`` cycles. A tile's last step waits until the result queue has room for
    the tile and the tile before it has left the drain buffer in time; from there on nothing waits.

    Members: those of ``ComputeEngine``; ``x``, ``g``: ``ReadPort``; ``store``: ``StorePort`` of
    ``pe2_rows`` elements; ``z``: ``WritePort``. ``stall_operand``: no step to take.
    ``stall_result``: a step waits for room, or at the end rows wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                **ComputeEngine().members,
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "store": Out(StorePort(parameters, parameters.pe2_rows)),
                "z": Out(WritePort(parameters)),
            }
        )
        self._load = Signal()
        self._elementwise = Signal()
        self._z_row_stride = Signal(LOCAL_WIDTH)
        self._addresses = [
            Signal(LOCAL_WIDTH, name=f"address_{stage}") for stage in range(REQUANTISE_CYCLES + 1)
        ]

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.fetch = fetch = OperandFetch(parameters)
        m.submodules.array = array = OuterProductArray(parameters)
        m.submodules.vector = vector = VectorUnit(parameters)
        m.submodules.requantiser = requantiser = Requantiser(
            lanes=parameters.lanes, value_width=parameters.vector_width
        )
        m.submodules.statistics = statistics = Statistics(lanes=parameters.lanes)
        m.submodules.results = results = ResultQueue(
            parameters, tile_rows=parameters.pe2_rows, depth=RESULT_DEPTH
        )
        for name in ("x", "g", "store"):
            connect(m, getattr(fetch, name), flipped(getattr(self, name)))
        connect(m, results.z, flipped(self.z))
        connect(m, statistics.port, flipped(self.statistics))

        self._take_command(m, fetch, vector, requantiser, statistics)
        issue = self._issue(m, fetch, results)
        for unit in (array, vector):
            m.d.comb += [unit.x_row.eq(fetch.x_row), unit.g_row.eq(fetch.g_row)]
        m.d.comb += [
            array.valid.eq(issue & ~self._elementwise),
            array.first.eq(fetch.first),
            array.last.eq(fetch.last),
            vector.valid.eq(issue & self._elementwise),
        ]
        self._drain(m, issue, fetch, array, vector, requantiser)
        self._write(m, requantiser, statistics, results)
        self._control(m, issue, fetch, results, statistics)
        return m

    def _take_command(self, m, fetch, vector, requantiser, statistics) -> None:
        command = self.command.payload
        operation = command.operation
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            vector.configure.eq(self._load),
            vector.command.eq(command),
            requantiser.configure.eq(self._load),
            requantiser.shift.eq(command.shift),
            requantiser.out_width.eq(command.out_width),
            statistics.configure.eq(self._load),
            statistics.slot.eq(command.slot),
        ]
        with m.If(self._load):
            m.d.sync += [
                self._elementwise.eq((operation == Operation.BIAS) | (operation == Operation.MASK)),
                self._z_row_stride.eq(command.z_row_stride),
            ]

    def _issue(self, m: Module, fetch, results) -> Signal:
        """Take a step, unless it completes a tile that has nowhere to go. Returns the strobe."""
        issue, blocked = Signal(), Signal()
        spacing = Signal(ROWS_WIDTH)  # cycles until the drain buffer may be overwritten
        ends_tile = Signal()
        m.d.comb += [
            blocked.eq(fetch.last & ((spacing != 0) | ~results.room)),
            fetch.ready.eq(~blocked),
            issue.eq(fetch.valid & ~blocked),
            ends_tile.eq(issue & fetch.last),
            results.reserve.eq(ends_tile),
            results.reserve_rows.eq(fetch.rows),
        ]
        with m.If(ends_tile):
            m.d.sync += spacing.eq(fetch.rows - 1)
        with m.Elif(spacing != 0):
            m.d.sync += spacing.eq(spacing - 1)
        return issue

    def _drain(self, m: Module, issue, fetch, array, vector, requantiser) -> None:
        """Rows of a complete tile to the requantiser, one a cycle."""
        lands = [issue & fetch.last]
        rows, z = [fetch.rows], [fetch.z]
        for stage in range(1, OUTER_CYCLES):
            lands.append(Signal(name=f"lands_{stage}"))
            rows.append(Signal(ROWS_WIDTH, name=f"rows_{stage}"))
            z.append(Signal(LOCAL_WIDTH, name=f"z_{stage}"))
            m.d.sync += lands[stage].eq(lands[stage - 1])
            with m.If(lands[stage - 1]):
                m.d.sync += [rows[stage].eq(rows[stage - 1]), z[stage].eq(z[stage - 1])]

        draining = Signal()
        row, remaining = Signal(ROWS_WIDTH), Signal(ROWS_WIDTH)
        address = Signal(LOCAL_WIDTH)
        with m.If(lands[-1]):
            m.d.sync += [draining.eq(1), row.eq(0), remaining.eq(rows[-1] - 1), address.eq(z[-1])]
        with m.Elif(draining):
            m.d.sync += [
                draining.eq(remaining != 0),
                row.eq(row + 1),
                remaining.eq(remaining - 1),
                address.eq(address + self._z_row_stride),
            ]
        m.d.comb += array.row.eq(row)
        # a register between the selection of a row and the shifters of the requantiser
        m.d.sync += requantiser.valid.eq(draining)
        with m.If(draining):
            m.d.sync += [
                self._addresses[0].eq(address),
                *(
                    value.eq(Mux(self._elementwise, vector.value[lane], array.value[lane]))
                    for lane, value in enumerate(requantiser.value)
                ),
            ]

    def _write(self, m: Module, requantiser, statistics, results) -> None:
        """Requantised rows to the result queue and into the statistics."""
        addresses = self._addresses
        m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(addresses)]
        m.d.comb += [
            results.push.eq(requantiser.result_valid),
            results.address.eq(addresses[-1]),
            statistics.valid.eq(requantiser.result_valid),
            statistics.enable.eq(~0),
        ]
        for lane, word in enumerate(requantiser.word):
            m.d.comb += [
                results.row[lane].eq(word),
                statistics.word[lane].eq(word),
                statistics.saturated[lane].eq(requantiser.saturated[lane]),
            ]

    def _control(self, m: Module, issue, fetch, results, statistics) -> None:
        """Busy from a command until its rows and its statistics are out."""
        running, all_issued = Signal(), Signal()
        write = results.z.request
        m.d.comb += [
            self.command.ready.eq(~running),
            statistics.finish.eq(all_issued & results.empty),
            self.status.busy.eq(running),
            self.status.stall_operand.eq(running & ~all_issued & ~fetch.valid),
            self.status.stall_result.eq(
                Mux(all_issued, write.valid & ~write.ready, fetch.valid & ~issue)
            ),
        ]
        with m.If(self._load):
            m.d.sync += running.eq(1)
        with m.If(issue & fetch.final):
            m.d.sync += all_issued.eq(1)
        with m.If(statistics.port.item.valid & statistics.port.item.ready):
            m.d.sync += [running.eq(0), all_issued.eq(0)]
