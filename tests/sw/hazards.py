"""An independent checker of the waits: replays a program and watches who touches what.

Every engine has a queue; a command counts as unfinished until a later descriptor waits for its
engine or, for PE1 and PE2, two more of its engine are issued. A command must not touch what an
unfinished command of another engine writes, nor write what such a command reads; nor may it read
what the unfinished command just before it in its own engine writes. Touched are the exact rows
and bytes, from the descriptors alone.
"""

from collections.abc import Sequence

import numpy as np
from reference import unrolled

from trainwright.compiler import CompiledStep
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Level,
    Transfer,
    TransferLevel,
    is_skipped,
)
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Engine, Operation
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector

ARRAYS = Engine.PE1 | Engine.PE2


class HazardError(AssertionError):
    """A command touches what an engine may still be working on."""


def addresses(base: int, levels: Sequence[Level | TransferLevel], name: str) -> np.ndarray:
    """Return every address of a loop nest."""
    rows = np.array([base])
    for level in levels:
        steps = np.arange(level.count) * getattr(level, name)
        rows = np.unique(rows[:, None] + steps)
    return rows


def _runs(starts: np.ndarray, size: int) -> np.ndarray:
    return np.unique(starts[:, None] + np.arange(size))


def _tiles(d: Compute, base: int, name: str, row_stride: int, rows: int) -> np.ndarray:
    """Return the rows of each tile; the last iteration of the tile level has ``last_rows``."""
    levels, tile = list(d.levels if name == "x" else d.outer), d.tile_level
    count, step = levels[tile].count, getattr(levels[tile], name)
    rest = addresses(base, levels[:tile] + levels[tile + 1 :], name)
    whole = [k * step + r * row_stride for k in range(count - 1) for r in range(rows)]
    last = [(count - 1) * step + r * row_stride for r in range(d.last_rows)]
    return np.unique(rest[:, None] + np.array(whole + last))


Touched = list[tuple[str, np.ndarray, bool]]
"""Space, addresses, whether they are written."""


def touched_by_compute(d: Compute, registers: list[int], p: AcceleratorParameters) -> Touched:
    """Return what a contraction or an element-wise operation reads and writes."""
    x, g, z = (
        getattr(d, name) + registers[getattr(d, f"{name}_register")] for name in ("x", "g", "z")
    )
    count = {Operation.PE3: p.pe2_rows, Operation.PE4: p.pe1_rows}.get(d.operation, 1)
    groups = addresses(g, d.levels, "g")
    digits = -(-(d.out_width - 1) // 7) if p.wide_tensors else 1
    written = ("pad", _runs(_tiles(d, z, "z", d.z_row_stride, count), digits), True)
    if d.operation is Operation.PE4:
        read = ("pad", _tiles(d, x, "x", d.x_row_stride, count), False)
        entries = groups[:, None] + np.arange(p.lanes) * d.g_row_stride
        return [read, ("pad", np.unique(entries), False), written]
    read = ("pad", addresses(x, d.levels, "x"), False)
    second = groups // (p.lanes // p.pe2_rows) if d.operation is Operation.PE3 else groups
    return [read, ("pad", second, False), written]


def touched_by_transfer(d: Transfer, registers: list[int], p: AcceleratorParameters) -> Touched:
    """Return what a load or a store reads and writes, the memory in beats."""
    load = d.operation is Operation.LOAD
    bytes_ = addresses(d.address + registers[d.address_register], d.levels, "address")
    assert not np.any(bytes_ % p.beat_bytes), "transfers start at whole beats"
    outside = ("memory", _runs(bytes_ // p.beat_bytes, d.beats), not load)
    local = addresses(d.local + registers[d.local_register], d.levels, "local")
    count = d.beats * p.beat_bytes // (p.lanes * d.element_bytes)
    return [outside, ("pad", _runs(local, count), load)]


def touched_by_samples(d: Samples, _registers: list[int], p: AcceleratorParameters) -> Touched:
    """Return any records of the set, and rows of pixels and targets."""
    records = d.address // p.beat_bytes + np.arange(d.total) * (d.stride // p.beat_bytes)
    samples = d.local + np.arange(d.samples) * d.local_step
    return [
        ("memory", _runs(records, d.beats + 1), False),
        ("pad", _runs(samples, d.beats * 8 // d.pixels), True),
        ("pad", d.targets + np.arange(d.samples), True),
    ]


def touched_by_pass(d: Vector, _registers: list[int], p: AcceleratorParameters) -> Touched:
    """Return rows of the streams that are read and written."""
    touched: Touched = []
    for number, stream in enumerate(d.streams):
        outer, inner = np.arange(d.outer) * stream.outer, np.arange(d.inner) * stream.inner
        rows = np.unique(stream.base + outer[:, None] + inner)
        touched += [("pad", rows, False)] if d.reads >> number & 1 else []
        touched += [("pad", rows, True)] if d.writes >> number & 1 else []
    return touched


TOUCHED = {
    Compute: touched_by_compute, Transfer: touched_by_transfer, Samples: touched_by_samples,
    Vector: touched_by_pass,
}  # fmt: skip


def check_waits(
    descriptors: Sequence[Descriptor], p: AcceleratorParameters, memory_bytes: int, step: int = 0
) -> int:
    """Replay a program and return the number of commands issued; raise ``HazardError``.

    ``step`` is the number of the repetition. The replay leaves out instructions of the vector
    engine, which touch nothing and execute in order.
    """
    sizes = {"pad": p.scratchpad_rows, "memory": memory_bytes // p.beat_bytes}
    readers = {space: np.zeros(size, np.uint8) for space, size in sizes.items()}
    writers = {space: np.zeros(size, np.uint8) for space, size in sizes.items()}
    commands = 0
    for d, registers in unrolled(descriptors):
        if is_skipped(d, step):
            continue
        if d.wait:
            for masks in (*readers.values(), *writers.values()):
                masks &= np.uint8(~_both(d.wait) & 255)
        if d.wait_older:
            arrays = int(d.wait_older & ARRAYS)
            idle = _both(d.wait_older & ~ARRAYS)
            for masks in (*readers.values(), *writers.values()):
                masks &= np.uint8(~(arrays << 4 | idle) & 255)
        if touch := TOUCHED.get(type(d)):
            commands += 1
            _touch(d, ENGINE_OF[d.operation], touch(d, registers, p), readers, writers)
    return commands


def _both(engine: Engine) -> int:
    """Return bits of an engine's last command and, 4 higher, of its older commands."""
    return int(engine) | int(engine) << 4


def _touch(d, engine: Engine, touched: Touched, readers: dict, writers: dict) -> None:
    foreign = np.uint8(~_both(engine) & 255)
    for space, where, write in touched:
        if write:
            busy = (writers[space][where] | readers[space][where]) & foreign
        else:
            busy = writers[space][where] & (foreign | np.uint8(engine))
        if np.any(busy):
            first = np.flatnonzero(busy)[0]
            raise HazardError(
                f"{d.operation.name} {d.tensor} {'writes' if write else 'reads'} {space} "
                f"{where[first]} while {Engine(int(busy[first] | busy[first] >> 4) & 15).name} may "
                "be at it"
            )
    for masks in (*readers.values(), *writers.values()):
        _age(masks, engine)
    for space, where, write in touched:
        (writers if write else readers)[space][where] |= np.uint8(engine)


def _age(masks: np.ndarray, engine: Engine) -> None:
    """Issue a command: its predecessor becomes older; PE1 and PE2 are done with older ones."""
    last = (masks & np.uint8(engine)) << 4
    if engine & ARRAYS:
        masks &= np.uint8(~_both(engine) & 255)
    else:
        masks &= np.uint8(~int(engine) & 255)
    masks |= last


def check_step_waits(step: CompiledStep) -> int:
    """Check both programs of a step and return the issued commands."""
    return sum(
        check_waits(program.descriptors, step.parameters, step.memory_bytes)
        for program in (step.forward, step.backward)
    )
