"""``trainwright sweep``: specs, the Pareto front, trials that are killed, tables."""

import argparse
import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from trainwright.cli import main, sweep
from trainwright.cli.errors import OptionError
from trainwright.cli.sweep import processes, ray_tune, results, spec
from trainwright.cli.sweep.processes import MOST_KILLS, Trial, train, train_all
from trainwright.cli.sweep.results import read_luts, settings, to_csv
from trainwright.cli.sweep.shelf import DataShelf
from trainwright.cli.sweep.spec import command_options, points, read_spec
from trainwright.cli.train.job import RunOptions, fresh_job
from trainwright.cli.train.options import add_arguments
from trainwright.data import DataError, load_data_set, own
from trainwright.data.prepared import load_prepared
from trainwright.network import load_network
from trainwright.report import front
from trainwright.report.front import Setting, objectives, pareto, table
from trainwright.support.locks import LOCK, locked
from trainwright.train.settings import TrainSettings


def write(path, text):
    path.write_text(text)
    return path


def asked(tmp_path, text):
    return points(read_spec(write(tmp_path / "s.toml", text)), tmp_path / "o")


# Specs.


def test_dry_run_prints_json_if_asked_and_reads_the_resources(tmp_path, capsys):
    text = '[train]\nnetwork = "digits"\n[axes]\nseed = [0, 1]\n'
    dry = ["sweep", str(write(tmp_path / "s.toml", text)), "--dry-run", "--json"]
    assert main(dry) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert trials == [f"trainwright train --network digits --seed {seed}" for seed in (0, 1)]
    assert main([*dry, "--resources", str(tmp_path / "none.jsonl")]) == 2
    assert "--resources: cannot read" in capsys.readouterr().err


def test_lists_of_repeatable_options_are_given_once_for_each_item(tmp_path):
    text = '[train]\nignore = ["day", "id"]\n{}\n[axes]\nseed = [0, 1]\n'
    read = read_spec(write(tmp_path / "s.toml", text.format("")))
    assert command_options(read.train) == ("--ignore", "day", "--ignore", "id")
    for other in ("ranks = [2, 4]", 'category = [["a"]]'):
        with pytest.raises(OptionError, match="a value is a text"):
            read_spec(write(tmp_path / "s.toml", text.format(other)))


def test_trials_are_all_combinations_as_command_lines(tmp_path):
    trials = asked(
        tmp_path,
        """
        [train]
        network = "digits"
        epochs = 3
        [axes]
        prior_weight = [0, 0.5]
        gradient = [8, "posit(8,1)c"]
        pe1-rows = [8]
        ranks = [4]
        """,
    )
    common = "trainwright train --network digits --epochs 3"
    sizes = "--accelerator pe1_rows=8 --ranks 4 --formats"
    assert [trial.command for trial in trials] == [
        f"{common} --no-prior {sizes} 'gradient=fixed(8)'",
        f"{common} --no-prior {sizes} 'gradient=posit(8,1)c'",
        f"{common} --prior-weight 0.5 {sizes} 'gradient=fixed(8)'",
        f"{common} --prior-weight 0.5 {sizes} 'gradient=posit(8,1)c'",
    ]
    assert trials[1].values == (
        ("prior-weight", 0), ("gradient", "posit(8,1)c"), ("pe1-rows", 8), ("ranks", 4),
    )  # fmt: skip
    assert {trial.asked.network.ranks for trial in trials} == {((4,), (4,))}
    assert trials[1].asked.accelerator.formats == ("posit(8,1)c",)
    assert len({trial.folder for trial in trials}) == 4


def test_sweep_switch_and_formats_of_all_and_of_one():
    assert command_options({"prior": False, "seed": 1}) == ("--no-prior", "--seed", "1")
    assert command_options({"prior": True, "lr": -1}) == ("--prior", "--lr=-1")
    given = command_options({"gradient": 8, "formats": "underflow=never"})
    assert given == ("--formats", "underflow=never,gradient=fixed(8)")


def test_other_packages_have_axes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(spec, "other_axes", lambda: {"board": lambda name: ("--preset", name)})
    trials = asked(tmp_path, "[axes]\nboard = ['zu3eg', 'ecp5-85f']\nranks = [4]")
    assert [trial.options for trial in trials] == [
        ("--preset", "zu3eg", "--ranks", "4"), ("--preset", "ecp5-85f", "--ranks", "4"),
    ]  # fmt: skip
    sizes = [trial.asked.accelerator for trial in trials]
    assert sizes[0].multipliers > sizes[1].multipliers
    with pytest.raises(OptionError, match="omit preset or board"):
        asked(tmp_path, "[train]\npreset = 'zu3eg'\n[axes]\nboard = ['ecp5-85f']")
    with pytest.raises(OptionError, match="and board"):
        asked(tmp_path, "[axes]\nplanet = ['mars']")


def test_sweep_single_rank_is_of_every_bond_that_can_have_it(tmp_path):
    trials = asked(tmp_path, "[axes]\nranks = [30, '9|8']")
    assert [t.asked.network.ranks for t in trials] == [((30,), (8,)), ((9,), (8,))]


@pytest.mark.parametrize(
    "axis", ["threads = [1, 2]", "board = ['first', 'second']", "prior = [true, false]"]
)
def test_sweep_values_that_only_place_a_trial_are_distinct(tmp_path, monkeypatch, axis):
    monkeypatch.setattr(spec, "other_axes", lambda: {"board": lambda name: ("--preset", "zu3eg")})
    assert len(asked(tmp_path, f"[axes]\n{axis}")) == 2


def test_sweep_folder_is_of_its_options_and_of_the_network_described(tmp_path):
    from trainwright.network.description import files

    digits = (files("trainwright.network") / "builtin" / "digits.toml").read_text()
    own = write(tmp_path / "own.toml", digits)
    text = f"[train]\nnetwork = '{own}'\nepochs = %s\n[axes]\nseed = %s"
    first = asked(tmp_path, text % (1, "[0]"))[0].folder
    assert asked(tmp_path, text % (1, "[1, 0]"))[1].folder == first
    assert asked(tmp_path, text % (2, "[0]"))[0].folder != first
    write(own, digits + "# other\n")
    assert asked(tmp_path, text % (1, "[0]"))[0].folder != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[axes]\nrank = [4]", "no axis 'rank'; there are options of trainwright train (network"),
        ("[axes]\nout = ['x']", "no axis 'out'"),
        ("[axes]\nranks = 4", "axes.ranks = 4: write the list of its values"),
        ("[axes]\nranks = []", "axes.ranks = []: write the list"),
        ("[axes]\nranks = [[4]]", "axes.ranks = [4]: a value is a text, a number"),
        ("[axes]\nseed = [1, 1]", "axes.seed has 1 twice"),
        ("[train]\nseed = 1\n[axes]\nseed = [1]", "seed is given twice"),
        ("[train]\nseed = 1", "nothing is varied"),
        ("[axis]\nseed = [1]", "no table 'axis'; there are [train] and [axes]"),
        ("axes = 3", "axes is a table: write [axes]"),
        ("axes", "is no TOML"),
        ("[axes]\nprior-weight = [0.5, -1]", "argument --prior-weight: must be over 0, not -1.0"),
        ("[axes]\nepochs = [1.5]", "epochs 1.5: argument --epochs: must be an integer, not '1.5'"),
        ("[axes]\nseed = [0]\nlanes = [16, 7]", "seed 0, lanes 7: --accelerator: lanes must be"),
        ("[axes]\ngradient = [99]", "gradient 99: --formats"),
        ("[axes]\npreset = ['z']", "preset z: --preset: no preset 'z'; there are zu3eg"),
        ("[axes]\nbackend = ['gold']", "backend gold: --backend: there is no 'gold'"),
        ("[axes]\nranks = ['4|4|4']", "ranks 4|4|4: ranks for 3 layers"),
        ("[axes]\nprior = [1]", "prior 1: prior is true or false, not 1"),
        ("[train]\nprior-weight = 0\n[axes]\nprior = [true]", "prior-weight 0 is no prior"),
        (f"[axes]\nseed = {[*range(10_001)]}", "10,001 trials, at most"),
        ("[axes]\nseed = [1, 2, '01']", "axes.seed: 1 and '01' mean the same trial: omit one"),
        ("[axes]\nseed = [0, 1]\nfactor = [3, 'fixed(3)']", "axes.factor: 3 and 'fixed(3)' mean"),
        ("[axes]\nprior-weight = [-0.0, 0]", "axes.prior-weight: -0.0 and 0 mean the same trial"),
        ("[train]\nnetwork = ''\n[axes]\nseed = [0]", "seed 0: network must have a value, not ''"),
        ("[train]\nnetwork = '--'\n[axes]\nseed = [0]", "network must have a value, not '--'"),
    ],
)  # fmt: skip
def test_sweep_bad_spec_is_one_error_that_names_it(tmp_path, capsys, text, message):
    path = write(tmp_path / "s.toml", text)
    assert main(["sweep", str(path), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert f"{path}" in error and message in error and error.count("\n") == 1


def test_sweep_missing_spec_and_a_cluster_without_ray(tmp_path, capsys, monkeypatch):
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file" in capsys.readouterr().err
    path = write(tmp_path / "s.toml", "[axes]\nseed = [0]")
    real = __import__("importlib.util").util.find_spec
    monkeypatch.setattr(
        "trainwright.cli.sweep.find_spec", lambda name: None if name == "ray" else real(name)
    )
    assert main(["sweep", str(path), "--address", "auto"]) == 2
    assert "--address needs Ray: pip install 'trainwright[sweep]'" in capsys.readouterr().err


# Results.


def test_sweep_front_has_undominated_runs():
    assert pareto([(1, 5), (2, 4), (2, 5), (1, 5), (9, 9), (3, 4)]) == [
        True, True, False, True, False, False,
    ]  # fmt: skip


def finished(point, **numbers):
    result = {
        "test_accuracy": 0.5, "best_test_accuracy": 0.5, "train_accuracy": 0.5, "final_loss": 1.0,
        "model_bits": 100, "reduction": 4.0, "training_state_bits": 7, "seconds": 1.0,
        "mismatches": 0, "digest": "d", "ranks": [[16], [8]],
        "step_cost": {"cycles": 50, "source": "counted", "is_whole": False},
    }  # fmt: skip
    point.folder.mkdir(parents=True)
    (point.folder / "result.json").write_text(json.dumps(result | numbers))


def test_sweep_combines_seeds_before_the_front(tmp_path):
    trials = asked(tmp_path, "[axes]\nranks = [4, 8, 2]\nseed = [0, 1]")
    for point, accuracy, bits in zip(
        trials, (0.5, 0.75, 0.5, 0.5, 0.25), (100, 300, 400, 400, 50), strict=False
    ):
        finished(point, test_accuracy=accuracy, model_bits=bits, reduction=1200 / bits)
    rows = [results.trial_row(p, "boom" if p is trials[5] else None, {}) for p in trials]
    assert [row["status"] for row in rows] == ["finished"] * 5 + ["failed"]
    assert rows[5]["message"] == "boom" and rows[0]["cycles_are"] == "counted"
    four, eight, two = settings(trials, rows)
    assert four.values == {"ranks": 4} and four.trials == 2 and two.trials == 1
    assert (four.test_accuracy, four.least, four.greatest) == (0.625, 0.5, 0.75)
    assert four.model_bits == 200 and four.reduction == 1200 / 200
    assert [s.front for s in (four, eight, two)] == [True, False, True]
    assert objectives([four]) == ["test_accuracy", "model_bits", "cycles"]
    with_luts = [replace(s, luts=luts) for s, luts in ((four, 9.0), (eight, None))]
    assert "luts" not in objectives(with_luts) and "LUTs" in table(with_luts)
    lines = list(csv.DictReader(to_csv(rows).splitlines()))
    assert lines[1]["ranks"] == "4" and lines[1]["seed"] == "1"
    assert lines[1]["test_accuracy"] == "0.75" and lines[5]["test_accuracy"] == ""


def test_cycles_are_predicted_and_luts_those_measured_of_the_same_accelerator(tmp_path):
    (point,) = asked(tmp_path, "[axes]\npreset = ['ecp5-85f']")
    cost = {"cycles": 70, "source": "predicted", "is_whole": False}
    finished(point, step_cost=cost, ranks=[[3], [2]])
    mark = point.asked.accelerator.fingerprint
    lines = [{"fingerprint": mark, "luts": 7}, {"fingerprint": mark, "luts": 8}]
    measured = write(tmp_path / "r", "\n".join(map(json.dumps, lines)))
    row = results.trial_row(point, None, read_luts(str(measured)))
    assert row["cycles"] == 70 and row["cycles_are"] == "predicted"
    assert row["luts"] == 8 and row["ranks_left"] == "3|2"
    with pytest.raises(OptionError, match="not what `trainwright build --append` writes"):
        read_luts(str(write(measured, "{}")))


# Processes, which are a script that stands for a training.

POPEN = subprocess.Popen
FAKE = """
import os, signal, sys, time
from pathlib import Path
arguments = sys.argv[1:]
folder = Path(arguments[arguments.index("--out") + 1])
(folder / "calls").open("a").write(" ".join(arguments) + chr(10))
calls = (folder / "calls").read_text().count(chr(10))
print("step 1/2", file=sys.stderr, flush=True)
(folder / "checkpoint.safetensors").write_text("")
BODY
(folder / "result.json").write_text("{}")
"""


def trial_of(tmp_path, monkeypatch, body, name="t"):
    script = write(tmp_path / "fake.py", FAKE.replace("BODY", body))

    def start(command, **more):
        assert command[1:4] == ["-m", "trainwright.cli", "train"]
        return POPEN([command[0], str(script), *command[4:]], **more)

    monkeypatch.setattr(processes.subprocess, "Popen", start)
    return Trial(name, ("--seed", "3"), tmp_path / name)


def calls(trial):
    return (trial.folder / "calls").read_text().splitlines()


def test_sweep_killed_training_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    trial = trial_of(tmp_path, monkeypatch, "calls < 3 and os.kill(os.getpid(), signal.SIGKILL)")
    told = []
    assert train(trial, "D", lambda *args: told.append(args[1:])) == 0
    first, *further = calls(trial)
    assert first.endswith("--force --seed 3 --data D") and told == [(1, 2)] * 3
    assert len(further) == 2 and all("--resume --data D" in line for line in further)
    assert train(trial, None, lambda *_: None) == 0 and len(calls(trial)) == 3


def test_sweep_shows_lines_of_trials_that_compile(tmp_path, monkeypatch, capsys):
    line = "trainwright: compiling a: 2 s so far; pass 3"
    trial = trial_of(
        tmp_path, monkeypatch, f"print({line!r}, 'a note', sep=chr(10), file=sys.stderr)"
    )
    assert train(trial, None, lambda *_: None) == 0
    assert capsys.readouterr().err == "trainwright: t: compiling a: 2 s so far; pass 3\n"


def test_sweep_records_killed_and_failed_runs(tmp_path, monkeypatch):
    trial = trial_of(tmp_path, monkeypatch, "sys.exit(143)")
    with pytest.raises(OptionError, match=r"`trainwright train --seed 3` was killed 4 times"):
        train(trial, None, lambda *_: None)
    assert len(calls(trial)) == 1 + MOST_KILLS
    bad = trial_of(tmp_path, monkeypatch, "sys.exit('trainwright: error: no' + chr(10))", "bad")
    good = Trial("good", (), tmp_path / "good")
    good.folder.mkdir()
    (good.folder / "result.json").write_text("{}")
    failures = train_all([bad, good], 1, None, lambda *_: None)
    assert failures == {bad: "`trainwright train --seed 3` failed: no"}
    assert len(calls(bad)) == 1


def test_sweep_folder_that_cannot_be_written_fails_its_trial(tmp_path, capsys):
    write(tmp_path / "file", "")
    trial = Trial("t", (), tmp_path / "file" / "t")
    message = f"cannot write to {trial.folder}: Not a directory"
    assert train_all([trial], 1, None, lambda *_: None) == {trial: message}
    spec = write(tmp_path / "s.toml", "[axes]\nseed = [0]")
    assert main(["sweep", str(spec), "--out", str(tmp_path / "file" / "out")]) == 2
    message = f"cannot write to {tmp_path}/file/out: Not a directory"
    assert capsys.readouterr().err == f"trainwright: error: {message}\n"


def test_sweep_interrupted_training_is_not_begun_again(tmp_path, monkeypatch):
    trial = trial_of(tmp_path, monkeypatch, "sys.exit(130)")
    assert train_all([trial], 2, None, lambda *_: None) is None
    assert len(calls(trial)) == 1


@pytest.mark.usefixtures("interruptible")
def test_sweep_that_is_interrupted_alone_ends_its_trainings(tmp_path, monkeypatch):
    trial = trial_of(tmp_path, monkeypatch, "time.sleep(30)")
    began = time.monotonic()

    def interrupt(*_):  # as `kill -INT`, which reaches no training
        os.kill(os.getpid(), signal.SIGINT)

    assert train_all([trial], 1, None, interrupt) is None
    assert time.monotonic() - began < 20 and len(calls(trial)) == 1 and not trial.finished


def test_sweep_folder_in_which_another_is_at_work_is_waited_for(tmp_path):
    trial = Trial("t", (), tmp_path)
    asked_times = []

    def stopped():
        asked_times.append(0)
        return len(asked_times) >= 3

    with locked(tmp_path / LOCK):
        assert train(trial, None, lambda *_: None, stopped=stopped) == 130
    assert len(asked_times) >= 3 and not (tmp_path / "command.txt").exists()


def test_sweep_table_in_markdown_has_a_cell_for_each_column():
    setting = Setting({"ranks": "16|8"}, 1, 0.5, 0.5, 0.5, 100, 2.0, 10, None)
    line = table([setting], bar="\\|").splitlines()[2]
    assert line.split(" | ")[1] == "16\\|8" and line.count("|") - line.count("\\|") == 9
    assert "16|8" in table([setting])


@pytest.mark.parametrize("r2", [None, -0.25])
def test_sweep_of_regressions_names_r2_in_table_and_picture(tmp_path, monkeypatch, r2):
    points = asked(tmp_path, "[axes]\nseed = [0, 1]")
    for point, accuracy in zip(points, (-0.25, 0.75), strict=True):
        finished(point, test_accuracy=accuracy, test_r2=r2)
    rows = [results.trial_row(point, None, {}) for point in points]
    combined = results.settings(points, rows)
    head, _, line = (
        [cell.strip() for cell in text.split("|")] for text in table(combined).splitlines()
    )
    shown = dict(zip(head, line, strict=True))
    monkeypatch.setattr(front, "to_png", lambda figure: figure)
    axes = front.draw_front(combined).axes[0]
    (point,) = axes.containers[0].lines[0].get_ydata()
    if r2 is None:
        assert (shown["test, %"], shown["spread"], point) == ("25", "100", 25)
        assert axes.get_ylabel() == "% of the test samples right"
    else:
        assert (shown["test R2"], shown["spread"], point) == ("0.25", "1", 0.25)
        assert axes.get_ylabel() == "R2 of the test samples"


def test_sweep_writes_results_and_picture(tmp_path, monkeypatch, capsys):
    text = "[axes]\nranks = [4, 8, 2]"
    for point, accuracy in zip(asked(tmp_path, text), (0.5, 0.75), strict=False):
        finished(point, test_accuracy=accuracy)
    command = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o")]
    command += ["--engine", "processes"]
    trial_of(tmp_path, monkeypatch, "sys.exit(130)")
    assert main([*command, "--json"]) == 130
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert [row["status"] for row in report["trials"]] == ["finished", "finished", "unfinished"]
    assert [s["front"] for s in report["settings"]] == [False, True]
    assert "finished: 2 of 3 runs" in captured.err
    assert "interrupted; the same command goes on" in captured.err
    assert json.loads((tmp_path / "o" / "results.json").read_text()) == report
    table = (tmp_path / "o" / "table.md").read_text().splitlines()
    assert table[2].startswith("| *     | 8 ") and table[3].startswith("|       | 4 ")
    spread = [cell.strip() for cell in table[0].split("|")].index("spread")
    assert table[2].split("|")[spread].strip() == "-"

    assert len((tmp_path / "o" / "trials.csv").read_text().splitlines()) == 4
    assert (tmp_path / "o" / "front.png").read_bytes()[:4] == b"\x89PNG"
    trial_of(tmp_path, monkeypatch, "sys.exit('trainwright: error: no')")
    assert main(command) == 2
    captured = capsys.readouterr()
    assert "1 of 3 trials failed; ranks 2: `trainwright train --ranks 2` failed: no" in captured.err
    assert "front: best in test_accuracy, model_bits, cycles together" in captured.out


# Ray, which is a module that stands for it.


class Tuner:
    """Calls the function for each point of the grid, as Ray's does in its workers."""

    def __init__(self, function, *, param_space, tune_config, run_config):
        self.function, self.grid, self.settings = function, param_space["trial"], run_config

    def fit(self):
        print("Ray tells of itself")
        return [self._result(number) for number in self.grid]

    def _result(self, number):
        result = SimpleNamespace(config={"trial": number}, metrics=None, error=None)

        def report(metrics):
            assert "done" not in metrics  # a word of Ray's: it ends the trial
            result.metrics = metrics
            self.settings.callbacks[0].on_trial_result(
                iteration=1, trials=[], trial=result, result=metrics
            )

        sys.modules["ray.tune"].report = report
        try:
            self.function(result.config)
        except OSError as error:
            result.error = error
        return result


@pytest.fixture
def ray(monkeypatch):
    called = []
    tune = SimpleNamespace(
        Tuner=Tuner, Callback=object, grid_search=list, TuneConfig=SimpleNamespace,
        RunConfig=SimpleNamespace, FailureConfig=SimpleNamespace,
        with_resources=lambda function, _: function,
    )  # fmt: skip
    module = SimpleNamespace(
        init=lambda **more: called.append(more["address"]), shutdown=lambda: called.append("end")
    )
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.tune", tune)
    return called


def test_trials_on_ray(tmp_path, monkeypatch, ray, capsys):
    good = trial_of(tmp_path, monkeypatch, "", "good")
    done = Trial("done", (), tmp_path / "done")
    done.folder.mkdir()
    (done.folder / "result.json").write_text("{}")
    told = []
    trials = [done, good, Trial("bad", (), tmp_path / "done" / "result.json" / "x")]
    failures = ray_tune.train_all(
        trials, None, None, lambda *args: told.append(args), out=tmp_path, address="there"
    )
    assert list(failures) == [trials[2]] and "Not a directory" in failures[trials[2]]
    assert told[0] == (good, 1, 2) and good.finished and ray == ["there", "end"]
    captured = capsys.readouterr()
    assert captured.out == "" and "Ray tells of itself" in captured.err
    assert ray_tune.train_all([done], 1, None, lambda *_: None, out=tmp_path) == {}


def test_trials_on_ray_that_fail_and_that_are_interrupted(tmp_path, monkeypatch, ray):
    bad = trial_of(tmp_path, monkeypatch, "sys.exit('trainwright: error: no')", "bad")
    failures = ray_tune.train_all([bad], 1, None, lambda *_: None, out=tmp_path)
    assert failures == {bad: "`trainwright train --seed 3` failed: no"}
    left = trial_of(tmp_path, monkeypatch, "sys.exit(130)", "left")
    assert ray_tune.train_all([left], 1, None, lambda *_: None, out=tmp_path) is None


def test_ray_that_does_not_start_is_one_error(tmp_path, monkeypatch, ray):
    def init(**_):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(sys.modules["ray"], "init", init)
    trials = [trial_of(tmp_path, monkeypatch, "", "good")]
    with pytest.raises(OptionError, match=r"does not answer: The current [^;]*; --engine proc"):
        ray_tune.train_all(trials, 1, None, lambda *_: None, out=tmp_path)
    far = {"out": tmp_path, "address": "far:6379"}
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(OptionError, match=r"on far:6379 .*; set RAY_AUTH_MODE=token .*, or --eng"):
        ray_tune.train_all(trials, 1, None, lambda *_: None, **far)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(OptionError, match=r"startup.; --engine processes does without"):
        ray_tune.train_all(trials, 1, None, lambda *_: None, **far)


def test_parquet_is_the_same_table(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"ranks": 4, "lr": 1, "n": 1}, {"ranks": "8|4", "lr": 0.5, "n": None}]
    (tmp_path / "t").write_bytes(results.to_parquet(rows))
    assert parquet.read_table(tmp_path / "t").to_pylist() == [
        {"ranks": "4", "lr": 1.0, "n": 1}, {"ranks": "8|4", "lr": 0.5, "n": None},
    ]  # fmt: skip


@pytest.mark.slow
def test_killed_sweep_ends_with_the_bits_of_a_run_of_its_own(tmp_path, capsys):
    path = write(
        tmp_path / "s.toml",
        "[train]\nnetwork = 'digits'\nepochs = 6\n[axes]\nranks = [4]\ngradient = [8, 16]",
    )
    again = ["sweep", str(path), "--out", str(tmp_path / "o"), "--engine", "processes", "--json"]
    with subprocess.Popen([sys.executable, "-m", "trainwright.cli", *again]) as process:
        while not list((tmp_path / "o").glob("trials/*/history.jsonl")):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    capsys.readouterr()
    assert main(again) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["status"] for row in report["trials"]] == ["finished"] * 2
    assert (tmp_path / "o" / "front.png").read_bytes()[:4] == b"\x89PNG"
    for row in report["trials"]:
        own = tmp_path / str(row["gradient"])
        options = ["--ranks", "4", "--formats", f"gradient=fixed({row['gradient']})"]
        common = ["train", "--network", "digits", "--epochs", "6", "--out", str(own), "--json"]
        assert main([*common, *options]) == 0
        assert json.loads(capsys.readouterr().out)["digest"] == row["digest"]
    assert os.listdir(tmp_path / "o" / "trials") and main(again) == 0
    assert json.loads(capsys.readouterr().out) == report


@pytest.mark.parametrize(
    ("options", "name"),
    [([], "processes"), (["--engine", "ray"], "ray_tune"), (["--address", "auto"], "ray_tune")],
)
def test_sweep_engine_default_is_processes_although_ray_is_installed(
    tmp_path, monkeypatch, options, name
):
    monkeypatch.setattr("trainwright.cli.sweep.find_spec", lambda package: package)
    parser = argparse.ArgumentParser()
    sweep.command.add_arguments(parser)
    engine = sweep._engine(parser.parse_args(["s.toml", *options]), tmp_path)
    assert getattr(engine, "func", engine).__module__ == f"trainwright.cli.sweep.{name}"


# Own data.

TABLE = "size,colour,good\n" + "".join(
    f"{n % 7},{'red' if n % 3 else 'blue'},{'yes' if n % 2 else 'no'}\n" for n in range(40)
)


def test_sweep_own_data_is_read_once_and_given_to_every_trial(tmp_path, monkeypatch, capsys):
    data = write(tmp_path / "t.csv", TABLE)
    spec = write(tmp_path / "s.toml", "[train]\nbatch = 8\nepochs = 1\n[axes]\nseed = [0, 1, 2]")
    reads = []
    read_cells = own.read_cells
    monkeypatch.setattr(own, "read_cells", lambda path: (reads.append(path), read_cells(path))[1])
    trial_of(tmp_path, monkeypatch, "sys.exit(130)")
    out = tmp_path / "o"
    assert main(["sweep", str(spec), "--data", str(data), "--out", str(out)]) == 130
    assert reads == [data]
    lines = [file.read_text() for file in sorted(out.glob("trials/*/calls"))]
    (prepared,) = {shlex.split(line)[shlex.split(line).index("--prepared") + 1] for line in lines}
    expected = load_data_set("table", data)
    again = load_prepared(Path(prepared))
    assert (again.preparation, again.notes) == (expected.preparation, expected.notes)
    for part in ("train", "test"):
        for name in ("images", "labels"):
            arrays = [getattr(getattr(source, part), name) for source in (again, expected)]
            assert arrays[0].dtype == arrays[1].dtype and (arrays[0] == arrays[1]).all()

    data.unlink()  # a trial reads the sweep's file alone
    arguments = argparse.ArgumentParser()
    add_arguments(arguments)
    options = ["--out", str(tmp_path / "new"), *shlex.split(lines[0])[4:]]
    fresh = fresh_job(arguments.parse_args(options))
    assert fresh.data.preparation == expected.preparation
    Path(prepared).write_bytes(Path(prepared).read_bytes()[:-9])
    with pytest.raises(DataError, match="start the sweep again"):
        load_prepared(Path(prepared))


def test_sweep_over_targets_reads_a_table_once_a_target(tmp_path, monkeypatch):
    data = write(tmp_path / "t.csv", TABLE)
    text = "[train]\nbatch = 8\n[axes]\ntarget = ['good', 'colour']\nseed = [0, 1]"
    shelf = DataShelf(tmp_path / "o")
    reads = []
    read_cells = own.read_cells
    monkeypatch.setattr(own, "read_cells", lambda path: (reads.append(path), read_cells(path))[1])
    spec = read_spec(write(tmp_path / "s.toml", text))
    trials = points(
        replace(spec, train={**spec.train, "data": str(data)}), tmp_path / "o", shelf.load
    )
    files = [shelf.placed(trial, trial.asked.options).prepared for trial in trials]
    assert len(reads) == 2 and files[0] == files[1] != files[2] == files[3]
    assert load_prepared(files[2]).class_names == ("blue", "red")


def test_sweep_of_other_data_under_the_same_name_trains_again(tmp_path, monkeypatch):
    data = write(tmp_path / "t.csv", TABLE)
    spec = write(tmp_path / "s.toml", "[train]\nbatch = 8\n[axes]\nseed = [0]")
    trial_of(tmp_path, monkeypatch, "sys.exit(130)")
    out = tmp_path / "o"

    def trained():
        assert main(["sweep", str(spec), "--data", str(data), "--out", str(out)]) == 130
        return {path.name for path in (out / "trials").iterdir()}

    first = trained()
    assert len(first) == 1 and trained() == first
    write(data, TABLE.replace("yes", "no", 1))
    assert len(trained() - first) == 1


@pytest.mark.parametrize("held", [0, -1])
def test_data_shelf_folder_follows_every_array_of_own_data(tmp_path, held):
    """Change one sample of one split, and see another folder; the data sets of all have none."""
    images = np.zeros((20, 2, 2), np.uint8)
    arrays = {"x_train": images, "y_train": np.arange(20) % 2,
              "x_test": images + 3, "y_test": np.arange(20) % 2}  # fmt: skip
    folders, trial = set(), Trial("a", (), tmp_path / "trial")
    for name in (None, *arrays):
        other = {key: value.copy() for key, value in arrays.items()}
        if name:
            other[name][held] ^= 1
        np.savez(tmp_path / "a.npz", **other)
        run = RunOptions(dataset="npz", data=str(tmp_path / "a.npz"))
        folders.add(DataShelf(tmp_path).placed(trial, run).folder.name)
    assert len(folders) == 5 and all(name.startswith("trial-") for name in folders)
    assert DataShelf(tmp_path).placed(trial, RunOptions(dataset="digits")) is trial


def test_sweep_folder_is_of_the_content_of_initial_factors(tmp_path, monkeypatch):
    options = RunOptions(dataset="digits")
    new = spec.RequestedRun(load_network("digits"), options, TrainSettings())
    monkeypatch.setattr(spec, "checked", lambda *_: new)
    factors = tmp_path / "f.safetensors"
    text = f"[train]\ninitial = '{factors}'\n[axes]\nseed = [0]"
    names = set()
    for content in (b"a", b"b", b"a"):
        factors.write_bytes(content)
        (trial,) = spec.points(read_spec(write(tmp_path / "s.toml", text)), tmp_path, None)
        names.add(trial.folder)
    assert len(names) == 2
