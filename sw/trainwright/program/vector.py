"""The vector engine's descriptors: instructions (CODE), and a pass of them over rows (VECTOR).

A pass executes the same instructions for every row of its nest, ``THREADS`` rows at a time: row n
is one of *thread* n mod THREADS. A lane of a thread has ``REGISTERS`` registers of ``WIDTH`` bits.
An instruction computes, in every lane,

    q = fit(round((x + y) / 2^shift))

with x and y of ``Kind`` and ``Addend``, and gives q to a register, a stream of rows, a total.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from trainwright.program.addresses import steps_of, strides_of
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import SCALARS, Scalar, ScalarKind
from trainwright.program.fields import (
    COUNT_WIDTH,
    EIGHTH,
    INSTRUCTION_WIDTH,
    LOCAL_WIDTH,
    SLOT_WIDTH,
    Operation,
)
from trainwright.program.table import (
    Described,
    Header,
    bits,
    derived,
    only,
    repeated,
    unencoded,
)

WIDTH = 36
"""Bits of a register, and of every x + y: two's complement, modulo 2^WIDTH."""
FACTOR_WIDTH = 18
"""Bits of both factors of a product: the lowest of their registers, signed."""
REGISTERS = 8
THREADS = 8
"""Rows at work at a time, and cycles of an instruction."""
STREAMS = 8
CONSTANTS = 8
CODE_DEPTH = 64
"""Instructions that the engine holds."""
CODE_WORDS = 20
"""Instructions of a CODE descriptor, at most."""


class Kind(IntEnum):
    """Kind of x.

    a is register ``a``, or the row's word where the instruction reads a row; s is register ``b``,
    or the constant where ``use_k``.
    """

    PASS = 0
    """a"""
    PRODUCT = 1
    """a * s, the lowest FACTOR_WIDTH bits of each"""
    TABLE = 2
    """slope * rest of table ``b`` at the lowest 16 bits of a; y is base * 2^16"""
    SUM = 3
    """The sum of a over the lanes, in every lane"""
    GREATEST = 4
    """The greatest a of all lanes, in every lane"""
    MAXIMUM = 5
    """The greater of a and s"""
    MINIMUM = 6
    """The less of a and s"""
    LENGTH = 7
    """Bits of a as an unsigned number: the position of its highest one, from 1"""
    AND = 8
    """a & s"""
    LANE = 9
    """The lane's number"""


class Addend(IntEnum):
    """Addend y: register ``c``, or the constant."""

    NOTHING = 0
    PLUS = 1
    MINUS = 2
    CONSTANT = 3


class Rounding(IntEnum):
    """Rounding of (x + y) / 2^shift."""

    FLOOR = 0
    EVEN = 1
    """To nearest, halves to the even one."""
    UP = 2
    """To nearest, halves upwards."""
    RANDOM = 3
    """By the random bits of the row and its lane."""
    RANDOM_NEXT = 4
    """By the random bits of the next stream."""


class When(IntEnum):
    """In which lanes register ``d`` is written."""

    ALWAYS = 0
    POSITIVE = 1
    """Register ``c`` is greater than 0."""
    NEGATIVE = 2
    """Register ``c`` is less than 0."""
    ZERO = 3
    """Register ``c`` is 0."""


class Memory(IntEnum):
    """Whether an instruction reads or writes a row of its stream."""

    NONE = 0
    READ = 1
    WRITE = 2
    """The lowest 16 bits of q."""


class ShiftBy(IntEnum):
    """Source of the shift, 6 bits."""

    FIELD = 0
    C = 1
    """The lowest bits of register ``c``."""
    A = 2
    """The lowest bits of register ``a``."""
    SCALAR = 3
    """Shift ``shift`` of the pass, by the exponent file."""


class Total(IntEnum):
    """Total that lane 0's q is added to."""

    NONE = 0
    SUM = 1
    """The sum of the statistics slot."""
    COUNT = 2
    """The count of saturations of the statistics slot."""


class Instruction(Described):
    """Instruction of a pass; see the module."""

    kind: Kind = bits(4, "what x is", default=Kind.PASS)
    memory: Memory = bits(2, "whether the stream's row is read or written", default=Memory.NONE)
    stream: int = bits(3, "number of the stream", default=0)
    use_k: bool = bits(1, "s is the constant, not register b", default=False)
    a: int = bits(3, "register a", default=0)
    b: int = bits(3, "register b, or the table", default=0)
    c: int = bits(3, "register c", default=0)
    k: int = bits(3, "number of the constant", default=0)
    addend: Addend = bits(2, "what y is", default=Addend.NOTHING)
    shift: int = bits(6, "right shift", default=0)
    shift_by: ShiftBy = bits(2, "where the shift comes from", default=ShiftBy.FIELD)
    rounding: Rounding = bits(3, "how the shifted sum is rounded", default=Rounding.FLOOR)
    wrap: bool = bits(1, "q keeps its lowest bits; else it is saturated", default=False)
    width: int = bits(6, "bits of q", least=1, most=WIDTH, default=WIDTH)
    when: When = bits(2, "in which lanes register d is written", default=When.ALWAYS)
    keep: bool = bits(1, "q goes to register d", default=False)
    d: int = bits(3, "register d", default=0)
    total: Total = bits(2, "what lane 0's q is added to", default=Total.NONE)


def registers_read(instruction: Instruction) -> set[int]:
    """Return the registers that an instruction reads."""
    registers: set[int] = set()
    if instruction.kind is not Kind.LANE and instruction.memory is not Memory.READ:
        registers.add(instruction.a)
    if instruction.shift_by is ShiftBy.A:
        registers.add(instruction.a)
    if not instruction.use_k and instruction.kind in (
        Kind.PRODUCT,
        Kind.MAXIMUM,
        Kind.MINIMUM,
        Kind.AND,
    ):
        registers.add(instruction.b)
    if (
        instruction.addend in (Addend.PLUS, Addend.MINUS)
        or instruction.shift_by is ShiftBy.C
        or instruction.when is not When.ALWAYS
    ):
        registers.add(instruction.c)
    if instruction.keep and instruction.when is not When.ALWAYS:
        registers.add(instruction.d)
    return registers


class Stream(Described, kw_only=False):
    """Rows of the scratchpad: ``base`` + i * ``outer`` + j * ``inner`` for row (i, j) of a pass."""

    base: int = bits(LOCAL_WIDTH, "first row of a stream", default=0)
    outer: int = bits(LOCAL_WIDTH, "step of a stream when the outer level advances",
                      name="outer_delta", signed=True, default=0)  # fmt: skip
    inner: int = bits(LOCAL_WIDTH, "step of a stream when the inner level advances",
                      name="inner_delta", signed=True, default=0)  # fmt: skip


class Code(Header):
    """Instructions ``first`` and following of the engine become these."""

    operation: Operation = only(Operation.CODE)
    first: int = bits(6, "place of the first instruction",
                      most=lambda d, _: CODE_DEPTH - len(d.instructions))  # fmt: skip

    @derived(5, "instructions, 1 to 20", name="instructions", least=1, most=CODE_WORDS)
    def instruction_count(self) -> int:
        return len(self.instructions)

    instructions: tuple[Instruction, ...] = repeated(
        CODE_WORDS, "word", "an instruction", width=INSTRUCTION_WIDTH, least=1,
        counted="instructions",
    )  # fmt: skip


def _all_streams(d: "Vector", _: object) -> int:
    """Return the mask of all streams."""
    return (1 << len(d.streams)) - 1


class Vector(Header):
    """Pass of instructions ``entry`` to ``entry`` + ``length`` - 1 over ``outer`` x ``inner`` rows.

    All operands are read before any result is written. Random bits are those of row ``key`` + n for
    the n-th row: rows of 16 words, so that a machine of 8 lanes counts two of its own for each.
    """

    operation: Operation = only(Operation.VECTOR)
    entry: int = bits(6, "first instruction of the pass",
                      most=lambda d, _: CODE_DEPTH - d.length)  # fmt: skip
    length: int = bits(6, "instructions of the pass", least=1)
    outer: int = unencoded(width=COUNT_WIDTH, least=1)

    @derived(24, "rows of the pass", least=1)
    def rows(self) -> int:
        return self.outer * self.inner

    inner: int = bits(COUNT_WIDTH, "iterations of the inner level", least=1)
    key: int = bits(LOCAL_WIDTH, "row of the first random bits", default=0)
    slot: int = bits(SLOT_WIDTH, "statistics slot", default=0,
                     most=lambda _, m: m.slots - 1)  # fmt: skip
    reads: int = bits(8, "streams that are read", most=_all_streams)
    writes: int = bits(8, "streams that are written", most=_all_streams)
    constants: tuple[int, ...] = repeated(CONSTANTS, "constant", "a constant, signed",
                                          width=FACTOR_WIDTH, signed=True, default=())  # fmt: skip
    streams: tuple[Stream, ...] = repeated(STREAMS, "stream", joint=True)
    scalars: tuple[Scalar, ...] = repeated(SCALARS, "scalar", default=())
    """Constants and shifts by the exponent file."""
    eighth: int = bits(
        4, "m + r, m = 1, 2, 4 or 8: only in steps whose number modulo m is r; 0: in all steps",
        most=2 * EIGHTH - 1, resident=True, default=0,
    )  # fmt: skip
    tensor: str = unencoded(default="")
    """Name of the pass, for listings and tests."""

    @property
    def steps(self) -> int:
        """Instructions, a row at a time, in one execution."""
        return self.rows * self.length

    def users(self, mask: int) -> list[int]:
        """List the numbers of the streams in a mask."""
        return [n for n in range(STREAMS) if mask >> n & 1]

    def encoded_jointly(self) -> dict[str, int]:
        """Turn strides of streams into the steps of an address register."""
        fields: dict[str, int] = {}
        for n, stream in enumerate((*self.streams, *(Stream(),) * (STREAMS - len(self.streams)))):
            outer, inner = steps_of(
                (self.outer, self.inner), (stream.outer, stream.inner), LOCAL_WIDTH
            )
            fields |= {f"base{n}": stream.base, f"outer_delta{n}": outer, f"inner_delta{n}": inner}
        return fields

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Leave out what does nothing. Raises ``ProgramError`` where rows do not divide."""
        outer, rest = divmod(f["rows"], f["inner"])
        if rest:
            raise ProgramError(f"VECTOR: {f['rows']} rows are no multiple of inner = {f['inner']}")
        streams: list[Stream] = []
        for n in range((f["reads"] | f["writes"]).bit_length()):
            deltas = f[f"outer_delta{n}"], f[f"inner_delta{n}"]
            strides = strides_of((outer, f["inner"]), deltas, LOCAL_WIDTH)
            streams.append(Stream(f[f"base{n}"], *strides))
        constants = list(values["constants"])
        while constants and not constants[-1]:
            constants.pop()
        return {
            "outer": outer,
            "streams": tuple(streams),
            "constants": tuple(constants),
            "scalars": tuple(s for s in values["scalars"] if s.kind is not ScalarKind.NONE),
        }
