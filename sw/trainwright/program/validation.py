"""Rules for every program, checked once: where it is decoded, and before it is run.

Golden model, simulation and boards execute programs that pass, and refuse all others with the same
``ProgramError``. Rows that are read before they are written show only in an execution: the golden
model finds them.
"""

from collections.abc import Sequence
from math import prod

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Loop,
    Program,
    Set,
    Transfer,
    digit_count,
)
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import SHIFTS as PASS_SHIFTS
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import (
    MOST_DESCRIPTORS,
    MOST_REFILL,
    REGISTER_WIDTH,
    Operation,
)
from trainwright.program.footprint import rows_of_run
from trainwright.program.reach import check_reach
from trainwright.program.samples import Samples, check_samples
from trainwright.program.segments import segments
from trainwright.program.table import Limits, beyond, is_within, name_of
from trainwright.program.vector import Code, ShiftBy, Vector
from trainwright.program.vector_rules import check_code, require_engine
from trainwright.support.errors import errors_as
from trainwright.support.text import amount

MOST_PLACES = 1 << 22
"""Tiles or runs of a descriptor, and terms of a sum."""
SHIFTS = ("shift", "x_shift", "g_shift")
"""Attributes of ``Compute`` that change from step to step."""
_ELEMENTWISE = (Operation.BIAS, Operation.MASK)


def check_program(
    program: Program, p: AcceleratorParameters, *, memory_bytes: int = 1 << REGISTER_WIDTH
) -> None:
    """Raise ``ProgramError`` if an accelerator with ``memory_bytes`` cannot execute the program.

    Refused are fields out of range, loops that do not match or are too deep, addresses outside of
    the memories, runs that are not whole beats and rows, and more work than
    ``trainwright.program.reach`` allows. Behind the first HALT only fields are checked. A program
    may name more statistics slots than there are if it can be divided (``segments``).
    """
    if len(program.descriptors) > MOST_DESCRIPTORS:
        raise ProgramError(
            f"the program has {len(program.descriptors)} descriptors, at most {MOST_DESCRIPTORS} "
            "are counted; make two of it"
        )
    slots = max(p.statistics_depth, len(program.slots))
    if slots > p.statistics_depth:
        segments(program, p.statistics_depth)
    body = _body(program.descriptors)
    if len(program.descriptors) > p.program_depth:
        _check_loops(body, p)
    for number, d in enumerate(program.descriptors):
        with errors_as(f"descriptor {number}", ProgramError, ProgramError):
            _check(d, p, slots)
    check_reach(body, p, memory_bytes)
    check_code(body)


def has_shifts(d: Compute, p: AcceleratorParameters) -> bool:
    """Return whether the shifts of ``d`` are in range, without checking other fields again."""
    return is_within(d, SHIFTS, Limits(p, 0))


def has_seed(d: Set) -> bool:
    """Return whether ``d`` has a seed in range, without checking other fields again."""
    return d.seed is not None and 0 <= d.seed < 1 << REGISTER_WIDTH


def _body(descriptors: Sequence[Descriptor]) -> list[Descriptor]:
    """Return the descriptors before the first HALT."""
    if not descriptors:
        raise ProgramError("the program is empty and does not end with HALT")
    if not isinstance(descriptors[-1], Halt):
        last = descriptors[-1].operation.name
        raise ProgramError(
            "the program does not end with HALT: its last descriptor, "
            f"{len(descriptors) - 1}, is {last}"
        )
    end = next(number for number, d in enumerate(descriptors) if isinstance(d, Halt))
    return list(descriptors[:end])


def _check_loops(body: Sequence[Descriptor], p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for a loop too long for a program memory that is refilled.

    A program longer than the memory is loaded while it runs, but a loop must stay in the memory.
    """
    most, depth, begun = p.program_depth - MOST_REFILL, 0, 0
    for number, d in enumerate(body):
        if isinstance(d, Loop):
            begun = begun if depth else number
            depth += 1
        elif isinstance(d, End):
            depth -= 1
            if not depth and number + 1 - begun > most:
                raise ProgramError(
                    f"descriptors {begun} to {number}: a loop of "
                    f"{amount(number + 1 - begun, 'descriptor')} in a program that is longer than "
                    f"the accelerator's memory of "
                    f"{p.program_depth}; at most {max(most, 0)} fit, use one with a larger "
                    "program_depth"
                )


def _check(d: Descriptor, p: AcceleratorParameters, slots: int) -> None:
    """Raise ``ProgramError`` where a field of one descriptor is out of range."""
    _require_file(d, p)
    if violation := beyond(d, Limits(p, slots)):
        name, value, (low, high) = violation
        raise ProgramError(
            f"{name_of(d)}: {name} = {value} is not from {low} to {high}" + _formats(name, p)
        )
    if isinstance(d, Compute):
        _check_nest(d, p)
    elif isinstance(d, Transfer):
        _check_transfer(d, p)
    elif isinstance(d, Samples):
        check_samples(d, p)
    elif isinstance(d, Code | Vector):
        require_engine(d, p)


def _uses_file(d: Descriptor) -> bool:
    if isinstance(d, Code) and any(i.shift_by is ShiftBy.SCALAR for i in d.instructions):
        return True
    return isinstance(d, MoveScales) or any(getattr(d, name) for name in d.residents)


def _require_file(d: Descriptor, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for use of an absent exponent file, or of a shift that passes lack."""
    if _uses_file(d) and not p.exponents:
        raise ProgramError(
            f"{name_of(d)} takes exponents from the exponent file, which this accelerator lacks; "
            "use one with exponents=64"
        )
    if getattr(d, "grows", False) and d.operation.name != "BIAS":
        raise ProgramError(f"{name_of(d)}: grows only applies to BIAS; omit it")
    if isinstance(d, Code):
        for instruction in d.instructions:
            if instruction.shift_by is ShiftBy.SCALAR and instruction.shift >= PASS_SHIFTS:
                raise ProgramError(
                    f"CODE: shift = {instruction.shift} is not from 0 to {PASS_SHIFTS - 1}, the "
                    "shifts that a pass has from the exponent file"
                )


def _formats(name: str, p: AcceleratorParameters) -> str:
    """Return a remedy, the list of the accelerator's formats, if ``name`` is a format field."""
    if not name.endswith("_format"):
        return ""
    listed = ", ".join(f"{number} {fmt}" for number, fmt in enumerate(("fixed point", *p.formats)))
    return f"; this accelerator has {listed}; use one with more formats"


def _check_nest(d: Compute, p: AcceleratorParameters) -> None:
    name = name_of(d)
    _at_most(d, "tiles", d.tiles)
    _at_most(d, "terms", prod(level.count for level in d.reduction))
    if any(level.count > 1 for level in d.levels[: -p.nest_levels]):
        raise ProgramError(
            f"{name}: {len(d.levels)} loop levels, the accelerator has {p.nest_levels}; use one "
            "with more nest_levels"
        )
    _check_digits(d, p)
    if any(level.z and level.count > 1 for level in d.reduction):
        raise ProgramError(
            f"{name}: stride z is not 0 in a summed level, whose steps all add to one result"
        )
    if d.stochastic and not p.stochastic_rounding:
        raise ProgramError(
            f"{name} is to be rounded stochastically, which this accelerator cannot; use one with "
            "stochastic_rounding=1"
        )


def _check_digits(d: Compute, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for digits that the accelerator cannot sum."""
    name = name_of(d)
    if d.digits and not p.narrow:
        raise ProgramError(
            f"{name}: digits are of contractions on words of 8 bits in fixed point; use an "
            "accelerator with word_width=8"
        )
    if d.digits > d.reduce_levels:
        raise ProgramError(
            f"{name}: {d.digits} levels go over digits, but only {d.reduce_levels} are summed; sum "
            "over each level of digits"
        )
    if d.operation in _ELEMENTWISE and d.digits:
        if not p.wide_tensors:
            raise ProgramError(
                f"{name}: digits are of contractions, unless the accelerator has wide tensors; use "
                "one with wide_tensors=1"
            )
        if d.digits != 1 or d.reduce_levels != 1:
            raise ProgramError(
                f"{name}: {d.reduce_levels} of its levels are summed; an element-wise operation "
                "sums only digits, in one level"
            )
        most = digit_count(p.result_width)
        if d.reduction[0].count > most:
            raise ProgramError(
                f"{name}: {d.reduction[0].count} digits of an element, whose sums hold {most}; cut "
                f"tensors of {p.result_width} bits into {most}"
            )
    if d.digits == 2 and d.reduction[1].count != 2:
        raise ProgramError(
            f"{name}: the inner level of digits has {d.reduction[1].count} digits and must have 2; "
            "let the operand with more digits be the outer level"
        )


def _check_transfer(d: Transfer, p: AcceleratorParameters) -> None:
    name = name_of(d)
    _at_most(d, "runs", d.runs)
    if not rows_of_run(d, p):
        raise ProgramError(
            f"{name}: a run of {amount(d.beats, 'beat')} is not a whole number of rows"
        )
    steps = [level.address for level in d.levels if level.count > 1]
    for address in (d.address, *steps):
        if address % p.beat_bytes:
            raise ProgramError(
                f"{name}: the address or step {address} is not a multiple of the {p.beat_bytes} "
                "bytes of a beat"
            )


def _at_most(d: Compute | Transfer, what: str, count: int) -> None:
    if count > MOST_PLACES:
        raise ProgramError(
            f"{name_of(d)}: a loop nest of {count} {what}, at most "
            f"{MOST_PLACES} can be executed; split the descriptor"
        )
