"""Copies of registers that too many cells listen to."""

from trainwright_boards.replicas import FEW, LOT, MANY, MANY_DATA, replicate, unit_of


def _netlist(users: dict[str, int], port: str = "CE") -> dict:
    """A register of net 5, and so many users in each unit."""
    cells = {
        "rst": {
            "type": "TRELLIS_FF",
            "parameters": {"REGSET": "SET"},
            "attributes": {"src": "x"},
            "port_directions": {"DI": "input", "CLK": "input", "Q": "output"},
            "connections": {"DI": [4], "CLK": [3], "Q": [5]},
        }
    }
    for unit, count in users.items():
        for n in range(count):
            cells[f"{unit}.cell{n}"] = {
                "type": "TRELLIS_FF",
                "parameters": {},
                "attributes": {},
                "port_directions": {"DI": "input", "CE": "input", "Q": "output"},
                "connections": {"DI": ["0"], "CE": ["1"], "Q": [10 + len(cells)]} | {port: [5]},
            }
    return {"modules": {"top": {"cells": cells, "netnames": {"rst": {"bits": [5]}}}}}


def _replicated(users: dict[str, int], port: str = "CE") -> tuple[int, dict]:
    top = _netlist(users, port)["modules"]["top"]
    return replicate(top), top


def test_a_unit_is_that_of_the_flattened_name():
    assert unit_of("soc.accelerator.pe1.array.x_LUT4_Z") == "soc.accelerator.pe1.array"
    assert unit_of("soc.accelerator.pe1.array.tree.x_LUT4_Z") == "soc.accelerator.pe1.array"
    assert unit_of("soc.accelerator.pe1.turn_LUT4_Z") == "soc.accelerator.pe1"
    assert unit_of("soc.accelerator.turn_LUT4_Z") == "soc.accelerator"
    assert unit_of("soc.link.deframer.place") == "soc.link"
    assert unit_of("soc.reset_LUT4_Z") == "soc"
    assert unit_of("rst_TRELLIS_FF_Q") == ""


def test_every_unit_of_many_users_has_a_copy_of_its_own():
    users = {"soc.link": MANY, "soc.accelerator.pe1.array": FEW, "soc.memory": FEW - 1}
    count, top = _replicated(users)
    assert count == 2
    original = top["cells"]["rst"]
    nets = {"soc.memory": 5}
    for number, unit in enumerate(("soc.accelerator.pe1.array", "soc.link")):
        copy = top["cells"][f"{unit}.rst.{number}"]
        assert {k: v for k, v in copy.items() if k != "connections"} == {
            k: v for k, v in original.items() if k != "connections"
        }
        (nets[unit],) = copy["connections"].pop("Q")
        assert copy["connections"] == {"DI": [4], "CLK": [3]}
        assert top["netnames"][f"{unit}.rst.{number}"]["bits"] == [nets[unit]]
    assert len(set(nets.values())) == 3
    outputs = {cell["connections"]["Q"][0] for n, cell in top["cells"].items() if ".cell" in n}
    assert outputs.isdisjoint(nets.values())
    for name, cell in top["cells"].items():
        if ".cell" in name:
            assert cell["connections"]["CE"] == [nets[unit_of(name)]]


def test_what_few_listen_to_or_one_unit_alone_stays_as_it_is():
    for users in (
        {"soc.link": MANY - 100, "soc.memory": 99},
        {"soc.accelerator.pe2.fetch": MANY + 1},
    ):
        count, top = _replicated(users)
        assert count == 0 and top == _netlist(users)["modules"]["top"]


def test_many_data_inputs_of_a_unit_have_copies_of_neighbours():
    """Bits 0 to 39, 40 to 79 ... of a row, whatever the order of the cells."""
    unit = "soc.accelerator.scratchpad"
    count, top = _replicated({unit: MANY_DATA, "soc.memory": MANY_DATA - 1}, "DI")
    assert count == -(-MANY_DATA // LOT)
    lots = {}
    for name, cell in top["cells"].items():
        if name.startswith(f"{unit}.cell"):
            number = int(name.removeprefix(f"{unit}.cell"))
            lots.setdefault(cell["connections"]["DI"][0], []).append(number)
    assert sorted(number for lot in lots.values() for number in lot) == list(range(MANY_DATA))
    for net, lot in lots.items():
        assert net != 5 and lot == list(range(min(lot), max(lot) + 1)) and len(lot) <= LOT
    copies = [top["cells"][f"{unit}.rst.{n}"]["connections"]["Q"][0] for n in range(count)]
    assert sorted(lots) == sorted(copies)
    others = [c for n, c in top["cells"].items() if n.startswith("soc.memory")]
    assert all(cell["connections"]["DI"] == [5] for cell in others)
