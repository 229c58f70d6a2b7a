"""Registers that move into block RAM."""

from copy import deepcopy

import pytest

from trainwright_hw.build.bram_registers import absorb

CLOCK = 2


def _cell(kind: str, parameters: dict, inputs: dict, outputs: dict) -> dict:
    return {
        "type": kind,
        "parameters": parameters,
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": inputs | outputs,
    }


def _register(data: int, output: int, **inputs: list) -> dict:
    parameters = {"CEMUX": "1 ", "CLKMUX": "CLK", "LSRMUX": "LSR", "REGSET": "RESET"}
    inputs = {"CLK": [CLOCK], "DI": [data], "LSR": ["0"]} | inputs
    return _cell("TRELLIS_FF", parameters, inputs, {"Q": [output]})


def _module(width: int = 9, side: str = "B", **more: dict) -> dict:
    """Make a block RAM of nets 10 and 11, registers of nets 20 and 21 behind it, and a LUT."""
    inputs = {"CLKA": [CLOCK], "CLKB": [CLOCK], "OCEA": ["1"], "OCEB": ["1"]}
    cells = {
        "ram": _cell(
            "DP16KD",
            {"DATA_WIDTH_B": f"{width:032b}", "REGMODE_A": "NOREG", "REGMODE_B": "NOREG"},
            inputs,
            {f"DO{side}0": [10], f"DO{side}1": [11], f"DO{side}2": [12]},
        ),
        "a": _register(10, 20),
        "b": _register(11, 21),
        "lut": _cell("LUT4", {}, {"A": [20], "B": [21]}, {"Z": [30]}),
    }
    return {"cells": cells | more, "ports": {"out": {"direction": "output", "bits": [30]}}}


@pytest.mark.parametrize("side", ["A", "B"])
def test_registers_behind_a_port_are_its_own(side):
    module = _module(side=side)
    assert absorb(module) == 2
    ram = module["cells"]["ram"]
    assert sorted(module["cells"]) == ["lut", "ram"]
    assert [ram["connections"][f"DO{side}{n}"] for n in range(3)] == [[20], [21], [12]]
    other = "A" if side == "B" else "B"
    assert ram["parameters"][f"REGMODE_{side}"] == "OUTREG"
    assert ram["parameters"][f"REGMODE_{other}"] == "NOREG"


def test_absorb_leaves_registers_of_excluded_block_ram():
    module = _module()
    assert absorb(module, but="ra") == 0 and module == _module()
    assert absorb(module, but="rom") == 2


def test_absorb_of_widest_word_sets_registers_of_both_ports():
    module = _module(36, "A")
    module["cells"]["ram"]["connections"] |= {"CLKA": [3], "OCEA": ["0"]}
    assert absorb(module) == 2
    parameters = module["cells"]["ram"]["parameters"]
    assert parameters["REGMODE_A"] == parameters["REGMODE_B"] == "OUTREG"


@pytest.mark.parametrize(
    "what",
    [
        {"a": _register(10, 20, CE=[5]) | {"parameters": {"CEMUX": "CE", "CLKMUX": "CLK"}}},
        {"a": _register(10, 20, LSR=[5])},
        {"a": _register(10, 20, CLK=[3])},
        {"a": _register(10, 20) | {"parameters": {"CLKMUX": "INV"}}},
        {"a": _register(10, 20) | {"parameters": {"REGSET": "SET"}}},
        {"a": _register(10, 20, DI=[4], LSR=[10])},
        {"a": _register(10, 20), "c": _register(10, 22)},
        {"a": _cell("LUT4", {}, {"A": [10]}, {"Z": [20]})},
    ],
    ids=["enable", "reset", "clock", "edge", "set", "not data", "two", "no register"],
)
def test_absorb_leaves_irregular_register_outside(what):
    module = _module(**what)
    before = deepcopy(module)
    assert absorb(module) == 0
    assert module == before


@pytest.mark.parametrize("pin", ["RSTA", "RSTB"])
def test_absorb_leaves_register_of_resettable_block_ram(pin):
    module = _module()
    module["cells"]["ram"]["port_directions"][pin] = "input"
    module["cells"]["ram"]["connections"][pin] = ["0"]
    assert absorb(deepcopy(module)) == 2
    module["cells"]["ram"]["connections"][pin] = [5]
    assert absorb(module) == 0


def test_absorb_leaves_exported_port_and_disabled_register():
    module = _module()
    module["ports"]["out"]["bits"] = [10]
    assert absorb(module) == 0
    module = _module()
    module["cells"]["ram"]["connections"]["OCEB"] = ["0"]
    assert absorb(module) == 0
