"""Cycles of an array by cause: what it computed, and what it lost to which command.

Every cycle of a run has one cause. Inside a command an array computes, stalls, or fills and empties
its pipeline. The passes of the vector engine count as commands of PE2, whose ports they use.
Between two commands the sequencer holds back a descriptor: either the array's next one or one
before it, as descriptors are issued in order. The cause of such cycles is the command that the
descriptor waits for longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.accelerator import CommandRecord
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, End, Loop
from trainwright.program.engines import EVERY_ARRAY, EVERY_ENGINE, contraction_of
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import Engine
from trainwright.program.vector import Code, Vector
from trainwright.timing.commands import work_of
from trainwright.timing.profile import PROGRAM

COMPUTING = "computing"
"""Cause of the cycles that the multiply-accumulates of a command need at least."""
COPYING = "copying"
"""Cause of the cycles in which an array multiplies by an identity: copies and transposes."""
WAITS = {engine: f"wait for {engine.name}" for engine in EVERY_ENGINE}
"""Causes of cycles in which a descriptor waits for a command of an engine."""


@dataclass(frozen=True)
class LostCycles:
    """Cycles of an array with one cause, over all of a program."""

    part: str
    """forward or backward."""
    engine: str
    cause: str
    cycles: int
    share: float
    """Fraction of the program's cycles."""
    number: int | None = None
    """Descriptor with the most of these cycles: the one that computes, or is waited for."""
    tensor: str = ""
    """Tensor of descriptor ``number``."""


@dataclass(frozen=True)
class _Held:
    """Command, with the cycles in which the sequencer held it back, and the reason."""

    command: CommandRecord
    begin: int
    """Cycle in which an engine took the command before: the wait starts here."""
    first: bool
    """Whether this is the first command of the run."""
    blocker: CommandRecord | None
    """Command that was waited for longest."""
    released: int
    """Cycle from which ``blocker`` held nothing back."""
    issue: tuple[str, int]
    """Cause of the cycles from ``released`` on, and the descriptor that they are for."""


def lost_cycles(
    part: str,
    descriptors: Sequence[Descriptor],
    commands: Sequence[CommandRecord],
    cycles: int,
    p: AcceleratorParameters,
) -> list[LostCycles]:
    """Divide the cycles of the arrays among causes, those with most cycles first.

    ``commands`` are all executions in a run of ``cycles`` cycles, measured or predicted. The cycles
    of an array add up to ``cycles`` exactly.
    """
    held_commands = _held_commands(descriptors, commands, p)
    counts: dict[tuple[Engine, str], dict[int | None, float]] = {}
    for engine in EVERY_ARRAY:
        for cause, number, count in _divided(engine, descriptors, held_commands, cycles, p):
            numbers = counts.setdefault((engine, cause), {})
            numbers[number] = numbers.get(number, 0) + count
    lines = []
    for (engine, cause), numbers in counts.items():
        total = round(sum(numbers.values()))
        most = max(numbers, key=lambda number: numbers[number])
        tensor = "" if most is None else PROGRAM if most < 0 else _tensor(descriptors[most])
        name = engine.name or ""
        lines.append(LostCycles(part, name, cause, total, total / max(1, cycles), most, tensor))
    return sorted(lines, key=lambda line: (line.engine, -line.cycles))


def purpose_of(d: Code | Vector) -> str:
    """Return what a pass of the vector engine computes: "update" for the tensor "l1.G1 update"."""
    if isinstance(d, Code):
        return "instructions"
    tensor, _, purpose = d.tensor.partition(" ")
    if "." not in tensor:  # such as "looks at the columns"
        return d.tensor
    return purpose or "functions"


def _tensor(d: Descriptor) -> str:
    """Return the tensor of a descriptor, nothing for one that has none."""
    return getattr(d, "tensor", "")


def _divided(
    engine: Engine,
    descriptors: Sequence[Descriptor],
    held_commands: Sequence[_Held],
    cycles: int,
    p: AcceleratorParameters,
) -> Iterator[tuple[str, int | None, float]]:
    """Divide the cycles of one array: yield causes, their descriptors, and counts."""
    now = first = 0
    for index, held in enumerate(held_commands):
        command = held.command
        if command.engine is not engine:
            continue
        if command.start > now:
            # Commands that were issued before the array became idle do not explain its gap.
            while held_commands[first].command.start <= now and first < index:
                first += 1
            yield from _gap(held_commands[first : index + 1], now, command.start)
            now = command.start
        if command.end > now:
            yield from _command(descriptors[command.number], command, command.end - now, p)
            now = command.end
    if cycles > now:
        yield "no work left", None, cycles - now


def _command(
    d: Descriptor, command: CommandRecord, length: int, p: AcceleratorParameters
) -> Iterator[tuple[str, int | None, float]]:
    """Divide the ``length`` cycles of a command that no earlier command of its array covers."""
    number, left = command.number, float(length)

    def take(cause: str, count: float) -> tuple[str, int | None, float]:
        nonlocal left
        count = max(0.0, min(count, left))
        left -= count
        return cause, number, count

    assert isinstance(d, Compute | Code | Vector), "arrays execute no other kind"
    work = work_of(d, p)
    if isinstance(d, Compute) and (array := contraction_of(d.operation)):
        needed = work.macs / (array.rows(p) * p.lanes)
        taken = d.steps * array.depth(p)
        yield take(COPYING if d.tensor.endswith(" copy") else COMPUTING, needed)
        yield take("rows not written", taken - needed)
        # A tile of few steps waits for the port by which the results of the tile before leave.
        yield take("results drained", work.cycles - taken)
    else:
        cause = "bias, mask" if isinstance(d, Compute) else f"passes: {purpose_of(d)}"
        yield take(cause, work.cycles)
    yield take("operands awaited", command.stall_operand)
    yield take("results blocked", command.stall_result)
    yield take("pipeline fills", work.start + work.finish)
    # A predicted run counts no stalls: the rest is lost to banks that other commands read, too.
    yield take("operands awaited", left)


def _gap(
    held_commands: Sequence[_Held], begin: int, end: int
) -> Iterator[tuple[str, int | None, float]]:
    """Divide the cycles ``begin`` to ``end``, in which an array has no command."""
    for held in held_commands:
        low, high = max(begin, held.begin), min(end, held.command.start)
        if held.first and low < high:  # a predicted run does not list the load of the program
            yield WAITS[Engine.LOAD], -1, high - low
            continue
        if held.blocker is not None and low < min(high, held.released):
            yield WAITS[held.blocker.engine], held.blocker.number, min(high, held.released) - low
            low = min(high, held.released)
        if low < high:
            yield *held.issue, high - low


def _held_commands(
    descriptors: Sequence[Descriptor],
    commands: Sequence[CommandRecord],
    p: AcceleratorParameters,
) -> list[_Held]:
    """Return every command with what held it back, in the order of issue."""
    held_commands: list[_Held] = []
    last: dict[Engine, list[CommandRecord]] = {engine: [] for engine in WAITS}
    begin, before = 0, -1
    for command in sorted(commands, key=lambda command: (command.start, command.number)):
        blockers: list[tuple[int, CommandRecord]] = []
        issue = "issue", command.number
        if command.number >= 0:
            issue = _issue(descriptors, before, command.number)
            idle, older = _waits(descriptors, before, command.number)
            for engine, done in last.items():
                if engine & idle:
                    blockers += [(ended.end, ended) for ended in done[-1:]]
                elif engine is command.engine:
                    # An array takes its next command while results of the last one leave. PE2 and
                    # the vector engine wait for each other's last row.
                    alone = any(_is_engine(descriptors[c.number]) for c in (command, *done[-1:]))
                    early = engine in EVERY_ARRAY and not alone
                    blockers += [
                        (ended.end - (_finish(descriptors[ended.number], p) if early else 0), ended)
                        for ended in done[-1:]
                    ]
                    blockers += [(ended.end, ended) for ended in done[-2:-1]]
                elif engine & older:
                    blockers += [(ended.end, ended) for ended in done[-2:-1]]
            before = command.number
        released, blocker = max(blockers, key=lambda pair: pair[0], default=(0, None))
        held_commands.append(_Held(command, begin, not held_commands, blocker, released, issue))
        begin = command.start
        last[command.engine].append(command)
    return held_commands


def _finish(d: Descriptor, p: AcceleratorParameters) -> int:
    """Return the cycles in which the last results of a command leave its array."""
    assert isinstance(d, Compute), "other commands of arrays end before the next one begins"
    return work_of(d, p).finish


def _is_engine(d: Descriptor) -> bool:
    """Return whether the vector engine executes a descriptor."""
    return isinstance(d, Code | Vector)


def _issue(descriptors: Sequence[Descriptor], before: int, number: int) -> tuple[str, int]:
    """Return the cause of cycles in which nothing holds command ``number`` back but its issue."""
    if number <= before:  # the next step of a program that is repeated
        for passed in range(before + 1, len(descriptors)):
            if isinstance(descriptors[passed], MoveScales):
                return "scales", passed
    return "passes: set up" if _is_engine(descriptors[number]) else "issue", number


def _waits(descriptors: Sequence[Descriptor], before: int, number: int) -> tuple[Engine, Engine]:
    """Return the engines that command ``number`` waits for, issued after command ``before``.

    The first must be idle, the second have finished all but their last command. Descriptors between
    the two commands run on no engine, but wait too, and so hold the command back.
    """
    d = descriptors[number]
    if number <= before:  # the end of a loop's body waits for all engines
        return Engine.ALL, d.wait_older
    idle = d.wait
    for passed in descriptors[before + 1 : number]:
        idle |= Engine.ALL if isinstance(passed, Loop | End) else passed.wait
    return idle, d.wait_older
