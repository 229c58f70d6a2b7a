"""The golden model: interprets a program in exact integers, one descriptor after the other."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Counters, Run, Trace
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.golden.compute import compute
from trainwright.golden.flat import engine_of
from trainwright.golden.samples import samples
from trainwright.golden.state import Addresses, Bytes, MachineState, Words
from trainwright.golden.transfer import transfer
from trainwright.golden.vector import COUNT_WIDTH, SUM_WIDTH, vector
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Loop,
    Set,
    Transfer,
    is_skipped,
    matching_end,
)
from trainwright.program.engines import TRACED
from trainwright.program.exponents import ExponentFile, MoveScales
from trainwright.program.fields import REGISTERS
from trainwright.program.sample_order import SampleOrder
from trainwright.program.samples import Samples
from trainwright.program.segments import needed
from trainwright.program.vector import Code, Vector

_Written = tuple[int, str, Addresses, Words]
"""Number and tensor of a descriptor, with the addresses and rows that it wrote."""
_WRAPS = np.array([1 << SUM_WIDTH, 1 << COUNT_WIDTH, 1 << COUNT_WIDTH])


@dataclass
class Record:
    """Statistics of a run, and every row written by each engine."""

    statistics: npt.NDArray[np.int64]
    """(3, slots): sums, saturations and underflows."""
    written: dict[str, list["_Written"]] = field(
        default_factory=lambda: {engine: [] for engine in TRACED}
    )
    clips: Counter[int] = field(default_factory=Counter)
    """Values that passes clipped, by slot."""

    @classmethod
    def counting(cls, program: Sequence[Descriptor], p: AcceleratorParameters) -> "Record":
        """Begin to count in the slots of a program."""
        return cls(np.zeros((3, max(p.statistics_depth, needed(program))), np.int64))


def executions(
    program: Sequence[Descriptor],
    state: MachineState,
    record: Record,
    p: AcceleratorParameters,
    base: int = 0,
) -> Iterator[int]:
    """Execute descriptors one by one, and yield the number of each.

    The first descriptor of ``program``, which may be the body of a loop, has the number ``base``.
    """
    index = 0
    while index < len(program):
        d, number = program[index], base + index
        index += 1
        if is_skipped(d, state.step):
            continue
        if isinstance(d, Halt):
            return
        if isinstance(d, Set):
            for register, value in d.values:
                state.registers[register] = value
            if d.seed is not None:
                # Each step has two streams: forward and backward draw different bits from one seed.
                state.stream = d.seed + 2 * STREAM_STEP * state.step * d.by_step
        # Recurse instead of keeping a stack of counters: `loop_depth` bounds the recursion.
        elif isinstance(d, Loop):
            end = matching_end(program, index - 1)
            closing = program[end]
            assert isinstance(closing, End)
            for _ in range(d.iterations):
                yield from executions(program[index:end], state, record, p, base + index)
                # Registers move after each round, the last one included, as in the sequencer.
                for register, step in closing.steps:
                    state.registers[register] += step
            index = end + 1
        elif isinstance(d, Code):
            state.code |= dict(enumerate(d.instructions, d.first))
        elif isinstance(d, MoveScales):
            # SCALES clears each sum that it reads: the next step counts from 0.
            for entry in d.entries:
                state.file.move(entry, int(record.statistics[0, entry.statistics]))
                record.statistics[0, entry.statistics] = 0
        elif isinstance(d, Compute | Vector):
            # The shift is known only now: exponents may have moved in an earlier step of this run.
            if isinstance(d, Compute) and d.z_exponent:
                by = state.file.shifts(d, p.most_alignment)
                d = replace(d, shift=by.result, x_shift=by.x, g_shift=by.g)
            done = compute(d, state, p) if isinstance(d, Compute) else vector(d, state, p)
            # Sums and counts wrap as the hardware's registers do.
            counted = record.statistics[:, d.slot] + (done.total, done.saturations, done.underflows)
            record.statistics[:, d.slot] = counted % _WRAPS
            record.clips[d.slot] += done.clips
            record.written[engine_of(d)].append((number, d.tensor, done.addresses, done.rows))
        elif isinstance(d, Samples):
            record.written[engine_of(d)].append((number, d.tensor, *samples(d, state, p)))
        elif isinstance(d, Transfer) and (loaded := transfer(d, state, p)):
            record.written[engine_of(d)].append((number, d.tensor, *loaded))
        yield number


def _trace(written: list[_Written], lanes: int) -> Trace:
    none = np.zeros(0, np.int64), np.zeros((0, lanes), np.int16)
    return Trace(
        np.concatenate([none[0], *(addresses for *_, addresses, _ in written)]),
        np.concatenate([none[1], *(rows for *_, rows in written)]),
        tuple((tensor, len(addresses)) for _, tensor, addresses, _ in written),
        tuple(number for number, *_ in written),
    )


def interpret(
    program: Sequence[Descriptor],
    memory: Bytes,
    p: AcceleratorParameters,
    *,
    trace: bool,
    order: SampleOrder,
    file: ExponentFile,
    times: int,
    step: int,
) -> tuple[Run, SampleOrder]:
    """Execute a program that ``trainwright.program.validation`` has checked on ``memory``.

    The program runs ``times`` times, from ``step`` on, with the exponents of ``file``. Registers
    and stream are 0 at each start; memories and statistics continue. Samples are drawn from
    ``order`` on; the result has the order after the last one. Raises ``ProgramError`` where rows
    are read before they are written.
    """
    state, record = MachineState.fresh(memory, p), Record.counting(program, p)
    state.order, state.file = order, file
    for number in range(times):
        state.registers, state.stream, state.step = [0] * REGISTERS, 0, step + number
        deque(executions(program, state, record, p), maxlen=0)
    run = Run(
        *record.statistics,
        clips=np.array([record.clips[slot] for slot in range(record.statistics.shape[1])]),
        counters=Counters(bytes_read=state.bytes_read, bytes_written=state.bytes_written),
        traces={engine: _trace(record.written[engine], p.lanes) for engine in TRACED}
        if trace
        else None,
    )
    return run, state.order
