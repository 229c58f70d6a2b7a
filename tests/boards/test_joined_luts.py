"""LUTs joined by the multiplexers of their slices, and the proof that their functions stay."""

import json
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright_boards import flow
from trainwright_boards.canonical import Machine
from trainwright_boards.catalogue import BOARDS
from trainwright_boards.functions import difference
from trainwright_boards.job import NETLIST, TOP, Build, Steps
from trainwright_boards.joined_luts import join_luts
from trainwright_boards.tools import BuildError

CHOICE = "1100110010101010"
"""A LUT that gives its second input where the fourth one is 1, else its first."""
XOR = "0110100110010110"
PART_PINS = {"PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1")}


def _cell(kind: str, pins: dict, output: int, **parameters: str) -> dict:
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": dict.fromkeys(pins, "input") | {"Z": "output"},
        "connections": {pin: [net] for pin, net in pins.items()} | {"Z": [output]},
    }


def _lut(output: int, *inputs: int | str, init: str = CHOICE) -> dict:
    pins = dict(zip("ABCD", (*inputs, *["0"] * (4 - len(inputs))), strict=True))
    return _cell("LUT4", pins, output, INIT=init)


def _init(function: Callable) -> str:
    """Return the table of a function of four inputs."""
    rows = [function(*(row >> n & 1 for n in range(4))) for row in range(16)]
    return "".join("01"[bool(value)] for value in reversed(rows))


def _choice(output: int, low: int, high: int, select: int) -> dict:
    return _lut(output, low, high, "0", select)


def _module(inputs: range, cells: list[dict], outputs: list[int]) -> dict:
    ports = {
        "in": {"direction": "input", "bits": list(inputs)},
        "out": {"direction": "output", "bits": outputs},
    }
    nets = {
        f"net{cell['connections']['Z'][0]}": {"bits": cell["connections"]["Z"]} for cell in cells
    }
    nets["all"] = {"bits": [bit for net in nets.values() for bit in net["bits"]]}
    named = {f"cell{n}": cell for n, cell in enumerate(cells)}
    return {"cells": named, "ports": ports, "netnames": nets}


def _one_in_eight() -> dict:
    """Choose among nets 2 to 9 by nets 10 to 12, the first one fastest, in seven LUTs."""
    first = [_choice(20 + n, 2 + 2 * n, 3 + 2 * n, 10) for n in range(4)]
    second = [_choice(30 + n, 20 + 2 * n, 21 + 2 * n, 11) for n in range(2)]
    return _module(range(2, 13), [*first, *second, _choice(40, 30, 31, 12)], [40])


def _kinds(module: dict) -> dict[str, int]:
    return dict(Counter(cell["type"] for cell in module["cells"].values()))


def _join(module: dict) -> tuple[dict, int]:
    """Join a copy, whose functions must be the module's."""
    joined = deepcopy(module)
    saved = join_luts(joined)
    assert _kinds(module)["LUT4"] - _kinds(joined)["LUT4"] == saved
    assert difference(Machine(module), Machine(joined)) is None
    _check_slices(joined)
    return joined, saved


def _check_slices(module: dict) -> None:
    """Check that multiplexers alone read the cells of their own slices."""
    cells = module["cells"].values()
    driver = {cell["connections"]["Z"][0]: cell for cell in cells}
    reads = Counter(
        bits[0] for cell in cells for pin, bits in cell["connections"].items() if pin != "Z"
    )
    for cell in cells:
        for pin in PART_PINS.get(cell["type"], ()):
            (net,) = cell["connections"][pin]
            assert driver[net]["type"] == ("LUT4" if cell["type"] == "PFUMX" else "PFUMX")
            assert reads[net] == 1 and net not in module["ports"]["out"]["bits"]


def test_choice_of_one_in_four_becomes_two_luts_and_their_multiplexer():
    first = [_choice(20, 2, 3, 6), _choice(21, 4, 5, 6)]
    joined, saved = _join(_module(range(2, 8), [*first, _choice(30, 20, 21, 7)], [30]))
    assert saved == 1 and _kinds(joined) == {"LUT4": 2, "PFUMX": 1}
    assert joined["cells"]["cell2"]["type"] == "PFUMX", "the name of the output's cell stays"
    assert join_luts(joined) == 0


def test_choice_of_one_in_eight_becomes_four_luts_and_their_multiplexers():
    joined, saved = _join(_one_in_eight())
    assert saved == 3 and _kinds(joined) == {"LUT4": 4, "PFUMX": 2, "L6MUX21": 1}


def test_multiplexer_of_yosys_takes_in_the_lut_at_its_select_input():
    """The choice of the first two words is the select input: yosys maps one in four so."""
    first = _lut(20, 2, 3, 6, 7, init=_init(lambda a, b, c, d: not d and (b if c else a)))
    high = _lut(21, 4, 5, 6, 7, init=_init(lambda a, b, c, d: not d or (b if c else a)))
    low = _lut(22, 4, 5, 6, 7, init=_init(lambda a, b, c, d: d and (b if c else a)))
    pair = _cell("PFUMX", {"ALUT": 21, "BLUT": 22, "C0": 20}, 30)
    joined, saved = _join(_module(range(2, 8), [first, high, low, pair], [30]))
    assert saved == 1 and _kinds(joined) == {"LUT4": 2, "PFUMX": 1}
    assert joined["cells"]["cell3"]["connections"]["C0"] in ([6], [7])


def test_lut_read_by_others_stays_apart():
    module = _module(
        range(2, 8),
        [_choice(20, 2, 3, 6), _choice(21, 4, 5, 6), _choice(30, 20, 21, 7)],
        [30, 21],
    )
    joined, saved = _join(module)
    assert saved == 0 and joined == module


def test_function_that_takes_as_many_luts_joined_stays():
    """Two choices of two functions of three inputs: four LUTs, in slices or not."""
    first = [_lut(20, 2, 3, 4, init=XOR), _lut(21, 5, 6, 7, init=XOR)]
    module = _module(range(2, 11), [*first, _choice(22, 20, 21, 8), _choice(30, 22, 9, 10)], [30])
    joined, saved = _join(module)
    assert saved == 1 and _kinds(joined) == {"LUT4": 3, "PFUMX": 1}, "all but the second choice"


@pytest.mark.parametrize("selects", [(40, 6), (6, 40)])
def test_latest_input_becomes_select_input(selects):
    """Net 40 comes through three LUTs, the other inputs at once."""
    chain = [_lut(38, 7, 2, 3, 4, init=XOR), _lut(39, 38, 3, 4, 5, init=XOR)]
    chain.append(_lut(40, 39, 4, 5, 6, init=XOR))
    first, second = selects
    choice = [_choice(50, 2, 3, first), _choice(51, 4, 5, first), _choice(60, 50, 51, second)]
    joined, saved = _join(_module(range(2, 8), [*chain, *choice], [60, 38, 39, 40]))
    assert saved == 1
    (pair,) = (cell for cell in joined["cells"].values() if cell["type"] == "PFUMX")
    assert pair["connections"]["C0"] == [40]


def test_names_of_nets_lose_those_that_are_gone():
    joined, _ = _join(_one_in_eight())
    nets = joined["netnames"]
    assert "net20" not in nets and "net30" not in nets and nets["net40"]["bits"] == [40]
    assert nets["all"]["bits"] == ["x"] * 6 + [40]
    driven = {cell["connections"]["Z"][0] for cell in joined["cells"].values()}
    assert {bit for net in nets.values() for bit in net["bits"]} - {"x"} == driven


@pytest.mark.parametrize("seed", range(30))
def test_random_luts_keep_their_functions(seed):
    random = Random(seed)
    cells, nets = [], list(range(2, 12))
    for n in range(40):
        inputs = [random.choice(nets[-12:] if random.random() < 0.7 else nets) for _ in range(4)]
        given = [random.choice("01") if random.random() < 0.1 else net for net in inputs]
        init = random.choice([CHOICE, XOR, "1000000000000000", f"{random.getrandbits(16):016b}"])
        cells.append(_lut(100 + n, *given, init=init))
        nets.append(100 + n)
    read = {bits[0] for cell in cells for pin, bits in cell["connections"].items() if pin != "Z"}
    module = _module(range(2, 12), cells, [139, *(net for net in nets[10:-1] if net not in read)])
    joined, _ = _join(module)
    assert _join(module)[0] == joined, "the same netlist gives the same cells"


def _one_in_four() -> dict:
    """Choose among nets 2 to 5 by nets 6 and 7, in three LUTs of which two suffice."""
    first = [_choice(20, 2, 3, 6), _choice(21, 4, 5, 6)]
    return _module(range(2, 8), [*first, _choice(30, 20, 21, 7)], [30])


def _yosys_pair(*more: dict, outputs: tuple[int, ...] = (30,), **pins: int | str) -> dict:
    """Return the multiplexer of two LUTs to which yosys maps one in four, with other pins."""
    cells = [
        _lut(20, 2, 3, 6, 7, init=_init(lambda a, b, c, d: not d and (b if c else a))),
        _lut(21, 4, 5, 6, 7, init=_init(lambda a, b, c, d: not d or (b if c else a))),
        _lut(22, 4, 5, 6, 7, init=_init(lambda a, b, c, d: d and (b if c else a))),
        _cell("PFUMX", {"ALUT": 21, "BLUT": 22, "C0": 20} | pins, 30),
    ]
    return _module(range(2, 8), [*cells, *more], list(outputs))


@pytest.mark.parametrize(
    "module",
    [
        _yosys_pair(_lut(31, 21, 2, init=XOR), outputs=(30, 31)),
        _yosys_pair(_cell("TRELLIS_FF", {"CLK": 2, "DI": 21}, 50)),
        _yosys_pair(_cell("PFUMX", {"ALUT": 21, "BLUT": 22, "C0": 3}, 31), outputs=(30, 31)),
        _yosys_pair(outputs=(30, 21)),
    ],
    ids=["lut", "register", "multiplexer", "port"],
)
def test_lut_of_a_multiplexer_read_elsewhere_stays(module):
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


def test_multiplexer_that_is_selected_by_its_own_lut_stays():
    """The select input is no leaf: joining would remove the LUT that drives it."""
    first = [_lut(20, 2, 3, init=XOR), _lut(21, 2, 4, init=XOR)]
    module = _module(
        range(2, 5), [*first, _cell("PFUMX", {"ALUT": 20, "BLUT": 21, "C0": 20}, 30)], [30]
    )
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


def test_luts_in_front_of_a_multiplexer_that_stays_become_no_multiplexer():
    """A multiplexer cannot read another one's output at a pin of its own slice."""
    module = _one_in_four()
    module["cells"]["last"] = _cell("PFUMX", {"ALUT": 30, "BLUT": "0", "C0": 2}, 40)
    module["ports"]["out"]["bits"] = [40]
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


@pytest.mark.parametrize("net", ["0", "x", 2, 50])
def test_multiplexer_of_other_nets_than_luts_stays(net):
    module = _yosys_pair(_cell("TRELLIS_FF", {"CLK": 2, "DI": 3}, 50), BLUT=net)
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


@pytest.mark.parametrize("reader", [0, 1])
def test_luts_that_read_their_own_output_stay(reader):
    """A latch, or a ring oscillator."""
    module = _one_in_four()
    module["cells"][f"cell{reader}"]["connections"]["A"] = [30]
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


@pytest.mark.parametrize("holder", [("cells", "cell0"), ("netnames", "net20")])
def test_lut_or_net_to_keep_stays(holder):
    module, (kind, name) = _one_in_four(), holder
    module[kind][name]["attributes"] = {"keep": "00000000000000000000000000000000"}
    assert join_luts(deepcopy(module)) == 1
    module[kind][name]["attributes"] = {"keep": "00000000000000000000000000000001"}
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


@pytest.mark.parametrize("init", [None, "x" * 16, "0x1234", "1"])
def test_lut_without_a_table_stays(init):
    module = _one_in_four()
    module["cells"]["cell0"]["parameters"] = {} if init is None else {"INIT": init}
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


@pytest.mark.parametrize("bits", [[], ["x"], ["z"], [99], None])
def test_lut_with_a_floating_input_stays(bits):
    """Net 99 has no driver."""
    module = _one_in_four()
    cell = module["cells"]["cell0"]
    if bits is None:
        del cell["connections"]["C"], cell["port_directions"]["C"]
    else:
        cell["connections"]["C"] = bits
    before, saved = deepcopy(module), join_luts(module)
    assert saved == 0 and module == before


def test_lut_without_an_output_stays():
    module = _one_in_four()
    module["cells"]["unread"] = _lut(99, 2, 3, init=XOR)
    module["cells"]["unread"]["connections"]["Z"] = []
    assert join_luts(module) == 1 and "unread" in module["cells"]


def _flip(module: dict) -> None:
    cell = next(c for c in module["cells"].values() if c["type"] == "LUT4")
    cell["parameters"]["INIT"] = "".join("10"[bit == "1"] for bit in cell["parameters"]["INIT"])


def _exchange(module: dict) -> None:
    pins = next(c for c in module["cells"].values() if c["type"] == "PFUMX")["connections"]
    pins["ALUT"], pins["BLUT"] = pins["BLUT"], pins["ALUT"]


def _turn(module: dict) -> None:
    pins = module["cells"]["cell6"]["connections"]
    pins["D0"], pins["D1"] = pins["D1"], pins["D0"]


def _select(module: dict) -> None:
    module["cells"]["cell6"]["connections"]["SD"] = [10]


@pytest.mark.parametrize("fault", [_flip, _exchange, _turn, _select])
def test_proof_finds_a_wrong_function(fault):
    module = _one_in_eight()
    joined, _ = _join(module)
    fault(joined)
    told = difference(Machine(module), Machine(joined))
    assert told == "cell6.Z before, cell6.Z after: other functions"


def test_proof_finds_other_cells_on_other_nets():
    module = _one_in_eight()
    register = _cell("TRELLIS_FF", {"CLK": 2, "DI": 40}, 50)
    module["cells"]["register"] = register
    joined, _ = _join(module)
    joined["cells"]["register"] = deepcopy(register)
    joined["cells"]["register"]["connections"]["DI"] = [10]
    told = difference(Machine(module), Machine(joined))
    assert told == "register is another cell, or has other nets"
    del joined["cells"]["register"]
    assert difference(Machine(module), Machine(joined)) == told
    assert difference(Machine(joined), Machine(module)) == told
    joined["cells"]["register"] = register
    del joined["cells"]["cell6"]
    module["cells"]["register"]["connections"]["DI"] = [10]
    assert difference(Machine(module), Machine(joined)) == "port out is not driven after"
    joined["ports"]["out"]["bits"] = [10]
    assert difference(Machine(module), Machine(joined)) == "ports have other nets"


def test_proof_takes_in_inputs_without_effect():
    """Only the first netlist reads net 5."""
    first = _lut(20, 4, 5, init=_init(lambda a, *_: a))
    module = _module(range(2, 8), [first, _choice(30, 2, 3, 20)], [30])
    other = deepcopy(module)
    other["cells"] = {"cell1": _choice(30, 2, 3, 4)}
    assert difference(Machine(module), Machine(other)) is None
    module["cells"]["cell0"]["parameters"]["INIT"] = XOR
    assert difference(Machine(module), Machine(other)) is not None


def test_proof_refuses_inputs_without_a_net_and_long_tables():
    module = _module(range(2, 30), [_choice(100, 2, 3, 4)], [100])
    other = deepcopy(module)
    other["cells"]["cell0"]["connections"]["A"] = [99]
    with pytest.raises(ValueError, match="cell0 has no net at A"):
        difference(Machine(module), Machine(other))
    parts = [_lut(200 + n, *range(2 + 4 * n, 6 + 4 * n), init=XOR) for n in range(5)]
    parts += [_lut(210, 200, 201, 202, 203, init=XOR), _lut(100, 210, 204, init=XOR)]
    wide = module | {"cells": {f"cell{n}": cell for n, cell in enumerate(parts)}}
    with pytest.raises(ValueError, match="cell6 is a function of 20 inputs"):
        difference(Machine(module), Machine(wide))


def test_proof_refuses_a_loop_of_luts():
    module = _one_in_four()
    module["cells"]["cell0"]["connections"]["A"] = [30]
    other = deepcopy(module)
    other["cells"] = {"cell2": _lut(30, 30, init=_init(lambda a, *_: a))}
    with pytest.raises(ValueError, match=r"cell2\.Z reads itself through LUTs alone"):
        difference(Machine(module), Machine(other))


def _job(board: str, folder) -> Build:
    (folder / NETLIST).write_text(json.dumps({"modules": {TOP: _one_in_eight()}}))
    return Build(BOARDS[board], AcceleratorParameters(), 60_000_000, folder)


def _netlist(job: Build) -> dict:
    return json.loads((job.folder / NETLIST).read_text())["modules"][TOP]


def test_build_joins_luts_of_an_ecp5_and_proves_it(tmp_path):
    job, told = _job("ulx3s-85f", tmp_path), []
    flow.join(job, steps := Steps(tmp_path, told.append))
    assert _kinds(_netlist(job))["LUT4"] == 4
    (record,) = steps.checks.records
    assert (record["change"], record["check"], record["cells"]) == ("LUTs joined", "proof", 7)
    assert told == ["LUTs joined: proved to be the same machine"]


@pytest.mark.parametrize("board", ["tang-mega-138k", "crosslink-nx-evn", "arty-a7-35t"])
def test_build_leaves_luts_of_other_families(board, tmp_path):
    job = _job(board, tmp_path)
    flow.join(job, steps := Steps(tmp_path, print))
    assert _netlist(job) == _one_in_eight() and not steps.checks.records


def test_build_with_wrongly_joined_luts_ends(tmp_path, monkeypatch):
    job = _job("ulx3s-85f", tmp_path)
    monkeypatch.setattr(flow, "join_luts", _flip)
    with pytest.raises(BuildError, match=r"LUTs joined: not the same machine: cell0\.Z before, "):
        flow.join(job, Steps(tmp_path, print))
    assert _netlist(job) == _one_in_eight(), "the netlist stays"
    flow.join(job, steps := Steps(tmp_path, print, check=False))
    assert [record["check"] for record in steps.checks.records] == ["none"]
