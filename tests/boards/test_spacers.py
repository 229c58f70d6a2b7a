"""LUTs that do nothing, among those of a design."""

import json

import pytest

from trainwright.parameters import preset
from trainwright_boards import ecp5_tools
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.ecp5_tools import (
    ITERATIONS,
    LESS,
    MARGIN,
    PLACED,
    REACHABLE,
    ROUTER,
    SPREAD,
)
from trainwright_boards.flow import place_and_route
from trainwright_boards.job import NETLIST, Build, Steps
from trainwright_boards.refinement import Refined
from trainwright_boards.spacers import MOST, PER_LUT, SPACER, USERS, add_spacers, remove_spacers


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
    """A chain of LUTs; a net of many users; a register of a pad."""
    cells = {f"lut{n}": _cell("LUT4", {"A": n + 2}, {"Z": n + 3}) for n in range(count)}
    last = count + 3
    cells["wide"] = _cell("TRELLIS_FF", {"DI": 2}, {"Q": last})
    cells |= {f"user{n}": _cell("DP16KD", {"CEA": last}, {}) for n in range(USERS + 1)}
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
    assert add_spacers(module, 1000) == round(PER_LUT * 40)
    cells, added = module["cells"], _added(module)
    assert {n: c for n, c in cells.items() if n not in added} == before["cells"]
    driven = [cell["connections"]["Z"][0] for n, cell in cells.items() if n.startswith("lut")][:-1]
    hung = [cell["connections"]["A"][0] for cell in added.values()]
    assert set(hung) <= set(driven) and len(set(hung)) == len(hung)
    outputs = {cell["connections"]["Z"][0] for cell in added.values()}
    assert len(outputs) == len(added) and min(outputs) > 50  # 40 + 3 + 7: the last bit in use


def test_as_many_as_the_part_has_room_for():
    assert add_spacers(_netlist(40)["modules"]["top"], 80) == round(MOST * 80) - 40
    module = _netlist(40)["modules"]["top"]
    assert add_spacers(module, 50) == 0
    assert not _added(module)


def test_the_same_netlist_gives_the_same_spacers():
    one, other = (_netlist(40)["modules"]["top"] for _ in range(2))
    assert add_spacers(one, 1000) == add_spacers(other, 1000)
    assert one == other


def test_no_net_no_spacer():
    assert add_spacers({"cells": {}, "netnames": {}}, 1000) == 0


def test_what_is_left_is_the_design_with_all_its_inputs():
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


@pytest.mark.parametrize(
    "mhz, iterations, longest",
    [
        (45, ITERATIONS, 20.0),
        (45, ITERATIONS + 1, 20.0),
        (45, ITERATIONS, 25.0),
        (45, ITERATIONS, 10.0),
        (100, ITERATIONS, 9.0),
    ],
)
def test_an_ecp5_is_placed_among_them_and_routed_without(
    tmp_path, monkeypatch, mhz, iterations, longest
):
    ran = []

    def run(steps, name, arguments, *, remedy, step=None, give_up=None):
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
    monkeypatch.setattr(ecp5_tools, "refine", lambda module: Refined(30.0, longest, 1))
    job = Build(BOARDS["ulx3s-85f"], preset("ecp5-85f"), mhz * 1_000_000, tmp_path, seed=7)
    _write(tmp_path / NETLIST, _netlist(40))
    place_and_route(job, Steps(tmp_path, print), ("--threads", "1"))
    (_, _, placing, among), (_, _, routing, still), *again = ran
    assert {name for name, *_ in ran} == {"nextpnr-ecp5"}
    steps = ["place", "route", "route2", "route3"]  # a log each
    assert [step for _, step, *_ in ran] == steps[: 4 if iterations > ITERATIONS else 2]
    assert among and not still
    assert "--tmg-ripup" in routing
    left = {option: value for option, value in routing.items() if option != "--tmg-ripup"}
    if iterations > ITERATIONS:  # for a little less, and then as fast as it comes
        (_, _, second, _), (_, _, last, _) = again
        assert second == routing and set(last) == set(left)
    else:
        assert not again
    settings = json.loads((tmp_path / PLACED).read_text())["modules"]["top"]["settings"]
    reachable = 1e9 / (REACHABLE * longest)
    asked = min(MARGIN * mhz * 1e6, reachable) * (LESS if again else 1)
    assert float(settings["target_freq"]) == pytest.approx(asked)
    assert (reachable < mhz * 1e6) == (longest == 25)
    assert int(settings["timing_driven"], 2) == 1 and ("--no-tmdriv" in placing) == (mhz == 45)
    easy = longest == 10  # 100 MHz by estimate, and 45 asked for
    assert settings.keys() & ROUTER.keys() == (set() if easy else ROUTER.keys())
    assert easy or settings.items() >= ROUTER.items()
    assert placing["--placer"] == "static" and {"--no-route", "--write"} <= set(placing)
    assert {"--no-pack", "--no-place", "--textcfg", "--report"} <= set(routing)
    for options in (placing, routing):  # the second run heeds what the first was asked
        assert options["--seed"] == "7" and options["--freq"] == str(mhz)
        assert options["--router"] == "router2" and options["--threads"] == "1"


@pytest.mark.parametrize("check", [True, False])
def test_without_refinement_cells_stay_and_the_clock_alone_is_asked_for(
    tmp_path, monkeypatch, check
):
    options = []

    def run(steps, name, arguments, *, remedy, step=None, give_up=None):
        options.append(arguments)
        if "--write" in arguments:
            placed = json.loads((steps.folder / SPREAD).read_text())
            placed["modules"]["top"]["settings"] = {}
            _write(steps.folder / PLACED, placed)
        return True

    def refine(module):
        raise AssertionError("refined")

    monkeypatch.setattr(Steps, "run", run)
    monkeypatch.setattr(ecp5_tools, "refine", refine)
    job = Build(BOARDS["ulx3s-85f"], preset("ecp5-85f"), 45_000_000, tmp_path, refine=False)
    _write(tmp_path / NETLIST, _netlist(40))
    steps = Steps(tmp_path, print, check=check)
    place_and_route(job, steps)
    assert "--no-tmdriv" not in options[0], "nothing else looks at the time"
    settings = json.loads((tmp_path / PLACED).read_text())["modules"]["top"]["settings"]
    assert float(settings["target_freq"]) == pytest.approx(MARGIN * 45e6)
    assert settings.items() >= ROUTER.items()
    made = [(one["change"], one["check"]) for one in steps.checks.made]
    how = "proof" if check else "none"
    assert made == [("spacers", how), ("spacers taken out", how)]
