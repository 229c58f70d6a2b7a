"""Regression on the chip: targets in records, the squared error, training, the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
from test_chip_step import PARTS
from test_onchip_training import SETTINGS, same
from test_own_data import houses

from trainwright.accelerator.counted import counted
from trainwright.check.training import check_training
from trainwright.cli import main
from trainwright.data import Split, load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.onchip.choices import no_label
from trainwright.onchip.loss import batch_loss
from trainwright.onchip.samples import TARGET_UNIT, label_words
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
DIGITS = replace(load_network("digits"), classes=1)


def test_targets_are_rounded_to_1024th_parts_and_saturate():
    targets = np.array([0.5 / 1024, 1.5 / 1024, -0.6 / 1024, 1.25, 7.9999, -100.0])
    assert label_words(targets).tolist() == [0, 2, -1, 1280, 8191, -8191]
    assert label_words(np.array([3, 0], np.uint8)).tolist() == [3, 0]


@pytest.mark.parametrize("exponent", [-9, 0, -14])
def test_squared_error_on_chip_is_that_of_float64(exponent):
    """Errors are exact to half a unit of 2^-12, and saturate at 8; a sample may have no target."""
    random = np.random.default_rng(4)
    logits = random.integers(-(1 << 15), 1 << 15, (40, 16)) >> max(0, exponent + 12)
    targets = label_words(random.normal(0, 2, 40))
    targets[:3] = -8191, 8191, no_label(1)
    error = np.rint((logits[:, 0] * 2.0**exponent - targets / TARGET_UNIT) * 4096)
    error = error.clip(-(1 << 15), (1 << 15) - 1)
    error[2] = 0
    result = batch_loss("squared-error", logits, exponent, targets, 1)
    assert (result.gradient[:, 0] == error).all() and not result.gradient[:, 1:].any()
    assert result.total == (error**2).sum() and (result.correct, result.samples) == (0, 39)
    assert result.mean == pytest.approx(((error / 4096) ** 2).sum() / 2 / 39, rel=1e-12)
    assert result.exponent == -12 - 6


@pytest.mark.parametrize(
    ("network", "batch"), [(DIGITS, 16), (DIGITS, 20), (replace(PARTS, classes=1), 5)]
)
def test_check_of_a_regression_finds_the_bits_of_the_definitions(network, batch):
    golden = GoldenAccelerator(P, memory_bytes=1 << 21)
    check = check_training(network, batch, golden, seed=3)
    assert check.comparison.mismatches == {} and check.host_writes == 0


def test_regression_on_chip_has_same_bits_in_all_places():
    """Two epochs, a target each that follows the digit: losses, R2 and weights."""
    whole = load_data_set("digits")
    splits = [Split(s.images[:170], (s.labels[:170] - 4.5) / 2.9) for s in whole.splits]
    data = replace(whole, train=splits[0], test=splits[1], class_names=("digit",), scale=(4.5, 2.9))
    chosen, results = replace(SETTINGS, batch=20, steps=16, prior=None), []

    def by_host(network):
        return Driver(GoldenAccelerator(P, memory_bytes=1 << 20), network, 20, plan="in-rows")

    alone = ResidentEngine(counted(GoldenAccelerator(P, memory_bytes=1 << 21)))
    for engine in (HostEngine(by_host), alone):
        state = initial_state(DIGITS, chosen)
        run = Trainer(state, data, engine)
        run.run()
        results.append((state, run.evaluate_test().regression.r2))
    (ours, r2), (theirs, again) = results
    assert same(ours, theirs) and r2 == again and run.host_writes == 0
    assert ours.history.evaluations == theirs.history.evaluations
    losses = [step.loss for step in ours.history.steps]
    first, second = theirs.history.steps
    assert first.loss == pytest.approx(np.mean(losses[:8]), rel=1e-12)
    assert second.loss < 0.8 * first.loss and alone._card.labels == 1


def test_train_regression_on_chip_learns_and_reports_r2(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    houses(tmp_path / "homes.csv", 400)
    command = ["train", "--data", "homes.csv", "--epochs", "12", "--batch", "16", "--no-prior"]
    assert main([*command, "--update", "chip", "--lr", "0.2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["test_r2"] > 0.8 and told["host_writes"] == 0 and told["update_place"] == "alone"
