"""The exponent file in the C kernel: the bits, and the errors, of the interpreter."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from file_cases import random_file, random_scalars, random_scales, random_slots
from nests import MAGNITUDES, filling, program_of, random_nest, random_parameters
from vector_cases import random_passes

from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.executor import SOURCE
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Level, Loop, Program, Set, Transfer
from trainwright.program.encoding import decode_descriptor, encode_descriptor
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MoveScales, Scalar, ScalarKind, ScaleEntry
from trainwright.program.fields import Operation
from trainwright.program.validation import check_program
from trainwright.program.vector import Code, Instruction, Kind, Vector
from trainwright.support import native

OPERATIONS = (Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK)
P = AcceleratorParameters(exponents=16, vector_engine=1, stochastic_rounding=1)


@pytest.fixture(autouse=True)
def there_is_a_compiler():
    if native.load(SOURCE) is None:
        pytest.skip("no C compiler: nothing to compare")


def outcome(accelerator, memory, program, exponents, *, times, step, trace):
    """Collect the state after repeated runs, with the error that ended them, if any."""
    accelerator.write(0, memory)
    accelerator.exponents = exponents
    outputs = {}
    try:
        run = accelerator.repeat(program, times, step=step, trace=trace)
        outputs = {name: getattr(run, name).tolist() for name in ("sums", "saturations")}
        outputs |= {"bytes": (run.counters.bytes_read, run.counters.bytes_written)}
        for engine, done in (run.traces or {}).items():
            outputs[engine] = done.addresses.tolist(), done.rows.tolist(), done.labels
    except ProgramError as error:
        outputs["error"] = str(error)
    outputs["memory"] = accelerator.read(0, memory.size).tolist()
    outputs["exponents"] = accelerator.exponents
    outputs["above"] = accelerator._file.above
    return outputs


def both(p, memory, program, exponents, *, times=1, step=0, trace=True):
    """Run on the C kernel and on its interpreter; assert equal outcomes and return the first."""
    outputs = []
    for interpreted in (False, True):
        with GoldenAccelerator(p, memory_bytes=memory.size, interpreted=interpreted) as golden:
            assert golden.interpreted == interpreted
            outputs.append(
                outcome(golden, memory, program, exponents, times=times, step=step, trace=trace)
            )
    for name in outputs[0].keys() | outputs[1].keys():
        assert outputs[0].get(name) == outputs[1].get(name), name
    return outputs[0]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("seed", range(8))
def test_exponent_file_random_nests_match_definition(operation, seed):
    """Nests by the file and SCALES, in a loop, several times; some end with an error."""
    random = Random(f"file {operation.name} {seed}")
    p = replace(random_parameters(random), exponents=random.choice((16, 64)), stochastic_rounding=1)
    memory, load, store = filling(random, p, random.choice(MAGNITUDES))
    nests = []
    for _ in range(4):
        nests.append(random_slots(random, random_nest(random, operation, p)))
        nests[-1] = replace(nests[-1], stochastic=random.random() < 0.5)
    scales = [random_scales(random) for _ in range(2)]
    body = (*nests[:2], scales[0], *nests[2:], scales[1])
    begin = Set(values=(), seed=random.getrandbits(32), by_step=seed % 4 < 3)
    program = program_of(p, begin, load, Loop(iterations=2), *body, End(), store)
    exponents = random_file(random, p.exponents, most=random.choice((3, 10)))
    step = random.choice((0, 7, (1 << 32) - 1))
    both(p, memory, program, exponents, times=3, step=step, trace=seed % 2 == 0)


@pytest.mark.parametrize("seed", range(12))
def test_exponent_file_random_passes_match_definition(seed):
    random = Random(f"scalars {seed}")
    p = replace(P, lanes=(16, 8, 4)[seed % 3], pe1_rows=2, pe2_rows=2)
    words = np.random.default_rng(seed).integers(-32768, 32768, (2, 256, p.lanes))
    memory = words.astype(np.int16).view(np.uint8).ravel()
    load = Transfer(
        operation=Operation.LOAD, address=0, local=0, beats=256 * 2 * p.lanes // p.beat_bytes
    )
    store = replace(load, operation=Operation.STORE, address=256 * 2 * p.lanes)
    begin = Set(values=(), seed=random.getrandbits(32), by_step=True)
    passes = random_scalars(random, random_passes(random, passes=4))
    program = Program((load, begin, *passes, random_scales(random), store, Halt()), p.fingerprint)
    outputs = both(p, memory, program, random_file(random, 16), times=2, step=seed)
    assert "error" not in outputs


@pytest.mark.parametrize("by_step", [False, True])
def test_exponent_file_fields_are_encoded(by_step):
    """Scalars, limits and seeds are, decoded, what they were; NONE is not encoded as a scalar."""
    random = Random(f"encoded {by_step}")
    begin = Set(values=(), seed=random.getrandbits(32), by_step=by_step)
    passes = random_scalars(random, random_passes(random, passes=8))
    scalars = []
    for d in (begin, random_scales(random), *passes):
        decoded = decode_descriptor(encode_descriptor(d))
        if isinstance(d, Vector):
            scalars += (
                kept := [scalar for scalar in d.scalars if scalar.kind is not ScalarKind.NONE]
            )
            assert list(decoded.scalars) == kept
        else:
            assert decoded == d
    assert any(scalar.offset < 0 for scalar in scalars)


def bias(x: int, g: int, z: int, **options) -> Compute:
    return Compute(
        operation=Operation.BIAS, levels=(Level(1),), x=0, g=1, z=2, tensor="sum",
        x_exponent=x, g_exponent=g, z_exponent=z, **options,
    )  # fmt: skip


def refused(*descriptors, exponents, p=P, times=1):
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=16)
    memory = np.arange(256, dtype=np.uint8)
    program = Program((load, *descriptors, Halt()), p.fingerprint)
    values = [0, *exponents]
    return both(p, memory, program, values + [0] * (p.exponents - len(values)), times=times)


def test_operands_too_far_apart():
    for x, g in ((10, -5), (-5, 10)):
        assert "error" not in refused(bias(1, 2, 3), exponents=[x, g, 0])
        outputs = refused(bias(1, 2, 3), exponents=[2 * x, g, 0] if x > g else [x, g + 1, 0])
        assert "apart, the accelerator aligns 15 bits" in outputs["error"]
        assert outputs["exponents"][3] == 0


@pytest.mark.parametrize(("x", "z", "right"), [(127, 0, True), (-128, -128, True), (127, 1, False)])
def test_exponents_have_eight_bits(x, z, right):
    product = replace(bias(1, 2, 3), operation=Operation.PE3)
    outputs = refused(product, exponents=[x, z if x > 0 else 0, 0])
    assert ("error" in outputs) != right
    if not right:
        assert outputs["error"] == (
            "sum: an exponent of 128 is not from -128 to 127; scale the network's inputs or weights"
        )


def test_exponent_file_rejects_scalars_out_of_range():
    code = Code(first=0, instructions=(Instruction(kind=Kind.LANE, keep=True),))
    d = Vector(
        entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0, tensor="pass",
        scalars=(
            Scalar(ScalarKind.SHIFT, 0, 1, 2, strict=True), Scalar(ScalarKind.NONE, 0, 2, 1),
        ),
    )  # fmt: skip
    assert "error" not in refused(code, d, exponents=[3, 3])
    outputs = refused(code, bias(1, 1, 4), d, exponents=[2, 3])
    assert outputs["error"] == (
        "pass: the exponent 2 of slot 1 and the exponent 3 of slot 2 are beyond the range of "
        "this pass by 1; scale the network's inputs or weights, or use a lower learning rate"
    )


@pytest.mark.parametrize("slots", (16, 256, 512))
def test_slots_beyond_the_exponent_file_are_refused_in_every_field(slots):
    p = replace(P, exponents=slots)

    def programs(slot):
        fields = {"outer": 1, "inner": 1, "streams": (), "reads": 0, "writes": 0}
        for name in ("x_exponent", "g_exponent", "z_exponent"):
            yield replace(bias(1, 1, 1), **{name: slot})
        for name in ("plus", "minus"):
            scalar = Scalar(ScalarKind.VALUE, 0, **{name: slot})
            yield Vector(entry=0, length=1, scalars=(scalar,), **fields)
        for name in ("exponent", "copy"):
            entry = {"exponent": 1, "statistics": 0, "low": 0, "high": 1} | {name: slot}
            yield MoveScales(entries=(ScaleEntry(**entry),))

    code = Code(first=0, instructions=(Instruction(kind=Kind.LANE, keep=True),))
    for d in programs(slots - 1):
        check_program(program_of(p, code, d), p)
    for d in programs(slots):
        with pytest.raises(ProgramError, match=f"= {slots} is not from 0 to {slots - 1}"):
            check_program(program_of(p, code, d), p)


def test_scales_up_to_the_greatest_exponent():
    """The first entry is executed, and the second one's copy made, where the second is refused."""
    d = bias(1, 1, 1, slot=2)
    up = ScaleEntry(4, 3, 0, (1 << 48) - 1, copy=5), ScaleEntry(1, 2, 0, 0, copy=6)
    outputs = refused(d, MoveScales(entries=up), exponents=[126, 0, 0, 9], times=3)
    assert outputs["error"].startswith("slot 1: an exponent of 128 is not from -128 to 127")
    assert outputs["exponents"][:7] == [0, 127, 0, 0, 9, 9, 127]


def test_sums_that_scales_took_are_0_and_saturations_go_on():
    d = bias(1, 1, 1, slot=2, out_width=2)
    scales = MoveScales(entries=(ScaleEntry(0, 2, 0, 0),))
    outputs = refused(d, scales, d, exponents=[0], times=3)
    once = refused(d, exponents=[0])
    assert outputs["sums"][2] == once["sums"][2] > 0
    assert outputs["saturations"][2] == 6 * once["saturations"][2] > 0


def test_exponent_file_floor_and_limits_themselves_move_nothing():
    """Sums at either limit stay; at the floor nothing goes down; over it, it does."""
    d = bias(1, 1, 2, slot=1)
    total = refused(d, exponents=[0, 0])["sums"][1]
    for low, high, start, after in (
        (total, total, 3, 3), (total, total - 1, 3, 4), (total + 1, total + 1, 0, 0),
    ):  # fmt: skip
        # with exponents of 0 and `start` the sum is rounded: what it is then is read first
        seen = refused(d, exponents=[0, start])["sums"][1]
        low, high = (limit - total + seen for limit in (low, high))
        scales = MoveScales(entries=(ScaleEntry(2, 1, max(low, 0), max(high, 0)),))
        assert refused(d, scales, exponents=[0, start])["exponents"][2] == after
    seen = refused(d, exponents=[0, 3])["sums"][1]
    scales = MoveScales(entries=(ScaleEntry(2, 1, seen + 1, seen + 1),))
    assert refused(d, scales, exponents=[0, 3])["exponents"][2] == 2
