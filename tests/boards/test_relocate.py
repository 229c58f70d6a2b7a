"""Estimated paths of a placed design, and cells of slow ones that go to better places."""

import json
from collections import defaultdict
from random import Random

import pytest

from trainwright_boards.paths import BEL, COMB, FF, FROM_FF, SITE, Paths, wire
from trainwright_boards.relocate import relocate

LUT = 240


class Design:
    """A module as nextpnr writes it, cell by cell."""

    def __init__(self):
        self.module = {"cells": {}}
        self.bits = 1

    def cell(self, name, kind, site, inputs=(), outputs=(), **parameters) -> list[int]:
        """Add a cell and return the nets of its outputs; an input is (port, net)."""
        nets = [self.bits + n for n in range(len(outputs))]
        self.bits += len(nets)
        self.module["cells"][name] = {
            "type": kind,
            "parameters": parameters,
            "attributes": {BEL: site} if site else {},
            "port_directions": {p: "input" for p, _ in inputs} | dict.fromkeys(outputs, "output"),
            "connections": {p: [net] for p, net in inputs}
            | {p: [net] for p, net in zip(outputs, nets, strict=True)},
        }
        return nets

    def lut(self, name, site, *nets, outputs=("F",), mode="LOGIC", **ports) -> int:
        inputs = [*zip("ABCD", nets, strict=False), *ports.items()]
        return self.cell(name, COMB, site, inputs, outputs, MODE=mode)[-1]

    def ff(self, name, site, **ports) -> int:
        return self.cell(name, FF, site, [*ports.items()], ("Q",))[0]

    @property
    def sites(self) -> dict[str, str]:
        cells = self.module["cells"].items()
        return {name: cell["attributes"][BEL] for name, cell in cells if cell["attributes"]}


def detour(far="X60/Y50/SLICEA.K0") -> Design:
    """Make two registers side by side with a LUT between them across the device.

    Tiles around the registers have a LUT that nothing drives.
    """
    d = Design()
    first = d.ff("first", "X2/Y2/SLICEA.FF0", M=0, CE=90)
    d.ff("last", "X4/Y2/SLICEA.FF1", M=d.lut("between", far, first), CE=90)
    for x in range(1, 8):
        for y in range(1, 5):
            d.lut(f"other{x}_{y}", f"X{x}/Y{y}/SLICEB.K0")
    return d


def test_path_delay_is_sum_of_cells_and_wires():
    d = detour()
    paths = Paths(d.module)
    far = wire((2, 2), (60, 50)) + wire((60, 50), (4, 2))
    assert paths.look() == FROM_FF + LUT + far
    assert wire((2, 2), (60, 50)) == 78 * (6 + 53 + 43 + 2 * (5 + 5))
    assert wire((3, 4), (3, 4)) == 78 * 6 and wire(None, (1, 1)) == 500


def test_joined_luts_carries_and_memories_have_delays_of_their_own():
    d = Design()
    first = d.ff("first", "X2/Y2/SLICEA.FF0", M=0)
    inner = d.lut("one", "X2/Y2/SLICEB.K1", first)
    wide = d.lut("zero", "X2/Y2/SLICEB.K0", outputs=("OFX",), F1=inner)
    d.ff("last", "X2/Y2/SLICEB.FF0", DI=wide)
    assert Paths(d.module).look() == FROM_FF + wire((2, 2), (2, 2)) + LUT + 180
    d = Design()
    (carry,) = d.cell("low", COMB, "X2/Y2/SLICEA.K0", [("A", 0)], ["FCO"], MODE="CCU2")
    (total,) = d.cell("high", COMB, "X2/Y2/SLICEA.K1", [("FCI", carry)], ["F"], MODE="CCU2")
    d.ff("last", "X2/Y2/SLICEA.FF1", DI=total)
    assert Paths(d.module).look() == 450
    d = Design()
    (carry,) = d.cell("low", COMB, "X2/Y2/SLICEA.K0", [("A", 0)], ["FCO"], MODE="CCU2")
    ports = [("FCI", carry)]
    (carry,) = d.cell("middle", COMB, "X2/Y2/SLICEA.K1", ports, ["FCO"], MODE="CCU2")
    (total,) = d.cell("high", COMB, "X2/Y2/SLICEB.K0", [("FCI", carry)], ["F"], MODE="CCU2")
    d.ff("last", "X2/Y2/SLICEB.FF0", DI=total)
    assert Paths(d.module).look() == 40 + 450
    d = Design()
    word = d.lut("word", "X2/Y2/SLICEA.K0", mode="DPRAM")
    d.ff("last", "X2/Y3/SLICEA.FF0", M=word)
    assert Paths(d.module).look() == FROM_FF + wire((2, 2), (2, 3))


def test_cells_of_a_slow_path_meet_and_nothing_else_changes():
    d = detour()
    before = json.loads(json.dumps(d.module))
    moved = relocate(d.module, 3000)
    assert moved.before > 15000 and moved.after <= 3000 and moved.cells >= 1
    assert Paths(d.module).look() == moved.after
    assert len({*d.sites.values()}) == len(d.sites)
    changed = [name for name, cell in d.module["cells"].items() if cell != before["cells"][name]]
    assert len(changed) == moved.cells and {*changed} <= {"first", "between", "last"}
    for name in changed:
        before["cells"][name]["attributes"][BEL] = d.sites[name]
    assert before == d.module
    again = detour()
    relocate(again.module, 3000)
    assert again.sites == d.sites


def test_relocated_register_follows_its_lut():
    """The path ends in the unit, and begins where nothing can be moved."""
    d = Design()
    (word,) = d.cell("ram", "DP16KD", "X2/Y2/EBR0", (), ["DOA0"], REGMODE_A="OUTREG")
    d.ff("behind", "X60/Y50/SLICEA.FF0", DI=d.lut("before", "X60/Y50/SLICEA.K0", word), CE=90)
    d.lut("other", "X3/Y2/SLICEB.K0")
    moved = relocate(d.module, 3000)
    assert moved.cells == 2 and moved.after <= 3000
    assert (d.sites["before"], d.sites["behind"]) == ("X3/Y2/SLICEA.K0", "X3/Y2/SLICEA.FF0")


def test_registers_stay_out_of_tiles_with_memories():
    d = Design()
    (word,) = d.cell("ram", "DP16KD", "X2/Y2/EBR0", (), ["DOA0"], REGMODE_A="OUTREG")
    d.ff("far", "X60/Y50/SLICEA.FF0", M=word, CE=90)
    d.lut("memory", "X3/Y2/SLICEA.K0", mode="DPRAM")
    assert relocate(d.module, 3000).cells == 0
    d.module["cells"]["memory"]["parameters"]["MODE"] = "LOGIC"
    assert relocate(d.module, 3000).cells == 1


def test_relocate_moves_no_cell_within_period():
    d = detour()
    before = d.sites
    moved = relocate(d.module, 20000)
    assert moved.cells == 0 and moved.before == moved.after and d.sites == before


def test_carries_memories_and_constants_stay():
    for mode, name in (("CCU2", "it"), ("DPRAM", "it"), ("LOGIC", "PACKER_GND")):
        d = Design()
        first = d.ff("first", "X2/Y2/SLICEA.FF0", M=0, CE=90)
        middle = d.lut(name, "X60/Y50/SLICEA.K0", first, mode=mode)
        d.ff("last", "X4/Y2/SLICEA.FF1", M=middle, CE=91)
        relocate(d.module, 3000)
        assert d.sites[name] == "X60/Y50/SLICEA.K0"


def legal(module) -> None:
    """Check that a placement is legal.

    No site has two cells, LUTs stay next to LUTs, registers of half a tile share controls, and a
    register behind a LUT and joined LUTs stay in their slots.
    """
    at, controls, modes = {}, defaultdict(set), defaultdict(set)
    for name, cell in module["cells"].items():
        x, y, site = SITE.match(cell["attributes"][BEL]).groups()
        assert (x, y, site) not in at, "two cells at a site"
        at[x, y, site] = name
        part, kind = site.split(".")
        nets = cell["connections"]
        if cell["type"] == FF:
            controls[x, y, part in ("SLICEA", "SLICEB")].add((*nets.get("CE", ()),))
            if driver := [
                n
                for n, c in module["cells"].items()
                if nets.get("DI") in c["connections"].values() and n != name
            ]:
                source = SITE.match(module["cells"][driver[0]]["attributes"][BEL]).groups()
                assert source == (x, y, f"{part}.K{kind[-1]}")
        else:
            modes[x, y, part].add(cell["parameters"].get("MODE", "LOGIC"))
    assert all(len(values) == 1 for values in (*controls.values(), *modes.values()))
    for (x, y, site), name in at.items():
        other = at.get((x, y, site.replace(".K", ".FF")))
        if ".K" in site and other and "M" in module["cells"][name]["connections"]:
            assert "M" not in module["cells"][other]["connections"]


@pytest.mark.parametrize("seed", range(6))
def test_random_designs_stay_legal(seed):
    """Crowded: few tiles, in which most sites are taken."""
    random, d = Random(seed), Design()
    free = [
        (f"X{x}/Y{y}/SLICE{part}", (x, y, part in "AB"))
        for x in (1, 2, 40, 41)
        for y in (1, 2, 30, 31)
        for part in "ABCD"
    ]
    random.shuffle(free)
    enable = {half: random.choice((90, 91)) for _, half in free}
    nets = [0]
    for n, (site, half) in enumerate(free[:40]):
        inputs = [random.choice(nets) for _ in range(3)]
        match random.randrange(6):
            case 0:
                nets.append(d.lut(f"carry{n}", f"{site}.K0", *inputs, mode="CCU2"))
            case 1:
                nets.append(d.ff(f"ff{n}", f"{site}.FF0", M=inputs[0], CE=enable[half]))
                nets.append(d.lut(f"lut{n}", f"{site}.K0", *inputs))
            case 2:
                behind = d.lut(f"lut{n}", f"{site}.K1", *inputs)
                nets.append(d.ff(f"ff{n}", f"{site}.FF1", DI=behind, CE=enable[half]))
            case 3:
                inner = d.lut(f"one{n}", f"{site}.K1", *inputs)
                nets.append(
                    d.lut(
                        f"zero{n}", f"{site}.K0", *inputs, outputs=("OFX",), F1=inner, M=inputs[0]
                    )
                )
            case _:
                nets.append(d.lut(f"lut{n}", f"{site}.K{random.randrange(2)}", *inputs))
    for n, (site, half) in enumerate(free[40:52]):
        d.ff(f"end{n}", f"{site}.FF1", M=random.choice(nets), CE=enable[half])
    legal(d.module)
    moved = relocate(d.module, 4000)
    legal(d.module)
    assert moved.cells and moved.after <= moved.before
