"""Recorded runs of boards: lines that can be read, and the page that shows them."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.parameters import PRESETS
from trainwright_boards import runs
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.catalogue.zynq import EXPORTS
from trainwright_boards.job import STAGES

PAGE = Path(__file__).parents[2] / "docs/results/boards.md"


@pytest.mark.parametrize("run", runs.recorded(), ids=lambda run: f"{run.board}-{run.label}")
def test_recorded_run_is_of_a_known_board_and_fits_its_part(run):
    assert run.preset in PRESETS and run.stage in STAGES and run.label
    if run.board in BOARDS:
        board = BOARDS[run.board]
        assert run.memory in board.memories
        available = (board.part.luts, board.part.multipliers, board.part.block_rams)
    else:
        has = EXPORTS[run.board].available
        available = (has["luts"], has["multipliers"], 2 * has["block_rams"])
    used = (run.luts, run.multipliers, run.block_rams)
    assert all(count <= most for count, most in zip(used, available, strict=True))
    routed = STAGES.index(run.stage) >= STAGES.index("route")
    assert (run.fmax_mhz is not None) == routed


def test_results_page_shows_the_recorded_runs():
    shown = runs.summary() in PAGE.read_text()
    assert shown, f"put what `trainwright boards --runs` prints into {PAGE}"


def test_board_counts_as_run_only_with_its_last_stage(monkeypatch):
    run = next(run for run in runs.recorded() if run.board == "ulx3s-85f")
    halfway = replace(run, stage="place", fmax_mhz=None)
    monkeypatch.setattr(runs, "recorded", lambda: (halfway,))
    assert "ulx3s-85f" in runs.not_run() and runs.boards_run() == []
    assert runs.told("ulx3s-85f") == ["not run yet: described from its documents alone"]
    newer = replace(run, luts=7, label="newer")
    monkeypatch.setattr(runs, "recorded", lambda: (run, halfway, newer))
    assert [latest.label for latest in runs.finished("ulx3s-85f").values()] == ["newer"]
    assert runs.boards_run() == ["ulx3s-85f"]
    (line,) = runs.told("ulx3s-85f")
    assert line.startswith("packed as a bitstream on") and ": 7 LUTs, " in line
