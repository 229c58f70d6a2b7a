"""The program on a time line: commands start when the sequencer and their engine let them.

Commands at work share ports (``trainwright.timing.contention``); their speeds change only when a
command starts or ends.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import inf

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
from trainwright.program.engines import ARRAYS, ENGINE_OF, EVERY_ARRAY, EVERY_ENGINE, rivals
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import AHEAD, DESCRIPTOR_BYTES, MOST_REFILL, Engine, Operation
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import (
    ISSUE,
    NEST,
    SCALE,
    CommandWork,
    bytes_moved,
    issue_cycles,
    program_work,
    work_of,
)
from trainwright.timing.contention import DMA, MOST_KNOWN, MemoryTiming, speeds, transfer_speed

FETCH = 48
"""Cycles before the first descriptor of a program, beyond its beats."""
STOP = 2
"""Cycles from the last result to the end of a run."""
LOADING = -1
"""Number of the commands that load parts of the program itself."""
_PASSES = ENGINE_OF[Operation.VECTOR]
_RIVALS = {e: tuple([a.engine for a in rivals(spec)]) for e, spec in ARRAYS.items()}
_BITS = tuple([(int(engine), engine) for engine in EVERY_ENGINE])
TINY = 1e-6
"""Cycles, or beats, that count as none."""


@dataclass(frozen=True)
class Execution:
    """Execution of a descriptor: its number, engine, and the cycles from start to end."""

    number: int
    engine: Engine
    start: float
    end: float


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
    """Executions, those of the body of a loop once."""
    loops: list[LoopSpan] = field(default_factory=list)
    """Loops, an inner one before the one around it."""
    bytes_moved: int = 0

    def executions(self) -> list[Execution]:
        """Return every execution of every descriptor, by start, bodies of loops repeated."""
        spans = list(self.spans)
        for loop in self.loops:
            body = [span for span in spans if loop.first <= span.number < loop.end]
            for iteration in range(1, loop.iterations):
                shift = iteration * loop.duration
                spans += [replace(s, start=s.start + shift, end=s.end + shift) for s in body]
        return sorted(spans, key=lambda span: span.start)


@dataclass
class _Running:
    number: int
    work: CommandWork
    start: float
    left: float
    """Cycles, or beats, still to do at full speed."""
    ready: float
    """When its first step can be taken, or its first beat move."""


class EngineModel:
    """The engines: commands at work, and when each of the earlier ones ended.

    An engine takes a command once it has generated all addresses of the command before, so it works
    on several commands, in order; ``now`` is the sequencer's cycle.
    """

    def __init__(self, parameters: AcceleratorParameters, timing: MemoryTiming, now: float):
        self.parameters = parameters
        self.timing = timing
        self.now = now
        self.running: dict[Engine, list[_Running]] = {engine: [] for engine in EVERY_ENGINE}
        """Commands with steps or beats left, in order: the first of each engine moves."""
        self.taken: dict[Engine, float] = dict.fromkeys(EVERY_ENGINE, 0.0)
        """When each engine has generated the addresses of its last command, if nothing stalls."""
        self.done: dict[Engine, float] = dict.fromkeys(EVERY_ENGINE, 0.0)
        """When the last result of each engine's ended commands is out."""
        self.before: dict[Engine, float] = dict.fromkeys(EVERY_ENGINE, 0.0)
        """When the last result of each engine's commands before its last ended one is out."""
        self.spans: list[tuple[_Running, float]] = []
        self._passes = False
        """Whether the last command of ``_PASSES`` is a pass, which uses the engine's ports
        alone."""
        self._speeds: dict[tuple[CommandWork, ...], tuple[float, ...]] = {}
        """Speeds of commands that were at work together, which copies share."""

    def fork(self) -> "EngineModel":
        """Return a copy of the state, without the spans so far."""
        other = copy(self)
        other.running = {e: [copy(r) for r in queue] for e, queue in self.running.items()}
        other.taken, other.done, other.before = dict(self.taken), dict(self.done), dict(self.before)
        other.spans = []
        return other

    def takes(self, work: CommandWork, wait: Engine, older: Engine) -> bool:
        """Return whether a command with these waits is taken at once."""
        return self._is_clear(wait, older) and self._is_free(work)

    def _is_clear(self, wait: Engine, older: Engine) -> bool:
        idle, done = int(wait), int(older)  # bits: masks of engines take longer
        if not idle | done:
            return True
        for bit, e in _BITS:
            if (bit & idle and not self.is_idle(e)) or (bit & done and not self._is_older_done(e)):
                return False
        return True

    def is_idle(self, engine: Engine) -> bool:
        """Return whether all commands of the engine are done."""
        return not self.running[engine] and self.done[engine] <= self.now

    def _is_older_done(self, engine: Engine) -> bool:
        """Return whether all commands of the engine but the last one are done."""
        if engine in DMA:  # which cannot tell
            return self.is_idle(engine)
        queue = self.running[engine]
        return len(queue) < 2 and (self.done if queue else self.before)[engine] <= self.now

    def _is_free(self, work: CommandWork) -> bool:
        """Return whether a command's engine takes it."""
        engine, queue = work.engine, self.running[work.engine]
        if work.copied or (engine is _PASSES and self._passes):
            return self.is_idle(engine)
        if engine in EVERY_ARRAY and not self._is_older_done(engine):
            return False
        if not all(map(self.is_idle, _RIVALS.get(engine, ()))):
            return False
        if engine is Engine.LOAD and len(queue) > 1:  # one moves beats, one asks for them
            return False
        if self.taken[engine] > self.now:
            return False
        return not queue or sum([r.left for r in queue]) <= queue[-1].work.ahead + TINY

    def issue(
        self,
        number: int,
        work: CommandWork,
        wait: Engine = Engine.NONE,
        older: Engine = Engine.NONE,
    ) -> None:
        """Wait for engines, then until the command's own engine takes it."""
        self.await_engines(wait, older)
        self._wait(lambda: self._is_free(work))
        self.advance(self.now + work.copied)
        self.start(number, work)

    def await_engines(self, wait: Engine, older: Engine = Engine.NONE) -> None:
        """Wait until engines are idle, and others have done all but their last command."""
        if not self._is_clear(wait, older):
            self._wait(lambda: self._is_clear(wait, older))
            self.advance(self.now + 1)  # the sequencer decides whether to wait a cycle ahead

    def until_loaded(self, begun: float) -> None:
        """Wait until the load that was begun then is done."""
        self._wait(lambda: not any(r.start <= begun for r in self.running[Engine.LOAD]))

    def _wait(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self.wait_for_change()

    # Searches for an order of commands ask for millions of changes: the next one is found by loops,
    # in half the time of lists of all.
    def wait_for_change(self) -> None:
        """Let the engines work until another command is taken, begins, ends or is done."""
        now, soonest = self.now, inf
        for marks in (self.taken, self.done, self.before):
            for time in marks.values():
                if now < time < soonest:
                    soonest = time
        moving = self._moving()
        for r, speed in moving:
            queue = self.running[r.work.engine]
            more = r.left if len(queue) == 1 else sum([other.left for other in queue])
            time = now + (more - queue[-1].work.ahead) / speed
            if now < time < soonest:
                soonest = time
        assert soonest < inf or any(self.running.values()), "nothing left to wait for"
        self._step(soonest, moving)

    def advance(self, until: float) -> None:
        """Let the engines work up to a time."""
        while self.now < until:
            self._step(until, self._moving())

    def _step(self, until: float, moving: Sequence[tuple[_Running, float]]) -> None:
        """Let the engines work up to a time, or until a command begins or ends."""
        now, soonest = self.now, until
        for r, speed in moving:
            time = now + max(r.left / speed, TINY)
            if now < time < soonest:
                soonest = time
        for queue in self.running.values():
            if queue and now < queue[0].ready < soonest:
                soonest = queue[0].ready
        self.now = soonest
        for r, speed in moving:
            r.left -= speed * (soonest - now)
            if r.left <= TINY:
                self._end(r)

    def _moving(self) -> list[tuple[_Running, float]]:
        """Return the commands that take steps or move beats, with their speeds."""
        now = self.now
        moving = [queue[0] for queue in self.running.values() if queue and queue[0].ready <= now]
        if not moving:
            return []
        works = tuple([r.work for r in moving])
        known = self._speeds.get(works)
        if known is None:
            if len(self._speeds) >= MOST_KNOWN:
                self._speeds.clear()
            known = self._speeds[works] = speeds(works, self.timing)
        return list(zip(moving, known, strict=True))

    def _end(self, r: _Running) -> None:
        engine = r.work.engine
        self.running[engine].remove(r)
        self.before[engine] = self.done[engine]
        after = r.work.finish + (self.timing.write_latency if engine is Engine.STORE else 0)
        self.done[engine] = self.now + after
        self.spans.append((r, self.done[engine]))

    def start(self, number: int, work: CommandWork) -> None:
        """Begin a command."""
        if work.engine is _PASSES:
            self._passes = work.copied > 0
        latency = work.start + (self.timing.read_latency if work.engine is Engine.LOAD else 0)
        running = _Running(number, work, self.now, work.cycles, self.now + latency)
        self.running[work.engine].append(running)
        self.taken[work.engine] = self.now + NEST + work.requests


@dataclass
class _Fetch:
    """The program memory: how much of a program it holds, and what is on its way."""

    length: int
    parameters: AcceleratorParameters
    repeated: bool = False
    """Whether the program is repeated: its first descriptors are already in the program memory, and
    the last load brings those of the next repetition."""
    asked: int = 0
    own: int = 0
    """Descriptors of this repetition; those loaded beyond belong to the next one."""
    needed: int | None = None
    """Number of the descriptor where the outermost loop begins."""
    _coming: tuple[int, float] = (0, 0.0)
    """The descriptor before which a load has to be done, and the cycle in which it was begun."""

    def __post_init__(self) -> None:
        depth = self.parameters.program_depth
        self.asked = min(self.length, depth)
        self.own = self.length
        if self.repeated and self.length > depth:
            self.asked = min(AHEAD, depth)
            self.length += self.asked

    def before(self, number: int, machine: EngineModel) -> None:
        """Wait for a descriptor; load what follows while LOAD is idle, or when it is missing."""
        depth = self.parameters.program_depth
        refill = min(MOST_REFILL, depth)
        needed = number if self.needed is None else self.needed
        most = depth if self.asked < self.own else min(AHEAD, depth)
        wanted = self.asked < self.length and self.asked - needed <= most - refill
        if wanted and (number == self.asked or machine.is_idle(Engine.LOAD)):
            portion = min(refill, self.length - self.asked)
            machine.issue(LOADING, program_work(portion, self.parameters))
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
    repeated: bool = False,
) -> Timeline:
    """Predict the run of a program's descriptors.

    ``step`` is the number of a step: descriptors of other steps are skipped; None executes all.
    With ``repeated`` the program has run in the step before and runs in the next.
    """
    timing = timing or MemoryTiming.of(parameters)
    timeline = Timeline()
    fetch = _Fetch(len(program), parameters, repeated)

    def run(first: int, stop: int, now: float, times: int) -> float:
        """Execute descriptors ``first`` to ``stop``, ``times`` times alike; return the end."""
        machine, index = EngineModel(parameters, timing, now), first
        while index < stop:
            d = program[index]
            fetch.before(index, machine)
            skipped = step is not None and is_skipped(d, step)
            machine.advance(machine.now + (ISSUE if skipped else issue_cycles(d, parameters)))
            if isinstance(d, Loop):
                end = matching_end(program, index)
                machine.await_engines(Engine.ALL)
                begun, outermost = machine.now, fetch.needed is None
                if outermost:
                    fetch.needed = index + 1
                after = run(index + 1, end, begun, times * d.iterations)
                if outermost:
                    fetch.needed = None
                timeline.loops.append(LoopSpan(index + 1, end, after - begun, d.iterations))
                machine.advance(begun + (after - begun) * d.iterations)
                index = end
            elif isinstance(d, Halt):
                break
            elif skipped:
                pass
            elif isinstance(d, Compute | Transfer | Samples | Code | Vector):
                machine.issue(index, work_of(d, parameters), d.wait, d.wait_older)
                timeline.bytes_moved += times * bytes_moved(d, parameters)
            else:
                machine.await_engines(d.wait)
                if isinstance(d, MoveScales):
                    machine.advance(machine.now + SCALE * len(d.entries))
            index += 1
        machine.await_engines(Engine.ALL)
        timeline.spans += [
            Execution(r.number, r.work.engine, r.start, end) for r, end in machine.spans
        ]
        return machine.now

    now = 0.0
    if not repeated:
        work = program_work(fetch.asked, parameters)
        now = FETCH + work.cycles / transfer_speed(work, timing)
    timeline.bytes_moved = len(program) * DESCRIPTOR_BYTES
    timeline.cycles = round(run(0, len(program), now, 1) + STOP)
    timeline.spans.sort(key=lambda span: span.start)
    return timeline


def predict_steps(
    program: Sequence[Descriptor], parameters: AcceleratorParameters, steps: Iterable[int]
) -> Iterator[Timeline]:
    """Predict each of the ``steps`` that one start of a program runs; the first loads all of it."""
    for number, step in enumerate(steps):
        yield predict(program, parameters, step=step, repeated=number > 0)
