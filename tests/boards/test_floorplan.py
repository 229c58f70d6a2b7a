"""Places of multipliers."""

import json
import re

import pytest

from trainwright.parameters import AcceleratorParameters, preset
from trainwright_boards.board import ECP5_85F
from trainwright_boards.edit import editing
from trainwright_boards.floorplan import (
    ACCELERATOR,
    multiplier_places,
    pe1_groups,
    pe2_groups,
    scratchpad_places,
    tie,
)
from trainwright_boards.tools import BuildError
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.outer_array import OuterProductArray

ROWS = ECP5_85F.multiplier_rows
BLOCK_RAM_ROWS = ECP5_85F.block_ram_rows
BANK = f"{ACCELERATOR}.scratchpad.banks.bank"


def test_floorplan_sites_match_counts_of_part():
    for rows, count in ((ROWS, ECP5_85F.multipliers), (BLOCK_RAM_ROWS, ECP5_85F.block_rams)):
        sites = [site for row in rows for site in row]
        assert len(sites) == len(set(sites)) == count


@pytest.mark.parametrize(
    "p",
    [
        preset("ecp5-85f"),
        preset("ecp5-85f-w8"),
        AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2),
    ],
    ids=["preset", "narrow", "small"],
)
def test_every_group_is_side_by_side_in_one_row(p):
    places = multiplier_places(p, ECP5_85F)
    groups = pe1_groups(p) + pe2_groups(p)
    assert sorted(places) == sorted(cell for group in groups for cell in group)
    assert len(set(places.values())) == len(places)
    for group in groups:
        (row,) = [row for row in ROWS if places[group[0]] in row]
        begin = row.index(places[group[0]])
        assert [places[cell] for cell in group] == list(row[begin : begin + len(group)])


@pytest.mark.parametrize("word_width", (8, 16))
def test_floorplan_cell_names_match_design(word_width):
    """Half of the products of narrow words are no multipliers."""
    p = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2, word_width=word_width)
    arithmetic = FixedArithmetic(
        left_width=word_width, right_width=4, accumulator_width=28, word_width=word_width
    )
    target, names = DevicePlatform("ecp5"), set[str]()
    for where, block in (
        ("pe1.array", DotProductArray(p, arithmetic=arithmetic)),
        ("pe2.array", OuterProductArray(p, arithmetic=arithmetic)),
    ):
        text = component_to_rtlil(block, name="block", target=target)
        cells = re.findall(r"cell \\?MULT18X18D \\?(\w+_multiplier)", text)
        names |= {f"{ACCELERATOR}.{where}.{cell}" for cell in cells}
    named = {cell for group in pe1_groups(p) + pe2_groups(p) for cell in group}
    assert names == {cell for cell in named if ".array." in cell}
    assert len(names) == 24 * word_width // 16
    assert len([cell for cell in named if ".vector." in cell]) == 8 * word_width // 16


def test_floorplan_places_chained_products_side_by_side():
    p = preset("ecp5-85f")
    places = multiplier_places(p, ECP5_85F)
    for groups in (pe1_groups(p), pe2_groups(p)):
        size = len(groups[0])
        lines = [next(n for n, row in enumerate(ROWS) if places[g[0]] in row) for g in groups]
        columns = [ROWS[n].index(places[g[0]]) for n, g in zip(lines, groups, strict=True)]
        assert len(set(lines)) == 2
        for n in range(len(groups) - 1):
            same = lines[n] == lines[n + 1]
            assert abs(columns[n] - columns[n + 1]) == (size if same else 0)


def test_multipliers_without_room_are_left_unplaced():
    p = AcceleratorParameters()  # 256 multipliers
    places = multiplier_places(p, ECP5_85F)
    assert 0 < len(places) <= ECP5_85F.multipliers
    assert all(cell in places for cell in pe2_groups(p)[0])


def _banks(count: int) -> dict:
    """Make block RAMs in each of four banks, in any order, and other cells."""
    names = [f"{BANK}{b}.0.{n}" for n in range(count) for b in (2, 0, 3, 1)]
    more = ["soc.memory.memory.0.0", f"{BANK}0.0.0_LUT4_Z"]
    return {"cells": dict.fromkeys([*more, *names[::-1]])}


def test_bits_of_the_scratchpad_are_side_by_side_and_a_bank_in_one_row():
    p = preset("ecp5-85f")
    places = scratchpad_places(_banks(15), p, ECP5_85F)
    assert len(set(places.values())) == len(places) == 60
    where = {
        tuple(map(int, cell.removeprefix(BANK).split(".")[::2])): (
            next((r, row.index(place)) for r, row in enumerate(BLOCK_RAM_ROWS) if place in row)
        )
        for cell, place in places.items()
    }
    assert {b: {where[b, n][0] for n in range(15)} for b in range(4)} == {
        0: {0},
        1: {1},
        2: {0},
        3: {1},
    }
    for n in range(15):
        for b in range(4):
            assert where[b, n][1] == where[0, 0][1] + 2 * n + b // 2
    assert where[0, 0][1] == (len(BLOCK_RAM_ROWS[0]) - 30) // 2


def test_scratchpad_without_room_is_left_unplaced():
    p = preset("ecp5-85f")
    assert len(scratchpad_places(_banks(52), p, ECP5_85F)) == ECP5_85F.block_rams
    assert scratchpad_places(_banks(53), p, ECP5_85F) == {}
    assert scratchpad_places({"cells": {}}, p, ECP5_85F) == {}


def test_places_are_written_into_the_netlist(tmp_path):
    netlist = tmp_path / "top.json"
    cells = {"a": {"attributes": {"src": "x"}}, "b": {"attributes": {}}}
    netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}, "LUT4": {}}}))
    with editing(netlist, "top") as module:
        tie(module, {"a": "X4/Y10/MULT18_0"})
    text = netlist.read_text()
    written = json.loads(text)["modules"]["top"]["cells"]
    assert written == {"a": {"attributes": {"src": "x", "BEL": "X4/Y10/MULT18_0"}}, "b": cells["b"]}
    with (
        pytest.raises(BuildError, match="no cell c, which has a place"),
        editing(netlist, "top") as module,
    ):
        tie(module, {"b": "X4/Y10/MULT18_1", "c": "X4/Y10/MULT18_0"})
    assert netlist.read_text() == text
