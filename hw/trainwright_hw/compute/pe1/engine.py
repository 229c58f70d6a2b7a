"""PE1, the engine of PE4: equation 5, contraction along the lanes."""

from itertools import pairwise

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.requantiser import thermometer
from trainwright_hw.compute.pe1.dot_array import DotProductArray, dot_cycles
from trainwright_hw.compute.pe1.fetch import StepFetch
from trainwright_hw.control.command_contexts import CommandContexts, per_context
from trainwright_hw.control.engine_ports import ComputeEngine
from trainwright_hw.storage.ports import ReadPort
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.writeback.ports import ColumnPort, column_lead

ENTRY_CYCLES = 2
"""Cycles from a step's start to its first entry; missing rows may arrive in them."""
SWAP_CYCLES = ENTRY_CYCLES + 2
"""Cycles from the decision to start a step to its first entry at the array, without decoding."""


class Pe1(wiring.Component):
    """Engine of PE4 (``trainwright.program.descriptors.Compute``).

    A step of the nest takes ``lanes`` cycles: one entry (a scratchpad row) per cycle meets
    ``pe1_rows`` stationary rows. Meanwhile the next step's rows are loaded, its entries fetched,
    and earlier tiles written back. A step starts only when its rows and entries are available, and
    a reduction's last step only when the write-back unit has credit for its tile; after the start
    nothing waits.

    The engine accepts the next command while the last results of the previous one are still in
    flight: the next command may read rows that are not yet written, unless it waits for its own
    engine.

    All ``pe1_rows`` rows of a tile are fetched, including rows past ``last_rows``, which have no
    effect. With posits the last valid row is fetched again in their place, so that every row holds
    numbers.

    Rows and entries are decoded on their way to the array, which works later by the cycles that
    decoding takes.

    Members: those of ``ComputeEngine``; ``x``, ``g``: ``ReadPort``; ``results``: ``ColumnPort``.
    ``stall_operand``: the array is free, but the next step's rows or entries are missing.
    ``stall_result``: they are available, but there is no credit for the tile, or at the end rows
    wait for the write port.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._arithmetic = arithmetic = lane_format(parameters)
        # a step starts a cycle after its decision
        cycles = SWAP_CYCLES + arithmetic.decode_cycles + dot_cycles(arithmetic)
        assert cycles == column_lead(arithmetic) + 1
        super().__init__(
            {
                **ComputeEngine(parameters).members,
                "x": Out(ReadPort(parameters)),
                "g": Out(ReadPort(parameters)),
                "results": Out(ColumnPort(parameters, rows=parameters.pe1_rows)),
            }
        )
        self._load = Signal()
        self._start = Signal()  # start a step
        self._shadow_ready = Signal()
        self._idle = Signal(init=1)  # the array can take a step in the next cycle
        self._swap = Signal()  # the array swaps in the next cycle
        self._context = Signal()  # context of the latest started step

    def elaborate(self, platform) -> Module:
        m = Module()
        parameters = self._parameters
        m.submodules.contexts = contexts = CommandContexts()
        m.submodules.fetch = fetch = StepFetch(parameters)
        m.submodules.array = array = DotProductArray(parameters, arithmetic=self._arithmetic)
        for name in ("x", "g"):
            connect(m, getattr(fetch, name), flipped(getattr(self, name)))
        # Stages in the order in which data flows: command, rows, start of a step, entries, results.
        self._take_command(m, contexts, fetch)
        formats = [
            per_context(m, contexts.free, contexts.context, self.command.payload[name], name)
            for name in ("x_format", "g_format")
        ]
        rows_invalid = self._load_shadow(m, fetch, array, formats[0])
        self._start_step(m, fetch)
        entries_invalid = self._stream(m, fetch, array, formats[1])
        if parameters.formats:
            m.d.sync += self.invalid.eq(
                (array.load & rows_invalid) | (array.valid & entries_invalid)
            )
        self._write(m, contexts, array)
        self._control(m, contexts, fetch)
        return m

    def _take_command(self, m, contexts, fetch) -> None:
        command = self.command.payload
        m.d.comb += [
            self._load.eq(self.command.valid & self.command.ready),
            contexts.accept.eq(self._load),
            fetch.load.eq(self._load),
            fetch.command.eq(command),
            fetch.command_context.eq(contexts.context),
        ]
        # A register: `ready` drives the sequencer and its hazard checks, a long path.
        m.d.sync += self.command.ready.eq(fetch.free & contexts.free & ~self._load)

    def _load_shadow(self, m: Module, fetch, array, format_of) -> Value:
        """Load rows of the next step into the shadow set, from the cycle of a swap on.

        Returns whether the row at the array has a word that is no number.
        """
        rows, decode_cycles = self._parameters.pe1_rows, self._arithmetic.decode_cycles
        load = Signal()
        missing = Signal(range(rows + 1), init=rows)
        following = Signal.like(missing)  # `missing` in the next cycle
        m.d.comb += [
            fetch.row_ready.eq(missing != 0),
            load.eq(fetch.row_valid & fetch.row_ready),
            following.eq(Mux(self._swap, rows, missing - load)),
        ]
        # Rows belong to the next step, or to a step that has started but not swapped yet.
        starting = Signal()
        with m.If(self._start | self._swap):
            m.d.sync += starting.eq(self._start)
        context = Mux(starting, self._context, fetch.step.context)
        row, invalid = self._arithmetic.decode(m, "row", list(fetch.row), format_of(context))
        number = Signal(range(rows))
        m.d.comb += [
            number.eq(rows - missing),
            array.load.eq(delay_line(m, load, decode_cycles + 1, "load", reset_less=False)[-1]),
            array.load_row.eq(delay_line(m, number, decode_cycles + 1, "load_row")[-1]),
            *(to.eq(word) for to, word in zip(array.row, row, strict=True)),
        ]
        # A step may start before all its rows are loaded, if at most `most` are missing and as many
        # have arrived: they will be loaded when the array swaps. A row that is loaded now counts
        # both as missing and as arrived, which avoids an adder in front of the comparisons.
        most = SWAP_CYCLES
        here = Cat(C(1, 1), thermometer(fetch.level))  # bit n: n rows or more
        few_missing = Cat((missing == n) & here[n] for n in range(1, most + 1)).any()
        few = Mux(load, (missing == most + 1) & here[most + 1], missing == 0)
        of_all = Mux(load, here[rows + 1], here[rows]) if rows <= most else C(0, 1)
        m.d.sync += [
            # While the array swaps, every row is missing again, so the answer is for the step
            # after.
            missing.eq(following),
            self._shadow_ready.eq(Mux(self._swap, of_all, few_missing | few)),
        ]
        return Cat(invalid).any()

    def _start_step(self, m: Module, fetch) -> None:
        """Start a step when its rows are there, with credit for its tile if it completes one."""
        step, results = fetch.step, self.results
        blocked = Signal()
        m.d.comb += [
            blocked.eq(step.last & ~results.credit),
            self._start.eq(self._idle & self._shadow_ready & fetch.step_valid & ~blocked),
            fetch.step_ready.eq(self._start),
        ]
        # registered: the next step cannot start for many cycles
        m.d.sync += [
            results.start.eq(self._start & step.last),
            *(results.tile[name].eq(step[name]) for name in ("z", "rows", "final", "context")),
        ]

    def _stream(self, m: Module, fetch, array, format_of) -> Value:
        """Send a step's entries to the array, one per cycle.

        Returns whether the entry at the array has a word that is no number.
        """
        parameters, arithmetic, step = self._parameters, self._arithmetic, fetch.step
        lanes = parameters.lanes
        stages = range(ENTRY_CYCLES + 1)
        number = [Signal(range(lanes), name=f"number_{stage}") for stage in stages]
        narrow = parameters.narrow
        flags = [Signal(2 + narrow, name=f"flags_{stage}") for stage in stages]
        # The numbers run ahead of the entries by the cycles that a fetch takes.
        valid, first, *digit = flags[0]
        valid_now, first_now, *digit_now = flags[-1]
        context = delay_line(m, self._context, len(stages) + 1, "context")[-1]
        for delayed in (number, flags):
            m.d.sync += [later.eq(earlier) for earlier, later in pairwise(delayed)]
        m.d.comb += [
            fetch.entry_ready.eq(valid_now),
            # The first entry of a step switches the array to the rows in the shadow set.
            self._swap.eq(valid_now & (number[-1] == 0)),
        ]
        # Registers in front of the array's own, because an entry fans out to all rows.
        controls = {
            "valid": valid_now,
            "first": first_now,
            "number": number[-1],
            "swap": self._swap,
        }
        if narrow:
            controls["digit"] = digit_now[0]
        for name, value in controls.items():
            delayed_value = delay_line(
                m, value, arithmetic.decode_cycles + 2, name, reset_less=False
            )[-1]
            m.d.comb += getattr(array, name).eq(delayed_value)
        row = Signal.like(fetch.entry, reset_less=True)
        m.d.sync += row.eq(fetch.entry)
        entry, invalid = arithmetic.decode(m, "entry", list(row), format_of(context))
        m.d.comb += [to.eq(value) for to, value in zip(array.entry, entry, strict=True)]
        with m.If(self._start):
            m.d.sync += [
                Cat(valid, first).eq(Cat(1, step.first)),
                *([digit[0].eq(step.digit)] if narrow else []),
                self._context.eq(step.context),
                number[0].eq(0),
                self._idle.eq(lanes == 1),
            ]
        # Idle is set one entry early, so that the next step can follow without a gap.
        with m.Elif(valid):
            m.d.sync += [
                valid.eq(~self._idle),
                number[0].eq(number[0] + 1),
                self._idle.eq(self._idle | (number[0] == lanes - 2)),
            ]
        return Cat(invalid).any()

    def _write(self, m: Module, contexts, array) -> None:
        """Connect complete sums and the command's settings to the write-back unit."""
        port = self.results
        m.d.comb += [
            port.configure.eq(contexts.free),
            port.configure_context.eq(contexts.context),
            port.command.eq(self.command.payload),
            *(to.eq(value) for to, value in zip(port.value, array.value, strict=True)),
        ]
        if self._parameters.stochastic_rounding:
            m.d.comb += port.stream.eq(self.stream)

    def _control(self, m: Module, contexts, fetch) -> None:
        """Report busy from a command until its rows and its statistics are written."""
        operands, results = Signal(), self.results
        m.d.comb += [
            operands.eq(self._shadow_ready & fetch.step_valid),
            contexts.final_step.eq(self._start & fetch.step.final),
            contexts.final_row.eq(results.final_row),
            contexts.item.eq(results.item),
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
