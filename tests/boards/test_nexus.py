"""A CrossLink-NX: what is changed for nextpnr-nexus, and the way back from its bitstream."""

import json
from dataclasses import replace

import pytest

from trainwright.parameters import preset
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.job import NETLIST, TOP, Build, Steps
from trainwright_boards.nexus_tools import FEED_IN, Nexus, open_feed_ins
from trainwright_boards.tools import BuildError

BOARD = BOARDS["crosslink-nx-evn"]


def _carry(**parameters: str) -> dict:
    pins = {"CIN": [2], "A1": [3], "COUT": [4]}
    directions = {"CIN": "input", "A1": "input", "COUT": "output"}
    return {
        "type": "CCU2",
        "parameters": dict(parameters),
        "connections": pins,
        "port_directions": directions,
    }


def test_only_cells_that_ignore_their_carry_input_lose_it():
    sums = {"INIT0": "0x96AA", "INIT1": "0x96AA", "INJECT": "NO"}
    module = {"cells": {"begin": _carry(**FEED_IN), "sum": _carry(**sums)}}
    assert open_feed_ins(module) == 1
    assert "CIN" not in module["cells"]["begin"]["connections"]
    assert module["cells"]["begin"]["connections"]["A1"] == [3]
    assert module["cells"]["sum"] == _carry(**sums)


def test_carry_of_a_cell_that_begins_a_chain_is_its_second_input_alone():
    """Work out CCU2 as Lattice's model has it: a LUT of 1 passes its carry, of 0 its lower half."""
    first, second = (int(FEED_IN[name], 16) for name in ("INIT0", "INIT1"))
    for carry in (0, 1):
        for a1 in (0, 1):
            middle = carry if first >> 15 & 1 else first >> 7 & 1
            index = 0b1110 | a1  # B1, C1 and D1 are 1
            out = middle if second >> index & 1 else second >> (index & 7) & 1
            assert out == a1


@pytest.mark.parametrize("router", ["router1", "router2"])
def test_place_and_route_with_board_router_runs_it(router, tmp_path, monkeypatch):
    ran: list[list[str]] = []
    monkeypatch.setattr(Steps, "run", lambda steps, name, arguments, **_: ran.append(arguments))
    (tmp_path / NETLIST).write_text(json.dumps({"modules": {TOP: {"cells": {}}}}))
    board = replace(BOARD, router=router)
    build = Build(board, preset(board.preset), board.clock_hz, tmp_path)
    Nexus().place_and_route(build, Steps(tmp_path, print), [])
    (arguments,) = ran
    assert arguments[arguments.index("--router") + 1] == router


@pytest.mark.parametrize("damaged", [False, True])
def test_bitstream_that_repacks_to_other_bytes_is_refused(damaged, tmp_path, monkeypatch):
    def run(steps, name, arguments, **_):
        if arguments[0] == "pack":
            (tmp_path / arguments[2]).write_bytes(b"bits" + bytes(damaged))

    monkeypatch.setattr(Steps, "run", run)
    (tmp_path / "top.bit").write_bytes(b"bits")
    (tmp_path / "top.fasm").write_text("# device\nR1C2.A\nR1C2.B\n{ oxide }\nR3C4.C\n")
    steps = Steps(tmp_path, print)
    if damaged:
        with pytest.raises(BuildError, match="unpacks to other bits"):
            Nexus().check_bitstream(steps, BOARD)
    else:
        assert Nexus().check_bitstream(steps, BOARD) == 2
