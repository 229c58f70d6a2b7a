"""Programs of loss and update: whole steps on the golden model, equal to the definitions."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from slowly import mostly_slow

from trainwright.accelerator import AcceleratorError
from trainwright.check.training import check_training, random_state, weakened
from trainwright.cli.core import main
from trainwright.compiler import CompileError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.base.memory import LocalMemory
from trainwright.compiler.chip import beside
from trainwright.compiler.chip import loss as chip_loss
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network, network_from_dict
from trainwright.onchip.schedule import Entry, RateTable
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
DIGITS = load_network("digits")
FASHION = load_network("fashion")
RUN = ResidentRun(UpdateRule(RateTable((Entry(1, 1),), steps=1)))


class Other:
    """The golden model as if it were hardware: it is compared with the golden model's kernel."""

    def __init__(self, parameters=P, memory_bytes=1 << 20):
        self.__dict__["_golden"] = GoldenAccelerator(parameters, memory_bytes=memory_bytes)

    def __getattr__(self, name):
        return getattr(self._golden, name)

    def __setattr__(self, name, value):
        setattr(self._golden, name, value)


def only(state, kept):
    """Cut all columns of each bond but these."""
    for bond, columns in zip(state.layout.bonds, kept, strict=True):
        cut = sorted(set(range(bond.left.columns)) - set(columns))
        for side in (bond.left, bond.right):
            part = state.layout.parts[side.part]
            values = state.weights.ravel()[part.places].reshape(part.shape)
            np.moveaxis(values, side.axis, 0)[cut] = 0
            state.weights.ravel()[part.places] = values.ravel()
    state.kept = [np.array(columns) for columns in kept]
    state.compiled = state.kept


@mostly_slow(
    "kept",
    [((1, 2, 5), (0, 1, 2, 3)), (range(16), (2,)), ((0,), (0, 7))],
    quick=[((1, 2, 5), (0, 1, 2, 3)), (range(16), (2,))],
)
def test_columns_that_are_left(kept):
    state = weakened(random_state(DIGITS, 4))
    only(state, kept)
    outcome = check_training(DIGITS, 16, Other(), seed=4, state=state)
    assert outcome.comparison.mismatches == {}
    assert (state.ranks == [[len(kept[0])], [len(kept[1])]]) and state.weights.any()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_columns_that_are_left_of_four_factors(seed):
    random = Random(f"left {seed}")
    network = FASHION.with_ranks(((16, 9, 16), (12,)))
    state = weakened(random_state(network, seed))
    count = [random.randint(1, rank - 1) for rank in (16, 9, 16, 12)]
    ranks = zip((16, 9, 16, 12), count, strict=True)
    only(state, [sorted(random.sample(range(rank), n)) for rank, n in ranks])
    outcome = check_training(network, 32, Other(memory_bytes=1 << 21), seed=4, state=state, steps=2)
    assert outcome.comparison.mismatches == {}


@pytest.mark.parametrize("widths", [{"factor": 10}, {"factor": 9, "bias": 10}])
def test_columns_that_are_left_of_factors_of_more_than_a_byte(widths):
    """Factors with gaps have a buffer of their own, of two bytes for each."""
    network = replace(DIGITS, widths=replace(DIGITS.widths, **widths))
    state = weakened(random_state(network, 4))
    only(state, ((1, 2, 5), range(8)))
    outcome = check_training(network, 16, Other(replace(P, factor_width=10)), state=state, steps=2)
    assert outcome.comparison.mismatches == {}


def test_loss_of_a_batch_without_room_for_all_samples_takes_some_at_a_time(monkeypatch):
    """Five blocks of 16 samples in loads of two, the last load with a single block."""
    monkeypatch.setattr(LocalMemory, "largest_gap", property(lambda memory: 300))
    blocks, levels = [], chip_loss._levels
    monkeypatch.setattr(
        chip_loss,
        "_levels",
        lambda work, head, count: blocks.append(count) or levels(work, head, count),
    )
    outcome = check_training(DIGITS, 80, Other(), seed=2, steps=2)
    assert outcome.comparison.mismatches == {}
    step, evaluation = [2, 1, 1, 2, 1, 1, 1, 1], [2, 2, 1]  # a gradient is stored block by block
    assert blocks[:11] == step + evaluation


def test_update_loads_gradients_that_leave_no_room_in_the_scratchpad(monkeypatch):
    """Gradients lie in the middle of the free rows, as with two encoders of hidden size 768."""
    refused, whole = [], beside.update_program

    def without_room(*arguments, gradients, **options):
        if gradients:
            refused.append(gradients)
            raise SCRATCHPAD.misfit("the prior needs 8432 rows", 8432, P)
        return whole(*arguments, gradients=gradients, **options)

    monkeypatch.setattr(beside, "update_program", without_room)
    outcome = check_training(DIGITS, 18, Other(), seed=2, steps=2)
    assert refused and outcome.comparison.mismatches == {} and outcome.host_writes == 0


PARTS = network_from_dict({
    "name": "parts", "classes": 10, "image": [8, 8],
    "inputs": [{"name": "top", "rows": [0, 4]}, {"name": "bottom", "rows": [4, 8]}],
    "layers": [
        *({"from": name, "outputs": [4, 4], "inputs": [4, 8], "ranks": [4], "name": f"of_{name}"}
          for name in ("top", "bottom")),
        {"name": "sum", "add": ["of_top", "of_bottom"]},
        {"outputs": [4, 4], "inputs": [4, 4], "ranks": [4]},
    ],
})  # fmt: skip


@mostly_slow(
    "network, batch",
    [(DIGITS, 1), (DIGITS, 7), (DIGITS, 20), (PARTS, 5), (PARTS, 40)],
    quick=[(DIGITS, 1), (DIGITS, 20), (PARTS, 40)],
)
def test_chip_step_takes_batches_that_fill_no_row(network, batch):
    """Whole rows of samples and the last one read biases of their own, which all move."""
    outcome = check_training(network, batch, Other(), seed=2)
    assert outcome.comparison.mismatches == {} and outcome.host_writes == 0


def test_chip_step_in_narrow_fixed_point_equals_the_definitions():
    layer = {"outputs": [10], "inputs": [8], "ranks": []}
    network = network_from_dict({"classes": 10, "image": [1, 8], "layers": [layer]})
    narrow = network.with_formats("gradient=fixed(12),intermediate=fixed(8)")
    assert check_training(narrow, 4, Other(), steps=1).comparison.mismatches == {}


def test_chip_step_of_layers_without_bias_equals_the_definitions():
    """Zeros in place of a bias have the exponent of the products, in every step of a start."""
    layers = [
        {"outputs": [4, 4], "inputs": inputs, "ranks": [4], "bias": False, "relu": relu}
        for inputs, relu in (([8, 8], True), ([4, 4], True), ([4, 4], False))
    ]
    network = network_from_dict({"classes": 10, "image": [8, 8], "layers": layers})
    assert check_training(network, 7, Other(), seed=3, steps=2).comparison.mismatches == {}


def test_chip_step_wrong_word_of_the_state_is_found():
    class Flipping(Other):
        def write(self, address, data):
            data = data.copy()
            if data.size == 433 * 32:  # the words of the state
                data[5] ^= 1
            self._golden.write(address, data)

    outcome = check_training(DIGITS, 16, Flipping(), seed=1)
    assert "state in memory" in outcome.comparison.mismatches
    first = outcome.comparison.first_mismatch
    assert first is not None and None not in (first.row, first.lane)
    assert first.wanted != first.actual
    named = [p for p in outcome.comparison.places.values() if p.descriptor is not None]
    assert any(p.program == "resident" for p in named)


def test_chip_step_without_a_vector_engine_is_one_error():
    with pytest.raises(CompileError, match="need a vector engine; use vector_engine=1"):
        ResidentDriver(Other(AcceleratorParameters()), random_state(DIGITS, 0).layout, 16, RUN)


@pytest.mark.parametrize("loss", ["cross-entropy", "squared-error"])
def test_steps_by_one_start_are_checked(capsys, loss):
    """With columns that are cut in them, and a test set behind them."""
    command = ["check", "--ranks", "5|7", "--batch", "16", "--update", "chip", "--json"]
    command += ["--backend", "golden", "--loss", loss, "--steps", "4"]
    command += ["--accelerator", "exponents=64", "--accelerator", "sample_loads=1"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["mismatches"] == report["host_writes"] == 0 and report["values"] > 500_000
    assert report["columns_cut"] == 4 and report["steps"] == 4


def test_chip_step_rejects_small_memory(capsys):
    with pytest.raises(AcceleratorError, match="bytes of external memory, the accelerator has"):
        ResidentDriver(Other(memory_bytes=32 << 10), random_state(DIGITS, 0).layout, 16, RUN)
    command = ["check", "--network", "digits", "--batch", "16", "--update", "chip"]
    assert main([*command[:5], "--backend", "golden", "--loss", "squared-error"]) == 2
    assert "--loss is for a step on the chip: add --update chip" in capsys.readouterr().err
    by_host = ["--accelerator", "exponents=0"]
    assert main([*command, "--backend", "golden", *by_host]) == 2
    assert "trains alone: give vector_engine=1, exponents=64, sample" in capsys.readouterr().err
    assert main([*command, "--backend", "golden", "--plan", "paper"]) == 2
    assert "--update chip takes --plan auto or small, not paper" in capsys.readouterr().err
