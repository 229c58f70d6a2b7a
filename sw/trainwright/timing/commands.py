"""Cycles that one command takes of its engine, and the rows that it reads in each bank."""

from collections.abc import Callable
from dataclasses import dataclass

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Transfer
from trainwright.program.engines import (
    ENGINE_OF,
    EngineSpec,
    contraction_of,
    elementwise_cycles,
    pass_cycles,
)
from trainwright.program.fields import Engine, Operation, Target
from trainwright.program.footprint import footprint, result_digits
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector


@dataclass(frozen=True)
class Latency:
    """Cycles that an array needs in addition to the steps of a command, from the simulation."""

    start: int
    """Cycles from a command to its first step."""
    finish: Callable[[AcceleratorParameters], int]
    """Cycles from the last step to the last row, through all units, without coded formats."""


LATENCIES = {
    Engine.PE1: Latency(21, lambda p: 15 + p.pe1_rows),
    Engine.PE2: Latency(7, lambda p: 17 + p.lanes),
}

RECORD = 14
"""Cycles of SAMPLES for each record beyond one for each row of its pixels."""
POSITS = 4
"""Cycles by which an accelerator with posits is slower for a result: 2 to decode, 2 to encode."""


def finish(engine: Engine, p: AcceleratorParameters) -> int:
    """Return an array's cycles from a command's last step to its last row, through all units."""
    return LATENCIES[engine].finish(p) + (POSITS if p.formats else 0)


@dataclass(frozen=True)
class RowReads:
    """Rows that a command reads: how many a cycle at full speed, and the part in each bank."""

    rate: float
    banks: tuple[float, ...]


@dataclass(frozen=True)
class CommandWork:
    """Command's engine, the cycles or beats that it takes alone, and the rows that it reads."""

    engine: Engine
    cycles: float
    streams: tuple[RowReads, ...]
    macs: int = 0


def _banks(start: int, stop: int, p: AcceleratorParameters) -> tuple[float, ...]:
    """Return the part of rows ``start`` to ``stop`` that each bank holds."""
    parts = []
    for bank in range(p.scratchpad_banks):
        low, high = bank * p.bank_rows, (bank + 1) * p.bank_rows
        parts.append(max(0, min(stop, high) - max(start, low)) / (stop - start))
    return tuple(parts)


def _reads(d: Compute | Transfer, rates: dict[int, float], p: AcceleratorParameters) -> tuple:
    touches = [t for t in footprint(d, p) if not t.write]
    return tuple(
        RowReads(rates[index], _banks(touch.start, touch.stop, p))
        for index, touch in enumerate(touches)
        if touch.space == Target.SCRATCHPAD.name and index in rates
    )


def work_of(
    d: Compute | Transfer | Samples | Code | Vector, p: AcceleratorParameters
) -> CommandWork:
    """Return the work of a descriptor; a transfer's ``cycles`` are beats."""
    engine = ENGINE_OF[d.operation]
    if isinstance(d, Samples):  # a row a cycle, and some for each record
        rows = (d.rows + RECORD) / p.beat_cycles
        return CommandWork(engine, d.samples * max(d.record_beats, rows), ())
    if isinstance(d, Code):
        return CommandWork(engine, len(d.instructions), ())
    if isinstance(d, Vector):
        return CommandWork(engine, pass_cycles(d.rows, d.length, p), ())
    if isinstance(d, Transfer):
        rates = {0: 1 / d.element_bytes} if d.operation is Operation.STORE else {}
        return CommandWork(engine, d.runs * d.beats, _reads(d, rates, p))
    digits, array = result_digits(d, p), contraction_of(d.operation)
    if array is None:
        reads = _reads(d, {0: 1.0, 1: 1.0}, p)
        return CommandWork(engine, elementwise_cycles(d.tiles, d.steps // d.tiles, digits), reads)
    rates = dict(enumerate(array.rates(p)))
    cycles = array.cycles(d.tiles, d.steps // d.tiles, digits, p)
    return CommandWork(engine, cycles, _reads(d, rates, p), _macs(d, array, p))


def bytes_moved(d: Descriptor, p: AcceleratorParameters) -> int:
    """Return the bytes that an execution of a descriptor moves from or to external memory."""
    if isinstance(d, Transfer):
        return d.runs * d.beats * p.beat_bytes
    return d.samples * d.record_beats * p.beat_bytes if isinstance(d, Samples) else 0


def _macs(d: Compute, array: EngineSpec, p: AcceleratorParameters) -> int:
    """Count multiply-accumulates whose sums are written: rows that a tile lacks are left out."""
    tiles = d.levels[d.tile_level].count
    written = (tiles - 1) * array.rows(p) + d.last_rows
    return d.steps // tiles * written * p.lanes * array.depth(p)
