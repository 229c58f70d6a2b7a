"""What programs that use the exponent file must be; part of ``trainwright.program.validation``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ENTRIES, SCALARS, SHIFTS, MoveScales, ScalarKind
from trainwright.program.fields import EIGHTH
from trainwright.program.vector import CONSTANTS, Code, ShiftBy, Vector

if TYPE_CHECKING:
    from trainwright.program.descriptors import Compute, Descriptor, Transfer

_SUM = (0, (1 << 48) - 1)
_OFFSET = (-64, 63)

Limited = tuple[str, int, tuple[int, int]]


def compute_slots(d: "Compute", p: AcceleratorParameters) -> Iterator[Limited]:
    """Slots of a compute descriptor with what they may be."""
    for name in ("x_exponent", "g_exponent", "z_exponent"):
        yield name, getattr(d, name), (0, max(p.exponents - 1, 0))


def eighth_range(d: "Transfer | Vector") -> Iterator[Limited]:
    """In what steps it is executed."""
    yield "eighth", d.eighth, (0, 2 * EIGHTH - 1)


def vector_slots(d: Vector, p: AcceleratorParameters) -> Iterator[Limited]:
    """Fields of a pass's scalars with what they may be."""
    most = max(p.exponents - 1, 0)
    yield "scalars", len(d.scalars), (0, SCALARS)
    for one in d.scalars:
        kinds = SHIFTS if one.kind is ScalarKind.SHIFT else CONSTANTS
        yield "to", one.to, (0, kinds - 1)
        yield "plus", one.plus, (0, most)
        yield "minus", one.minus, (0, most)
        yield "offset", one.offset, _OFFSET


def scales_ranges(d: MoveScales, p: AcceleratorParameters) -> Iterator[Limited]:
    """Every field of SCALES with its value and what it may be."""
    most = max(p.exponents - 1, 0)
    yield "entries", len(d.entries), (1, ENTRIES)
    for one in d.entries:
        yield "exponent", one.exponent, (0, most)
        yield "statistics", one.statistics, (0, p.statistics_depth - 1)
        yield "low", one.low, _SUM
        yield "high", one.high, _SUM
        yield "copy", one.copy, (0, most)


def _used(d: "Descriptor") -> bool:
    if isinstance(d, Code):
        return d.last or any(one.shift_by is ShiftBy.SCALAR for one in d.instructions)
    if isinstance(d, Vector):
        return bool(d.scalars or d.eighth or d.later or d.last)
    named = any(getattr(d, f"{name}_exponent", 0) for name in "xgz")
    names = ("exact", "grows", "by_step", "eighth", "later", "last")
    flags = any(getattr(d, name, False) for name in names)
    return isinstance(d, MoveScales) or named or flags


def uses_file(descriptors: Sequence["Descriptor"]) -> bool:
    """Whether a program takes anything from the exponent file."""
    return any(_used(d) for d in descriptors)


def require_file(d: "Descriptor", p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` where a descriptor needs a file that is not there, or names a shift of
    a pass that is not there.
    """
    if _used(d) and not p.exponents:
        name = getattr(d, "tensor", "") or d.operation.name
        raise ProgramError(
            f"{name} takes exponents from the exponent file, which this accelerator lacks; use one "
            "with exponents=64"
        )
    if getattr(d, "grows", False) and d.operation.name != "BIAS":
        raise ProgramError(
            f"{getattr(d, 'tensor', '') or d.operation.name}: grows is of BIAS alone; leave it out"
        )
    if isinstance(d, Code):
        for one in d.instructions:
            if one.shift_by is ShiftBy.SCALAR and one.shift >= SHIFTS:
                raise ProgramError(
                    f"CODE: shift = {one.shift} is not from 0 to {SHIFTS - 1}, the shifts that a "
                    "pass has from the exponent file"
                )
