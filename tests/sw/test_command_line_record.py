"""The command line against a recorded list: commands, options, exit statuses and JSON keys.

``python tests/sw/test_command_line_record.py`` records anew; a change belongs in the changelog.
"""

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.cli import core

RECORD = Path(__file__).with_suffix(".json")

FLOAT = "train --numbers float32 --steps 2 --test-samples 64 --out {out}/float --json"
STATUSES = {
    "--version": 0,
    "--help": 0,
    "": 0,
    "train --help": 0,
    "fly": 2,
    "train --wings": 2,
    "train --steps none": 2,
    "train --schedule linear": 2,
    "bench": 2,
    "reproduce qr --columns 9 --rows 8": 2,
    "posit 1 --code 1": 2,
    "plan no-such-network": 2,
    "build ulx3s-85f --synth-only --until pack": 2,
}
JSON_COMMANDS = (
    "posit 3.14159 --json",
    "train --numbers float32 --steps 2 --test-samples 64 --out {out}/float --json",
    "eval {out}/float/model.safetensors --test-samples 64 --json",
    "compress {out}/dense.npz --network digits --out {out}/factors.safetensors --json",
    "bench qr --size 8x4 --repeat 1 --json",
    "bench ape --size 16 --repeat 1 --json",
    "bench tt --cores 3 --rank 4 --json",
)
SLOW_JSON_COMMANDS = (
    "train --steps 2 --test-samples 64 --out {out}/fixed --json",
    "eval {out}/fixed/model.safetensors --test-samples 64 --out {out}/eval --json",
    "check --backend golden --batch 16 --json",
    "plan digits --batch 16 --json",
    "profile digits --backend golden --batch 16 --json",
    "formats digits --batch 16 --json",
    "sweep {out}/sweep.toml --out {out}/sweep --json",
    "bench cycles --network digits --batch 16 --predict --json",
    "bench compile --network digits --batch 16 --json",
    "bench golden --batch 16 --repeat 1 --json",
    "bench loop --batch 16 --repeat 1 --json",
    "bench posit --count 10 --size 4 --batch 1 --repeat 1 --json",
    "bench mcf --operation add --repeat 1 --json",
    "bench mcf --results 2 --size 64 --repeat 1 --json",
    "reproduce qr --quick --vectors 1000 --out {out}/qr --json",
    "reproduce ape --quick --out {out}/ape --json",
    "reproduce posit --quick --experiment figure-2 --out {out}/posit --json",
    "reproduce mctensor --quick --experiment figures --experiment table-8 --out {out}/mc --json",
)


# -- options ---------------------------------------------------------------------------------------
def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command and every part of one with its parser."""
    for command in core._commands(None):
        parser = core._parser(core._commands(command.name), command.name)
        yield from parts(command.name, subparsers(parser)[command.name])


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def parts(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, Any]]:
    """Yield a parser and those of its parts."""
    yield path, parser
    for name, part in subparsers(parser).items():
        yield from parts(f"{path} {name}", part)


def described(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Describe the options of a parser by their first name."""
    rows = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        given = action.default
        rows[" ".join(action.option_strings) or f"<{action.dest}>"] = {
            "default": None if given in (None, [], ()) else str(given),
            "choices": None if action.choices is None else [str(c) for c in action.choices],
            "values": str(action.nargs),
            "required": action.required,
            "repeatable": type(action).__name__.startswith("_Append"),
        }
    return dict(sorted(rows.items()))


def options() -> dict[str, Any]:
    """List the options of every command."""
    return {path: described(parser) for path, parser in parsers()}


def test_command_line_options_equal_record():
    recorded, current = json.loads(RECORD.read_text())["options"], options()
    assert sorted(current) == sorted(recorded)
    for command, rows in recorded.items():
        assert current[command] == rows, command


# -- statuses --------------------------------------------------------------------------------------
def run(line: str, out: Path) -> tuple[int, str]:
    """Run a command line and return its exit status and standard output."""
    words = [word.format(out=out) for word in line.split()]
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        try:
            status = core.main(words)
        except SystemExit as end:
            status = end.code
    return status, stdout.getvalue()


@pytest.mark.parametrize("line", STATUSES)
def test_command_line_status_equals_record(line, tmp_path):
    assert run(line, tmp_path)[0] == STATUSES[line]


# -- JSON ------------------------------------------------------------------------------------------
def keys(value: Any, path: str = "") -> set[str]:
    """Collect the paths of all keys; items of a list count as one."""
    if isinstance(value, dict):
        return {p for name, item in value.items() for p in keys(item, f"{path}.{name}")} or {path}
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return {p for item in value for p in keys(item, f"{path}[]")}
    return {path}


def prepare(out: Path) -> None:
    """Write the files that commands read."""
    import numpy as np

    random = np.random.RandomState(0)
    np.savez(
        out / "dense.npz", **{"0.weight": random.randn(32, 64), "1.weight": random.randn(10, 32)}
    )
    (out / "sweep.toml").write_text(
        '[train]\nnumbers = "float32"\nsteps = 1\ntest-samples = 8\n[axes]\nseed = [0, 1]\n'
    )


def json_keys(lines: tuple[str, ...], out: Path) -> Iterator[tuple[str, list[str]]]:
    """Run commands in order, as later ones read files of earlier ones."""
    prepare(out)
    for line in lines:
        status, text = run(line, out)
        assert status == 0, line
        yield line, sorted(keys(json.loads(text)))


@pytest.mark.parametrize(
    "lines", [JSON_COMMANDS, pytest.param(SLOW_JSON_COMMANDS, marks=pytest.mark.slow)]
)
def test_command_line_json_keys_equal_record(lines, tmp_path):
    recorded = json.loads(RECORD.read_text())["json"]
    for line, found_keys in json_keys(lines, tmp_path):
        assert found_keys == recorded[line], line


def record(out: Path) -> None:
    """Write the record by the present code."""
    lines = dict(json_keys(JSON_COMMANDS + SLOW_JSON_COMMANDS, out))
    content = {"options": options(), "json": lines}
    RECORD.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        record(Path(sys.argv[1] if len(sys.argv) > 1 else folder))
