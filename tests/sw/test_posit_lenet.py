"""LeNet-5 in posits: the command, its checkpoints, and what it learns."""

import json

import numpy as np
import pytest
import torch
from slowly import mostly_slow

from trainwright import cli
from trainwright.data import DataSet, load_data_set
from trainwright.data.dataset import Split
from trainwright.posit import PositError, PositFormat
from trainwright.posit.experiments import accuracy
from trainwright.posit.experiments.lenet import RUNS, LeNet5, arithmetic
from trainwright.posit.experiments.training import RunSettings, digest, pixels, resume, train
from trainwright.support.tensor_file import CheckpointError

pytest.importorskip("safetensors")


@pytest.fixture
def small():
    """Return two classes of images: a bright upper or lower half."""
    random = np.random.default_rng(0)

    def split(count):
        labels = random.integers(0, 2, count).astype(np.uint8)
        images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[14 * label : 14 * label + 14] += 150
        return Split(images, labels)

    return DataSet("small", split(96), split(40), 255, tuple("01"))


def test_images_stand_in_the_middle():
    split = Split(np.full((1, 28, 28), 255, np.uint8), np.zeros(1, np.uint8))
    x = pixels(split, 255)
    assert x.shape == (1, 1, 32, 32) and x.sum() == 28 * 28 and x[0, 0, 2:30, 2:30].min() == 1


def test_posit_lenet_has_layers_of_paper():
    assert sum(p.numel() for p in LeNet5().parameters()) == 61_706
    assert LeNet5()(torch.zeros(2, 1, 32, 32)).shape == (2, 10)


def test_posit_lenet_trains_in_each_arithmetic():
    formats = {p.fmt for p in arithmetic("posit(16,2)-sequential").network(0).parameters()}
    assert formats == {PositFormat(16, 2)} and arithmetic("posit(16,2)").mode == "quire"
    mixed = arithmetic("mixed-quire").network(0)
    assert mixed.feature_extractor[0].weight.fmt == PositFormat(8, 2)
    assert {p.fmt for p in mixed.parameters()} == {PositFormat(16, 2)}
    plain = arithmetic("float32").network(3)
    assert torch.equal(
        plain.classifier[0].bias, arithmetic("float32").network(3).classifier[0].bias
    )
    for name in ("float16", "posit(16,2)-exact", "mixed-"):
        with pytest.raises(PositError, match="arithmetics are"):
            arithmetic(name)
    with pytest.raises(PositError, match="n from 2 to 32"):
        arithmetic("posit(64,2)-quire")


@pytest.mark.parametrize("name", RUNS)
def test_every_arithmetic_learns(name, small, tmp_path):
    kind = arithmetic(name)
    settings = RunSettings("small", kind.name, 96, batch=16)
    epochs = train(small, settings, kind, 3, tmp_path / "x.safetensors")
    assert epochs[-1].loss < epochs[0].loss
    if name != "posit(8,2)-quire":
        assert epochs[-1].accuracy > 0.9


@mostly_slow(
    "name", ["posit(16,2)-sequential", "mixed-quire", "float32"], quick=["mixed-quire", "float32"]
)
def test_posit_lenet_interrupted_run_goes_on_as_if_it_had_not_been(name, small, tmp_path):
    kind = arithmetic(name)
    settings = RunSettings("small", kind.name, 96, batch=16)
    whole = train(small, settings, kind, 2, tmp_path / "whole.safetensors")
    steps = 0

    def stop(done, total, run):
        nonlocal steps
        steps += 1
        if steps in (4, 10):
            raise KeyboardInterrupt

    path = tmp_path / "parts.safetensors"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(small, settings, kind, 2, path, interval=0.0, progress=stop)
    parts = train(small, settings, kind, 2, path, interval=0.0, progress=stop)
    told = [[(e.loss, e.accuracy, e.digest) for e in run] for run in (whole, parts)]
    assert told[0] == told[1] and told[0][0][2] != told[0][1][2]
    a, b = (resume(tmp_path / f"{n}.safetensors", settings, kind) for n in ("whole", "parts"))
    for x, y in zip(a.network.parameters(), b.network.parameters(), strict=True):
        assert torch.equal(x, y)
    assert digest(a.network) == whole[-1].digest


def test_checkpoints_of_other_runs_are_not_continued(small, tmp_path):
    kind, path = arithmetic("float32"), tmp_path / "x.safetensors"
    train(small, RunSettings("small", kind.name, 96, batch=32), kind, 1, path)
    with pytest.raises(CheckpointError, match="choose another folder"):
        train(small, RunSettings("small", kind.name, 96, batch=16), kind, 1, path)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="damaged"):
        train(small, RunSettings("small", kind.name, 96, batch=32), kind, 1, path)


def test_posit_lenet_decimal_accuracy_matches_paper():
    curves = {line.name: line for line in accuracy.run()}
    assert len(curves) == 5
    for line in curves.values():
        assert list(line.x) == sorted(line.x) and len(line.x) == len(line.decimals)
    # Half-way between 1 and 1 + 2^-5, its neighbour in posit(8,0).
    line = curves["posit(8,0)"]
    at = line.x.index(1 + 2.0**-6)
    want = -np.log10(max(abs(np.log10(1 / line.x[at])), abs(np.log10((1 + 2.0**-5) / line.x[at]))))
    assert line.decimals[at] == pytest.approx(want, rel=1e-12)
    numbers = accuracy.floating()
    assert numbers[0] == 2.0**-9 and numbers[-1] == 240 and (numbers.diff() > 0).all()


def test_figure_2_by_the_command(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    assert cli.main(["reproduce", "posit", "--experiment", "figure-2", "--out", str(out)]) == 0
    assert "| posit(8,2)" in capsys.readouterr().out
    assert (out / "figure-2.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((out / "results.json").read_text())["figure-2"]) == 5


def test_training_by_the_command(tmp_path, capsys, folder):
    pytest.importorskip("matplotlib")
    options = ["--experiment", "figure-9", "--arithmetic", "posit(16,2)", "--arithmetic", "float32",
               "--epochs", "1", "--images", "64", "--data", str(folder)]  # fmt: skip
    command = ["reproduce", "posit", *options, "--out", str(tmp_path), "--json"]
    assert cli.main(command) == 0
    streams = capsys.readouterr()
    figure = json.loads(streams.out)["figure-9"]
    assert figure["images"] == 64 and list(figure["runs"]) == ["posit(16,2)-quire", "float32"]
    assert all(len(run) == 1 for run in figure["runs"].values())
    assert "64 of 64, epoch 1, test" in streams.err
    assert (tmp_path / "figure-9.png").exists() and "Figure 9" in (
        tmp_path / "tables.md"
    ).read_text()
    assert cli.main(command) == 0  # from the checkpoints, at once
    assert json.loads(capsys.readouterr().out)["figure-9"] == figure


def test_errors_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TRAINWRIGHT_DATA", raising=False)
    command = ["reproduce", "posit", "--out", str(tmp_path)]
    assert cli.main([*command, "--arithmetic", "bf16"]) == 2
    assert "arithmetics are float32" in capsys.readouterr().err
    assert cli.main([*command, "--experiment", "figure-8"]) == 2
    assert "TRAINWRIGHT_DATA" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name, points", [("mnist", 0.3), ("fashion-mnist", 1.0)])
def test_posits_of_16_bits_train_as_float32_does(name, points, data_root, tmp_path):
    """The whole data set, one epoch; the documentation has seven."""
    data = load_data_set(name, data_root)
    accuracies = {}
    for way in ("float32", "posit(16,2)-quire"):
        kind = arithmetic(way)
        settings = RunSettings(name, kind.name, len(data.train))
        accuracies[way] = train(data, settings, kind, 1, tmp_path / f"{way}.safetensors")[
            -1
        ].accuracy
    assert 100 * (accuracies["float32"] - accuracies["posit(16,2)-quire"]) < points
