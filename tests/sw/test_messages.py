"""Messages of all packages: nouns follow their counts."""

import ast
import re
from pathlib import Path

import pytest

from trainwright.cli import main
from trainwright.link.host import LinkError
from trainwright.link.serial_line import SerialLine
from trainwright.support.errors import reason_of

ROOT = Path(__file__).parents[2]
LIMITS = {
    "schedule.py": "entries", "lower.py": "streams instructions", "validation.py": "descriptors",
    "text.py": "characters", "rounding.py": "factors", "own.py": "classes",
    "pictures.py": "classes pairs", "download.py": "bytes", "runs.py": "boards",
    "netlist.py": "clocks", "truth_table.py": "inputs bits", "ecp5.py": "bits",
    "gowin.py": "bits", "xilinx.py": "bits",
}  # fmt: skip
"""Nouns behind counts that are over a limit of more than 1, by the file of the message."""


def counts_of_many(source):
    """Yield line and noun of each text in which a plural follows a length, whatever it is."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for count, text in zip(node.values, node.values[1:], strict=False):
            if (
                isinstance(count, ast.FormattedValue)
                and isinstance(count.value, ast.Call)
                and getattr(count.value.func, "id", "") == "len"
                and isinstance(text, ast.Constant)
                and (noun := re.match(r" ([a-z]+s)\b(?!:)", str(text.value)))
            ):
                yield count.lineno, noun[1]


def test_counts_of_many_finds_a_plural_behind_a_length():
    text = "print(f\"{len(a)} samples of {amount(len(b), 'row')}, {len(c)} of {d} words\")"
    assert list(counts_of_many(text)) == [(1, "samples")]


@pytest.mark.parametrize("folder", ["sw", "hw", "sim", "boards"])
def test_nouns_behind_counts_follow_them(folder):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {noun}: use support.text.amount"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, noun in counts_of_many(path.read_text())
        if noun not in LIMITS.get(path.name, "").split()
    ]
    assert not wrong


def test_file_that_is_missing_is_named_once(tmp_path, capsys):
    missing = tmp_path / "nothere"
    for argv in (["compress", str(missing)], ["eval", str(missing)]):
        assert main(argv) == 2
        message = capsys.readouterr().err
        assert message.count("nothere") == 1 and len(message.splitlines()) == 1


def test_serial_port_that_cannot_be_opened_is_named_once(tmp_path):
    pytest.importorskip("serial")
    port = str(tmp_path / "tty0")
    with pytest.raises(LinkError) as caught:
        SerialLine(port)
    assert str(caught.value).startswith(f"cannot open {port}: No such file or directory; name the")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError("No such file or directory: x"), "No such file or directory"),
        (IsADirectoryError("x"), "Is a directory"),
        (PermissionError("no: x"), "Permission denied"),
        (OSError(28, "could not open x: [Errno 28] full"), "No space left on device"),
        (OSError("odd device"), "odd device"),
    ],
)
def test_reason_of_an_error_is_the_system_one(error, reason):
    assert reason_of(error) == reason
