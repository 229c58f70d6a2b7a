"""The whole system of a board in simulation: the real driver trains through the serial line."""

import json
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from accelerators import BOARD
from serial_lines import FaultyLine

import trainwright
import trainwright.nn as tnn
from trainwright.accelerator import AcceleratorError, backend_names
from trainwright.check.step import StepCheck, check_step
from trainwright.cli.core import main
from trainwright.driver import RESETS
from trainwright.link.backend import LinkAccelerator
from trainwright.network import network_from_dict
from trainwright_sim.board import SimulatedLine

BATCH = 4
NETWORK = network_from_dict(
    {
        "classes": 10,
        "image": [8, 8],
        "layers": [
            {"outputs": [4, 4], "inputs": [8, 8], "ranks": [3], "relu": True},
            {"outputs": [5, 2], "inputs": [4, 4], "ranks": [2]},
        ],
    }
)
"""A small one: the line is most of what is simulated."""
PATIENCE = 1e-2
"""Seconds of simulated time."""


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
    runs: tuple[int, int]
    """Requests before the first program, and until the last one has ended."""
    repeats: int


@pytest.fixture(scope="module")
def quiet(sdram_line) -> Quiet:
    borrowed, marks = Borrowed(sdram_line), []
    with LinkAccelerator(BOARD, borrowed, patience=PATIENCE) as board:
        run = board.run

        def marked(*arguments, **options):
            marks.append(borrowed.writes)
            counters = run(*arguments, **options)
            marks.append(borrowed.writes)
            return counters

        with patch.object(board, "run", marked):
            outcome = check_step(NETWORK, BATCH, board)
        return Quiet(outcome, borrowed.writes, (marks[0], marks[-1]), board.link.counts.repeats)


def test_board_step_is_exact(quiet):
    assert quiet.outcome.comparison.mismatches == {}
    assert quiet.outcome.comparison.values > 1000
    assert quiet.outcome.counters.cycles > 0
    assert quiet.repeats == 0


def test_compiled_model_at_serial_port_has_golden_bits(sdram_line, monkeypatch):
    """``serial:`` all the way from torch: the bits of the golden model, through the line."""
    opened = []

    def port(name, *, baud):
        opened.append((name, baud))
        return Borrowed(sdram_line)

    monkeypatch.setattr("trainwright.link.backend.SerialLine", port)
    tensors = {}
    for backend in ("golden", "serial:/dev/ttyUSB0@3000000"):
        torch.manual_seed(0)
        layers = tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=2)
        model = trainwright.compile(torch.nn.Sequential(*layers), backend, BATCH, accelerator=BOARD)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(2):
            loss = model(torch.rand(BATCH, 64)).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tensors[backend[:6]] = [loss.detach(), *(p.detach() for p in model.parameters())]
        cycles = model.report().cycles
        model.close()
    assert opened == [("/dev/ttyUSB0", 3000000)] and cycles > 0
    assert all(torch.equal(a, b) for a, b in zip(*tensors.values(), strict=True))


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)],
)
def test_board_reset_within_step_is_repeated_exactly(sdram_line, quiet, share):
    """At different moments of a step: the driver repeats it, and the bits are the same."""
    first, last = quiet.runs
    moment = first + int(share * (last - first))
    shaken = Borrowed(sdram_line, resets=(moment,))
    with LinkAccelerator(BOARD, shaken, patience=PATIENCE) as board:
        outcome = check_step(NETWORK, BATCH, board)
        assert outcome.comparison.mismatches == {}
    assert shaken.writes > quiet.writes


@pytest.mark.slow
def test_board_resetting_without_end_is_one_error(sdram_line, quiet):
    never = Borrowed(sdram_line, resets=tuple(range(quiet.runs[0], 100_000, 20)))
    with (
        LinkAccelerator(BOARD, never, patience=PATIENCE) as board,
        pytest.raises(AcceleratorError, match="was reset"),
    ):
        check_step(NETWORK, BATCH, board)
    assert never.writes < quiet.runs[0] + 20 * (RESETS + 2)


@pytest.mark.slow
def test_board_step_on_damaged_line_is_exact(sdram_line):
    faulty = FaultyLine(Borrowed(sdram_line), seed=3, flip=1e-4, lose=5e-5, noise=5e-5)
    with LinkAccelerator(BOARD, faulty, patience=PATIENCE, attempts=20) as board:
        outcome = check_step(NETWORK, BATCH, board)
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
