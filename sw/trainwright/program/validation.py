"""What every program must be, checked once: where it is decoded, and before it is run.

Golden model, simulation and boards execute what passes, and all of them refuse the rest with the
same ``ProgramError``. What only an execution shows is left to the golden model: rows that are read
before they are written.
"""

from collections.abc import Iterator, Sequence
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
from trainwright.program.exponent_rules import (
    compute_slots,
    eighth_range,
    require_file,
    scales_ranges,
    vector_slots,
)
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import (
    COUNT_WIDTH,
    LOCAL_WIDTH,
    MOST_DESCRIPTORS,
    MOST_REFILL,
    NEST_LEVELS,
    REGISTER_WIDTH,
    REGISTERS,
    TRANSFER_LEVELS,
    Operation,
    Target,
)
from trainwright.program.footprint import rows_of_run, tile_rows
from trainwright.program.reach import check_reach
from trainwright.program.samples import Samples, check_samples, samples_ranges
from trainwright.program.segments import segments
from trainwright.program.vector import Code, Vector
from trainwright.program.vector_rules import check_code, code_ranges, require_engine, vector_ranges

MOST_PLACES = 1 << 22
"""Tiles or runs of a descriptor, and terms of a sum."""
MAX_SHIFT = 63

_COUNT = (1, (1 << COUNT_WIDTH) - 1)
_LOCAL = (0, (1 << LOCAL_WIDTH) - 1)
_LOCAL_STEP = (-(1 << (LOCAL_WIDTH - 1)), (1 << (LOCAL_WIDTH - 1)) - 1)
_ADDRESS = (0, (1 << REGISTER_WIDTH) - 1)
_ADDRESS_STEP = (-(1 << (REGISTER_WIDTH - 1)), (1 << REGISTER_WIDTH) - 1)
_REGISTER = (0, REGISTERS - 1)
_ELEMENTWISE = (Operation.BIAS, Operation.MASK)

Limits = tuple[int, int]


def check_program(
    program: Program, p: AcceleratorParameters, *, memory_bytes: int = 1 << REGISTER_WIDTH
) -> None:
    """Raise ``ProgramError`` for what an accelerator with so much external memory cannot execute.

    Fields out of range, loops that do not match or are too deep, addresses outside of the
    memories, runs that are not whole beats and rows, more work than ``trainwright.program.reach``
    allows. Of what follows the first HALT the fields alone are looked at. A program may count more
    tensors than there are statistics slots where it can be divided (``segments``).
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
        try:
            _check(d, p, slots)
        except ProgramError as error:
            raise ProgramError(f"descriptor {number}: {error}") from None
    check_reach(body, p, memory_bytes)
    check_code(body)


def has_shifts(d: Compute, p: AcceleratorParameters) -> bool:
    """Whether the shifts of ``d``, which change from step to step, are in range."""
    return all(low <= getattr(d, name) <= high for name, (low, high) in _shifts(p).items())


def _shifts(p: AcceleratorParameters) -> dict[str, Limits]:
    """Shifts and their ranges."""
    aligned = 0, p.most_alignment
    return {"shift": (0, MAX_SHIFT), "x_shift": aligned, "g_shift": aligned}


def has_seed(d: Set) -> bool:
    """Whether ``d`` has a seed, which changes from step to step, and one in range."""
    return d.seed is not None and _ADDRESS[0] <= d.seed <= _ADDRESS[1]


def _body(descriptors: Sequence[Descriptor]) -> list[Descriptor]:
    """What is before the first HALT."""
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
    """Raise ``ProgramError`` where a loop of a program that is longer than the program memory does
    not stay there while the rest is loaded.
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
                    f"descriptors {begun} to {number}: a loop of {number + 1 - begun} descriptors "
                    f"in a program that is longer than the accelerator's memory of "
                    f"{p.program_depth}; at most {max(most, 0)} fit, use one with a larger "
                    "program_depth"
                )


def _check(d: Descriptor, p: AcceleratorParameters, slots: int) -> None:
    """Raise ``ProgramError`` where a field of one descriptor is out of range."""
    require_file(d, p)
    for name, value, (low, high) in _ranges(d, p, slots):
        if not low <= value <= high:
            named = getattr(d, "tensor", "") or d.operation.name
            raise ProgramError(
                f"{named}: {name} = {value} is not from {low} to {high}" + _formats(name, p)
            )
    if isinstance(d, Compute):
        _check_nest(d, p)
    elif isinstance(d, Transfer):
        _check_transfer(d, p)
    elif isinstance(d, Samples):
        check_samples(d, p)
    elif isinstance(d, Code | Vector):
        require_engine(d, p)


def _formats(name: str, p: AcceleratorParameters) -> str:
    """What the accelerator's number formats are, if it is about them."""
    if not name.endswith("_format"):
        return ""
    listed = ", ".join(f"{number} {fmt}" for number, fmt in enumerate(("fixed point", *p.formats)))
    return f"; this accelerator has {listed}; use one with more formats"


def _ranges(
    d: Descriptor, p: AcceleratorParameters, slots: int
) -> Iterator[tuple[str, int, Limits]]:
    """Every field with its value and what it may be; ``slots`` are those of the program."""
    match d:
        case Compute():
            yield "levels", len(d.levels), (1, NEST_LEVELS)
            whole = d.operation in _ELEMENTWISE and not (d.digits and p.wide_tensors)
            summed = 0 if whole else len(d.levels) - 1
            yield "reduce_levels", d.reduce_levels, (0, summed)
            yield "tile_level", d.tile_level, (0, len(d.levels) - d.reduce_levels - 1)
            yield "last_rows", d.last_rows, (1, tile_rows(d.operation, p))
            yield "out_width", d.out_width, (1, p.result_width)
            yield "digits", d.digits, (0, 2 if p.wide_tensors else 1)
            yield "slot", d.slot, (0, slots - 1)
            for name, limits in _shifts(p).items():
                yield name, getattr(d, name), limits
            for name in ("x_format", "g_format", "z_format"):
                yield name, getattr(d, name), (0, len(p.formats))
            for name in ("x", "g", "z"):
                yield name, getattr(d, name), _LOCAL
                yield f"{name}_register", getattr(d, f"{name}_register"), _REGISTER
                yield f"{name}_row_stride", getattr(d, f"{name}_row_stride"), _LOCAL_STEP
            yield from compute_slots(d, p)
            for level in d.levels:
                yield "count", level.count, _COUNT
                for name in ("x", "g", "z"):
                    yield f"step of {name}", getattr(level, name), _LOCAL_STEP
        case Transfer():
            yield "levels", len(d.levels), (0, TRANSFER_LEVELS)
            yield from eighth_range(d)
            yield "target", d.target, (0, Target.SCRATCHPAD)
            yield "element_bytes", d.element_bytes, (1, p.word_width // 8)
            yield "beats", d.beats, _COUNT
            yield "address", d.address, _ADDRESS
            yield "address_register", d.address_register, _REGISTER
            yield "local", d.local, _LOCAL
            yield "local_register", d.local_register, _REGISTER
            for level in d.levels:
                yield "count", level.count, _COUNT
                yield "step of address", level.address, _ADDRESS_STEP
                yield "step of local", level.local, _LOCAL_STEP
        case Samples():
            yield from samples_ranges(d, p)
        case Loop():
            yield "iterations", d.iterations, _COUNT
        case Set() | End():
            for register, value in d.values if isinstance(d, Set) else d.steps:
                yield "register", register, (1, REGISTERS - 1)
                yield f"R{register}", value, _ADDRESS_STEP
            if isinstance(d, Set) and d.seed is not None:
                yield "seed", d.seed, _ADDRESS
        case Code():
            yield from code_ranges(d)
        case Vector():
            yield from vector_ranges(d, p)
            yield from vector_slots(d, p)
            yield from eighth_range(d)
        case MoveScales():
            yield from scales_ranges(d, p)
        case Halt():
            pass


def _check_nest(d: Compute, p: AcceleratorParameters) -> None:
    name = d.tensor or d.operation.name
    _at_most(d, "tiles", d.tiles)
    _at_most(d, "terms", prod(level.count for level in d.reduction))
    if any(level.count > 1 for level in d.levels[: -p.nest_levels]):
        raise ProgramError(
            f"{name}: {len(d.levels)} loop levels, the accelerator has {p.nest_levels}; use one "
            "with more nest_levels"
        )
    _check_digits(d, p)
    if any(level.z and level.count > 1 for level in d.reduction):
        raise ProgramError(f"{name}: its result moves in a level that is summed")
    if d.stochastic and not p.stochastic_rounding:
        raise ProgramError(
            f"{name} is to be rounded stochastically, which this accelerator cannot; use one with "
            "stochastic_rounding=1"
        )


def _check_digits(d: Compute, p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` for digits that the accelerator does not know."""
    name = d.tensor or d.operation.name
    if d.digits and not p.narrow:
        raise ProgramError(
            f"{name}: digits are of contractions on words of 8 bits in fixed point; use an "
            "accelerator with word_width=8"
        )
    if d.digits > d.reduce_levels:
        raise ProgramError(
            f"{name}: {d.reduce_levels} of its levels are summed, of which number {d.digits} is to "
            "go over digits"
        )
    if d.operation in _ELEMENTWISE and d.digits:
        if not p.wide_tensors:
            raise ProgramError(
                f"{name}: digits are of contractions, unless the accelerator has wide tensors; use "
                "one with wide_tensors=1"
            )
        if d.digits != 1 or d.reduce_levels != 1:
            raise ProgramError(
                f"{name}: {d.reduce_levels} of its levels are summed; an operation element by "
                "element sums digits alone, in one level"
            )
        most = digit_count(p.result_width)
        if d.reduction[0].count > most:
            raise ProgramError(
                f"{name}: {d.reduction[0].count} digits of an element, whose sums hold {most}; cut "
                f"tensors of {p.result_width} bits into {most}"
            )
    if d.digits == 2 and d.reduction[1].count != 2:
        raise ProgramError(
            f"{name}: {d.reduction[1].count} digits within those of the other operand, only 2 have "
            "their weights there; let the operand with more digits be the outer one"
        )


def _check_transfer(d: Transfer, p: AcceleratorParameters) -> None:
    name = d.tensor or d.operation.name
    _at_most(d, "runs", d.runs)
    if not rows_of_run(d, p):
        raise ProgramError(f"{name}: a run of {d.beats} beats is not a whole number of rows")
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
            f"{d.tensor or d.operation.name}: a loop nest of {count} {what}, at most "
            f"{MOST_PLACES} can be executed; split the descriptor"
        )
