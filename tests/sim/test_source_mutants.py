"""Faults of Python and C: what they are, and that tests run on them in place of the files."""

import json
import shutil
from pathlib import Path

import pytest

from trainwright_sim.mutation.sources import c_faults, python_faults, trial
from trainwright_sim.mutation.sources.__main__ import main, markdown, reason
from trainwright_sim.mutation.sources.fault import Fault, number_after
from trainwright_sim.mutation.sources.targets import ROOT, TARGETS

PYTHON = '''"""Text with 1 + 1."""
def f(a: int | None, *rest: int, b: bool = True) -> "x + 1":
    if not a or (a <= 3 and b):  # a < 3
        raise ValueError(f"{a + 1} is not 2")
    a += max(a << 2, -b)
    return a @ rest
'''
C = """#define N 1 + 1
/* 1 + 1 */ int f(int *a, int n) {
    for (int i = 0; i < n; i++) { a[i] += n & 0x1F; if (!n || n >= 2u) break; }
    return *a - 1;
}
"""


def changes(module, tmp_path: Path, name: str, text: str) -> list[tuple[int, str, str]]:
    path = tmp_path / name
    path.write_text(text)
    faults = module.faults(path)
    for fault in faults:
        changed = fault.apply(path.read_bytes()).decode()
        assert changed != text
        assert fault.text(path.read_bytes()) == text.splitlines()[fault.line - 1].strip()
    return [(fault.line, fault.old, fault.new) for fault in faults]


def test_faults_of_python(tmp_path):
    assert changes(python_faults, tmp_path, "f.py", PYTHON) == [
        (2, "True", "False"), (3, "not ", ""), (3, "or", "and"), (3, "<=", "<"), (3, "3", "4"),
        (3, "and", "or"), (5, "+=", "-="), (5, "max", "min"), (5, "<<", ">>"), (5, "2", "3"),
        (5, "-", "+"), (6, "@", "*"),
    ]  # fmt: skip


def test_faults_of_c(tmp_path):
    assert changes(c_faults, tmp_path, "f.c", C) == [
        (3, "0", "1"), (3, "<", "<="), (3, "++", "--"), (3, "+=", "-="), (3, "&", "|"),
        (3, "0x1F", "0x20"), (3, "!", ""), (3, "||", "&&"), (3, ">=", ">"), (3, "2u", "3u"),
        (3, "break", "continue"), (4, "-", "+"), (4, "1", "2"),
    ]  # fmt: skip


def test_number_mutants_add_one():
    assert [number_after(n) for n in ("7", "0x0F", "1_000", "3ull", "1.5", "0x1.8p3")] == [
        "8", "0x10", "1001", "4ull", None, None
    ]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_target_has_sources_and_tests(target):
    assert len(target.faults()) > 100
    assert all(path.is_file() for path in target.test_files)
    assert len({path.suffix == ".py" for path in target.files}) == 1


def test_mutant_module_is_imported_by_child_alone():
    """By the loader that children get, and by no other."""
    path = ROOT / "sw" / "trainwright" / "formats" / "parse.py"
    text = path.read_bytes() + b"\nFAULT = 1\n"
    finder = trial._Finder(path, text)
    assert finder.find_spec("trainwright.formats", None) is None
    spec = finder.find_spec("trainwright.formats.parse", None)
    assert spec is not None and spec.loader is not None
    code = spec.loader.get_code("trainwright.formats.parse")
    assert "FAULT" in code.co_names and trial.module_of(path) == "trainwright.formats.parse"


@pytest.fixture(scope="module")
def posits(tmp_path_factory):
    """Return a function that builds the kernels of posits with a fault; unchanged ones once."""
    scratch = tmp_path_factory.mktemp("kernels")

    def built(fault):
        shutil.rmtree(scratch / "source", ignore_errors=True)
        return trial.kernel(TARGETS["posit-kernel"], fault, scratch)

    return built


@pytest.mark.slow
def test_code_that_is_not_built_is_the_same(posits):
    """Changed comments make an equal library, wherever the copy of the sources lies."""
    path = next(file for file in TARGETS["posit-kernel"].files if file.name == "odd.h")
    fault = Fault(path, path.read_bytes().index(b"rounding"), "rounding", "sounding", 1)
    assert posits(fault) == posits(None)


def test_code_that_only_one_build_has_is_not_the_same(posits):
    """Posits have kernels in float and in double, and some in double alone."""
    fault = next(
        candidate
        for candidate in TARGETS["posit-kernel"].faults()
        if (candidate.path.name, candidate.old) == ("odd.h", "==")
    )
    assert posits(fault) != posits(None)


def test_source_mutant_figures_count_killed_and_survived(monkeypatch, capsys, tmp_path):
    """Killed, survived, and code that is the same or no code: these do not count."""
    statuses = ("survived", "killed", "survived", "invalid", "equivalent", "killed")
    verdicts = iter([(status, "a test", 1.0) for status in statuses])
    monkeypatch.setattr(trial, "run", lambda *_: next(verdicts))
    monkeypatch.setattr(trial, "import_heavy", lambda: None)
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    assert main(["formats", "--sample", "5", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert {"mutants": 5, "killed": 2, "survived": 1, "score": 0.6667}.items() <= printed.items()
    assert main(["formats", "--sample", "5", "--json"]) == 1  # known: nothing is run again
    assert json.loads(capsys.readouterr().out)["killed"] == 2
    row = markdown(printed["targets"]).splitlines()[2]
    assert row.endswith("| 4 | 1 | 2 | 1 | 66.7 % |")
    assert reason("no/such.py:1: '0' as '1'", "x") is None


def test_bad_usage_is_one_clear_error(capsys):
    assert main(["no-such"]) == 2
    assert capsys.readouterr().err == "source-mutants: no target 'no-such': see --list\n"
    assert main(["--sample", "0"]) == 2
    assert "--sample must be at least 1, not 0" in capsys.readouterr().err
