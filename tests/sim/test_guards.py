"""Headline figures are those of docs/guards.toml, and so are those in pages."""

import re
import subprocess
from pathlib import Path

import pytest
from folded import each

from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import preset
from trainwright_sim import guards
from trainwright_sim.guards import FIGURES, GuardError, compare, load, main, measure, text_of

QUICK = [name for name, figure in FIGURES.items() if not figure.is_slow]
SLOW = [name for name, figure in FIGURES.items() if figure.is_slow]
ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
HELD = ("README.md", "docs/results/boards.md", "docs/results/accelerator.md")
"""Pages in which every number of cycles and of LUTs, and every clock reached, has a mark."""
REMEDY = "python -m trainwright_sim.guards --all --write, and the reason in the commit"


def test_figures_are_as_recorded():
    assert not compare(load(), measure(QUICK)), REMEDY


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_dear_figures_are_as_recorded(name):
    assert not compare(load(), measure([name])), REMEDY


def test_guards_file_lists_exactly_measured_figures():
    assert load().keys() == FIGURES.keys()


@each("page", PAGES, ids=lambda page: page.name)
def test_figures_of_a_page_are_those_of_the_file(page):
    assert not guards.wrong_marks(page.read_text(), load())


@pytest.mark.parametrize("name", HELD)
def test_figures_of_a_page_are_guarded_or_of_a_commit(name):
    """So that a change of the hardware or of the compiler leaves no figure behind unseen."""
    assert guards.unmarked((ROOT / name).read_text()) == []


def test_commits_of_figures_are_in_the_history():
    commits = {
        mark.value for page in PAGES for mark in guards.marks(page.read_text()) if mark.kind == "at"
    }
    assert len(commits) > 3
    assert all(re.fullmatch(r"[0-9a-f]{7,12}", commit) for commit in commits)
    if not (ROOT / ".git").exists():
        pytest.skip("no history here")
    for commit in sorted(commits):
        known = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
        assert subprocess.run(known, cwd=ROOT, capture_output=True).returncode == 0, commit


def test_cycles_guarded_for_boards_are_in_results_and_boards_page():
    for name in HELD[1:]:
        names = {mark.value for mark in guards.marks((ROOT / name).read_text())}
        assert {f"digits-{device}.cycles" for device in guards.DEVICES} <= names


def test_cycles_of_each_case_are_in_a_page():
    """So that a command that a page names cannot give other cycles than the page."""
    named = {mark.value for page in PAGES for mark in guards.marks(page.read_text())}
    cases = {f"{name}.cycles" for name in guards.CASES | guards.SLOW_CASES}
    assert sorted(cases - named) == []


def test_case_compiles_with_its_ranks_formats_preset_and_plan():
    case = guards.Case("digits", 16, "ecp5-85f-w8", "paper", ((3,), (2,)), guards.NARROW)
    network = load_network("digits").with_ranks([[3], [2]]).with_formats(guards.NARROW)
    expected = compile_step(network, 16, preset("ecp5-85f-w8"), plan="paper")
    assert case.step().predicted_cycles == expected.predicted_cycles


def test_marks_of_a_page_are_compared_number_by_number():
    first = "7 cycles, 1,234<!-- guard a.cycles --> cycles"
    page = f"{first}\n| 5,678<!-- at 0123abc --> cycles | 4,321 cycles"
    assert [(m.line, m.number, m.kind, m.value) for m in guards.marks(page)] == [
        (1, 1234, "guard", "a.cycles"),
        (2, 5678, "at", "0123abc"),
    ]
    assert guards.unmarked(page) == [(2, 4321)]
    built = "**82.3 MHz**, 33,938 of 83,640 LUTs, 777 LUT4, asked for 60 MHz"
    assert guards.unmarked(built) == [(1, 82.3), (1, 33938)]
    marked = built.replace("82.3", "82.3<!-- at 0123abc -->")
    assert guards.unmarked(marked.replace("33,938", "33,938<!-- part X -->")) == []
    assert guards.wrong_marks(page, {"a.cycles": 1234}) == []
    assert guards.wrong_marks(page, {"a.cycles": 1235}) == ["line 1: 1,234, a.cycles is 1235"]
    assert guards.wrong_marks(page, {}) == ["line 1: 1,234, a.cycles is None"]


def test_any_change_is_told():
    told = compare({"a.b": 5, "a.c": 5, "a.d": 5}, {"a.b": 5, "a.c": 6, "a.d": 4, "a.e": 1})
    assert told == [
        "a.c: 6 is worse than 5",
        "a.d: 4 is better than 5",
        "a.e: 1 is not in the file",
    ]


def test_written_figures_are_read_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(guards, "FIGURES", {name: FIGURES[name] for name in QUICK[:2]})
    path = tmp_path / "guards.toml"
    assert main(["--file", str(path)]) == 1
    assert "is not in the file" in capsys.readouterr().out
    assert main(["--file", str(path), "--write"]) == 0
    assert main(["--file", str(path)]) == 0
    assert load(path) == measure(QUICK[:2])
    assert path.read_text() == text_of(load(path))
    path.write_text("[nonsense")
    with pytest.raises(GuardError, match=r"guards\.toml: "):
        load(path)
    assert main(["--file", str(path)]) == 2
