"""Programs that count more tensors than an accelerator has statistics slots, in several runs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainwright.accelerator.interface import CommandRecord, Counters, Run, Trace
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.program.descriptors import Program
from trainwright.program.segments import ProgramSegment, segments


def run_segments(program: Program, depth: int, run: Callable[[ProgramSegment], Run]) -> Run:
    """Execute a program by ``run``, in as many runs as it needs.

    Statistics have a value for each slot of the program, ``depth`` at least.
    """
    parts = segments(program, depth, STREAM_STEP)
    if len(parts) == 1:
        return run(parts[0])
    return _joined(parts, [run(part) for part in parts], max(depth, len(program.slots)))


def _joined(parts: tuple[ProgramSegment, ...], runs: list[Run], count: int) -> Run:
    """Join the results of several runs."""
    totals = np.zeros((3, count), np.int64)
    for part, result in zip(parts, runs, strict=True):
        totals[:, list(part.slots)] += result.statistics[:, : len(part.slots)]
    return Run(
        *totals,
        counters=sum((result.counters for result in runs), Counters()),
        seconds=sum(result.seconds for result in runs),
        traces=_traces(parts, runs),
        commands=_commands(parts, runs),
    )


def _traces(parts: tuple[ProgramSegment, ...], runs: list[Run]) -> dict[str, Trace] | None:
    traces = [result.traces for result in runs if result.traces is not None]
    if len(traces) < len(runs):
        return None
    return {
        engine: Trace(
            np.concatenate([trace[engine].addresses for trace in traces]),
            np.concatenate([trace[engine].rows for trace in traces]),
            tuple(label for trace in traces for label in trace[engine].labels),
            tuple(
                part.numbers[number]
                for part, trace in zip(parts, traces, strict=True)
                for number in trace[engine].numbers
            ),
        )
        for engine in traces[0]
    }


def _commands(
    parts: tuple[ProgramSegment, ...], runs: list[Run]
) -> tuple[CommandRecord, ...] | None:
    """List the commands of all runs, each run after the one before."""
    commands: list[CommandRecord] = []
    begun = 0
    for part, result in zip(parts, runs, strict=True):
        if result.commands is None:
            return None
        for c in result.commands:
            number = part.numbers[c.number] if c.number >= 0 else -1
            commands.append(replace(c, number=number, start=c.start + begun, end=c.end + begun))
        begun += max((c.end for c in result.commands), default=0)
    return tuple(commands)
