"""A pass of the vector engine in exact integers, a block of rows and an instruction at a time."""

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, UNITS, mixed, unit_bytes
from trainwright.formats.rounding import clamp, wrapped
from trainwright.golden.compute import Result
from trainwright.golden.state import MachineState
from trainwright.kernels.evaluate import holds, rounded, x_of
from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.table import name_of
from trainwright.program.vector import (
    FACTOR_WIDTH,
    THREADS,
    WIDTH,
    Addend,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    Total,
    Vector,
    When,
    registers_read,
)
from trainwright.support.memo import CachedMethod

Integers = npt.NDArray[np.int64]

SHIFT_MASK = 63
SUM_WIDTH, COUNT_WIDTH = 48, 32
"""Bits of the totals of a pass, which wrap."""


class PassExecution:
    """Execution of a VECTOR descriptor: operands, places, constants and random bits."""

    def __init__(self, d: Vector, state: MachineState, p: AcceleratorParameters) -> None:
        self.d, self.state, self.p = d, state, p
        outer, inner = np.divmod(np.arange(d.rows), d.inner)
        self.places = {
            n: d.streams[n].base + outer * d.streams[n].outer + inner * d.streams[n].inner
            for n in d.users(d.reads | d.writes)
        }
        # All operands are read before any row is written, so that a pass may work in place.
        self.rows = {n: state.read(self.places[n]).astype(np.int64) for n in d.users(d.reads)}
        self.constants, self.shifts = state.file.scalars(d)
        # A key gives bits for several rows of few lanes: rows share a key, each with its own units.
        rows_a_key = UNITS // p.lanes
        places = d.key + np.arange(d.rows)
        self._units = (places % rows_a_key * p.lanes)[:, None] + np.arange(p.lanes)
        self._keys = KEYS_A_ROW * (places // rows_a_key)
        self.clips = 0
        """Values clipped by the instructions that write rows."""

    # Drawn once a pass: instructions that name the same stream get the same bits.
    @CachedMethod
    def random(self, number: int) -> Integers:
        """Draw random bits of every row and lane, of the stream or of the next stream."""
        drawn = mixed(self.state.stream + number * STREAM_STEP, self._keys)
        return np.take_along_axis(unit_bytes(drawn, UNITS), self._units, 1)

    def register(self, number: int, threads: int, place: int) -> Integers:
        """Read a register of the first ``threads`` threads, (threads, lanes)."""
        held = self.state.vector
        # Every thread has registers of its own: a block with more rows than any block before it
        # would read registers that no instruction wrote.
        for thread in range(threads):
            if (number, thread) not in held:
                raise ProgramError(
                    f"{name_of(self.d)}: instruction {place} reads register {number} of thread "
                    f"{thread}, which nothing wrote"
                )
        return np.array([held[number, thread] for thread in range(threads)])

    def execute(self, op: Instruction, place: int, span: slice) -> Integers:
        """Compute q of the rows of a block, (rows, lanes); registers are written."""
        threads = span.stop - span.start
        r = {n: self.register(n, threads, place) for n in registers_read(op)}
        nothing, constant = np.zeros((threads, self.p.lanes), np.int64), self.constants[op.k]
        a = self.rows[op.stream][span] if op.memory is Memory.READ else r.get(op.a, nothing)
        s = np.asarray(constant) if op.use_k else r.get(op.b, nothing)
        if op.kind is Kind.PRODUCT:
            # The multiplier takes the low bits of both operands; wider values wrap, as in hardware.
            a, s = wrapped(a, FACTOR_WIDTH), wrapped(s, FACTOR_WIDTH)
        x = x_of(op.kind, a, s, op.b)
        y = constant if op.addend is Addend.CONSTANT else r.get(op.c, nothing)
        sign = {Addend.NOTHING: 0, Addend.MINUS: -1}.get(op.addend, 1)
        shift: Integers | int = op.shift
        if op.shift_by is ShiftBy.SCALAR:
            shift = self.shifts[op.shift]
        elif op.shift_by is not ShiftBy.FIELD:
            shift = r[op.c if op.shift_by is ShiftBy.C else op.a] & SHIFT_MASK
        q = self._fitted(op, wrapped(x + sign * y, WIDTH), shift, span)
        if op.keep:
            self._keep(op, q, r, threads)
        return q

    def _fitted(self, op: Instruction, value: Integers, shift, span: slice) -> Integers:
        bits = None
        if op.rounding >= Rounding.RANDOM:
            bits = self.random(op.rounding - Rounding.RANDOM)[span]
        q = rounded(value, shift, op.rounding, bits)
        if op.wrap:
            return wrapped(q, op.width)
        fitted = clamp(q, op.width)
        if op.memory is Memory.WRITE:
            self.clips += int((fitted != q).sum())
        return fitted

    def _keep(self, op: Instruction, q: Integers, r: dict[int, Integers], threads: int) -> None:
        if op.when is not When.ALWAYS:
            q = np.where(holds(op.when, r[op.c]), q, r[op.d])
        for thread in range(threads):
            self.state.vector[op.d, thread] = q[thread]


def vector(d: Vector, state: MachineState, p: AcceleratorParameters) -> Result:
    """Execute ``d`` on ``state``. Rows are written block by block, instruction by instruction.

    The total of the result is the sum, its saturations are the count. Raises ``ProgramError`` for
    a register that nothing wrote.
    """
    work = PassExecution(d, state, p)
    code = [(place, state.code[place]) for place in range(d.entry, d.entry + d.length)]
    totals = {Total.SUM: 0, Total.COUNT: 0}
    addresses, written = [np.zeros(0, np.int64)], [np.zeros((0, p.lanes), np.int16)]
    # Blocks of THREADS rows run through all instructions before the next block starts, so that
    # registers are needed for one block alone.
    for start in range(0, d.rows, THREADS):
        span = slice(start, min(start + THREADS, d.rows))
        for place, op in code:
            q = work.execute(op, place, span)
            # Totals add lane 0, even if the instruction's condition does not choose lane 0.
            if op.total is not Total.NONE:
                totals[op.total] += int(q[:, 0].sum())
            if op.memory is Memory.WRITE:
                words = wrapped(q, 16).astype(np.int16)
                addresses.append(work.places[op.stream][span])
                written.append(words)
                state.write(addresses[-1], words)
    return Result(
        totals[Total.SUM] % (1 << SUM_WIDTH),
        totals[Total.COUNT] % (1 << COUNT_WIDTH),
        0,
        np.concatenate(addresses),
        np.concatenate(written),
        work.clips,
    )
