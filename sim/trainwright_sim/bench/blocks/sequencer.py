"""Sequencer: programs against an interpretation in Python, with engines that take their time."""

from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from trainwright.accelerator.registers import Error
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Set,
    Transfer,
)
from trainwright.program.encoding import encode_descriptor
from trainwright.program.fields import (
    DESCRIPTOR_BYTES,
    LOCAL_WIDTH,
    MOST_DESCRIPTORS,
    MOST_REFILL,
    REGISTERS,
    Engine,
    Operation,
    Target,
)
from trainwright.program.table import unpacked
from trainwright_sim.bench.programs import (
    ENGINE,
    LAYOUT,
    NAMES,
    EngineModel,
    interpret,
    random_command,
    random_waits,
)
from trainwright_sim.bench.testbench import STALLS, TestBench

HANG_CYCLES = 7
"""Cycles beside the watchdog's limit from a command's issue to the end of the run."""


class SequencerBench(TestBench):
    """Loads programs as LOAD's engine does; compares what is issued, and when."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        self.set(start=0, address=0, length=0, busy=0, settling=0, read_error=0, write_error=0)
        if self.parameters.formats:
            self.set(format_error=0)
        self.set(watchdog=0, progress=0, older=0)
        self._older = Engine.NONE
        self.set(program_request_valid=0, program_request_payload=0)
        self.engines = {name: EngineModel(self, name, self.stalls(stall)) for name in NAMES}
        self.issued: list[tuple[str, dict[str, int]]] = []
        self.finished = False
        self.silent = False
        """Whether the memory brings no program."""
        self.lacking = 0
        """Beats at a part's end that the memory does not bring, after which LOAD hangs."""
        self.patch: dict[int, int] = {}
        """Beats of programs that are other than encoded."""
        self._program: list[Descriptor] = []
        self._address = 0
        self.asked = 0
        """Descriptors of the program that LOAD was told to bring."""
        self._beats: list[tuple[int, int]] = []
        self._busy = Engine.NONE
        self._settling = 0
        self.agents.append(self)

    def cycle(self) -> None:
        self.finished = bool(self.get("finished"))
        if self.finished:
            dead = any(engine.dead for engine in self.engines.values())
            idle = self._busy == Engine.NONE and not self._settling
            assert idle or dead, "finished before the engines"
        loading = False
        if self.get("load_valid"):
            offered = unpacked(LAYOUT["load"], self.get("load_payload"))
            loading = offered["target"] == Target.PROGRAM
        assert self.get("loading") == loading or self.get("rst")
        for name, engine in self.engines.items():
            if (bits := engine.cycle()) is not None:
                self._take(name, bits)
        writing = bool(self._beats) and self.random.random() < 0.7
        if writing:
            number, beat = self._beats.pop(0)
            payload = beat << LOCAL_WIDTH | number
            self.set(program_request_valid=1, program_request_payload=payload)
        else:
            self.set(program_request_valid=0)
        busy = Engine.NONE
        for name, engine in self.engines.items():
            loading = name == "load" and (self._beats or writing)
            busy |= NAMES[name] if engine.busy or loading else Engine.NONE
        if self._busy and not busy:
            self._settling = self.random.randrange(6)
        self._settling = max(0, self._settling - 1)
        self._busy = busy
        if self.random.random() < 0.1:
            self._older &= Engine(self.random.randrange(16))
        self._older &= busy
        self.set(busy=int(busy), older=int(self._older), settling=int(self._settling > 0))

    def _take(self, name: str, bits: int) -> None:
        fields = unpacked(LAYOUT[name], bits)
        if fields.get("target") == Target.PROGRAM and name == "load":
            if self.silent or self.lacking:
                self.engines[name].die()
            if not self.silent:
                self._load_program(fields)
            return
        waited = Engine(fields["wait"])
        assert not waited & self._busy, f"issued while {waited & self._busy!r} is busy"
        older = Engine(fields["wait_older"]) & self._older
        assert not older, f"issued while {older!r} has older commands"
        self.issued.append((name, fields))
        if self._busy & NAMES[name]:
            self._older |= NAMES[name]
        if self.engines[name].dead:
            self.engines[name].die()

    def _load_program(self, fields: dict[str, int]) -> None:
        beat, depth = self.parameters.beat_bytes, self.parameters.program_depth
        beats, first = DESCRIPTOR_BYTES // beat, self.asked
        assert self._beats == [] or first, "the program's begin twice"
        assert fields["address"] == (self._address + first * DESCRIPTOR_BYTES) % (1 << 32)
        assert fields["local"] == first % depth * beats == first % depth * fields["local_delta2"]
        assert fields["element_bytes"] in (0, 1, 2)
        most = min(MOST_REFILL, depth) if first else depth
        assert fields["count2"] == min(most, len(self._program) - first) > 0
        assert fields["beats"] == beats and fields["address_delta2"] == DESCRIPTOR_BYTES
        self.asked += fields["count2"]
        data = b"".join(encode_descriptor(d) for d in self._program[first : self.asked])
        for n in range(len(data) // beat - self.lacking):
            word = int.from_bytes(data[n * beat : (n + 1) * beat], "little")
            place = fields["local"] + n, self.patch.get(first * beats + n, word)
            self._beats.append(place)

    async def begin(self, program: Sequence[Descriptor], length: int | None = None) -> None:
        """Start a program."""
        self._program = list(program)
        self.asked = 0
        self.issued.clear()
        length = len(program) if length is None else length
        beat = self.parameters.beat_bytes
        self._address = self.random.getrandbits(32) // beat * beat
        self.set(start=1, address=self._address, length=length)
        await self.run()
        self.set(start=0)
        await self.run()
        assert self.get("running")

    async def execute(self, program: Sequence[Descriptor], length: int | None = None) -> None:
        """Run a program to its end."""
        await self.begin(program, length)
        await self.until(lambda: self.finished)
        await self.run()
        assert not (self.get("running") or self.get("finished") or self.get("waiting"))

    async def check(self, program: Sequence[Descriptor]) -> None:
        """Run a program and compare."""
        issued, error, number = interpret(program, self.parameters)
        await self.execute(program)
        assert self.issued == [(issue.engine, issue.fields) for issue in issued]
        assert self.get("error") == error
        if error is not Error.OPERATION:
            assert self.get("descriptor") == number
        last = dict.fromkeys(NAMES, 0) | {issue.engine: issue.number for issue in issued}
        assert [self.get(f"last_{index}") for index in range(len(NAMES))] == list(last.values())
        assert not self.get("hung")

    def waits(self) -> dict[str, Any]:
        return random_waits(self.random)

    def random_command(self) -> Descriptor:
        return random_command(self.random)

    def updates(self) -> tuple[tuple[int, int], ...]:
        numbers = self.random.sample(range(1, REGISTERS), self.random.randrange(REGISTERS))
        return tuple((n, self.random.getrandbits(32) - (1 << 31)) for n in sorted(numbers))

    def random_program(self, most: int) -> list[Descriptor]:
        """Draw commands, register updates and loops, as deep and as long as the memory permits."""
        p = self.parameters
        program: list[Descriptor] = []
        depth, begun = 0, 0
        longest = p.program_depth - min(MOST_REFILL, p.program_depth)
        while len(program) < most - 1 - 2 * p.loop_depth:
            kind = self.random.random()
            begun = begun if depth else len(program)
            if most > p.program_depth and depth and len(program) + depth - begun >= longest:
                program.append(End(steps=self.updates(), **self.waits()))
                depth -= 1
                continue
            if kind < 0.15 and depth < self.parameters.loop_depth:
                program.append(Loop(iterations=self.random.randint(1, 3), **self.waits()))
                depth += 1
            elif kind < 0.3 and depth:
                program.append(End(steps=self.updates(), **self.waits()))
                depth -= 1
            elif kind < 0.45:
                program.append(Set(values=self.updates(), **self.waits()))
            else:
                program.append(self.random_command())
        program += [End(steps=self.updates()) for _ in range(depth)]
        return [*program, Halt()]


@cocotb.test()
@cocotb.parametrize((("seed", "stall"), list(enumerate(STALLS))))
async def random_programs(dut, seed: int, stall: str):
    """Run programs of several lengths up to the longest, one after another."""
    tb = SequencerBench(dut, f"{seed} {stall}", stall)
    await tb.start()
    depth = tb.parameters.program_depth
    for most in (tb.parameters.loop_depth * 2 + 2, depth // 2, depth, depth + 1, 5 * depth):
        await tb.check(tb.random_program(most))


@cocotb.test()
@cocotb.parametrize(before=range(9))
async def longest_loops(dut, before: int):
    """Run a loop as long as the memory permits, at any place, with other descriptors around it."""
    tb = SequencerBench(dut, f"longest {before}", "some")
    await tb.start()
    commands = [tb.random_command() for _ in range(3 * tb.parameters.program_depth)]
    body = tb.parameters.program_depth - MOST_REFILL - 2
    inside = [Loop(iterations=3), *commands[:body], End(steps=tb.updates())]
    await tb.check([*commands[-before:], *inside, *commands[body:], Halt()])


@cocotb.test()
async def long_runs(dut):
    """Run many iterations and many descriptors: bits of counters that short programs leave idle."""
    tb = SequencerBench(dut, "long runs", "none")
    await tb.start()
    steps = tuple((n, 5) for n in range(1, REGISTERS))
    for iterations in (0b101010101, 0b1010101010):
        inner = [Loop(iterations=iterations), End(steps=steps), tb.random_command()]
        await tb.check([*inner, Halt()])
    descriptors = [
        tb.random_command() if n % 16 == 0 else Set(values=tb.updates()) for n in range(600)
    ]
    await tb.check([*descriptors, Halt()])
    for length in (0b100101, 0b11011010):  # without HALT
        await tb.check([Set(values=())] * length)


@cocotb.test()
async def loops_far_in_a_program(dut):
    """Run long loops after descriptors that are executed as fast as they are loaded.

    Most of a body is then loaded while its loop runs, beside descriptors that are needed again.
    """
    tb = SequencerBench(dut, "far loops", "none")
    await tb.start()
    body = [Set(values=())] * (tb.parameters.program_depth - MOST_REFILL - 2)
    loop = [Loop(iterations=2), *body, End(steps=tb.updates()), tb.random_command()]
    await tb.check([*loop * 12, Halt()])


@cocotb.test()
async def what_is_waited_for(dut):
    """Check that ``waiting`` is high exactly while a descriptor cannot proceed."""
    tb = SequencerBench(dut, "waiting", "none")
    await tb.start()
    await tb.begin([*[Set(values=tb.updates())] * 20, Halt()])
    waited = 0
    while not tb.finished:
        await tb.run()
        waited += tb.get("waiting")
    assert not waited
    tb.engines["pe1"].dead = True
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    await tb.begin([command, Set(values=(), wait=Engine.PE1), Halt()])
    await tb.run(400)
    assert await tb.share(("waiting", "running"), 100) == [100, 100]


@cocotb.test()
async def errors(dut):
    """Provoke every program error.

    Unknown operations, loops too deep, END without LOOP, no HALT, no program, a program too long.
    """
    tb = SequencerBench(dut, "errors", "some")
    await tb.start()
    loop, depth = Loop(iterations=2), tb.parameters.loop_depth
    command = tb.random_command()
    await tb.check([*[loop] * (depth + 1), *[End()] * (depth + 1), Halt()])
    await tb.check([command, End(), Halt()])
    await tb.check([command, command])
    await tb.execute([], length=0)
    assert tb.get("error") == Error.OPERATION and not tb.issued
    await tb.execute([Halt()], length=MOST_DESCRIPTORS + 1)
    assert tb.get("error") == Error.PROGRAM and not tb.issued
    await tb.check([command, Halt()])


@cocotb.test()
async def lengths_of_all_bits(dut):
    """Start programs of the maximum length, without one bit of it, and of that bit alone."""
    tb = SequencerBench(dut, "lengths", "none")
    await tb.start()
    bits = [1 << n for n in range(MOST_DESCRIPTORS.bit_length() - 1)]
    for length in (MOST_DESCRIPTORS, *(MOST_DESCRIPTORS - bit for bit in bits), *bits):
        await tb.execute([Halt()] * min(length, tb.parameters.program_depth), length=length)
        assert tb.get("error") == Error.NONE and not tb.issued


@cocotb.test()
@cocotb.parametrize(limit=(200, 201, 202, 204, 300, 1023, 1024, 2050, 4101))
async def watchdog_to_the_cycle(dut, limit: int):
    """Check that a hang ends the limit's cycles after its command was issued, within a few."""
    tb = SequencerBench(dut, "limits", "none")
    await tb.start()
    tb.engines["pe1"].dead = True
    tb.set(watchdog=limit)
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    await tb.begin([command, Halt()])
    await tb.until(lambda: tb.issued)
    before = tb.cycles
    await tb.until(lambda: tb.finished)
    assert tb.get("error") == Error.WATCHDOG
    assert tb.cycles - before == limit + HANG_CYCLES


@cocotb.test()
async def taken_in_the_last_cycle(dut):
    """Let an engine take its command around the watchdog's limit.

    Either the command is taken and the run goes on, or it is not and the run ends.
    """
    tb, limit = SequencerBench(dut, "last cycle", "none"), 250
    await tb.start()
    pe1 = tb.engines["pe1"]
    pe1.dead = True
    tb.set(watchdog=limit)
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    taken = []
    for wait in range(limit, limit + 8):
        await tb.begin([Set(values=()), command, Halt()])
        await tb.until(lambda: tb.get("descriptor") == 1)
        pe1.stay_busy(wait)
        await tb.until(lambda: tb.issued or tb.finished)
        taken.append(bool(tb.issued))
        pe1.stay_busy(0)
        await tb.until(lambda: tb.finished)
        await tb.run()
        assert tb.get("error") == (Error.NONE if taken[-1] else Error.WATCHDOG)
    assert taken[0] and not taken[-1] and taken == sorted(taken, reverse=True)


async def ends(tb: SequencerBench, limit: int, error: Error, engine: Engine) -> None:
    """Check that the run ends after ``limit`` cycles, with this error and the hanging engine."""
    before = tb.cycles
    await tb.until(lambda: tb.finished)
    assert limit <= tb.cycles - before <= limit + 2 * HANG_CYCLES
    assert tb.get("error") == error
    assert tb.get("hung") == int(engine)


@cocotb.test()
@cocotb.parametrize(taken=(False, True))
async def program_hangs(dut, taken: bool):
    """Withhold the program: the run must end, whether LOAD takes no command or delivers nothing."""
    tb, limit = SequencerBench(dut, f"program {taken}", "none"), 40
    await tb.start()
    load = tb.engines["load"]
    tb.set(watchdog=limit)
    load.dead = tb.silent = True
    if not taken:
        load.die()
        await tb.run(2)
    await tb.begin([Halt()])
    await ends(tb, limit, Error.WATCHDOG, Engine.LOAD)


@cocotb.test()
async def program_comes_late(dut):
    """LOAD takes its time to take the command, then to bring the program: no wait is too long."""
    tb, limit = SequencerBench(dut, "late program", "none"), 60
    await tb.start()
    load = tb.engines["load"]
    tb.set(watchdog=limit)
    load.dead = True
    load.stay_busy(limit - 10)
    await tb.run(2)
    await tb.begin([Halt()])
    await tb.until(lambda: tb.asked)
    load.stay_busy(limit - 10)
    await tb.until(lambda: tb.finished)
    assert tb.get("error") == Error.NONE


@cocotb.test()
async def next_part_comes_early(dut):
    """Check that a part of a program is loaded as soon as there is room and LOAD is idle.

    That must happen before the next descriptor, whichever that is.
    """
    tb = SequencerBench(dut, "parts", "some")
    await tb.start()
    depth, load, pe1 = tb.parameters.program_depth, tb.engines["load"], tb.engines["pe1"]
    parts = range(1, 6)
    program = [Set(values=(), wait=Engine.PE1)] * (depth + parts[-1] * MOST_REFILL - 1)
    await tb.begin([*program, Halt()])
    await tb.until(lambda: tb.get("descriptor"))
    for part in parts:
        load.die()
        number, before = part * (MOST_REFILL + 1), tb.asked
        await tb.until(lambda number=number: tb.get("descriptor") == number)
        pe1.die()
        load.stay_busy(0)
        await tb.until(lambda: not tb.get("busy") & Engine.LOAD)
        assert tb.asked == before == depth + (part - 1) * MOST_REFILL
        pe1.stay_busy(0)
        await tb.until(lambda number=number: tb.get("descriptor") == number + 2)
        assert tb.asked == before + MOST_REFILL
    await tb.until(lambda: tb.finished)


@cocotb.test()
@cocotb.parametrize(last=(Set(values=()), Loop(iterations=2)))
async def next_part_is_asked_of_a_busy_load(dut, last: Descriptor):
    """Keep LOAD busy with data until every loaded descriptor is executed.

    The next part must be asked for all the same, also with a loop that begins with this part.
    """
    tb = SequencerBench(dut, "busy load", "none")
    await tb.start()
    depth, load = tb.parameters.program_depth, tb.engines["load"]
    ends = [End()] if isinstance(last, Loop) else []
    await tb.begin([*[Set(values=())] * (depth - 1), last, *[Set(values=())] * 9, *ends, Halt()])
    await tb.until(lambda: tb.get("descriptor"))
    load.die()
    await tb.until(lambda: tb.get("descriptor") == depth)
    assert tb.asked == depth
    await tb.until(lambda: tb.asked == depth + MOST_REFILL)
    load.stay_busy(0)
    await tb.until(lambda: tb.finished)
    assert tb.get("error") == Error.NONE


@cocotb.test()
async def error_under_a_wait(dut):
    """Fail an engine while a descriptor waits for another: it must not be issued afterwards."""
    tb = SequencerBench(dut, "error under a wait", "none")
    await tb.start()
    pe1 = tb.engines["pe1"]
    pe1.dead = True
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    store = Transfer(operation=Operation.STORE, address=0, local=0, beats=1, wait=Engine.PE1)
    await tb.begin([command, store, Halt()])
    await tb.until(lambda: tb.issued)
    await tb.run(20)
    assert tb.get("waiting")
    tb.set(read_error=1)
    await tb.run()
    tb.set(read_error=0)
    await tb.run(20)
    pe1.stay_busy(0)
    await tb.until(lambda: tb.finished)
    assert tb.get("error") == Error.READ
    assert [name for name, _ in tb.issued] == ["pe1"]


@cocotb.test()
async def back_to_back(dut):
    """Start each program in the cycle after the previous one has finished, with any error.

    Registers must be 0 again, loops and the error forgotten.
    """
    tb = SequencerBench(dut, "back to back", "some")
    await tb.start()
    deep = [Loop(iterations=2)] * (tb.parameters.loop_depth + 1)
    failing = {
        Error.NESTING: [Set(values=((3, 5), (7, 1 << 31))), *deep, Halt()],
        Error.OPERATION: [Loop(iterations=3), tb.random_command()],
        Error.READ: [Loop(iterations=9), tb.random_command(), End(steps=((1, 4),)), Halt()],
        Error.WRITE: [Set(values=((1, 1),)), *[tb.random_command()] * 3, Halt()],
    }
    for error, program in [*failing.items()] * 2:
        await tb.begin(program)
        tb.set(read_error=error is Error.READ, write_error=error is Error.WRITE)
        await tb.run()
        tb.set(read_error=0, write_error=0)
        await tb.until(lambda: tb.finished)
        good = tb.random_program(tb.parameters.loop_depth * 2 + 6)
        issued, _, number = interpret(good, tb.parameters)
        await tb.begin(good)
        assert tb.get("error") == Error.NONE
        await tb.until(lambda: tb.finished)
        assert tb.issued == [(issue.engine, issue.fields) for issue in issued]
        assert (tb.get("error"), tb.get("descriptor")) == (Error.NONE, number)


@cocotb.test()
@cocotb.parametrize(operation=(3, 4, int(Operation.SCALES)))
async def unknown_operation(dut, operation: int):
    """Issue an unknown operation, or one that the hardware lacks: the run must stop there."""
    tb = SequencerBench(dut, f"unknown {operation}", "some")
    await tb.start()
    command = tb.random_command()
    tb.patch = {DESCRIPTOR_BYTES // tb.parameters.beat_bytes: operation}
    await tb.execute([command, Halt(), command, Halt()])
    assert tb.get("error") == Error.OPERATION and tb.get("descriptor") == 1
    assert len(tb.issued) == 1


@cocotb.test()
@cocotb.parametrize(error=("read", "write", "format"), when=(5, 60, 150))
async def errors_of_others(dut, error: str, when: int):
    """Answer with an error, or read a word that is no number: the run must stop.

    At most one more descriptor is issued.
    """
    tb = SequencerBench(dut, f"{error} {when}", "some")
    if error == "format" and not tb.parameters.formats:
        return
    await tb.start()
    program = [tb.random_command() for _ in range(tb.parameters.program_depth - 1)] + [Halt()]
    run = cocotb.start_soon(tb.execute(program))
    for _ in range(when):
        await RisingEdge(dut.clk)
    tb.set(**{f"{error}_error": 1})
    await RisingEdge(dut.clk)
    tb.set(**{f"{error}_error": 0})
    before = len(tb.issued)
    await run
    assert len(tb.issued) <= before + 1
    assert tb.get("error") == Error[error.upper()]
    await tb.check([tb.random_command(), Halt()])


@cocotb.test()
@cocotb.parametrize(name=tuple(NAMES), follows=("wait", "command", "halt"))
async def engine_hangs(dut, name: str, follows: str):
    """Let an engine hang: the watchdog must end the run and name the engine and the waiting one."""
    tb = SequencerBench(dut, f"hang {name} {follows}", "some")
    await tb.start()
    limit, moving = 60, 500
    operation = next(o for o in ENGINE if ENGINE[o] == name)
    if operation in (Operation.LOAD, Operation.STORE):
        command = Transfer(operation=operation, address=0, local=0, beats=1)
    else:
        command = Compute(operation=operation, levels=(Level(1),), x=0, g=0, z=0)
    after = {"wait": Set(values=(), wait=NAMES[name]), "command": command, "halt": Halt()}[follows]
    program = [Set(values=()), Set(values=()), command, after, Halt()]
    tb.set(watchdog=limit)
    await tb.execute([Halt()])
    tb.engines[name].dead = True

    class Progress:
        def cycle(self) -> None:
            tb.set(progress=int(tb.cycles < moving and tb.cycles % limit == 0))

    tb.agents.append(Progress())
    await tb.execute(program)
    assert moving - limit <= tb.cycles <= moving + 2 * limit
    assert tb.get("error") == Error.WATCHDOG
    assert tb.get("descriptor") == 3
    assert tb.get("hung") == int(NAMES[name])
    given = {engine: tb.get(f"last_{index}") for index, engine in enumerate(NAMES)}
    assert given == {engine: 2 if engine == name else 0 for engine in NAMES}


@cocotb.test()
async def engine_hangs_after_an_error(dut):
    """Let an engine hang after an error: the run must end with the earlier error."""
    tb, limit = SequencerBench(dut, "hang after an error", "none"), 200
    await tb.start()
    tb.set(watchdog=limit)
    tb.engines["pe1"].dead = True
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    await tb.begin([command, End(), Halt()])
    await tb.until(lambda: tb.issued)
    await ends(tb, limit, Error.NESTING, Engine.PE1)


@cocotb.test()
@cocotb.parametrize(more=(1, 2 * MOST_REFILL))
async def rest_of_a_program_hangs(dut, more: int):
    """LOAD takes the command for the next part, which may be the last, and brings nothing."""
    tb, limit = SequencerBench(dut, f"rest {more}", "none"), 60
    await tb.start()
    await tb.begin([*[Set(values=())] * (tb.parameters.program_depth + more - 1), Halt()])
    await tb.until(lambda: tb.get("descriptor"))
    tb.set(watchdog=limit)
    tb.silent = tb.engines["load"].dead = True
    await tb.until(lambda: tb.finished)
    assert tb.asked == tb.get("descriptor") == tb.parameters.program_depth
    assert tb.get("error") == Error.WATCHDOG
    assert tb.get("hung") == int(Engine.LOAD)


@cocotb.test()
async def last_beat_hangs(dut):
    """Withhold the last beat of a descriptor: the sequencer must wait for it."""
    tb = SequencerBench(dut, "last beat", "none")
    await tb.start()
    depth, beats = tb.parameters.program_depth, DESCRIPTOR_BYTES // tb.parameters.beat_bytes
    await tb.begin([*[Set(values=())] * (depth + MOST_REFILL - 1), Halt()])
    await tb.until(lambda: tb.get("descriptor"))
    tb.set(watchdog=100)
    tb.lacking = beats + 1
    tb.engines["load"].dead = True
    await tb.until(lambda: tb.finished)
    assert tb.get("descriptor") == depth + MOST_REFILL - 2
    assert (tb.get("error"), tb.get("hung")) == (Error.WATCHDOG, int(Engine.LOAD))


@cocotb.test()
async def watchdog_is_off(dut):
    """Run without a limit: an engine may take any time."""
    tb = SequencerBench(dut, "off", "none")
    await tb.start()
    tb.engines["pe1"].dead = True
    command = Compute(operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0)
    await tb.begin([command, Halt()])
    await tb.run(5000)
    assert tb.issued and tb.get("running")
