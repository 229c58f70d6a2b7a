"""The way back from a Gowin part's bitstream."""

import json

import pytest

from trainwright_boards import gowin_unpack
from trainwright_boards.gowin_unpack import check_bitstream, luts, missing, wires
from trainwright_boards.job import Steps
from trainwright_boards.tools import BuildError

TILE = (6, 5)
AND, BUFFER = "1000000000000000", "1111111100000000"
MODULE = {
    "cells": {
        "and": {
            "type": "LUT4",
            "parameters": {"INIT": AND},
            "attributes": {"NEXTPNR_BEL": "X5Y6/LUT2"},
        },
        "through": {
            "type": "LUT4",
            "parameters": {"INIT": "0" * 16 + BUFFER},
            "attributes": {"NEXTPNR_BEL": "X5Y6/LUT7"},
        },
        "inverter": {
            "type": "LUT1",
            "parameters": {"INIT": "01"},
            "attributes": {"NEXTPNR_BEL": "X5Y6/LUT0"},
        },
        "register": {
            "type": "DFF",
            "parameters": {},
            "attributes": {"NEXTPNR_BEL": "X5Y6/DFF2"},
        },
        "nowhere": {"type": "LUT4", "parameters": {"INIT": AND}, "attributes": {}},
    },
    "netnames": {
        "n": {"attributes": {"ROUTING": "X5Y6/A1;X5Y6/A1/F2;1;X5Y6/XD2;X5Y6/XD2/F2;1"}},
        "unrouted": {"attributes": {}},
    },
}
FUNCTIONS = {(TILE, n): {bit: {(n, bit)} for bit in range(16)} for n in range(8)}
CONNECTIONS = {(TILE, "A1", "F2"): {(20, 1), (20, 2)}}
"""The other wire is always connected."""


def bits() -> set[tuple[int, int]]:
    ones = {(20, 1), (20, 2)}
    for number, init in ((2, AND), (7, BUFFER), (0, "01" * 8)):
        ones |= {(number, n) for n, bit in enumerate(reversed(init)) if bit == "0"}
    return ones


def test_luts_and_wires_of_a_routed_design():
    assert list(luts(MODULE)) == [(TILE, 2, AND), (TILE, 7, BUFFER), (TILE, 0, "01" * 8)]
    assert list(wires(MODULE)) == [(TILE, "A1", "F2"), (TILE, "XD2", "F2")]


def test_gowin_bitstream_of_design_has_all_bits():
    assert missing(MODULE, {TILE: bits()}, FUNCTIONS, CONNECTIONS) == ([], 4)


@pytest.mark.parametrize(
    "change, complaint",
    [
        ((20, 2), "wire F2 to A1 in tile (6, 5) is not connected"),
        ((2, 15), "LUT 2 of tile (6, 5) is 0000000000000000 instead of 1000000000000000"),
        ((7, 0), "LUT 7 of tile (6, 5) is 1111111100000001 instead of 1111111100000000"),
    ],
)
def test_gowin_bitstream_with_wrong_bit_is_reported(change, complaint):
    complaints, seen = missing(MODULE, {TILE: bits() ^ {change}}, FUNCTIONS, CONNECTIONS)
    assert complaints == [complaint] and seen == 4


class Tile:
    """Tile as apycula describes one."""

    def __init__(self):
        self.pips = {"A1": {"F2": {(20, 1), (20, 2)}}}
        self.bels = {f"LUT{n}": type("Bel", (), {"flags": FUNCTIONS[TILE, n]}) for n in range(8)}


def test_gowin_bitstream_of_other_design_is_rejected(tmp_path, monkeypatch):
    (tmp_path / "routed.json").write_text(json.dumps({"modules": {"top": MODULE}}))
    monkeypatch.setattr(gowin_unpack, "_device", lambda _: {TILE: Tile()})
    tiles = {TILE: bits(), (1, 1): {(0, 0)}}
    monkeypatch.setattr(gowin_unpack, "_tiles", lambda *_: tiles)
    steps = Steps(tmp_path, lambda _: None)
    assert check_bitstream(steps, "part", "routed.json", "top.fs") == 2
    assert steps.seconds["unpack"] >= 0
    tiles[TILE] = bits() - {(20, 1)}
    with pytest.raises(BuildError, match=r"is not that of routed.json: wire F2 to A1 .*1 of 4"):
        check_bitstream(steps, "part", "routed.json", "top.fs")
    (tmp_path / "routed.json").write_text(
        json.dumps({"modules": {"top": {"cells": {}, "netnames": {}}}})
    )
    with pytest.raises(BuildError, match="no LUT and no wire"):
        check_bitstream(steps, "part", "routed.json", "top.fs")


def test_reading_needs_apycula(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(gowin_unpack, "import_module", absent)
    with pytest.raises(BuildError, match=r"needs apycula: pip install 'trainwright\[boards\]'"):
        gowin_unpack._library("chipdb")
