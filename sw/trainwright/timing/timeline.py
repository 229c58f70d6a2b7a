"""The program on a time line: commands start when the sequencer and their engine let them.

Commands at work share two things: the bandwidth of the external memory, and the banks of the
scratchpad, one row a bank and cycle. A command that needs more of a bank than the others leave, or
more than half of it, slows down; speeds change only when a command starts or ends.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Halt,
    Loop,
    Transfer,
    is_skipped,
    matching_end,
)
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import AHEAD, DESCRIPTOR_BYTES, MOST_REFILL, Engine
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import LATENCIES, CommandWork, bytes_moved, finish, work_of

ISSUE = 4
"""Cycles of the sequencer for a descriptor."""
FETCH = 48
"""Cycles before the first descriptor of a program, beyond its beats."""
STOP = 12
"""Cycles from the last result to the end of a run."""
TRANSFER = 8
"""Cycles of a transfer before its first beat, the latency of the memory left out."""
HIDDEN = 10
"""Cycles by which a first read begins earlier than its latency says, fitted to the simulation."""
PASS = 10
"""Cycles of a pass of the vector engine beyond its instructions, as passes hardly overlap; fitted
to simulated programs of 8 to 60 passes, which it predicts within 5 %."""
LOADING = -1
"""Number of the commands that load parts of the program itself."""
ARRAYS = (Engine.PE1, Engine.PE2)
DMA = (Engine.LOAD, Engine.STORE)


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """The external memory: as the simulation's default."""

    read_latency: int = 40
    write_latency: int = 10
    bandwidth: float = 0.8
    """Beats a cycle, reads and writes together."""

    @classmethod
    def of(cls, p: AcceleratorParameters) -> "MemoryTiming":
        """Return the memory that programs are compiled for."""
        return cls(bandwidth=1 / p.beat_cycles)


@dataclass(frozen=True)
class Execution:
    """Execution of a descriptor: its number, engine, and the cycles from start to end.

    ``times`` is how often it is executed alike: a body of a loop appears once.
    """

    number: int
    engine: Engine
    start: float
    end: float
    macs: int
    times: int


@dataclass(frozen=True)
class LoopSpan:
    """Executions of a loop's body: those of ``spans`` are the first, the others are like it."""

    first: int
    """Number of the body's first descriptor."""
    end: int
    """Number of the END behind the body."""
    duration: float
    """Cycles of one execution."""
    iterations: int


@dataclass
class Timeline:
    """A program's predicted run."""

    cycles: int = 0
    spans: list[Execution] = field(default_factory=list)
    loops: list[LoopSpan] = field(default_factory=list)
    """Loops, an inner one before the one around it."""
    bytes_moved: int = 0
    step: int | None = None
    """Number of the step, where it matters."""

    def busy(self, engine: Engine) -> float:
        """Return the cycles in which an engine has commands."""
        return sum((s.end - s.start) * s.times for s in self.spans if s.engine is engine)

    def executions(self) -> list[Execution]:
        """Return every execution of every descriptor, by start, bodies of loops repeated."""
        spans = [replace(span, times=1) for span in self.spans]
        for loop in self.loops:
            body = [span for span in spans if loop.first <= span.number < loop.end]
            for iteration in range(1, loop.iterations):
                shift = iteration * loop.duration
                spans += [replace(s, start=s.start + shift, end=s.end + shift) for s in body]
        return sorted(spans, key=lambda span: span.start)

    @property
    def macs(self) -> int:
        """Multiply-accumulates, rows that are not written left out."""
        return sum(s.macs * s.times for s in self.spans)


MOST_KNOWN = 1 << 14
"""Entries of the table of speeds, a few MB: above it the table begins anew."""


@dataclass
class _Running:
    number: int
    work: CommandWork
    start: float
    left: float
    """Cycles, or beats, still to do at full speed."""
    ready: float
    """When its first step is taken, or its first beat moves."""


class EngineModel:
    """The engines: commands at work, and when each of the earlier ones ended.

    Times are cycles; ``now`` is the sequencer's.
    """

    def __init__(self, parameters: AcceleratorParameters, timing: MemoryTiming, now: float):
        self.parameters = parameters
        self.timing = timing
        self.now = now
        self.running: list[_Running] = []
        self.done: dict[Engine, float] = {}
        """When the last result of each engine's ended commands is out."""
        self.hidden = False
        """Whether the engine that was waited for last was at work: it has taken the next command
        meanwhile, whose latency is hidden."""
        self.before: dict[Engine, float] = {}
        """When the last result of each engine's commands before its last ended one is out."""
        self.spans: list[tuple[_Running, float]] = []
        self._known: dict[tuple[tuple[int, bool], ...], tuple[list[CommandWork], list[float]]] = {}
        """Speeds by the commands at work, and whether each has begun. Copies share the table."""

    def fork(self) -> "EngineModel":
        """Return a copy of the state, without the spans so far."""
        other = copy(self)
        other.running = [copy(r) for r in self.running]
        other.done, other.before, other.spans = dict(self.done), dict(self.before), []
        return other

    def takes(self, engine: Engine, wait: Engine, older: Engine) -> bool:
        """Return whether a command of an engine with these waits starts at once."""
        now, idle, done = self.now, int(wait), int(older)  # bits: masks of engines take longer
        for e in (e for e in ARRAYS if int(e) & done):
            mark = self.done if self.at_work(e) else self.before
            if mark.get(e, 0.0) > now:
                return False
        if any(int(e) & idle and not self.is_idle(e) for e in (*DMA, *ARRAYS)):
            return False
        free = engine not in ARRAYS or self.before.get(engine, 0.0) <= now
        return free and not self.at_work(engine)

    def wait_for_change(self) -> None:
        """Let the engines work until one is done with a command, or with its last results."""
        times = [t for marks in (self.done, self.before) for t in marks.values() if t > self.now]
        for r, speed in zip(self.running, self._speeds(), strict=True):
            times.append(self.now + max(r.left / speed if speed else r.ready - self.now, 1e-6))
        self.advance(min(times))

    def _speeds(self) -> list[float]:
        # Searches meet the same commands together in many copies: the sums over banks are most of
        # the time of a model. Identities of commands stay theirs while the table keeps them.
        key = tuple([(id(r.work), r.ready <= self.now) for r in self.running])
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = [r.work for r in self.running], self._computed_speeds()
        return self._known[key][1]

    def _computed_speeds(self) -> list[float]:
        moving = [r for r in self.running if r.work.engine in DMA and r.ready <= self.now]
        share = min(1.0, self.timing.bandwidth / max(1, len(moving)))
        speeds = []
        for r in self.running:
            if r.ready > self.now:
                speeds.append(0.0)
                continue
            slow = max((self._slowness(r, n) for n in range(len(r.work.streams))), default=1.0)
            speeds.append((share if r.work.engine in DMA else 1.0) / slow)
        return speeds

    def _slowness(self, r: _Running, number: int) -> float:
        """Return the cycles of a stream of ``r`` for one row, over the banks it passes through."""
        total, stream = 0.0, r.work.streams[number]
        rest = [s for n, s in enumerate(r.work.streams) if n != number]
        beside = [
            (s, 0.8 if o.work.engine in DMA else 1.0)
            for o in self.running
            if o is not r and o.ready <= self.now
            for s in o.work.streams
        ]
        for bank, part in enumerate(stream.banks):
            if not part:
                continue
            mine = stream.rate + sum([s.rate * s.banks[bank] for s in rest])
            load = sum([s.rate * s.banks[bank] * weight for s, weight in beside])
            total += part * max(1.0, mine / max(1 - load, 0.5))
        return total

    def advance(self, until: float) -> None:
        """Let the engines work up to a time, or as long as anything does where that is infinite."""
        while self.running and self.now < until:
            speeds = self._speeds()
            step = until - self.now
            for r, speed in zip(self.running, speeds, strict=True):
                step = min(step, r.left / speed if speed else r.ready - self.now)
            for r, speed in zip(self.running, speeds, strict=True):
                r.left -= speed * step
            self.now += step
            for r in [r for r in self.running if r.left <= 1e-6 and r.ready <= self.now]:
                self.running.remove(r)
                self._end(r)
        if until != float("inf"):
            self.now = max(self.now, until)

    def _end(self, r: _Running) -> None:
        engine = r.work.engine
        if engine in ARRAYS:
            after = finish(engine, self.parameters)
        else:
            after = 4 if engine is Engine.LOAD else self.timing.write_latency
        self.before[engine] = self.done.get(engine, 0.0)
        self.done[engine] = self.now + after
        self.spans.append((r, self.done[engine]))

    def at_work(self, engine: Engine) -> bool:
        """Return whether a command of the engine takes steps, or moves beats."""
        return any(r.work.engine is engine for r in self.running)

    def is_idle(self, engine: Engine) -> bool:
        """Return whether all commands of the engine are done."""
        return not self.at_work(engine) and self.done.get(engine, 0.0) <= self.now

    def until_loaded(self, begun: float) -> None:
        """Wait until the load that was begun then is done."""
        while any(r.work.engine is Engine.LOAD and r.start <= begun for r in self.running):
            self._next_end()

    def until_free(self, engine: Engine) -> None:
        """Wait until an engine takes another command."""
        self.hidden = self.at_work(engine)
        while self.at_work(engine):
            self._next_end()
        if engine in ARRAYS:  # two in flight at most
            self.advance(max(self.now, self.before.get(engine, 0.0)))

    def until_idle(self, engines: Engine) -> None:
        """Wait until the last results of engines are out."""
        bits = int(engines)
        for engine in (e for e in (*DMA, *ARRAYS) if int(e) & bits):
            while self.at_work(engine):
                self._next_end()
            self.advance(max(self.now, self.done.get(engine, 0.0)))

    def until_older(self, engines: Engine) -> None:
        """Wait until what came before the last command of each engine is out."""
        bits = int(engines)
        for engine in (e for e in ARRAYS if int(e) & bits):
            mark = self.done if self.at_work(engine) else self.before
            self.advance(max(self.now, mark.get(engine, 0.0)))

    def _next_end(self) -> None:
        count = len(self.running)
        while len(self.running) == count:
            speeds = self._speeds()
            step = min(
                r.left / speed if speed else r.ready - self.now
                for r, speed in zip(self.running, speeds, strict=True)
            )
            self.advance(self.now + max(step, 1e-6))

    def start(self, number: int, work: CommandWork) -> None:
        """Begin a command."""
        ready = self.now + self._latency(work.engine)
        self.running.append(_Running(number, work, self.now, work.cycles, ready))

    def _latency(self, engine: Engine) -> float:
        """Return the cycles from a command to its first step, or its first beat."""
        if engine in ARRAYS:
            return LATENCIES[engine].start
        if engine is Engine.STORE or self.hidden:
            return TRANSFER
        return self.timing.read_latency - HIDDEN


@dataclass
class _Fetch:
    """The program memory: how much of a program it holds, and what is on its way."""

    length: int
    parameters: AcceleratorParameters
    again: bool = False
    """Whether the program runs again: its first descriptors are there, and what is loaded last
    are those of the next time."""
    asked: int = 0
    own: int = 0
    """Descriptors up to the end; what is loaded beyond belongs to the next time."""
    needed: int | None = None
    """Number of the descriptor where the outermost loop begins."""
    _coming: tuple[int, float] = (0, 0.0)
    """The descriptor before which a load has to be done, and the cycle in which it was begun."""

    def __post_init__(self) -> None:
        depth = self.parameters.program_depth
        self.asked = min(self.length, depth)
        self.own = self.length
        if self.again and self.length > depth:
            self.asked = min(AHEAD, depth)
            self.length += self.asked

    def before(self, number: int, machine: EngineModel) -> None:
        """Wait for a descriptor; load what follows while LOAD is idle, or when it is missing."""
        depth = self.parameters.program_depth
        refill = min(MOST_REFILL, depth)
        needed = number if self.needed is None else self.needed
        most = depth if self.asked < self.own else min(AHEAD, depth)
        if self.asked < self.length and self.asked - needed <= most - refill:
            if number == self.asked:
                machine.until_free(Engine.LOAD)
            if machine.is_idle(Engine.LOAD):
                portion = min(refill, self.length - self.asked)
                beats = portion * DESCRIPTOR_BYTES / self.parameters.beat_bytes
                machine.start(LOADING, CommandWork(Engine.LOAD, beats, ()))
                self._coming = self.asked, machine.now
                self.asked += portion
                machine.advance(machine.now + 2)
        if number == self._coming[0] and number:
            machine.until_loaded(self._coming[1])


def predict(
    program: Sequence[Descriptor],
    parameters: AcceleratorParameters,
    timing: MemoryTiming | None = None,
    step: int | None = None,
    *,
    again: bool = False,
) -> Timeline:
    """Predict the run of a program's descriptors.

    ``step`` is the number of a step: descriptors of other steps are skipped; None executes all.
    With ``again`` the program has run in the step before and runs in the next.
    """
    timing = timing or MemoryTiming.of(parameters)
    timeline = Timeline(step=step)
    fetch = _Fetch(len(program), parameters, again)
    now = 0.0
    if not again:
        now = FETCH + fetch.asked * DESCRIPTOR_BYTES / parameters.beat_bytes / timing.bandwidth
    timeline.bytes_moved = len(program) * DESCRIPTOR_BYTES
    end = _run(program, 0, len(program), now, 1, parameters, timing, timeline, fetch)
    timeline.cycles = round(end + STOP)
    timeline.spans.sort(key=lambda span: span.start)
    return timeline


def _run(
    program: Sequence[Descriptor],
    first: int,
    stop: int,
    now: float,
    times: int,
    p: AcceleratorParameters,
    timing: MemoryTiming,
    timeline: Timeline,
    fetch: _Fetch,
) -> float:
    """Execute descriptors ``first`` to ``stop``, ``times`` times alike; return the end."""
    machine, index = EngineModel(p, timing, now), first
    while index < stop:
        d = program[index]
        fetch.before(index, machine)
        machine.advance(machine.now + ISSUE)
        if isinstance(d, Loop):
            end = matching_end(program, index)
            machine.until_idle(Engine.ALL)
            begun, outermost = machine.now, fetch.needed is None
            if outermost:
                fetch.needed = index + 1
            after = _run(
                program, index + 1, end, begun, times * d.iterations, p, timing, timeline, fetch
            )
            if outermost:
                fetch.needed = None
            timeline.loops.append(LoopSpan(index + 1, end, after - begun, d.iterations))
            machine.advance(begun + (after - begun) * d.iterations)
            index = end
        elif isinstance(d, Halt):
            break
        elif timeline.step is not None and is_skipped(d, timeline.step):
            pass
        elif isinstance(d, Compute | Transfer | Samples | Code | Vector):
            work = work_of(d, p)
            if isinstance(d, Vector):
                work = replace(work, cycles=work.cycles + PASS)
            machine.until_older(d.wait_older)
            machine.until_idle(d.wait)
            machine.until_free(ENGINE_OF[d.operation])
            machine.start(index, work)
            timeline.bytes_moved += times * bytes_moved(d, p)
        else:
            machine.until_idle(d.wait)
        index += 1
    machine.until_idle(Engine.ALL)
    timeline.spans += [
        Execution(r.number, r.work.engine, r.start, end, r.work.macs, times)
        for r, end in machine.spans
    ]
    return machine.now
