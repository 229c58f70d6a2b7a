"""Training with an update on the chip: samples, schedules, whole runs, checkpoints, the command."""

import json
from dataclasses import replace
from math import cos, pi

import numpy as np
import pytest
import torch

from trainwright.cli import main
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, Network, load_network
from trainwright.onchip import samples
from trainwright.onchip.schedule import Entry, RateTable, digits, make_rates
from trainwright.parameters import AcceleratorParameters
from trainwright.report.memory import update_memory
from trainwright.train.batches import ImageQuantiser, chip_batch_indices
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.chip_update import ChipModel, ChipUpdate, chip_model
from trainwright.train.host_engine import HostEngine
from trainwright.train.model import initial_model
from trainwright.train.parallel import ParallelDriver
from trainwright.train.settings import (
    ChipSettings,
    PriorSettings,
    TrainSettings,
    settings_from_dict,
)
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright.train.workers import Workers

SETTINGS = TrainSettings(
    steps=24,
    learning_rate=0.45,
    chip=ChipSettings(),
    prior=PriorSettings(weight=20.0, warmup=0.0, threshold=0.5),
)


@pytest.fixture(scope="module")
def data():
    return load_data_set("digits")


def driver(network):
    return Driver(GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 20), network, 64)


def same(state, other):
    ours, theirs = state.model.state.to_arrays(), other.model.state.to_arrays()
    assert state.scales.exponents == other.scales.exponents
    assert state.model.network == other.model.network
    return all((ours[name] == theirs[name]).all() for name in ours)


@pytest.mark.parametrize("count", [1, 2, 5, 1437, 4096, 60000])
def test_onchip_training_epoch_visits_every_sample_once_in_an_order_of_its_own(count):
    orders = [samples.epoch_order(count, 7, epoch).tolist() for epoch in (0, 1, 2)]
    for order in orders:
        assert sorted(order) == list(range(count))
    other = samples.epoch_order(count, 8, 0).tolist()
    if count > 5:
        assert len({tuple(order) for order in (*orders, other)}) == 4


def test_onchip_training_order_is_the_generators_with_values_skipped():
    mask, wanted = (1 << 11) - 1, []
    x = samples.derived_seed(3, 2) & mask
    c = (samples.derived_seed(3, 1) + 5 * 0x9E3779B8 | 1) & mask
    for _ in range(mask + 1):
        if x < 1437:
            wanted.append(x)
        x = (1664525 * x + c) & mask
    assert samples.epoch_order(1437, 3, 5).tolist() == wanted
    assert chip_batch_indices(1437, 64, 3, 22 * 5 + 2).tolist() == wanted[128:192]


@pytest.mark.parametrize("full_scale", [16, 255])
def test_pixels_are_stored_to_nearest_and_repeated_to_the_inputs_width(full_scale):
    byte = np.arange(full_scale + 1)
    for width in (4, 8):
        stored = samples.stored_pixels(byte, full_scale, width)
        exact = byte / full_scale * ((1 << width) - 1)
        assert np.abs(stored - exact).max() <= 0.5 and stored[-1] == (1 << width) - 1
    assert samples.stored_pixels(np.array([1]), 2, 4).tolist() == [8]  # 7.5
    assert samples.expanded(np.arange(16), 4, 8).tolist() == [n << 3 | n >> 1 for n in range(16)]
    assert samples.expanded(np.arange(256), 8, 8).tolist() == [n >> 1 for n in range(256)]
    assert samples.expanded(np.array([9]), 4, 16).tolist() == [0x9999 >> 1]


def test_fashions_images_fit_the_memory_as_planned():
    assert samples.sample_bytes(28 * 32, 4) == 464
    assert samples.sample_bytes(64, 4) == 48
    assert samples.sample_bytes(65, 8) == 96


def test_inputs_are_the_stored_pixels(data):
    network = load_network("digits")
    inputs = ImageQuantiser(network, 16, -7, 4)(data.test.images[:3])
    stored = samples.stored_pixels(data.test.images[:3], 16, 4)
    assert inputs.tolist() == samples.expanded(stored, 4, 8).reshape(3, 64).tolist()
    assert inputs.max() == 127


def test_digits_are_the_nearest_mantissa():
    for value in (0.45, 1.0, 0.97, 2.0**-20, 3.1e-6, 7.9):
        for width in (4, 8):
            mantissa, exponent = digits(value, width)
            assert 1 << (width - 1) <= mantissa < 1 << width
            assert abs(mantissa * 2.0**exponent - value) <= 2.0 ** (exponent - 1)
    assert digits(0, 4) == (0, 0)


def test_onchip_training_schedule_is_a_table_of_64_entries():
    table = make_rates(1000, lambda t: 0.45 * (1 + cos(pi * t / 1000)) / 2, lambda t: t * 1e-6)
    assert table.steps == 16 and len(table.entries) == 63
    assert table.at(0) == table.at(15) != table.at(16)
    assert table.at(5000) == table.entries[-1]
    first = table.at(0)
    assert first.rate * 2.0**-first.rate_shift == pytest.approx(0.45, rel=1 / 16)
    assert first.weight * 2.0**first.weight_exponent == pytest.approx(7.5e-6, rel=2**-8)
    last = table.entries[-1]  # of 8 steps
    assert last.weight * 2.0**last.weight_exponent == pytest.approx(995.5e-6, rel=2**-8)
    assert make_rates(10, lambda t: 1e-12, lambda t: 0).at(0) == Entry(0, 0, 0, 0)


def test_onchip_training_schedule_that_does_not_fit_names_the_remedy():
    with pytest.raises(ValueError, match="65 entries; the table has 64: let each entry"):
        RateTable((Entry(1, 1),) * 65, 10)
    with pytest.raises(ValueError, match="1 step or more, not 0"):
        RateTable((Entry(1, 1),), 0)
    with pytest.raises(ValueError, match="too large"):
        make_rates(10, lambda t: 16.0, lambda t: 0)


def test_onchip_training_settings_round_trip_and_reject_unsupported():
    assert settings_from_dict(SETTINGS.to_dict()) == SETTINGS
    before = SETTINGS.to_dict()
    del before["chip"]["cut_programs"]
    assert settings_from_dict(before).chip == ChipSettings(cut_programs="fitted")
    for name, value in (("moments", "8bit"), ("factor_scales", "blocks")):
        with pytest.raises(ValueError, match="or use --update host"):
            replace(SETTINGS, **{name: value})
    with pytest.raises(ValueError, match="prior form storage only"):
        replace(SETTINGS, prior=PriorSettings(form="paper"))
    with pytest.raises(ValueError, match="pixels must be 4 or 8, not 5"):
        ChipSettings(pixels=5)
    with pytest.raises(ValueError, match="cut_programs must be one of kept, fitted, not 'new'"):
        ChipSettings(cut_programs="new")


def test_onchip_training_initial_weights_are_the_masters_to_nearest():
    network = load_network("digits")
    model = initial_model(network, 3)
    chip = chip_model(model)
    for n, layer in enumerate(model.factors):
        for k, factor in enumerate(layer):
            part = next(p for p in chip.state.layout.parts if (p.layer, p.index) == (n, k))
            unit = 2.0 ** (part.exponent - 8)
            weights = chip.state.weights.ravel()[part.places].reshape(part.shape) * unit
            assert np.abs(weights - factor.value.double().numpy()).max() <= unit / 2
    q = chip.quantised()
    assert q.bias_exponents == [-5, -5]
    assert [f.dtype for f in q.factors[0]] == [torch.int64] * 2


def test_onchip_training_loss_of_the_update_is_that_of_the_integers(data):
    network = load_network("digits")
    state = initial_state(network, SETTINGS)
    assert isinstance(state.model, ChipModel)
    update = ChipUpdate(state.model, SETTINGS, total=24, samples=1437)
    logits = torch.zeros((64, 16), dtype=torch.float64)
    logits[:, 3] = 300 * 2.0**-8
    loss = update.loss(logits, torch.full((64,), 3))
    p = torch.softmax(logits[:, :10], 1)
    assert loss.exponent == -21 and loss.correct == 64
    wanted = (p * 128).round() / 128 / 64
    assert torch.equal(loss.gradient[:, :3], wanted[:, :3])


def test_onchip_training_interrupted_run_ends_with_the_same_bits(data, tmp_path):
    whole = initial_state(load_network("digits"), SETTINGS)
    Trainer(whole, data, HostEngine(driver)).run()
    assert whole.model.network.ranks != whole.network.ranks  # something was cut
    part = initial_state(load_network("digits"), SETTINGS)
    for stop in (5, 13):
        trainer = Trainer(part, data, HostEngine(driver), stop=lambda s=stop, p=part: p.step == s)
        assert not trainer.run()
        save_checkpoint(tmp_path / "c", part)
        part = load_checkpoint(tmp_path / "c").state
    assert isinstance(part.model, ChipModel)
    Trainer(part, data, HostEngine(driver)).run()
    assert same(whole, part)
    assert whole.model.digest() == part.model.digest()


def test_other_seeds_optimisers_losses_and_pixels_give_other_bits(data):
    digests = set()
    for settings in (
        SETTINGS,
        replace(SETTINGS, seed=1),
        replace(SETTINGS, chip=ChipSettings(optimiser="momentum")),
        replace(SETTINGS, chip=ChipSettings(loss="squared-error")),
        replace(SETTINGS, chip=ChipSettings(pixels=4)),
        replace(SETTINGS, prior=None),
    ):
        state = initial_state(load_network("digits"), replace(settings, steps=9))
        trainer = Trainer(state, data, HostEngine(driver))
        trainer.run()
        digests.add(state.model.digest())
        assert state.history.steps[-1].loss < state.history.steps[0].loss
    assert len(digests) == 6


def test_onchip_training_omits_rows_of_no_class():
    fashion = load_network("fashion")
    assert fashion.model_bits - fashion.used_model_bits == 6 * 16 * 16 * 4 + 6 * 8
    assert round(fashion.reduction, 1) == 244.0 and round(fashion.used_reduction, 1) == 271.4
    full = replace(fashion, classes=16)
    assert full.used_model_bits == full.model_bits
    layer = Layer((3, 4), (3, 5), (2,), relu=False, bias=False)
    network = Network("n", (layer,), classes=5, image=(3, 5), padded=(3, 5))
    # classes 0 to 4 are (0, 0..3) and (1, 0): j_1 = 2 is not used, every j_2 is
    assert network.model_bits - network.used_model_bits == 3 * 2 * 4


def test_trainer_draws_the_chips_order(data):
    trainer = Trainer(initial_state(load_network("digits"), SETTINGS), data, HostEngine(driver))
    for step in (0, 23):
        wanted = data.train.labels[chip_batch_indices(len(data.train), 64, 0, step)]
        assert trainer._batch(step)[1].tolist() == wanted.tolist()


def test_biases_are_used_at_their_fixed_exponents(data):
    state = initial_state(load_network("digits"), SETTINGS)
    model = state.model
    assert isinstance(model, ChipModel)
    for part in model.state.layout.parts:
        if part.index < 0:  # 3 / 32 and the like: fitted, they would have a finer exponent
            model.state.weights.ravel()[part.places] = 3 << part.hidden
    first = driver(model.network)
    first.forward(torch.zeros((64, 64), dtype=torch.int64), model.quantised(), state.scales)
    assert first._forward is not None
    assert first._forward[1]["l1.b"] == -5


def test_micro_batches_begin_at_the_gradients_own_exponent(data):
    """Two halves on one worker: the whole batch's loss, each half's gradient at its exponent."""
    network = load_network("digits")
    halves = [Driver(GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 20), network, 32)
              for _ in range(2)]  # fmt: skip
    begins = []
    for half in halves:
        backward = half.run_backward
        half.run_backward = lambda given, f=backward: begins.append(given.exponent) or f(given)
    state = initial_state(network, replace(SETTINGS, prior=None))
    trainer = Trainer(state, data, HostEngine(lambda _: ParallelDriver(halves, Workers())))
    first = trainer.step().loss
    begins.clear()  # calibration fits it
    while state.step < 12:
        trainer.step()
    assert begins == [-21] * 22
    assert state.history.steps[-1].loss < first


def test_onchip_training_state_counts_whole_rows_and_every_column():
    layers = (Layer((3, 4), (3, 5), (2,), relu=False),)
    network = Network("n", layers, classes=5, image=(3, 5), padded=(3, 5))
    sizes = [item.bits for item in update_memory(network)]
    assert sizes == [20 * 16 * (3 * 3 + 2 * 4 + 1), 4 * 16 + 64 * 25]


def run(capsys, *options):
    place = () if "--update" in options else ("--update", "chip")
    status = main(["train", "--network", "digits", *place, *options])
    return status, capsys.readouterr()


def test_command_trains_reports_sizes_and_evaluates(capsys, tmp_path):
    out = str(tmp_path / "run")
    status, printed = run(
        capsys, "--steps", "30", "--pixels", "4", "--out", out, "--json", "--test-samples", "128",
        "--accelerator", "vector_engine=0",
    )  # fmt: skip
    assert status == 0
    result = json.loads(printed.out)
    assert result["state_bits_per_parameter"] == 20
    memory = json.loads((tmp_path / "run" / "result.json").read_text())["memory"]
    sizes = {item["name"]: item["bits"] for item in memory}
    assert sizes["weights and moments"] == 20 * (512 + 4096 + 128 + 2 * 64 + 2048 + 16)
    assert result["training_state_bits"] == sum(sizes.values())
    assert result["host_writes"] > 0  # images, labels, programs: with every step
    assert result["used_reduction"] > result["reduction"]
    assert main(["eval", f"{out}/model.safetensors", "--json", "--test-samples", "128"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["test_accuracy"] == result["test_accuracy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--moments", "8bit"), "use --update host"),
        (("--prior-form", "paper"), "--update host"),
        (("--numbers", "float32"), "--update chip only applies to integers"),
        (("--update", "host", "--pixels", "4"), "--pixels is for an update on the chip"),
    ],
)
def test_options_that_do_not_go_together_are_refused(capsys, tmp_path, options, message):
    status, printed = run(capsys, *options, "--out", str(tmp_path / "r"))
    assert status == 2 and message in printed.err and not printed.out
    assert not (tmp_path / "r").exists()
