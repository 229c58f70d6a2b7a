"""From dense weights to factors to a training run, and rounding after training."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matrices import normal
from safetensors.torch import save_file

from trainwright.cli import main
from trainwright.cli.errors import OptionError
from trainwright.cli.train import outcome
from trainwright.fixed.quantise import dequantise, quantise
from trainwright.formats import Fixed
from trainwright.network import load_network
from trainwright.report import rounding_picture
from trainwright.support.tensor_file import CheckpointError
from trainwright.train.export import load_model
from trainwright.train.initial import initial_factors
from trainwright.train.model import initial_model
from trainwright.train.pretrained import (
    Pretrained,
    fit_weight,
    load_pretrained,
    pretrained_model,
    quantisation,
    save_pretrained,
)
from trainwright.train.rounding import rounded_model
from trainwright.tt import TensorTrainError, distance, to_matrix

pytestmark = pytest.mark.usefixtures("first_programs")

DIGITS, FASHION = load_network("digits"), load_network("fashion")


def test_weights_are_filled_up_as_images_are():
    layer = FASHION.layers[0]
    weight = normal(500, 784)
    fitted = fit_weight(weight, layer, FASHION.image, FASHION.padded)
    image = torch.zeros(28, 32)
    image[:, :28] = torch.arange(784.0).reshape(28, 28)
    direct = weight @ torch.arange(784.0).double()
    assert torch.allclose(fitted[:500] @ image.flatten().double(), direct)
    assert not fitted[500:].any()
    with pytest.raises(TensorTrainError, match=r"does not fit .* a row for each output"):
        fit_weight(normal(513, 784), layer)


def test_quantisation_of_a_factor_loses_little():
    value = normal(4, 5, 6, 7, dtype=torch.float32) * 0.03
    for width, most in ((4, 0.15), (8, 0.01)):
        k = quantisation(value, Fixed(width))
        error = dequantise(quantise(value, k, width), k) - value
        assert error.norm() < most * value.norm()
    assert quantisation(torch.zeros(1, 2, 3, 4), Fixed(4)) == 0


def _pretrained(network):
    factors, _ = initial_factors(network, 0)
    return Pretrained(
        network,
        [[p.value for p in layer] for layer in factors],
        [torch.ones(layer.output_size) for layer in network.layers],
    )


def test_files_of_factors(tmp_path):
    given, path = _pretrained(DIGITS), tmp_path / "factors.safetensors"
    save_pretrained(path, given)
    read = load_pretrained(path)
    assert read.network == DIGITS
    assert all(torch.equal(a, b) for a, b in zip(read.factors[0], given.factors[0], strict=True))
    model = pretrained_model(read)
    assert torch.equal(model.biases[1].value, torch.ones(16))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError):
        load_pretrained(path)


def test_rounding_a_model_keeps_its_matrices_within_the_tolerance():
    model = initial_model(DIGITS, 0)
    quantised = model.quantised()
    wide = load_network("digits")
    rounded = rounded_model(model, 0.3)
    assert sum(map(sum, rounded.network.ranks)) < sum(map(sum, wide.ranks))
    for n in range(2):
        pairs = zip(quantised.factors[n], quantised.factor_exponents[n], strict=True)
        before = [dequantise(f, k) for f, k in pairs]
        masters = [p.value for p in rounded.factors[n]]  # clipped, not yet quantised
        assert distance(before, masters) < 0.45
        assert to_matrix(masters).shape == to_matrix(before).shape


@pytest.mark.parametrize(
    "options",
    [
        ["--formats", "factor=fixed(8)"],
        ["--formats", "factor=posit(6,1),activation=fixed(6)"],
        ["--numbers", "float32"],
    ],
)
def test_pretrained_factors_begin_in_the_formats_of_the_options(tmp_path, options):
    given, path = _pretrained(DIGITS), tmp_path / "factors.safetensors"
    save_pretrained(path, given)
    argv = ["train", "--initial", str(path), *options, "--steps", "1", "--lr", "1e-6", "--no-prior"]
    assert main([*argv, "--test-samples", "64", "--out", str(tmp_path / "run")]) == 0
    stored = load_model(tmp_path / "run" / "model.safetensors").model
    wanted = DIGITS.in_float32() if "float32" in options else DIGITS.with_formats(options[1])
    assert stored.network == wanted
    start = pretrained_model(replace(given, network=wanted)).quantised()
    for ours, theirs in zip(stored.factors, start.factors, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a.double(), b.double(), atol=1, rtol=1e-3)
    if wanted.widths.is_float:
        assert torch.allclose(stored.factors[0][0], given.factors[0][0], rtol=1e-4, atol=1e-5)


def test_rounding_a_float_model_rounds_its_values(tmp_path):
    out = tmp_path / "run"
    argv = ["train", "--numbers", "float32", "--steps", "2", "--test-samples", "64", "--no-prior"]
    assert main([*argv, "--tt-round", "0.4", "--out", str(out)]) == 0
    model, rounded = (
        load_model(out / name).model for name in ("model.safetensors", "rounded.safetensors")
    )
    for before, after in zip(model.factors, rounded.factors, strict=True):
        assert 0.01 < distance([f.double() for f in before], [f.double() for f in after]) <= 0.4


def test_rounding_that_was_interrupted_is_done_on_resume(tmp_path, monkeypatch, capsys):
    asked = []

    def stopped(job, _, tolerance, *, stop):
        asked.append((tolerance, job.options.tt_round_epochs))
        raise OptionError("stopped")

    monkeypatch.setattr(outcome, "round_job", stopped)
    out = ["--out", str(tmp_path / "run")]
    begun = ["--steps", "1", "--test-samples", "64", "--checkpoint-seconds", "0", *out]
    assert main(["train", *begun, "--tt-round", "0.4", "--tt-round-epochs", "2"]) == 2
    assert main(["train", "--resume", *out]) == 2
    assert main(["train", "--resume", *out, "--tt-round", "0.2"]) == 2
    assert asked == [(0.4, 2), (0.4, 2), (0.2, 2)]


def test_rounding_a_regression_reports_r2_and_no_accuracy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outcome, "TOLERANCES", (0.0,))
    drawn = []
    monkeypatch.setattr(rounding_picture, "to_png", lambda f: drawn.append(f.axes[0]) or b"")
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "".join(f"{n},{n * 7 % 11 + 0.5}\n" for n in range(40)))
    train = ["train", "--epochs", "1", "--batch", "16", "--tt-round", "0.5"]
    for place in ("x", "y"):
        argv = [*train, "--data", str(table), "--out", str(tmp_path / place / "run")]
        beside = ["--tt-round-beside", str(tmp_path / "x" / "run")] * (place == "y")
        assert main([*argv, *beside]) == 0
        assert re.search(r"rounded to 0.5: R2 -?\d\.\d{4}, ", capsys.readouterr().err)
    assert drawn[0].get_ylabel() == "R2 of the test samples"
    low, high = drawn[0].get_ylim()
    assert all(low <= y <= high for line in drawn[0].lines for y in line.get_ydata())
    assert main([*train[:-2], "--tt-round", "0", "--out", str(tmp_path / "z"), *beside]) == 2
    assert "x/run has R2, which this run does not measure" in capsys.readouterr().err


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """Train a dense digits classifier by torch for a moment."""
    from trainwright.data import load_data_set

    data = load_data_set("digits", None)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    x = torch.from_numpy(data.train.images.reshape(-1, 64) / data.full_scale).float()
    y = torch.from_numpy(data.train.labels.astype(np.int64))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    path = tmp_path_factory.mktemp("dense") / "dense.npz"
    np.savez(path, **{name: t.numpy() for name, t in net.state_dict().items()})
    return path


def test_pretrained_dense_network_becomes_a_run(capsys, tmp_path, monkeypatch, dense):
    monkeypatch.setattr(outcome, "TOLERANCES", (0.0, 0.6))
    factors, out = tmp_path / "factors.safetensors", tmp_path / "run"
    argv = ["compress", str(dense), "--network", "digits", "--tolerance", "0.3", "--json"]
    argv += ["--low", "fp16", "--high", "fp32", "--cast-level", "block", "--out", str(factors)]
    assert main(argv) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert all(layer["error"] < 0.31 for layer in report["layers"])
    assert report["warnings"] == [] and "warning" not in printed.err
    train = ["train", "--initial", str(factors), "--steps", "22", "--out", str(out), "--json"]
    train += ["--no-prior", "--lr", "0.002", "--tt-round", "0.3", "--tt-round-epochs", "1"]
    assert main([*train, "--dataset", "digits"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.85  # a fresh network has under 0.8 after one epoch
    rounding = json.loads((out / "rounding.json").read_text())
    bits = [r["model_bits"] for r in rounding["rounded"]]
    assert bits == sorted(bits, reverse=True) and bits[-1] < bits[0]
    assert rounding["chosen"]["tuned"] > 0.8
    assert (out / "pictures" / "rounding.png").read_bytes().startswith(b"\x89PNG")
    assert "rounding.png" in (out / "report.html").read_text()
    stored = load_model(out / "rounded.safetensors").model
    assert stored.network.model_bits == rounding["chosen"]["model_bits"]
    assert main([*train, "--force", "--network", "fashion"]) == 2
    assert "belongs to network 'digits'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--tt-round-epochs", "1"], "need --tt-round"),
        (["--tt-round", "0.1", "--tt-round-beside", "nowhere"], "no finished run"),
        (["--initial", "nothing.safetensors"], "no checkpoint"),
        (["--initial", "x", "--resume", "--out", "y"], "--initial begins one"),
        (["--initial", "FACTORS", "--spread", "4"], "--initial decides the spread of its factors"),
        (["--initial", "FACTORS", "--ranks", "4"], "--initial decides the ranks of its factors"),
    ],
)
def test_options_of_training_that_cannot_be(capsys, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    save_pretrained(tmp_path / "FACTORS", _pretrained(DIGITS))
    assert main(["train", *argv]) == 2
    assert message in capsys.readouterr().err


def test_train_tolerance_of_one_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--tt-round", "1"])
    assert "--tt-round: must be at least 0 and less than 1, not 1" in capsys.readouterr().err


def test_pretrained_matrix_that_is_mostly_gone_is_told(capsys, tmp_path, dense):
    """And only that: a train of all ranks loses nothing."""
    argv = ["compress", str(dense), "--network", "digits", "--json"]
    argv += ["--out", str(tmp_path / "factors.safetensors")]
    told = {}
    for rank in ("1", "1000"):
        assert main([*argv, "--rank", rank]) == 0
        printed = capsys.readouterr()
        report = json.loads(printed.out)
        large = [layer for layer in report["layers"] if layer["error"] > 0.5]
        assert len(report["warnings"]) == len(large) == printed.err.count("trainwright: warning: ")
        for layer, warning in zip(large, report["warnings"], strict=True):
            assert warning in printed.err
            assert f"layer {layer['layer']}, {layer['matrix']}: " in warning
            assert f"relative error {layer['error']:.2f}" in warning
            assert "a higher --rank or a lower --tolerance keeps more" in warning
        told[rank] = len(large)
    assert told == {"1": 2, "1000": 0}


def test_weights_that_cannot_be(capsys, tmp_path, dense):
    def complaint(*argv):
        assert main(["compress", *argv, "--out", str(tmp_path / "f.safetensors")]) == 2
        return capsys.readouterr().err

    assert "there is no file" in complaint(str(tmp_path / "no.npz"))
    assert "does not fit" in complaint(
        str(dense), "--network", "digits", "--weight", "2.weight", "--weight", "0.weight"
    )
    assert "has 1 matrix (0.weight) for the" in complaint(str(dense), "--weight", "0.weight")
    assert "name them with --weight" in complaint(str(dense), "--weight", "0.weight")
    trains = dense.with_name("trains.safetensors")
    save_file({"factor": torch.ones(1, 2, 2, 1)}, trains)
    assert "has no matrix, only 1 tensor of other dimensions" in complaint(str(trains))
    assert "no matrix 'x'" in complaint(str(dense), "--weight", "x", "--weight", "0.weight")
    assert "unknown number format" in complaint(str(dense), "--network", "digits", "--low", "fp1")
    (tmp_path / "bad.safetensors").write_bytes(b"none")
    assert "neither a safetensors file" in complaint(str(tmp_path / "bad.safetensors"))
    (tmp_path / "bad.npz").write_bytes(b"none")
    assert "bad.npz" in complaint(str(tmp_path / "bad.npz"))
    truncated = tmp_path / "truncated.npz"
    truncated.write_bytes(dense.read_bytes()[:-30])
    assert "truncated or damaged" in complaint(str(truncated))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("0.weight", lambda a: a * np.nan, "0.weight has NaN or infinite elements"),
        ("2.bias", lambda a: a / 0, "2.bias has NaN or infinite elements"),
        ("2.weight", lambda a: a * 1j, "2.weight is complex; weights are matrices of real numbers"),
        ("0.weight", lambda a: a[:0], "0.weight is empty"),
        ("2.weight", lambda a: a.astype(object), "holds pickled Python objects"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_weights_that_are_no_real_numbers(capsys, tmp_path, dense, name, change, message, suffix):
    arrays = dict(np.load(dense))
    arrays[name] = change(arrays[name])
    path = tmp_path / f"w.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays, note=np.array("text is passed over"))
    elif arrays[name].dtype == object:
        return  # there is no such file
    else:
        save_file({key: torch.from_numpy(array) for key, array in arrays.items()}, path)
    out = tmp_path / "f.safetensors"
    assert main(["compress", str(path), "--network", "digits", "--out", str(out)]) == 2
    assert message in capsys.readouterr().err and not out.exists()
