"""history.jsonl while training, and TensorBoard's event files: every point once, also resumed."""

import csv
import json
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.accelerator import backend_names
from trainwright.cli import main
from trainwright.network import load_network
from trainwright.support.errors import FileError
from trainwright.train.history import EvaluationRecord, History, ScaleRecord, StepRecord
from trainwright.train.logs import EVERY, Curves, JsonLines, LogError, check_curves, own
from trainwright.train.trainer import Trainer

NETWORK = load_network("digits")
golden = pytest.mark.skipif(
    "golden" not in backend_names(),
    reason="trainwright is not installed: no back ends are registered",
)


def record(step, ranks=(16, 8)):
    return StepRecord(
        step=step, epoch=1 + step // 22, loss=2 / step, correct=step % 64, samples=64,
        learning_rate=0.01, prior_weight=0.5, cycles=100, seconds=0.1, moved=1, saturations=step,
        underflows=2 * step,
        ranks=ranks,
    )  # fmt: skip


def points(folder):
    """(step, value) of every scalar by name, as the files hold them: nothing is purged."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    series = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                series.setdefault(value.tag, []).append((event.step, value.simple_value))
    return series


def test_lines_are_there_while_the_run_goes_on(tmp_path):
    history = History([record(1)])
    log = JsonLines(tmp_path / "h", history)
    log.started(1, 9, NETWORK)
    assert (tmp_path / "h").read_text() == history.to_lines()
    history.steps.append(record(2))
    history.scales.append(ScaleRecord(2, "l1.y", -5, 0.25, 0.0))
    log.stepped(record(2))
    assert (tmp_path / "h").read_text() == history.to_lines()  # the first is written out at once
    history.evaluations.append(EvaluationRecord(2, 1, 0.5, 10))
    log.evaluated(history.evaluations[0])
    log.close()
    assert (tmp_path / "h").read_text() == history.to_lines()
    assert [json.loads(s)["kind"] for s in history.to_lines().splitlines()] == [
        "step", "step", "scale", "evaluation",
    ]  # fmt: skip


def test_half_a_line_of_a_killed_run_is_gone(tmp_path):
    history = History([record(1)])
    (tmp_path / "h").write_text(history.to_lines() + '{"kind": "step", "st')
    log = JsonLines(tmp_path / "h", history)
    log.started(1, 9, NETWORK)
    log.close()
    assert (tmp_path / "h").read_text() == history.to_lines()


def test_logs_file_that_cannot_be_written_is_told_in_one_line(tmp_path):
    log = JsonLines(tmp_path / "none" / "h", History())
    with pytest.raises(FileError, match=r"cannot write .*none/h: No such file"):
        log.started(0, 9, NETWORK)


def test_points_of_event_files(tmp_path):
    pytest.importorskip("tensorboard")
    history = History()
    log = Curves("tensorboard", tmp_path, {}, history, NETWORK)
    log.started(0, 99, NETWORK)
    history.scales.append(ScaleRecord(20, "l1.y", -5, 0.25, 0.125))  # the trainer puts it there
    for step in range(1, 2 * EVERY + 4):
        log.stepped(record(step, (16, 8) if step < 7 else (5, 8)))
    log.evaluated(EvaluationRecord(22, 1, 0.75, 10))
    log.evaluated(EvaluationRecord(22, 1, 0.75, 10))  # again, after a resumed run
    log.close()
    series = points(tmp_path / "tensorboard")
    losses = [sum(2 / s for s in range(a, a + EVERY)) / EVERY for a in (1, 1 + EVERY)]
    assert [step for step, _ in series["train/loss"]] == [EVERY, 2 * EVERY]
    assert [value for _, value in series["train/loss"]] == pytest.approx(losses, rel=2**-23)
    assert series["ranks/layer 1, bond 1"] == [(1, 16), (7, 5)]
    bits = NETWORK.with_ranks([[5], [8]]).model_bits
    assert series["model/bits"] == [(1, NETWORK.model_bits), (7, bits)]
    assert series["test/accuracy"] == [(22, 0.75)]
    assert series["exponent/l1.y"] == [(20, -5)] and series["saturated/l1.y"] == [(20, 0.125)]
    assert series["accelerator/cycles a step"] == [(EVERY, 100), (2 * EVERY, 100)]


def test_without_the_package_the_option_says_so(monkeypatch):
    monkeypatch.setattr("trainwright.train.logs.find_spec", lambda name: None)
    check_curves([])
    with pytest.raises(LogError, match="--tensorboard needs tensorboard: pip install"):
        check_curves(["csv", "tensorboard"])


@golden
def test_logs_interrupted_run_leaves_every_point_once(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    arguments = ["train", "--steps", "48", "--tensorboard", "--json"]
    assert main([*arguments, "--out", str(tmp_path / "whole")]) == 0
    whole = json.loads(capsys.readouterr().out)
    stop, stepped = SimpleNamespace(at=27), Trainer.step

    def step(self):
        done = stepped(self)
        if done.step == stop.at:
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Trainer, "step", step)
    out = tmp_path / "parts"
    assert main([*arguments, "--out", str(out)]) == 130
    lines = (out / "history.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds.count("step") == 27 and kinds.count("evaluation") == 1
    assert json.loads(lines[-1])["step"] == 27 and "scale" in kinds
    capsys.readouterr()
    assert main(["train", "--resume", "--json", "--out", str(out)]) == 0  # the option is stored
    parts = json.loads(capsys.readouterr().out)
    assert parts["digest"] == whole["digest"]
    assert points(out / "tensorboard") == points(tmp_path / "whole" / "tensorboard")
    assert len(list((out / "tensorboard").iterdir())) == 1
    best = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    best = [line for line in best if line["kind"] == "evaluation"]
    assert [line["step"] for line in best] == [22, 44, 48]
    assert parts["best_test_accuracy"] == max(line["accuracy"] for line in best)
    assert parts["test_accuracy"] == best[-1]["accuracy"] and whole["best_epoch"] in (1, 2, 3)


# Sinks of one's own.

DOCUMENT = (Path(__file__).parents[2] / "docs" / "guide" / "sweeps.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, flags=re.DOTALL | re.MULTILINE)


class Recorder(SimpleNamespace):
    """Stands for wandb or mlflow: writes down what it is asked."""

    def __getattr__(self, name):
        def ask(*args, **more):
            self.asked.append((name, args, more))
            return self

        return ask


def some_steps(name, folder):
    log = Curves(name, folder, {"seed": 3}, History(), NETWORK)
    log.started(0, 99, NETWORK)
    for step in range(1, EVERY + 1):
        log.stepped(record(step))
    log.evaluated(EvaluationRecord(22, 1, 0.75, 10))
    log.close()


def test_points_of_curves_csv_each_once_also_resumed(tmp_path):
    history = History()
    log = Curves("csv", tmp_path, {}, history, NETWORK)
    for resumed in (False, True):
        log.started(EVERY * resumed, 99, NETWORK)
        for step in range(1, EVERY + 1) if not resumed else ():
            history.steps.append(record(step))
            log.stepped(record(step))
        log.evaluated(EvaluationRecord(22, 1, 0.75, 10))
        log.close()
        lines = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
        table = {(int(line["step"]), line["name"]): float(line["value"]) for line in lines}
        assert len(table) == len(lines) == 2 + 2 + 8 + 1
        assert table[EVERY, "train/loss"] == sum(2 / s for s in range(1, EVERY + 1)) / EVERY
        assert table[1, "ranks/layer 1, bond 1"] == 16 and table[22, "test/accuracy"] == 0.75


def test_curves_of_records_with_several_steps_have_means_of_a_step(tmp_path):
    log = Curves("csv", tmp_path, {}, History(), NETWORK)
    log.started(0, 69, NETWORK)
    for step in (22, 44, 66, 69):  # the last has fewer steps, as the run ends there
        taken = 3 if step == 69 else 22
        log.stepped(replace(record(step), correct=taken, samples=64 * taken, cycles=7 * taken))
    log.close()
    table = {}
    for line in csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()):
        table.setdefault(line["name"], {})[int(line["step"])] = float(line["value"])
    assert table["train/loss"] == pytest.approx({step: 2 / step for step in (22, 44, 66, 69)})
    assert set(table["train/accuracy"].values()) == {1 / 64}
    assert set(table["accelerator/cycles a step"].values()) == {7}
    assert table["scales/values saturated"] == {22: 1, 44: 2, 66: 3, 69: 23}


@pytest.mark.parametrize(
    ("package", "example", "name", "calls"),
    [
        ("wandb", EXAMPLES[0], "Wandb", ["init", "log", "log", "log", "finish"]),
        (
            "mlflow", EXAMPLES[1], "Mlflow",
            ["start_run", "log_params", *["log_metrics"] * 3, "end_run"],
        ),
    ],
)  # fmt: skip
def test_logs_documented_examples_run(tmp_path, monkeypatch, package, example, name, calls):
    told = Recorder(asked=[])
    monkeypatch.setitem(sys.modules, package, told)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{package}_logs.py").write_text(example)
    some_steps(f"{package}_logs:{name}", tmp_path)
    assert [call for call, *_ in told.asked] == calls
    assert [more["step"] for *_, more in told.asked if "step" in more] == [1, EVERY, 22]
    points = [args[0] for call, args, _ in told.asked if call in ("log", "log_metrics")]
    assert points[2] == {"test/accuracy": 0.75} and "train/loss" in points[1]
    assert not any("," in name for name in points[0]) or package == "wandb"


def test_log_that_is_not_there_or_fails_is_told_in_one_line(tmp_path, monkeypatch, capsys):
    for name, message in (
        ("cvs", "no 'cvs'; there are tensorboard, csv, and MODULE:CLASS"),
        ("no_module_of_this_name:X", "No module named"),
        ("csv:Nothing", "has no attribute 'Nothing'"),
    ):
        assert main(["train", "--out", str(tmp_path / "r"), "--log", name]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "r").exists()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "failing.py").write_text(
        "class Log:\n def __init__(s, *a): pass\n def add(s, *a): raise KeyError('no net')\n"
        " def close(s): pass\n"
    )
    with pytest.raises(LogError, match="--log failing:Log: 'no net'"):
        some_steps("failing:Log", tmp_path)


def test_checkpoints_name_no_code():
    assert own(["csv", "logs:Wandb", "tensorboard"]) == ["csv", "tensorboard"]
    assert own(None) == []
