"""Whole epochs by a resident program: the bits of the definitions, with nothing written in them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from slowly import mostly_slow
from test_onchip_training import SETTINGS, driver, same

from trainwright.accelerator import AcceleratorError
from trainwright.accelerator.counted import counted
from trainwright.cli import main
from trainwright.compiler import compile_step
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.data import load_data_set
from trainwright.driver import fitting_exponent
from trainwright.fixed.health import LostTensorWarning
from trainwright.fixed.scale import PRESETS, ScaleRange, ScaleRanges
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.onchip.loss import batch_loss
from trainwright.onchip.samples import epoch_order, expanded
from trainwright.parameters import AcceleratorParameters
from trainwright.train.batches import ImageQuantiser, chip_batch_indices
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.chip_update import ChipModel
from trainwright.train.host_engine import HostEngine
from trainwright.train.interfaces import Observer
from trainwright.train.resident import ResidentEngine, stored_records
from trainwright.train.settings import ChipSettings, PriorSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_program", "programs_once")
P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
EPOCH = 22
MOMENTUM = replace(
    SETTINGS, chip=ChipSettings(optimiser="momentum"), learning_rate=0.2, prior=PriorSettings()
)
FITTED = replace(SETTINGS, chip=ChipSettings(cut_programs="fitted"))
OPTIONS = [
    f"--accelerator={name}" for name in ("vector_engine=1", "exponents=64", "sample_loads=1")
]


@pytest.fixture(scope="module")
def data():
    return load_data_set("digits")


def settings(**changes):
    return replace(SETTINGS, prior=None, **changes)


CROSS = settings(steps=30)
SQUARED = settings(steps=30, chip=ChipSettings(loss="squared-error", pixels=4))


def trainer(state, data, *, memory_bytes=1 << 20, plan="auto", **options):
    accelerator = counted(GoldenAccelerator(P, memory_bytes=memory_bytes))
    return Trainer(state, data, ResidentEngine(accelerator, plan=plan), **options)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(settings(steps=2 * EPOCH + 3), marks=pytest.mark.slow),
        settings(steps=30, scales="frozen", chip=ChipSettings(pixels=4)),
        replace(SETTINGS, steps=2 * EPOCH + 3),  # with cuts, of which some leave gaps
        FITTED,
        pytest.param(replace(SETTINGS, prior=PriorSettings()), marks=pytest.mark.slow),  # without
        replace(SETTINGS, chip=ChipSettings(loss="squared-error", pixels=4)),
        pytest.param(MOMENTUM, marks=pytest.mark.slow),
        replace(MOMENTUM, prior=None, learning_rate=0.999),
    ],
)
@pytest.mark.filterwarnings("ignore:l2.dG1 grew over")
def test_resident_training_run_has_the_bits_of_the_definitions(data, chosen):
    """Over ends of epochs, with evaluations there; losses are the means of their steps'."""
    network = load_network("digits")
    ours, theirs = initial_state(network, chosen), initial_state(network, chosen)
    exponents = {}
    watch = Observer()
    watch.stepped = lambda record: exponents.update({record.step: ours.scales.exponents.copy()})
    Trainer(ours, data, HostEngine(driver), observer=watch).run()
    run = trainer(theirs, data)
    run.run()
    assert same(ours, theirs) and ours.step == theirs.step
    assert ours.history.evaluations == theirs.history.evaluations
    ends = [0, *(record.step for record in theirs.history.steps)]
    fitted = chosen.prior is not None and chosen.chip.cut_programs == "fitted"
    cut_steps = range(0, ours.step, 10 if fitted else EPOCH)
    assert ends == sorted({*cut_steps, *range(0, ours.step, EPOCH), ours.step})
    for first, record in zip(ends, theirs.history.steps, strict=False):
        steps = ours.history.steps[first : record.step]
        assert record.loss == pytest.approx(
            np.mean([step_record.loss for step_record in steps]), rel=1e-12
        )
        assert record.learning_rate == steps[-1].learning_rate
        assert record.prior_weight == steps[-1].prior_weight
        assert (record.epoch, record.ranks) == (steps[-1].epoch, steps[-1].ranks)
        for name in ("correct", "samples", "saturations"):
            assert getattr(record, name) == sum(getattr(step_record, name) for step_record in steps)
    assert {(r.step, r.tensor): (r.exponent, r.mean) for r in theirs.history.scales} == {
        (r.step, r.tensor): (exponents[r.step][r.tensor], None)
        for r in ours.history.scales
        if r.step in ends
    }
    cuts = {step_record.ranks for step_record in ours.history.steps[:22]}
    assert (len(cuts) > 2) == (chosen.prior is not None and chosen.prior.threshold == 0.5)
    assert run.host_writes is not None and (run.host_writes > 0) == (fitted and len(cuts) > 1)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(settings(steps=2 * EPOCH + 5), marks=pytest.mark.slow),
        replace(SETTINGS, steps=49),
        pytest.param(replace(FITTED, steps=49), marks=pytest.mark.slow),  # bits: above
    ],
)
def test_resident_training_run_goes_on_elsewhere(data, tmp_path, chosen):
    """The run begins in the definitions, within an epoch, and ends on the host.

    The accelerator's checkpoint passes to a run that computes loss and update on the host.
    """
    network = load_network("digits")
    whole = initial_state(network, chosen)
    Trainer(whole, data, HostEngine(driver)).run()
    state = initial_state(network, chosen)
    Trainer(state, data, HostEngine(driver), stop=lambda: state.step == 7).run()
    trainer(state, data, stop=lambda: state.step == EPOCH).run()
    records = 10 if chosen.chip == FITTED.chip else 8
    assert state.step == EPOCH and len(state.history.steps) == records
    save_checkpoint(tmp_path / "c.safetensors", state)
    read = load_checkpoint(tmp_path / "c.safetensors").state
    assert same(read, state) and read.history.steps == state.history.steps
    Trainer(read, data, HostEngine(driver)).run()
    trainer(state, data).run()
    assert same(whole, read) and same(whole, state)


@pytest.mark.parametrize("pixels", [4, 8])
def test_records_are_the_inputs_of_the_batches(data, pixels):
    state = initial_state(load_network("digits"), settings(chip=ChipSettings(pixels=pixels)))
    assert isinstance(state.model, ChipModel)
    step = compile_step(state.network, 64, P, plan=IN_ROWS[AUTO])
    records = stored_records(state.model, data, pixels, step)
    quantiser = ImageQuantiser(state.network, data.full_scale, 0, pixels)
    chosen = chip_batch_indices(len(data.train), 64, 0, 3)
    assert (chosen == epoch_order(len(data.train), 0, 0)[192:256]).all()
    inputs = quantiser(data.train.images[chosen]).numpy()
    values = records[chosen, :-16]
    if pixels == 4:
        values = np.stack([values & 15, values >> 4], 2, dtype=np.uint8).reshape(len(chosen), -1)
    assert records.shape == (len(data.train), 64 * pixels // 8 + 16)
    assert (expanded(values, pixels, 8) == inputs).all()
    labels = data.train.labels[chosen].astype(int)
    assert (records[chosen, -16:][np.arange(len(chosen)), labels] == 1).all()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (settings(rounding="stochastic"), "has rounding mode nearest, not stochastic: leave"),
        (settings(steps=1 << 22, epochs=1 << 22), "of 65536 steps; the chip counts to"),
    ],
)
def test_resident_training_rejects_settings_before_running(data, chosen, message):
    with pytest.raises(ValueError, match=message):
        trainer(initial_state(load_network("digits"), chosen), data)


@mostly_slow("chosen", [CROSS, SQUARED, replace(CROSS, batch=96)], quick=[CROSS, SQUARED])
def test_resident_training_test_set_is_classified_by_the_accelerator(data, chosen):
    """Loss and correct samples equal the host's, batch by batch.

    Samples that fill up the last batch do not count, and training goes on to the same bits.
    """
    state, alone = (initial_state(load_network("digits"), chosen) for _ in range(2))
    run = trainer(state, data, test_samples=150, stop=lambda: state.step > 4)
    run.run()
    engine = run.engine
    assert isinstance(engine, ResidentEngine) and engine.evaluates
    loss, correct = engine.evaluate(state.scales, state.step)
    before = engine.driver.accelerator.order
    assert engine.evaluate(state.scales, state.step) == (loss, correct)
    assert engine.driver.accelerator.order == before
    batches, test = [], data.test.first(150)
    assert isinstance(state.model, ChipModel)
    quantiser = ImageQuantiser(state.network, data.full_scale, 0, chosen.chip.pixels)
    for first in range(0, 150, chosen.batch):
        inputs, real = quantiser.padded_batch(test, first, chosen.batch)
        logits = engine.driver.forward(inputs, state.model.operands(), state.scales).logits[:real]
        exponent = fitting_exponent(logits, 16)
        labels = test.labels[first : first + real].astype(int)
        z = (logits * 2.0**-exponent).long().numpy()
        batches.append(batch_loss(chosen.chip.loss, z, exponent, labels, 10))
    assert loss == sum(batch_result.total * batch_result.unit for batch_result in batches)
    assert correct == sum(batch_result.correct for batch_result in batches)
    engine.reopen()
    trainer(state, data).run()
    trainer(alone, data).run()
    assert same(state, alone)


def test_resident_training_where_there_is_no_room_the_host_gives_the_test_set(data):
    """In a memory that the test samples do not fit in, and one in which the program would not."""
    outcomes, records = [], 1437 * 80
    step = trainer(initial_state(load_network("digits"), CROSS), data).engine.driver.bytes_needed
    for size in (records + step + 5000, records + step + 25_000, 1 << 20):
        state = initial_state(load_network("digits"), CROSS)
        run = trainer(state, data, memory_bytes=size)
        run.run()
        outcomes.append((state.model.digest(), state.history.evaluations, run.engine.evaluates))
    assert outcomes[0][:2] == outcomes[1][:2] == outcomes[2][:2]
    assert [outcome[2] for outcome in outcomes] == [False, False, True] and len(outcomes[0][1]) == 1


def test_resident_training_rejects_small_memory(data):
    state = initial_state(load_network("digits"), settings())
    with pytest.raises(AcceleratorError, match=r"1,437 samples of 80 bytes.* use --pixels 4"):
        trainer(state, data, memory_bytes=1 << 16)
    run = trainer(state, data)
    step = run.engine.driver.memory.size
    with pytest.raises(AcceleratorError, match=r"memory, [0-9]+ of them the step"):
        trainer(state, data, memory_bytes=step + 1437 * 80 + 4096).run()


def test_resident_training_command_writes_nothing_in_an_epoch(capsys, tmp_path):
    command = ["train", "--network", "digits", "--epochs", "1", "--update", "chip", "--json"]
    command += ["--no-prior", "--out", str(tmp_path / "run"), *OPTIONS]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["host_writes"] == 0 and result["state_bits_per_parameter"] == 20
    assert result["steps"] == EPOCH
    memory = json.loads((tmp_path / "run" / "result.json").read_text())["memory"]
    sizes = {item["name"]: item["bits"] for item in memory}
    rows = 32 + 256 + 8 + 8 + 128 + 1  # of factors and biases
    state, factors = (64 * -(-size * rows // 64) for size in (32, 16))  # aligned to 64 bytes
    assert sizes["weights and moments"] == 8 * (state + factors)
    prior = 24 + 4 * 34 + 8 * 17 + 5 * 10  # schedule of 23 rows, side rows, and rows of bonds
    assert sizes["prior's sums and coefficients, schedule"] == 256 * prior
    assert result["training_state_bits"] == sum(sizes.values()) and len(memory) == 9
    assert not any(item["place"] == "host" for item in memory)
    assert main([*command, "--plan", "paper", "--force"]) == 2
    assert "--update chip takes --plan auto or small, not paper" in capsys.readouterr().err


def test_resident_training_names_tensors_that_saturate_for_many_steps(data, monkeypatch):
    """Scale gradients into their upper half, where over a quarter of the values saturate."""
    high = ScaleRange(0.45, 0.95)
    monkeypatch.setitem(PRESETS, "paper", ScaleRanges(gradient=high))
    state = initial_state(load_network("digits"), settings(steps=EPOCH, scale_range="paper"))
    with pytest.warns(LostTensorWarning) as caught:
        trainer(state, data).run()
    messages = [str(warning.message) for warning in caught]
    assert any(m.startswith("l1.x.dy was saturated in") and "for 22 steps" in m for m in messages)


@pytest.mark.parametrize("fallen", [EPOCH - 1, EPOCH])
def test_resident_training_counts_a_tensor_whose_exponent_only_falls_as_zeros(data, fallen):
    run = trainer(initial_state(load_network("digits"), settings(steps=EPOCH)), data)
    run.run()
    own = run.engine.driver
    before = {name: exponent + fallen for name, exponent in own.exponents().items()}
    observed = own.observed(before, EPOCH)
    assert {"l1.y", "l1.dy", "l2.db", "l1.dG1"} <= observed.keys()
    assert all((not s.total) == (fallen == EPOCH) for s in observed.values())
