"""Copies of registers that too many cells listen to."""

from ttforge_boards.replicas import FEW, MANY, replicate, unit_of


def _netlist(users: dict[str, int]) -> dict:
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
                "type": "LUT4",
                "parameters": {},
                "attributes": {},
                "port_directions": {"A": "input", "B": "input", "Z": "output"},
                "connections": {"A": ["0"], "B": [5], "Z": [10 + len(cells)]},
            }
    return {"modules": {"top": {"cells": cells, "netnames": {"rst": {"bits": [5]}}}}}


def _replicated(users: dict[str, int]) -> tuple[int, dict]:
    top = _netlist(users)["modules"]["top"]
    return replicate(top), top


def test_a_unit_is_that_of_the_flattened_name():
    assert unit_of("soc.accelerator.pe1.array.x_LUT4_Z") == "soc.accelerator.pe1.array"
    assert unit_of("soc.accelerator.pe1.turn_LUT4_Z") == "soc.accelerator.pe1.turn_LUT4_Z"
    assert unit_of("soc.link.deframer.place") == "soc.link"
    assert unit_of("rst_TRELLIS_FF_Q") == "rst_TRELLIS_FF_Q"


def test_every_unit_of_many_users_has_a_copy_of_its_own():
    users = {"soc.link": MANY, "soc.accelerator.pe1.array": FEW, "soc.memory": FEW - 1}
    count, top = _replicated(users)
    assert count == 2
    original = top["cells"]["rst"]
    nets = {"soc.memory": 5}
    for unit in ("soc.link", "soc.accelerator.pe1.array"):
        copy = top["cells"][f"{unit}.rst"]
        assert {k: v for k, v in copy.items() if k != "connections"} == {
            k: v for k, v in original.items() if k != "connections"
        }
        (nets[unit],) = copy["connections"].pop("Q")
        assert copy["connections"] == {"DI": [4], "CLK": [3]}
        assert top["netnames"][f"{unit}.rst"]["bits"] == [nets[unit]]
    assert len(set(nets.values())) == 3
    outputs = {cell["connections"]["Z"][0] for n, cell in top["cells"].items() if ".cell" in n}
    assert outputs.isdisjoint(nets.values())
    for name, cell in top["cells"].items():
        if ".cell" in name:
            assert cell["connections"]["B"] == [nets[unit_of(name)]]


def test_what_few_listen_to_or_one_unit_alone_stays_as_it_is():
    for users in (
        {"soc.link": MANY - 100, "soc.memory": 99},
        {"soc.accelerator.pe2.fetch": MANY + 1},
    ):
        count, top = _replicated(users)
        assert count == 0 and top == _netlist(users)["modules"]["top"]
