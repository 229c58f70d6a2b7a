"""``trainwright eval``: the accuracy of the run again, class by class, and one-line errors."""

import json
import signal

import numpy as np
import pytest
import torch

from trainwright.accelerator import Counters, backend_names
from trainwright.cli import main
from trainwright.report.classes import class_results, class_table
from trainwright.support.tensor_file import decode, encode
from trainwright.train.checkpoint import load_checkpoint
from trainwright.train.evaluate import Evaluation
from trainwright.train.export import FORMAT, load_model, save_model
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.skipif(
    "golden" not in backend_names(),
    reason="trainwright is not installed: no back ends are registered",
)


def run(capsys, *argv):
    """Run a command line; return (status, stdout, stderr)."""
    status = main([str(word) for word in argv])
    return status, *capsys.readouterr()


def complaint(capsys, *argv):
    status, out, err = run(capsys, *argv)
    assert status == 2 and out == "" and err.count("\n") == 1, (status, out, err)
    return err.removeprefix("trainwright: error: ").strip()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, drawing):
    """Train a run whose plan and batch are not the default ones; return its folder."""
    out = tmp_path_factory.mktemp("trained") / "r"
    arguments = ["train", "--steps", "30", "--batch", "48", "--out", str(out)]
    with drawing():
        assert main(arguments) == 0
    return out


def test_eval_model_gives_the_accuracy_of_its_run(capsys, trained, tmp_path):
    model, out = trained / "model.safetensors", tmp_path / "deep" / "e"
    status, text, _ = run(capsys, "eval", model, "--json", "--out", out)
    report, result = json.loads(text), json.loads((trained / "result.json").read_text())
    assert status == 0 and text.count("\n") == 1
    for name in ("test_accuracy", "test_samples", "confusion", "model_bits", "ranks", "digest"):
        assert report[name] == result[name], name
    assert sum(c["correct"] for c in report["classes"]) == round(360 * result["test_accuracy"])
    assert {path.name for path in out.iterdir()} == {"eval.json", "confusion.png", "samples.png"}
    assert json.loads((out / "eval.json").read_text()) == report
    for picture in ("confusion", "samples"):  # those of the run's own report
        drawn = (trained / "pictures" / f"{picture}.png").read_bytes()
        assert (out / f"{picture}.png").read_bytes() == drawn


def test_eval_of_float32_model_matches_its_run(capsys, tmp_path):
    arguments = ["train", "--steps", "10", "--numbers", "float32", "--json"]
    own = json.loads(run(capsys, *arguments, "--out", tmp_path)[1])
    report = json.loads(run(capsys, "eval", tmp_path / "model.safetensors", "--json")[1])
    assert (report["backend"], report["digest"]) == ("float32", own["digest"])
    assert report["test_accuracy"] == own["test_accuracy"]


def test_eval_table_has_row_per_class(capsys, trained):
    status, text, _ = run(capsys, "eval", trained / "model.safetensors", "--test-samples", "100")
    assert status == 0 and text.count("\n| ") + text.startswith("| ") == 11
    assert "of 100 test images of digits" in text


def test_eval_checkpoint_of_an_open_run(capsys, tmp_path, monkeypatch):
    out, stepped = tmp_path / "r", Trainer.step

    def step(self):
        record = stepped(self)
        if record.step == 20:
            signal.raise_signal(signal.SIGINT)
        return record

    monkeypatch.setattr(Trainer, "step", step)
    assert main(["train", "--steps", "30", "--out", str(out)]) == 130
    capsys.readouterr()
    status, text, _ = run(capsys, "eval", out / "checkpoint.safetensors", "--json")
    report = json.loads(text)
    assert status == 0 and 0.5 < report["test_accuracy"] < 1
    digest = load_checkpoint(out / "checkpoint.safetensors").state.model.digest()
    assert report["digest"] == digest


@pytest.mark.slow  # compiles a simulator where none is in the cache
def test_eval_simulated_hardware_agrees(capsys, trained):
    if "rtl" not in backend_names():
        pytest.skip("trainwright_sim is not installed")
    model = [trained / "model.safetensors", "--test-samples", "48", "--json"]
    golden = json.loads(run(capsys, "eval", *model)[1])
    hardware = json.loads(run(capsys, "eval", *model, "--backend", "rtl")[1])
    assert hardware["confusion"] == golden["confusion"] and hardware["cycles"] > 0


def test_other_data_and_its_class_names(capsys, trained, tmp_path):
    from trainwright.data import load_data_set

    digits = load_data_set("digits").test
    names = np.array([f"digit {n}" for n in range(10)])
    images = digits.images / 16  # 255 levels are finer than the network's 128
    path = tmp_path / "mine.npz"
    np.savez(path, x_train=images[:1], y_train=digits.labels[:1], x_test=images,
             y_test=digits.labels, class_names=names)  # fmt: skip
    model = trained / "model.safetensors"
    report = json.loads(run(capsys, "eval", model, "--data", path, "--json")[1])
    assert report["dataset"] == "npz" and report["classes"][3]["name"] == "digit 3"
    own = json.loads((trained / "result.json").read_text())
    assert report["test_accuracy"] == own["test_accuracy"]
    np.savez(path, x=np.zeros((10, 4, 4), np.uint8), y=digits.labels[:10])
    message = complaint(capsys, "eval", model, "--data", path)
    assert "made for images of 8 x 8, data set 'npz' has 4 x 4" in message
    assert message.endswith("give samples like those that the model was trained on")


def test_eval_rejects_folder_beside_bundled_data(capsys, trained, tmp_path):
    assert main(["eval", str(trained / "model.safetensors"), "--data", str(tmp_path)]) == 2
    assert "data set 'digits' comes with scikit-learn" in capsys.readouterr().err


def test_files_that_are_no_model(capsys, trained, tmp_path):
    path = tmp_path / "m.safetensors"
    assert "there is no checkpoint" in complaint(capsys, "eval", path)
    path.write_bytes(b"PK\x03\x04 a pickle in a zip")
    assert "damaged or not of trainwright" in complaint(capsys, "eval", path)
    whole = (trained / "model.safetensors").read_bytes()
    path.write_bytes(whole[:-7])
    assert "is damaged" in complaint(capsys, "eval", path)
    path.write_bytes(whole[:-7] + bytes([whole[-7] ^ 1]) + whole[-6:])
    assert "do not have the digest" in complaint(capsys, "eval", path)


def test_eval_model_that_does_not_tell_its_origin(capsys, trained, tmp_path):
    from trainwright.network import load_network
    from trainwright.train.model import initial_model

    path, model = tmp_path / "m.safetensors", initial_model(load_network("digits"), 0)
    save_model(path, model, load_model(trained / "model.safetensors").scales)
    assert "does not say on what data" in complaint(capsys, "eval", path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, t: m.pop("network"), "is not a model of this version: 'network'"),
        (lambda m, t: m["origin"].pop("plan"), "is not a model of this version"),
        (lambda m, t: m["origin"].update(batch="many"), "is not a model of this version"),
        (
            lambda m, t: t.update({"factor.0.0": torch.zeros(3, dtype=torch.int8)}),
            "factor.0.0 does not have the shape [1, 8, 4, 16] of the network, but [3]",
        ),
        (lambda m, t: t.pop("bias.1"), "is not a model of this version: 'bias.1'"),
        (
            lambda m, t: m.update(format="other"),
            "has format 'other' and not 'trainwright-model-2' or",
        ),
    ],
)
def test_eval_rejects_damaged_model(capsys, trained, tmp_path, change, message):
    metadata, tensors = decode(trained / "model.safetensors", FORMAT)
    change(metadata, tensors)
    path = tmp_path / "m.safetensors"
    path.write_bytes(encode(metadata, tensors))
    assert message in complaint(capsys, "eval", path)


def test_options_that_cannot_be(capsys, trained, tmp_path):
    model = trained / "model.safetensors"
    assert "--backend must be one of" in complaint(capsys, "eval", model, "--backend", "abacus")
    assert "add --backend rtl" in complaint(capsys, "eval", model, "--memory-stall", "0.1")
    assert "unknown data set 'cifar'" in complaint(capsys, "eval", model, "--dataset", "cifar")
    path = tmp_path / "wide.npz"
    np.savez(path, x=np.zeros((10, 9, 9), np.uint8), y=np.arange(10))
    assert "images of 8 x 8, data set 'npz' has 9 x 9" in complaint(
        capsys, "eval", model, "--data", path
    )
    (tmp_path / "f").write_text("")
    out = ["--out", tmp_path / "f" / "e", "--test-samples", "1"]
    status, _, err = run(capsys, "eval", model, *out)
    assert status == 2 and "cannot write to" in err


def test_results_by_class():
    labels, predictions = np.array([0, 0, 0, 1, 1, 3]), np.array([0, 1, 1, 1, 0, 1])
    evaluation = Evaluation(predictions, labels, Counters(), 0.0)
    zero, first, two, three = class_results(evaluation, "zero one two three".split())
    assert (zero.samples, zero.correct, zero.accuracy, zero.precision) == (3, 1, 1 / 3, 1 / 2)
    assert (first.accuracy, first.precision, first.mistaken_for) == (1 / 2, 1 / 4, "zero")
    assert (two.samples, two.accuracy, two.precision, two.mistaken_for) == (0, None, None, None)
    assert (three.accuracy, three.precision, three.mistaken_for) == (0.0, None, "one")
    assert "| two   |      0 |     0 | -" in class_table([zero, first, two, three], "images")
