"""Order the commands of a resident step, so that engines work on several phases at once.

A step has its phases one after the other: forward, loss, backward, update, the next step's samples.
What a phase does not need of another one can be issued earlier. The order is found by the cycle
model, one command after the other: the next command of the arrays goes first; until it can begin,
others are issued that hardly delay the next ones. Rows, bytes, exponents and the vector engine's
registers are used as if the phases came one after the other, and so all values are the same.
``resident`` calls ``woven`` with the phases of ``phases``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from trainwright.compiler.base.hazards import ARRAYS, MASKS, Hazards, Waits, touches
from trainwright.compiler.chip.pairs import Pairs, conflicts
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Set, Transfer, is_skipped
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import EIGHTH, Engine
from trainwright.program.footprint import Touch
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import CommandWork, work_of
from trainwright.timing.timeline import ISSUE, EngineModel, MemoryTiming

EXPONENTS, ENGINE = "exponents", "vector engine"
"""Spaces of touches that order commands without any engine waiting for them."""
NEXT_TRANSFERS = 4
"""Transfers of a phase among which any may be next; its commands of an array keep their order."""
_ARRAYS = Engine.PE1, Engine.PE2
_ENGINES = Engine.LOAD, Engine.STORE, *_ARRAYS
AHEAD, AHEAD_OF_TRANSFERS = 4, 5
"""Next commands of the arrays whose delay is predicted, for an array's command and a transfer."""
MOST_DELAY = 800
"""Cycles by which a command may delay the next ones of the arrays, and at most its own cycles.

Both arrays work nearly all of the time, so that little would be hidden in their pauses.
"""


@dataclass(frozen=True)
class Phase:
    """Commands in their order, and the stream of their random bits."""

    name: str
    descriptors: Sequence[Descriptor]
    stream: Set | None = None


@dataclass(eq=False)
class _Command:
    number: int
    d: Compute | Transfer | Samples | Vector | Code
    engine: Engine
    touched: tuple[Touch, ...]
    work: CommandWork
    stream: Set | None
    before: set[int] = field(default_factory=set)
    """Commands that are issued before it."""


def _ordering(d: Descriptor) -> list[Touch]:
    """Return what a command reads and writes at the time of its issue: registers and counters.

    The sequencer handles these in order, so they order commands, but no engine waits for them.
    """
    touched = []
    if isinstance(d, Compute) and d.z_exponent:
        slots = [(d.x_exponent, False), (d.g_exponent, False), (d.z_exponent, True)]
        touched += [Touch(EXPONENTS, slot, slot + 1, write) for slot, write in slots if slot]
    if isinstance(d, Vector):
        slots = {slot for scalar in d.scalars for slot in (scalar.plus, scalar.minus) if slot}
        touched += [Touch(EXPONENTS, slot, slot + 1, False) for slot in sorted(slots)]
    if isinstance(d, Vector | Code):
        touched.append(Touch(ENGINE, 0, 1, True))
    # Samples are drawn in order by a generator whose state goes on from command to command.
    if isinstance(d, Samples):
        touched.append(Touch("order", 0, 1, True))
    return touched


def _set_order(commands: Sequence[_Command]) -> None:
    """Set what is issued before each command: one of both writes what the other touches."""
    touched = [(c.number, touch) for c in commands for touch in (*c.touched, *_ordering(c.d))]
    for n, hit, _, owner in conflicts(touched):
        commands[owner[n]].before.update(owner[:n][hit[:n]].tolist())
    for c in commands:
        c.before.discard(c.number)


def _turn(d: Descriptor) -> int:
    """Return the field of a command that says in which steps it is executed."""
    return d.eighth if isinstance(d, Transfer | Vector) else 0


def _is_rare(d: Descriptor) -> bool:
    """Return whether a command is left out in most steps."""
    return _turn(d) > 1


@dataclass
class _Hazards:
    """Hazards in each step modulo ``EIGHTH``; the waits of a command are right in all steps.

    Which command of an engine is its last depends on the commands that a step skips, and so does
    what a wait means. So the waits are the union over all steps.
    """

    by_step: dict[int, Hazards]

    def fork(self) -> "_Hazards":
        return _Hazards({step: hazards.fork() for step, hazards in self.by_step.items()})

    def _mine(self, c: _Command) -> list[Hazards]:
        """Return the hazards of the steps that execute a command."""
        return [hazards for step, hazards in self.by_step.items() if not is_skipped(c.d, step)]

    def waits(self, c: _Command) -> Waits:
        wait = older = 0
        for hazards in self._mine(c):
            masks = hazards.waits(c.engine, c.number)
            wait |= int(masks.wait)
            older |= int(masks.wait_older)
        return Waits(MASKS[wait], MASKS[older & ~wait])

    def issue(self, c: _Command) -> None:
        for hazards in self._mine(c):
            hazards.issue(c.engine, c.number)


class _Weaver:
    def __init__(self, phases: Sequence[Phase], p: AcceleratorParameters) -> None:
        self.p = p
        # The cycle model's own machine, so that the order is judged as the finished program will
        # be.
        self.machine = EngineModel(p, MemoryTiming.of(p), 0.0)
        self.commands: list[_Command] = []
        self.queues: dict[tuple[str, Engine], list[_Command]] = {}
        numbers = count()
        for phase in phases:
            for d in phase.descriptors:
                assert isinstance(d, Compute | Transfer | Samples | Vector | Code), d
                engine = ENGINE_OF[d.operation]
                c = _Command(next(numbers), d, engine, touches(d, p), work_of(d, p), phase.stream)
                self.commands.append(c)
                queue = self.queues.setdefault((phase.name, engine), [])
                # Commands of an array keep their order within a phase: the vector engine's
                # registers carry values from one pass to the next.
                if queue and engine in _ARRAYS:
                    c.before.add(queue[-1].number)
                queue.append(c)
        _set_order(self.commands)
        touched = [(c.number, touch) for c in self.commands for touch in c.touched]
        pairs = Pairs(touched, len(self.commands))
        # Steps that skip the same commands have the same hazards: one of each kind is enough.
        turns = {_turn(c.d): c.d for c in self.commands}.values()
        kinds = {tuple(is_skipped(d, step) for d in turns): step for step in range(EIGHTH)}
        self.hazards = _Hazards(
            {step: Hazards(pairs.conflict, pairs.reads) for step in kinds.values()}
        )
        self._ancestors: list[int] = []  # of each command, with itself: a bit a command
        for c in self.commands:
            mine = 1 << c.number
            for n in c.before:
                mine |= self._ancestors[n]
            self._ancestors.append(mine)
        self._left = (1 << len(self.commands)) - 1
        self._urgent = [c for c in self.commands if c.engine in _ARRAYS]
        self.descriptors: list[Descriptor] = []
        self._stream: Set | None = None  # that of the next command of the arrays

    def run(self) -> list[Descriptor]:
        """Return all commands in their new order, with their waits."""
        while self._left:
            self._step()
        return self.descriptors

    def _heads(self) -> list[_Command]:
        """Return the next commands of all queues for which everything before them is issued."""
        heads = [
            c
            for (_, engine), queue in self.queues.items()
            for c in queue[: 1 if engine in _ARRAYS else NEXT_TRANSFERS]
        ]
        # Ancestors and commands left are sets of bits: what is left of a command's ancestors is
        # itself.
        return [c for c in heads if self._ancestors[c.number] & self._left == 1 << c.number]

    def _step(self) -> None:
        """Issue what is urgent, or what can be issued before it, or let time pass."""
        first = self._urgent[0] if self._urgent else None
        needed = self._ancestors[first.number] if first else self._left
        heads = [c for c in self._heads() if self._takes(c)]
        heads.sort(key=lambda c: _order(c, needed))
        for c in heads:
            if needed >> c.number & 1 or self._is_hidden(c):
                self._issue(c)
                return
        if heads and all(map(self.machine.is_idle, _ENGINES)):
            # What is urgent stands behind other commands of its queue: without this rule, time
            # would pass for ever.
            self._issue(heads[0])
        else:
            self.machine.wait_for_change()

    def _waits(self, c: _Command, hazards: "_Hazards") -> Waits:
        if isinstance(c.d, Code):
            return Waits(Engine.NONE, Engine.NONE)
        return hazards.waits(c)

    def _takes(self, c: _Command) -> bool:
        return _is_rare(c.d) or self.machine.takes(c.engine, *self._waits(c, self.hazards))

    def _is_hidden(self, c: _Command) -> bool:
        """Return whether the arrays' next commands begin hardly later with ``c`` before them."""
        ahead = AHEAD if c.engine in _ARRAYS else AHEAD_OF_TRANSFERS
        # Both futures are played on copies of the machine: the next commands alone, and with ``c``
        # first.
        then, now = self._begins(ahead, None), self._begins(ahead, c)
        delay = max(now[e] - then[e] for e in then if e is not self._spare(c))
        return delay <= ISSUE + self._lost(c) and not self._keeps_waiting(c)

    def _spare(self, c: _Command) -> Engine | None:
        """Return the array of a command if it has less left to do than the other one, else None.

        Such an array may be delayed itself: the other one ends the step.
        """
        if c.engine not in _ARRAYS:
            return None
        left: dict[Engine, float] = {Engine.PE1: 0.0, Engine.PE2: 0.0}
        for urgent in self._urgent:
            left[urgent.engine] += urgent.work.cycles
        return c.engine if left[c.engine] < max(left.values()) else None

    def _lost(self, c: _Command) -> float:
        """Return the cycles by which a command may delay the next ones."""
        return min(c.work.cycles, MOST_DELAY)

    def _keeps_waiting(self, c: _Command) -> bool:
        """Return whether a transfer delays a command that only waits for the last transfer."""
        for head in self._heads():
            waits = self._waits(head, self.hazards)
            if head.engine in _ARRAYS and c.engine & waits.wait & ~ARRAYS:
                then = self._begin(head, self.machine.fork(), waits)
                machine, hazards = self.machine.fork(), self.hazards.fork()
                self._put(c, machine, hazards)
                delay = self._begin(head, machine, self._waits(head, hazards)) - then
                if delay > ISSUE + self._lost(c):
                    return True
        return False

    def _begins(self, ahead: int, before: _Command | None) -> dict[Engine, float]:
        """Return when each array begins the last of the next commands and what they need.

        ``before`` is issued first, if given.
        """
        machine, hazards, left = self.machine.fork(), self.hazards.fork(), self._left
        if before:
            self._put(before, machine, hazards)
            left &= ~(1 << before.number)
        begun: dict[Engine, float] = {Engine.PE1: machine.now, Engine.PE2: machine.now}
        urgent = [c for c in self._urgent[: ahead + 1] if c is not before][:ahead]
        for c in urgent:
            needed = self._ancestors[c.number] & left
            left &= ~needed
            while needed:
                n = (needed & -needed).bit_length() - 1
                needed &= needed - 1
                command = self.commands[n]
                self._put(command, machine, hazards)
                if command.engine in begun:
                    begun[command.engine] = machine.now
        return begun

    def _begin(self, c: _Command, machine: EngineModel, waits: Waits) -> float:
        """Advance a machine to when it takes a command that comes next, and return that time.

        A command that most steps skip takes no time here.
        """
        machine.advance(machine.now + ISSUE)
        if _is_rare(c.d):
            return machine.now
        machine.until_older(waits.wait_older)
        machine.until_idle(waits.wait)
        machine.until_free(c.engine)
        return machine.now

    def _put(self, c: _Command, machine: EngineModel, hazards: "_Hazards") -> Waits:
        waits = self._waits(c, hazards)
        self._begin(c, machine, waits)
        if not isinstance(c.d, Code):
            hazards.issue(c)
        if not _is_rare(c.d):
            machine.start(c.number, c.work)
        return waits

    def _issue(self, c: _Command) -> None:
        waits = self._put(c, self.machine, self.hazards)
        # A phase's stream of random bits is set again wherever another phase, or a command of the
        # arrays, came between its passes.
        if isinstance(c.d, Vector) and c.stream is not None and self._stream is not c.stream:
            self._stream = c.stream
            self.descriptors.append(c.stream)
        elif isinstance(c.d, Compute):
            self._stream = None
        self.descriptors.append(replace(c.d, **waits._asdict()))
        self._left &= ~(1 << c.number)
        if c.engine in _ARRAYS:
            self._urgent.remove(c)
        next(queue for queue in self.queues.values() if c in queue[:NEXT_TRANSFERS]).remove(c)


def _order(c: _Command, needed: int) -> tuple[bool, float, int]:
    """Return a sort key: ``needed`` commands, the arrays', then transfers, short ones first."""
    hurry = needed >> c.number & 1
    size = 0.0 if hurry or c.engine in _ARRAYS else c.work.cycles
    return not hurry, size, c.number


def can_weave(phases: Sequence[Phase]) -> bool:
    """Return whether commands alone, without loops and registers, say what the phases do."""
    return all(
        isinstance(d, Vector | Code)
        or (
            isinstance(d, Compute)
            and not (d.x_register or d.g_register or d.z_register or d.stochastic)
        )
        or (isinstance(d, Transfer | Samples) and not (d.address_register or d.local_register))
        for phase in phases
        for d in phase.descriptors
    )


def woven(phases: Sequence[Phase], p: AcceleratorParameters) -> list[Descriptor]:
    """Return the commands of all phases in one order, with their waits."""
    return _Weaver(phases, p).run()
