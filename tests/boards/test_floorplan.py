"""Places of multipliers."""

import json

import pytest

from ttforge.parameters import AcceleratorParameters, preset
from ttforge_boards.board import ECP5_85F
from ttforge_boards.edit import editing
from ttforge_boards.floorplan import multiplier_places, pe1_groups, pe2_groups, tie
from ttforge_boards.tools import BuildError

ROWS = ECP5_85F.multiplier_rows


def test_the_part_has_as_many_multipliers_as_places():
    sites = [site for row in ROWS for site in row]
    assert len(sites) == len(set(sites)) == ECP5_85F.multipliers


@pytest.mark.parametrize(
    "p",
    [preset("ecp5-85f"), AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2)],
    ids=["preset", "small"],
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


def test_what_is_passed_on_goes_to_a_neighbour():
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


def test_what_finds_no_room_is_left_to_the_tool():
    p = AcceleratorParameters()  # 256 multipliers
    places = multiplier_places(p, ECP5_85F)
    assert 0 < len(places) <= ECP5_85F.multipliers
    assert all(cell in places for cell in pe2_groups(p)[0])


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
