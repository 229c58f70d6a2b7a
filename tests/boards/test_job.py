"""The tools of a build: what they say is kept, and one that goes on and on is stopped."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from trainwright.parameters import preset
from trainwright.support.locks import claimed
from trainwright.support.native.tools import Tool
from trainwright.support.waiting import waiting
from trainwright_boards import build, job
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.export import building
from trainwright_boards.job import Steps
from trainwright_boards.tools import BuildError


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Return steps whose tools are Python itself."""
    python = Tool("python", (sys.executable, "-uc"), "3")
    monkeypatch.setattr(job, "tool", lambda _: python)
    monkeypatch.setattr(job, "LOOK_SECONDS", 0.05)
    return Steps(tmp_path, lambda _: None)


def test_tool_output_is_logged_by_step(steps, tmp_path):
    assert steps.run("route", ["print('found')"], remedy="")
    assert (tmp_path / "route.log").read_text() == "found\n"
    assert steps.run("route", ["print('again')"], remedy="", step="twice")
    assert set(steps.seconds) == {"route", "route-twice"}


def test_failing_tool_raises_one_error_with_last_complaint(steps):
    script = "print('ERROR: no room'); print('bye'); raise SystemExit(3)"
    for asked in (None, lambda _: False):
        with pytest.raises(BuildError, match=r"route failed: ERROR: no room .*Try less"):
            steps.run("route", [script], remedy="Try less", give_up=asked)


def test_tool_is_stopped_once_given_up(steps, tmp_path):
    script = "import time; [(print('round', n), time.sleep(0.02)) for n in range(100000)]"
    begin = time.monotonic()
    assert not steps.run("route", [script], remedy="", give_up=lambda log: log.count("round") > 5)
    assert time.monotonic() - begin < 60
    assert 5 < (tmp_path / "route.log").read_text().count("round") < 100000


def test_tool_that_works_without_a_word_is_ended_with_one_error(steps, monkeypatch):
    monkeypatch.setattr(job, "STALL_SECONDS", 0.3)
    script = "print('Strict legalising')\nwhile True: pass"
    begin = time.monotonic()
    with pytest.raises(BuildError, match=r"place made no progress .*'Strict legalising'.*Try less"):
        steps.run("nextpnr", [script], remedy="Try less", step="place", stalls=True)
    assert time.monotonic() - begin < 60
    assert steps.seconds == {}


def test_tool_that_waits_for_the_processor_is_not_ended(steps, monkeypatch):
    monkeypatch.setattr(job, "STALL_SECONDS", 0.3)
    assert steps.run("nextpnr", ["import time; time.sleep(1)"], remedy="", stalls=True)


def test_tool_that_takes_long_is_reported_with_its_last_line(steps, monkeypatch):
    lines = []
    steps.progress = lines.append
    monkeypatch.setattr(job, "waiting", partial(waiting, first_seconds=0.4))
    steps.run("yosys", ["import time; print('pass 3'); time.sleep(1)"], remedy="")
    assert "yosys: 0 s so far; pass 3" in lines


@pytest.mark.parametrize("most, done", [(5, False), (6, True)])
def test_whether_it_was_stopped_in_time_makes_no_difference(steps, most, done):
    script = "print('round\\n' * 6)"
    asked = {"give_up": lambda log: log.count("round") > most}
    assert steps.run("route", [script], remedy="", **asked) is done


@pytest.mark.usefixtures("interruptible")
def test_tools_of_other_threads_end_when_a_build_is_interrupted(tmp_path, monkeypatch):
    processes = []

    def place(asked, seed, progress):
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
        processes.append(process)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        job._wait(process, tmp_path / "log", None)

    for name in ("write_design", "synthesise", "join", "floorplan"):
        monkeypatch.setattr(build.flow, name, lambda *_: None)
    monkeypatch.setattr(build, "check_netlist", lambda _: {})
    monkeypatch.setattr(build, "_place", place)
    begin = time.monotonic()
    asked = job.Build(BOARDS["ulx3s-12f"], preset("lfe5u-25f"), 25_000_000, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        build.seeds(asked, 1, lambda _: None)
    assert time.monotonic() - begin < 20 and processes[0].returncode


def test_second_build_in_a_folder_is_one_error(tmp_path):
    with claimed(tmp_path), pytest.raises(BuildError, match=r"another build is at work in .*--out"):
        with building(tmp_path):
            pass
    with building(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
