"""The exponent file, SCALES and repeated programs on the simulated hardware: golden = RTL."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from accelerators import ALONE, BUSY

from trainwright.accelerator import Accelerator, AcceleratorError, registers
from trainwright.check.comparison import compare_runs
from trainwright.check.training import check_training
from trainwright.compiler.base.compiled import AUTO, SMALL
from trainwright.compiler.base.hazards import Hazards
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
    is_skipped,
)
from trainwright.program.encoding import encode_descriptors
from trainwright.program.engines import ENGINE_OF
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MoveScales, Scalar, ScalarKind, ScaleEntry
from trainwright.program.fields import EIGHTH, Engine, Operation
from trainwright.program.footprint import footprint
from trainwright.program.validation import check_program
from trainwright.program.vector import Code, Instruction, Kind, Vector
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.board import SimulatedBoard
from trainwright_sim.memory import MemoryModel

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from file_cases import (
    random_file,
    random_scalars,
    random_scales,
    random_slots,
    random_turn,
    random_turns,
)
from nests import filling, random_nest
from vector_cases import random_passes

P = BUSY
MEMORY = 1 << 16
PROGRAM = 1 << 15
STALLS = MemoryModel(read_latency=17, bandwidth=0.7, stall=0.5, seed=3)
OPERATIONS = (Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK)


@pytest.fixture(scope="module")
def rtl() -> Iterator[RtlAccelerator]:
    with RtlAccelerator(P, memory_bytes=MEMORY) as accelerator:
        yield accelerator


def ordered(descriptors, p=P) -> Program:
    """Add the waits that rows ask for, whatever is left out, and HALT."""
    hazards, waiting = [Hazards() for _ in range(EIGHTH)], []
    for d in descriptors:
        if not isinstance(d, Code | Set | MoveScales):
            for step, tracker in enumerate(hazards):
                if is_skipped(d, step):
                    continue
                waits = tracker.issue(ENGINE_OF[d.operation], footprint(d, p))
                wait, older = d.wait | waits.wait, d.wait_older | waits.wait_older
                d = replace(d, wait=wait, wait_older=older)
        waiting.append(d)
    return Program((*waiting, Halt()), p.fingerprint)


def nest(random: Random, operation: Operation, p=P) -> Compute:
    """Draw a random nest that fits the accelerator."""
    while True:
        d = random_slots(random, random_nest(random, operation, p))
        d = replace(d, stochastic=random.random() < 0.3, slot=d.slot % 8)
        try:
            check_program(Program((d, Halt()), p.fingerprint), p)
            return d
        except ProgramError:
            continue


def case(seed: int, p=P):
    """Return memory, exponents and a random program that uses every part of the file."""
    random = Random(f"resident {seed}")
    memory, load, store = filling(random, p, random.choice((3, 8, 12)))
    store = replace(store, address=memory.size // p.beat_bytes * p.beat_bytes)
    passes = random_scalars(random, random_passes(random, rows=512, passes=2))
    passes = random_turns(random, passes) if p.vector_engine else []
    work = [nest(random, operation, p) for operation in random.sample(OPERATIONS * 2, 6)]
    begin = Set(values=(), seed=random.getrandbits(32), by_step=bool(seed % 3))
    program = ordered(
        [begin, load, *work[:3], random_scales(random), *passes, *work[3:],
         random_scales(random), replace(store, **random_turn(random)), store], p,
    )  # fmt: skip
    whole = np.zeros(PROGRAM, np.uint8)
    whole[: memory.size] = memory
    return whole, program, random_file(random, p.exponents)


def repeated(accelerator, memory, program, exponents, times, step):
    """Write memory and program, and repeat the program by one start."""
    accelerator.write(0, memory)
    accelerator.write(PROGRAM, np.frombuffer(encode_descriptors(program), np.uint8))
    accelerator.exponents = exponents
    outputs = {}
    try:
        outputs["run"] = accelerator.repeat(program, times, address=PROGRAM, step=step, trace=True)
    except ProgramError as error:
        outputs["error"] = str(error)
    outputs["memory"] = accelerator.read(0, PROGRAM).tolist()
    outputs["exponents"] = accelerator.exponents
    return outputs


def compared(rtl: Accelerator, memory, program, exponents, *, times=1, step=0):
    """Run on golden model and hardware, compare, and return what the hardware left behind."""
    p = rtl.parameters
    with GoldenAccelerator(p, memory_bytes=MEMORY) as golden:
        ours = repeated(golden, memory, program, exponents, times, step)
    theirs = repeated(rtl, memory, program, exponents, times, step)
    assert theirs.get("error") == ours.get("error")
    assert theirs["exponents"] == ours["exponents"]
    assert theirs["memory"] == ours["memory"]
    if "run" in ours:
        names = tuple(map(str, range(p.statistics_depth)))
        assert compare_runs(ours["run"], theirs["run"], names).mismatches == {}
    return theirs


@pytest.mark.parametrize("seed", range(12))
def test_resident_random_programs_are_exact(rtl, seed):
    memory, program, exponents = case(seed)
    rtl.memory = STALLS if seed % 2 else MemoryModel()
    times = (1, 2, 9, 4)[seed % 4]
    compared(rtl, memory, program, exponents, times=times, step=(1 << 32) - 2 + seed // 2)


@pytest.mark.parametrize("step", (0, 1, 6))
def test_resident_first_descriptor_of_some_steps_is_executed_in_these(rtl, step):
    """The number of the step is known when the first descriptor arrives, after HALT as at start."""
    rtl.memory = MemoryModel()
    memory, program, exponents = case(3)
    first = Transfer(operation=Operation.LOAD, address=0, local=0, beats=4, eighth=8)
    second = replace(first, address=64, local=4, eighth=4)
    program = replace(program, descriptors=(first, second, *program.descriptors))
    compared(rtl, memory, program, exponents, times=4, step=step)


def test_resident_program_beyond_memory_is_reloaded(rtl):
    memory, program, exponents = case(20)
    *body, store, halt = program.descriptors
    more = [random_scales(Random(n)) for n in range(2 * P.program_depth - len(body))]
    program = replace(program, descriptors=(*body, *more, store, halt))
    assert len(program.descriptors) > P.program_depth
    rtl.memory = STALLS
    compared(rtl, memory, program, exponents, times=3)


@pytest.mark.parametrize("length", range(P.program_depth - 1, P.program_depth + 11))
def test_resident_program_of_any_length_restarts_exactly(rtl, length):
    """First descriptors follow the last ones; each step reads and writes the same rows."""
    memory, program, exponents = case(24)
    *body, store, halt = program.descriptors
    more = [Set(values=((1, n),)) for n in range(length - len(body) - 2)]
    program = replace(program, descriptors=(*body, *more, store, halt))
    assert len(program.descriptors) == length
    rtl.memory = STALLS if length % 2 else MemoryModel()
    compared(rtl, memory, program, exponents, times=5, step=length)


@pytest.mark.parametrize("seed", range(3))
def test_resident_random_stream_restarts_each_repetition(rtl, seed):
    """Without a seed, each repetition rounds by the same random bits."""
    memory, program, exponents = case(seed + 30)
    descriptors = tuple(
        replace(d, stochastic=True) if isinstance(d, Compute) else d
        for d in program.descriptors[1:]
    )
    compared(rtl, memory, replace(program, descriptors=descriptors), exponents, times=3)


def test_resident_run_after_repetitions_is_single(rtl):
    memory, program, exponents = case(21)
    compared(rtl, memory, program, exponents, times=2, step=9)
    with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
        runs = []
        for accelerator in (golden, rtl):
            accelerator.write(0, memory)
            accelerator.exponents = exponents
            runs.append(accelerator.run(program, PROGRAM, trace=True))
        assert compare_runs(*runs, tuple(map(str, range(16)))).mismatches == {}
        assert golden.exponents == rtl.exponents
    assert rtl.read_register(registers.STEP) == 1


def bias(x: int, g: int, z: int) -> Compute:
    return Compute(
        operation=Operation.BIAS, levels=(Level(1),), x=0, g=1, z=2, tensor="sum", slot=1,
        x_exponent=x, g_exponent=g, z_exponent=z,
    )  # fmt: skip


LANE = Code(first=0, instructions=(Instruction(kind=Kind.LANE, keep=True),))
UP = MoveScales(entries=(ScaleEntry(4, 2, 0, 0), ScaleEntry(1, 1, 0, 0, copy=5)))


def strict(plus: int, minus: int) -> Vector:
    return Vector(
        entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0, tensor="pass",
        scalars=(Scalar(ScalarKind.SHIFT, 0, plus, minus, strict=True),),
    )  # fmt: skip


def up(x: int) -> list[int]:
    """Return exponents whose first passes the greatest at the third repetition."""
    return [0, x, *[0] * 14]


@pytest.mark.parametrize(
    ("descriptors", "exponents", "message"),
    [
        ((bias(1, 1, 3), UP), up(125), "slot 1: an exponent of 128 is not from -128 to 127"),
        ((bias(1, 1, 3), bias(1, 2, 6), UP), up(13), "sum: exponents 16 and 0 of its operands are"),
        (
            (bias(1, 1, 3), replace(bias(1, 6, 7), operation=Operation.PE3), UP),
            [0, 60, 0, 0, 0, 0, 66, *[0] * 9], "sum: an exponent of 128 is not",
        ),
        (
            (LANE, bias(1, 1, 3), strict(8, 1), UP), [0, 60, *[0] * 6, 62, *[0] * 7],
            "pass: the exponent 62 of slot 8 and the exponent 63 of slot 1 are beyond the range",
        ),
    ],
)  # fmt: skip
def test_resident_exponent_error_ends_run(rtl, descriptors, exponents, message):
    """Message, exponents and memory equal the golden model's at the fourth repetition.

    Afterwards the accelerator goes on without a reset.
    """
    rtl.memory = MemoryModel()
    memory = np.arange(PROGRAM, dtype=np.uint32).astype(np.uint8)
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=16)
    store = replace(load, operation=Operation.STORE, address=1024, beats=6)
    program = ordered([load, *descriptors, store])
    for _ in range(2):
        outputs = compared(rtl, memory, program, exponents, times=9)
        assert message in outputs["error"]
        assert rtl.read_register(registers.STEP) in (2, 3)
    compared(rtl, *case(3), times=2)


def test_resident_run_after_reset_is_exact(rtl, monkeypatch):
    """Reset in a contraction, in the file's work, and at a new beginning."""
    memory, program, exponents = case(5)
    for cycles in range(700, 1900, 171):
        with monkeypatch.context() as patch:
            patch.setattr(rtl, "_max_cycles", cycles)
            with pytest.raises(AcceleratorError, match="not done after"):
                repeated(rtl, memory, program, exponents, 9, 0)
        compared(rtl, memory, program, exponents, times=2, step=3)


def test_resident_host_reads_state_while_running(rtl, monkeypatch):
    """Host reads step number, exponents and statistics in the middle.

    Writes of the host are ignored until the run is over.
    """
    memory, program, exponents = case(6)
    seen = []

    def look(_cycles: int) -> None:
        seen.append(rtl.read_register(registers.STEP))
        rtl.write_register(registers.EXPONENTS_BASE + 4, 99)
        rtl.write_register(registers.STEP, 1000)
        for slot in range(8):
            rtl.read_register(registers.STATISTICS_BASE + 16 * slot)
            rtl.read_register(registers.EXPONENTS_BASE + 4 * slot)

    monkeypatch.setattr("trainwright_sim.backend.CYCLES_A_CALL", 300)
    monkeypatch.setattr(rtl, "_on_cycles", look)
    compared(rtl, memory, program, exponents, times=5, step=40)
    assert seen == sorted(seen) and set(seen) == {40, 41, 42, 43, 44}
    assert rtl.read_register(registers.STEP) == 45


def test_traced_runs_of_a_design_without_traces_go_on(rtl):
    """Exponents move to the other simulation and back."""
    memory, program, exponents = case(9)
    with RtlAccelerator(P, memory_bytes=MEMORY) as other:
        simulators = [machine._simulator(True) for machine in (rtl, other)]
        rtl._traced, rtl._simulators[False] = False, simulators[1]
        try:
            rtl.exponents = exponents
            rtl.write(0, memory)
            rtl.write(PROGRAM, np.frombuffer(encode_descriptors(program), np.uint8))
            rtl.repeat(program, 1, address=PROGRAM, trace=True)
            with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
                repeated(golden, memory, program, exponents, 1, 0)
                assert rtl.exponents == golden.exponents != exponents
        finally:
            rtl._traced = True
            del rtl._simulators[False]


def test_resident_bad_repetition_or_exponents_are_rejected(rtl):
    _, program, _ = case(7)
    for times in (0, 1 << 32):
        with pytest.raises(ProgramError, match="a program runs 1 to 2"):
            rtl.repeat(program, times, address=PROGRAM)
    rtl.write(PROGRAM, np.zeros(128, np.uint8))
    with pytest.raises(ValueError, match="the program does not lie at"):
        rtl.repeat(program, 1, address=PROGRAM)
    for wrong in ([1] + [0] * 15, [0] * 15, [0, 128, *[0] * 14]):
        with pytest.raises(ProgramError):
            rtl.exponents = wrong
    rtl.write_register(registers.EXPONENTS_BASE, 5)
    assert rtl.exponents[0] == 0 and len(rtl.exponents) == 16


@pytest.mark.slow
def test_resident_repeats_without_vector_engine():
    """Scales and repetitions work, here in a loop, without a stream of random bits."""
    p = replace(P, vector_engine=0, engine_lanes=0, stochastic_rounding=0, exponents=64)
    with RtlAccelerator(p, memory_bytes=MEMORY, memory=STALLS) as rtl:
        for seed in range(8):
            memory, program, exponents = case(seed, p)
            _, *body = [replace(d, stochastic=False) if isinstance(d, Compute) else d
                        for d in program.descriptors]  # fmt: skip
            wait = Engine.ALL
            looped = (Loop(iterations=2), *body[3:-2], End(wait=wait), *body[-2:])
            program = replace(program, descriptors=(*body[:3], *looped))
            compared(rtl, memory, program, exponents, times=3)


@pytest.mark.slow
def test_resident_board_repeats_as_golden_model():
    """Host link of a simulated board carries exponents, steps and errors."""
    with SimulatedBoard(P, memory_bytes=MEMORY) as board:
        for seed in range(3):
            memory, program, exponents = case(seed)
            with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
                both = []
                for accelerator in (golden, board):
                    accelerator.write(0, memory)
                    accelerator.write(PROGRAM, np.frombuffer(encode_descriptors(program), np.uint8))
                    accelerator.exponents = exponents
                    try:
                        run = accelerator.repeat(program, 3, address=PROGRAM, step=seed)
                        both.append((run.sums.tolist(), run.saturations.tolist()))
                    except ProgramError as error:
                        both.append(str(error))
                assert both[0] == both[1]
                assert golden.exponents == board.exponents
                assert (golden.read(0, PROGRAM) == board.read(0, PROGRAM)).all()
            assert isinstance(both[0], str) or board.step == seed + 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "batch", "stalled"), [(((5,), (7,)), 16, True), (((9,), (5,)), 32, False)]
)
@pytest.mark.parametrize("plan", [AUTO, SMALL])
def test_steps_by_one_start(ranks, batch, stalled, plan):
    """Samples, schedule, forward, loss, backward, update, scales: every row, state and exponent."""
    memory = STALLS if stalled else MemoryModel()
    with RtlAccelerator(ALONE, memory_bytes=1 << 20, memory=memory) as rtl:
        network = load_network("digits").with_ranks(ranks)
        result = check_training(network, batch, rtl, seed=3, plan=plan)
    assert result.comparison.mismatches == {} and result.host_writes == 0


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [8, 4])
def test_steps_by_one_start_of_few_lanes_equal_golden(lanes):
    p = AcceleratorParameters(
        vector_engine=1, engine_lanes=2, exponents=64, sample_loads=1, lanes=lanes, pe1_rows=2,
        pe2_rows=2,
    )  # fmt: skip
    with RtlAccelerator(p, memory_bytes=1 << 20) as rtl:
        network = load_network("digits").with_ranks([[5], [7]])
        result = check_training(network, 6, rtl, seed=3)
    assert result.comparison.mismatches == {} and result.host_writes == 0
