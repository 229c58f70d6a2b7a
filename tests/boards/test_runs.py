"""Recorded runs of boards: lines that can be read, and the page that shows them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.cli import main
from trainwright.parameters import PRESETS, preset
from trainwright_boards import build as building
from trainwright_boards import flow, runs
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.catalogue.zynq import EXPORTS
from trainwright_boards.estimate import design_digest
from trainwright_boards.job import STAGES, Build

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


@pytest.mark.parametrize("before", ["", "{}\n", '{"board": "ulx', "{}\n{}"])
def test_run_is_appended_behind_a_line_that_was_cut_off(tmp_path, before):
    run, path = runs.recorded()[0], tmp_path / "resources.jsonl"
    path.write_text(before)
    for _ in range(2):
        runs.append(path, run)
    lines = path.read_text().splitlines()
    assert lines[:-2] == before.splitlines()
    assert [json.loads(line)["luts"] for line in lines[-2:]] == [run.luts] * 2


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


def test_run_is_present_only_with_the_design_of_this_version(monkeypatch):
    row = next(run for run in runs.recorded() if run.board == "ulx3s-12f")
    sizes, clock_hz = preset("lfe5u-25f"), round(row.clock_mhz * 1e6)
    job = Build(BOARDS[row.board], sizes, clock_hz, Path(), memory=row.memory)
    text = flow.design(job)
    digest = design_digest(text)
    run = replace(row, design=digest)

    def design(build):
        """Return known designs: each takes four seconds to convert."""
        assert replace(build, memory=job.memory) == job
        return text if build.memory == job.memory else text + "another memory"

    monkeypatch.setattr(runs, "design", design)
    assert runs.is_present(run)
    assert not runs.is_present(replace(run, design=f"{int(digest, 16) ^ 1:08x}"))
    assert not runs.is_present(replace(run, memory="block"))
    monkeypatch.setattr(runs, "design", lambda _: pytest.fail("no digest: nothing to compare"))
    assert not runs.is_present(replace(run, design=None))
    assert not runs.is_present(replace(run, preset=None))


def test_run_of_an_export_is_present_with_the_accelerator_of_this_version(monkeypatch):
    row = next(run for run in runs.recorded() if run.board == "kv260")
    parts = {"kv260": "11111111"}
    monkeypatch.setattr(runs, "accelerator_digest", lambda board, _: parts[board.name])
    assert runs.is_present(replace(row, design="11111111"))
    assert not runs.is_present(replace(row, design="11111110"))


def test_boards_check_tells_runs_of_this_version_from_earlier_ones(monkeypatch, capsys):
    exported, built = (
        next(run for run in runs.recorded() if run.board == board)
        for board in ("kv260", "ulx3s-12f")
    )
    monkeypatch.setattr(runs, "recorded", lambda: (replace(exported, design="1"), built))
    monkeypatch.setattr(runs, "accelerator_digest", lambda *_: "1")
    assert main(["boards", "--runs", "--check"]) == 0
    present, earlier = capsys.readouterr().out.splitlines()[-2:]
    assert present == "Designs of this version: kv260 with lfe5u-25f."
    assert earlier.endswith(": ulx3s-12f with lfe5u-25f, sdram.")
    assert main(["boards", "--runs", "--check", "--json"]) == 0
    by_board = json.loads(capsys.readouterr().out)["runs"]
    assert {name: [run["present"] for run in listed] for name, listed in by_board.items()} == {
        "kv260": [True],
        "ulx3s-12f": [False],
    }
    assert main(["boards", "--check"]) == 2
    assert "--check is for --runs" in capsys.readouterr().err


def test_netlist_figures_carry_the_digest_of_their_design(tmp_path, monkeypatch):
    monkeypatch.setattr(flow, "write_design", lambda _: "0123abcd")
    monkeypatch.setattr(flow, "synthesise", lambda *_: None)
    monkeypatch.setattr(flow, "join", lambda *_: None)
    monkeypatch.setattr(building, "check_netlist", lambda _: {})
    monkeypatch.setattr(building, "_netlist_figures", lambda *_: {})
    job = Build(BOARDS["ulx3s-12f"], preset("lfe5u-25f"), 60_000_000, tmp_path)
    assert building.build(job, lambda _: None, until="synth")["design"] == "0123abcd"
