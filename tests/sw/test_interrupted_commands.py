"""Ctrl-C in a real process: one line, status 130, and nothing half written."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright import __version__
from trainwright.cli import core, main
from trainwright.cli.train import session

SPEC = """[train]
network = "digits"
epochs = 300

[axes]
seed = [0, 1]
"""
PATIENCE = 120
"""Seconds that a loaded machine may take to reach the state waited for."""


def interrupted(folder: Path, arguments: list[str], ready: Callable[[], bool]) -> tuple[int, str]:
    """Start a command, press Ctrl-C once it is ``ready``; return its status and what it printed."""
    environment = {**os.environ, "TRAINWRIGHT_PROGRAM_CACHE": "0", "OMP_NUM_THREADS": "1"}
    with (folder / "printed").open("w") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainwright.cli", *arguments],
            cwd=folder, env=environment, stdout=printed, stderr=printed, start_new_session=True,
            # What a shell starts in the background ignores Ctrl-C, and so would a child of it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        end = time.monotonic() + PATIENCE
        try:
            while not ready():
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)  # a terminal tells the whole group
            status = process.wait(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    text = (folder / "printed").read_text()
    assert "Traceback" not in text
    return status, text


def partial_files(folder: Path) -> list[Path]:
    """Return files that a reader could take for whole ones and are not, or are left over."""
    return [path for path in folder.rglob("*") if path.suffix in (".tmp", ".part", ".partial")]


# Both commands compile by the same call below the same `main`: one of them by default.
@pytest.mark.parametrize("command", [pytest.param("plan", marks=pytest.mark.slow), "check"])
def test_ctrl_c_while_compiling_is_one_line_and_leaves_no_file(tmp_path, command):
    # A batch of 512 compiles for many seconds; after two of them a line tells that it does.
    network = {"plan": ["fashion"], "check": ["--network", "fashion"]}[command]
    printed = tmp_path / "printed"
    status, text = interrupted(
        tmp_path, [command, *network, "--batch", "512"], lambda: "compiling" in printed.read_text()
    )
    assert status == 130
    assert text.splitlines()[-1] == "trainwright: interrupted"
    assert list(tmp_path.iterdir()) == [printed]


INSIDE_A_TEXT = """
import sys
from trainwright.cli import core, main
from trainwright.cli.train import session
core.main = lambda argv: exec("raise KeyboardInterrupt")
sys.exit(main([]))
"""


def test_ctrl_c_inside_of_an_executed_text_has_the_status_of_others(tmp_path):
    # Of `python -m trainwright.cli plan` every fifth interrupt ended by the signal, status -2.
    (tmp_path / "inside.py").write_text(INSIDE_A_TEXT)
    run = [sys.executable, "-m", "inside"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "trainwright: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=("kill", "terminal"))
def test_commands_that_are_killed_end_as_interrupted(monkeypatch, capsys, number):
    done = []

    def command(argv):
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:  # where commands end the tools that they started
            done.append(argv)

    handler = signal.signal(number, signal.SIG_DFL)
    try:
        monkeypatch.setattr(core, "main", command)
        assert main(["build"]) == 128 + number and done == [["build"]]
        assert capsys.readouterr().err == "trainwright: interrupted\n"
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, handler)


def test_train_interrupted_before_its_first_step_ends_at_once(tmp_path, monkeypatch, capsys):
    def compile_for_minutes(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(session.machine, "open_parallel", compile_for_minutes)
    began = time.monotonic()
    assert main(["train", "--out", str(tmp_path / "run")]) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 8 and not list(tmp_path.iterdir())
    assert capsys.readouterr().err.splitlines()[-1] == "trainwright: interrupted"


def test_python_runs_the_package_as_the_command():
    run = [sys.executable, "-m", "trainwright", "--version"]
    done = subprocess.run(run, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"trainwright {__version__}\n", "")


@pytest.mark.slow
def test_ctrl_c_in_a_sweep_keeps_checkpoints_to_go_on_from(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    trials = tmp_path / "out" / "trials"
    status, text = interrupted(
        tmp_path,
        ["sweep", "spec.toml", "--out", "out", "--jobs", "1", "--engine", "processes"],
        lambda: any(path.stat().st_size for path in trials.glob("*/history.jsonl")),
    )
    assert status == 130
    assert "trainwright: interrupted; the same command goes on" in text
    assert any(trials.glob("*/checkpoint.safetensors"))
    assert not partial_files(tmp_path)
