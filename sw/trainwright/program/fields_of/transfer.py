"""Transfers between memories, and loads of samples."""

from collections.abc import Mapping

from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.errors import ProgramError
from trainwright.program.fields import LOCAL_WIDTH, TRANSFER_LEVELS, Engine, Operation, Target
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
    fields = {
        "target": int(d.target),
        "element_bytes": d.element_bytes,
        "address": d.address,
        "address_register": d.address_register,
        "local": d.local,
        "local_register": d.local_register,
        "beats": d.beats,
        "eighth": d.eighth,
        "later": int(d.later),
        "last": int(d.last),
    }
    for name, width in (("address", 32), ("local", LOCAL_WIDTH)):
        steps = steps_of(counts, [getattr(level, name) for level in levels], width)
        fields |= {f"{name}_delta{i}": delta for i, delta in enumerate(steps)}
    return fields | {f"count{i}": count for i, count in enumerate(counts)}


def transfer(operation: Operation, wait: Engine, f: Mapping[str, int]) -> Transfer:
    """The LOAD or STORE of these fields. Raises ``ProgramError`` for an unknown target."""
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
    return Transfer(
        operation=operation,
        wait=wait,
        levels=tuple(levels),
        target=Target(f["target"]),
        element_bytes=f["element_bytes"],
        address=f["address"],
        address_register=f["address_register"],
        local=f["local"],
        local_register=f["local_register"],
        beats=f["beats"],
        eighth=f["eighth"],
        later=bool(f["later"]),
        last=bool(f["last"]),
    )


def fields_of_samples(d: Samples) -> dict[str, int]:
    """Fields of a load of samples."""
    same = ("address", "address_register", "local", "local_register", "record_beats", "samples",
            "stride", "targets", "input_bits", "total", "order_first", "order_length")  # fmt: skip
    return {name: getattr(d, name) for name in same} | {
        "target": int(Target.SCRATCHPAD),
        "pixel_bytes": d.pixels // 8,
        "local_step": d.local_step % (1 << LOCAL_WIDTH),
        "drawn": int(d.drawn),
        "order_mask": order_mask(d.total),
    }


def samples(wait: Engine, f: Mapping[str, int]) -> Samples:
    """The load of samples of these fields. Raises ``ProgramError`` naming a field's values."""
    mask, sign = order_mask(f["total"]), 1 << (LOCAL_WIDTH - 1)
    for name, known in (("target", (0,)), ("pixel_bytes", (0, 1)), ("order_mask", (mask,))):
        if f[name] not in known:
            raise ProgramError(f"SAMPLES: {name} = {f[name]} must be {known[-1]}")
    return Samples(
        address=f["address"],
        address_register=f["address_register"],
        local=f["local"],
        local_register=f["local_register"],
        targets=f["targets"],
        samples=f["samples"],
        beats=f["record_beats"] - 1,
        stride=f["stride"],
        local_step=(f["local_step"] ^ sign) - sign,
        total=f["total"],
        pixels=8 if f["pixel_bytes"] else 4,
        input_bits=f["input_bits"],
        drawn=bool(f["drawn"]),
        order_first=f["order_first"],
        order_length=f["order_length"],
        wait=wait,
    )
