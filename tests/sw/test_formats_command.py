"""``--formats`` and ``--scales`` of the commands, and ``trainwright reproduce formats``."""

import argparse
import json

import pytest
import torch

from trainwright.cli import main
from trainwright.cli.options import accelerator_parameters
from trainwright.cli.reproduce.formats import FORMATS, NARROW_WORDS, ROWS
from trainwright.cli.reproduce.runs import all_runs, rows_named
from trainwright.cli.train.options import add_arguments
from trainwright.compiler.base.limits import require_words
from trainwright.network import load_network
from trainwright.parameters import CODED_ACCUMULATOR
from trainwright.train.export import load_model
from trainwright.train.host_update import HostUpdate
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

NARROW = "factor=posit(4,0),activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c"


def failed(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_formats_command_accelerator_follows_from_the_network():
    network = load_network("digits").with_formats(NARROW)
    p = accelerator_parameters([], network)
    assert p.formats == ("posit(4,0)", "posit(8,0)", "posit(8,1)c")
    assert p.accumulator_width == 48 and p.factor_width == 4
    small = accelerator_parameters(["preset=ecp5-85f"], network)
    assert small.accumulator_width == CODED_ACCUMULATOR == 44
    assert accelerator_parameters(["preset=ecp5-85f"]).accumulator_width < 44
    assert accelerator_parameters(["accumulator_width=40"], network).accumulator_width == 40
    assert accelerator_parameters(["formats=posit(6,1)"], network).formats == ("posit(6,1)",)


def test_formats_command_network_without_data_names_the_remedy(tmp_path, capsys):
    path = tmp_path / "own.toml"
    layers = "[[layers]]\noutputs = [2]\ninputs = [4]\nranks = []\n"
    path.write_text(f"classes = 2\nimage = [2, 2]\n{layers}")
    assert main(["formats", str(path)]) == 2
    assert "names no data set: give data of your own with --data" in capsys.readouterr().err


def test_check_tells_formats_and_underflows(capsys):
    arguments = ["check", "--network", "digits", "--backend", "golden", "--formats", NARROW]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["formats"] == load_network("digits").with_formats(NARROW).formats
    assert report["underflows"] > 0 and report["mismatches"] == 0


@pytest.mark.parametrize(
    ("formats", "more", "message"),
    [
        ("gradient=posit(8,1)", (), "--formats: posit(8,1) needs operands of 26 bits"),
        ("gradient=posit(8,1)", (), "choose posit(8,1)c"),
        ("gradient=posit(6,1)", ("formats=posit(8,0)",), "formats=posit(8,0),posit(6,1)"),
        ("gradient=fixed(8),underflow=zero", (), "underflow is for posits, and nothing has such"),
        ("gradient=float", (), "--formats: gradient: no number format 'float'; there are fixed(W)"),
        ("gradient=posit(8,1)c", ("accumulator_width=24",), "accumulator_width="),
        ("gradient=posit(6,1)", ("stochastic_rounding=1",), "stochastic_rounding is for fixed"),
    ],
)
def test_formats_that_do_not_go(capsys, formats, more, message):
    options = [part for item in more for part in ("--accelerator", item)]
    arguments = ["check", "--backend", "golden", "--formats", formats, *options]
    assert message in failed(capsys, *arguments)


def test_stochastic_rounding_is_of_fixed_point(capsys):
    arguments = ["--backend", "golden", "--rounding-mode", "stochastic", "--formats", NARROW]
    error = failed(capsys, "check", *arguments)
    assert "choose nearest, or formats such as fixed(8)" in error


def train(out, *options: str, steps: int = 30) -> int:
    common = ["--network", "digits", "--steps", str(steps), "--epochs", "2", "--no-prior", "--json"]
    return main(["train", "--out", str(out), *common, *options])


@pytest.mark.parametrize("scales", ("automatic", "frozen"))
def test_training_with_posits(tmp_path, capsys, scales):
    assert train(tmp_path / "r", "--formats", NARROW, "--scales", scales) == 0
    capsys.readouterr()
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert result["settings"]["scales"] == scales
    lines = (tmp_path / "r" / "history.jsonl").read_text().splitlines()
    steps = [r for r in map(json.loads, lines) if r["kind"] == "step"]
    moved = sum(r["moved"] for r in steps)
    assert moved == 0 if scales == "frozen" else moved > 0
    assert sum(r["underflows"] for r in steps) > 0 and steps[-1]["loss"] < steps[0]["loss"]
    assert main(["eval", str(tmp_path / "r" / "model.safetensors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] > 0.3


def test_run_is_resumed_with_its_formats(tmp_path, capsys, monkeypatch):
    assert train(tmp_path / "whole", "--formats", NARROW) == 0
    whole = json.loads(capsys.readouterr().out)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", lambda self: [self.step() for _ in range(9)] and False)
        assert train(tmp_path / "r", "--formats", NARROW) == 130
    capsys.readouterr()
    again = ["train", "--resume", "--out", str(tmp_path / "r"), "--json"]
    other = "gradient=fixed(16)"
    assert f"--formats {other}" in failed(capsys, *again, "--formats", other)
    assert "--scales automatic" in failed(capsys, *again, "--scales", "frozen")
    assert main([*again, "--network", "digits", "--formats", NARROW]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == whole["digest"]


def test_formats_command_run_is_resumed_with_its_ranks(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "run", lambda self: self.step() and False)
        assert train(tmp_path / "r", "--ranks", "30", steps=3) == 130
    capsys.readouterr()
    again = ["train", "--resume", "--out", str(tmp_path / "r"), "--json"]
    assert "not made with these --ranks" in failed(capsys, *again, "--ranks", "16|8")
    assert "not to --network digits" in failed(capsys, *again, "--network", "digits")
    assert main([*again, "--network", "digits", "--ranks", "30|8"]) == 0
    assert json.loads(capsys.readouterr().out)["initial_ranks"] == [[30], [8]]


@pytest.mark.parametrize("formats", (NARROW, "gradient=fixed(8)"))
def test_formats_command_freezes_all_scales(tmp_path, capsys, monkeypatch, formats):
    """No exponent of a step moves, of an interrupted run too; the model has its biases' with it."""
    seen: list[tuple[int, ...]] = []
    options = ("--formats", formats, "--scales", "all-frozen")
    step = Trainer.step

    def noted(trainer: Trainer) -> object:
        record = step(trainer)
        _, exponents = trainer.engine.driver._forward
        loss = trainer._task.update.loss(torch.randn(64, 16), torch.zeros(64).long())
        seen.append((*(exponents[name] for name in ("l1.b", "l2.b", "l1.y")), loss.exponent))
        return record

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", noted)
        patched.setattr(Trainer, "run", lambda self: [self.step() for _ in range(9)] and False)
        assert train(tmp_path / "r", *options) == 130
    capsys.readouterr()
    assert train(tmp_path / "whole", *options) == 0
    whole = json.loads(capsys.readouterr().out)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", noted)
        assert main(["train", "--resume", "--out", str(tmp_path / "r"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == whole["digest"]
    assert len(seen) == 30 and len(set(seen)) == 1
    fmt = load_network("digits").with_formats(formats).format("gradient")
    greatest = 2.0 ** seen[0][-1] * fmt.decode(fmt.largest)
    assert greatest * 2 >= 1 / 64  # not far from what saturates nothing
    model = load_model(tmp_path / "whole" / "model.safetensors").model
    assert model.bias_exponents == [-5, -5]
    assert main(["eval", str(tmp_path / "whole" / "model.safetensors"), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["test_accuracy"]
    assert accuracy == whole["test_accuracy"] > 0.3


def test_in_float32_there_are_no_scales_to_freeze():
    settings = TrainSettings(scales="all-frozen")
    network = load_network("digits")
    assert initial_state(network, settings).model.bias_exponents == [-5, -5]
    state = initial_state(network.in_float32(), settings)
    update = HostUpdate(state.model, settings, samples=64)
    loss = update.loss(torch.zeros(64, 16, dtype=torch.float64), torch.zeros(64).long())
    assert state.model.bias_exponents is None and loss.exponent is None


# Reproducing.


def test_rows_are_command_lines_of_train_and_formats_of_the_network():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert len({row.name for row in ROWS}) == len(ROWS) == 2 * (len(FORMATS) + len(NARROW_WORDS))
    for row in ROWS:
        args = parser.parse_args(list(row.options))
        network = load_network("fashion").with_formats(args.formats)
        p = accelerator_parameters(args.accelerator, network)
        assert p.word_width == (8 if "words-8" in row.name else 16)
        require_words(network, p)


@pytest.mark.slow  # table1 has the running of rows, the test below the table of results
def test_reproduced_and_given_again(folder, tmp_path, capsys):
    rows = ["posit-8-frozen", "fixed-8-words-8-automatic"]
    arguments = ["reproduce", "formats", "--data", str(folder), "--out", str(tmp_path / "f")]
    arguments += ["--seeds", "1", "--epochs", "2", "--rows", *rows]
    assert main([*arguments, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [o["scales"] for o in runs] == ["frozen", "automatic"]
    assert runs[0]["exponents_moved"] == 0 and runs[1]["underflowed"] == 0
    assert runs[0]["underflowed"] > 0 and runs[1]["moved"] > runs[1]["stored"] / 8
    assert [o["word_width"] for o in runs] == [16, 8]
    for o, name in zip(runs, rows, strict=True):
        stored = json.loads((tmp_path / "f" / name / "seed-0" / "result.json").read_text())
        assert o["test"] == 100 * stored["test_accuracy"]
    assert (tmp_path / "f" / "accuracy.png").read_bytes()[:4] == b"\x89PNG"
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "finished: 2 of 2 runs" in captured.err and FORMATS["posit-8"] in captured.out


def test_formats_command_tabulates_finished_runs(folder, tmp_path, capsys):
    """A row has one finished run, another has none; nothing is trained, no data set is read."""
    out = tmp_path / "f"
    arguments = ["--seeds", "2", "--epochs", "2", "--out", str(out), "--finished"]
    arguments += ["--data", str(tmp_path), "--rows", "posit-8-frozen", "fixed-8-frozen"]
    [group] = all_runs(rows_named({"all": ROWS}, ["posit-8-frozen"]), 2, out, 2).values()
    run = group[1]
    where = ["--out", str(run.folder), "--data", str(folder), "--json"]
    assert main(["train", *run.options, "--steps", "3", *where]) == 0
    capsys.readouterr()
    assert main(["reproduce", "formats", *arguments, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    result = json.loads((run.folder / "result.json").read_text())
    assert row["seeds"] == [1] and row["test"] == 100 * result["test_accuracy"]


def test_formats_command_rejects_unknown_row(capsys):
    assert "no row 'posit'; there are fixed-16-automatic" in failed(
        capsys, "reproduce", "formats", "--rows", "posit"
    )
    chosen = rows_named({"all": ROWS}, ["posit-8-frozen", "fixed-8-frozen"])
    assert chosen[0].name == "fixed-8-frozen"
