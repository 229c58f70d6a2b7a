"""The whole system of a board in simulation: the real driver trains through the serial line."""

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from serial_lines import FaultyLine

import trainwright
import trainwright.nn as tnn
from trainwright.accelerator import AcceleratorError, backend_names
from trainwright.check.step import StepCheck, check_step
from trainwright.cli.core import main
from trainwright.driver import RESETS
from trainwright.link.backend import LinkAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright_sim.board import SimulatedLine, open_line

SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)
BATCH = 4


@pytest.fixture(scope="module")
def line() -> Iterator[SimulatedLine]:
    line = open_line(SMALL)
    yield line
    line.close()


class Borrowed:
    """The line of a fixture, which a test does not close; ``now`` and then it resets the board."""

    def __init__(self, line: SimulatedLine, resets: tuple[int, ...] = ()):
        self._line, self._resets = line, resets
        self.writes = 0

    def __getattr__(self, name: str):
        return getattr(self._line, name)

    def write(self, data: bytes) -> None:
        self.writes += 1
        if self.writes in self._resets:
            self._line.write(data[: len(data) // 2])
            self._line.reset()
        else:
            self._line.write(data)

    def close(self) -> None:
        pass


class Quiet(NamedTuple):
    """A step of which nothing disturbs the line."""

    outcome: StepCheck
    writes: int
    """Requests."""
    repeats: int


@pytest.fixture(scope="module")
def quiet(line) -> Quiet:
    borrowed = Borrowed(line)
    with LinkAccelerator(SMALL, borrowed, patience=1e-3) as board:
        outcome = check_step(load_network("digits"), BATCH, board)
        return Quiet(outcome, borrowed.writes, board.link.counts.repeats)


def test_a_step_of_digits_is_exact(quiet):
    assert quiet.outcome.comparison.mismatches == {}
    assert quiet.outcome.comparison.values > 10_000
    assert quiet.outcome.counters.cycles > 0
    assert quiet.repeats == 0
    assert quiet.writes > WRITES_BEFORE + WRITES_AFTER


WRITES_BEFORE = 60
"""Requests until the accelerator is opened and its memory cleared: a step begins after them."""
WRITES_AFTER = 48
"""In which the memory is compared at the end."""


def test_a_compiled_model_trains_at_a_serial_port(line, monkeypatch):
    """``serial:`` all the way from torch: the bits of the golden model, through the line."""
    opened = []

    def port(name, *, baud):
        opened.append((name, baud))
        return Borrowed(line)

    monkeypatch.setattr("trainwright.link.backend.SerialLine", port)
    found = {}
    for backend in ("golden", "serial:/dev/ttyUSB0@3000000"):
        torch.manual_seed(0)
        layers = tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=2)
        model = trainwright.compile(torch.nn.Sequential(*layers), backend, BATCH, accelerator=SMALL)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(2):
            loss = model(torch.rand(BATCH, 64)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found[backend[:6]] = [loss.detach(), *(p.detach() for p in model.parameters())]
        cycles = model.report().cycles
        model.close()
    assert opened == [("/dev/ttyUSB0", 3000000)] and cycles > 0
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)],
)
def test_a_reset_under_a_step_changes_nothing(line, quiet, share):
    """At different moments of a step: the driver repeats it, and the bits are the same."""
    moment = WRITES_BEFORE + int(share * (quiet.writes - WRITES_BEFORE - WRITES_AFTER))
    shaken = Borrowed(line, resets=(moment,))
    with LinkAccelerator(SMALL, shaken, patience=1e-3) as board:
        outcome = check_step(load_network("digits"), BATCH, board)
        assert outcome.comparison.mismatches == {}
    assert shaken.writes > quiet.writes


@pytest.mark.slow
def test_a_board_that_resets_all_the_time_is_an_error(line):
    never = Borrowed(line, resets=tuple(range(150, 100_000, 20)))
    with (
        LinkAccelerator(SMALL, never, patience=1e-3) as board,
        pytest.raises(AcceleratorError, match="was reset"),
    ):
        check_step(load_network("digits"), BATCH, board)
    assert never.writes < 150 + 20 * (RESETS + 2)


@pytest.mark.slow
def test_a_step_on_a_damaged_line_is_exact(line):
    faulty = FaultyLine(Borrowed(line), seed=3, flip=1e-4, lose=5e-5, noise=5e-5)
    with LinkAccelerator(SMALL, faulty, patience=1e-3, attempts=20) as board:
        outcome = check_step(load_network("digits"), BATCH, board)
        assert outcome.comparison.mismatches == {}
        assert board.link.counts.repeats > 0


def train(capsys, *arguments: object) -> dict:
    assert main(["train", "--network", "digits", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_digits_trains_on_the_board_of_an_ulx3s(capsys, tmp_path):
    if "board" not in backend_names():
        pytest.skip("the back end 'board' is not installed: install trainwright again")
    steps = ("--steps", 12, "--test-samples", 64, "--preset", "ecp5-85f")
    golden = train(capsys, *steps, "--out", tmp_path / "golden")
    board = train(capsys, *steps, "--out", tmp_path / "board", "--backend", "board", "--verify", 4)
    assert board["digest"] == golden["digest"]
    assert board["test_accuracy"] == golden["test_accuracy"]
    assert board["mismatches"] == 0 and board["values_compared"] > 0 and board["cycles"] > 0
