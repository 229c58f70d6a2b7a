"""Headline figures are those of docs/guards.toml."""

import pytest

from trainwright_sim import guards
from trainwright_sim.guards import FIGURES, GuardError, compare, load, main, measure, text_of

CHEAP = [name for name, figure in FIGURES.items() if not figure.is_dear]
DEAR = [name for name, figure in FIGURES.items() if figure.is_dear]
REMEDY = "python -m trainwright_sim.guards --all --write, and the reason in the commit"


def test_figures_are_as_recorded():
    assert not compare(load(), measure(CHEAP)), REMEDY


@pytest.mark.slow
@pytest.mark.parametrize("name", DEAR)
def test_dear_figures_are_as_recorded(name):
    assert not compare(load(), measure([name])), REMEDY


def test_the_file_has_every_figure_and_no_other():
    assert load().keys() == FIGURES.keys()


def test_any_change_is_told():
    told = compare({"a.b": 5, "a.c": 5, "a.d": 5}, {"a.b": 5, "a.c": 6, "a.d": 4, "a.e": 1})
    assert told == [
        "a.c: 6 is worse than 5",
        "a.d: 4 is better than 5",
        "a.e: 1 is not in the file",
    ]


def test_written_figures_are_read_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(guards, "FIGURES", {name: FIGURES[name] for name in CHEAP[:2]})
    path = tmp_path / "guards.toml"
    assert main(["--file", str(path)]) == 1
    assert "is not in the file" in capsys.readouterr().out
    assert main(["--file", str(path), "--write"]) == 0
    assert main(["--file", str(path)]) == 0
    assert load(path) == measure(CHEAP[:2])
    assert path.read_text() == text_of(load(path))
    path.write_text("[nonsense")
    with pytest.raises(GuardError, match=r"guards\.toml: "):
        load(path)
    assert main(["--file", str(path)]) == 2
