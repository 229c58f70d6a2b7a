"""Text that fits the terminal: `plan`, `profile`, `listing`, errors."""

import os
import pty
import re
import subprocess
import sys
from textwrap import dedent

import pytest

from trainwright.cli import main, output
from trainwright.cli.screen import LEAST_CELL, fitted, folded, transposed
from trainwright.report.summary import spell_ranks

INTERNAL = re.compile(r"\bl\d+\.|\bconv\.[a-zA-Z]")
NETWORK = """
    name = "seen"
    classes = 10
    image = [6, 6]
    [[layers]]
    name = "conv"
    kernel = [3, 3]
    outputs = [2, 4]
    inputs = [9, 1]
    ranks = [3]
    [[layers]]
    name = "classify"
    outputs = [4, 4]
    inputs = [16, 8]
    ranks = [4]
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    file = tmp_path_factory.mktemp("seen") / "seen.toml"
    file.write_text(dedent(NETWORK))
    return str(file)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", ["plan", "profile", "listing"])
def test_command_of_a_named_network_fits_the_terminal(capsys, monkeypatch, network, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    options = ["--backend", "golden"] if command == "profile" else []
    assert main([command, network, "--batch", "8", *options]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert not INTERNAL.search(text)
    assert {"conv", "classify"} <= set(re.findall(r"\w+", text))
    assert main([command, network, "--batch", "8", *options, "--wide"]) == 0
    wide = capsys.readouterr().out
    assert max(map(len, wide.splitlines())) > 100 and "l1.G1" in wide
    if command != "profile":  # whose narrow table says which columns it lacks
        assert set(re.findall(r"\d{3,}", wide)) <= set(re.findall(r"\d{3,}", text))


def test_plan_on_the_narrowest_terminal_names_the_columns_left_out(capsys, monkeypatch, network):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["plan", network, "--batch", "8"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 40
    assert "not shown: arrays, in slices of" in text


def test_plan_orders_are_trees_of_products(capsys, network):
    assert main(["plan", network, "--batch", "8"]) == 0
    text = capsys.readouterr().out
    assert "y = (G1 G2) xw;" in text and "dG1 = G2 (xw dy)" in text
    assert "conv: inputs [9, 1], outputs [2, 4], ranks [3]" in text


def test_fitted_table_leaves_out_spare_columns_then_folds_cells():
    head = ("number", "text", "spare", "rest")
    rows = [[1, "some words to fold " * 3, 12345, "kept"], [20, "few", 6, "kept"]]
    assert "12,345" in fitted(head, rows, 200)
    text = fitted(head, rows, 60, ("spare",))
    assert max(map(len, text.splitlines())) <= 60
    assert "spare" not in text.splitlines()[0]
    assert "not shown: spare (--wide or --json)" in text
    cells = [line.split("|")[2].strip() for line in text.splitlines()[2:-1]]
    assert " ".join(cells).split() == [*("some words to fold".split() * 3), "few"]
    least = fitted(head, rows, 1, ("spare",))
    rows_shown = [line for line in least.splitlines() if line.startswith("|")]
    assert {len(line.split("|")[2]) for line in rows_shown} == {LEAST_CELL + 2}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_folded_line_keeps_its_words_and_its_width(width):
    text = "   4  PE3   name: x[4416] -> z[4096]  for 5(g+32,z+64) 4(x+16)  rows x+0  ; wait LOAD"
    lines = folded(text, width, 6).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == text.split()
    assert lines[0].startswith("   4  PE3   name") and all(
        line.startswith(" " * 6) for line in lines[1:]
    )


def test_transposed_table_turns_only_where_it_is_too_wide():
    head, rows = ("part", "a long name", "b"), [["one", 1, 2], ["two", 3, 4]]
    assert (
        transposed(head, rows, 80).splitlines()[0].split() == "| part | a long name | b |".split()
    )
    assert transposed(head, rows, 20).splitlines()[0].split() == "| part | one | two |".split()
    far = [["one", 1, 10**9], ["two", 3, 10**9]]
    apart = transposed(head, far, 32).splitlines()
    assert [line.split() for line in apart if "part" in line] == [
        "| part | one |".split(), "| part | two |".split()
    ]  # fmt: skip
    assert max(map(len, apart)) <= 32


def test_error_is_one_line_and_folded_between_words_on_a_terminal(tmp_path):
    words = [sys.executable, "-m", "trainwright.cli", "plan", str(tmp_path / ("no" * 30))]
    plain = subprocess.run(words, capture_output=True, text=True)
    assert plain.returncode == 2 and plain.stderr.count("\n") == 1
    reader, writer = pty.openpty()
    environment = os.environ | {"COLUMNS": "60"}
    done = subprocess.run(words, stderr=writer, stdout=subprocess.DEVNULL, env=environment)
    os.close(writer)
    text = os.read(reader, 10_000).decode()
    os.close(reader)
    assert done.returncode == 2 and len(text.splitlines()) > 1
    assert text.split() == plain.stderr.split()
    assert all(len(line) <= 60 or " " not in line.strip() for line in text.splitlines())


def test_command_prints_escapes_where_the_encoding_lacks_a_character(tmp_path):
    (tmp_path / "größe.toml").write_text("name = 1")
    words = [sys.executable, "-m", "trainwright.cli", "plan", str(tmp_path / "größe.toml")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, env=environment)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and done.stderr.isascii()
    script = (
        "import trainwright.cli.core as core\n"
        "try:\n    core.main(['--version'])\nexcept SystemExit:\n    print('\\xe9')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment)
    assert done.returncode == 0 and b"\\xe9" in done.stdout


def test_bars_of_several_trials_end_together_and_are_not_begun_again(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    output._bars.cache_clear()
    first, second = output.teller("first"), output.teller("second")
    bars, begun = output._bars(), []
    add_task = bars.add_task
    monkeypatch.setattr(bars, "add_task", lambda t, **more: begun.append(t) or add_task(t, **more))
    try:
        first(1, 2)
        second(1, 3)
        first(2, 2)
        assert len(bars.tasks) == 2 and not bars.finished
        second(3, 3)
        first(2, 2)  # the last step again, after the bar is gone
        assert bars.tasks == [] and begun == ["first", "second"]
        second(1, 3)  # the same title counts anew
        assert [task.completed for task in bars.tasks] == [1]
    finally:
        output.stop_bars()
        output._bars.cache_clear()


def test_spell_ranks_of_dense_layers_says_dense():
    assert spell_ranks([[16, 16], [], [8]]) == "16 16 | dense | 8"
