"""Evaluate a kernel on numpy rows: the reference that its instructions are tested against."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp, half_even, half_up, stochastic_shift, wrapped
from trainwright.kernels.slots import table_of
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT
from trainwright.kernels.trace import (
    REDUCTIONS,
    SHIFT_WIDTH,
    WORD_WIDTH,
    Body,
    Constant,
    Effect,
    GivenShift,
    KernelError,
    Op,
    Value,
    fits,
)
from trainwright.program.vector import FACTOR_WIDTH, THREADS, WIDTH, Kind, Rounding, Total, When

Words = npt.NDArray[np.int64]


def bit_length(value: Words) -> Words:
    """Count the bits of values of ``WIDTH`` bits, as unsigned numbers."""
    unsigned = value & ((1 << WIDTH) - 1)
    return np.frexp(unsigned.astype(np.float64))[1].astype(np.int64)


def rounded(value: Words, shift: int | Words, rounding: Rounding, random: Words | None) -> Words:
    """Divide by 2^shift as the engine rounds; ``random`` has a byte for every element."""
    match rounding:
        case Rounding.FLOOR:
            return value >> shift
        case Rounding.EVEN:
            return half_even(value, shift)
        case Rounding.UP:
            return half_up(value, shift)
        case _:
            assert random is not None
            return stochastic_shift(value, shift, random)


def x_of(kind: Kind, a: Words, s: Words | int, table: int) -> Words:
    """Compute x of an instruction (``program.vector.Kind``), before addition and shift.

    No value wraps to the engine's words, and no factor of a product is cut. A table gives the sum
    of its two terms, base and product.
    """
    match kind:
        case Kind.PASS:
            return a
        case Kind.PRODUCT:
            return a * s
        case Kind.TABLE:
            base, product = table_of(table).terms(a & ((1 << FRACTION) - 1))
            return (base << SLOPE_SHIFT) + product
        case Kind.SUM:
            return np.broadcast_to(a.sum(1, keepdims=True), a.shape)
        case Kind.GREATEST:
            return np.broadcast_to(a.max(1, keepdims=True), a.shape)
        case Kind.MAXIMUM:
            return np.maximum(a, s)
        case Kind.MINIMUM:
            return np.minimum(a, s)
        case Kind.LENGTH:
            return bit_length(a)
        case Kind.AND:
            return a & s
        case _:
            return np.broadcast_to(np.arange(a.shape[1]), a.shape)


def _factor(operand: Value | Constant | None, value: Words | int) -> Words | int:
    """Return the factor of a product: the lowest bits of an operand that may have more."""
    if operand is None or fits((operand.low, operand.high), FACTOR_WIDTH):
        return value
    return wrapped(np.asarray(value), FACTOR_WIDTH)


def holds(when: When, c: Words) -> npt.NDArray[np.bool_]:
    """Return the lanes in which a condition of an instruction holds."""
    return {When.POSITIVE: c > 0, When.NEGATIVE: c < 0, When.ZERO: c == 0}[when]


@dataclass
class PassResult:
    """Results of a pass: rows by stream, registers by number, and both totals."""

    rows: dict[str, Words] = field(default_factory=dict)
    registers: dict[int, Words] = field(default_factory=dict)
    """(THREADS, lanes), after the last row of each thread."""
    total: int = 0
    """Sum of lane 0 of the values that the kernel totals."""
    count: int = 0
    """Sum of lane 0 of the values that the kernel counts."""


def evaluate(
    body: Body,
    rows: Mapping[str, Words] | None = None,
    *,
    count: int = 0,
    registers: Mapping[int, npt.ArrayLike] | None = None,
    random: Sequence[Words] = (),
    constants: Sequence[int] = (),
    shifts: Sequence[int] = (),
    checks: bool = False,
) -> PassResult:
    """Evaluate a traced kernel on ``rows`` (n, lanes) of every stream that it reads.

    ``count`` is n where the kernel reads no stream. ``registers`` are what earlier passes left, as
    (THREADS, lanes) or what broadcasts to it, ``random`` the bytes of both random streams (n,
    lanes), ``constants`` and ``shifts`` the numbers of the exponent file. Row n belongs to thread n
    mod THREADS.

    Raises ``ValueError`` for rows with fractions or of other shapes, and for streams, registers or
    constants that are missing; ``KernelError`` for a word, register, constant or value beyond the
    range that the kernel states for it. With ``checks`` every other value is compared with the
    range that tracing derived for it, too.
    """
    streams = whole_words(rows or {})
    require_words(body, streams)
    every = next(iter(streams.values())).shape if streams else (count or THREADS, body.lanes)
    size, threads = every[0], (THREADS, *every[1:])
    held = {n: np.broadcast_to(words, threads) for n, words in (registers or {}).items()}
    _require_given(body, held, constants, shifts)
    work = _Evaluator(body, constants, shifts, checks)
    written: dict[str, list[Words]] = {}
    result = PassResult(registers=held)
    # Registers carry values from a thread's row to its next one, so a block has one row of each
    # thread. Where no register changes all rows are independent.
    block = THREADS if work.keeps_registers else size
    for start in range(0, size, block):
        span = slice(start, min(start + block, size))
        part = {name: words[span] for name, words in streams.items()}
        bits = [words[span] for words in random]
        work.run(part, bits, span.stop - start, result, written)
    result.rows = {name: np.concatenate(parts) for name, parts in written.items()}
    return result


def whole_words(rows: Mapping[str, Any]) -> dict[str, Words]:
    """Return rows of every stream as int64. Raises ``ValueError`` for types with fractions."""
    given = {name: np.asarray(words) for name, words in rows.items()}
    for name, words in given.items():
        if words.dtype.kind not in "biu":
            raise ValueError(
                f"rows of {name} are {words.dtype}: a kernel takes whole numbers, such as "
                "np.rint(x).astype(int)"
            )
        if words.dtype == np.uint64 and words.size and words.max() >= 1 << 63:
            raise ValueError(f"words of {name} have 16 bits, not {words.max()}")
    return {name: words.astype(np.int64, copy=False) for name, words in given.items()}


def require_words(body: Body, streams: Mapping[str, Words]) -> None:
    """Check that all streams of a body are there, with words in the ranges that it promises.

    Raises ``ValueError`` for missing streams and other shapes, ``KernelError`` for other words.
    """
    read = {v.stream: v for v in body.steps if isinstance(v, Value) and v.kind is Op.READ}
    if missing := [name for name in read if name not in streams]:
        raise ValueError(f"the kernel reads {', '.join(missing)}, of which no rows are given")
    shapes = {name: streams[name].shape for name in read}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(f"every stream has rows (n, lanes) of the same n, not {shapes}")
    for name, v in read.items():
        _require_range(v, streams[name], "values" if v.stated else f"words of {name!r}")


def _require_given(
    body: Body, registers: Mapping[int, Words], constants: Sequence[int], shifts: Sequence[int]
) -> None:
    """Check the registers of earlier passes, and the numbers of the exponent file, for a body."""
    for v in body.steps:
        if not isinstance(v, Value):
            continue
        if v.register and v.register.number not in registers:
            raise ValueError(f"{v.line}: registers= lacks register {v.register.number}")
        if v.register:
            number = v.register.number
            _require_range(v, registers[number], f"register {number} with values")
        if isinstance(v.shift, GivenShift) and v.shift.number >= len(shifts):
            raise ValueError(f"{v.line}: shifts= lacks k.given_shift({v.shift.number})")
    for number, line in body.asked.items():
        if number >= len(constants):
            raise ValueError(f"{line}: constants= lacks k.given({number}, ..)")


def _require_range(step: Value, q: Words, what: str = "values") -> None:
    if q.size and not step.low <= q.min() <= q.max() <= step.high:
        raise KernelError(
            f"{step.line}: {what} from {q.min()} to {q.max()}, where the kernel states {step.low} "
            f"to {step.high}: cut them by at_least and at_most, or state their range"
        )


class _Evaluator:
    """Interpreter of a body's steps, on blocks of rows."""

    def __init__(
        self, body: Body, constants: Sequence[int], shifts: Sequence[int], checks: bool
    ) -> None:
        self.body, self.constants, self.shifts, self.checks = body, constants, shifts, checks
        self.keeps_registers = any(isinstance(s, Effect) and s.register for s in body.steps)

    def run(
        self, rows: Mapping[str, Words], random: Sequence[Words], count: int,
        result: PassResult, written: dict[str, list[Words]],
    ) -> None:  # fmt: skip
        """Execute every step on ``count`` rows; effects go to ``result`` and ``written``."""
        known: dict[Value, Words] = {}
        kept: dict[int, Words] = {}
        for step in self.body.steps:
            if isinstance(step, Value):
                q = self._value(step, known, rows, random, count, result.registers)
                if step.stated or self.checks:
                    _require_range(step, q)
                known[step] = q
                continue
            q = known[step.value]
            if step.stream:
                written.setdefault(step.stream, []).append(wrapped(q, WORD_WIDTH))
            if step.register:
                # Registers change at the end of the block: a step that reads a register sees what
                # the row before left in it.
                kept[step.register.number] = q
            result.total += int(q[:, 0].sum()) * (step.total is Total.SUM)
            result.count += int(q[:, 0].sum()) * (step.total is Total.COUNT)
        for number, q in kept.items():
            before = result.registers.get(number, np.zeros((THREADS, self.body.lanes), np.int64))
            # A last block of fewer rows leaves the registers of the other threads as they were.
            result.registers[number] = np.concatenate([q, before[count:]])

    def _value(self, v: Value, known, rows, random, count: int, registers) -> Words:
        shape = count, self.body.lanes
        if v.kind is Op.READ:
            return rows[v.stream]
        if v.kind is Op.HELD:
            assert v.register
            return registers[v.register.number][np.arange(count) % THREADS]
        if v.kind is Op.WHERE:
            assert v.a is not None and v.old is not None and v.condition is not None
            chosen = holds(v.condition.when, known[v.condition.value])
            return np.where(chosen, known[v.a], known[v.old])
        if v.kind is Op.STORED:
            assert v.a is not None
            return known[v.a]
        a = np.zeros(shape, np.int64) if v.a is None else known[v.a]
        s = self._number(v.s, known)
        if v.kind is Kind.PRODUCT:
            a, s = np.asarray(_factor(v.a, a)), _factor(v.s, s)
        # Tracing has proved that no sum exceeds the engine's words, so that none has to be wrapped.
        q = x_of(Kind[v.kind.name], a, s, v.table)
        if v.kind in REDUCTIONS:
            return q
        if v.c is not None:
            q = q + known[v.c] if v.sign > 0 else q - known[v.c]
        elif v.k is not None:
            q = q + self._number(v.k, known)
        shift = v.shift
        if isinstance(shift, GivenShift):
            shift = self.shifts[shift.number]
        elif isinstance(shift, Value):
            shift = known[shift] & ((1 << SHIFT_WIDTH) - 1)
        bits = random[v.rounding - Rounding.RANDOM] if v.rounding >= Rounding.RANDOM else None
        if not (isinstance(shift, int) and shift == 0):
            q = rounded(q, shift, v.rounding, bits)
        if v.wraps:
            return wrapped(q, v.width)
        return q if v.width >= self.body.width else clamp(q, v.width)

    def _number(self, operand: Value | Constant | None, known) -> Words | int:
        if isinstance(operand, Value):
            return known[operand]
        if operand is None:
            return 0
        if operand.given is None:
            return operand.value
        number = self.constants[operand.given]
        if not operand.low <= number <= operand.high:
            raise KernelError(
                f"{self.body.asked[operand.given]}: constant {operand.given} is {number}, where "
                f"the kernel states {operand.low} to {operand.high}"
            )
        return number
