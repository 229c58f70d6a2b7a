"""The exponent file, SCALES and repeated programs on the simulated hardware: golden = RTL."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from trainwright.accelerator.interface import Accelerator
from trainwright.check.step import compare_runs
from trainwright.compiler.hazards import Hazards
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Program, Set
from trainwright.program.encoding import encode_descriptors
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import ENGINE_OF, Operation
from trainwright.program.footprint import footprint
from trainwright.program.validation import check_program
from trainwright.program.vector import Code
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from file_cases import random_file, random_scalars, random_scales, random_slots
from nests import filling, random_nest
from vector_cases import random_passes

P = AcceleratorParameters(
    vector_engine=1, exponents=16, stochastic_rounding=1, lanes=4, pe1_rows=2, pe2_rows=2,
    scratchpad_rows=512, pe1_store_depth=128, pe2_store_depth=128, program_depth=32,
    statistics_depth=16, nest_levels=6,
)  # fmt: skip
MEMORY = 1 << 16
PROGRAM = 1 << 15
STALLS = MemoryModel(read_latency=17, bandwidth=0.7, stall=0.5, seed=3)
OPERATIONS = (
    Operation.PE1, Operation.PE2, Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK,
)  # fmt: skip


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY) as accelerator:
        yield accelerator


def ordered(descriptors, p=P) -> Program:
    """With the waits that their rows ask for, and HALT."""
    hazards, found = Hazards(), []
    for d in descriptors:
        if not isinstance(d, Code | Set | MoveScales):
            waits = hazards.issue(ENGINE_OF[d.operation], footprint(d, p))
            d = replace(d, **waits._asdict())
        found.append(d)
    return Program((*found, Halt()), p.fingerprint)


def nest(random: Random, operation: Operation, p=P) -> Compute:
    """A random one that fits the accelerator."""
    while True:
        d = random_slots(random, random_nest(random, operation, p))
        d = replace(d, stochastic=random.random() < 0.3, slot=d.slot % 8)
        try:
            check_program(Program((d, Halt()), p.fingerprint), p)
            return d
        except ProgramError:
            continue


def case(seed: int, p=P):
    """Memory, a random program with everything that the file does, exponents."""
    random = Random(f"resident {seed}")
    memory, loads, store = filling(random, p, random.choice((3, 8, 12)))
    store = replace(store, address=memory.size // p.beat_bytes * p.beat_bytes)
    passes = random_scalars(random, random_passes(random, rows=512, passes=2))
    work = [nest(random, operation, p) for operation in random.sample(OPERATIONS, 6)]
    begin = Set(values=(), seed=random.getrandbits(32), by_step=bool(seed % 3))
    program = ordered(
        [begin, *loads, *work[:3], random_scales(random), *passes, *work[3:],
         random_scales(random), store], p,
    )  # fmt: skip
    whole = np.zeros(PROGRAM, np.uint8)
    whole[: memory.size] = memory
    return whole, program, random_file(random, p.exponents)


def repeated(accelerator, memory, program, exponents, times, step):
    """Memory and program are written, and the program repeated by one start."""
    accelerator.write(0, memory)
    accelerator.write(PROGRAM, np.frombuffer(encode_descriptors(program), np.uint8))
    accelerator.exponents = exponents
    found = {}
    try:
        found["run"] = accelerator.repeat(program, times, address=PROGRAM, step=step, trace=True)
    except ProgramError as error:
        found["error"] = str(error)
    found["memory"] = accelerator.read(0, PROGRAM).tolist()
    found["exponents"] = accelerator.exponents
    return found


def compared(rtl: Accelerator, memory, program, exponents, *, times=1, step=0):
    """The same on golden model and hardware; gives what the hardware left behind."""
    p = rtl.parameters
    with GoldenAccelerator(p, memory_bytes=MEMORY) as golden:
        ours = repeated(golden, memory, program, exponents, times, step)
    found = repeated(rtl, memory, program, exponents, times, step)
    assert found.get("error") == ours.get("error")
    assert found["exponents"] == ours["exponents"]
    assert found["memory"] == ours["memory"]
    if "run" in ours:
        names = tuple(map(str, range(p.statistics_depth)))
        assert compare_runs(ours["run"], found["run"], names).mismatches == {}
    return found


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(rtl, seed):
    memory, program, exponents = case(seed)
    rtl.memory = STALLS if seed % 2 else MemoryModel()
    times = 1 + seed % 4
    compared(rtl, memory, program, exponents, times=times, step=(1 << 32) - 2 + seed // 2)
