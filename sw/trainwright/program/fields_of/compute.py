"""Contractions, and the commands of the vector unit."""

from collections.abc import Mapping

from trainwright.program.descriptors import Compute, Level
from trainwright.program.errors import ProgramError
from trainwright.program.fields import LOCAL_WIDTH, NEST_LEVELS, Engine, Operation
from trainwright.program.fields_of.addresses import steps_of, strides_of


def fields_of_compute(d: Compute) -> dict[str, int]:
    """Fields of a command: levels from the outermost, padded with single iterations."""
    if len(d.levels) > NEST_LEVELS:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: {len(d.levels)} loop levels, "
            f"at most {NEST_LEVELS} fit a descriptor"
        )
    pad = NEST_LEVELS - len(d.levels)
    levels = (Level(1),) * pad + d.levels
    counts = [level.count for level in levels]
    fields = {
        "x_base": d.x,
        "x_register": d.x_register,
        "g_base": d.g,
        "g_register": d.g_register,
        "z_base": d.z,
        "z_register": d.z_register,
        "x_row_stride": d.x_row_stride % (1 << LOCAL_WIDTH),
        "z_row_stride": d.z_row_stride % (1 << LOCAL_WIDTH),
        "g_row_stride": d.g_row_stride % (1 << LOCAL_WIDTH),
        "reduce_levels": d.reduce_levels,
        "tile_level": d.tile_level + pad,
        "last_rows": d.last_rows,
        "shift": d.shift,
        "out_width": d.out_width,
        "slot": d.slot,
        "relu": int(d.relu),
        "x_shift": d.x_shift,
        "g_shift": d.g_shift,
        "stochastic": int(d.stochastic),
        "x_format": d.x_format,
        "g_format": d.g_format,
        "z_format": d.z_format,
        # words that go by digits are no posits
        "underflow_zero": int(d.underflow_zero or d.digits == 2),
        "digits": int(d.digits > 0),
        "x_exponent": d.x_exponent,
        "g_exponent": d.g_exponent,
        "z_exponent": d.z_exponent,
        "exact": int(d.exact),
        "grows": int(d.grows),
    }
    for name in ("x", "g", "z"):
        steps = steps_of(counts, [getattr(level, name) for level in levels], LOCAL_WIDTH)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(steps)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def compute(operation: Operation, wait: Engine, f: Mapping[str, int]) -> Compute:
    """The command of these fields. Raises ``ProgramError`` where levels overlap."""
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
    levels = tuple(Level(*level) for level in zip(counts, *strides, strict=True))[pad:]
    signed = {
        name: f[name] - (1 << LOCAL_WIDTH) * (f[name] >> (LOCAL_WIDTH - 1))
        for name in ("x_row_stride", "z_row_stride", "g_row_stride")
    }
    return Compute(
        operation=operation,
        wait=wait,
        levels=levels,
        x=f["x_base"],
        x_register=f["x_register"],
        g=f["g_base"],
        g_register=f["g_register"],
        z=f["z_base"],
        z_register=f["z_register"],
        x_row_stride=signed["x_row_stride"],
        z_row_stride=signed["z_row_stride"],
        g_row_stride=signed["g_row_stride"],
        reduce_levels=f["reduce_levels"],
        tile_level=f["tile_level"] - pad,
        last_rows=f["last_rows"],
        shift=f["shift"],
        out_width=f["out_width"],
        slot=f["slot"],
        relu=bool(f["relu"]),
        x_shift=f["x_shift"],
        g_shift=f["g_shift"],
        stochastic=bool(f["stochastic"]),
        x_format=f["x_format"],
        g_format=f["g_format"],
        z_format=f["z_format"],
        underflow_zero=bool(f["underflow_zero"]) and not f["digits"],
        digits=f["digits"] + (f["digits"] & f["underflow_zero"]),
        x_exponent=f["x_exponent"],
        g_exponent=f["g_exponent"],
        z_exponent=f["z_exponent"],
        exact=bool(f["exact"]),
        grows=bool(f["grows"]),
    )
