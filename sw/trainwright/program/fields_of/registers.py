"""SET, and the steps of a loop's END: values for address registers."""

from collections.abc import Mapping

from trainwright.program.descriptors import Set
from trainwright.program.errors import ProgramError
from trainwright.program.fields import REGISTER_UPDATE, REGISTER_WIDTH, REGISTERS
from trainwright.program.fields_of import plain_values


def fields_of_steps(pairs: tuple[tuple[int, int], ...]) -> dict[str, int]:
    """Fields of (register, value) pairs; ``mask`` says which registers are meant."""
    fields = {f"value{register}": 0 for register in range(REGISTERS)}
    mask = 0
    for register, value in pairs:
        if not 1 <= register < REGISTERS:
            raise ProgramError(f"address register {register} is not one of R1 to R{REGISTERS - 1}")
        mask |= 1 << register
        fields[f"value{register}"] = value % (1 << REGISTER_WIDTH)
    return fields | {"mask": mask, "by_step": 0}


def fields_of_set(d: Set) -> dict[str, int]:
    """Put the seed where R0 would be."""
    fields = fields_of_steps(d.values)
    if d.seed is None:
        return fields
    return fields | {"mask": fields["mask"] | 1, "value0": d.seed, "by_step": int(d.by_step)}


def pairs_of(f: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Return the (register, signed value) pairs of these fields."""
    sign = 1 << (REGISTER_WIDTH - 1)
    return tuple(
        (register, (f[f"value{register}"] ^ sign) - sign)
        for register in range(1, REGISTERS)
        if f["mask"] >> register & 1
    )


def set_(f: Mapping[str, int]) -> Set:
    """Return the SET of these fields."""
    seed = f["value0"] if f["mask"] & 1 else None
    values = plain_values(Set, REGISTER_UPDATE, f)
    return Set(values=pairs_of(f), seed=seed, **values)
