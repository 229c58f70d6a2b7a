"""How large a loop nest may be: what the golden model computes in memory and time that there are.

The limits lie far beyond every program of the compiler: a scratchpad has at most 2^17 rows. The
native executor has them too (``native/machine.h``); in its integers of 64 bits nothing then wraps.
"""

from math import prod

from trainwright.program.descriptors import Compute, End, Set, Transfer
from trainwright.program.encoding import ProgramError
from trainwright.program.fields import REGISTERS

MOST_PLACES = 1 << 22
"""Tiles or runs of a descriptor, and terms of a sum."""
MOST_STEPS = 1 << 32
"""Steps of a descriptor: tiles x terms."""
MOST_BASE = 1 << 40
"""Largest magnitude of an address before strides are added."""

_RANGES = {"shift": 63, "x_shift": 15, "g_shift": 15}
"""Greatest value of what may change from step to step."""


def has_shifts(d: Compute) -> bool:
    """Whether the requantiser and BIAS have the shifts of ``d``."""
    return all(0 <= getattr(d, name) <= most for name, most in _RANGES.items())


def check_shifts(d: Compute) -> None:
    """Raise ``ProgramError`` unless ``has_shifts``, naming the shift."""
    for name, most in _RANGES.items():
        if not 0 <= (value := getattr(d, name)) <= most:
            raise ProgramError(
                f"{d.tensor or d.operation.name}: {name} = {value} is not from 0 to {most}"
            )


def _at_most(d: Compute | Transfer, what: str, count: int, most: int) -> None:
    if count > most:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: a loop nest of {count} {what}, at most {most} "
            "can be executed; split the descriptor"
        )


def check_nest(d: Compute | Transfer) -> None:
    """Raise ``ProgramError`` for a nest past the limits, or counts, shifts, registers out of range.

    A count of 0 or less would make a nest of nothing, which the accelerator has not.
    """
    for level in d.levels:
        if level.count < 1:
            raise ProgramError(
                f"{d.tensor or d.operation.name}: a level of count {level.count}, it must be at "
                "least 1"
            )
    if isinstance(d, Transfer):
        bases = {"address": d.address, "local": d.local}
        registers = (d.address_register, d.local_register)
        _at_most(d, "runs", d.runs, MOST_PLACES)
    else:
        bases = {"x": d.x, "g": d.g, "z": d.z}
        registers = (d.x_register, d.g_register, d.z_register)
        _at_most(d, "tiles", d.tiles, MOST_PLACES)
        _at_most(d, "terms", prod(level.count for level in d.reduction), MOST_PLACES)
        _at_most(d, "steps", d.steps, MOST_STEPS)
        check_shifts(d)
    for name, base in bases.items():
        if abs(base) > MOST_BASE:
            raise ProgramError(
                f"{d.tensor or d.operation.name}: {name} = {base} is outside every memory"
            )
    for register in registers:
        if not 0 <= register < REGISTERS:
            raise ProgramError(
                f"{d.tensor or d.operation.name}: address register {register} is not one of R0 to "
                f"R{REGISTERS - 1}"
            )


def check_updates(d: End | Set) -> None:
    """Raise ``ProgramError`` where ``d`` updates a register that it cannot, or the seed is none."""
    for register, _ in d.steps if isinstance(d, End) else d.values:
        if not 1 <= register < REGISTERS:
            raise ProgramError(f"address register {register} is not one of R1 to R{REGISTERS - 1}")
    if isinstance(d, Set) and d.seed is not None and not 0 <= d.seed < 1 << 32:
        raise ProgramError(f"the seed {d.seed} is not from 0 to 2^32 - 1")
