"""Profile of a step: cycles of each descriptor, from measured or predicted commands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwright.accelerator import CommandRecord, Run
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor
from trainwright.program.engines import ARRAYS, ENGINES
from trainwright.support.text import amount
from trainwright.timing.commands import bytes_moved, work_of
from trainwright.timing.timeline import Timeline, predict, predict_steps

PROGRAM = "the program"
"""Tensor name of the load that brings the program."""


@dataclass
class ProfileLine:
    """Profile of one descriptor, summed over its executions."""

    part: str
    """Pass of the descriptor: forward or backward."""
    number: int
    """Number of the descriptor; -1 for the load of the program."""
    operation: str
    tensor: str
    engine: str
    times: int = 0
    cycles: int = 0
    macs: int = 0
    utilisation: float | None = None
    """Value of ``occupancy``, under its earlier name."""
    stall_operand: int = 0
    stall_result: int = 0
    bytes: int = 0
    saturations: int | None = None
    """Saturated values of the tensor in the step; in the line of its first descriptor only."""
    occupancy: float | None = None
    """Multiply-accumulates executed, over the engine's own multipliers times ``cycles``."""


def predicted(timeline: Timeline, begin: int = 0) -> tuple[CommandRecord, ...]:
    """Return the commands of a predicted run from cycle ``begin`` on.

    The body of a loop appears once per iteration.
    """
    return tuple(
        CommandRecord(s.number, s.engine, begin + round(s.start), begin + round(s.end), 0, 0)
        for s in timeline.executions()
    )


def predicted_steps(
    descriptors: Sequence[Descriptor], p: AcceleratorParameters, steps: Iterable[int]
) -> tuple[tuple[CommandRecord, ...], int]:
    """Return the commands of a start that runs a program in all ``steps``, and their cycles."""
    commands, begin = [], 0
    for timeline in predict_steps(descriptors, p, steps):
        commands += predicted(timeline, begin)
        begin += timeline.cycles
    return tuple(commands), begin


def lines(
    part: str,
    descriptors: Sequence[Descriptor],
    commands: Iterable[CommandRecord],
    p: AcceleratorParameters,
    run: Run | None = None,
) -> list[ProfileLine]:
    """Return a line for each descriptor that engines executed."""
    by_number: dict[int, ProfileLine] = {}
    counted: set[int] = set()
    for command in sorted(commands, key=lambda c: c.start):
        line = by_number.get(command.number)
        if line is None:
            line = by_number[command.number] = _line(part, descriptors, command)
            if run is not None and command.number >= 0:
                d = descriptors[command.number]
                if isinstance(d, Compute) and d.slot not in counted:
                    counted.add(d.slot)
                    line.saturations = int(run.saturations[d.slot])
        line.times += 1
        line.cycles += command.end - command.start
        line.stall_operand += command.stall_operand
        line.stall_result += command.stall_result
        if command.number >= 0:
            d = descriptors[command.number]
            line.bytes += bytes_moved(d, p)
            if isinstance(d, Compute):
                line.macs += work_of(d, p).macs
    rows = {spec.name: spec.rows(p) for spec in ARRAYS.values()}
    for line in by_number.values():
        if line.macs and line.cycles:
            line.occupancy = line.macs / (rows[line.engine] * p.lanes * line.cycles)
            line.utilisation = line.occupancy
    return list(by_number.values())


@dataclass(frozen=True)
class ProfiledProgram:
    """Program of a step with its execution, and a line for each descriptor."""

    name: str
    descriptors: Sequence[Descriptor]
    macs: int
    """Useful multiply-accumulates."""
    commands: Sequence[CommandRecord]
    rows: list[ProfileLine]
    cycles: int
    steps: Sequence[int] = (0,)
    """Numbers of the steps that one start ran: ``commands``, ``rows`` and sums are those of all."""

    @property
    def title(self) -> str:
        """Heading of a table."""
        return f"{self.name} by one start" if len(self.steps) > 1 else self.name

    @property
    def kinds_of_steps(self) -> dict[str, list[CommandRecord]]:
        """Commands of the first step of each kind by title, from cycle 0 on.

        Steps are of a kind if they execute the same descriptors.
        """
        if len(self.steps) == 1:
            return {self.name: list(self.commands)}
        steps: list[list[CommandRecord]] = [[]]
        for command in sorted(self.commands, key=lambda c: c.start):
            # A step ends when all engines are idle; the next one begins with a lower number.
            if steps[-1] and 0 <= command.number < steps[-1][-1].number:
                steps.append([])
            if command.number >= 0:
                steps[-1].append(command)
        kinds: dict[tuple[int, ...], dict[str, list[CommandRecord]]] = {}
        for number, commands in zip(self.steps, steps, strict=True):
            begin = commands[0].start
            moved = [replace(c, start=c.start - begin, end=c.end - begin) for c in commands]
            kinds.setdefault(tuple(c.number for c in commands), {f"step {number}": moved})
        return {name: commands for kind in kinds.values() for name, commands in kind.items()}


def profiled(
    name: str,
    descriptors: Sequence[Descriptor],
    macs: int,
    run: Run,
    p: AcceleratorParameters,
    steps: Sequence[int] = (0,),
) -> ProfiledProgram:
    """Return the profile of a program's run, by predicted commands if none are measured.

    ``steps`` are the numbers of the steps that one start ran, ``macs`` those of one of them.
    """
    if run.commands:
        commands, cycles = run.commands, run.counters.cycles
    elif len(steps) > 1:
        commands, cycles = predicted_steps(descriptors, p, steps)
    else:
        timeline = predict(descriptors, p)
        commands, cycles = predicted(timeline), timeline.cycles
    name = amount(len(steps), "step") if len(steps) > 1 else name
    rows = lines(name, descriptors, commands, p, run)
    return ProfiledProgram(name, descriptors, macs * len(steps), commands, rows, cycles, steps)


def total_of(
    name: str, parts: Sequence[ProfiledProgram], p: AcceleratorParameters, steps: int = 1
) -> dict[str, Any]:
    """Return the sums over programs, divided by ``steps``; ``utilisation`` is the occupancy."""
    rows = [row for part in parts for row in part.rows]
    cycles = sum(part.cycles for part in parts)
    macs, useful = sum(row.macs for row in rows), sum(part.macs for part in parts)
    most = p.multipliers * max(1, cycles)
    sums = {"cycles": cycles, "macs": macs, "useful_macs": useful}
    total: dict[str, Any] = {
        "part": name, **{key: round(value / steps) for key, value in sums.items()},
        "utilisation": macs / most, "occupancy": macs / most, "mac_utilisation": useful / most,
        "bytes": round(sum(row.bytes for row in rows) / steps),
    }  # fmt: skip
    for spec in ENGINES:
        busy = sum(row.cycles for row in rows if row.engine == spec.name)
        total[f"{spec.unit}_cycles"] = round(busy / steps)
    return total


def _line(part: str, descriptors: Sequence[Descriptor], command: CommandRecord) -> ProfileLine:
    if command.number < 0:
        return ProfileLine(part, -1, "LOAD", PROGRAM, "LOAD")
    d = descriptors[command.number]
    tensor = getattr(d, "tensor", "")
    return ProfileLine(part, command.number, d.operation.name, tensor, command.engine.name or "")


def trace_events(parts: Sequence[ProfiledProgram]) -> dict[str, Any]:
    """Return a trace for Perfetto or chrome://tracing: a row an engine, a cycle a microsecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": s.engine, "name": "thread_name", "args": {"name": s.name}}
        for s in ENGINES
    ]
    begun = 0
    for part in parts:
        for command in part.commands:
            line = _line(part.name, part.descriptors, command)
            event = {
                "ph": "X", "pid": 1, "tid": command.engine.value, "cat": part.name,
                "name": f"{line.operation} {line.tensor}",
                "ts": begun + command.start, "dur": max(1, command.end - command.start),
            }  # fmt: skip
            stalls = {"stall_operand": command.stall_operand, "stall_result": command.stall_result}
            events.append(event | {"args": {"descriptor": command.number, **stalls}})
        begun += part.cycles
    return {"traceEvents": events, "displayTimeUnit": "ms"}
