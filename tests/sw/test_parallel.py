"""Micro-batches and workers: the same bits whoever runs which, and one micro-batch changes none."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from slowly import mostly_slow

from trainwright.accelerator import AcceleratorError
from trainwright.cli import main
from trainwright.cli.errors import OptionError
from trainwright.data import load_data_set
from trainwright.driver import Driver, fitting_exponent
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.loss import cross_entropy
from trainwright.train.parallel import ParallelDriver
from trainwright.train.settings import PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright.train.workers import Workers

P = AcceleratorParameters()
NETWORK = load_network("digits")
CUTTING = TrainSettings(
    steps=30, prior=PriorSettings(form="paper", weight=8.0, warmup=0.0, threshold=0.3, interval=4)
)


@pytest.fixture(scope="module")
def digits():
    return load_data_set("digits")


def golden_driver(network, batch, plan="auto"):
    return Driver(GoldenAccelerator(P, memory_bytes=1 << 22), network, batch, plan=plan)


class Team:
    """Workers as threads of this process, with sums as exact as those of processes."""

    def __init__(self, count):
        self.count = count
        self.slots = [None] * count
        self.barrier = threading.Barrier(count)

    def total(self, rank, values):
        self.slots[rank] = values
        self.barrier.wait(30)
        result = sum(self.slots[1:], self.slots[0])
        self.barrier.wait(30)
        return result.clone()


class Member(Workers):
    def __init__(self, team, rank):
        super().__init__(rank, team.count)
        self.team = team

    def total(self, values):
        return self.team.total(self.rank, values)


def train_alone(digits, settings, factory=None):
    state = initial_state(NETWORK, settings)
    parts = settings.micro_batches

    def parallel(network):
        drivers = [golden_driver(network, settings.micro_batch) for _ in range(parts)]
        return ParallelDriver(drivers, Workers())

    Trainer(state, digits, HostEngine(factory or parallel)).run()
    return state


def train_together(digits, settings, count):
    """Return states of all workers after a run of ``count`` workers."""
    team, states, errors = Team(count), [None] * count, []

    def work(rank):
        try:
            state = initial_state(NETWORK, settings)
            share = settings.micro_batches // count

            def open_driver(network):
                drivers = [golden_driver(network, settings.micro_batch) for _ in range(share)]
                return ParallelDriver(drivers, Member(team, rank))

            Trainer(state, digits, HostEngine(open_driver)).run()
            states[rank] = state
        except BaseException as error:
            errors.append(error)
            team.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return states


def same_bits(a, b):
    parameters = zip(a.model.parameters(), b.model.parameters(), strict=True)
    for (name, p), (other, q) in parameters:
        assert name == other
        for part in ("value", "first", "second"):
            assert torch.equal(getattr(p, part), getattr(q, part)), name
    assert a.scales == b.scales and a.model.network == b.model.network
    for r, s in zip(a.history.steps, b.history.steps, strict=True):
        assert replace(r, seconds=0.0) == replace(s, seconds=0.0)
    assert a.history.evaluations == b.history.evaluations
    assert a.history.scales == b.history.scales


@pytest.mark.usefixtures("first_program")
def test_parallel_one_micro_batch_is_the_driver_itself(digits):
    plain = train_alone(digits, CUTTING, lambda network: golden_driver(network, 64))
    assert plain.model.network.ranks != NETWORK.ranks, "no cut"
    same_bits(train_alone(digits, CUTTING), plain)


@mostly_slow("count", [2, 4], quick=[2])
@pytest.mark.usefixtures("first_program")
def test_any_number_of_workers_ends_in_the_same_bits(digits, count):
    settings = replace(CUTTING, micro_batches=4)
    alone = train_alone(digits, settings)
    assert alone.model.network.ranks != NETWORK.ranks, "no cut"
    for state in train_together(digits, settings, count):
        same_bits(state, alone)


def test_parallel_sum_is_that_of_the_micro_batches(digits):
    """Gradients and statistics beside plain drivers, each run by hand with the shared exponent."""
    settings = TrainSettings(micro_batches=4, prior=None)
    model = initial_state(NETWORK, settings).model.quantised()
    drivers = [golden_driver(NETWORK, 16) for _ in range(4)]
    driver, scales = ParallelDriver(drivers, Workers()), Scales()
    inputs = torch.from_numpy(digits.train.images[:64].astype("int64").reshape(64, 64) * 7)
    labels = torch.from_numpy(digits.train.labels[:64].astype("int64"))
    driver.calibrate(inputs, lambda y: cross_entropy(y, labels, 10)[1], model, scales)
    forward = driver.forward(inputs, model, scales)
    gradient = cross_entropy(forward.logits, labels, 10)[1]
    backward = driver.backward(gradient, scales)
    exponent = fitting_exponent(gradient, 16)
    single, total, saturated = golden_driver(NETWORK, 16), None, {}
    for n in range(4):
        part = slice(16 * n, 16 * n + 16)
        micro = single.forward(inputs[part], model, scales)
        assert torch.equal(micro.logits, forward.logits[part])
        back = single.backward(gradient[part], scales, exponent=exponent)
        flat = [g for layer in back.factors for g in layer] + [b for b in back.biases]
        total = flat if total is None else [a + b for a, b in zip(total, flat, strict=True)]
        for name, s in {**micro.statistics, **back.statistics}.items():
            saturated.setdefault(name, []).append((s.count, s.total, s.saturations, s.exponent))
    gradients = [g for layer in backward.factors for g in layer] + [b for b in backward.biases]
    assert all(torch.equal(a, b) for a, b in zip(gradients, total, strict=True))
    for name, s in {**forward.statistics, **backward.statistics}.items():
        counts, totals, saturations, exponents = zip(*saturated[name], strict=True)
        assert (s.count, s.total, s.saturations) == (sum(counts), sum(totals), sum(saturations))
        assert set(exponents) == {s.exponent}


def test_workers_that_differ_are_found_in_the_same_step(digits):
    settings = replace(CUTTING, micro_batches=2)
    team, errors = Team(2), []

    def work(rank):
        model = initial_state(NETWORK, replace(settings, seed=rank)).model.quantised()
        driver = ParallelDriver([golden_driver(NETWORK, 32)], Member(team, rank))
        try:
            driver.forward(torch.zeros((64, 64), dtype=torch.int64), model, Scales())
        except AcceleratorError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == ["workers [1] have another model than worker 0"] * 2


def test_parallel_batch_of_other_size_is_rejected():
    driver = ParallelDriver([golden_driver(NETWORK, 16)] * 2, Workers())
    model = initial_state(NETWORK, TrainSettings()).model.quantised()
    with pytest.raises(ValueError, match="inputs of 16 samples, not 32"):
        driver.forward(torch.zeros((16, 64), dtype=torch.int64), model, Scales())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--micro-batches", "3"], "micro-batches must divide the batch 64, not be 3"),
        (["--micro-batches", "2", "--numbers", "float32"], "does not go with --numbers float32"),
        (["--micro-batches", "2", "--backend", "rtl", "--verify", "1"], "does not go with --micro"),
    ],
)
def test_options_that_cannot_be(argv, message, capsys, tmp_path):
    assert main(["train", "--out", str(tmp_path / "r"), *argv]) == 2
    _, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and not (tmp_path / "r").exists()


UNDRAWN = """
import sys
from trainwright.cli import main
from trainwright.report import pictures

pictures.draw_all = lambda *_: {}
sys.exit(main())
"""
"""The command line, as in the tests of this process: pictures take over a second of a run."""


def start(count, *argv, program=("-m", "trainwright.cli")):
    """Start ``torchrun`` with gloo workers on this machine, one thread each."""
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [sys.executable, *run, *program, "train", "--json", *map(str, argv)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def finished(process):
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


SHORT = ("--steps", "12", "--test-samples", "64", "--micro-batches", "4",
         "--prior-form", "paper", "--prior-weight", "8", "--rank-threshold", "0.3",
         "--rank-interval", "4")  # fmt: skip


def alone(capsys, out, *argv):
    assert main(["train", "--json", "--out", str(out), *argv]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_torchrun_workers_end_in_same_bits(count, capsys, tmp_path):
    (tmp_path / "undrawn.py").write_text(UNDRAWN)
    single = alone(capsys, tmp_path / "one", *SHORT)
    many = start(count, *SHORT, "--out", tmp_path / "many", program=(str(tmp_path / "undrawn.py"),))
    status, out, err = finished(many)
    assert status == 0, err
    many = json.loads(out)  # one object: the other workers say nothing
    assert many["digest"] == single["digest"] and many["ranks"] == single["ranks"] != [[16], [8]]
    for name in ("test_accuracy", "final_loss", "model_bits"):
        assert many[name] == single[name]
    stored = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("one", "many")]
    assert stored[0] == stored[1]
    names = [{path.name for path in (tmp_path / run).iterdir()} for run in ("one", "many")]
    assert names[0] == names[1]


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


@pytest.mark.slow
def test_interrupted_under_torchrun_and_gone_on_with_alone(capsys, tmp_path):
    long = ["--steps", "2000", "--epochs", "100", "--micro-batches", "2"]
    out = tmp_path / "r"
    process = start(2, *long, "--out", out)
    lines = out / "history.jsonl"
    wait_for(lambda: lines.is_file() and lines.stat().st_size > 20_000)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGINT)  # one worker is told, both stop
    status, _, err = finished(process)
    assert status != 0 and "interrupted after step" in err
    assert (out / "checkpoint.safetensors").is_file()
    whole = alone(capsys, tmp_path / "whole", *long)
    assert main(["train", "--resume", "--json", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == whole["digest"]


@pytest.mark.parametrize("failing", [0, 1])
def test_worker_that_fails_alone_raises_its_error_and_others_exit(failing):
    """Command lines print the error of one worker, and nothing of those that exit."""
    team, ends = Team(2), {}

    def make(rank):
        if rank == failing:
            raise OptionError("cannot be")

    def work(rank):
        try:
            Member(team, rank).together(lambda: make(rank))
        except (OptionError, SystemExit) as error:
            ends[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(ends[failing], OptionError)
    assert isinstance(ends[1 - failing], SystemExit) and ends[1 - failing].code == 2


@pytest.mark.slow  # by threads above
def test_errors_of_torchrun_are_told_once(tmp_path):
    status, out, err = finished(start(2, "--micro-batches", "1", "--out", tmp_path / "r"))
    assert status != 0 and out == "" and not (tmp_path / "r").exists()
    message = (
        "trainwright: error: 2 workers cannot share --micro-batches 1 evenly: give a multiple of 2"
    )
    assert err.count(message) == 1
