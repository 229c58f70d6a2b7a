"""Order the commands of a resident step, so that engines work on several phases at once.

The phases of a step are given one after the other: forward, loss, backward, update, the next step's
samples. A command that does not depend on an earlier phase can be issued during that phase. The
order is found command by command, with a copy of the cycle model's machine: the next command of the
arrays has priority; until it can begin, other commands are issued if they hardly delay the next
commands of the arrays. Two commands keep their order if one writes rows, bytes, exponents or
registers of the vector engine that the other touches, so all values are those of the given order.
``chip.resident`` calls ``woven``.

Sets of commands are integers with a bit for each command: a step has some thousand commands, and
asks for every candidate whether all that must precede it has been issued.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import inf
from operator import or_

import numpy as np

from trainwright.compiler.base.hazards import MASKS, Hazards, Waits, touches
from trainwright.compiler.base.tuning import TUNING
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Set, Transfer, is_skipped
from trainwright.program.engines import ENGINE_OF, EVERY_ARRAY, EVERY_ENGINE
from trainwright.program.fields import EIGHTH, Engine
from trainwright.program.footprint import Touch
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import ISSUE, CommandWork, issue_cycles, work_of
from trainwright.timing.contention import MemoryTiming
from trainwright.timing.timeline import EngineModel

EXPONENTS, ENGINE, ORDER = "exponents", "vector engine", "order of samples"
ISSUED = EXPONENTS, ENGINE, ORDER
"""Spaces of touches that the sequencer handles as it issues commands.

They order commands, but no engine waits for them.
"""


@dataclass(frozen=True)
class Phase:
    """Commands of a phase in their order, and the stream of their random bits."""

    name: str
    descriptors: Sequence[Descriptor]
    stream: Set | None = None


@dataclass(eq=False)
class _Command:
    number: int
    """Place in the given order, and the command's bit in sets of commands."""
    d: Compute | Transfer | Samples | Vector | Code
    engine: Engine
    touched: tuple[Touch, ...]
    work: CommandWork
    stream: Set | None
    """Stream of random bits of the command's phase."""

    @cached_property
    def bit(self) -> int:
        """Set of this command alone."""
        return 1 << self.number


def _ordering(d: Descriptor) -> list[Touch]:
    """Return the registers and counters that a command reads and writes when it is issued.

    The sequencer handles them in order: they restrict the order of issue, but need no waits.
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
    # A generator draws the samples, and each command continues from its state.
    if isinstance(d, Samples):
        touched.append(Touch(ORDER, 0, 1, True))
    return touched


class _Pairs:
    """Conflicts of all pairs of commands, as a set of commands for each command.

    ``orders`` has all that the command must keep its order with, the other sets those among them
    that engines wait for.
    """

    def __init__(self, commands: Sequence[_Command]) -> None:
        # Grids tell touches apart whose rows are equal otherwise.
        touched = [
            [(touch, touch.grids) for touch in (*c.touched, *_ordering(c.d))] for c in commands
        ]
        # Commands touch the same rows over and over: of 82,670 touches of `fashion` at batch 1,024,
        # 7,113 are distinct.
        touching: dict[tuple[Touch, object], int] = {}
        for c, keys in zip(commands, touched, strict=True):
            for key in keys:
                touching[key] = touching.get(key, 0) | c.bit
        met = dict(zip(touching, _meeting(touching), strict=True))
        self.orders, self._conflicts, self._reads = (
            [_union(met[key][k] for key in keys) for keys in touched] for k in range(3)
        )

    def conflict(self, first: int, second: int) -> bool:
        """Return whether one of two commands writes anything that the other touches."""
        return bool(self._conflicts[first] >> second & 1)

    def reads(self, first: int, second: int) -> bool:
        """Return whether the first command reads anything that the second writes."""
        return bool(self._reads[first] >> second & 1)


def _meeting(touching: Mapping[tuple[Touch, object], int]) -> Iterator[tuple[int, ...]]:
    """Yield for each distinct touch the commands that meet it in one of three ways.

    ``touching`` has the commands of each touch. The ways are: one of both touches writes; the same,
    where engines wait; a read that meets a write, where engines wait.
    """
    # A step has too many touches to compare each pair in Python. Numpy compares the table of all
    # with each of them; only grids, whose rows are not contiguous, are then compared one by one.
    distinct, commands = [touch for touch, _ in touching], list(touching.values())
    spaces: dict[str, int] = {}
    table = [
        (spaces.setdefault(t.space, len(spaces)), t.start, t.stop, t.write, t.space in ISSUED)
        for t in distinct
    ]
    space, start, stop, write, issued = np.array(table, np.int64).reshape(-1, 5).T
    for n, mine in enumerate(distinct):
        hit = (space == space[n]) & (start < mine.stop) & (stop > mine.start)
        hit &= (write > 0) | mine.write
        for other in np.flatnonzero(hit).tolist() if mine.grids else ():
            hit[other] = mine.meets(distinct[other])
        waited = hit & (issued == 0)
        read = waited & (write > mine.write)
        yield tuple(
            _union(commands[k] for k in np.flatnonzero(way).tolist()) for way in (hit, waited, read)
        )


def _union(sets: Iterable[int]) -> int:
    """Return the commands that are in any of the sets."""
    return reduce(or_, sets, 0)


def _members(commands: int) -> Iterator[int]:
    """Yield the numbers of the commands of a set, the lowest first."""
    while commands:
        lowest = commands & -commands
        yield lowest.bit_length() - 1
        commands ^= lowest


def _eighth(d: Descriptor) -> int:
    """Return a command's ``eighth``, which selects the steps that execute it; 0 for all steps."""
    return d.eighth if isinstance(d, Transfer | Vector) else 0


def _is_rare(d: Descriptor) -> bool:
    """Return whether most steps skip a command."""
    return _eighth(d) > 1


@dataclass
class _Hazards:
    """Hazards in each step modulo ``EIGHTH``, combined to waits that are right in all steps.

    A wait refers to the last command of an engine, which depends on the commands that a step skips.
    So a command waits for every engine that it has to wait for in any step.
    """

    by_step: dict[int, Hazards]

    def fork(self) -> "_Hazards":
        return _Hazards({step: hazards.fork() for step, hazards in self.by_step.items()})

    def _mine(self, c: _Command) -> list[Hazards]:
        """Return the hazards of the steps that execute a command."""
        if not _eighth(c.d):
            return [*self.by_step.values()]
        return [hazards for step, hazards in self.by_step.items() if not is_skipped(c.d, step)]

    def waits(self, c: _Command) -> Waits:
        return _joined([hazards.waits(c.engine, c.number) for hazards in self._mine(c)])

    def issue(self, c: _Command) -> Waits:
        """Issue a command, and return its waits."""
        return _joined([hazards.issue(c.engine, c.number) for hazards in self._mine(c)])


def _joined(steps: Iterable[Waits]) -> Waits:
    """Return the waits that are right in all steps."""
    wait = older = 0
    for waits in steps:
        wait |= int(waits.wait)
        older |= int(waits.wait_older)
    return Waits(MASKS[wait], MASKS[older & ~wait])


_NO_WAITS = Waits(Engine.NONE, Engine.NONE)


class _Weaver:
    """State of the order: commands left, the machine's clock, and what has been issued."""

    def __init__(self, phases: Sequence[Phase], p: AcceleratorParameters) -> None:
        self.p = p
        # The machine of the cycle model, so that the order is judged by the same times as the
        # finished program.
        self.machine = EngineModel(p, MemoryTiming.of(p), 0.0)
        self.commands: list[_Command] = []
        self.queues: dict[tuple[str, Engine], list[_Command]] = {}
        self._ancestors: list[int] = []
        """For each command the set of those that must precede it, and itself."""
        for phase in phases:
            for d in phase.descriptors:
                assert isinstance(d, Compute | Transfer | Samples | Vector | Code), d
                engine = ENGINE_OF[d.operation]
                number = len(self.commands)
                c = _Command(number, d, engine, touches(d, p), work_of(d, p), phase.stream)
                self.commands.append(c)
                queue = self.queues.setdefault((phase.name, engine), [])
                # Commands of an array keep their order within a phase: the vector engine's
                # registers carry values from one pass to the next.
                behind = queue[-1].bit if queue and engine in EVERY_ARRAY else 0
                self._ancestors.append(c.bit | behind)
                queue.append(c)
        pairs = _Pairs(self.commands)
        for n in range(len(self.commands)):
            earlier = (1 << n) - 1
            rest = (self._ancestors[n] | pairs.orders[n]) & earlier
            # Each round adds the latest one left with all of its ancestors, which need no round.
            while rest:
                before = self._ancestors[rest.bit_length() - 1]
                self._ancestors[n] |= before
                rest &= ~before
        # Steps that skip the same commands have the same hazards: keep one step of each kind.
        examples = {_eighth(c.d): c.d for c in self.commands}.values()
        kinds = {tuple(is_skipped(d, step) for d in examples): step for step in range(EIGHTH)}
        self.hazards = _Hazards(
            {step: Hazards(pairs.conflict, pairs.reads) for step in kinds.values()}
        )
        self._left = (1 << len(self.commands)) - 1
        """Commands that are not issued yet."""
        self._urgent = [c for c in self.commands if c.engine in EVERY_ARRAY]
        """Commands of the arrays among these, in their order."""
        self.descriptors: list[Descriptor] = []
        """Commands in their new order, as issued so far."""
        self._stream: Set | None = None
        """Stream of random bits that was set last, unless a contraction came after it."""
        self._begin: dict[Engine, float] | None = None
        """Cycles at which the arrays' next commands begin; None: the state changed since."""

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
            for c in queue[: 1 if engine in EVERY_ARRAY else TUNING.weave.transfers]
        ]
        # A command is ready if it is the only one of its ancestors that is left.
        return [c for c in heads if self._ancestors[c.number] & self._left == c.bit]

    def _step(self) -> None:
        """Issue the urgent command, or a command that can go before it, or let time pass."""
        first = self._urgent[0] if self._urgent else None
        needed = self._ancestors[first.number] if first else self._left
        heads = [c for c in self._heads() if self._takes(c)]
        heads.sort(key=lambda c: _order(c, needed))
        for c in heads:
            begin_after: dict[Engine, float] | None = None
            if not needed & c.bit:
                self._begin = self._begin or self._begins(None)
                begin_after = self._hidden(c, self._begin)
                if begin_after is None:
                    continue
            self._issue(c)
            self._begin = begin_after
            return
        self._begin = None
        if heads and all(map(self.machine.is_idle, EVERY_ENGINE)):
            # The urgent command is behind other commands of its queue: without this rule, time
            # would pass for ever.
            self._issue(heads[0])
        else:
            self.machine.wait_for_change()

    def _takes(self, c: _Command) -> bool:
        """Return whether the machine accepts a command at once."""
        if _is_rare(c.d):
            return True
        if not self.machine.takes(c.work, *_NO_WAITS):
            return False  # tested first, as the waits of a command take longer to find
        waits = _NO_WAITS if isinstance(c.d, Code) else self.hazards.waits(c)
        return self.machine.takes(c.work, *waits)

    def _hidden(self, c: _Command, without: dict[Engine, float]) -> dict[Engine, float] | None:
        """Return when the arrays begin the last of their next commands if ``c`` goes before them.

        None if ``c`` delays an array by more than its limit, relative to the begin ``without`` it.
        """
        # Copies of the machine predict both cases: the next commands without ``c``, and after it.
        most = ISSUE + min(c.work.cycles, TUNING.weave.delay)
        begin = self._begins(c, without, most)
        return begin if max(begin[e] - without[e] for e in without) <= most else None

    def _begins(
        self, before: _Command | None, usual: dict[Engine, float] | None = None, most: float = inf
    ) -> dict[Engine, float]:
        """Return when each array begins the last of its next commands.

        Commands that these depend on are issued as well, and ``before`` first, if given. Results
        are infinite if a command would begin more than ``most`` cycles later than ``usual`` says.
        """
        machine, hazards, left = self.machine.fork(), self.hazards.fork(), self._left
        if before:
            self._put(before, machine, hazards)
            left &= ~before.bit
        begun = dict.fromkeys(EVERY_ARRAY, machine.now)
        count = TUNING.weave.predicted
        urgent = [c for c in self._urgent[: count + 1] if c is not before][:count]
        for c in urgent:
            needed = self._ancestors[c.number] & left
            left &= ~needed
            for n in _members(needed):
                command = self.commands[n]
                self._put(command, machine, hazards)
                if command.engine in begun:
                    begun[command.engine] = machine.now
                if usual and machine.now - usual[c.engine] > most:  # time only passes
                    return dict.fromkeys(begun, inf)
        return begun

    def _put(self, c: _Command, machine: EngineModel, hazards: "_Hazards") -> Waits:
        """Advance a machine until it accepts a command, and start the command there."""
        waits = _NO_WAITS if isinstance(c.d, Code) else hazards.issue(c)
        rare = _is_rare(c.d)
        machine.advance(machine.now + (ISSUE if rare else issue_cycles(c.d, self.p)))
        if not rare:  # a command that most steps skip takes no time here
            machine.issue(c.number, c.work, *waits)
        return waits

    def _issue(self, c: _Command) -> None:
        """Issue a command in the machine, and append its descriptor with its waits."""
        waits = self._put(c, self.machine, self.hazards)
        # A phase's stream of random bits is set again if another phase's pass, or a command of the
        # arrays, came between two of its passes.
        if isinstance(c.d, Vector) and c.stream is not None and self._stream is not c.stream:
            self._stream = c.stream
            self.descriptors.append(c.stream)
        elif isinstance(c.d, Compute):
            self._stream = None
        self.descriptors.append(replace(c.d, **waits._asdict()))
        self._left &= ~c.bit
        if c.engine in EVERY_ARRAY:
            self._urgent.remove(c)
        first = TUNING.weave.transfers
        next(queue for queue in self.queues.values() if c in queue[:first]).remove(c)


def _order(c: _Command, needed: int) -> tuple[bool, float, int]:
    """Return a sort key: ``needed`` commands, then commands of the arrays, then short transfers."""
    is_needed = bool(needed & c.bit)
    cycles = 0.0 if is_needed or c.engine in EVERY_ARRAY else c.work.cycles
    return not is_needed, cycles, c.number


def woven(phases: Sequence[Phase], p: AcceleratorParameters) -> list[Descriptor]:
    """Return the commands of all phases in one order, with their waits."""
    return _Weaver(phases, p).run()
