"""What one command asks of the accelerator: cycles of its engine, rows of each bank."""

from dataclasses import dataclass

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Transfer
from trainwright.program.fields import ENGINE_OF, Engine, Operation, Target
from trainwright.program.footprint import footprint, result_digits
from trainwright.program.samples import Samples
from trainwright.program.vector import THREADS, Code, Vector

START = {Engine.PE1: 21, Engine.PE2: 7}
"""Cycles from a command to its first step."""

RECORD = 14
"""Cycles of SAMPLES for each record beyond one for each row of its pixels."""
POSITS = 4
"""Cycles that an accelerator with posits takes longer for a result: 2 to decode, 2 to encode."""


def finish(engine: Engine, p: AcceleratorParameters) -> int:
    """Cycles of an array from a command's last step to its last row, through all of its units."""
    cycles = 15 + p.pe1_rows if engine is Engine.PE1 else 17 + p.lanes
    return cycles + POSITS if p.formats else cycles


@dataclass(frozen=True)
class Stream:
    """Rows that a command reads: how many a cycle at full speed, and what part in each bank."""

    rate: float
    banks: tuple[float, ...]


@dataclass(frozen=True)
class Work:
    """A command: its engine, the cycles or beats it takes alone, and what it reads meanwhile."""

    engine: Engine
    cycles: float
    streams: tuple[Stream, ...]
    macs: int = 0


def _banks(start: int, stop: int, p: AcceleratorParameters) -> tuple[float, ...]:
    """Part of the rows ``start`` to ``stop`` in each bank."""
    parts = []
    for bank in range(p.scratchpad_banks):
        low, high = bank * p.bank_rows, (bank + 1) * p.bank_rows
        parts.append(max(0, min(stop, high) - max(start, low)) / (stop - start))
    return tuple(parts)


def _reads(d: Compute | Transfer, rates: dict[int, float], p: AcceleratorParameters) -> tuple:
    touches = [t for t in footprint(d, p) if not t.write]
    return tuple(
        Stream(rates[index], _banks(touch.start, touch.stop, p))
        for index, touch in enumerate(touches)
        if touch.space == Target.SCRATCHPAD.name and index in rates
    )


def work_of(d: Compute | Transfer | Samples | Code | Vector, p: AcceleratorParameters) -> Work:
    """What ``d`` asks of its engine; a transfer's ``cycles`` are beats."""
    engine = ENGINE_OF[d.operation]
    if isinstance(d, Samples):  # a row a cycle, and some for each record
        rows = (d.rows + RECORD) / p.beat_cycles
        return Work(engine, d.samples * max(d.record_beats, rows), ())
    if isinstance(d, Code):
        return Work(engine, len(d.instructions), ())
    if isinstance(d, Vector):  # each block of rows takes as long as a whole one
        return Work(engine, -(-d.rows // THREADS) * THREADS * d.length * p.engine_parts, ())
    if isinstance(d, Transfer):
        rates = {0: 1 / d.element_bytes} if d.operation is Operation.STORE else {}
        return Work(engine, d.runs * d.beats, _reads(d, rates, p))
    if engine is Engine.PE1:
        rates = {0: p.pe1_rows / p.lanes, 1: 1.0}
        steps = max(d.steps * p.lanes, d.tiles * p.pe1_rows * result_digits(d, p))
        return Work(engine, steps, _reads(d, rates, p), _macs(d, p.pe1_rows, p))
    if d.operation in (Operation.BIAS, Operation.MASK):
        steps = max(d.steps, d.tiles * result_digits(d, p))
        return Work(engine, steps, _reads(d, {0: 1.0, 1: 1.0}, p))
    drained = d.tiles * p.pe2_rows * result_digits(d, p)
    return Work(
        engine, max(d.steps, drained), _reads(d, {0: 1.0, 1: 1.0}, p), _macs(d, p.pe2_rows, p)
    )


def _macs(d: Compute, rows: int, p: AcceleratorParameters) -> int:
    """Multiply-accumulates whose sums are written: rows of a tile that are not are left out."""
    tiles = d.levels[d.tile_level].count
    written = (tiles - 1) * rows + d.last_rows
    depth = p.lanes if ENGINE_OF[d.operation] is Engine.PE1 else 1
    return d.steps // tiles * written * p.lanes * depth
