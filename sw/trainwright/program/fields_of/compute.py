"""Contractions, and the commands of the vector unit."""

from collections.abc import Mapping

from trainwright.program.descriptors import Compute, Level
from trainwright.program.errors import ProgramError
from trainwright.program.fields import COMPUTE, LOCAL_WIDTH, NEST_LEVELS, Operation
from trainwright.program.fields_of import plain_values
from trainwright.program.fields_of.addresses import steps_of, strides_of


def fields_of_compute(d: Compute) -> dict[str, int]:
    """Return levels from the outermost, padded with single iterations, and kinds of digits."""
    if len(d.levels) > NEST_LEVELS:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: {len(d.levels)} loop levels, "
            f"at most {NEST_LEVELS} fit a descriptor"
        )
    pad = NEST_LEVELS - len(d.levels)
    levels = (Level(1),) * pad + d.levels
    counts = [level.count for level in levels]
    fields = {
        "tile_level": d.tile_level + pad,
        # words that go by digits are no posits
        "underflow_zero": int(d.underflow_zero or d.digits == 2),
        "digits": int(d.digits > 0),
    }
    for name in ("x", "g", "z"):
        steps = steps_of(counts, [getattr(level, name) for level in levels], LOCAL_WIDTH)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(steps)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def compute(operation: Operation, f: Mapping[str, int]) -> Compute:
    """Return the command of these fields. Raises ``ProgramError`` where levels overlap."""
    counts = [f[f"count{i}"] for i in range(NEST_LEVELS)]
    if f["tile_level"] + f["reduce_levels"] >= NEST_LEVELS:
        raise ProgramError(
            f"{operation.name}: tile level {f['tile_level']} is not outside the "
            f"{f['reduce_levels']} levels that are summed"
        )
    pad = 0
    while pad < f["tile_level"] and counts[pad] == 1:
        pad += 1
    strides = [
        strides_of(counts, [f[f"{name}_delta{i}"] for i in range(NEST_LEVELS)], LOCAL_WIDTH)
        for name in ("x", "g", "z")
    ]
    values = plain_values(Compute, COMPUTE, f) | {
        "levels": tuple(Level(*level) for level in zip(counts, *strides, strict=True))[pad:],
        "tile_level": f["tile_level"] - pad,
        "underflow_zero": bool(f["underflow_zero"]) and not f["digits"],
        "digits": f["digits"] + (f["digits"] & f["underflow_zero"]),
    }
    return Compute(**values)
