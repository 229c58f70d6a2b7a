"""Profile of a step: cycles of each descriptor, from measured or predicted commands."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainwright.accelerator import CommandRecord, Run
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Transfer
from trainwright.program.engines import PE1, PE2
from trainwright.program.fields import Engine
from trainwright.program.vector import Vector
from trainwright.timing.commands import work_of
from trainwright.timing.timeline import Timeline, predict

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


def predicted(timeline: Timeline) -> tuple[CommandRecord, ...]:
    """Return the commands of a predicted run; the body of a loop appears once per iteration."""
    return tuple(
        CommandRecord(s.number, s.engine, round(s.start), round(s.end), 0, 0)
        for s in timeline.executions()
    )


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
            if isinstance(d, Transfer):
                line.bytes += d.runs * d.beats * p.beat_bytes
            elif isinstance(d, Compute):
                line.macs += work_of(d, p).macs
    rows = {spec.engine.name: spec.rows(p) for spec in (PE1, PE2)}
    for line in by_number.values():
        if line.macs and line.cycles:
            line.occupancy = line.macs / (rows[line.engine] * p.lanes * line.cycles)
            line.utilisation = line.occupancy
    return list(by_number.values())


@dataclass(frozen=True)
class ProfiledProgram:
    """Program of a step with its execution, and a line for each descriptor."""

    name: str
    program: Any
    commands: Sequence[CommandRecord]
    rows: list[ProfileLine]
    cycles: int


def profiled(name: str, program: Any, run: Run, p: AcceleratorParameters) -> ProfiledProgram:
    """Return the profile of a program's run, by predicted commands if none are measured."""
    commands = run.commands or predicted(predict(program.descriptors, p))
    rows = lines(name, program.descriptors, commands, p, run)
    end = run.counters.cycles or max(command.end for command in commands)
    return ProfiledProgram(name, program, commands, rows, end)


def total_of(
    name: str, parts: Sequence[ProfiledProgram], p: AcceleratorParameters
) -> dict[str, Any]:
    """Return the sums over programs; ``utilisation`` is an old name of the occupancy."""
    rows = [row for part in parts for row in part.rows]
    cycles = sum(part.cycles for part in parts)
    macs, useful = sum(row.macs for row in rows), sum(part.program.macs for part in parts)
    most = p.multipliers * max(1, cycles)
    total: dict[str, Any] = {
        "part": name, "cycles": cycles, "macs": macs, "useful_macs": useful,
        "utilisation": macs / most, "occupancy": macs / most, "mac_utilisation": useful / most,
        "bytes": sum(row.bytes for row in rows),
    }  # fmt: skip
    for engine in ("LOAD", "STORE", "PE1", "PE2"):
        busy = sum(row.cycles for row in rows if row.engine == engine)
        total[f"{engine.lower()}_cycles"] = busy
    return total


def _line(part: str, descriptors: Sequence[Descriptor], command: CommandRecord) -> ProfileLine:
    if command.number < 0:
        return ProfileLine(part, -1, "LOAD", PROGRAM, "LOAD")
    d = descriptors[command.number]
    tensor = d.tensor if isinstance(d, Compute | Transfer | Vector) else ""
    return ProfileLine(part, command.number, d.operation.name, tensor, command.engine.name or "")


def trace_events(
    parts: Sequence[tuple[str, Sequence[Descriptor], Sequence[CommandRecord]]],
) -> dict[str, Any]:
    """Return a trace for Perfetto or chrome://tracing: a row an engine, a cycle a microsecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": engine.value, "name": "thread_name", "args": {"name": name}}
        for engine in (Engine.LOAD, Engine.STORE, Engine.PE1, Engine.PE2)
        if (name := engine.name)
    ]
    begun = 0
    for part, descriptors, commands in parts:
        for command in commands:
            line = _line(part, descriptors, command)
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": command.engine.value,
                    "ts": begun + command.start,
                    "dur": max(1, command.end - command.start),
                    "name": f"{line.operation} {line.tensor}",
                    "cat": part,
                    "args": {
                        "descriptor": command.number,
                        "stall_operand": command.stall_operand,
                        "stall_result": command.stall_result,
                    },
                }
            )
        begun += max((command.end for command in commands), default=0)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def as_rows(rows: Iterable[ProfileLine]) -> list[dict[str, Any]]:
    """Return the lines as plain values."""
    return [asdict(line) for line in rows]
