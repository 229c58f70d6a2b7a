"""Passes of the vector engine on the golden model: equal to the definitions of ``onchip``."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from cases import without_names
from vector_cases import Rows, UpdateCase, loss_pass_of, random_passes

from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.interpreter import Record, executions
from trainwright.golden.state import MachineState
from trainwright.kernels import lower
from trainwright.onchip import prior, schedule
from trainwright.onchip.loss import KERNELS, batch_loss
from trainwright.onchip.update import PartUpdate
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import End, Halt, Loop, Program, Set, Transfer
from trainwright.program.encoding import decode, encode
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile
from trainwright.program.fields import Operation
from trainwright.program.listing import listing
from trainwright.program.vector import Addend, Code, Instruction, Kind, Memory, Stream, Vector

P = AcceleratorParameters(vector_engine=1)


def executed(descriptors, rows: Rows, stream: int = 0):
    """State and statistics after ``descriptors`` on a scratchpad that holds ``rows``."""
    state = MachineState.fresh(np.zeros(0, np.uint8), P)
    state.write(np.arange(rows.next), np.concatenate(rows.words).astype(np.int16))
    state.stream, state.file = stream, ExponentFile(1)
    sums = np.zeros((3, P.statistics_depth), np.int64)
    record = Record(sums)
    assert list(executions(descriptors, state, record, P))
    return state, record


LOGITS = [
    *(("cross-entropy", exponent) for exponent in (0, -3, -9, -11, -14, -20, -60, -70)),
    *(("squared-error", exponent) for exponent in (9, 4, 3, 0, -9, -11, -12, -13, -20, -60, -70)),
]


def logits(exponent, samples):
    random = np.random.default_rng([samples, 100 - exponent])
    classes = int(random.integers(2, 17))
    z = random.normal(size=(samples, 16)) * 2.0 ** random.uniform(0, 15, (samples, 1))
    z = z.astype(np.int64).clip(-32768, 32767)
    if samples == 7:
        z[:] = z[:, :1]  # all logits alike
    return z, random.integers(0, classes, samples), classes


@pytest.mark.parametrize(("loss", "exponent"), LOGITS)
@pytest.mark.parametrize("samples", [1, 7, 64])
def test_vector_passes_loss_is_that_of_its_definition(loss, exponent, samples):
    z, labels, classes = logits(exponent, samples)
    rows = Rows([])
    descriptors, to = loss_pass_of(z, labels, classes, exponent, rows, loss)
    state, record = executed(descriptors, rows)
    expected = batch_loss(loss, z, exponent, labels, classes)
    assert state.pad[to : to + samples].tolist() == expected.gradient.tolist()
    assert tuple(record.statistics[:2, 0]) == (expected.total, expected.correct)


@pytest.mark.parametrize(("loss", "exponent"), LOGITS)
def test_counting_leaves_rows_without_a_label_out(loss, exponent):
    """And writes nothing."""
    z, labels, classes = logits(exponent, 64)
    chosen = labels < classes // 2
    rows = Rows([])
    descriptors, _ = loss_pass_of(
        z, np.where(chosen, labels, -1), classes, exponent, rows, loss, counting=True
    )
    before = np.concatenate(rows.words)
    state, record = executed(descriptors, rows)
    expected = batch_loss(loss, z[chosen], exponent, labels[chosen], classes)
    assert tuple(record.statistics[:2, 0]) == (expected.total, expected.correct)
    assert 0 < chosen.sum() < 64 and (state.pad[: len(before)] == before).all()


@pytest.mark.parametrize(("seed", "weight"), [(0, 200), (1, 200), (2, 200), (3, 0)])
def test_vector_passes_update_is_that_of_its_definition(seed, weight):
    case = UpdateCase(seed, weight=weight)
    rows = Rows([])
    descriptors, words, factors = case.passes(rows)
    state, _ = executed(descriptors, rows, case.stream)
    count = case.layout.rows
    assert (state.pad[factors : factors + count] == case.after["factors"]).all()
    stored = state.pad[words : words + count].astype(np.uint16)
    assert (stored == case.after["state"]).all()
    assert (stored != case.before["state"]).any()


def program_of(*descriptors) -> Program:
    return Program((*descriptors, Halt()), P.fingerprint)


@pytest.mark.parametrize("seed", range(3))
def test_vector_passes_round_trip(seed):
    program = program_of(*random_passes(Random(f"round trip {seed}")))
    data = encode(program)
    assert decode(data, P) == without_names(program)
    assert encode(decode(data, P)) == data
    text = listing(program)
    assert "VECTOR random: 5 to" in text and "CODE" in text


CODE = Code(first=0, instructions=(Instruction(kind=Kind.LANE, keep=True),))
PASS = Vector(entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0, tensor="v")
READ = Instruction(memory=Memory.READ, stream=1)
WRITE = Instruction(kind=Kind.LANE, memory=Memory.WRITE, stream=0)
BOTH = Code(first=0, instructions=(READ, WRITE))
MOVE = replace(PASS, length=2, inner=4, reads=2, writes=1)
REFUSED = {
    "no CODE before it gives instruction 1": (CODE, replace(PASS, length=2)),
    "no CODE before it gives instruction 0": (PASS, CODE),
    "CODE is in a loop": (Loop(iterations=2), CODE, End()),
    "entry = 64 is not from 0 to 63": (CODE, replace(PASS, entry=64)),
    "first = 64 is not from 0 to 63": (replace(CODE, first=64),),
    "width = 37 is not": (Code(first=0, instructions=(Instruction(width=37),)),),
    "constant = 131072 is not": (CODE, replace(PASS, constants=(1 << 17,))),
    "slot = 64 is not": (CODE, replace(PASS, slot=64)),
    "reads = 1 is not from 0 to 0": (CODE, replace(PASS, reads=1)),
    "read the streams of mask 0x0, not of 0x1": (
        CODE, replace(PASS, reads=1, streams=(Stream(),)),
    ),
    "two instructions read stream 1": (
        Code(first=0, instructions=(READ, READ)),
        replace(MOVE, writes=0, streams=(Stream(), Stream())),
    ),
    "stream 0 writes rows 8 to 11, of which stream 1 reads some in another order": (
        BOTH, replace(MOVE, streams=(Stream(8, 0, 1), Stream(11, 0, -1))),
    ),
    "writes SCRATCHPAD[16381] to [16384]": (
        BOTH, replace(MOVE, streams=(Stream(16381, 0, 1), Stream(0, 0, 1))),
    ),
    "adds to a table": (
        Code(first=0, instructions=(Instruction(kind=Kind.TABLE, addend=Addend.PLUS),)), PASS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_vector_passes_reject_bad_fields(message):
    with GoldenAccelerator(P, memory_bytes=64) as golden:
        with pytest.raises(ProgramError) as error:
            golden.run(program_of(*REFUSED[message]), 0)
    assert message in str(error.value)


def test_vector_passes_count_in_slots_of_a_program_of_several_runs():
    names = tuple(f"t{n}" for n in range(P.statistics_depth + 1))
    last = replace(PASS, slot=P.statistics_depth)
    counted = [replace(PASS, slot=n) for n in range(1, P.statistics_depth)]
    with GoldenAccelerator(P, memory_bytes=64) as golden:
        golden.run(replace(program_of(CODE, *counted, last), slots=names), 0)
        with pytest.raises(ProgramError, match="slot = 65 is not from 0 to 64"):
            golden.run(replace(program_of(CODE, replace(last, slot=65)), slots=names), 0)


def test_vector_passes_accelerator_without_the_engine_refuses_its_descriptors():
    plain = AcceleratorParameters()
    with GoldenAccelerator(plain, memory_bytes=64) as golden:
        with pytest.raises(ProgramError, match="vector_engine=1"):
            golden.run(Program((CODE, Halt()), plain.fingerprint), 0)


def test_vector_passes_register_that_nothing_wrote_is_named():
    code = Code(first=0, instructions=(Instruction(a=3),))
    with GoldenAccelerator(P, memory_bytes=64) as golden:
        with pytest.raises(ProgramError, match="reads register 3 of thread 0"):
            golden.run(program_of(code, PASS), 0)


def test_vector_passes_row_may_be_read_and_written_in_place():
    """Rows 0 to 3 times 3, by one stream with a reader and a writer."""
    code = Code(
        first=0,
        instructions=(
            Instruction(kind=Kind.PRODUCT, memory=Memory.READ, stream=0, use_k=True, keep=True),
            Instruction(memory=Memory.WRITE, stream=0),
        ),
    )
    move = replace(PASS, length=2, inner=4, streams=(Stream(0, 0, 1),), reads=1, writes=1,
                   constants=(3,))  # fmt: skip
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=8)
    store = replace(load, operation=Operation.STORE, address=128)
    with GoldenAccelerator(P, memory_bytes=256) as golden:
        words = np.arange(64, dtype=np.int16)
        golden.write(0, words.view(np.uint8))
        run = golden.run(program_of(Set(values=(), seed=1), code, load, move, store), 0, trace=True)
        assert golden.read(128, 128).view(np.int16).tolist() == (3 * words).tolist()
    assert run.traces is not None
    assert run.traces["pe2"].addresses.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kernel", "options", "most"),
    [
        (KERNELS["cross-entropy"], {"exponent": 0, "counting": False, "main": True}, 33),
        (KERNELS["squared-error"], {"exponent": -3, "counting": False, "main": True}, 15),
        (prior.renew_kernel, {}, 21),
        (prior.squares_kernel, {"hidden": 8}, 3),
        (prior.words_kernel, {"flagged": False}, 9),
        (prior.words_kernel, {"flagged": True}, 10),
        (prior.decide_kernel, {"distance": 1, "rows": 2}, 38),
        (prior.cost_kernel, {}, 6),
        (prior.gather_kernel, {}, 3),
        (prior.look_kernel, {"interval": 8}, 7),
        (schedule.advance_kernel, {"steps": 100, "entries": 5}, 11),
    ],
)
def test_vector_passes_take_no_more_instructions(kernel, options, most):
    """Passes whose registers people allocated took as many, or 28 (renewal) and 44 (decision)."""
    assert len(lower(kernel, **options).instructions) <= most


@pytest.mark.parametrize("sides", [(), ("left",), ("right",), ("left", "right")])
def test_vector_passes_update_takes_no_more_instructions(sides):
    """An update, then what cuts and momentum add."""
    plain = PartUpdate(8, **{side: side in sides for side in ("left", "right")})
    most = (12, 14, 17)[len(sides)]
    for options, more in (
        ({}, 0),
        ({"cuts": True}, (0, 2, 3)[len(sides)]),
        ({"momentum": True}, 1),
    ):
        assert len(replace(plain, **options).lowered().instructions) <= most + more
