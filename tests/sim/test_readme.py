"""Every command of the README runs; training is cut short."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from slowly import mostly_slow

from trainwright.accelerator import backend_names
from trainwright.cli.core import main

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
LINES = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
COMMANDS = [line[1:] for line in LINES if line and line[0] == "trainwright"]
OTHERS = [line for line in LINES if line and line[0] != "trainwright"]


def test_readme_other_commands_are_known():
    """``scripts/test`` is what runs this; ``scripts/demo`` has its own test below."""
    assert OTHERS == [["scripts/demo"], ["scripts/test"], [".", ".venv/bin/activate"]]
    assert COMMANDS


# tests/hw/test_cli.py has `verilog` in the default suite.
@mostly_slow("command", COMMANDS, lambda command: command[0] != "verilog", ids=" ".join)
def test_readme_command_succeeds(command, capsys, tmp_path, monkeypatch):
    if "rtl" not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    monkeypatch.chdir(tmp_path)
    arguments = list(command)
    if "FOLDER" in arguments:
        folder = os.environ.get("TRAINWRIGHT_DATA")
        if not folder:
            pytest.skip("TRAINWRIGHT_DATA is not set: no Fashion-MNIST here")
        arguments[arguments.index("FOLDER")] = folder
    if arguments[0] == "verilog":  # the default accelerator is converted for many simulations
        arguments += [f"--accelerator={size}" for size in ("lanes=4", "pe1_rows=2", "pe2_rows=2")]
    if arguments[0] == "train":
        arguments += ["--steps", "2", "--test-samples", "64"]
    if arguments == ["--help"]:
        with pytest.raises(SystemExit) as done:
            main(arguments)
        assert done.value.code == 0
    else:
        assert main(arguments) == 0
    assert capsys.readouterr().out


def test_demo_script_trains_without_mismatch(tmp_path):
    if not (ROOT / ".venv/trainwright-installed").exists():
        pytest.skip("not in an environment that scripts/test made")
    demo = [ROOT / "scripts/demo", "--steps", "3", "--out", tmp_path / "demo"]
    done = subprocess.run(demo, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0 mismatches" in done.stdout
    assert (tmp_path / "demo" / "report.html").exists()
