"""A pass of the vector engine in exact integers, a block of rows and an instruction at a time."""

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, UNITS, mixed, unit_bytes
from trainwright.fixed.rounding import clamp
from trainwright.golden.compute import Result
from trainwright.golden.state import State
from trainwright.kernels.evaluate import bit_length, rounded, wrapped
from trainwright.kernels.slots import table_of
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT
from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
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

Integers = npt.NDArray[np.int64]

SHIFT_MASK = 63
FRACTION_MASK = (1 << FRACTION) - 1
SUM_WIDTH, COUNT_WIDTH = 48, 32
"""Bits of the totals of a pass; both are modulo them."""


class Pass:
    """A VECTOR descriptor and what its instructions need."""

    def __init__(self, d: Vector, state: State, p: AcceleratorParameters) -> None:
        self.d, self.state, self.p = d, state, p
        outer, inner = np.divmod(np.arange(d.rows), d.inner)
        self.places = {
            n: d.streams[n].base + outer * d.streams[n].outer + inner * d.streams[n].inner
            for n in d.users(d.reads | d.writes)
        }
        # All operands are read before any row is written, so that a pass may work in place.
        self.rows = {n: state.read(self.places[n]).astype(np.int64) for n in d.users(d.reads)}
        self.constants, self.shifts = state.file.scalars(d)
        rows_a_key = UNITS // p.lanes
        places = d.key + np.arange(d.rows)
        self._units = (places % rows_a_key * p.lanes)[:, None] + np.arange(p.lanes)
        self._keys = KEYS_A_ROW * (places // rows_a_key)
        self._random: dict[int, Integers] = {}

    def random(self, number: int) -> Integers:
        """Draw random bits of every row and lane, of the stream or of the next stream."""
        if number not in self._random:
            found = mixed(self.state.stream + number * STREAM_STEP, self._keys)
            self._random[number] = np.take_along_axis(unit_bytes(found, UNITS), self._units, 1)
        return self._random[number]

    def register(self, number: int, threads: int, place: int) -> Integers:
        """Read a register of the first ``threads`` threads, (threads, lanes)."""
        held = self.state.vector
        for thread in range(threads):
            if (number, thread) not in held:
                name = self.d.tensor or "VECTOR"
                raise ProgramError(
                    f"{name}: instruction {place} reads register {number} of thread {thread}, "
                    "which nothing wrote"
                )
        return np.array([held[number, thread] for thread in range(threads)])

    def execute(self, one: Instruction, place: int, span: slice) -> Integers:
        """Compute q of the rows of a block, (rows, lanes); registers are written."""
        threads = span.stop - span.start
        r = {n: self.register(n, threads, place) for n in registers_read(one)}
        a = self.rows[one.stream][span] if one.memory is Memory.READ else r.get(one.a)
        constant = self.constants[one.k]
        s = np.int64(constant) if one.use_k else r.get(one.b)
        x, y = self._terms(one, (threads, self.p.lanes), a, s, r.get(one.c), constant)
        shift: Integers | int = one.shift
        if one.shift_by is ShiftBy.SCALAR:
            shift = self.shifts[one.shift]
        elif one.shift_by is not ShiftBy.FIELD:
            shift = r[one.c if one.shift_by is ShiftBy.C else one.a] & SHIFT_MASK
        q = self._fitted(one, wrapped(x + y, WIDTH), shift, span)
        if one.keep:
            self._keep(one, q, r, threads)
        return q

    @staticmethod
    def _terms(one, shape, a, s, c, constant) -> tuple[Integers, Integers]:
        y = {
            Addend.NOTHING: lambda: np.zeros(shape, np.int64),
            Addend.PLUS: lambda: c,
            Addend.MINUS: lambda: -c,
            Addend.CONSTANT: lambda: np.full(shape, constant),
        }[one.addend]()
        match one.kind:
            case Kind.PASS:
                return a, y
            case Kind.PRODUCT:
                return wrapped(a, FACTOR_WIDTH) * wrapped(s, FACTOR_WIDTH), y
            case Kind.TABLE:
                base, product = table_of(one.b).terms(a & FRACTION_MASK)
                return product, base << SLOPE_SHIFT
            case Kind.SUM:
                return np.broadcast_to(wrapped(a.sum(1, keepdims=True), WIDTH), shape), y
            case Kind.GREATEST:
                return np.broadcast_to(a.max(1, keepdims=True), shape), y
            case Kind.MAXIMUM:
                return np.maximum(a, s), y
            case Kind.MINIMUM:
                return np.minimum(a, s), y
            case Kind.LENGTH:
                return bit_length(a), y
            case Kind.AND:
                return a & s, y
            case _:
                return np.broadcast_to(np.arange(shape[1]), shape), y

    def _fitted(self, one: Instruction, value: Integers, shift, span: slice) -> Integers:
        bits = None
        if one.rounding >= Rounding.RANDOM:
            bits = self.random(one.rounding - Rounding.RANDOM)[span]
        q = rounded(value, shift, one.rounding, bits)
        return (wrapped if one.wrap else clamp)(q, one.width)

    def _keep(self, one: Instruction, q: Integers, r: dict[int, Integers], threads: int) -> None:
        if one.when is not When.ALWAYS:
            c = r[one.c]
            chosen = {When.POSITIVE: c > 0, When.NEGATIVE: c < 0, When.ZERO: c == 0}[one.when]
            q = np.where(chosen, q, r[one.d])
        for thread in range(threads):
            self.state.vector[one.d, thread] = q[thread]


def vector(d: Vector, state: State, p: AcceleratorParameters) -> Result:
    """Execute ``d`` on ``state``. Rows are written block by block, instruction by instruction.

    The total of the result is the sum, its saturations are the count. Raises ``ProgramError`` for
    a register that nothing wrote.
    """
    work = Pass(d, state, p)
    code = [(place, state.code[place]) for place in range(d.entry, d.entry + d.length)]
    totals = {Total.SUM: 0, Total.COUNT: 0}
    addresses, written = [np.zeros(0, np.int64)], [np.zeros((0, p.lanes), np.int16)]
    for start in range(0, d.rows, THREADS):
        span = slice(start, min(start + THREADS, d.rows))
        for place, one in code:
            q = work.execute(one, place, span)
            # Lane 0 counts whatever lanes the condition of the instruction chooses.
            if one.total is not Total.NONE:
                totals[one.total] += int(q[:, 0].sum())
            if one.memory is Memory.WRITE:
                words = wrapped(q, 16).astype(np.int16)
                addresses.append(work.places[one.stream][span])
                written.append(words)
                state.write(addresses[-1], words)
    return Result(
        totals[Total.SUM] % (1 << SUM_WIDTH),
        totals[Total.COUNT] % (1 << COUNT_WIDTH),
        0,
        np.concatenate(addresses),
        np.concatenate(written),
    )
