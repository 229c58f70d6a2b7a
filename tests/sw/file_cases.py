"""Programs with exponents from the file for tests: passes by scalars, contractions, SCALES."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from trainwright.program.descriptors import Compute
from trainwright.program.exponents import (
    ENTRIES,
    MOST_SHIFT,
    SCALARS,
    SHIFTS,
    MoveScales,
    Scalar,
    ScalarKind,
    ScaleEntry,
)
from trainwright.program.fields import EIGHTH, Operation
from trainwright.program.vector import CONSTANTS, Code, ShiftBy, Vector

USED = 12
"""Slots that random programs use."""
STATISTICS = 8


def random_slots(random: Random, d: Compute, *, used: int = USED) -> Compute:
    """Return ``d`` with shifts by the file now and then."""
    if random.random() < 0.2:
        return d
    x, g, z = (random.randrange(used) for _ in range(3))
    if d.operation is Operation.MASK:
        g = 0
    exact = random.random() < 0.2
    grows = d.operation is Operation.BIAS and random.random() < 0.3
    return replace(
        d, x_exponent=x, g_exponent=g, z_exponent=z or 1, exact=exact, grows=grows,
        slot=d.slot % STATISTICS,
    )  # fmt: skip


def random_scalars(random: Random, descriptors: Sequence, *, used: int = USED) -> list:
    """Draw passes with shifts and constants by the file; none is strict and below 0."""
    changed = []
    for d in descriptors:
        if isinstance(d, Code):
            d = replace(
                d,
                instructions=tuple(
                    replace(instruction, shift_by=ShiftBy.SCALAR, shift=random.randrange(SHIFTS))
                    if instruction.shift_by is ShiftBy.FIELD and random.random() < 0.4
                    else instruction
                    for instruction in d.instructions
                ),
            )
        if isinstance(d, Vector):
            d = replace(
                d, scalars=tuple(_scalar(random, used) for _ in range(random.randint(0, SCALARS)))
            )
        changed.append(d)
    return changed


def random_turns(random: Random, descriptors: Sequence) -> list:
    """Leave the last pass out of some steps, now and then.

    The other passes write the registers that the last pass reads.
    """
    turned = list(descriptors)
    passes = [n for n, d in enumerate(turned) if isinstance(d, Vector)]
    if not passes or random.random() < 0.2:
        return turned
    turned[passes[-1]] = replace(turned[passes[-1]], **random_turn(random))
    return turned


def random_turn(random: Random) -> dict[str, int]:
    """Draw one of two, four or eight steps, or all."""
    return {"eighth": random.choice((0, 0, random.randint(1, 2 * EIGHTH - 1)))}


def _scalar(random: Random, used: int) -> Scalar:
    kind = random.choice(list(ScalarKind))
    to = random.randrange(SHIFTS if kind is ScalarKind.SHIFT else CONSTANTS)
    plus, minus = random.randrange(used), random.randrange(used)
    return Scalar(kind, to, plus, minus, offset=random.randint(-40, MOST_SHIFT))


def random_scales(random: Random, *, used: int = USED) -> MoveScales:
    """Draw SCALES with limits that most sums are over or under."""
    return MoveScales(
        entries=tuple(
            ScaleEntry(
                exponent=random.choice((0, *range(1, used), *range(1, used))),
                statistics=random.randrange(STATISTICS),
                low=random.choice((0, 1 << 12, 1 << 40)),
                high=random.choice((0, 1 << 14, (1 << 48) - 1)),
                copy=random.choice((0, 0, random.randrange(used))),
            )
            for _ in range(random.randint(1, ENTRIES))
        )
    )


def random_file(random: Random, slots: int, *, most: int = 6) -> list[int]:
    """Draw exponents near each other, with slot 0 zero."""
    return [0, *(random.randint(-most, most) for _ in range(slots - 1))]
