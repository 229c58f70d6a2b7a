"""A step as one program with an exponent file, repeated: the bits of the definitions."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from chip_models import ENTRY, calibrated, model_of, put_batch

from trainwright.check.training import random_state
from trainwright.compiler import CompileError
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.chip.memory import STATE
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver import Driver
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.onchip.loss import UNITS
from trainwright.onchip.schedule import Entry, RateTable
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt
from trainwright.program.encoding import decode, encode
from trainwright.program.errors import ProgramError
from trainwright.program.fields import MOST_DESCRIPTORS
from trainwright.train.chip_update import ChipModel, ChipUpdate
from trainwright.train.settings import ChipSettings, TrainSettings

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
P = AcceleratorParameters(vector_engine=1, exponents=64)
HOST = replace(P, exponents=0)
DIGITS = load_network("digits").with_ranks([[5], [7]])
MEMORY = 1 << 21
TABLE = RateTable((ENTRY, Entry(rate=9, rate_shift=3), Entry(rate=0, rate_shift=0)), steps=3)
"""Learning rates of a schedule that goes on with its last entry."""


class Case:
    """A state, a batch and calibrated scales."""

    def __init__(self, network, batch, seed, state=None, p=HOST):
        random = np.random.default_rng(seed)
        self.state = state or random_state(network, seed)
        self.batch, self.seed, self.classes = batch, seed, network.classes
        low, high = -(1 << 7), 1 << 7
        size = network.layers[0].input_size
        self.inputs = torch.from_numpy(random.integers(low, high, (batch, size)))
        self.labels = random.integers(0, network.classes, batch)
        with GoldenAccelerator(replace(p, exponents=0), memory_bytes=MEMORY) as golden:
            model = ChipModel(network, self.state)
            driver = Driver(golden, model.compiled, batch, plan=IN_ROWS[AUTO])
            operands = model.operands()
            self.scales = calibrated(driver, operands, self.inputs, self.labels, self.classes)
        for number, name in enumerate(self.scales.exponents):  # some have far to go
            self.scales.exponents[name] += (0, 2, -1, 1)[number % 4]

    def by_host(self, steps, *, frozen=False, first=0, p=HOST):
        """Run steps by the definitions; return state, scales, losses, and exponents moved."""
        state, labels = deepcopy(self.state), torch.from_numpy(self.labels)
        state.renew_pulls = lambda _: None
        network, golden = state.layout.network, GoldenAccelerator(p, memory_bytes=MEMORY)
        driver = Driver(golden, network, self.batch, plan=IN_ROWS[AUTO])
        settings = TrainSettings(seed=self.seed, prior=None, chip=ChipSettings())
        update = ChipUpdate(ChipModel(network, state), settings, total=1, samples=1)
        update.rates = TABLE
        scales = Scales(self.scales.ranges, dict(self.scales.exponents))
        total = correct = moved = 0
        for number in range(first, first + steps):
            forward = driver.forward(self.inputs, model_of(state), scales)
            loss = update.loss(forward.logits, labels)
            back = driver.backward(loss.gradient, scales, exponent=loss.exponent)
            update.step(back, number, steps)
            total += round(loss.mean * self.batch / UNITS["cross-entropy"])
            correct += loss.correct
            if not frozen:
                moved += scales.update({**forward.statistics, **back.statistics})
        return state, scales, (total, correct), moved

    def resident(self, *, frozen=False, p=P, step=0, golden=None, data=None, table=TABLE):
        ranges = None if frozen else self.scales.ranges
        golden = golden or GoldenAccelerator(p, memory_bytes=MEMORY)
        driver = ResidentDriver(
            golden,
            self.state.layout,
            self.batch,
            ResidentRun(UpdateRule(table), self.seed, ranges, data),
        )
        driver.put(self.state, model_of(self.state))
        driver.begin(self.scales, self.state, step)
        if data is None:
            put_batch(driver, self.inputs, self.labels)
        return driver


def images_of(driver):
    """Yield bytes of every factor's image, and values of every bias, as in memory."""
    for image in (*driver.step.forward.images, *driver.step.backward.images):
        if image.is_factor:
            yield image, driver.accelerator.read(image.address, image.size)
    for part in driver.layout.parts:
        if part.index < 0:
            yield part, driver.rows(part.name)


def same(ours, theirs):
    """State, factors, images and exponents of moments of two drivers."""
    assert (ours.rows(STATE) == theirs.rows(STATE)).all()
    assert (ours.factors() == theirs.factors()).all()
    images = zip(images_of(ours), images_of(theirs), strict=True)
    assert all((image[1] == other[1]).all() for image, other in images)
    assert ours.moments() == theirs.moments()


def is_defined(state, driver):
    """State, factors, images and exponents of moments of a driver are those of a state."""
    arrays, model = state.to_arrays(), model_of(state)
    assert (driver.rows(STATE).astype(np.uint16) == arrays["state"]).all()
    assert (driver.factors() == arrays["factors"]).all()
    assert state.exponents.tolist() == driver.moments()
    for place, stored in images_of(driver):
        if place.index < 0:  # a bias, in every lane of its rows
            values = arrays["factors"].ravel()[place.places]
            assert (stored.reshape(place.size, -1) == values[:, None]).all()
        else:
            assert (place.pack(model.factors[place.layer][place.index]) == stored).all()


@pytest.fixture(scope="module")
def case():
    return Case(DIGITS, 16, 3)


def test_repeated_steps_are_those_of_the_definitions(case):
    ours, scales, losses, moved = case.by_host(8)
    chip = case.resident()
    done = chip.run_steps(8, step=0)
    assert (done.total, done.correct) == losses and moved > 8
    is_defined(ours, chip)
    assert chip.exponents() == scales.exponents


@pytest.mark.parametrize("rows", [1 << 11, 1 << 12])
def test_gradients_stay_where_the_scratchpad_is_short(case, rows):
    """The update reads them where the backward pass left them, and uses other rows."""
    ours, *_ = case.by_host(2, p=replace(HOST, scratchpad_rows=rows))
    chip = case.resident(p=replace(P, scratchpad_rows=rows))
    chip.run_steps(2, step=0)
    is_defined(ours, chip)


def test_resident_step_longer_than_the_program_memory_is_exact(case):
    ours, *_ = case.by_host(2)
    chip = case.resident(p=replace(P, program_depth=16))
    chip.run_steps(2, step=0)
    is_defined(ours, chip)


def test_program_of_more_descriptors_than_have_numbers_is_refused():
    for count in (MOST_DESCRIPTORS - 1, MOST_DESCRIPTORS):
        passes = SimpleNamespace(commands=SimpleNamespace(descriptors=[Halt()] * count), p=P)
        if count < MOST_DESCRIPTORS:
            assert len(Passes.finish(passes, "the loss").descriptors) == MOST_DESCRIPTORS
            continue
        with pytest.raises(CompileError, match="the loss needs 65536 descriptors, there are 65535"):
            Passes.finish(passes, "the loss")


def test_frozen_scales_and_steps_in_two_runs(case):
    ours, _, losses, _ = case.by_host(5, frozen=True, first=2)
    chip = case.resident(frozen=True, step=2)
    parts = [chip.run_steps(n, step=step) for n, step in ((1, 2), (1, 3), (3, 4))]
    assert (sum(part.total for part in parts), sum(part.correct for part in parts)) == losses
    is_defined(ours, chip)
    before = chip.exponents()
    chip.run_steps(1, step=7)
    assert chip.exponents() == before


def test_resident_number_of_the_step_counts(case):
    first, other = case.resident(), case.resident()
    first.run_steps(1, step=0)
    other.run_steps(1, step=1)
    assert (first.rows(STATE) != other.rows(STATE)).any()


def test_resident_steps_of_four_factors_are_exact():
    """With sums that grow, and tensors that both passes write."""
    case = Case(load_network("fashion").with_ranks([[3, 5, 2], [5]]), 16, 5)
    ours, scales, losses, moved = case.by_host(2)
    chip = case.resident()
    done = chip.run_steps(2, step=0)
    assert (done.total, done.correct) == losses and moved
    is_defined(ours, chip)
    assert chip.exponents() == scales.exponents


def test_resident_program_from_its_file_has_the_same_bits(case):
    first, other = case.resident(), case.resident()
    read = decode(encode(other.resident.program), P)
    assert read.descriptors[-2] == first.resident.program.descriptors[-2]
    other.resident = replace(other.resident, program=read)
    assert first.run_steps(2, step=1) == other.run_steps(2, step=1)
    assert (first.rows(STATE) == other.rows(STATE)).all()
    assert first.exponents() == other.exponents()


def test_resident_step_rejects_unsupported_accelerator(case):
    driver = case.resident()
    with pytest.raises(ProgramError, match="runs 1 to 2\\^32 - 1 times, not 0"):
        driver.run_steps(0, step=0)
    with pytest.raises(
        CompileError, match=r"34 exponents, there are 16; .* an accelerator with exponents=64"
    ):
        case.resident(p=replace(P, exponents=16))
    with pytest.raises(CompileError, match=r"slots, there are 16; .* with statistics_depth=32"):
        case.resident(p=replace(P, statistics_depth=16))
    with (
        GoldenAccelerator(HOST, memory_bytes=MEMORY) as other,
        pytest.raises(
            ProgramError, match="which this accelerator lacks; use one with exponents=64"
        ),
    ):
        other.repeat(replace(driver.resident.program, fingerprint=HOST.fingerprint), 1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("l1.b", -60, "l1.a: exponents .* apart, the accelerator aligns 15 bits"),
        (
            "l2.a",
            100,
            r"gradient of a sample: the exponent \d+ of l2.a is beyond the range of this",
        ),
        ("x", 127, r"l1.G2.x: an exponent of 1.. is not from -128 to 127"),
    ],
)
def test_resident_exponents_beyond_units_are_rejected(case, name, value, message):
    driver = case.resident()
    values = list(driver.accelerator.exponents)
    values[driver.resident.slots[name]] = value
    values[driver.resident.slots["l1.G2"]] += 30 * (name == "x")
    driver.accelerator.exponents = values
    with pytest.raises(ProgramError, match=message):
        driver.run_steps(1, step=0)


def test_resident_program_file_round_trips(case):
    driver = case.resident()
    assert driver.accelerator.exponents[driver.resident.slots["x"]] == driver.input_exponent
    for wrong, message in (([0] * 63, "63 exponents"), ([1] + [0] * 63, "slot 0 is always 0"),
                           ([0, 128] + [0] * 62, "slot 1: an exponent of 128")):  # fmt: skip
        with pytest.raises(ProgramError, match=message):
            driver.accelerator.exponents = wrong


def test_resident_exponent_out_of_range_is_named_before_a_run(case):
    driver = case.resident()
    with pytest.raises(ProgramError, match=r"l1\.a: an exponent of 128 is not from -128 to 127"):
        driver._set({"l1.a": 128})
