"""PE2, the engine of PE3: equation 6; and of bias, activation and mask."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Operation
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.compute.pe2.drain import Drain
from trainwright_hw.compute.pe2.fetch import OPERAND_CYCLES, OperandFetch
from trainwright_hw.compute.pe2.outer_array import OuterProductArray, outer_cycles
from trainwright_hw.compute.pe2.vector import VectorUnit, vector_cycles
from trainwright_hw.control.command_contexts import CommandContexts, per_context
from trainwright_hw.control.engine_ports import ComputeEngine
from trainwright_hw.storage.ports import ReadPort
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import RowPort, row_lead


class Pe2(wiring.Component):
    """Engine of PE3, BIAS and MASK (``trainwright.program.descriptors.Compute``).

    It takes one step of the nest per cycle. The tile of a complete reduction waits in the drain
    buffer for the write-back unit, which takes a row in each cycle that PE1 leaves free, during the
    next tile's steps. So a reduction of at least ``pe2_rows`` steps has no overhead if PE1 has no
    results, and a shorter one takes ``rows`` cycles. A tile's last step waits until the previous
    tile leaves the drain buffer in time; a step of BIAS and MASK that completes a row waits until
    the row can leave at once; after that nothing waits.

    The engine accepts the next command while the last results of the previous one are still in
    flight: the next command may read rows that are not yet written, unless it waits for its own
    engine.

    Members: those of ``ComputeEngine``; ``x``, ``g``: ``ReadPort``; ``results``: ``RowPort``.
    ``stall_operand``: there is no step to take. ``stall_result``: a step waits for the write-back
    unit, or at the end rows wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._arithmetic = arithmetic = lane_format(parameters)
        cycles = OPERAND_CYCLES + arithmetic.decode_cycles
        # Sums and element-wise values must meet the write-back unit after the same time, as one
        # slot schedule serves both.
        assert outer_cycles(arithmetic) == vector_cycles(arithmetic)
        assert cycles + outer_cycles(arithmetic) == row_lead(arithmetic)
        super().__init__(
            {
                **ComputeEngine(parameters).members,
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "results": Out(RowPort(parameters)),
            }
        )
        self._load = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.contexts = contexts = CommandContexts()
        m.submodules.fetch = fetch = OperandFetch(parameters)
        m.submodules.array = array = OuterProductArray(parameters, arithmetic=self._arithmetic)
        m.submodules.vector = vector = VectorUnit(parameters)
        for name in ("x", "g"):
            connect(m, getattr(fetch, name), flipped(getattr(self, name)))

        elementwise, formats = self._take_command(m, contexts, fetch, vector)
        is_elementwise = Signal()  # whether the offered step is element-wise
        m.d.comb += is_elementwise.eq(elementwise(fetch.context))
        issue = self._issue(m, fetch, is_elementwise)
        # Flags follow their operands through memory and decoder: no unit knows how long these take.
        flags = delay_line(
            m,
            Cat(
                *(issue & ~is_elementwise, issue & is_elementwise, fetch.last, fetch.context),
                *([fetch.digit] if parameters.narrow else []),
            ),
            OPERAND_CYCLES + self._arithmetic.decode_cycles + 1,
            "flags",
            reset_less=False,
        )
        controls = (array.valid, vector.valid, array.last, vector.context)
        m.d.comb += Cat(*controls, *([array.digit] if parameters.narrow else [])).eq(flags[-1])
        if parameters.wide_tensors:
            m.d.comb += vector.last.eq(array.last)
        # The format must be known when the words leave the scratchpad, a stage before the array.
        context = flags[OPERAND_CYCLES][len(controls) - 1]
        self._decode(m, fetch, [select(context) for select in formats], array, vector)
        self._drain(m, elementwise, array, vector)
        self._control(m, contexts, issue, fetch)
        return m

    def _take_command(self, m, contexts, fetch, vector) -> tuple[Callable, list[Callable]]:
        """Take a command.

        Returns selectors by context: whether the command is element-wise, and its operands'
        formats.
        """
        command, context = self.command.payload, contexts.context
        operation, results = command.operation, self.results
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            contexts.accept.eq(self._load),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            fetch.command_context.eq(context),
            # Settings follow the offered command: they are right in the cycle in which it is taken,
            # without a path from the acceptance to the registers.
            vector.configure.eq(contexts.free),
            vector.configure_context.eq(context),
            vector.command.eq(command),
            results.configure.eq(contexts.free),
            results.configure_context.eq(context),
            results.command.eq(command),
        ]
        if self._parameters.stochastic_rounding:
            m.d.comb += results.stream.eq(self.stream)
        # A register: `ready` drives the sequencer and its hazard checks, a long path.
        m.d.sync += self.command.ready.eq(fetch.free & contexts.free & ~self._load)
        is_elementwise = (operation == Operation.BIAS) | (operation == Operation.MASK)
        elementwise, *formats = (
            per_context(m, contexts.free, context, value, name)
            for value, name in (
                (is_elementwise, "elementwise"),
                (command.x_format, "x_format"),
                (command.g_format, "g_format"),
            )
        )
        return elementwise, formats

    # Words beyond those that the array uses may stand for no number; only used ones are checked.
    def _decode(self, m: Module, fetch, formats, array, vector) -> None:
        """Decode words to operands; the array uses only the first ``pe2_rows`` second operands."""
        invalid = {}
        operands = (fetch.x_operand, fetch.g_operand)
        for name, words, select in zip(("x", "g"), operands, formats, strict=True):
            decoded = self._arithmetic.decode(m, name, list(words), select)
            values, invalid[name] = decoded
            for unit in (array, vector):
                to = getattr(unit, f"{name}_row")
                m.d.comb += [port.eq(value) for port, value in zip(to, values, strict=True)]
        if self._parameters.formats:
            used = Cat(invalid["x"], invalid["g"][: self._parameters.pe2_rows])
            m.d.sync += self.invalid.eq(
                (array.valid & used.any()) | (vector.valid & Cat(*invalid.values()).any())
            )

    def _issue(self, m: Module, fetch, elementwise) -> Signal:
        """Take a step, unless it completes a tile that has nowhere to go; return the strobe."""
        issue, blocked = Signal(), Signal()
        results = self.results
        # Only the last step of a tile can be refused: it alone produces something that must be
        # stored.
        m.d.comb += [
            # element-wise values are not buffered: their row must be able to leave at once
            blocked.eq(fetch.last & ~(results.ready & (results.prompt | ~elementwise))),
            fetch.ready.eq(~blocked),
            issue.eq(fetch.valid & ~blocked),
            results.start.eq(issue & fetch.last),
            *(
                results.tile[name].eq(getattr(fetch, name))
                for name in ("z", "rows", "final", "context")
            ),
            results.offered.eq(fetch.valid & fetch.last),
        ]
        return issue

    def _drain(self, m: Module, elementwise, array, vector) -> None:
        """Send rows of complete tiles, and of element-wise operations, when they are due."""
        m.submodules.drain = drain = Drain(self._parameters)
        results, due = self.results, Signal()
        # PE2's rows share the slots with element-wise rows; only sums wait in the drain.
        m.d.sync += [
            due.eq(results.next_due & ~elementwise(results.next_context)),
            array.row.eq(results.next_row),
        ]
        m.d.comb += drain.due.eq(due)
        for lane, to in enumerate(results.value):
            m.d.comb += [
                drain.sum[lane].eq(array.value[lane]),
                drain.elementwise[lane].eq(vector.value[lane]),
                to.eq(drain.value[lane]),
            ]

    def _control(self, m: Module, contexts, issue, fetch) -> None:
        """Report busy from a command until its rows and its statistics are written."""
        results = self.results
        m.d.comb += [
            contexts.final_step.eq(issue & fetch.final),
            contexts.final_row.eq(results.final_row),
            # A command stays busy until its statistics are delivered, as the next one may read
            # them.
            contexts.item.eq(results.item),
            self.status.busy.eq(contexts.busy),
            self.status.older.eq(contexts.older),
            self.status.stall_operand.eq(contexts.stepping & ~fetch.valid),
            self.status.stall_result.eq(
                Mux(contexts.stepping, fetch.valid & ~issue, results.back_pressured)
            ),
        ]
