"""Transfers between memories, and loads of samples."""

from collections.abc import Mapping

from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.errors import ProgramError
from trainwright.program.fields import (
    LOCAL_WIDTH,
    SAMPLES,
    TRANSFER,
    TRANSFER_LEVELS,
    Operation,
    Target,
)
from trainwright.program.fields_of import plain_values
from trainwright.program.fields_of.addresses import steps_of, strides_of
from trainwright.program.sample_order import order_mask
from trainwright.program.samples import Samples


def fields_of_transfer(d: Transfer) -> dict[str, int]:
    """Fields of a LOAD or STORE: levels from the outermost, padded with single iterations."""
    if len(d.levels) > TRANSFER_LEVELS:
        raise ProgramError(
            f"{d.tensor or d.operation.name}: {len(d.levels)} transfer levels, "
            f"at most {TRANSFER_LEVELS} fit a descriptor"
        )
    levels = (TransferLevel(1),) * (TRANSFER_LEVELS - len(d.levels)) + d.levels
    counts = [level.count for level in levels]
    fields: dict[str, int] = {}
    for name, width in (("address", 32), ("local", LOCAL_WIDTH)):
        steps = steps_of(counts, [getattr(level, name) for level in levels], width)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(steps)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def transfer(operation: Operation, f: Mapping[str, int]) -> Transfer:
    """Return the LOAD or STORE of these fields. Raises ``ProgramError`` for an unknown target."""
    if f["target"] not in (*Target,):
        raise ProgramError(f"{operation.name}: target = {f['target']} is not from 0 to 0")
    counts = [f[f"count{i}"] for i in range(TRANSFER_LEVELS)]
    strides = [
        strides_of(counts, [f[f"{name}_delta{i}"] for i in range(TRANSFER_LEVELS)], width)
        for name, width in (("address", 32), ("local", LOCAL_WIDTH))
    ]
    levels = [TransferLevel(*level) for level in zip(counts, *strides, strict=True)]
    while levels and levels[0].count == 1:
        levels.pop(0)
    return Transfer(levels=tuple(levels), **plain_values(Transfer, TRANSFER, f))


def fields_of_samples(d: Samples) -> dict[str, int]:
    """Return the fields of a load of samples that it has in other units."""
    return {
        "target": int(Target.SCRATCHPAD),
        "pixel_bytes": d.pixels // 8,
        "order_mask": order_mask(d.total),
    }


def samples(f: Mapping[str, int]) -> Samples:
    """Return the load of samples of these fields.

    Raises ``ProgramError`` naming a field's values.
    """
    mask = order_mask(f["total"])
    for name, known in (("target", (0,)), ("pixel_bytes", (0, 1)), ("order_mask", (mask,))):
        if f[name] not in known:
            raise ProgramError(f"SAMPLES: {name} = {f[name]} must be {known[-1]}")
    beats, pixels = f["record_beats"] - 1, 8 if f["pixel_bytes"] else 4
    return Samples(beats=beats, pixels=pixels, **plain_values(Samples, SAMPLES, f))
