"""Whole runs with loss and update as programs of the vector engine: the bits of the definitions."""

import json
from dataclasses import replace

import pytest
from test_onchip_training import SETTINGS, driver, same

from trainwright.accelerator.counted import CountedWrites
from trainwright.cli import main
from trainwright.data import load_data_set
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import ChipSettings, PriorSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright.train.vector_engine import VectorEngine

P = AcceleratorParameters(vector_engine=1)


@pytest.fixture(scope="module")
def data():
    return load_data_set("digits")


def trainer(state, data, **options):
    accelerator = CountedWrites(GoldenAccelerator(P, memory_bytes=1 << 20))
    return Trainer(state, data, VectorEngine(accelerator), **options)


def columns(state):
    return [list(own) for own in state.model.state.kept]


FITTED = replace(SETTINGS, chip=ChipSettings(cut_programs="fitted"))
MOMENTUM = replace(
    SETTINGS, chip=ChipSettings(optimiser="momentum"), learning_rate=0.2, prior=PriorSettings()
)
SQUARED = replace(SETTINGS, chip=ChipSettings(loss="squared-error"), steps=22)


@pytest.mark.parametrize(
    "settings", [SETTINGS, FITTED, SQUARED, MOMENTUM, replace(SETTINGS, prior=None, steps=12)]
)
def test_engine_training_run_has_the_bits_of_the_definitions(data, settings):
    """With cuts, of which some leave gaps between columns; and without a prior."""
    network = load_network("digits")
    ours, theirs = initial_state(network, settings), initial_state(network, settings)
    Trainer(ours, data, HostEngine(driver)).run()
    trainer(theirs, data).run()
    assert same(ours, theirs)
    assert [record.loss for record in ours.history.steps] == [
        record.loss for record in theirs.history.steps
    ]
    counts = ("correct", "learning_rate", "prior_weight", "saturations", "moved", "ranks")
    for record, other in zip(ours.history.steps, theirs.history.steps, strict=True):
        assert all(getattr(record, name) == getattr(other, name) for name in counts)
    state = theirs.model.state
    compiled = [len(own) for own in state.compiled]
    fitted = settings.chip.cut_programs == "fitted"
    assert compiled == ([len(own) for own in state.kept] if fitted else [16, 8])
    if settings.prior and settings != MOMENTUM:
        assert any(own != list(range(len(own))) for own in columns(theirs))


def test_engine_training_run_goes_on_from_the_state_of_another(data):
    """From the definitions to the engine, and from the engine to another one."""
    network = load_network("digits")
    whole = initial_state(network, SETTINGS)
    trainer(whole, data).run()
    state = initial_state(network, SETTINGS)
    Trainer(state, data, HostEngine(driver), stop=lambda: state.step == 7).run()
    trainer(state, data, stop=lambda: state.step == 15).run()
    trainer(state, data).run()
    assert same(whole, state)


def test_engine_training_counts_host_writes(data):
    """Images in two orders, targets, coefficients, programs; weights are written before."""
    state = initial_state(load_network("digits"), replace(SETTINGS, prior=None, steps=44))
    run = trainer(state, data)
    assert run.host_writes is None
    run.run()
    first = run.host_writes
    assert first is not None
    step = 2 * 64 * 64 + 64 * 16  # images, targets
    programs, rest = divmod(first - 22 * step, 128)
    assert rest == 0 and 22 * 100 < programs < 22 * 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (replace(SETTINGS, rounding="stochastic"), "have rounding mode nearest"),
    ],
)
def test_engine_training_rejects_unsupported_options(data, settings, message):
    with pytest.raises(ValueError, match=message):
        trainer(initial_state(load_network("digits"), settings), data)


def test_command_trains_with_the_engine(capsys, tmp_path):
    command = ["train", "--network", "digits", "--epochs", "1", "--update", "chip", "--json"]
    command += ["--accelerator", "exponents=0", "--accelerator", "sample_loads=0"]
    command += ["--out", str(tmp_path / "run")]
    assert main([*command, "--plan", "paper"]) == 2
    assert "--update chip takes --plan auto or small, not paper" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 22 and result["host_writes"] > 22 * 2 * 64 * 64
