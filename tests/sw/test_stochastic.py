"""Stochastic rounding: its definition, its statistics, and the same bits in every executor."""

from dataclasses import replace
from fractions import Fraction
from math import sqrt
from random import Random

import numpy as np
import pytest
from folded import each
from nests import CONTRACTIONS, MAGNITUDES, filling, program_of, random_nest, random_parameters
from reference import ReferenceAccelerator, random_byte, stochastically

from trainwright.accelerator import AcceleratorError
from trainwright.compiler import compile_step
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.fixed.random_bits import (
    KEYS_A_ROW,
    ROUNDINGS,
    STREAM_STEP,
    UNITS,
    derived_seed,
    mixed,
    step_seeds,
    unit_bytes,
)
from trainwright.formats.rounding import stochastic_requantise, stochastic_shift
from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.executor import SOURCE
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Level, Loop, Program, Set, Transfer
from trainwright.program.encoding import (
    ProgramError,
    decode,
    decode_descriptor,
    encode,
    encode_descriptor,
)
from trainwright.program.fields import Operation
from trainwright.program.validation import check_program
from trainwright.support import native
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters(stochastic_rounding=True)
PLAIN = AcceleratorParameters()

# The definition.


def test_definition_is_the_literal_one():
    random = Random("definition")
    for _ in range(300):
        stream, key = random.getrandbits(32), random.getrandbits(24)
        drawn = unit_bytes(mixed(stream, [key]), UNITS)[0].tolist()
        assert drawn == [random_byte(stream, key, unit) for unit in range(UNITS)]


@each("shift", range(64))
def test_rounding_is_the_literal_one(shift):
    random = Random(f"rounding {shift}")
    values = [random.getrandbits(47) - (1 << 46) >> random.randrange(46) for _ in range(6)]
    values += [sign * (n << shift) + off for n in (0, 1, 7, 128) for sign in (1, -1)
               for off in (-1, 0, 1) if (n << shift) < 1 << 60]  # fmt: skip
    width = random.randint(4, 16)
    for value in values:
        drawn = np.arange(256)
        q, saturated = stochastic_requantise(np.full(256, value), shift, width, drawn)
        wanted = [stochastically(value, shift, width, byte) for byte in range(256)]
        assert list(zip(q.tolist(), saturated.tolist(), strict=True)) == wanted


def test_shifts_out_of_range_are_refused():
    for shift in (-1, 64):
        with pytest.raises(ValueError, match=f"from 0 to 63, not {shift}"):
            stochastic_shift(np.zeros(1, np.int64), shift, np.zeros(1, np.int64))


@pytest.mark.parametrize("shift", [1, 2, 5, 8])
def test_rounding_is_unbiased_where_all_bits_are_random(shift):
    """The mean over all random numbers is the value itself."""
    everything = np.arange(256)
    for value in range(-3 << shift, 3 << shift):
        q = stochastic_shift(np.full(256, value), shift, everything)
        assert Fraction(int(q.sum()), 256) == Fraction(value, 1 << shift)


@pytest.mark.parametrize("shift", [9, 10, 12, 13])
def test_bias_is_bounded_where_bits_are_rounded(shift):
    """At most 2^-9 of the last place for any value, 2^-(shift + 1) over all of them."""
    everything = np.arange(256)
    total = Fraction(0)
    for value in range(1 << shift):
        q = stochastic_shift(np.full(256, value), shift, everything)
        bias = Fraction(int(q.sum()), 256) - Fraction(value, 1 << shift)
        assert abs(bias) <= Fraction(1, 512)
        total += bias
    assert total / (1 << shift) == Fraction(1, 1 << (shift + 1))


def test_stochastic_rounding_keeps_exact_values():
    everything = np.arange(256)
    for shift in range(40):
        for n in (-5, -1, 0, 1, 100):
            assert (stochastic_shift(np.full(256, n << shift), shift, everything) == n).all()


# The random bits.

SIGMAS = 5.5
"""Deviations of a sum of independent terms, passed by chance once in 2.6e7."""


def signs(state) -> np.ndarray:
    """Return (n, 128) bits of all units as -1 and 1."""
    random = unit_bytes(state.ravel(), UNITS).astype(np.uint8)
    return np.unpackbits(random, axis=-1).astype(np.float32) * 2 - 1


def streams(count: int, name: str) -> list[int]:
    random = Random(name)
    return [random.getrandbits(32) for _ in range(count)]


def assert_uncorrelated(ours: np.ndarray, theirs: np.ndarray, *, itself: bool = False) -> None:
    """Check that no bit of one set correlates with any bit of the other."""
    theirs = ours.T @ theirs / len(ours)
    if itself:
        np.fill_diagonal(theirs, 0)
    assert np.abs(theirs).max() < SIGMAS / sqrt(len(ours))


ROWS = 1 << 12


def states(key: int, step: int = 0) -> np.ndarray:
    """Return the states of ROWS neighbouring rows from ``key`` on, of several streams."""
    keys = KEYS_A_ROW * np.arange(ROWS) + key
    return np.stack([mixed(stream + step * STREAM_STEP, keys) for stream in streams(12, "bits")])


def test_bits_are_balanced_and_units_independent():
    bits = signs(states(0))
    assert np.abs(bits.mean(axis=0)).max() < SIGMAS / sqrt(len(bits))
    assert_uncorrelated(bits, bits, itself=True)


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 64, 1000])
def test_neighbouring_rows_are_uncorrelated(rows):
    assert_uncorrelated(signs(states(0)), signs(states(rows * KEYS_A_ROW)))


@pytest.mark.parametrize("lane", [1, 2, 7, 15])
def test_neighbouring_columns_are_uncorrelated(lane):
    assert_uncorrelated(signs(states(0)), signs(states(lane)))


@pytest.mark.parametrize("commands", [1, 2, 3, 5, 55])
def test_following_descriptors_are_uncorrelated(commands):
    assert_uncorrelated(signs(states(0)), signs(states(0, commands)))


DIFFERENCES = [
    *((0, 1 << bit) for bit in range(21)),
    *((0, keys) for keys in (48, 80, 240, 272, 112)),
    *((commands, 0) for commands in (1, 2, 3, 5, 8, 21, 55, 100, 233)),
    *((1, 16), (1, -16), (2, 256)),
]
"""Differences of streams, in steps, and of keys."""


@pytest.mark.slow
@pytest.mark.parametrize(("commands", "keys"), DIFFERENCES)
def test_any_small_difference_is_uncorrelated(commands, keys):
    """Random streams and keys: 393,216 samples of a difference, 16,384 pairs of bits."""
    random = np.random.default_rng(abs(keys) + (commands << 24))
    total, count, rounds = np.zeros((128, 128)), 1 << 12, 96
    for _ in range(rounds):
        stream, start = int(random.integers(1 << 32)), random.integers(1 << 21, size=count)
        ours = signs(mixed(stream, start))
        total += ours.T @ signs(mixed(stream + commands * STREAM_STEP, start + keys))
    samples = count * rounds
    expected = sqrt(2 * np.log(2 * 128 * 128 * len(DIFFERENCES)) / samples)
    assert np.abs(total / samples).max() < expected * 1.1


def test_following_steps_are_uncorrelated():
    keys = KEYS_A_ROW * np.arange(ROWS)
    ours, theirs = (
        np.stack([mixed(derived_seed(n, step, 1), keys) for n in range(12)]) for step in (7, 8)
    )
    assert_uncorrelated(signs(ours), signs(theirs))


@pytest.mark.parametrize("shift", [4, 8, 12, 20])
@pytest.mark.parametrize("part", [0.002, 0.1, 0.5, 0.93])
def test_rounding_is_unbiased_and_errors_add_as_independent_ones(shift, part):
    """Every word has one value: check the mean of results and the variance of sums over rows.

    The bias of the definition itself is at most 2^-9; the mean of n results deviates by SIGMAS
    standard errors at most. Were errors of neighbouring rows correlated, sums of 16 rows would
    not have 16 times the variance of one.
    """
    value = int(part * 2**shift) + (3 << shift)
    fraction = value % (1 << shift) / (1 << shift)
    random = unit_bytes(states(0), UNITS)
    up = stochastic_shift(np.full(random.shape, value), shift, random) - 3
    probability = float(up.mean())
    assert abs(probability - fraction) <= 2**-9 * (shift > 8) + SIGMAS * sqrt(
        max(fraction, 2**-9) * (1 - fraction) / up.size
    )
    variance = probability * (1 - probability)
    sums = up.reshape(12, ROWS // 16, 16, UNITS).sum(axis=2)  # 16 neighbouring rows
    spread = float(((sums - 16 * probability) ** 2).mean())
    kurtosis = (1 - 6 * variance) / variance / 16 + 2 if variance else 0
    assert abs(spread - 16 * variance) <= SIGMAS * 16 * variance * sqrt(kurtosis / sums.size)


def test_seeds_of_steps_differ():
    seeds = {derived_seed(run, step, part) for run in range(4) for step in range(4000)
             for part in range(2)}  # fmt: skip
    assert len(seeds) > 31_980  # 32,000 of 2^32: 0.1 pairs are expected to coincide
    assert all(0 <= seed < 1 << 32 for seed in seeds)


# Programs.


def test_descriptors_round_trip():
    d = Compute(
        operation=Operation.PE3, levels=(Level(3, 1, 2, 3),), x=1, g=2, z=3, stochastic=True
    )
    assert decode_descriptor(encode_descriptor(d)) == d
    for seed in (None, 0, 0xFFFFFFFF):
        s = Set(values=((3, -7),), seed=seed)
        assert decode_descriptor(encode_descriptor(s)) == s
    with pytest.raises(ProgramError, match=r"value0 = 4294967296 is not from 0 to"):
        encode_descriptor(Set(values=(), seed=1 << 32))


def test_stochastic_bit_changes_only_rounding():
    d = Compute(operation=Operation.MASK, levels=(Level(3, 1, 2, 3),), x=1, g=2, z=3)
    ours, theirs = (
        int.from_bytes(encode_descriptor(replace(d, stochastic=on)), "little") for on in (0, 1)
    )
    assert theirs - ours == 1 << 944


def bias_of(**options) -> Compute:
    return Compute(
        operation=Operation.BIAS, levels=(Level(1),), x=0, g=0, z=1, tensor="t", **options
    )


def test_stochastic_accelerator_without_it_says_so():
    program = program_of(PLAIN, bias_of(stochastic=True))
    with pytest.raises(
        ProgramError,
        match=r"t is to be rounded stochastically, .* use one with stochastic_rounding=1",
    ):
        GoldenAccelerator(PLAIN, memory_bytes=64).run(program, 0)
    check_program(program, P)
    check_program(program_of(PLAIN, bias_of()), PLAIN)
    with pytest.raises(ProgramError, match="other accelerator parameters"):
        decode(encode(program), P)


# Executors.

needs_compiler = pytest.mark.skipif(native.load(SOURCE) is None, reason="there is no C compiler")


def kinds(p: AcceleratorParameters, size: int):
    with native.without():
        interpreter = GoldenAccelerator(p, memory_bytes=size)
    return GoldenAccelerator(p, memory_bytes=size), interpreter


def assert_same(p, memory, program, *, literal: bool) -> None:
    golden, *references = kinds(p, memory.size)
    if literal:
        references.append(ReferenceAccelerator(p, memory_bytes=memory.size))
    golden.write(0, memory)
    plain = golden.run(program, 0)
    left = golden.read(0, memory.size)
    golden.write(0, memory)
    ours = golden.run(program, 0, trace=True)
    assert np.array_equal(left, golden.read(0, memory.size))
    assert golden._executor is not None and golden._executor.flattened(program).valid
    for other in references:
        other.write(0, memory)
        theirs = other.run(program, 0, trace=True)
        for name in ("sums", "saturations"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
            assert np.array_equal(getattr(plain, name), getattr(theirs, name)), name
        for engine, trace in ours.traces.items():
            assert np.array_equal(trace.addresses, theirs.traces[engine].addresses)
            assert np.array_equal(trace.rows, theirs.traces[engine].rows)
        assert np.array_equal(left, other.read(0, memory.size))


OPERATIONS = (*CONTRACTIONS, Operation.BIAS, Operation.MASK)


@needs_compiler
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("seed", range(12))
def test_stochastic_random_nests_match_definition(operation, seed):
    random = Random(f"stochastic {operation.name} {seed}")
    p = replace(random_parameters(random), stochastic_rounding=True)
    memory, load, store = filling(random, p, random.choice(MAGNITUDES))
    nests = [
        replace(random_nest(random, operation, p), stochastic=random.random() < 0.8)
        for _ in range(4)
    ]
    start = Set(values=(), seed=random.getrandbits(32))
    assert_same(p, memory, program_of(p, load, start, *nests, store), literal=seed < 4)


def test_every_execution_has_other_bits():
    """In a loop, the same operation on the same rows; with another seed other bits again."""
    half = np.full((1, P.lanes), 128, "<i2")
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2, tensor="x")
    shifted = replace(bias_of(stochastic=True, shift=9), slot=1)
    results = []
    for seed in (1, 2):
        golden = GoldenAccelerator(P, memory_bytes=64)
        golden.write(0, half.view(np.uint8).ravel())
        body = (Loop(iterations=64), shifted, End())
        program = Program((load, Set(values=(), seed=seed), *body, Halt()), P.fingerprint)
        run = golden.run(program, 0, trace=True)
        rows = run.traces["pe2"].rows
        # of one bit a unit 8 bits are independent: 56 of 64 rows are expected to differ
        assert len({tuple(row) for row in rows.tolist()}) > 40
        assert abs(rows.mean() - 0.5) < SIGMAS * 0.5 / sqrt(rows.size)
        results.append(rows)
    assert not np.array_equal(*results)


@needs_compiler
def test_stochastic_kept_program_takes_a_new_seed():
    golden = GoldenAccelerator(P, memory_bytes=64)
    load = Transfer(operation=Operation.LOAD, address=0, local=0, beats=2, tensor="x")
    programs = [
        program_of(P, load, Set(values=(), seed=seed), bias_of(stochastic=True)) for seed in (1, 2)
    ]
    flats = [golden._executor.flattened(program) for program in programs]
    assert flats[0] is flats[1]
    plain = program_of(P, load, Set(values=(), seed=1), bias_of())
    assert golden._executor.flattened(plain) is not flats[0]


# Training.


@pytest.fixture(scope="module")
def digits():
    return load_data_set("digits", None)


def trainer_of(state, data, p=P, **options) -> Trainer:
    golden = GoldenAccelerator(p, memory_bytes=1 << 22)
    return Trainer(state, data, HostEngine(lambda network: Driver(golden, network, 64)), **options)


def trained(data, rounding: str, steps: int = 12):
    settings = TrainSettings(steps=steps, rounding=rounding, prior=None)
    state = initial_state(load_network("digits"), settings)
    trainer_of(state, data).run()
    return state


def test_each_rounding_has_bits_of_its_own_and_they_repeat(digits):
    digests = {rounding: trained(digits, rounding).model.digest() for rounding in ROUNDINGS}
    assert len(set(digests.values())) == len(ROUNDINGS)
    for rounding, digest in digests.items():
        assert trained(digits, rounding).model.digest() == digest


def test_stochastic_hardware_rounds_to_nearest_as_before(digits):
    """On an accelerator with the option as on one without."""
    settings = TrainSettings(steps=6, prior=None)
    digests = []
    for p in (PLAIN, P):
        state = initial_state(load_network("digits"), settings)
        trainer_of(state, digits, p).run()
        digests.append(state.model.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("rounding", ROUNDINGS[1:])
def test_interrupted_and_resumed_training_ends_with_the_same_bits(digits, tmp_path, rounding):
    whole = trained(digits, rounding)
    state = initial_state(load_network("digits"), whole.settings)
    path = tmp_path / "checkpoint.safetensors"
    for stop in (5, 7, None):
        trainer = trainer_of(state, digits, stop=lambda s=state, n=stop: s.step == n)
        trainer.run()
        save_checkpoint(path, state)
        state = load_checkpoint(path).state
        assert state.settings.rounding == rounding
    assert state.model.digest() == whole.model.digest()
    assert state.scales.exponents == whole.scales.exponents


def test_evaluation_rounds_to_nearest(digits):
    state = trained(digits, "stochastic", 3)
    first, second = (
        trainer_of(state, digits, p, test_samples=64).evaluate_test() for p in (PLAIN, P)
    )
    assert np.array_equal(first.predictions, second.predictions)


def test_training_on_an_accelerator_without_it_says_so(digits):
    settings = TrainSettings(steps=2, rounding="stochastic-gradients")
    state = initial_state(load_network("digits"), settings)
    with pytest.raises(AcceleratorError, match="was built without it; set stochastic_rounding=1"):
        trainer_of(state, digits, PLAIN).run()


def test_stochastic_program_that_has_no_room_for_its_seed_is_refused():
    network = load_network("digits")
    size = compile_step(network, 8, P)
    full = len(size.backward.descriptors)
    short = replace(size.buffers["program.backward"], shape=(full * 128,))
    step = replace(size, buffers=size.buffers | {"program.backward": short})
    driver = Driver(GoldenAccelerator(P, memory_bytes=size.memory_bytes), network, 8)
    driver.step = step
    with pytest.raises(AcceleratorError, match=rf"has {full + 1} descriptors, .* for {full};"):
        driver._check_seed("backward", step.backward, 1)
    driver._check_seed("backward", step.backward, None)


def test_wrong_roundings_are_named():
    for make in (lambda: TrainSettings(rounding="up"), lambda: step_seeds("up", 0, 0)):
        with pytest.raises(ValueError, match="one of nearest, stochastic-gradients, stochastic"):
            make()


def test_only_the_programs_that_are_asked_for_get_seeds():
    assert step_seeds("nearest", 3, 4) == (None, None)
    forward, backward = step_seeds("stochastic", 3, 4)
    assert step_seeds("stochastic-gradients", 3, 4) == (None, backward)
    assert len({forward, backward, *step_seeds("stochastic", 3, 5)}) == 4


def test_seeds_are_mixed_as_murmur_hash_does():
    """The finaliser, from its definition, of each number in turn."""

    def finalised(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return h ^ h >> 16

    state = 0
    for part in (5, 17, 3):
        state = finalised((state + 0x9E3779B9 + part) % 2**32)
    assert derived_seed(5, 17, 3) == state
