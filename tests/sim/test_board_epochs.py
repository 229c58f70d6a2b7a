"""Simulated boards that train whole epochs alone: driver, line, accelerator, SDRAM and its chip."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwright.accelerator.counted import counted
from trainwright.data import load_data_set
from trainwright.driver.look import look
from trainwright.golden.backend import GoldenAccelerator
from trainwright.link import backend as link_backend
from trainwright.link.host import LinkError
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim.board import SDRAM_CLOCK_HZ, BackDoor, open_line

SIZES: dict[str, Any] = {
    "vector_engine": 1,
    "exponents": 64,
    "sample_loads": 1,
    "pe1_rows": 2,
    "pe2_rows": 2,
}
P = AcceleratorParameters(**SIZES)
SETTINGS = TrainSettings(
    steps=14, epochs=2, batch=16, learning_rate=0.45, prior=None, chip=ChipSettings(pixels=4)
)
CUTTING = replace(SETTINGS, prior=PriorSettings(weight=20.0, warmup=0.0, threshold=0.5, interval=7))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data():
    whole = load_data_set("digits")
    return replace(whole, train=whole.train.first(165))  # epochs of ten steps


@pytest.fixture(scope="module")
def line():
    line = open_line(P, timing=SdramTiming(), clock_hz=SDRAM_CLOCK_HZ)
    yield line
    line.close()


class Plugged:
    """The line of a fixture with a plug: while ``out`` is over 0 that many requests find none."""

    def __init__(self, line):
        self._line = line
        self.out = self.reopened = 0

    def __getattr__(self, name):
        return getattr(self._line, name)

    def write(self, data):
        if self.out:
            self.out -= 1
            raise LinkError("no line")
        self._line.write(data)

    def reopen(self):
        self.reopened += 1

    def close(self):
        pass


def plugged(line) -> Any:
    """Return a line that behaves like a ``SimulatedLine``."""
    return Plugged(line)


def state_of(chosen):
    return initial_state(load_network("digits").with_ranks([[5], [7]]), chosen)


def trainer(board, state, data, **options):
    to = counted(board)
    return Trainer(
        state, data, ResidentEngine(to), test_samples=16,
        save_seconds=1e9, **options,
    )  # fmt: skip


def outcome(state):
    """Return the state without times and cycles: equal wherever a run was."""
    steps = [replace(record, seconds=0.0, cycles=0) for record in state.history.steps]
    arrays = {name: array.tobytes() for name, array in state.model.state.to_arrays().items()}
    return state.model.network, state.scales.exponents, arrays, steps, state.history.evaluations


@pytest.fixture(scope="module", params=[SETTINGS, CUTTING], ids=["plain", "cutting"])
def known(request, data):
    """Return settings and the golden model's outcome."""
    state = state_of(request.param)
    with GoldenAccelerator(P, memory_bytes=1 << 20) as golden:
        trainer(golden, state, data).run()
    return request.param, outcome(state)


@pytest.fixture
def board(line):
    line.reset()
    line.drain()
    return BackDoor(P, plugged(line))


def test_board_epochs_match_golden_training(known, board, data):
    chosen, wanted = known
    state = state_of(chosen)
    run = trainer(board, state, data)
    assert run.run() and outcome(state) == wanted
    assert chosen.prior or run.host_writes == 0
    view = look(board)
    assert (view.state, view.step, view.epoch) == ("done", 14, 2)
    assert view.exponents == state.scales.exponents
    assert view.correct == state.history.steps[-1].correct
    assert view.loss == pytest.approx(state.history.steps[-1].loss, rel=1e-12)


def test_board_epoch_takes_time_of_its_steps(board, data, line, monkeypatch):
    """Time from the host's start until the end is seen, at the board's clock.

    At most 2 % more than the cycles of the steps, each no longer than a step alone.
    """
    chosen = replace(SETTINGS, steps=11)
    marks, wait = [], link_backend.await_run

    def awaited(*args, **options):
        begin = line.cycles
        wait(*args, **options)
        marks.append(line.cycles - begin)

    monkeypatch.setattr(link_backend, "await_run", awaited)
    state = state_of(chosen)
    trainer(board, state, data).run()
    whole, single = state.history.steps  # ten steps by one start, and a single one
    epoch = [cycles for cycles in marks if cycles >= whole.cycles]
    assert len(epoch) == 1
    assert whole.cycles <= epoch[0] <= 1.02 * whole.cycles
    assert 0.8 * 10 * single.cycles < whole.cycles <= 10 * single.cycles


@pytest.mark.parametrize("start", [1, 2])
def test_board_training_survives_pulled_plug(known, board, data, monkeypatch, start):
    chosen, wanted = known
    state, starts, wait = state_of(chosen), [], link_backend.await_run
    repeat, plug = board.repeat, board._link._line

    def counting(program, times, **options):
        if times > 1:  # of steps, and not of the first samples or the test set
            starts.append(0)
        return repeat(program, times, **options)

    def pulled(*args, **options):
        if len(starts) == start:
            plug.out = 3
        return wait(*args, **options)

    board.repeat = counting
    monkeypatch.setattr(link_backend, "await_run", pulled)
    assert trainer(board, state, data).run()
    assert outcome(state) == wanted and plug.reopened >= 3


@pytest.mark.parametrize("start", [1, 2])
def test_board_training_is_continued_by_second_host(
    known, board, data, line, tmp_path, monkeypatch, start
):
    """The board trains on meanwhile; a look says where it is."""
    chosen, wanted = known
    path, starts = tmp_path / "c.safetensors", []
    repeat, wait = board.repeat, link_backend.await_run

    def counting(program, times, **options):
        if times > 1:  # of steps, and not of the first samples or the test set
            starts.append(0)
        return repeat(program, times, **options)

    def lost(*args, **options):
        if len(starts) == start:
            raise LinkError("no line")
        return wait(*args, **options)

    board.repeat = counting
    with monkeypatch.context() as patch:
        patch.setattr(link_backend, "await_run", lost)
        with pytest.raises(LinkError):
            first = state_of(chosen)
            trainer(
                board, first, data, save=lambda saved_state: save_checkpoint(path, saved_state)
            ).run()
    begun = load_checkpoint(path).state.step
    line.read(1e-3)
    other = BackDoor(P, plugged(line))
    seen = look(other)
    assert seen.state == "running" and seen.step is not None and begun <= seen.step < begun + 10
    state = load_checkpoint(path).state
    assert trainer(other, state, data, save=lambda _: None).run()
    assert outcome(state) == wanted


# --- a host in a process of its own ---------------------------------------------------------------

ACCELERATOR = [f"--accelerator={name}={value}" for name, value in SIZES.items()]
TRAIN = [sys.executable, "-m", "trainwright.cli", "train"]


@pytest.fixture
def port():
    pytest.importorskip("serial", reason="pyserial is not installed")
    pytest.importorskip("tty", reason="pseudo-terminals are Unix")
    command = [sys.executable, "-m", "trainwright_sim.terminal", *ACCELERATOR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.kill()


def _digest(out: Path) -> str:
    return json.loads((out / "result.json").read_text())["digest"]


def test_board_training_resumes_after_killed_host(port, tmp_path):
    """Kill ``train --backend serial:`` in the middle of an epoch, at a rate the simulation keeps.

    ``look`` sees the board from a third process; ``--resume`` finds it and ends with the bits of an
    undisturbed run.
    """
    common = ["--network", "digits", "--update", "chip", "--no-prior", "--pixels", "4", "--steps"]
    common += ["89", "--batch", "16", "--test-samples", "16", *ACCELERATOR]
    golden, out = tmp_path / "golden", tmp_path / "board"
    subprocess.run([*TRAIN, *common, "--out", str(golden)], check=True, capture_output=True)
    serial = [*common, "--out", str(out), "--backend", f"serial:{port}@5000"]
    checkpoint, deadline = out / "checkpoint.safetensors", time.monotonic() + 900
    with subprocess.Popen([*TRAIN, *serial], stderr=subprocess.PIPE, text=True) as host:
        while not checkpoint.exists():  # saved when all is written, before the start
            assert host.poll() is None and time.monotonic() < deadline, host.communicate()[1]
            time.sleep(0.5)
        time.sleep(10)
        os.kill(host.pid, signal.SIGKILL)
    assert load_checkpoint(checkpoint).state.step == 0
    command = [sys.executable, "-m", "trainwright.cli", "look", "--json", *ACCELERATOR]
    looked = subprocess.run(
        [*command, "--backend", f"serial:{port}@5000"], check=True, capture_output=True
    )
    view = json.loads(looked.stdout)
    assert view["state"] == "running" and view["total"] == 89 and view["ranks"] == [[16], [8]]
    again = subprocess.run(
        [*TRAIN, "--resume", "--out", str(out)], check=True, capture_output=True, text=True
    )
    assert _digest(out) == _digest(golden)
    assert not re.search(r"building the simulator", again.stderr)
