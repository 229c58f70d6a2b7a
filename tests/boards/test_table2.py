"""The paper's Table 2 beside our own figures, from the reports of finished builds."""

import json
from dataclasses import asdict

import pytest

from trainwright.cli import main
from trainwright.cli.core import Parser
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters, preset
from trainwright_boards import commands as cli
from trainwright_boards import table2
from trainwright_boards.estimate import count
from trainwright_boards.tools import BuildError

COUNTS = {
    "luts": {"used": 40000, "available": 83640},
    "flip_flops": {"used": 20000, "available": 83640},
    "multipliers": {"used": 128, "available": 156},
    "block_rams": {"used": 172, "available": 208},
}


def built(folder, parameters: AcceleratorParameters, name: str, **more) -> None:
    folder.mkdir(parents=True)
    report = {
        "part": "LFE5U-85F",
        "parameters": asdict(parameters) | {"pe1_store_depth": 2048},  # of a build of long ago
        "multipliers": parameters.multipliers,
        "resources": COUNTS,
    }
    (folder / name).write_text(json.dumps(report | more))


@pytest.fixture(autouse=True)
def digits_alone(monkeypatch):
    """Leave out fashion, whose step takes 40 s to compile for an ECP5."""
    monkeypatch.setattr(table2, "NETWORKS", ("digits",))


@pytest.fixture
def builds(tmp_path):
    parameters = preset("ecp5-85f")
    built(tmp_path / "b", parameters, "report.json", fmax_mhz=50.0, memory_bytes=1 << 17)
    built(tmp_path / "a", parameters, "estimate.json")
    (tmp_path / "unfinished").mkdir()
    return tmp_path


def test_table2_printed_row_matches_shares_of_paper():
    shares = [table2.PAPER.used[n] / table2.PAPER.available[n] for n in table2.RESOURCES]
    assert [f"{share:.2%}" for share in shares] == ["79.55%", "21.37%", "77.22%", "17.82%"]
    assert table2.PAPER.milliseconds == {"digits": None, "fashion": 90.0}


def test_cycles_are_those_of_the_compiled_step_and_times_those_at_the_clock(builds):
    assert table2.finished(builds) == [builds / "a", builds / "b"]
    estimate, build = map(table2.row, table2.finished(builds))
    cycles = compile_step(load_network("digits"), 64, preset("ecp5-85f")).predicted_cycles
    assert build.cycles == {"digits": cycles}
    assert build.milliseconds == {"digits": cycles / 50e3}
    assert estimate.cycles == {"digits": cycles}
    assert estimate.milliseconds == {"digits": None}
    assert table2.row(builds / "a", mhz=100.0).milliseconds["digits"] == cycles / 100e3


def test_table2_memory_without_room_has_no_cycles(tmp_path):
    built(
        tmp_path / "small", preset("ecp5-85f"), "report.json", fmax_mhz=50.0, memory_bytes=1 << 14
    )
    assert table2.row(tmp_path / "small").cycles == {"digits": None}


def test_table2_sdram_takes_more_cycles_than_block_ram(tmp_path):
    kept = {"fmax_mhz": 50.0, "memory_bytes": 1 << 25}
    for memory in ("block", "sdram"):
        built(tmp_path / memory, preset("ecp5-85f"), "report.json", memory=memory, **kept)
    block, sdram = (table2.row(tmp_path / name).cycles["digits"] for name in ("block", "sdram"))
    assert block < sdram < 4 * block


def test_table2_folder_without_report_is_rejected(builds):
    with pytest.raises(BuildError, match=r"no report of a finished build in .*unfinished"):
        table2.row(builds / "unfinished")
    assert table2.finished(builds / "nothing") == []


def test_table2_command_prints_row_per_build(builds, capsys):
    parser = Parser()
    cli.boards.add_arguments(parser)
    cli.boards.run(parser.parse_args(["--table2", "--builds", str(builds)]))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["paper", "a", "b"]
    assert "128 / 156" in lines[4]
    cli.boards.run(parser.parse_args(["--table2", "--builds", str(builds), "--json"]))
    rows = json.loads(capsys.readouterr().out)
    assert [row["clock_mhz"] for row in rows] == [100.0, None, 50.0]


def test_nothing_is_built(tmp_path, capsys):
    parser = Parser()
    cli.boards.add_arguments(parser)
    cli.boards.run(parser.parse_args(["--table2", "--builds", str(tmp_path)]))
    captured = capsys.readouterr()
    assert "nothing is built" in captured.err and "56,131" in captured.out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--runs", "--table2"], "--table2: not allowed with argument --runs"),
        (["--runs", "--builds", "x"], "--builds is for --table2"),
        (["--table2", "--check"], "--check is for --runs"),
    ],
)
def test_boards_options_that_contradict_are_one_error(arguments, message, capsys):
    try:
        status = main(["boards", *arguments])
    except SystemExit as exit_:
        status = exit_.code
    captured = capsys.readouterr()
    assert status == 2 and message in captured.err and not captured.out


def test_cells_of_an_estimate_are_counted_once():
    cells = {"LUT6": 10, "LUT2": 5, "RAM32M16": 3, "FDRE": 7, "RAMB18E2": 3, "RAMB36E2": 2}
    cells |= {"DSP48E2": 4, "CARRY8": 9, "MUXF7": 2}
    used = {"luts": 39, "flip_flops": 7, "multipliers": 4, "block_rams": 3.5}
    assert count(cells, "xcup") == count(cells, "xc7") == used
    with pytest.raises(BuildError, match="what 2 cells RAM999 take"):
        count({"RAM999": 2}, "xcup")
