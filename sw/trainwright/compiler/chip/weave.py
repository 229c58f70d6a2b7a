"""The order of a resident step's commands: what an engine has time for while others are at work.

A step is phases one after the other: forward, loss, backward, update, the next step's samples. What
a phase does not need of another one can be issued earlier. The order is found by the cycle model, a
command after the other: the next one for the arrays goes first; until it can begin, others do that
do not delay it. Rows, bytes, exponents and the vector engine's registers are those of the phases one
after the other, and so are all values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from trainwright.compiler.builder import MEMORY
from trainwright.compiler.hazards import ARRAYS, Hazards, Waits
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Set, Transfer
from trainwright.program.fields import ENGINE_OF, Engine, Operation, Target
from trainwright.program.footprint import Touch, external, footprint
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import Work, work_of
from trainwright.timing.timeline import ISSUE, Machine, MemoryTiming

EXPONENTS, ENGINE = "exponents", "vector engine"
"""Spaces of touches that order commands and that none waits for."""
LOST = 0.25
"""Part of a command's cycles by which it may delay the next one of the arrays."""


@dataclass(frozen=True)
class Phase:
    """Commands in their order, and the stream of their random bits."""

    name: str
    descriptors: Sequence[Descriptor]
    stream: Set | None = None
    turn: int = 0
    """How many phases later than the phases before it this one is urgent."""


@dataclass
class _Command:
    number: int
    d: Compute | Transfer | Samples | Vector | Code
    engine: Engine
    touched: tuple[Touch, ...]
    work: Work
    stream: Set | None
    turn: int
    before: set[int] = field(default_factory=set)
    """Commands that are issued before it."""


def _outside(d: Descriptor, p: AcceleratorParameters) -> list[Touch]:
    if not isinstance(d, Transfer | Samples):
        return []
    return [Touch(MEMORY, *external(d, p), d.operation is Operation.STORE)]


def touches(d: Descriptor, p: AcceleratorParameters) -> tuple[Touch, ...]:
    """Rows, entries and bytes that a command reads and writes."""
    if not isinstance(d, Compute | Transfer | Samples | Vector):
        return ()
    return (*footprint(d, p), *_outside(d, p))


def _ordering(d: Descriptor) -> list[Touch]:
    """What else a command reads and writes when it is issued."""
    found = []
    if isinstance(d, Compute) and d.z_exponent:
        slots = [(d.x_exponent, False), (d.g_exponent, False), (d.z_exponent, True)]
        found += [Touch(EXPONENTS, slot, slot + 1, write) for slot, write in slots if slot]
    if isinstance(d, Vector):
        slots = {slot for one in d.scalars for slot in (one.plus, one.minus) if slot}
        found += [Touch(EXPONENTS, slot, slot + 1, False) for slot in sorted(slots)]
    if isinstance(d, Vector | Code):
        found.append(Touch(ENGINE, 0, 1, True))
    if isinstance(d, Samples):
        found.append(Touch("order", 0, 1, True))
    return found


def _set_order(commands: Sequence[_Command]) -> None:
    """What has to be issued before what: where one writes what the other touches."""
    spaces: dict[str, int] = {}
    rows, owners = [], []
    for c in commands:
        for touch in (*c.touched, *_ordering(c.d)):
            space = spaces.setdefault(touch.space, len(spaces))
            rows.append((space, touch.start, touch.stop, touch.write))
            owners.append(c.number)
    table, owner = np.array(rows), np.array(owners)
    space, start, stop, write = table.T
    for n in range(len(table)):
        earlier = slice(0, n)
        hit = (space[earlier] == space[n]) & (start[earlier] < stop[n]) & (stop[earlier] > start[n])
        hit &= (write[earlier] | write[n]).astype(bool)
        commands[owners[n]].before.update(owner[:n][hit].tolist())
    for c in commands:
        c.before.discard(c.number)


class _Weaver:
    def __init__(self, phases: Sequence[Phase], p: AcceleratorParameters) -> None:
        self.p = p
        self.machine, self.hazards = Machine(p, MemoryTiming.of(p), 0.0), Hazards()
        self.commands: list[_Command] = []
        self.queues: dict[tuple[str, Engine], list[_Command]] = {}
        numbers = count()
        for place, phase in enumerate(phases):
            for d in phase.descriptors:
                assert isinstance(d, Compute | Transfer | Samples | Vector | Code), d
                engine = ENGINE_OF[d.operation]
                c = _Command(
                    next(numbers), d, engine, touches(d, p), work_of(d, p), phase.stream,
                    2 * (place + phase.turn) + bool(phase.turn),
                )  # fmt: skip
                self.commands.append(c)
                self.queues.setdefault((phase.name, engine), []).append(c)
        _set_order(self.commands)
        self.left = {c.number for c in self.commands}
        self.found: list[Descriptor] = []
        self._stream: Set | None = None  # that of the next command of the arrays

    def run(self) -> list[Descriptor]:
        """All commands in their new order, with their waits."""
        by_turn = sorted(self.commands, key=lambda c: (not c.engine & ARRAYS, c.turn))
        for c in by_turn:
            while c.number in self.left:
                self._step(c)
        return self.found

    def _heads(self) -> list[_Command]:
        """The first commands of all queues of which all that comes before is issued."""
        heads = [queue[0] for queue in self.queues.values() if queue]
        return sorted(
            (c for c in heads if not c.before & self.left), key=lambda c: c.number
        )

    def _needed(self, c: _Command) -> set[int]:
        found: set[int] = set()
        more = [c.number]
        while more:
            n = more.pop()
            if n in found or n not in self.left:
                continue
            found.add(n)
            more += self.commands[n].before & self.left
            key = next(k for k, q in self.queues.items() if self.commands[n] in q)
            for o in self.queues[key]:
                if o.number == n: break
                more.append(o.number)
        return found

    def _step(self, first: _Command) -> None:
        """Issue ``first``, or what can be issued before it, or let time pass."""
        needed = self._needed(first)
        heads = [c for c in self._heads() if self._takes(c)]
        if any(c is first for c in heads):
            self._issue(first)
            return
        for c in sorted(heads, key=lambda c: (c.number not in needed, c.number)):
            if c.number in needed or self._hidden(c, first):
                self._issue(c)
                return
        self.machine.wait_for_change()

    def _waits(self, c: _Command, hazards: Hazards) -> Waits:
        if isinstance(c.d, Code):
            return Waits(Engine.NONE, Engine.NONE)
        return hazards.waits(c.engine, c.touched)

    def _takes(self, c: _Command) -> bool:
        waits = self._waits(c, self.hazards)
        return self.machine.takes(c.engine, *waits)

    def _hidden(self, c: _Command, first: _Command) -> bool:
        """Whether ``c`` before ``first`` delays that by little."""
        then = self._begin(first, self.machine.fork(), self.hazards)
        machine, hazards = self.machine.fork(), self.hazards.fork()
        self._put(c, machine, hazards)
        late = self._begin(first, machine, hazards) - then
        return late <= ISSUE + LOST * c.work.cycles

    def _begin(self, c: _Command, machine: Machine, hazards: Hazards) -> float:
        """When a command begins, if it is the next one."""
        wait, older = self._waits(c, hazards)
        machine.advance(machine.now + ISSUE)
        machine.until_older(older)
        machine.until_idle(wait)
        machine.until_free(c.engine)
        return machine.now

    def _put(self, c: _Command, machine: Machine, hazards: Hazards) -> Waits:
        waits = Waits(Engine.NONE, Engine.NONE)
        self._begin(c, machine, hazards)
        if not isinstance(c.d, Code):
            waits = hazards.issue(c.engine, c.touched)
        machine.start(c.number, c.work)
        return waits

    def _issue(self, c: _Command) -> None:
        waits = self._put(c, self.machine, self.hazards)
        if isinstance(c.d, Vector) and c.stream is not None and self._stream is not c.stream:
            self._stream = c.stream
            self.found.append(c.stream)
        elif isinstance(c.d, Compute):
            self._stream = None
        self.found.append(replace(c.d, **waits._asdict()))
        self.left.discard(c.number)
        for queue in self.queues.values():
            if queue and queue[0] is c:
                queue.pop(0)


def can_weave(phases: Sequence[Phase]) -> bool:
    """Whether commands alone, without loops and registers, say what the phases do."""
    return all(
        isinstance(d, Vector | Code)
        or isinstance(d, Compute)
        and not (d.x_register or d.g_register or d.z_register or d.stochastic)
        or isinstance(d, Transfer | Samples)
        and not (d.address_register or d.local_register)
        for phase in phases
        for d in phase.descriptors
    )


def woven(phases: Sequence[Phase], p: AcceleratorParameters) -> list[Descriptor]:
    """The commands of all phases in one order, with their waits."""
    return _Weaver(phases, p).run()
