import argparse
import json
from functools import cache

import pytest

from trainwright.cli.errors import OptionError
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.build import package
from trainwright_hw.build.cli import command

SMALL = ("lanes=4", "pe1_rows=2", "pe2_rows=2", "scratchpad_rows=64")

converted = cache(package.package_rtlil)
"""Both languages are written from one conversion of the same design."""


@pytest.fixture(autouse=True)
def share_conversion(monkeypatch):
    monkeypatch.setattr(package, "package_rtlil", converted)


def run(*options: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(options))


def test_verilog_command_writes_a_file_and_tells_ports(tmp_path, capsys):
    file = tmp_path / "small.v"
    assert (
        run("--out", str(file), "--json", *(x for item in SMALL for x in ("--accelerator", item)))
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    text = file.read_text()
    assert "module trainwright(" in text
    assert told["lines"] == text.count("\n")
    assert told["parameters"]["lanes"] == 4
    assert told["multipliers"] == 16
    for port in told["ports"]:
        width = f"[{port['width'] - 1}:0] " if port["width"] > 1 else ""
        assert f"  {port['direction']} {width}{port['name']};" in text
    assert told["language"] == "Verilog-2005" and "always_" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["small.v"]


def test_verilog_command_with_sv_writes_systemverilog(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = (x for item in SMALL for x in ("--accelerator", item))
    assert run("--sv", "--json", *sizes) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["language"], told["file"]) == ("SystemVerilog", "trainwright.sv")
    assert "always_ff" in (tmp_path / "trainwright.sv").read_text()


@pytest.mark.parametrize(
    "options, message",
    (
        (("--accelerator", "lanes=5"), "lanes must be 4, 8 or 16, not 5"),
        (("--accelerator", "lane=4"), "no parameter 'lane'"),
        (("--accelerator", "lanes"), "lanes must be an integer"),
        (("--out", "no/where.v"), "there is no folder 'no'"),
        (("--out", "."), "'.' is a folder"),
    ),
)
def test_errors_in_one_line(options, message):
    with pytest.raises(OptionError, match=message) as caught:
        run(*options)
    assert "\n" not in str(caught.value)


def test_default_file_name():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([])
    assert args.out is None and "default: trainwright.v" in parser.format_help()
    assert AcceleratorParameters().multipliers == 256
