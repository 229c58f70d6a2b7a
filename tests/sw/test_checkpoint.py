"""Checkpoints: whole or refused, and a resumed run ends in the same bits."""

import json
import os
import struct

import pytest
import torch
from float_driver import FloatDriver
from slowly import mostly_slow

from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import write_whole
from trainwright.support.tensor_file import CheckpointError
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.export import load_model, save_model
from trainwright.train.history import History, ScaleRecord
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

CUTTING = TrainSettings(
    steps=60, prior=PriorSettings(weight=20.0, warmup=0.0, threshold=0.3, interval=5)
)
"""Loses ranks within a few steps."""


@pytest.fixture(scope="module")
def digits():
    return load_data_set("digits")


def train(state, data, *, until=None):
    stop = (lambda: False) if until is None else (lambda: state.step >= until)
    trainer = Trainer(state, data, HostEngine(lambda n: FloatDriver(None, n, 64)), stop=stop)
    trainer.run()
    return trainer


def same(a, b):
    """Return whether two states are equal to the bit, whatever wall time they took."""
    pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
    return (
        a.step == b.step
        and a.model.network == b.model.network
        and a.network == b.network
        and a.model.exponents == b.model.exponents
        and a.scales == b.scales
        and a.settings == b.settings
        and all(
            name == other and torch.equal(getattr(p, part), getattr(q, part))
            for (name, p), (other, q) in pairs
            for part in ("value", "first", "second")
        )
    )


@pytest.fixture(scope="module")
def trained(digits):
    state = initial_state(load_network("digits"), CUTTING)
    train(state, digits)
    assert state.model.network.ranks != state.network.ranks
    return state


def test_everything_comes_back(trained, tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, trained, {"backend": "golden"})
    loaded = load_checkpoint(path)
    assert same(loaded.state, trained) and loaded.run == {"backend": "golden"}
    assert loaded.state.history == trained.history
    assert loaded.state.verification == trained.verification


def test_history_with_and_without_means_round_trips():
    scales = [ScaleRecord(3, "l1.y", -5, None, 0.25), ScaleRecord(4, "l1.y", -5, 0.5, 0.0, 0.125)]
    history = History(scales=scales)
    assert History.from_tensors(history.to_tensors()) == history


def test_checkpoint_of_untrained_state_round_trips(tmp_path):
    state = initial_state(load_network("digits"), TrainSettings(prior=None))
    save_checkpoint(tmp_path / "c", state)
    assert same(load_checkpoint(tmp_path / "c").state, state)


@mostly_slow("position", [0, 1, 4, 5, 10, 23, 59, 60], quick=(0, 5, 23, 60))
def test_checkpoint_resumed_run_ends_in_the_same_bits(trained, digits, tmp_path, position):
    state = initial_state(load_network("digits"), CUTTING)
    train(state, digits, until=position)
    save_checkpoint(tmp_path / "c", state)
    state = load_checkpoint(tmp_path / "c").state
    assert state.step == position
    train(state, digits)
    assert same(state, trained)
    assert [e.step for e in state.history.evaluations] == [22, 44]


def test_checkpoint_run_resumed_after_a_cut_on_the_golden_model(digits, tmp_path):
    settings = TrainSettings(
        steps=24, prior=PriorSettings(weight=8.0, warmup=0.0, threshold=0.3, interval=4)
    )
    with GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 22) as golden:

        def go(state, until=24):
            stop = lambda: state.step >= until  # noqa: E731
            Trainer(state, digits, HostEngine(lambda n: Driver(golden, n, 64)), stop=stop).run()

        whole = initial_state(load_network("digits"), settings)
        go(whole)
        parts = initial_state(load_network("digits"), settings)
        go(parts, until=15)
        assert parts.model.network.ranks != parts.network.ranks, "no cut before the checkpoint"
        assert parts.model.network.ranks != whole.model.network.ranks, "none after it"
        save_checkpoint(tmp_path / "c", parts)
        parts = load_checkpoint(tmp_path / "c").state
        go(parts)
    assert same(parts, whole) and parts.model.digest() == whole.model.digest()


def test_nothing_in_a_checkpoint_is_code(trained, tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, trained)
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    json.loads(header.pop("__metadata__")["trainwright"])
    assert {entry["dtype"] for entry in header.values()} <= {"F32", "F64", "U8"}


@pytest.mark.parametrize("part", [0.0, 0.001, 0.3, 0.9, 0.9999])
def test_checkpoint_truncated_file_is_refused(trained, tmp_path, part):
    path = tmp_path / "c"
    save_checkpoint(path, trained)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_checkpoint(path)


def test_checkpoint_flipped_bit_is_refused(trained, tmp_path):
    path = tmp_path / "c"
    save_checkpoint(path, trained)
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="do not have the digest"):
        load_checkpoint(path)


def test_other_files_are_refused(trained, tmp_path):
    path = tmp_path / "c"
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_checkpoint(path)
    path.write_bytes(b"PK\x03\x04 a pickle in a zip")
    with pytest.raises(CheckpointError, match="damaged or not of trainwright"):
        load_checkpoint(path)
    from safetensors.torch import save_file

    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="damaged or not of trainwright"):
        load_checkpoint(path)
    save_model(path, trained.model, trained.scales)
    with pytest.raises(CheckpointError, match="has format 'trainwright-model-2'"):
        load_checkpoint(path)


def test_checkpoint_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_whole(path, "old")

    def fail(*_):
        raise OSError("disk on fire")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="fire"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_files_are_readable_as_the_user_has_it(tmp_path):
    old = os.umask(0o027)
    try:
        write_whole(tmp_path / "f", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


def test_checkpoint_exported_model_classifies_as_the_trained_one(trained, digits, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, trained.model, trained.scales)
    loaded = load_model(path)
    assert loaded.model.network == trained.model.network
    assert loaded.scales.exponents == trained.scales.exponents
    ours = trained.model.quantised()
    for a, b in zip(ours.factors, loaded.model.factors, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    x = torch.from_numpy(digits.test.images[:64].astype("int64").reshape(64, 64) * 8)
    driver = FloatDriver(None, trained.model.network, 64)
    logits = driver.forward(x, ours, trained.scales).logits
    assert torch.equal(logits, driver.forward(x, loaded.model, loaded.scales).logits)
    # Four bits a factor element are stored in eight: the file is about as small as the model.
    assert path.stat().st_size < 3 * trained.model.network.model_bits / 8 + 4000
