"""Netlists that are the same machine, and netlists that are nearly so."""

import re
from copy import deepcopy
from random import Random

import pytest

from trainwright_boards.canonical import Machine
from trainwright_boards.checks import Checks
from trainwright_boards.equivalence import difference
from trainwright_boards.floorplan import tie
from trainwright_boards.spacers import PER_LUT, SPACER, add_spacers, remove_spacers
from trainwright_boards.tools import BuildError
from trainwright_hw.build.bram_registers import absorb

PLACE = "NEXTPNR_BEL"
ROW = 100
"""Bits of the design's row."""
CLOCK, RESET, ENABLE, OTHER, ADDRESS = range(2, 7)
INPUTS = {"clk": CLOCK, "rst": RESET, "enable": ENABLE, "other": OTHER, "address": ADDRESS}


def _cell(kind: str, inputs: dict, outputs: dict, **parameters: str) -> dict:
    nets = {pin: [net] for pin, net in (inputs | outputs).items()}
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {"src": "x"},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": nets,
    }


def _lut(output: int, *inputs: int | str, init: str = "1000000000000000") -> dict:
    return _cell("LUT4", dict(zip("ABCD", inputs, strict=False)), {"Z": output}, INIT=init)


def _register(output: int, data: int, **more: int | str) -> dict:
    pins = {"CLK": CLOCK, "DI": data, "LSR": "0"} | more
    enable = "CE" if "CE" in more else "1 "
    return _cell("TRELLIS_FF", pins, {"Q": output}, CEMUX=enable, GSR="DISABLED", REGSET="RESET")


def _module(cells: dict, outputs: list[int]) -> dict:
    ports = {name: {"direction": "input", "bits": [net]} for name, net in INPUTS.items()}
    ports["out"] = {"direction": "output", "bits": outputs}
    nets = {name: {"bits": bits["bits"], "attributes": {}} for name, bits in ports.items()}
    return {"cells": cells, "ports": ports, "netnames": nets, "settings": {}}


def design() -> dict:
    """Make a block RAM with two registers behind it, LUTs, and a register that a row listens to."""
    ram = {"CLKA": CLOCK, "CLKB": CLOCK, "OCEA": "1", "OCEB": "1", "RSTA": "0", "RSTB": "0"}
    ram |= {"ADB0": ADDRESS, "CEB": ENABLE}
    cells = {
        "soc.ram": _cell(
            "DP16KD", ram, {"DOB0": 10, "DOB1": 11}, DATA_WIDTH_B=f"{9:032b}",
            REGMODE_A="NOREG", REGMODE_B="NOREG", CLKAMUX="CLKA", CLKBMUX="CLKB", GSR="DISABLED",
        ),
        "soc.first": _register(12, 10),
        "soc.second": _register(13, 11),
        "soc.lut": _lut(14, 12, 13, RESET),
        "soc.choose": _register(15, 14, CE=ENABLE, LSR=RESET),
        "soc.state": _register(16, 17, LSR=RESET),
        "soc.next": _lut(17, 16, 15, init="0110011001100110"),
    }  # fmt: skip
    for n in range(ROW):
        cells[f"soc.row.mux{n}"] = _lut(1000 + n, 15, 16, 2000 + n)
        cells[f"soc.row.bit{n}"] = _register(2000 + n, 1000 + n, CE=OTHER)
    return _module(cells, [12, 16, *range(2000, 2000 + ROW)])


def placed() -> dict:
    """Make registers and LUTs as nextpnr writes them, far from home, and spacers."""
    module = design()
    cells = module["cells"]
    del cells["soc.ram"], cells["soc.second"]
    cells["soc.lut"]["connections"]["B"] = [OTHER]
    cells["soc.first"]["connections"]["DI"] = [ADDRESS]
    for number, (name, cell) in enumerate(cells.items()):
        if cell["type"] == "LUT4":
            cell["type"] = "TRELLIS_COMB"
            cell["connections"]["F"] = cell["connections"].pop("Z")
            cell["port_directions"]["F"] = cell["port_directions"].pop("Z")
            site = "K"
        else:
            cell["connections"]["M"] = cell["connections"].pop("DI")
            cell["port_directions"]["M"] = cell["port_directions"].pop("DI")
            site = "FF"
        shift = 60 if name == "soc.choose" else 0
        cell["attributes"][PLACE] = f"X{2 + shift + number % 20}/Y{2 + number // 20}/SLICEA.{site}0"
    cells[f"{SPACER}0"] = _cell("TRELLIS_COMB", {"A": 16}, {"F": 5000}, INITVAL="0" * 16)
    cells["soc.lut"]["port_directions"]["D"] = "input"
    cells["soc.lut"]["connections"]["D"] = []
    return module


def _moved_registers(module: dict) -> None:
    assert absorb(module) == 2


def _copies(module: dict) -> None:
    """Copy the two registers that the whole row listens to, once for each third of the row."""
    cells = module["cells"]
    tie(module, {"soc.ram": "X0/Y0/EBR0"})
    for first, (name, pin) in ((9000, ("soc.choose", "A")), (9100, ("soc.state", "B"))):
        for third in range(3):
            copy = deepcopy(cells[name])
            copy["connections"]["Q"] = [first + third]
            cells[f"soc.row.{name}.{third}"] = copy
            for n in range(third * ROW // 3, (third + 1) * ROW // 3):
                cells[f"soc.row.mux{n}"]["connections"][pin] = [first + third]


def _spacers(module: dict) -> None:
    assert add_spacers(module, 10_000) == round(PER_LUT * (ROW + 2))


def _moved_cells(module: dict) -> None:
    remove_spacers(module)
    module["cells"]["soc.choose"]["attributes"][PLACE] = "X9/Y9/SLICEA.FF0"


CHANGES = {
    "registers moved into block RAM": (design, _moved_registers),
    "copies of registers": (design, _copies),
    "spacers": (design, _spacers),
    "cells moved": (placed, _moved_cells),
}


def _flip(text: str, place: int) -> str:
    return text[:place] + "10"[int(text[place])] + text[place + 1 :]


def _rewired(cells: dict) -> None:
    cells["soc.next"]["connections"]["B"] = [OTHER]


def _another_function(cells: dict) -> None:
    parameters = cells["soc.row.mux7"]["parameters"]
    parameters["INIT"] = _flip(parameters["INIT"], 5)


def _another_beginning(cells: dict) -> None:
    cells["soc.state"]["parameters"]["REGSET"] = "SET"


def _another_enable(cells: dict) -> None:
    cells["soc.row.bit9"]["connections"]["CE"] = [ENABLE]


def _another_reset(cells: dict) -> None:
    cells["soc.state"]["connections"]["LSR"] = [OTHER]


def _dropped(cells: dict) -> None:
    del cells["soc.row.mux3"]


def _swapped(cells: dict) -> None:
    pins = cells["soc.lut"]["connections"]
    pins["A"], pins["C"] = pins["C"], pins["A"]


CORRUPTIONS = [
    (_rewired, r"soc\.next\.B: soc\.choose\.Q before, other\[0\] after"),
    (_another_function, r"soc\.row\.mux7: INIT 1000000000000000 before, 1000010000000000 after"),
    (_another_beginning, r"soc\.state\S*: REGSET RESET before, SET after"),
    (_another_enable, r"soc\.row\.bit9\.CE: other\[0\] before, enable\[0\] after"),
    (_another_reset, r"soc\.state\S*\.LSR: rst\[0\] before, other\[0\] after"),
    (_dropped, r"soc\.row\.bit3\S*: soc\.row\.mux3\.[ZF] before, nothing after"),
    (_swapped, r"soc\.lut\.[AC]: "),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_leaves_the_same_machine(change):
    make, apply = CHANGES[change]
    module = make()
    before, checks = deepcopy(module), Checks(lambda _: None)
    checks.begin(module)
    apply(module)
    assert module != before
    checks.held(change, module)
    (record,) = checks.records
    assert (record["change"], record["check"]) == (change, "proof")
    assert record["cells"] == len(module["cells"]) and record["seconds"] > 0
    checks.held("nothing", module)


@pytest.mark.parametrize("corrupt, told", CORRUPTIONS, ids=[c.__name__ for c, _ in CORRUPTIONS])
@pytest.mark.parametrize("change", CHANGES)
def test_checks_reject_change_with_corrupted_cells(change, corrupt, told):
    make, apply = CHANGES[change]
    module, checks = make(), Checks(lambda _: None)
    checks.begin(module)
    apply(module)
    corrupt(module["cells"])
    with pytest.raises(BuildError, match=rf"^{change}: not the same machine: {told}"):
        checks.held(change, module)
    assert checks.records == []


def _copy_of(cells: dict, unit: str, name: str) -> dict:
    return next(cell for key, cell in cells.items() if key.startswith(f"{unit}.{name}."))


@pytest.mark.parametrize(
    "pin, told",
    [
        ("CE", r"soc\.row\.soc\.choose\.\d\.CE: enable\[0\] before, other\[0\] after"),
        ("LSR", r"soc\.row\.soc\.choose\.\d\.LSR: rst\[0\] before, other\[0\] after"),
        ("DI", r"soc\.row\.soc\.choose\.\d\.DI: soc\.lut\.Z before, other\[0\] after"),
        ("REGSET", r"soc\.row\.soc\.choose\.\d: REGSET RESET before, SET after"),
    ],
)
def test_difference_finds_altered_register_copy(pin, told):
    before = design()
    after = deepcopy(before)
    _copies(after)
    copy = _copy_of(after["cells"], "soc.row", "soc.choose")
    if pin == "REGSET":
        copy["parameters"][pin] = "SET"
    else:
        copy["connections"][pin] = [OTHER]
    text = difference(Machine(before), Machine(after))
    assert text is not None and re.match(told, text)


def _set(module: dict, what: dict) -> Machine:
    ram = module["cells"]["soc.ram"]
    for key, value in what.items():
        ram["connections" if isinstance(value, list) else "parameters"][key] = value
    return Machine(module)


@pytest.mark.parametrize(
    "what",
    [
        {"OCEB": [ENABLE]},
        {"RSTB": [RESET]},
        {"RSTA": [RESET]},
        {"CLKB": [OTHER]},
        {"CLKBMUX": "INV"},
        {"GSR": "ENABLED"},
        {"DATA_WIDTH_B": f"{36:032b}"},
    ],
    ids=lambda what: next(iter(what)),
)
def test_block_ram_register_rejects_enabled_reset_or_foreign_clock(what):
    """Reject a wide word, too, unless both ports have a register."""
    after = design()
    _moved_registers(after)
    assert difference(_set(design(), {}), _set(deepcopy(after), {})) is None
    assert difference(_set(design(), what), _set(after, what)) is not None


@pytest.mark.parametrize("what", [{"ADB0": [OTHER]}, {"REGMODE_B": "NOREG"}])
def test_difference_finds_lost_register_or_changed_block_ram(what):
    after = design()
    _moved_registers(after)
    assert difference(Machine(design()), _set(after, what)) is not None


def test_both_halves_of_a_wide_word_have_a_register():
    wide = {"DATA_WIDTH_B": f"{36:032b}"}
    before, after = design(), design()
    for module in (before, after):
        _set(module, wide)
        pins = module["cells"]["soc.ram"]
        pins["connections"]["DOA0"] = pins["connections"].pop("DOB1")
        pins["port_directions"]["DOA0"] = "output"
    _moved_registers(after)
    assert difference(Machine(before), Machine(after)) is None


@pytest.mark.parametrize(
    "pins, settings",
    [({"CE": ENABLE}, {}), ({"LSR": RESET}, {}), ({"CLK": OTHER}, {}), ({}, {"REGSET": "SET"})],
)
def test_another_register_is_no_block_ram_s_own(pins, settings):
    """Whatever moves registers: one with an enable, a reset, another clock, or that begins as 1."""
    before, after = design(), design()
    before["cells"]["soc.first"] = _register(12, 10, **pins)
    before["cells"]["soc.first"]["parameters"] |= settings
    _moved_registers(after)
    assert difference(Machine(before), Machine(after)) is not None


def test_ports_are_compared():
    before, after = design(), design()
    after["ports"]["out"]["bits"].pop()
    text = difference(Machine(before), Machine(after))
    assert text == f"port out: output, {ROW + 2} bits before, output, {ROW + 1} bits after"
    del after["ports"]["out"]
    assert "absent" in (difference(Machine(before), Machine(after)) or "")


def test_cells_that_drive_no_net_count():
    """A pad, and a cell that acts on the whole device."""
    module = design()
    module["cells"]["reset"] = _cell("GSR", {"GSR": 16}, {})
    module["ports"]["pin"] = {"direction": "output", "bits": [900]}
    module["cells"]["pad"] = _cell("TRELLIS_IO", {"I": 16, "B": 900}, {}, DIR="OUTPUT")
    module["cells"]["pad"]["port_directions"]["B"] = "inout"
    assert difference(Machine(module), Machine(deepcopy(module))) is None
    for name, pin in (("reset", "GSR"), ("pad", "I")):
        after = deepcopy(module)
        after["cells"][name]["connections"][pin] = [15]
        text = f"{name}.{pin}: soc.state.Q before, soc.choose.Q after"
        assert difference(Machine(module), Machine(after)) == text
        del after["cells"][name]
        assert difference(Machine(module), Machine(after)) == f"{name} is only there before"


def test_checks_reject_net_with_two_drivers():
    module = design()
    checks = Checks(lambda _: None)
    checks.begin(module)
    module["cells"]["more"] = _lut(14, 12)
    with pytest.raises(BuildError, match=r"spacers: soc\.lut\.Z and more\.Z drive one net"):
        checks.held("spacers", module)


def test_without_checks_the_report_says_so():
    module = design()
    checks = Checks(lambda _: None, enabled=False)
    checks.begin(module)
    _rewired(module["cells"])
    checks.held("spacers", module)
    assert checks.records == [{"change": "spacers", "check": "none", "cells": len(module["cells"])}]


# --- random netlists, simulated -------------------------------------------------------------------


def _random(random: Random) -> dict:
    """Make LUTs of inputs and registers, and registers of LUTs."""
    registers = range(100, 112)
    luts = {200 + n: random.sample([*registers, OTHER, ADDRESS], 3) for n in range(14)}
    cells = {
        f"l{z}": _lut(z, *inputs, init=f"{random.getrandbits(16):016b}")
        for z, inputs in luts.items()
    }
    for q in registers:
        more = {"CE": random.choice([ENABLE, OTHER])} if random.random() < 0.5 else {}
        cells[f"r{q}"] = _register(q, random.choice([*luts]), **more)
        cells[f"r{q}"]["parameters"]["REGSET"] = random.choice(["SET", "RESET"])
    return _module(cells, random.sample([*registers], 3))


def _simulated(module: dict, seed: int, cycles: int = 40) -> list[list[int]]:
    """Return the outputs in each cycle, for random inputs."""
    random = Random(seed)
    cells = module["cells"].values()
    luts = [c for c in cells if c["type"] == "LUT4"]
    registers = [c for c in cells if c["type"] == "TRELLIS_FF"]
    state = {c["connections"]["Q"][0]: c["parameters"]["REGSET"] == "SET" for c in registers}
    outputs = []
    for _ in range(cycles):
        nets = {net: random.randrange(2) for net in INPUTS.values()} | {"0": 0} | state
        for cell in luts:
            pins = (cell["connections"].get(pin, ["0"])[0] for pin in "ABCD")
            index = sum(nets.get(net, 0) << n for n, net in enumerate(pins))
            nets[cell["connections"]["Z"][0]] = int(cell["parameters"]["INIT"][15 - index])
        outputs.append([int(nets[net]) for net in module["ports"]["out"]["bits"]])
        for cell in registers:
            pins = cell["connections"]
            if "CE" not in pins or nets[pins["CE"][0]]:
                state[pins["Q"][0]] = nets.get(pins["DI"][0], 0)
    return outputs


def _spoilt(module: dict, random: Random) -> dict:
    module = deepcopy(module)
    cell = module["cells"][random.choice([*module["cells"]])]
    if random.random() < 0.5:
        pin = random.choice([pin for pin in cell["connections"] if pin in "ABCD" or pin == "DI"])
        cell["connections"][pin] = [random.randrange(100, 112)]
    elif cell["type"] == "LUT4":
        cell["parameters"]["INIT"] = _flip(cell["parameters"]["INIT"], random.randrange(16))
    else:
        other = {"SET": "RESET", "RESET": "SET"}
        cell["parameters"]["REGSET"] = other[cell["parameters"]["REGSET"]]
    return module


def _disguised(module: dict, random: Random) -> dict:
    """Return an equal machine with other cells, names, nets, copies and unused cells."""
    module = deepcopy(module)
    cells = module["cells"]
    for name in random.sample([n for n in cells if n.startswith("r")], 4):
        copy, net = deepcopy(cells[name]), 900 + int(name[1:])
        for user in cells.values():
            for pin, bits in user["connections"].items():
                if bits == cells[name]["connections"]["Q"] and pin != "Q" and random.random() < 0.5:
                    user["connections"][pin] = [net]
        copy["connections"]["Q"] = [net]
        cells[f"copy {name}"] = copy
    cells["for nothing"] = _lut(990, 100)
    order = random.sample([*cells], len(cells))
    module["cells"] = {f"it {n}": cells[name] for n, name in enumerate(order)}
    fixed = set(INPUTS.values())
    for cell in module["cells"].values():
        for pin, (bit,) in cell["connections"].items():
            if bit not in fixed and bit != "0":
                cell["connections"][pin] = [bit + 5000]
    module["ports"]["out"]["bits"] = [bit + 5000 for bit in module["ports"]["out"]["bits"]]
    return module


@pytest.mark.parametrize("seed", range(60))
def test_difference_finds_every_change_that_simulation_shows(seed):
    random = Random(seed)
    module = _random(random)
    disguised = _disguised(module, random)
    assert difference(Machine(module), Machine(disguised)) is None
    for _ in range(5):
        spoilt = _spoilt(disguised if random.random() < 0.5 else module, random)
        if _simulated(spoilt, seed) != _simulated(module, seed):
            assert difference(Machine(module), Machine(spoilt)) is not None
