"""The vector engine's descriptors: instructions (CODE), and a pass of them over rows (VECTOR).

A pass executes the same instructions for every row of its nest, ``THREADS`` rows at a time: row n
is one of *thread* n mod THREADS. A lane of a thread has ``REGISTERS`` registers of ``WIDTH`` bits.
An instruction computes, in every lane,

    q = fit(round((x + y) / 2^shift))

with x and y of ``Kind`` and ``Addend``, and gives q to a register, a stream of rows, a total.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import get_type_hints

from trainwright.program.exponents import Scalar
from trainwright.program.fields import (
    INSTRUCTION_WIDTH,
    Engine,
    Field,
    Operation,
    layout_width,
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
    """What x is; a is register ``a``, or the row's word where the instruction reads one; s is
    register ``b``, or the constant where ``use_k``.
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
    """What y is: register ``c``, or the constant."""

    NOTHING = 0
    PLUS = 1
    MINUS = 2
    CONSTANT = 3


class Rounding(IntEnum):
    """Of (x + y) / 2^shift."""

    FLOOR = 0
    EVEN = 1
    """To nearest, halves to the even one."""
    UP = 2
    """To nearest, halves upwards."""
    RANDOM = 3
    """By the random bits of the row and its lane."""
    RANDOM_NEXT = 4
    """By those of the stream after that."""


class When(IntEnum):
    """In which lanes register ``d`` is written."""

    ALWAYS = 0
    POSITIVE = 1
    """Where register ``c`` is greater than 0."""
    NEGATIVE = 2
    """Where it is less than 0."""
    ZERO = 3
    """Where it is 0."""


class Memory(IntEnum):
    """Whether an instruction reads or writes a row of its stream."""

    NONE = 0
    READ = 1
    WRITE = 2
    """The lowest 16 bits of q."""


class ShiftBy(IntEnum):
    """Where the shift comes from: 6 bits."""

    FIELD = 0
    C = 1
    """The lowest bits of register ``c``."""
    A = 2
    """Those of register ``a``."""
    SCALAR = 3
    """Shift ``shift`` of the pass, by the exponent file."""


class Total(IntEnum):
    """What lane 0's q is added to."""

    NONE = 0
    SUM = 1
    """The sum of the statistics slot."""
    COUNT = 2
    """Its count of saturations."""


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction; see the module."""

    kind: Kind = Kind.PASS
    memory: Memory = Memory.NONE
    stream: int = 0
    use_k: bool = False
    a: int = 0
    b: int = 0
    c: int = 0
    k: int = 0
    """Number of a constant of the VECTOR descriptor."""
    addend: Addend = Addend.NOTHING
    shift: int = 0
    shift_by: ShiftBy = ShiftBy.FIELD
    rounding: Rounding = Rounding.FLOOR
    wrap: bool = False
    """q keeps the lowest ``width`` bits, as a signed number; else it is saturated to them."""
    width: int = WIDTH
    when: When = When.ALWAYS
    keep: bool = False
    """Whether q goes to register ``d``."""
    d: int = 0
    total: Total = Total.NONE


INSTRUCTION: tuple[Field, ...] = (
    Field("kind", 4, "what x is"),
    Field("memory", 2, "whether the stream's row is read or written"),
    Field("stream", 3, "number of the stream"),
    Field("use_k", 1, "s is the constant, not register b"),
    Field("a", 3, "register a"),
    Field("b", 3, "register b, or the table"),
    Field("c", 3, "register c"),
    Field("k", 3, "number of the constant"),
    Field("addend", 2, "what y is"),
    Field("shift", 6, "right shift"),
    Field("shift_by", 2, "where the shift comes from"),
    Field("rounding", 3, "how the shifted sum is rounded"),
    Field("wrap", 1, "q keeps its lowest bits; else it is saturated"),
    Field("width", 6, "bits of q"),
    Field("when", 2, "in which lanes register d is written"),
    Field("keep", 1, "q goes to register d"),
    Field("d", 3, "register d"),
    Field("total", 2, "what lane 0's q is added to"),
)
"""Bit layout of an instruction, from bit 0 upwards."""

assert layout_width(INSTRUCTION) == INSTRUCTION_WIDTH

KINDS: dict[str, type] = {
    name: kind for name, kind in get_type_hints(Instruction).items() if kind is not int
}
"""Types of the fields that are choices."""
ENUMS: dict[str, type[IntEnum]] = {
    name: kind for name, kind in KINDS.items() if issubclass(kind, IntEnum)
}


def encode_instruction(one: Instruction) -> int:
    """The bits of an instruction, each field within its own."""
    word, position = 0, 0
    for field in INSTRUCTION:
        word |= int(getattr(one, field.name)) << position
        position += field.width
    return word


def decode_instruction(word: int) -> Instruction:
    """Inverse of ``encode_instruction``. Raises ``ValueError`` for a field that means nothing."""
    fields: dict[str, int | bool] = {}
    for field in INSTRUCTION:
        value = word & ((1 << field.width) - 1)
        word >>= field.width
        fields[field.name] = KINDS.get(field.name, int)(value)
    return Instruction(**fields)  # pyright: ignore[reportArgumentType]


def registers_read(one: Instruction) -> set[int]:
    """The registers that an instruction reads."""
    found: set[int] = set()
    if one.kind is not Kind.LANE and one.memory is not Memory.READ:
        found.add(one.a)
    if one.shift_by is ShiftBy.A:
        found.add(one.a)
    if not one.use_k and one.kind in (Kind.PRODUCT, Kind.MAXIMUM, Kind.MINIMUM, Kind.AND):
        found.add(one.b)
    if (
        one.addend in (Addend.PLUS, Addend.MINUS)
        or one.shift_by is ShiftBy.C
        or one.when is not When.ALWAYS
    ):
        found.add(one.c)
    if one.keep and one.when is not When.ALWAYS:
        found.add(one.d)
    return found


@dataclass(frozen=True)
class Stream:
    """Rows of the scratchpad: ``base`` + i * ``outer`` + j * ``inner`` for row (i, j) of a pass."""

    base: int = 0
    outer: int = 0
    inner: int = 0


@dataclass(frozen=True, kw_only=True)
class Code:
    """Instructions ``first`` and following of the engine become these."""

    first: int
    instructions: tuple[Instruction, ...]
    last: bool = False
    """Only in the last step of a run."""
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE

    @property
    def operation(self) -> Operation:
        return Operation.CODE


@dataclass(frozen=True, kw_only=True)
class Vector:
    """A pass of instructions ``entry`` to ``entry`` + ``length`` - 1 over ``outer`` x ``inner``
    rows.

    All operands are read before any result is written. Random bits are those of row ``key`` + n for
    the n-th row: rows of 16 words, so that a machine of 8 lanes counts two of its own for each.
    """

    entry: int
    length: int
    outer: int
    inner: int
    streams: tuple[Stream, ...]
    reads: int
    """Mask of the streams that are read."""
    writes: int
    """Mask of those that are written."""
    constants: tuple[int, ...] = ()
    """Of FACTOR_WIDTH bits, signed."""
    scalars: tuple[Scalar, ...] = ()
    """Constants and shifts by the exponent file."""
    key: int = 0
    slot: int = 0
    eighth: int = 0
    """m + r, m a power of two up to ``EIGHTH``: only in steps of number r modulo m; 0: in all."""
    later: bool = False
    """Not in the first step of a run."""
    last: bool = False
    """Only in the last step of a run."""
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE
    tensor: str = ""
    """For people and tests, not encoded."""

    @property
    def operation(self) -> Operation:
        return Operation.VECTOR

    @property
    def rows(self) -> int:
        """Rows of the pass."""
        return self.outer * self.inner

    @property
    def steps(self) -> int:
        """Instructions, a row at a time, in one execution."""
        return self.rows * self.length

    def users(self, mask: int) -> list[int]:
        """Numbers of the streams in a mask."""
        return [n for n in range(STREAMS) if mask >> n & 1]
