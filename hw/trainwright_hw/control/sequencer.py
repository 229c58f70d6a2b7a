"""The sequencer: loads a program and issues its descriptors to the engines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from trainwright.accelerator.registers import Error
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Loop, Set, Transfer
from trainwright.program.engines import ARRAYS, ENGINE_OF, ENGINES
from trainwright.program.exponents import SCALARS
from trainwright.program.fields import (
    DESCRIPTOR_BITS,
    DESCRIPTOR_BYTES,
    EIGHTH,
    INSTRUCTION_WIDTH,
    MOST_DESCRIPTORS,
    NUMBER_WIDTH,
    REGISTER_WIDTH,
    Engine,
    Operation,
    Target,
)
from trainwright.program.table import Header
from trainwright.program.vector import CODE_WORDS, Code, Vector
from trainwright_hw.control.address_registers import AddressRegisters
from trainwright_hw.control.csr import ERROR_WIDTH
from trainwright_hw.control.engine_ports import (
    COMPUTE_LAYOUT,
    SCALAR_WIDTH,
    TRANSFER_LAYOUT,
    HostSlot,
    StepPort,
    TakenSum,
    command_layout,
    used_bits,
    whole_layout,
)
from trainwright_hw.control.exponent_file import PLACE_WIDTH, ExponentFile
from trainwright_hw.control.loop_stack import LoopStack
from trainwright_hw.control.program_fetch import ProgramFetch
from trainwright_hw.control.program_memory import ProgramMemory, ProgramWritePort, descriptor_beats
from trainwright_hw.control.repetition import Repetition
from trainwright_hw.control.watchdog import WATCHDOG_WIDTH, Watchdog

COMMANDS = {
    spec.engine: (spec.unit, COMPUTE_LAYOUT if spec.rows_parameter else TRANSFER_LAYOUT)
    for spec in ENGINES
}
"""Name and layout of each engine's commands."""
LOAD = list(COMMANDS).index(Engine.LOAD)
"""Bit of LOAD in ``busy``."""
VECTOR = (Operation.VECTOR, Operation.CODE)
"""Operations of the vector engine, which takes whole descriptors."""
TRANSFER_ADDRESSES, COMPUTE_ADDRESSES = (
    {field.name: field.register for field in kind.layout if field.register}
    for kind in (Transfer, Compute)
)
"""Fields of commands to which a register is added, and the fields that name it."""
OWN = (Operation.HALT, Operation.LOOP, Operation.END, Operation.SET)
"""Operations of the sequencer itself; with an exponent file also SCALES."""
COMPUTES = [kind for kind, engine in ENGINE_OF.items() if engine in ARRAYS]
BY_FILE = ("shift", "x_shift", "g_shift")
"""Fields of COMPUTE that the exponent file supplies if the descriptor names a slot for z."""


def _with_fields(layout: data.StructLayout, bits: Value, fields: Mapping[str, Value]) -> Value:
    """Replace those fields of ``bits``, laid out as ``layout``, that are in ``fields``."""
    return Cat(
        fields[name] if name in fields else bits[field.offset : field.offset + field.width]
        for name, field in layout
    )


_Signals = dict[str, Signal]


@dataclass(frozen=True)
class _Parts:
    """Submodules of a sequencer, and the registers of its present descriptor."""

    memory: ProgramMemory
    registers: AddressRegisters
    watchdog: Watchdog
    loops: LoopStack
    fetch: ProgramFetch
    file: ExponentFile | None
    steps: Repetition | None
    descriptor: Signal
    number: Signal
    """Number of the descriptor in the program."""
    error: Signal


@dataclass(frozen=True)
class _Issue:
    """Signals that decide whether the present descriptor takes effect."""

    kinds: _Signals
    """High for the engine, or the operation of the sequencer itself, that the descriptor is for."""
    offered: _Signals
    """High while a command is offered to an engine."""
    idle: Signal
    """High while no engine works."""
    clear: Signal
    """High once the engines that the descriptor waits for are done."""


class Sequencer(wiring.Component):
    """Executor of programs (``trainwright.program.descriptors``).

    After ``start`` the program is loaded, as much of it as the memory holds, and then run: fetch,
    read, add registers, issue. A descriptor takes these four cycles if nothing waits. The remainder
    of a longer program is loaded while LOAD is idle, or when a descriptor is missing
    (``trainwright_hw.control.program_fetch``). In addition to the descriptor's waits, a command
    waits until its engine takes it; LOAD and STORE take a command while the previous one's data
    still moves. HALT waits for all engines. After an error no further descriptor is issued; the run
    ends when all engines are idle. Running past the last descriptor, or an empty program, is the
    error ``OPERATION``. If nothing moves for ``watchdog`` cycles the run ends at once, with the
    error ``WATCHDOG`` unless there was another: the engines that are then ``hung`` need a reset.

    Members: ``start``, ``address``, ``length``, ``running``, ``finished``, ``error`` and
    ``descriptor`` as in ``Registers``; a stream of commands with resolved addresses for each
    engine, by its name: ``load``...; ``busy`` and ``older`` of the engines' status, one bit per
    engine; ``settling``, high while results of idle engines are still in flight to the host;
    ``read_error`` and ``write_error``, with posits also ``format_error``, with ``address_checks``
    also ``outside``; ``vector``, with a vector engine: a stream of unchanged descriptors for it;
    ``program``, through which the load engine writes the program; ``waiting``, high while a
    descriptor waits for engines; ``watchdog`` and ``progress`` as in ``Watchdog``; ``hung``, the
    engines that were busy when the watchdog expired; ``last``, for each engine the number of the
    descriptor it received last; with random bits also ``stream``, for the command offered to an
    array; ``loading``, high while LOAD's command is for the program itself.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        self._names = [name for name, _ in COMMANDS.values()]
        vector = {}
        if parameters.vector_engine:
            self._names.append("vector")
            vector["vector"] = Out(stream.Signature(DESCRIPTOR_BITS))
        of_file = {"sums": Out(TakenSum()), "host": Out(HostSlot()), "steps": Out(StepPort())}
        if parameters.vector_engine:
            of_file["scalars"] = Out(signed(SCALAR_WIDTH)).array(SCALARS)
            of_file |= {"place": Out(PLACE_WIDTH), "word": In(INSTRUCTION_WIDTH)}
        super().__init__(
            {
                "start": In(1),
                "address": In(REGISTER_WIDTH),
                "length": In(32),
                "running": Out(1),
                "finished": Out(1),
                "error": Out(ERROR_WIDTH),
                "descriptor": Out(NUMBER_WIDTH),
                "loading": Out(1),
                **{name: Out(stream.Signature(layout)) for name, layout in COMMANDS.values()},
                **vector,
                "busy": In(len(COMMANDS)),
                "older": In(len(COMMANDS)),
                "settling": In(1),
                "read_error": In(1),
                "write_error": In(1),
                **({"format_error": In(1)} if parameters.formats else {}),
                **({"outside": In(1)} if parameters.address_checks else {}),
                "program": In(ProgramWritePort(parameters)),
                "waiting": Out(1),
                "watchdog": In(WATCHDOG_WIDTH),
                "progress": In(1),
                "hung": Out(len(COMMANDS)),
                "last": Out(NUMBER_WIDTH).array(len(COMMANDS)),
                **({"stream": Out(32)} if parameters.random_stream else {}),
                **(of_file if parameters.exponents else {}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        s = self._parts(m)
        header = data.View(command_layout(Header.layout), s.descriptor[: _width(Header.layout)])
        # Whether to wait is decided a cycle ahead: that costs a cycle only if there is a wait.
        idle, clear, clearing = Signal(), Signal(), Signal()
        m.d.comb += clearing.eq(((header.wait & self.busy) | (header.wait_older & self.older)) == 0)
        m.d.sync += [idle.eq((self.busy == 0) & ~self.settling), clear.eq(clearing)]
        self._connect(m, s)
        self._watch(m, s)
        self._commands(m, s)
        self._controls(m, s)
        if self.parameters.random_stream:
            self._stream(m, s)
        next_kind, kinds = self._kinds(m, header)
        # Engines see commands from registers, because they inspect much of a command at once.
        offered = {name: Signal(name=f"{name}_offered") for name in self._names}
        offer = [offered[name].eq(clearing & next_kind[name]) for name in offered]
        m.d.comb += [getattr(self, name).valid.eq(signal) for name, signal in offered.items()]
        m.d.sync += [
            *_withdraw(offered),
            *(strobe.eq(0) for strobe in (s.loops.push, s.loops.end)),
            *(strobe.eq(0) for strobe in (s.registers.add, s.registers.set)),
        ]
        issue = _Issue(kinds, offered, idle, clear)
        with m.FSM():
            self._begin_states(m, s, idle)
            self._fetch_states(m, s, offer, offered)
            # Offer the command until its engine takes it and the hazards it waits for are gone.
            with m.State("ISSUE"):
                m.d.sync += offer
                self._issue(m, s, issue)
                if s.file is not None:
                    self._issue_by_file(m, s, issue)
                m.d.comb += s.watchdog.waiting.eq(self.waiting)
                with m.If(s.watchdog.expired & self.waiting):
                    m.d.sync += _withdraw(offered)
                    m.next = "HANG"
            self._end_states(m, s, idle)
        self._collect_errors(m, s.error)
        return m

    def _parts(self, m: Module) -> _Parts:
        """Add the submodules, and the registers of the present descriptor."""
        m.submodules.memory = memory = ProgramMemory(self.parameters)
        m.submodules.registers = registers = AddressRegisters(
            readers=len(TRANSFER_ADDRESSES) + len(COMPUTE_ADDRESSES)
        )
        m.submodules.watchdog = watchdog = Watchdog()
        m.submodules.loops = loops = LoopStack(self.parameters, number_width=NUMBER_WIDTH)
        connect(m, flipped(self.program), memory.write)
        m.submodules.fetch = fetch = ProgramFetch(self.parameters)
        by_file = bool(self.parameters.exponents)
        number = Signal(NUMBER_WIDTH)
        # error codes of optional parts need a fourth bit
        more = by_file or self.parameters.address_checks
        error = Signal(range(max(Error) + 1 if more else Error.EXPONENT))
        # The memory holds its answer and only this register follows it, so that tools can use the
        # block RAM's output register.
        descriptor = Signal(DESCRIPTOR_BITS, reset_less=True)
        m.d.sync += descriptor.eq(memory.descriptor)
        file, steps = self._resident(m, descriptor) if by_file else (None, None)
        return _Parts(
            memory, registers, watchdog, loops, fetch, file, steps, descriptor, number, error
        )

    def _connect(self, m: Module, s: _Parts) -> None:
        """Connect the submodules to each other and to the ports."""
        begin = self.start if s.steps is None else self.start | self._again
        load = self.start if s.steps is None else self.start | self._again & self._afresh
        m.d.comb += [
            self.error.eq(s.error),
            self.descriptor.eq(s.number),
            s.memory.number.eq(s.number + s.fetch.origin),
            s.registers.clear.eq(begin),
            s.loops.clear.eq(begin),
            s.fetch.start.eq(load),
            s.fetch.address.eq(self.address),
            s.fetch.length.eq(self.length),
            s.fetch.number.eq(s.number),
            s.fetch.needed.eq(Mux(s.loops.empty, s.number, s.loops.first)),
            s.fetch.written.eq(s.memory.written),
        ]
        if s.steps is not None:
            m.d.comb += [
                s.fetch.more.eq(self._long & ~s.steps.last),
                s.fetch.again.eq(self._again & self._long),
            ]
            m.d.sync += self._afresh.eq(self._long & (s.number + 1 != self.length))

    def _begin_states(self, m: Module, s: _Parts, idle: Signal) -> None:
        """Add the states that start a run and load its program."""
        with m.State("IDLE"):
            with m.If(self.start):
                m.d.sync += [self.running.eq(1), s.number.eq(0), s.error.eq(Error.NONE)]
                m.next = "LOAD-PROGRAM"
                with m.If(self.length == 0):
                    m.d.sync += s.error.eq(Error.OPERATION)
                    m.next = "DRAIN"
                with m.If(self.length > MOST_DESCRIPTORS):
                    m.d.sync += s.error.eq(Error.PROGRAM)
                    m.next = "DRAIN"
        # Request the next part of the program from memory. A full descriptor memory does not
        # stop a running program: the states from FETCH on return here between descriptors.
        with m.State("LOAD-PROGRAM"):
            m.d.comb += [
                self.loading.eq(1),
                self.load.valid.eq(1),
                s.fetch.taken.eq(self.load.ready),
                s.watchdog.waiting.eq(~self.load.ready),
            ]
            m.d.sync += idle.eq(0)
            with m.If(s.watchdog.expired):
                m.next = "HANG"
            with m.If(self.load.ready):
                m.next = "FETCH"
                with m.If(s.fetch.first):
                    m.next = "AWAIT-PROGRAM"
        # Only the first part has to arrive completely before descriptors are executed.
        with m.State("AWAIT-PROGRAM"):
            m.d.comb += s.watchdog.waiting.eq(~idle)
            with m.If(idle if s.steps is None else idle & ~s.steps.busy):
                m.next = "FETCH"
            with m.If(s.watchdog.expired):
                m.next = "HANG"

    def _fetch_states(self, m: Module, s: _Parts, offer: list, offered: _Signals) -> None:
        """Add the states that bring a descriptor from the program memory to ISSUE."""
        # Address the descriptor memory. The later conditions override the earlier ones: an
        # error ends the program before a missing descriptor is waited for.
        with m.State("FETCH"):
            m.d.comb += [s.memory.enable.eq(1), s.watchdog.waiting.eq(s.fetch.missing)]
            m.next = "READ"
            with m.If(s.fetch.missing):
                m.next = "FETCH"
                with m.If(s.watchdog.expired):
                    m.next = "HANG"
            with m.If(s.fetch.wanted & (s.fetch.missing | ~self.busy[LOAD])):
                m.next = "LOAD-PROGRAM"
            with m.If(s.number == self.length):
                m.d.sync += s.error.eq(Error.OPERATION)
                m.next = "DRAIN"
            with m.If(s.error != Error.NONE):
                m.next = "DRAIN"
        # The memory answers after a cycle, and `descriptor` holds the answer after another one.
        with m.State("READ"):
            m.next = "ADD"
        # Address registers are added to the descriptor's addresses in this cycle.
        with m.State("ADD"):
            m.d.sync += offer
            m.next = "ISSUE"
            if s.file is not None:
                with m.If(self._is_skipped(m, s)):
                    m.d.sync += [s.number.eq(s.number + 1), *_withdraw(offered)]
                    m.next = "FETCH"
                with m.Else():
                    self._resolve(m, s, offered)
        if s.file is not None:
            self._by_file(m, s, offer)

    def _end_states(self, m: Module, s: _Parts, idle: Signal) -> None:
        """Add the states that end a run, with or without an error."""
        # The program has ended or failed: wait until all engines have finished their commands.
        with m.State("DRAIN"):
            m.d.comb += s.watchdog.waiting.eq(~idle)
            with m.If(idle):
                m.next = "FINISH"
            with m.If(s.watchdog.expired):
                m.next = "HANG"
        # Nothing made progress for too long. Record which engines are busy, and keep an earlier
        # error, which is the likely cause of the hang.
        with m.State("HANG"):
            m.d.sync += self.hung.eq(self.busy)
            with m.If(s.error == Error.NONE):
                m.d.sync += s.error.eq(Error.WATCHDOG)
            m.next = "FINISH"
        with m.State("FINISH"):
            m.d.comb += self.finished.eq(1)
            m.d.sync += self.running.eq(0)
            m.next = "IDLE"

    def _collect_errors(self, m: Module, error: Signal) -> None:
        """Note the first error of an engine; engines may report more while they drain."""
        with m.If(error == Error.NONE):
            with m.If(self.read_error):
                m.d.sync += error.eq(Error.READ)
            with m.Elif(self.write_error):
                m.d.sync += error.eq(Error.WRITE)
            if self.parameters.formats:
                with m.Elif(self.format_error):
                    m.d.sync += error.eq(Error.FORMAT)
            if self.parameters.address_checks:
                with m.Elif(self.outside):
                    m.d.sync += error.eq(Error.ADDRESS)

    def _resident(self, m: Module, descriptor) -> tuple[ExponentFile, Repetition]:
        """Add the exponent file, and the repetition of programs."""
        m.submodules.file = file = ExponentFile(self.parameters)
        m.submodules.steps = steps = Repetition()
        connect(m, file.sums, flipped(self.sums))
        connect(m, file.host, flipped(self.host))
        m.d.comb += file.descriptor.eq(descriptor)
        if self.parameters.vector_engine:
            m.d.comb += [
                self.place.eq(file.place),
                file.word.eq(self.word),
                *(to.eq(value) for to, value in zip(self.scalars, file.scalars, strict=True)),
            ]
        else:
            code = data.View(command_layout(Code.layout), descriptor[: _width(Code.layout)])
            words = [code[f"word{n}"] for n in range(CODE_WORDS)]
            word = Signal(INSTRUCTION_WIDTH, reset_less=True)
            m.d.sync += word.eq(Array(words)[file.place])
            m.d.comb += file.word.eq(word)
        m.d.comb += [
            steps.start.eq(self.start),
            steps.times.eq(self.steps.times),
            steps.write.eq(self.steps.write),
            steps.keep.eq(self.steps.keep),
            steps.value.eq(self.steps.value),
            self.steps.step.eq(steps.step),
        ]
        # Follow the step in every cycle: a register that moved in one state of the sequencer would
        # still have the step before when the first descriptor of a step arrives.
        self._step_below = Signal(exact_log2(EIGHTH), reset_less=True)
        m.d.sync += self._step_below.eq(steps.step)
        self._again = Signal()  # the program begins again
        self._long = Signal()  # the program exceeds its memory: load it for every step
        self._afresh = Signal()  # HALT is not its last descriptor: load it from the start
        m.d.sync += self._long.eq(self.length > self.parameters.program_depth)
        return file, steps

    def _resolve(self, m: Module, s: _Parts, offered: _Signals) -> None:
        """Fetch shifts or scalars from the file before the offer of a descriptor that uses them."""
        assert s.file is not None
        layout = whole_layout(Compute.layout)
        d = data.View(layout, s.descriptor[: layout.size])
        computes = [kind for kind in COMPUTES if kind not in VECTOR]
        is_compute = Cat(d.operation == kind for kind in computes).any()
        with m.If((d.operation == Operation.VECTOR) | is_compute & (d.z_exponent != 0)):
            m.d.comb += s.file.resolve.eq(1)
            m.d.sync += _withdraw(offered)
            m.next = "RESOLVE"

    def _is_skipped(self, m: Module, s: _Parts) -> Value:
        """Return whether the descriptor is executed only in other steps."""
        eighth = Signal(range(2 * EIGHTH))
        layouts: list[tuple[Any, tuple[Operation, ...]]] = [
            (Transfer.layout, (Operation.LOAD, Operation.STORE))
        ]
        if self.parameters.vector_engine:
            layouts.append((Vector.layout, (Operation.VECTOR,)))
        for layout, operations in layouts:
            whole = whole_layout(layout)
            d = data.View(whole, s.descriptor[: whole.size])
            with m.If(Cat(d.operation == kind for kind in operations).any()):
                m.d.comb += eighth.eq(d.eighth)
        skipped, step = C(0, 1), self._step_below
        # `eighth` holds a one-hot marker above the bits that the step number must match: the
        # position of its highest bit tells how many low bits are compared.
        for bits in range(1, len(step) + 1):  # compare the bits below the highest one
            skipped = Mux(eighth[bits], eighth[:bits] != step[:bits], skipped)
        return skipped

    def _by_file(self, m: Module, s: _Parts, offer: list) -> None:
        """Add the states of the exponent file, and the state in which a program begins again."""
        file, number, error = s.file, s.number, s.error
        assert file is not None

        def refused() -> None:
            with m.If(file.error != Error.NONE):
                m.d.sync += error.eq(file.error)
                m.next = "DRAIN"

        with m.State("RESOLVE"):
            with m.If(file.done):
                with m.If(file.error == Error.NONE):
                    m.d.sync += offer
                m.next = "ISSUE"
                refused()
        with m.State("SCALES"):
            with m.If(file.done):
                m.d.sync += number.eq(number + 1)
                m.next = "FETCH"
                with m.If(file.error != Error.NONE):
                    m.d.sync += number.eq(number)
                refused()
        with m.State("AGAIN"):
            m.d.comb += self._again.eq(1)
            m.d.sync += number.eq(0)
            m.next = "FETCH"
            with m.If(self._afresh):
                m.next = "LOAD-PROGRAM"

    def _issue_by_file(self, m: Module, s: _Parts, issue: _Issue) -> None:
        """Issue SCALES when all engines are idle, and HALT if the program is to run again."""
        kinds, idle = issue.kinds, issue.idle
        assert s.file is not None and s.steps is not None
        with m.If(kinds["scales"] & idle):
            m.d.comb += [s.file.move.eq(1), self.waiting.eq(0)]
            m.next = "SCALES"
        with m.If(kinds["halt"] & idle):
            m.d.comb += s.steps.advance.eq(1)
            with m.If(~s.steps.last & (s.error == Error.NONE)):
                m.next = "AGAIN"

    def _watch(self, m: Module, s: _Parts) -> None:
        """Record the facts that explain a run that hangs."""
        m.d.comb += [
            s.watchdog.limit.eq(self.watchdog),
            s.watchdog.progress.eq(self.progress),
        ]
        before = Signal.like(s.number)
        m.d.sync += before.eq(s.number)
        for index, (engine, (name, _)) in enumerate(COMMANDS.items()):
            command = getattr(self, name)
            taken = Signal(name=f"{name}_taken")  # a cycle ago; `before` still has its number
            now = command.valid & command.ready
            if name == "load":
                now &= ~self.loading
            if engine is ENGINE_OF[Operation.VECTOR] and self.parameters.vector_engine:
                now |= self.vector.valid & self.vector.ready
            m.d.sync += taken.eq(now)
            with m.If(taken):
                m.d.sync += self.last[index].eq(before)
        with m.If(self.start):
            m.d.sync += [self.hung.eq(0), *(last.eq(0) for last in self.last)]

    def _commands(self, m: Module, s: _Parts) -> None:
        """Resolve addresses in two cycles: select registers, then add them.

        Registers are selected in the cycle after the descriptor arrives and added in the next, at
        whose end engines hold the sum.
        """
        descriptor, registers = s.descriptor, s.registers
        compute = data.View(COMPUTE_LAYOUT, descriptor[: COMPUTE_LAYOUT.size])
        transfer = data.View(TRANSFER_LAYOUT, descriptor[: TRANSFER_LAYOUT.size])
        # Every address of both layouts has its own addend register and adder: selecting the layout
        # first would lengthen the path.
        views = ((transfer, TRANSFER_ADDRESSES), (compute, COMPUTE_ADDRESSES))
        sums = [(view[name], view[by], name) for view, names in views for name, by in names.items()]
        # The rest is 0, so that neither the program memory nor an engine keeps it.
        resolved: dict[str, Value] = {
            name: Cat(compute[name][:used], C(0, len(compute[name]) - used))
            for name, used in used_bits(self.parameters).items()
        }
        for reader, (base, register, name) in enumerate(sums):
            addend = Signal(len(base), name=f"addend_{name}", reset_less=True)
            m.d.comb += registers.select[reader].eq(register)
            m.d.sync += addend.eq(registers.value[reader])
            resolved[name] = (base + addend)[: len(base)]
        if s.file is not None:
            whole = data.View(
                whole_layout(Compute.layout), descriptor[: whole_layout(Compute.layout).size]
            )
            by_file = whole.z_exponent != 0
            for name in BY_FILE:
                resolved[name] = Mux(by_file, getattr(s.file, name), compute[name])
        move = _with_fields(TRANSFER_LAYOUT, descriptor, resolved)
        work = _with_fields(COMPUTE_LAYOUT, descriptor, resolved)
        m.d.comb += [
            self.load.payload.eq(Mux(self.loading, self._program_transfer(s.fetch), move)),
            self.store.payload.eq(move),
            *(getattr(self, COMMANDS[engine][0]).payload.eq(work) for engine in ARRAYS),
        ]
        if self.parameters.vector_engine:
            m.d.comb += self.vector.payload.eq(descriptor)

    def _program_transfer(self, fetch: ProgramFetch) -> Value:
        """Return the command that loads a part of the program: one run per descriptor."""
        beats = descriptor_beats(self.parameters)
        fields = {
            "operation": Operation.LOAD,
            "target": Target.PROGRAM,
            "beats": beats,
            "count0": 1,
            "count1": 1,
            "address_delta2": DESCRIPTOR_BYTES,
            "local_delta2": beats,
        }
        constants = {
            name: C(int(value), TRANSFER_LAYOUT[name].width) for name, value in fields.items()
        }
        variables = {"address": fetch.source, "local": fetch.local, "count2": fetch.portion}
        return _with_fields(TRANSFER_LAYOUT, C(0, TRANSFER_LAYOUT.size), constants | variables)

    def _controls(self, m: Module, s: _Parts) -> None:
        """Connect operands of the sequencer's own operations."""
        update = data.View(command_layout(Set.layout), s.descriptor[: _width(Set.layout)])
        loop = data.View(command_layout(Loop.layout), s.descriptor[: _width(Loop.layout)])
        m.d.comb += [
            s.registers.mask.eq(update.mask),
            *(value.eq(update[f"value{n}"]) for n, value in enumerate(s.registers.values)),
            s.loops.iterations.eq(loop.iterations),
            s.loops.number.eq(s.number),
        ]

    def _stream(self, m: Module, s: _Parts) -> None:
        """Step the random stream: SET of R0 seeds it, each command of an array advances it."""
        seed, begin = s.registers.values[0], self.start
        if s.steps is not None:
            layout = whole_layout(Set.layout)
            update = data.View(layout, s.descriptor[: layout.size])
            seed = (seed + Mux(update.by_step, s.steps.seed, 0))[:REGISTER_WIDTH]
            begin = begin | self._again
        arrays = [getattr(self, COMMANDS[engine][0]) for engine in ARRAYS]
        taken = Cat(command.valid & command.ready for command in arrays)
        # 0 when a run begins
        value = Signal(REGISTER_WIDTH, name="of_stream", reset_less=True)
        m.d.comb += self.stream.eq(value)
        with m.If(begin):
            m.d.sync += value.eq(0)
        with m.Elif(s.registers.set & s.registers.mask[0]):
            m.d.sync += value.eq(seed)
        with m.Elif(taken.any()):
            m.d.sync += value.eq(value + STREAM_STEP)

    def _kinds(self, m: Module, header) -> tuple[dict[str, Signal], dict[str, Signal]]:
        """Decode the descriptor to a bit per engine or own operation, now and a cycle later."""
        apart = [*VECTOR, *(() if self.parameters.sample_loads else (Operation.SAMPLES,))]
        operations = {
            name: [kind for kind, by in ENGINE_OF.items() if by == engine and kind not in apart]
            for engine, (name, _) in COMMANDS.items()
        }
        if self.parameters.vector_engine:
            operations["vector"] = list(VECTOR)
        own = (*OWN, *((Operation.SCALES,) if self.parameters.exponents else ()))
        operations |= {kind.name.lower(): [kind] for kind in own}
        next_kind = {kind: Signal(name=f"next_{kind}") for kind in operations}
        kinds = {kind: Signal(name=f"is_{kind}") for kind in operations}
        for kind, signal in next_kind.items():
            m.d.comb += signal.eq(Cat(header.operation == code for code in operations[kind]).any())
            m.d.sync += kinds[kind].eq(signal)
        return next_kind, kinds

    def _issue(self, m: Module, s: _Parts, issue: _Issue) -> None:
        """Build the state in which a descriptor takes effect."""
        registers, loops, number, error = s.registers, s.loops, s.number, s.error
        kinds, offered, idle, clear = issue.kinds, issue.offered, issue.idle, issue.clear
        done = Signal()
        m.d.comb += [
            done.eq(
                (kinds["halt"] & idle)
                | Cat(signal & getattr(self, name).ready for name, signal in offered.items()).any()
                | clear & Cat(kinds[name] for name in ("loop", "end", "set")).any()
            ),
            self.waiting.eq(~done),
        ]
        # These act in the next state, when `number` is already that of the loop's body: they drive
        # many registers.
        m.d.sync += [
            loops.push.eq(clear & kinds["loop"] & ~loops.full),
            loops.end.eq(clear & kinds["end"] & ~loops.empty),
            registers.add.eq(clear & kinds["end"] & ~loops.empty),
            registers.set.eq(clear & kinds["set"]),
        ]

        def fail(code: Error) -> None:
            # Keep the number of the faulty descriptor.
            m.d.sync += [error.eq(code), number.eq(number)]
            m.next = "DRAIN"

        with m.If(~clear & (error != Error.NONE)):
            m.d.sync += _withdraw(offered)
            m.next = "DRAIN"
        with m.If(done):
            m.d.sync += [number.eq(number + 1), *_withdraw(offered)]
            m.next = "FETCH"
        with m.If(kinds["halt"] & idle):
            m.d.sync += number.eq(number)
            m.next = "FINISH"
        with m.If(clear & kinds["end"] & loops.again):
            m.d.sync += number.eq(loops.body)
        full, empty = kinds["loop"] & loops.full, kinds["end"] & loops.empty
        with m.If(clear & (full | empty)):
            fail(Error.NESTING)
        with m.If(~Cat(kinds.values()).any()):
            fail(Error.OPERATION)


def _withdraw(offered: dict[str, Signal]) -> list:
    return [signal.eq(0) for signal in offered.values()]


def _width(fields) -> int:
    return command_layout(fields).size
