"""LUTs that do nothing, among those of a design."""

import json
from itertools import pairwise

import pytest

from trainwright.parameters import preset
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.ecp5_tools import PLACED, ROUTER
from trainwright_boards.flow import place_and_route
from trainwright_boards.job import NETLIST, Build, Steps
from trainwright_boards.spacers import SPACER, add_spacers, is_crowded, remove_spacers


def _cell(kind: str, inputs: dict[str, int], outputs: dict[str, int], **attributes) -> dict:
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": kind,
        "parameters": {},
        "attributes": attributes,
        "port_directions": directions,
        "connections": {port: [bit] for port, bit in (inputs | outputs).items()},
    }


def _netlist(count: int) -> dict:
    """Make a chain of LUTs, a net of many users and a register of a pad."""
    cells = {f"lut{n}": _cell("LUT4", {"A": n + 2}, {"Z": n + 3}) for n in range(count)}
    last = count + 3
    cells["wide"] = _cell("TRELLIS_FF", {"DI": 2}, {"Q": last})
    cells |= {f"user{n}": _cell("DP16KD", {"CEA": last}, {}) for n in range(4)}
    cells["pad"] = _cell("TRELLIS_FF", {"DI": 2}, {"Q": last + 1}, syn_useioff="1")
    cells["out"] = _cell("TRELLIS_IO", {"I": last + 1}, {})
    nets = {"named": {"bits": [last + 7, "x"]}}
    return {"modules": {"top": {"cells": cells, "ports": {}, "netnames": nets}, "LUT4": {}}}


def _write(path, document) -> None:
    path.write_text(json.dumps(document))


def _cells(path) -> dict:
    return json.loads(path.read_text())["modules"]["top"]["cells"]


def _added(module: dict) -> dict:
    return {name: cell for name, cell in module["cells"].items() if name.startswith(SPACER)}


def test_spacers_hang_on_nets_of_few_users():
    before, module = (_netlist(40)["modules"]["top"] for _ in range(2))
    assert add_spacers(module, 1000) == 24  # 0.6 a LUT
    cells, added = module["cells"], _added(module)
    assert {n: c for n, c in cells.items() if n not in added} == before["cells"]
    driven = [cell["connections"]["Z"][0] for n, cell in cells.items() if n.startswith("lut")][:-1]
    hung = [cell["connections"]["A"][0] for cell in added.values()]
    assert set(hung) <= set(driven) and len(set(hung)) == len(hung)
    steps = [later - earlier for earlier, later in pairwise(sorted(hung))]
    assert set(steps) == {1, 2}, "24 of 39 nets, at even distances"
    outputs = {cell["connections"]["Z"][0] for cell in added.values()}
    assert len(outputs) == len(added) and min(outputs) > 50  # 40 + 3 + 7: the last bit in use


def test_spacers_fill_part_up_to_limit():
    module = _netlist(40)["modules"]["top"]
    assert add_spacers(module, 80) == 14  # 54 of 80 LUTs, 67.5 %, may be taken
    module = _netlist(40)["modules"]["top"]
    assert add_spacers(module, 50) == 0
    assert not _added(module)


def test_part_with_room_for_under_half_of_the_spacers_is_crowded():
    module = _netlist(40)["modules"]["top"]  # 40 LUTs should get 24 spacers, and half are 12
    assert is_crowded(module, 77) and not is_crowded(module, 78)  # 0.675 x 77 = 51.975


@pytest.mark.parametrize("users, spacers", [(1, 1), (3, 1), (4, 0)])
def test_spacers_per_net_follow_count_of_users(users, spacers):
    cells = {"driver": _cell("CCU2C", {}, {"S0": 2})}
    cells |= {f"user{n}": _cell("DP16KD", {"CEA": 2}, {}) for n in range(users)}
    assert add_spacers({"cells": cells, "netnames": {}}, 1000) == spacers


def test_spacers_of_equal_netlists_are_equal():
    first, other = (_netlist(40)["modules"]["top"] for _ in range(2))
    assert add_spacers(first, 1000) == add_spacers(other, 1000)
    assert first == other


def test_no_net_no_spacer():
    assert add_spacers({"cells": {}, "netnames": {}}, 1000) == 0


def test_removing_spacers_restores_design_and_inputs():
    placed = _netlist(4)
    top = placed["modules"]["top"]
    top["cells"]["ram"] = _cell("DP16KD", {}, {}) | {
        "port_directions": {"CEA": "input", "DIA0": "input"},
        "connections": {"CEA": [3], "DIA0": []},
    }
    top["cells"][f"{SPACER}0"] = _cell("TRELLIS_COMB", {"A": 3}, {"F": 90})
    top["netnames"][f"{SPACER}0"] = {"bits": [90]}
    remove_spacers(top)
    assert set(top["netnames"]) == {"named"}
    assert set(top["cells"]) == set(_netlist(4)["modules"]["top"]["cells"]) | {"ram"}
    assert top["cells"]["ram"]["connections"] == {"CEA": [3], "DIA0": ["x"]}


def test_luts_where_wires_crowd_have_one_more():
    module = _netlist(40)["modules"]["top"]
    lut = module["cells"].pop("lut7")
    module["cells"]["soc.accelerator.vector.issue.code.0.0_DIA5_LUT4_Z"] = lut
    assert add_spacers(module, 1000) == 25
    hung = [cell["connections"]["A"] for cell in _added(module).values()]
    assert hung[-1] == lut["connections"]["Z"]


@pytest.mark.parametrize(
    "mhz, iterations, asked, name, placer",
    [
        (45, 80, 46.125, "ecp5-85f", "static"),  # 2.5 % more than the clock
        (45, 81, 45.433125, "ecp5-85f", "static"),  # then 1.5 % less, after 80 iterations
        (100, 80, 102.5, "ecp5-85f", "static"),
        (45, 80, 46.125, "ecp5-85f-alone", "static"),
    ],
)
def test_ecp5_build_places_with_spacers_and_routes_without(
    tmp_path, monkeypatch, mhz, iterations, asked, name, placer
):
    ran = []

    def run(steps, name, arguments, *, remedy, step=None, give_up=None, **_options):
        options = dict(zip(arguments, [*arguments[1:], ""], strict=True))
        netlist = steps.folder / options["--json"]
        ran.append((name, step, options, any(SPACER in cell for cell in _cells(netlist))))
        if "--write" in options:  # nothing but the spacers has a place
            placed = json.loads(netlist.read_text())
            settings = {"target_freq": f"{mhz * 1e6:.6f}", "timing_driven": f"{0:032b}"}
            placed["modules"]["top"]["settings"] = settings
            _write(steps.folder / options["--write"], placed)
        gave_up = give_up is not None and give_up("    iter=1\n" * iterations)
        return not gave_up

    monkeypatch.setattr(Steps, "run", run)
    job = Build(BOARDS["ulx3s-85f"], preset(name), mhz * 1_000_000, tmp_path, seed=7)
    _write(tmp_path / NETLIST, _netlist(40))
    place_and_route(job, Steps(tmp_path, print), ("--threads", "1"))
    (_, _, placing, among), (_, _, routing, still), *again = ran
    assert {name for name, *_ in ran} == {"nextpnr-ecp5"}
    steps = ["place", "route", "route2", "route3"]  # a log each
    assert [step for _, step, *_ in ran] == steps[: 4 if iterations > 80 else 2]
    assert among and not still
    assert "--tmg-ripup" in routing
    left = {option: value for option, value in routing.items() if option != "--tmg-ripup"}
    if iterations > 80:  # for a little less, and then as fast as it comes
        (_, _, second, _), (_, _, last, _) = again
        assert second == routing and set(last) == set(left)
    else:
        assert not again
    settings = json.loads((tmp_path / PLACED).read_text())["modules"]["top"]["settings"]
    assert float(settings["target_freq"]) == pytest.approx(asked * 1e6)
    assert int(settings["timing_driven"], 2) == 1 and "--no-tmdriv" not in placing
    assert settings.items() >= ROUTER.items()
    assert placing["--placer"] == placer and {"--no-route", "--write"} <= set(placing)
    assert {"--no-pack", "--no-place", "--textcfg", "--report"} <= set(routing)
    for options in (placing, routing):  # the second run heeds what the first was asked
        assert options["--seed"] == "7" and options["--freq"] == str(mhz)
        assert options["--router"] == "router2" and options["--threads"] == "1"
