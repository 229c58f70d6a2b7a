"""What passes of the vector engine must be; part of ``trainwright.program.validation``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH
from trainwright.program.footprint import stream_span
from trainwright.program.vector import (
    CODE_DEPTH,
    CODE_WORDS,
    CONSTANTS,
    ENUMS,
    FACTOR_WIDTH,
    INSTRUCTION,
    STREAMS,
    WIDTH,
    Addend,
    Code,
    Instruction,
    Kind,
    Memory,
    Vector,
)

if TYPE_CHECKING:
    from trainwright.program.descriptors import Descriptor

_LOCAL = (0, (1 << LOCAL_WIDTH) - 1)
_STEP = (-(1 << (LOCAL_WIDTH - 1)), (1 << (LOCAL_WIDTH - 1)) - 1)
_COUNT = (1, (1 << COUNT_WIDTH) - 1)
_CONSTANT = (-(1 << (FACTOR_WIDTH - 1)), (1 << (FACTOR_WIDTH - 1)) - 1)

MOST_ROWS = (1 << 24) - 1

Limited = tuple[str, int, tuple[int, int]]


def code_ranges(d: Code) -> Iterator[Limited]:
    """Every field of a CODE with its value and what it may be."""
    yield "instructions", len(d.instructions), (1, CODE_WORDS)
    yield "first", d.first, (0, CODE_DEPTH - len(d.instructions))
    for one in d.instructions:
        for field in INSTRUCTION:
            if field.name not in ENUMS:
                low, high = (1, WIDTH) if field.name == "width" else (0, (1 << field.width) - 1)
                yield field.name, int(getattr(one, field.name)), (low, high)


def vector_ranges(d: Vector, p: AcceleratorParameters) -> Iterator[Limited]:
    """Every field of a VECTOR with its value and what it may be."""
    yield "length", d.length, (1, CODE_DEPTH - 1)
    yield "entry", d.entry, (0, CODE_DEPTH - d.length)
    yield "outer", d.outer, _COUNT
    yield "inner", d.inner, _COUNT
    yield "rows", d.rows, (1, MOST_ROWS)
    yield "key", d.key, _LOCAL
    yield "slot", d.slot, (0, p.statistics_depth - 1)
    yield "streams", len(d.streams), (0, STREAMS)
    every = (1 << len(d.streams)) - 1
    yield "reads", d.reads, (0, every)
    yield "writes", d.writes, (0, every)
    yield "constants", len(d.constants), (0, CONSTANTS)
    for value in d.constants:
        yield "constant", value, _CONSTANT
    for one in d.streams:
        yield "base", one.base, _LOCAL
        yield "step of a stream", one.outer, _STEP
        yield "step of a stream", one.inner, _STEP


def has_constants(d: Vector) -> bool:
    """Whether the constants of ``d``, which change from step to step, are in range."""
    low, high = _CONSTANT
    return len(d.constants) <= CONSTANTS and all(low <= k <= high for k in d.constants)


def has_field_shifts(d: Code) -> bool:
    """Whether the shifts of instructions, which change from step to step, are in range."""
    most = next((1 << field.width) - 1 for field in INSTRUCTION if field.name == "shift")
    return all(0 <= one.shift <= most for one in d.instructions)


def require_engine(d: Code | Vector, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` where the accelerator has no vector engine, or streams overlap."""
    if not p.vector_engine:
        raise ProgramError(
            f"{d.operation.name} is for the vector engine, which this accelerator lacks; use one "
            "with vector_engine=1"
        )
    if isinstance(d, Vector):
        _require_apart(d)


def _require_apart(d: Vector) -> None:
    """A row that is written may be read in the same place of the nest alone."""
    for written in d.users(d.writes):
        low, high = stream_span(d, written)
        for read in d.users(d.reads):
            first, last = stream_span(d, read)
            if first <= high and low <= last and d.streams[read] != d.streams[written]:
                raise ProgramError(
                    f"{d.tensor or 'VECTOR'}: stream {written} writes rows {low} to {high}, of "
                    f"which stream {read} reads some in another order; give them other rows"
                )


def check_code(body: Sequence["Descriptor"]) -> None:
    """Raise ``ProgramError`` where a pass executes what no CODE before it gave, or CODE is in a
    loop. Loops match.
    """
    held: dict[int, Instruction] = {}
    depth = 0
    for number, d in enumerate(body):
        depth += (d.operation.name == "LOOP") - (d.operation.name == "END")
        try:
            if isinstance(d, Code):
                if depth:
                    raise ProgramError("CODE is in a loop; put it before")
                held |= dict(enumerate(d.instructions, d.first))
            elif isinstance(d, Vector):
                _check_pass(d, held)
        except ProgramError as error:
            raise ProgramError(f"descriptor {number}: {error}") from None


def _check_pass(d: Vector, held: dict[int, Instruction]) -> None:
    name = d.tensor or "VECTOR"
    users = {Memory.READ: 0, Memory.WRITE: 0}
    for place in range(d.entry, d.entry + d.length):
        if place not in held:
            raise ProgramError(f"{name}: no CODE before it gives instruction {place}")
        one = held[place]
        if one.kind is Kind.TABLE and one.addend is not Addend.NOTHING:
            raise ProgramError(f"{name}: instruction {place} adds to a table; use another one")
        if one.memory is Memory.NONE:
            continue
        bit = 1 << one.stream
        if users[one.memory] & bit:
            raise ProgramError(
                f"{name}: two instructions {one.memory.name.lower()} stream {one.stream}; give "
                "each its own"
            )
        users[one.memory] |= bit
    given = {Memory.READ: d.reads, Memory.WRITE: d.writes}
    for memory, mask in users.items():
        if mask != given[memory]:
            raise ProgramError(
                f"{name}: its instructions {memory.name.lower()} the streams of mask {mask:#x}, "
                f"not of {given[memory]:#x}"
            )
