"""Training killed at any moment, as by a power cut, and resumed: the bits of an undisturbed run.

``pytest -m slow tests/sw/test_killed.py`` tries 200 times, on all back ends.
"""

import os
import signal
import time
from pathlib import Path
from random import Random

import pytest

from trainwright.cli import main

TRAIN = ("train", "--network", "digits", "--test-samples", "64", "--checkpoint-seconds", "0.02")


def start(argv: list[str]) -> int:
    """Fork a child, which has imported everything already, and return its number."""
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        status = main(argv)
    finally:
        os._exit(status)


def has_ended(child: int, seconds: float) -> bool:
    """Wait; whether the child came to its end (a good one) before it was killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return True
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def model(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def check_kills(tmp_path: Path, tries: int, options: tuple[str, ...], seed: int) -> None:
    """Kill runs ``tries`` times, at moments anywhere in the time that a whole one takes."""
    began = time.monotonic()
    assert has_ended(start([*TRAIN, *options, "--out", str(tmp_path / "whole")]), 3600)
    seconds, whole = time.monotonic() - began, model(tmp_path / "whole")
    random, run, resumed = Random(seed), 0, 0
    out = tmp_path / "0"
    for _ in range(tries):
        resumes = (out / "checkpoint.safetensors").is_file()
        resumed += resumes
        new = [*TRAIN, *options, "--force", "--out", str(out)]
        argv = ["train", "--resume", "--out", str(out)] if resumes else new
        began = time.monotonic()
        if has_ended(start(argv), random.uniform(0, seconds)):
            assert model(out) == whole
            if not resumes:  # the machine is less busy than it was
                seconds = min(seconds, time.monotonic() - began)
            run += 1
            out = tmp_path / str(run)
        elif not (out / "checkpoint.safetensors").is_file():  # the machine is busier than it was
            seconds *= 1.1
    assert resumed > tries / 10
    if (out / "checkpoint.safetensors").is_file():
        assert has_ended(start(["train", "--resume", "--out", str(out)]), 3600)
        assert model(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("update", ["host", "chip"])
def test_killed_and_resumed_on_the_golden_model(tmp_path, seed, update):
    check_kills(tmp_path, 40, ("--steps", "240", "--update", update), seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "backend"),
    [("40", ("rtl",)), ("4", ("board", "--preset", "ecp5-85f"))],
    ids=("rtl", "board"),
)
def test_killed_and_resumed_in_simulation(tmp_path, steps, backend):
    """Steps take about as long as what comes before the first step."""
    check_kills(tmp_path, 20, ("--steps", steps, "--batch", "16", "--backend", *backend), seed=1)
