"""Rules for passes of the vector engine; part of ``trainwright.program.validation``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.footprint import stream_span
from trainwright.program.table import Limits, is_within, name_of
from trainwright.program.vector import (
    CONSTANTS,
    FACTOR_WIDTH,
    Addend,
    Code,
    Instruction,
    Kind,
    Memory,
    Vector,
)
from trainwright.support.errors import errors_as

if TYPE_CHECKING:
    from trainwright.program.descriptors import Descriptor


def has_constants(d: Vector) -> bool:
    """Return whether the constants of ``d``, which change from step to step, are in range."""
    half = 1 << (FACTOR_WIDTH - 1)
    return len(d.constants) <= CONSTANTS and all(-half <= k < half for k in d.constants)


def has_field_shifts(d: Code, p: AcceleratorParameters) -> bool:
    """Return whether the shifts of instructions, which change from step to step, are in range."""
    return all(is_within(instruction, ["shift"], Limits(p, 0)) for instruction in d.instructions)


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
    """Raise ``ProgramError`` for a row that is written and read in different places of the nest."""
    for written in d.users(d.writes):
        low, high = stream_span(d, written)
        for read in d.users(d.reads):
            first, last = stream_span(d, read)
            if first <= high and low <= last and d.streams[read] != d.streams[written]:
                raise ProgramError(
                    f"{name_of(d)}: stream {written} writes rows {low} to {high}, of "
                    f"which stream {read} reads some in another order; give them other rows"
                )


def check_code(body: Sequence["Descriptor"]) -> None:
    """Raise ``ProgramError`` where a pass lacks instructions, or CODE is in a loop.

    Instructions come from CODE before the pass. Loops match.
    """
    held: dict[int, Instruction] = {}
    depth = 0
    for number, d in enumerate(body):
        depth += (d.operation.name == "LOOP") - (d.operation.name == "END")
        with errors_as(f"descriptor {number}", ProgramError, ProgramError):
            if isinstance(d, Code):
                if depth:
                    raise ProgramError("CODE is in a loop; put it before")
                held |= dict(enumerate(d.instructions, d.first))
            elif isinstance(d, Vector):
                _check_pass(d, held)


def _check_pass(d: Vector, held: dict[int, Instruction]) -> None:
    name = name_of(d)
    users = {Memory.READ: 0, Memory.WRITE: 0}
    for place in range(d.entry, d.entry + d.length):
        if place not in held:
            raise ProgramError(f"{name}: no CODE before it gives instruction {place}")
        instruction = held[place]
        if instruction.kind is Kind.TABLE and instruction.addend is not Addend.NOTHING:
            raise ProgramError(f"{name}: instruction {place} adds to a table; use another one")
        if instruction.memory is Memory.NONE:
            continue
        bit = 1 << instruction.stream
        if users[instruction.memory] & bit:
            raise ProgramError(
                f"{name}: two instructions {instruction.memory.name.lower()} stream "
                f"{instruction.stream}; give each its own"
            )
        users[instruction.memory] |= bit
    given = {Memory.READ: d.reads, Memory.WRITE: d.writes}
    for memory, mask in users.items():
        if mask != given[memory]:
            raise ProgramError(
                f"{name}: its instructions {memory.name.lower()} the streams of mask {mask:#x}, "
                f"not of {given[memory]:#x}"
            )
