"""Rules for programs that use the exponent file; part of ``trainwright.program.validation``."""

from typing import TYPE_CHECKING

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import SHIFTS, MoveScales
from trainwright.program.table import name_of
from trainwright.program.vector import Code, ShiftBy

if TYPE_CHECKING:
    from trainwright.program.descriptors import Descriptor


def _used(d: "Descriptor") -> bool:
    if isinstance(d, Code) and any(i.shift_by is ShiftBy.SCALAR for i in d.instructions):
        return True
    return isinstance(d, MoveScales) or any(getattr(d, name) for name in d.residents)


def require_file(d: "Descriptor", p: AcceleratorParameters) -> None:
    """Raise ``ProgramError`` where a descriptor needs a missing file or shift of a pass."""
    if _used(d) and not p.exponents:
        raise ProgramError(
            f"{name_of(d)} takes exponents from the exponent file, which this accelerator lacks; "
            "use one with exponents=64"
        )
    if getattr(d, "grows", False) and d.operation.name != "BIAS":
        raise ProgramError(f"{name_of(d)}: grows is of BIAS alone; leave it out")
    if isinstance(d, Code):
        for instruction in d.instructions:
            if instruction.shift_by is ShiftBy.SCALAR and instruction.shift >= SHIFTS:
                raise ProgramError(
                    f"CODE: shift = {instruction.shift} is not from 0 to {SHIFTS - 1}, the shifts "
                    "that a pass has from the exponent file"
                )
