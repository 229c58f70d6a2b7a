"""``trainwright bench lanes``: counts, logic levels, the command."""

import argparse
import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import trainwright.cli.command
from trainwright.cli import bench
from trainwright.cli.errors import OptionError
from trainwright_boards.lanes.blocks import BLOCKS
from trainwright_boards.lanes.command import command
from trainwright_boards.lanes.levels import logic_levels
from trainwright_boards.lanes.measure import measure

ENTRY = "trainwright_boards.lanes.command:command"
DIRECTIONS = {"A": "input", "B": "input", "CIN": "input", "Q": "output", "COUT": "output"}


def module(*cells: tuple) -> dict:
    """Make a module of cells given as (type, {port: bits})."""
    return {
        "cells": {
            f"cell_{number}": {
                "type": kind,
                "connections": ports,
                "port_directions": {port: DIRECTIONS[port] for port in ports},
            }
            for number, (kind, ports) in enumerate(cells)
        }
    }


def chain(kind: str, length: int, first: int) -> list[tuple]:
    """Carry cells from bit ``first`` to bit ``first + length``."""
    return [
        (kind, {"CIN": [first + n], "A": ["0"], "COUT": [first + n + 1]}) for n in range(length)
    ]


def lut(a: int, b: int, q: int) -> tuple:
    return ("LUT4", {"A": [a], "B": [b], "Q": [q]})


def test_logic_levels_count_luts_and_chains():
    assert logic_levels(module()) == 0
    assert logic_levels(module(lut(1, 2, 3))) == 1
    assert logic_levels(module(lut(4, 5, 6), lut(3, 2, 4), lut(1, 2, 3))) == 3
    # a register ends a path
    register = ("TRELLIS_FF", {"A": [3], "Q": [4]})
    assert logic_levels(module(lut(1, 2, 3), register, lut(4, 5, 6))) == 1
    # the multiplexer of a wider LUT is part of it
    wide = [lut(1, 2, 3), lut(1, 2, 4), ("PFUMX", {"A": [3], "B": [4], "Q": [5]}), lut(5, 1, 6)]
    assert logic_levels(module(*wide)) == 2
    # a chain is a level, and one that begins with another's sum is another
    assert logic_levels(module(lut(1, 2, 10), *chain("CCU2C", 20, 10), lut(30, 1, 40))) == 3
    second = ("CCU2C", {"A": [30], "B": [1], "Q": [50]})
    assert logic_levels(module(*chain("CCU2C", 20, 10), second)) == 2


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def test_lanes_json_has_areas_of_block(capsys):
    """The decoder of two lanes: LUTs for a choice of two a bit, and one block RAM."""
    assert command.run(parsed("--block", "block RAM", "--family", "ecp5", "--json")) == 0
    figures = json.loads(capsys.readouterr().out)
    (ecp5,) = figures["blocks"]
    assert ecp5["family"] == "ecp5"
    assert ecp5["formats"] == "fixed(16) + posit(8,0) + posit(8,1)c"
    assert 36 <= ecp5["sites"] == ecp5["lut"] <= 42
    assert (ecp5["block_ram"], ecp5["dsp"], ecp5["carry"], ecp5["mhz"]) == (1, 0, 0, None)
    assert [peer["lut"] for peer in figures["quoted"]] == [1838, 3007]


@pytest.mark.slow
def test_lanes_json_has_areas_of_both_families(capsys):
    assert command.run(parsed("--block", "block RAM", "--json")) == 0
    ecp5, xcup = json.loads(capsys.readouterr().out)["blocks"]
    assert (ecp5["family"], xcup["family"]) == ("ecp5", "xcup")
    assert 0 < xcup["block_ram"] <= 1 and xcup["levels"] >= 1


def test_lanes_table_has_row_per_block(capsys):
    # "MAC 1" leaves the blocks of significands out: each takes a synthesis, no figure is compared
    assert command.run(parsed("--block", "MAC 1", "--family", "ecp5")) == 0
    out = capsys.readouterr().out
    rows = {line.split("|")[1].strip(): line for line in out.splitlines() if "| MAC " in line}
    # an accumulator's bits and nothing else: the product's registers are in its multiplier
    assert [cell.strip() for cell in rows["MAC 16/36"].split("|")[3:8]] == "36 0 36 1 0".split()
    assert [cell.strip() for cell in rows["MAC 18/44"].split("|")[3:8]] == "44 0 44 1 0".split()
    assert "PDPU" in out
    assert "xcup" not in out


@pytest.mark.parametrize(
    ("name", "most"),
    (
        ("decoder by shifts", 200),
        pytest.param("encoder, one lane more", 500, marks=pytest.mark.slow),
    ),
)
def test_lane_block_area_stays_below_limit(name, most, tmp_path):
    """Limits are the areas that an accelerator with posits was planned with."""
    block = [block for block in BLOCKS if block.name == name][-1]
    figures = measure(block, "ecp5", tmp_path, place=False, progress=lambda _: None)
    assert 100 <= figures["sites"] <= most


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("--block", "cordic"), "none has 'cordic' in its name; there are MAC 16/36; "),
        (("--place", "--family", "xcup"), "--place is of an ECP5"),
    ),
)
def test_lanes_command_rejects_bad_options(arguments, message):
    with pytest.raises(OptionError, match=message):
        command.run(parsed(*arguments))


def test_lanes_is_registered_as_bench(monkeypatch, capsys):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    named = project["project"]["entry-points"]["trainwright.benches"]
    assert named["lanes"] == ENTRY
    groups = {"trainwright.benches": [EntryPoint("lanes", ENTRY, "trainwright.benches")]}
    monkeypatch.setattr(
        trainwright.cli.command, "entry_points", lambda group: groups.get(group, [])
    )
    parser = argparse.ArgumentParser()
    bench.command.add_arguments(parser)
    args = parser.parse_args(["lanes", "--family", "xcup", "--place"])
    with pytest.raises(OptionError, match="--place is of an ECP5"):
        bench.command.run(args)
