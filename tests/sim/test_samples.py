"""Samples by address on the simulated hardware: the same rows and order as the golden model."""

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError
from trainwright.golden.backend import GoldenAccelerator
from trainwright.onchip import samples as definition
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import End, Halt, Loop, Program, Set
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Engine
from trainwright.program.samples import Samples
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

pytestmark = pytest.mark.slow

P = AcceleratorParameters(
    pe1_rows=2, pe2_rows=2, scratchpad_rows=2048, program_depth=64, statistics_depth=16,
    sample_loads=1,
)  # fmt: skip
TOTAL, BATCH, SEED, BASE = 37, 4, 3, 8192


@pytest.fixture(scope="module")
def accelerators():
    with (
        RtlAccelerator(P, memory_bytes=1 << 16) as rtl,
        GoldenAccelerator(P, memory_bytes=1 << 16) as golden,
    ):
        yield golden, rtl


@pytest.mark.parametrize("width, stalled", ((4, False), (8, True)))
def test_batches_of_epochs(accelerators, width, stalled):
    """Batches by a loop, past the end of an epoch; registers carry the order from run to run."""
    golden, rtl = accelerators
    rtl.memory = MemoryModel(read_latency=40, stall=0.3) if stalled else MemoryModel()
    random = np.random.default_rng(width)
    pixels = random.integers(0, 1 << width, (TOTAL, 50)).astype(np.uint8)
    records = definition.records(pixels, random.integers(0, 10, TOTAL), width, 10)
    beats = records.shape[1] // P.beat_bytes - 1
    d = Samples(
        address=BASE, local=0, local_register=1, targets=1900, samples=BATCH, beats=beats,
        stride=records.shape[1], local_step=9, total=TOTAL, pixels=width, drawn=True,
        order_first=definition.first_of(TOTAL, SEED), order_length=36,
    )  # fmt: skip
    body = (Set(values=((1, 5),)), Loop(iterations=5), d, End(steps=((1, 100),), wait=Engine.ALL))
    program = Program((*body, Halt()), P.fingerprint)
    for accelerator in accelerators:
        accelerator.write(BASE, records)
        accelerator.order = definition.order_at(TOTAL, BATCH, SEED, 0)
    for run in range(1, 5):
        runs = [accelerator.run(program, 0, trace=True) for accelerator in accelerators]
        traces = [run.traces["load"] for run in runs]
        assert (traces[0].addresses == traces[1].addresses).all()
        assert (traces[0].rows == traces[1].rows).all()
        assert golden.order == rtl.order == definition.order_at(TOTAL, BATCH, SEED, 5 * run)


def test_samples_beyond_memory_are_one_error(accelerators):
    """A set that is too big: one error, whatever executes it."""
    d = Samples(address=BASE, local=0, targets=99, samples=4, beats=2, stride=48, local_step=2,
                total=5000, drawn=True, order_length=5000)  # fmt: skip
    program = Program((d, Halt()), P.fingerprint)
    texts = []
    for accelerator in accelerators:
        with pytest.raises(ProgramError) as error:
            accelerator.run(program, 0)
        texts.append(str(error.value))
    assert texts[0] == texts[1]
    assert "bytes 8192 to 248191 are outside of a memory of 65536 bytes" in texts[0]


def test_registers_are_there_where_samples_are(accelerators):
    plain = object.__new__(RtlAccelerator)
    plain._parameters = AcceleratorParameters()
    plain._simulator = lambda trace: None  # type: ignore[method-assign]
    plain._traced = False
    with pytest.raises(AcceleratorError, match="use one with sample_loads=1"):
        _ = plain.order
