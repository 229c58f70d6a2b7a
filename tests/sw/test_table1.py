"""``trainwright reproduce table1`` on a data set of a few images: rows, resuming, refusals."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from trainwright.cli import main
from trainwright.cli.reproduce.runs import rows_named, seeded
from trainwright.cli.sweep import processes
from trainwright.cli.train.options import add_arguments
from trainwright.report.table1 import ABLATIONS, FRONTIER, GROUPS, TABLE, outcome

EPOCHS = "5"
"""Long enough for an interrupt in the first."""


ALL = "fixed-prior", "float"

NO_PROCESS = 1 << 22
"""Number that no process of Linux has."""


def options(folder, out, *more, epochs=EPOCHS, rows=ALL):
    common = ["--data", str(folder), "--out", str(out), "--seeds", "1", "--epochs", epochs]
    return ["reproduce", "table1", *common, "--rows", *rows, *more]


@contextmanager
def in_this_process():
    """Run trainings where ``test_sweep`` has processes: imported once, and drawing no pictures."""

    @contextmanager
    def start(command, **_):
        assert command[1:3] == ["-m", "trainwright.cli"]
        yield Mock(pid=NO_PROCESS, stderr=(), wait=lambda: main(command[3:]))

    with pytest.MonkeyPatch.context() as patched:
        launcher = SimpleNamespace(Popen=start, DEVNULL=None, PIPE=None)
        patched.setattr(processes, "subprocess", launcher)
        yield


@pytest.fixture(scope="module")
def done(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "table1"
    with in_this_process():
        assert main(options(folder, out)) == 0
    return out


def test_table1_writes_results_and_pictures(done):
    results = json.loads((done / "results.json").read_text())
    assert list(results) == ["float", "fixed-prior"]
    text = (done / "table.md").read_text()
    for name, row in results.items():
        stored = json.loads((done / name / "seed-0" / "result.json").read_text())
        assert row["test"] == pytest.approx(100 * stored["test_accuracy"])
        assert row["digests"] == [stored["digest"]] and stored["digest"][:16] in text
        assert row["reduction"] == pytest.approx(stored["dense_bits"] / stored["model_bits"])
        assert row["command"] in text
    assert "dense float32" in text and "the paper's contraction order" in text
    pictures = {path.name for path in done.glob("*.png")}
    assert pictures == {"accuracy.png", "ranks.png", "frontier.png", "scales-fixed-prior.png"}


def test_finished_runs_are_kept(done, folder, capsys):
    before = (done / "float" / "seed-0" / "result.json").stat().st_mtime_ns
    capsys.readouterr()
    assert main(options(folder, done, "--json")) == 0
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)) == ["float", "fixed-prior"]
    assert "finished: 2 of 2 runs" in captured.err
    assert (done / "float" / "seed-0" / "result.json").stat().st_mtime_ns == before


def test_rows_that_are_not_asked_for_again_leave_no_picture(done, folder, tmp_path):
    out = shutil.copytree(done, tmp_path / "again")
    with in_this_process():
        assert main(options(folder, out, rows=("float",))) == 0
    assert list(json.loads((out / "results.json").read_text())) == ["float"]
    assert {path.name for path in out.glob("*.png")} == {
        "accuracy.png",
        "ranks.png",
        "frontier.png",
    }


def test_another_choice_is_not_mixed_in(done, folder, capsys):
    assert main(options(folder, done, epochs="9")) == 2
    error = capsys.readouterr().err
    assert f"--epochs {EPOCHS}" in error and "--epochs 9" in error and "name another --out" in error


def test_table1_means_of_seeds(done, tmp_path):
    row = TABLE[0]
    runs = []
    for seed, accuracy in enumerate((0.5, 0.75)):
        run = seeded(row, seed, tmp_path / str(seed), 2)
        shutil.copytree(done / "float" / "seed-0", run.folder)
        result = run.result() | {"test_accuracy": accuracy, "model_bits": 100 * (seed + 1)}
        (run.folder / "result.json").write_text(json.dumps(result))
        runs.append(run)
    combined = outcome(runs)
    assert [combined[name] for name in ("test", "spread", "seeds")] == [62.5, 25.0, [0, 1]]
    assert combined["bits"] == 150 and combined["reduction"] == result["dense_bits"] / 150


@pytest.mark.parametrize("rows", [("float",), pytest.param(ALL, marks=pytest.mark.slow)])
def test_interrupted_and_given_again(done, folder, tmp_path, rows):
    again = options(folder, tmp_path / "t", rows=rows)
    first = tmp_path / "t" / "float" / "seed-0"
    with subprocess.Popen(
        [sys.executable, "-m", "trainwright.cli", *again],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        while process.poll() is None and not (first / "history.jsonl").is_file():
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        error = process.communicate()[1]
    assert process.returncode == 130, error
    assert (first / "checkpoint.safetensors").is_file() and not (first / "result.json").exists()
    with in_this_process():
        assert main(again) == 0
    for name in rows:
        digests = [
            json.loads((out / name / "seed-0" / "result.json").read_text())["digest"]
            for out in (tmp_path / "t", done)
        ]
        assert digests[0] == digests[1]


def test_table1_unknown_row_and_missing_data(folder, tmp_path, capsys):
    assert main(["reproduce", "table1", "--data", str(folder), "--rows", "tabel"]) == 2
    assert "no row 'tabel'; there are table, frontier, ablations" in capsys.readouterr().err
    assert main(options(tmp_path, tmp_path / "t")) == 2
    assert "fashion-mnist" in capsys.readouterr().err
    assert not (tmp_path / "t").exists()


def test_every_row_is_a_command_line_of_train():
    import argparse

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    rows = rows_named(GROUPS, ["table", "frontier", "ablations"])
    assert len(rows) == len({row.name for row in rows}) == len(TABLE + FRONTIER + ABLATIONS)
    for row in rows:
        args = parser.parse_args(list(row.options))
        assert args.network is None and args.out is None


PAGE = Path(__file__).parents[2] / "docs" / "results" / "training.md"


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", ("TT fixed, no prior", "TT fixed, prior", "TT fixed, prior, strong")
)
def test_command_of_a_row_gives_the_digest_of_the_page(row, data_root, tmp_path, capsys):
    """Minutes each: rows whose ranks are cut follow the programs for many ranks."""
    line = re.search(rf"\| {row} \| `trainwright (.*)` \| (\w+),", PAGE.read_text())
    words = [*line[1].split(), "--data", str(data_root), "--out", str(tmp_path / "run"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["digest"].startswith(line[2])
