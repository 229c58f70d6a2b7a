"""Programs that keep all engines busy at once, on memories from fast to hardly alive."""

import random
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from accelerators import BUSY
from slowly import mostly_slow

from trainwright.accelerator import AcceleratorError
from trainwright.compiler.base.hazards import Hazards
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Transfer,
    TransferLevel,
)
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Engine, Operation
from trainwright.program.footprint import Touch, footprint
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

P = BUSY
MEMORY_BYTES = 1 << 16
PROGRAM = 0xC000
ROWS = P.scratchpad_rows
COMPUTE = (Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK)


def _reference():
    """Return the interpreter of the tests of ``sw``: descriptor by descriptor, word by word."""
    path = Path(__file__).parents[1] / "sw" / "reference.py"
    spec = spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ReferenceAccelerator(P, memory_bytes=MEMORY_BYTES)


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY_BYTES, hang_cycles=30_000) as accelerator:
        yield accelerator


def random_compute(rng: random.Random, slot: int) -> Compute:
    """Draw a command of random operands anywhere, and results anywhere else."""
    operation = rng.choice(COMPUTE)
    elementwise = operation in (Operation.BIAS, Operation.MASK)
    by_entries = operation is Operation.PE4
    rows = 1 if elementwise else P.pe1_rows if by_entries else P.pe2_rows
    tiles, last = rng.randint(1, 4), rng.randint(1, rows)
    reduction = 1 if elementwise else rng.choice((1, 2, 5, 9))
    groups = P.lanes // P.pe2_rows if operation is Operation.PE3 else 1
    entry_span = 3 * P.lanes if by_entries else 1
    g = rng.randrange(ROWS * groups - entry_span - 3 * reduction - 4 * tiles)
    levels = (Level(tiles, x=rng.randint(0, 3), g=rng.randint(0, 4), z=rows),)
    if not elementwise:
        levels += (Level(reduction, x=rng.randint(0, 5), g=rng.randint(0, 3)),)
    d = Compute(
        operation=operation,
        levels=levels,
        x=rng.randrange(ROWS - 9 * rows - 12 - 5 * reduction),
        g=g,
        z=rng.randrange(ROWS - tiles * rows),
        reduce_levels=0 if elementwise else 1,
        last_rows=last,
        x_row_stride=rng.randint(0, 9) if by_entries else 0,
        z_row_stride=1,
        g_row_stride=rng.randint(0, 3) if by_entries else 0,
        shift=rng.choice((0, 4, 12, 20)),
        out_width=rng.choice((8, 16)),
        slot=slot,
        relu=rng.random() < 0.5,
        x_shift=rng.randrange(8),
        g_shift=rng.randrange(8),
    )
    *read, written = footprint(d, P)
    return random_compute(rng, slot) if any(map(written.overlaps, read)) else d


def random_transfer(rng: random.Random) -> Transfer:
    """Draw a load or a store of a few runs, below the program."""
    beats, runs = 2 * rng.randint(1, 24), rng.randint(1, 3)
    size = beats * P.beat_bytes
    element_bytes = rng.choice((1, 2))
    rows = beats // element_bytes
    return Transfer(
        operation=rng.choice((Operation.LOAD, Operation.STORE)),
        address=rng.randrange((PROGRAM - runs * size) // 16) * 16,
        local=rng.randrange(ROWS - runs * rows),
        beats=beats,
        levels=(TransferLevel(runs, size, rows),) if runs > 1 else (),
        element_bytes=element_bytes,
    )


def touches(d: Compute | Transfer) -> tuple:
    """Return the rows that a descriptor touches; external memory counts as one whole."""
    if isinstance(d, Compute):
        return footprint(d, P)
    local = footprint(d, P)[0]
    outside = Touch("memory", 0, 1, not local.write)
    return local, outside


def random_program(rng: random.Random) -> Program:
    """Load everything, then draw anything, with every needed wait and no other."""
    fill = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS)
    body = [
        random_compute(rng, slot) if rng.random() < 0.7 else random_transfer(rng)
        for slot in range(50)
    ]
    program: list[Descriptor] = []
    hazards = Hazards()
    for number, d in enumerate([fill, *body]):
        if number == 1:
            hazards = Hazards()
            program.append(Loop(iterations=rng.randint(1, 3), wait=Engine.ALL))
        program.append(replace(d, **hazards.issue(ENGINE_OF[d.operation], touches(d))._asdict()))
    return Program((*program, End(wait=Engine.ALL), Halt()), P.fingerprint)


def random_memory(rng: random.Random) -> MemoryModel:
    channels = ("aw", "w", "b", "ar", "r")
    return MemoryModel(
        read_latency=rng.randint(5, 200),
        write_latency=rng.randint(5, 200),
        bandwidth=rng.choice((0.1, 0.5, 0.8, 2.0)),
        outstanding=rng.choice((1, 2, 8, 32)),
        stall={name: rng.choice((0.0, 0.3, 0.9)) for name in channels},
        seed=rng.randint(1, 1 << 30),
    )


@mostly_slow("seed", range(300), quick=range(12))
def test_nothing_hangs_and_every_bit_is_right(rtl, seed):
    """Rows in the order of writing, statistics and memory, against the literal interpreter."""
    rng = random.Random(f"stress {seed}")
    # small words, so that no sum leaves the accumulators whatever is multiplied by whatever
    words = np.random.default_rng(seed).integers(-(1 << 12), 1 << 12, MEMORY_BYTES // 2)
    data = words.astype("<i2").view(np.uint8)
    program, reference = random_program(rng), _reference()
    rtl.memory = random_memory(rng)
    for accelerator in (rtl, reference):
        accelerator.write(0, data)
    got = rtl.run(program, PROGRAM, trace=True)
    want = reference.run(program, PROGRAM, trace=True)
    for engine, trace in want.traces.items():
        assert got.traces[engine].addresses.tolist() == trace.addresses.tolist(), engine
        assert np.array_equal(got.traces[engine].rows, trace.rows), engine
    assert got.sums.tolist() == want.sums.tolist()
    assert got.saturations.tolist() == want.saturations.tolist()
    assert np.array_equal(rtl.read(0, PROGRAM), reference.read(0, PROGRAM))


DEAD = MemoryModel(read_latency=10_000, write_latency=10_000)


def test_rtl_dead_memory_is_named(rtl):
    """STORE waits for a response, and the sequencer for STORE; afterwards all works again."""
    store = Transfer(operation=Operation.STORE, address=0x100, local=0, beats=4, tensor="l1.y")
    nop = Compute(operation=Operation.MASK, levels=(Level(1),), x=0, g=0, z=5, wait=Engine.STORE)
    program = Program((Loop(iterations=1), store, replace(nop, tensor="l1.dx"), End(), Halt()),
                      P.fingerprint)  # fmt: skip
    with RtlAccelerator(P, memory_bytes=MEMORY_BYTES, hang_cycles=3000) as impatient:
        impatient.memory = replace(DEAD, read_latency=40)
        message = (
            r"stopped at descriptor 2 \(MASK l1.dx\): error 6, nothing moved .*; "
            r"STORE hangs, at descriptor 1 \(STORE l1.y\) or before$"
        )
        with pytest.raises(AcceleratorError, match=message):
            impatient.run(program, PROGRAM)
        impatient.memory = replace(DEAD, write_latency=40)
        message = r"descriptor 0 \(LOOP\): error 6, .*; LOAD hangs, at descriptor 0 \(LOOP\)"
        with pytest.raises(AcceleratorError, match=message):
            impatient.run(program, PROGRAM)
        impatient.memory = MemoryModel()
        assert impatient.run(program, PROGRAM).counters.cycles < 1000
