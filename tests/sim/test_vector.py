"""Programs with passes of the vector engine on the simulated accelerator: golden = RTL."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from accelerators import ALONE, BUSY

from trainwright.check.comparison import compare_runs
from trainwright.compiler.base.hazards import Hazards
from trainwright.golden.backend import GoldenAccelerator
from trainwright.onchip.loss import KERNELS, batch_loss
from trainwright.program.descriptors import Compute, Halt, Level, Program, Set, Transfer
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Operation
from trainwright.program.footprint import footprint
from trainwright.program.vector import Code
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from vector_cases import Rows, UpdateCase, loss_pass_of, random_passes

MEMORY = 1 << 20
STALLS = MemoryModel(read_latency=17, bandwidth=0.7, stall=0.5, seed=3)


@pytest.fixture(scope="module")
def small() -> Iterator[RtlAccelerator]:
    """Simulate 4 lanes, of which the engine takes 2 at a time."""
    with RtlAccelerator(BUSY, memory_bytes=MEMORY, memory=STALLS) as accelerator:
        yield accelerator


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    """Simulate 16 lanes, which rows of the cases have; compiled for slow tests."""
    with RtlAccelerator(
        replace(ALONE, lanes=16), memory_bytes=MEMORY, memory=STALLS
    ) as accelerator:
        yield accelerator


def program_of(descriptors, rows: Rows, seed: int, p) -> Program:
    """Load each row, compute, and store each row behind its source."""
    beats = 2 * rows.next
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=beats, tensor="in")
    store = replace(load, operation=Operation.STORE, address=MEMORY // 2, tensor="out")
    hazards, waiting = Hazards(), []
    for d in (load, *descriptors, store):
        if not isinstance(d, Code):
            waits = hazards.issue(ENGINE_OF[d.operation], footprint(d, p))
            d = replace(d, **waits._asdict())
        waiting.append(d)
    return Program((Set(values=(), seed=seed), *waiting, Halt()), p.fingerprint)


def compared(rtl, descriptors, rows: Rows, seed: int = 5):
    """Run on both accelerators; return the rows afterwards and the hardware's run."""
    p = rtl.parameters
    program = program_of(descriptors, rows, seed, p)
    words = np.concatenate(rows.words).astype(np.int16)
    with GoldenAccelerator(p, memory_bytes=MEMORY) as golden:
        runs = []
        for accelerator in (golden, rtl):
            accelerator.write(0, np.zeros(MEMORY, np.uint8))
            accelerator.write(0, words.view(np.uint8).ravel())
            runs.append(accelerator.run(program, 4 * MEMORY // 5 // 16 * 16, trace=True))
        comparison = compare_runs(*runs, tuple(map(str, range(p.statistics_depth))))
        assert comparison.mismatches == {}
        size = words.size * 2
        after = [accelerator.read(MEMORY // 2, size) for accelerator in (golden, rtl)]
        assert after[0].tolist() == after[1].tolist()
    return after[1].view(np.int16).reshape(words.shape), runs[1]


@pytest.mark.slow
@pytest.mark.parametrize("loss", list(KERNELS))
def test_vector_loss_batch_is_exact(rtl, loss):
    random = np.random.default_rng(1)
    z = (random.normal(size=(61, 16)) * 5000).astype(np.int64).clip(-32768, 32767)
    labels = random.integers(0, 10, 61)
    rows = Rows([])
    descriptors, to = loss_pass_of(z, labels, 10, -11, rows, loss)
    after, run = compared(rtl, descriptors, rows)
    expected = batch_loss(loss, z, -11, labels, 10)
    assert after[to : to + 61].tolist() == expected.gradient.tolist()
    assert (run.sums[0], run.saturations[0]) == (expected.total, expected.correct)


@pytest.mark.slow
def test_vector_update_of_whole_state_is_exact(rtl):
    case, rows = UpdateCase(2), Rows([])
    descriptors, words, factors = case.passes(rows)
    after, _ = compared(rtl, descriptors, rows, case.stream)
    count = case.layout.rows
    assert (after[factors : factors + count] == case.after["factors"]).all()
    assert (after[words : words + count].astype(np.uint16) == case.after["state"]).all()


def test_passes_among_commands_of_both_arrays(small):
    """Random passes; PE2's vector unit and PE1's array write what they read, and read theirs."""
    random = Random("arrays")
    pad = np.random.default_rng(0).integers(-32768, 32768, (512, BUSY.lanes))
    rows = Rows([])
    rows.put(pad)
    bias = Compute(
        operation=Operation.BIAS, levels=(Level(40, 1, 1, 1),), x=130, g=0, z=60, shift=2, slot=9
    )
    dot = Compute(
        operation=Operation.PE4, levels=(Level(4, x=2, z=4),), x=64, g=130, z=300,
        last_rows=2, x_row_stride=1, z_row_stride=1, g_row_stride=1, shift=20, slot=10,
    )  # fmt: skip
    passes = [random_passes(random, rows=256, passes=4) for _ in range(12)]
    mixed = [d for commands in passes for d in (*commands, bias, dot)]
    compared(small, mixed, rows)
