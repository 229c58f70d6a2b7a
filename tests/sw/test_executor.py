"""The native executor against the interpreter: equal in every bit, descriptor by descriptor."""

import re
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from folded import each
from nests import (
    CONTRACTIONS,
    MAGNITUDES,
    RESULTS,
    ROWS,
    filling,
    largest_word,
    looped,
    program_of,
    random_coded,
    random_nest,
    random_parameters,
    with_formats,
)
from reference import ReferenceAccelerator
from vector_cases import random_passes

from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.executor import SOURCE, Executor
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
    TransferLevel,
)
from trainwright.program.encoding import ProgramError
from trainwright.program.fields import Operation, Target
from trainwright.program.records import record_column
from trainwright.program.validation import check_program
from trainwright.program.vector import Addend, Code, Instruction, Kind, Memory, Stream, Vector
from trainwright.support import native
from trainwright.support.native import library

OPERATIONS = (*CONTRACTIONS, Operation.BIAS, Operation.MASK)
P = AcceleratorParameters()


def interpreter(p: AcceleratorParameters, **options) -> GoldenAccelerator:
    with native.without():
        return GoldenAccelerator(p, **options)


def outcome(accelerator, memory, program, trace: bool) -> dict[str, object]:
    """Collect memory, sums, saturations, counters and traces of a run."""
    accelerator.write(0, memory)
    run = accelerator.run(program, 0, trace=trace)
    outputs = {
        "memory": accelerator.read(0, memory.size),
        "sums": run.sums,
        "saturations": run.saturations,
        "underflows": run.underflows,
        **({} if run.clips is None else {"clips": run.clips}),
        "bytes": np.array([run.counters.bytes_read, run.counters.bytes_written]),
    }
    for engine, done in (run.traces or {}).items():
        outputs |= {f"{engine} addresses": done.addresses, f"{engine} rows": done.rows}
    return outputs


def assert_same(ours: dict[str, object], theirs: dict[str, object]) -> None:
    for name in ours.keys() & theirs.keys():
        assert np.array_equal(ours[name], theirs[name]), name


def assert_executed(p, memory, program, *, literal: bool = False) -> None:
    """Assert equal outcomes of traced and plain runs, of the C kernel and its interpreter.

    A traced run visits tiles in another order. ``literal`` adds the literal interpreter.
    """
    kinds = [GoldenAccelerator, interpreter, *([ReferenceAccelerator] if literal else [])]
    golden, *references = (kind(p, memory_bytes=memory.size) for kind in kinds)
    plain = outcome(golden, memory, program, trace=False)
    traced = outcome(golden, memory, program, trace=True)
    assert_same(plain, traced)
    for other in references:
        assert_same(traced, outcome(other, memory, program, trace=True))
    if golden._executor is not None:
        assert golden._executor.flattened(program).valid


def reaches(program: Program, p: AcceleratorParameters) -> bool:
    try:
        check_program(program, p)
    except ProgramError:
        return False
    return True


@pytest.fixture(autouse=True)
def there_is_a_compiler():
    if native.load(SOURCE) is None:
        pytest.skip("no C compiler: nothing to compare")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@each("seed", range(60))
def test_executor_random_nests_match_reference(operation, seed):
    random = Random(f"{operation.name} {seed}")
    p = random_parameters(random)
    memory, load, store = filling(random, p, random.choice(MAGNITUDES))
    nests = [random_nest(random, operation, p) for _ in range(4)]
    assert_executed(p, memory, program_of(p, load, *nests, store), literal=seed < 6)


@pytest.mark.parametrize("operation", CONTRACTIONS, ids=lambda o: o.name)
@each("seed", range(12))
def test_random_nests_of_digits(operation, seed):
    """Words of 8 bits: two digits more let sums grow by 2^14."""
    random = Random(f"digits {operation.name} {seed}")
    p = replace(random_parameters(random), word_width=8)
    memory, load, store = filling(random, p, 8)
    nests = []
    while len(nests) < 4:
        d = random_nest(random, operation, p)
        if d.reduce_levels and d.reduction[0].count <= 2:
            digits = random.random() < 0.8
            nests.append(
                replace(d, digits=digits, out_width=min(8, d.out_width), x_shift=0, g_shift=0)
            )
    assert_executed(p, memory, program_of(p, load, *nests, store), literal=seed < 3)


def wide_nest(random: Random, operation: Operation, p: AcceleratorParameters) -> Compute:
    """Draw a nest with operands of several digits and a result of up to 16 bits by digits."""
    while True:
        d = random_nest(random, operation, p)
        digits = random.choice((0, 1, 1, 2))
        if operation not in CONTRACTIONS:
            digits = min(digits, 1)
            count = random.choice((2, 3)) if digits else 1
            level = Level(count, random.randint(0, 1), random.randint(0, 1))
            levels = (*d.levels, *([level] if digits else []))
            d = replace(d, levels=levels, reduce_levels=digits)
        counts = [level.count for level in d.reduction[:digits]]
        if len(counts) < digits or max(counts, default=1) > 3 or counts[1:] not in ([], [2]):
            continue
        d = replace(d, digits=digits, out_width=random.choice((7, 8, 9, 12, 15, 16)))
        d = replace(
            d, x_shift=d.x_shift % 8, g_shift=d.g_shift % 8, z=d.z - 2 if d.z > 258 else d.z
        )
        if reaches(program_of(p, d), p):
            return d


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@each("seed", range(12))
def test_random_nests_of_wide_tensors(operation, seed):
    """Digits of either operand or of both, and of results; to nearest, or by random bits."""
    random = Random(f"wide {operation.name} {seed}")
    p = replace(
        random_parameters(random), word_width=8, wide_tensors=1, stochastic_rounding=seed % 2
    )
    memory, load, store = filling(random, p, 8)
    nests = [wide_nest(random, operation, p) for _ in range(4)]
    nests = [replace(d, stochastic=bool(seed % 2)) for d in nests]
    assert_executed(p, memory, program_of(p, load, *nests, store), literal=seed < 4)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@each("seed", range(60))
def test_random_nests_of_coded_words(operation, seed):
    random = Random(f"posits {operation.name} {seed}")
    p = random_coded(random, random_parameters(random))
    most = largest_word(p)
    memory, load, store = filling(random, p, most.bit_length() + 1, most)
    nests = [with_formats(random, random_nest(random, operation, p), p) for _ in range(4)]
    assert_executed(p, memory, program_of(p, load, *nests, store), literal=seed < 6)


NO_AVX_512 = ("-U__AVX512F__", "-U__AVX512BW__")
PROCESSORS = {"AVX2 at most": NO_AVX_512, "plain C": (*NO_AVX_512, "-U__AVX2__")}


@pytest.fixture
def kernel_of(request, monkeypatch) -> None:
    """Load the kernel of a processor without some instructions, whichever this one has."""
    without = PROCESSORS[request.param]
    monkeypatch.setattr(native, "load", lambda source, *more: library.load(source, *more, *without))
    assert native.load(SOURCE) is not None


@pytest.mark.parametrize("kernel_of", PROCESSORS, indirect=True)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("seed", range(6, 12))
@pytest.mark.usefixtures("kernel_of")
def test_kernels_of_other_processors_have_the_same_bits(operation, seed):
    """Sums, rounding and posits have code of their own for AVX-512, for AVX2 and for neither."""
    test_executor_random_nests_match_reference.__wrapped__(operation, seed)
    test_random_nests_of_coded_words.__wrapped__(operation, seed)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_many_random_nests(operation, seed):
    test_executor_random_nests_match_reference.__wrapped__(operation, seed)
    test_random_nests_of_coded_words.__wrapped__(operation, seed)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@each("seed", range(10))
def test_results_on_their_operands(operation, seed):
    """Operands are read before results are written, whatever lies where."""
    random = Random(f"crossing {operation.name} {seed}")
    p = random_parameters(random)
    memory, load, store = filling(random, p, 9)
    nests = [random_nest(random, operation, p, crossing=True) for _ in range(4)]
    program = program_of(p, load, *nests, store)
    assert_executed(p, memory, program)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@each("seed", range(10))
def test_registers_move_nests(operation, seed):
    random = Random(f"loops {operation.name} {seed}")
    p = random_parameters(random)
    memory, load, store = filling(random, p, 12)
    d = random_nest(random, operation, p)
    safe = replace(d, x=min(max(d.x, 6), RESULTS - 6), z=min(max(d.z, RESULTS + 6), ROWS - 7))
    program = program_of(p, load, *looped(random, safe), store)
    golden = GoldenAccelerator(p, memory_bytes=memory.size)
    if reaches(program, p):
        assert_executed(p, memory, program, literal=seed < 3)
        return
    for accelerator in (golden, interpreter(p, memory_bytes=memory.size)):
        accelerator.write(0, memory)
        with pytest.raises(ProgramError):
            accelerator.run(program, 0)


def test_executor_random_nests_cover_every_feature():
    """Rows written twice and rows read and written are found, and are not the rule."""
    flags = []
    for operation in OPERATIONS:
        for seed in range(30):
            random = Random(f"{operation.name} {seed}")
            p = random_parameters(random)
            _, load, _ = filling(random, p, 4)
            d = random_nest(random, operation, p, crossing=seed % 2 == 0)
            executor = Executor.open(p, np.zeros(1 << 16, np.uint8))
            assert executor is not None
            flat = executor.flattened(program_of(p, load, d))
            assert flat.valid
            columns = [record_column(Compute, name) for name in ("overlaps", "repeats")]
            flags.append(flat.words[-2, columns])
    overlaps, repeats = np.array(flags).mean(axis=0)
    assert 0.05 < overlaps < 0.9 and 0.05 < repeats < 0.9


# Words of posits.

NUMBERS = ("posit(8,0)", "posit(8,1)c", "posit(9,0)")


def one_word(
    word: int, at: int = 3, *, lanes: int = P.lanes, **options
) -> tuple[np.ndarray, Program, AcceleratorParameters]:
    """Build a program that reads rows of 0 in which one word is ``word``."""
    tile = min(P.pe1_rows, lanes)
    p = replace(P, lanes=lanes, pe1_rows=tile, pe2_rows=tile, scratchpad_rows=ROWS, formats=NUMBERS)
    rows = np.zeros((ROWS, p.lanes), "<i2")
    rows[0, at] = word
    beats = rows.nbytes // p.beat_bytes
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=beats, tensor="t")
    return rows.view(np.uint8).ravel(), program_of(p, load, pe3(**options)), p


@pytest.mark.parametrize("number", (1, 2, 3))
@pytest.mark.parametrize("operand", ("x_format", "g_format"))
@pytest.mark.parametrize("beyond", (False, True))
@pytest.mark.parametrize("lanes", (4, 16))
def test_words_that_are_no_numbers_are_refused_by_all(operand, number, beyond, lanes):
    fmt = replace(P, formats=NUMBERS).number_formats[number]
    word = fmt.largest + 1 if beyond else -(1 << (fmt.width - 1))
    memory, program, p = one_word(word, lanes=lanes, **{operand: number})
    for kind in (GoldenAccelerator, interpreter):
        accelerator = kind(p, memory_bytes=memory.size)
        accelerator.write(0, memory)
        with pytest.raises(ProgramError, match=rf"t: .*word(s| {word}) of {re.escape(str(fmt))}"):
            accelerator.run(program, 0)


def test_executor_word_that_is_not_used_may_be_anything():
    memory, program, p = one_word(-128, at=12, g_format=1)
    assert_executed(p, memory, program, literal=True)


def test_posits_with_rounding_to_zero_and_never():
    """A tie of 0 and the smallest posit, and what lies on either side of it, in one row each."""
    p = replace(P, scratchpad_rows=ROWS, formats=NUMBERS)
    rows = np.zeros((ROWS, p.lanes), "<i2")
    rows[0, :5] = 0, 1, 2, 3, -2
    rows[1, :] = 1
    memory = rows.view(np.uint8).ravel()
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS, tensor="t")
    store = replace(load, operation=Operation.STORE, local=2, beats=4)
    nests = [
        Compute(
            operation=Operation.PE3, x=0, g=2, z=2 + n, levels=(Level(1),), last_rows=1, shift=2,
            slot=n, z_format=1, underflow_zero=zero, tensor="t",
        )
        for n, zero in enumerate((False, True))
    ]  # fmt: skip
    program = program_of(p, load, *nests, store)
    assert_executed(p, memory, program, literal=True)
    golden = GoldenAccelerator(p, memory_bytes=memory.size)
    golden.write(0, memory)
    run = golden.run(program, 0)
    stored = golden.read(0, 64).view("<i2").reshape(2, -1)[:, :5]
    assert stored.tolist() == [[0, 1, 1, 1, -1], [0, 0, 0, 1, 0]]
    assert run.underflows[:2].tolist() == [4, 4] and run.sums[:2].tolist() == [4, 1]


@pytest.mark.parametrize("operation", [Operation.PE3, Operation.PE4, Operation.BIAS])
def test_sums_beside_ties_that_a_float32_does_not_hold(operation):
    """65 and 67 are ties of posit(8,0): to 64 and to 68, whose words are even."""
    p = replace(P, scratchpad_rows=ROWS, formats=NUMBERS)
    ties, beside = [65, 65, 65, 67, 67, 67], [-1, 0, 1, -1, 0, 1]
    rows = np.zeros((ROWS, p.lanes), "<i2")
    if operation is Operation.BIAS:
        rows[0, :6], rows[1, :6] = np.array(ties) << 8, beside
        options = {"x_shift": 12, "g_shift": 0, "levels": (Level(1),)}
    elif operation is Operation.PE3:  # rows of x by words of g
        rows[0, :6], rows[1, :6] = np.array(ties) << 8, beside
        rows[2, 0], rows[3, 0] = 1 << 12, 1
        row = p.lanes // p.pe2_rows  # addresses of g
        options = {"g": 2 * row, "levels": (Level(1), Level(2, x=1, g=row)), "reduce_levels": 1}
    else:  # a row of x by entries
        rows[0, :2] = 1 << 12, 1
        rows[1:7, 0], rows[1:7, 1] = np.array(ties) << 8, beside
        options = {"levels": (Level(1),), "g_row_stride": 1}
    memory = rows.view(np.uint8).ravel()
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS, tensor="t")
    store = replace(load, operation=Operation.STORE, local=30, beats=2)
    nest = Compute(
        operation=operation, x=0, z=30, last_rows=1, shift=20, z_format=1, tensor="t",
        **{"g": 1, **options},
    )  # fmt: skip
    program = program_of(p, load, nest, store)
    assert_executed(p, memory, program, literal=True)
    golden = GoldenAccelerator(p, memory_bytes=memory.size)
    golden.write(0, memory)
    golden.run(program, 0)
    assert golden.read(0, 32).view("<i2")[:6].tolist() == [64, 64, 65, 65, 66, 66]


def test_words_of_posits_as_fixed_point_have_all_their_bits():
    """``out_width`` says nothing of a posit's words: sums of them need more than 32 bits."""
    p = replace(P, scratchpad_rows=ROWS, formats=("posit(10,0)",))
    memory = np.full((ROWS, p.lanes), 32767, "<i2").view(np.uint8).ravel()
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS, tensor="t")
    store = replace(load, operation=Operation.STORE)
    posits = bias(127, x=0, g=0, z=0, x_shift=8, z_format=1, out_width=2)
    posits = replace(posits, levels=(Level(127, x=1, g=1, z=1),))
    sums = replace(extreme(Operation.PE4, 1, 20)[0], g=200, levels=(Level(1), Level(120, x=1, g=1)))
    assert_executed(p, memory, program_of(p, load, posits, sums, store), literal=True)


# Sums at the edge of 32 bits, and past it.


def extreme(operation: Operation, steps: int, shift: int) -> tuple[Compute, ...]:
    entries = operation is Operation.PE4
    return (
        Compute(
            operation=operation,
            x=0,
            g=0,
            z=RESULTS,
            levels=(Level(2, z=8), Level(steps, x=1, g=1 if entries else 2)),
            reduce_levels=1,
            last_rows=5,
            x_row_stride=1 if entries else 0,
            z_row_stride=1,
            shift=shift,
            tensor="z",
        ),
    )


@pytest.mark.parametrize("operation", [Operation.PE3, Operation.PE4], ids=lambda o: o.name)
@pytest.mark.parametrize("value", [-32768, 32767, 4096, 2896, 2897, 256])
@each("steps, shift", product([1, 2, 3, 8, 64, 127], [0, 1, 15, 30, 31, 40]))
def test_sums_never_wrap(operation, value, steps, shift):
    p = replace(P, scratchpad_rows=ROWS)
    rows = np.full((ROWS, p.lanes), value, "<i2")
    rows[:, 3] = -rows[:, 3]
    memory = rows.view(np.uint8).ravel()
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * ROWS, tensor="t")
    store = replace(load, operation=Operation.STORE)
    program = program_of(p, load, *extreme(operation, steps, shift), store)
    assert_executed(p, memory, program)


# Transfers.


@each("seed", range(40))
def test_executor_random_transfers_match_reference(seed):
    random = Random(f"transfers {seed}")
    p = random_parameters(random)
    memory, load, store = filling(random, p, 16)
    extra = []
    for _ in range(6):
        element_bytes, rows = random.choice((1, 2)), random.randint(1, 5)
        operation = random.choice((Operation.LOAD, Operation.STORE))
        extra.append(
            Transfer(
                operation=operation,
                address=2048 + p.beat_bytes * random.randrange(8),
                local=random.randrange(100, 200),
                beats=rows * element_bytes,
                levels=tuple(
                    TransferLevel(
                        random.randint(1, 4),
                        p.beat_bytes * random.randint(-5, 5),
                        random.randint(-9, 9),
                    )
                    for _ in range(2)
                ),
                element_bytes=element_bytes,
                tensor="t",
            )
        )
    assert_executed(p, memory, program_of(p, load, *extra, store), literal=True)


# Programs that are wrong.


def load_of(local: int, beats: int, address: int = 0, **options) -> Transfer:
    return Transfer(
        operation=Operation.LOAD, address=address, local=local, beats=beats, tensor="t", **options
    )


def bias(*counts: int, **options) -> Compute:
    levels = tuple(Level(count) for count in counts or (1,))
    return Compute(operation=Operation.BIAS, levels=levels, tensor="t", **options)


def pe3(*summed: Level, outer: tuple[int, ...] = (1,), **options) -> Compute:
    """Build a sum over ``summed``, for every index of ``outer``, of row 0 times row 0."""
    return Compute(
        operation=Operation.PE3,
        levels=(*(Level(count) for count in outer), *summed),
        x=0,
        g=0,
        z=2,
        reduce_levels=len(summed),
        tensor="t",
        **options,
    )


WRONG = {
    "memory": (load_of(0, 2, 4096),),
    "below memory": (load_of(0, 2, -1),),
    "rows": (load_of(16384, 2),),
    "program": (load_of(0, 2, target=Target.PROGRAM),),
    "half a row": (load_of(0, 3),),
    "unwritten": (load_of(0, 2), bias(x=0, g=1, z=2)),
    "result": (load_of(0, 2), bias(x=0, g=0, z=16384)),
    "later iteration": (
        load_of(0, 2),
        Loop(iterations=3),
        bias(x=0, g=0, z=1, x_register=1),
        End(steps=((1, 2),)),
    ),
    "terms past 64 bits": (load_of(0, 2), pe3(*[Level(1 << 15)] * 4)),
    "terms": (load_of(0, 2), pe3(Level(1 << 12), Level((1 << 10) + 1))),
    "tiles": (load_of(0, 2), bias(1 << 15, 1 << 15, x=0, g=0, z=1)),
    "steps": (load_of(0, 2), pe3(Level(1 << 11), outer=(1 << 11, (1 << 10) + 1))),
    "runs": (load_of(0, 2, levels=(TransferLevel(1 << 15),) * 2),),
    "levels": (load_of(0, 2, levels=(TransferLevel(1),) * 4),),
    "no step": (load_of(0, 2), pe3(Level(0))),
    "a register that there is not": (load_of(0, 2), bias(x=0, g=0, z=1, x_register=8)),
    "a register below": (load_of(0, 2, address_register=-1),),
    "set register 8": (Set(values=((8, 1),)),),
    "step register 0": (Loop(iterations=1), End(steps=((0, 1),))),
    "seed": (Set(values=(), seed=1 << 32),),
    "far away": (load_of(0, 2), bias(x=1 << 62, g=0, z=1)),
    "farther": (load_of(0, 2), bias(x=1 << 70, g=0, z=1)),
    "shift": (load_of(0, 2), bias(x=0, g=0, z=1, shift=64)),
    "x_shift": (load_of(0, 2), bias(x=0, g=0, z=1, x_shift=16)),
    "no end": (Loop(iterations=3), load_of(0, 2)),
    "no loop": (load_of(0, 2), End()),
}


@pytest.mark.parametrize("name", WRONG)
def test_both_refuse_the_same(name):
    program = program_of(P, *WRONG[name])
    messages = []
    for kind in (GoldenAccelerator, interpreter):
        with pytest.raises(ProgramError) as error:
            kind(P, memory_bytes=4096).run(program, 0)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_sums_of_many_steps_that_do_not_move():
    """A sum has its greatest number of terms, at strides of 0."""
    memory = np.full(4096, 1, np.uint8)
    store = Transfer(operation=Operation.STORE, address=0, local=2, beats=2, tensor="t")
    many = pe3(Level(1 << 15), Level(1 << 3), shift=23)
    program = program_of(P, load_of(0, 2), many, store)
    assert_executed(P, memory, program)
    golden = GoldenAccelerator(P, memory_bytes=4096)
    golden.write(0, memory)
    golden.run(program, 0)
    assert golden.read(0, 2).view("<i2")[0] == (257 * 257 << 18) >> 23  # ties: none


# Kept programs.


def test_executor_program_is_flattened_once_and_takes_new_shifts():
    executor = Executor.open(P, np.zeros(4096, np.uint8))
    assert executor is not None
    load, d = load_of(0, 2), bias(x=0, g=0, z=1)
    first = executor.flattened(program_of(P, load, d))
    shifted = executor.flattened(program_of(P, load, replace(d, shift=3, x_shift=2)))
    columns = [record_column(Compute, name) for name in ("shift", "x_shift")]
    assert shifted is first and shifted.words[1, columns].tolist() == [3, 2]
    assert executor.flattened(program_of(P, load, replace(d, z=2))) is not first
    assert executor.flattened(program_of(P, load, d)) is first
    assert first.words[1, 13] == 0


@pytest.mark.parametrize("change", [{"shift": 70}, {"shift": -1}, {"x_shift": 16}, {"g_shift": -2}])
def test_executor_shift_that_there_is_not_is_refused_beside_a_kept_program(change):
    golden = GoldenAccelerator(P, memory_bytes=4096)
    load, d = load_of(0, 2), bias(x=0, g=0, z=1)
    golden.run(program_of(P, load, d), 0)
    with pytest.raises(ProgramError, match=str(*change.values())):
        golden.run(program_of(P, load, replace(d, **change)), 0)
    golden.run(program_of(P, load, d), 0)


def test_executor_seed_that_there_is_not_is_refused_beside_a_kept_program():
    golden = GoldenAccelerator(P, memory_bytes=4096)
    golden.run(program_of(P, Set(values=(), seed=1)), 0)
    for seed in (-1, 1 << 32):
        with pytest.raises(ProgramError, match=f"seed = {seed}"):
            golden.run(program_of(P, Set(values=(), seed=seed)), 0)


@pytest.mark.parametrize("operation", [Operation.LOAD, Operation.STORE], ids=lambda o: o.name)
def test_programs_that_differ_in_element_bytes_alone(operation):
    """Each accelerator executes both programs, in either order, without mixing them up."""
    load = load_of(0, 4)
    store = Transfer(operation=Operation.STORE, address=64, local=0, beats=2, tensor="t")
    programs = []
    for element_bytes in (1, 2, 1):
        if operation is Operation.LOAD:
            changed = (replace(load, element_bytes=element_bytes), store)
        else:
            changed = (load, replace(store, element_bytes=element_bytes))
        programs.append(program_of(P, *changed))
    memory = np.zeros(128, np.uint8)
    memory[:64] = np.arange(1, 65)
    golden, other = GoldenAccelerator(P, memory_bytes=128), interpreter(P, memory_bytes=128)
    for program in programs:
        assert_same(
            outcome(golden, memory, program, trace=True),
            outcome(other, memory, program, trace=True),
        )


def test_halt_and_set():
    memory = np.arange(64, dtype=np.uint8)
    move = Transfer(
        operation=Operation.STORE, address=0, local=0, beats=2, address_register=2, tensor="t"
    )
    program = Program(
        (load_of(0, 2), Set(values=((2, 32),)), move, Halt(), load_of(99999, 2), Halt()),
        P.fingerprint,
    )
    assert_executed(P, memory, program, literal=True)


def passes_of(seed: int, p: AcceleratorParameters) -> Program:
    """Build a program that loads rows, writes others by passes and stores both."""
    random = Random(f"passes {seed}")
    beats = 256 * 2 * p.lanes // p.beat_bytes
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=beats)
    store = replace(load, operation=Operation.STORE, address=256 * 2 * p.lanes)
    descriptors: list = []
    for _ in range(3):
        passes = random_passes(random, passes=2)
        last = passes.pop()
        # a pass in a loop goes on with the rows and registers that it left
        descriptors += [*passes, Loop(iterations=random.randint(1, 3)), last, End()]
        descriptors.append(Set(values=(), seed=random.randrange(1 << 32)))
    return Program((load, *descriptors, store, Halt()), p.fingerprint)


@pytest.mark.parametrize("seed", range(24))
def test_executor_random_passes_match_reference(seed):
    p = replace(P, vector_engine=1, lanes=(16, 8, 4)[seed % 3], pe1_rows=2, pe2_rows=2)
    words = np.random.default_rng(seed).integers(-32768, 32768, (2, 256, p.lanes))
    memory = words.astype(np.int16).view(np.uint8).ravel()
    assert_executed(p, memory, passes_of(seed, p))


def test_executor_pass_takes_other_constants():
    p = replace(P, vector_engine=1)
    code = Code(
        first=0,
        instructions=(
            Instruction(kind=Kind.LANE, addend=Addend.CONSTANT, memory=Memory.WRITE),
        ),
    )  # fmt: skip
    d = Vector(entry=0, length=1, outer=1, inner=1, streams=(Stream(0),), reads=0, writes=1)
    store = Transfer(operation=Operation.STORE, address=0, local=0, beats=2)
    with GoldenAccelerator(p, memory_bytes=64) as golden:
        for constant in (3, -5, 1 << 17):
            d = replace(d, constants=(constant,))
            program = Program((code, d, store, Halt()), p.fingerprint)
            if constant == 1 << 17:
                with pytest.raises(ProgramError, match="constant = 131072 is not"):
                    golden.run(program, 0)
                continue
            golden.run(program, 0)
            stored = golden.read(0, 32).view(np.int16)
            assert stored.tolist() == [constant + lane for lane in range(16)]
        assert golden._executor is not None and len(golden._executor._flats) == 1


@pytest.mark.parametrize(
    ("inner", "loaded", "message"),
    [(2, 8, "reads register 3 of thread 1"), (2, 1, "row 1 was never written"), (1, 8, "")],
)
def test_executor_passes_read_only_written_words(inner, loaded, message):
    """A first pass writes register 3 of one thread; the second one reads it, and rows."""
    p = replace(P, vector_engine=1)
    keep = Instruction(kind=Kind.LANE, keep=True, d=3)
    read = Instruction(memory=Memory.READ, stream=0, keep=True, d=1)
    code = Code(first=0, instructions=(keep, read, Instruction(a=3)))
    first = Vector(entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0)
    second = replace(
        first, entry=1, length=2, outer=inner, streams=(Stream(0, 1),), reads=1, tensor="second"
    )
    if "row" in message:
        second = replace(second, length=1)
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2 * loaded)
    program = Program((load, code, first, second, Halt()), p.fingerprint)
    for kind in (GoldenAccelerator, interpreter):
        with kind(p, memory_bytes=512) as golden:
            if not message:
                golden.run(program, 0)
                continue
            with pytest.raises(ProgramError, match=message):
                golden.run(program, 0)


def test_words_that_a_pass_wrote_have_all_their_bits():
    """Sums of products of the widest words, which 32 bits do not hold."""
    p = replace(P, vector_engine=1)
    code = Code(
        first=0,
        instructions=(
            Instruction(memory=Memory.READ, stream=0, keep=True),
            Instruction(memory=Memory.WRITE, stream=1),
        ),
    )
    streams = Stream(0, 0, 1), Stream(32, 0, 1)
    move = Vector(entry=0, length=2, outer=1, inner=32, streams=streams, reads=1, writes=2)
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=64)
    product = Compute(
        operation=Operation.PE4, levels=(Level(1),), x=32, g=48, z=80, last_rows=8, x_row_stride=1,
        g_row_stride=1, z_row_stride=1, shift=20,
    )  # fmt: skip
    store = replace(load, operation=Operation.STORE, address=1024, local=80, beats=16)
    memory = np.full(32 * 16, -32768, np.int16).view(np.uint8)
    program = Program((load, code, move, product, store, Halt()), p.fingerprint)
    assert_executed(p, np.concatenate([memory, np.zeros(256, np.uint8)]), program)


@pytest.mark.parametrize("seed", range(6))
def test_passes_count_the_values_that_they_clip_as_they_write(seed):
    p = replace(P, vector_engine=1)
    shift = Instruction(shift=0, width=12 + seed % 4, memory=Memory.READ, keep=True, d=1)
    write = Instruction(a=1, width=9, memory=Memory.WRITE, wrap=bool(seed % 2), stream=1)
    streams = Stream(0, outer=1), Stream(64, outer=1)
    d = Vector(entry=0, length=2, outer=64, inner=1, streams=streams, reads=1, writes=2, slot=3)
    words = np.random.default_rng(seed).integers(-512, 512, (64, p.lanes)).astype(np.int16)
    memory = words.view(np.uint8).ravel()
    load = load_of(0, len(memory) // p.beat_bytes)
    program = Program(
        (load, Code(first=0, instructions=(shift, write)), d, d, Halt()), p.fingerprint
    )
    clipped = 0 if seed % 2 else 2 * int(((words < -256) | (words > 255)).sum())
    for accelerator in (
        GoldenAccelerator(p, memory_bytes=1 << 12),
        interpreter(p, memory_bytes=1 << 12),
    ):
        with accelerator as opened:
            opened.write(0, memory)
            clips = opened.run(program, 0).clips
            assert clips is not None
            assert clips.tolist() == [clipped * (slot == 3) for slot in range(len(clips))]
