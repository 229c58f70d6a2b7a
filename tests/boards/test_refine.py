"""Cells of a placed design move to where its paths are shorter, and only to where they may be."""

from copy import deepcopy
from random import Random

import numpy as np
import pytest

from trainwright_boards.refinement import refine
from trainwright_boards.refinement.group_moves import GroupMoves
from trainwright_boards.refinement.movable import Movable
from trainwright_boards.refinement.placed import PLACE, Placed
from trainwright_boards.refinement.placed_timing import (
    CLOCK_TO_OUTPUT,
    LUT_TO_OUTPUT,
    NEAR,
    RAM_REGISTER_TO_OUTPUT,
    RAM_TO_OUTPUT,
    RESET_SETUP,
    PlacedTiming,
    wires,
)
from trainwright_boards.refinement.slice_rules import broken_rules
from trainwright_boards.refinement.slices import Slices, Unit
from trainwright_boards.tools import BuildError

CLOCK, RESET, ENABLE, OTHER_ENABLE = 1, 2, 3, 4


def _cell(kind: str, place: str, inputs: dict, outputs: dict, **parameters: str) -> dict:
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {PLACE: place, "src": "x"},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": {port: [net] for port, net in (inputs | outputs).items()},
    }


def _lut(place: str, output: int, *inputs: int, **parameters: str) -> dict:
    return _cell(
        "TRELLIS_COMB", place, dict(zip("ABCD", inputs, strict=False)), {"F": output}, **parameters
    )


def _register(place: str, output: int, net: int, port: str = "M", **more: int) -> dict:
    return _cell(
        "TRELLIS_FF", place, {port: net, "CLK": CLOCK} | more, {"Q": output}, GSR="DISABLED"
    )


def _chain(x: int) -> dict:
    """A register at column 2, a LUT at column ``x`` and a register behind it at column 4."""
    return {
        "first": _register("X2/Y5/SLICEA.FF0", 10, 13),
        "lut": _lut(f"X{x}/Y5/SLICEB.K1", 11, 10),
        "last": _register("X4/Y5/SLICEA.FF0", 13, 11),
    }


def _timing(cells: dict) -> tuple[Placed, PlacedTiming]:
    placed = Placed({"cells": cells})
    return placed, PlacedTiming(placed)


def test_the_estimate_adds_up_cells_and_wires():
    placed, timing = _timing(_chain(30))
    first, second = (float(wires(np.array(dx), np.array(0))) for dx in (28, 26))
    back = float(wires(np.array(2), np.array(0)))
    whole = CLOCK_TO_OUTPUT + first + LUT_TO_OUTPUT + second
    paths = {
        (placed.names[source], placed.names[sink]): path
        for source, sink, path in zip(timing.source, timing.sink, timing.path, strict=True)
    }
    assert paths == pytest.approx(
        {
            ("first", "lut"): whole,
            ("lut", "last"): whole,
            ("last", "first"): CLOCK_TO_OUTPUT + back,
        }
    )
    assert timing.ends() == pytest.approx([whole, CLOCK_TO_OUTPUT + back])
    # a register behind its own LUT, and its reset
    cells = {
        "source": _register("X2/Y2/SLICEA.FF0", 10, 13),
        "lut": _lut("X3/Y2/SLICEA.K0", 11, 10),
        "own": _register("X3/Y2/SLICEA.FF0", 13, 11, port="DI", LSR=10),
    }
    one = CLOCK_TO_OUTPUT + float(wires(np.array(1), np.array(0)))
    assert _timing(cells)[1].ends() == pytest.approx([one + RESET_SETUP, one + LUT_TO_OUTPUT, one])


def test_wires_take_longer_near_by():
    near, far = wires(np.array([NEAR, NEAR + 1]), np.zeros(2)) - wires(
        np.array([NEAR - 1, NEAR]), np.zeros(2)
    )
    assert near > far > 0
    assert (wires(np.array([-3]), np.array([4])) == wires(np.array([4]), np.array([3]))).all()


def test_block_ram_is_as_late_as_its_output_register_says():
    for modes, expected in (({}, RAM_TO_OUTPUT), ({"REGMODE_A": "OUTREG"}, RAM_REGISTER_TO_OUTPUT)):
        ram = _cell("DP16KD", "X2/Y10/EBR0", {}, {"DOA0": 10}, **modes)
        _, timing = _timing({"ram": ram, "user": _register("X2/Y9/SLICEA.FF0", 11, 10)})
        assert timing.ends() == pytest.approx([expected + float(wires(np.array(0), np.array(1)))])


def test_units_are_what_can_move_alone():
    cells = _chain(30) | {
        "pair": _lut("X9/Y5/SLICEA.K0", 20, 13),
        "of pair": _register("X9/Y5/SLICEA.FF0", 21, 20, port="DI"),
        "sum": _lut("X9/Y5/SLICEB.K0", 22, 21, MODE="CCU2"),
        "of sum": _register("X9/Y5/SLICEB.FF0", 23, 22, port="DI"),
        "half": _cell("TRELLIS_COMB", "X9/Y5/SLICEC.K0", {"A": 21, "F1": 24}, {"OFX": 25}),
        "other half": _lut("X9/Y5/SLICEC.K1", 24, 21),
        "ram": _lut("X8/Y5/SLICEA.K0", 26, 21, MODE="DPRAM"),
        "pad": _cell("TRELLIS_IO", "X0/Y5/PIOA", {"I": 25}, {}),
    }
    placed = Placed({"cells": cells})
    slices = Slices(placed)
    number = {name: n for n, name in enumerate(placed.names)}
    assert set(slices.units) == {
        Unit((), number["first"]),
        Unit((), number["last"]),
        Unit((number["lut"],)),
        Unit((number["pair"],), number["of pair"]),
        Unit((number["half"], number["other half"])),
    }
    lut, register = Unit((number["lut"],)), Unit((), number["first"])
    two = Unit((number["half"], number["other half"]))
    # place 0 is the pair's, 1 free; 2 and 3 are a carry chain's; 4 and 5 a multiplexer's
    assert slices.free((9, 5), lut) == 1 and slices.free((9, 5), register) == 1
    assert slices.free((8, 5), lut) is None, "distributed RAM"
    assert slices.free((9, 6), lut) is None, "not a row of logic"
    assert slices.free((31, 5), lut) is None, "beyond the last column"
    assert slices.free((20, 5), lut) == 0, "empty"
    assert slices.free((9, 5), two) == 6 and slices.free((2, 5), two) == 2, "a register's input"
    slices.move(two, (20, 5), 4)
    assert [placed.site[cell] for cell in two.luts] == ["SLICEC.K0", "SLICEC.K1"]
    assert slices.free((9, 5), two) == 4
    slices.move(two, (9, 5), 4)
    slices.move(lut, (9, 5), 1)
    assert placed.site[number["lut"]] == "SLICEA.K1" and placed.tile(number["lut"]) == (9, 5)
    assert slices.free((30, 5), register) == 0 and slices.free((9, 5), lut) == 6


def test_registers_share_what_their_slice_and_tile_has_once():
    cells = {
        "here": _register("X5/Y5/SLICEA.FF0", 10, 11, CE=ENABLE),
        "same": _register("X2/Y2/SLICEA.FF0", 11, 10, CE=ENABLE),
        "enable": _register("X2/Y5/SLICEA.FF0", 12, 10, CE=OTHER_ENABLE),
        "reset": _register("X5/Y2/SLICEA.FF0", 13, 10, CE=ENABLE, LSR=RESET),
    }
    slices = Slices(Placed({"cells": cells}))
    places = [slices.free((5, 5), Unit((), n)) for n in (1, 2, 3)]
    assert places == [1, 2, None], "beside it; in the next slice; in no tile with it"


def _random_design(seed: int) -> dict:
    """Registers and LUTs anywhere in 40 x 20 tiles, some with resets and enables, some in pairs."""
    random = Random(seed)
    cells: dict[str, dict] = {}
    nets = range(100, 400)
    where = [(x, y, n) for x in range(2, 42) for y in range(2, 22) for n in range(8)]
    random.shuffle(where)
    shared: dict[tuple, int] = {}

    def register(place: tuple[int, int, int], output: int, net: int, port: str) -> dict:
        x, y, n = place
        reset = shared.setdefault((x, y), random.choice((0, RESET)))
        enable = shared.setdefault((x, y, n // 2), random.choice((0, ENABLE, OTHER_ENABLE)))
        more = {"LSR": reset} if reset else {}
        more |= {"CE": enable} if enable else {}
        site = f"X{x}/Y{y}/SLICE{'ABCD'[n // 2]}.FF{n % 2}"
        return _register(site, output, net, port, **more)

    for net in nets:
        x, y, n = place = where.pop()
        if random.random() < 0.5:
            # LUTs take registers alone: no loops
            inputs = random.sample(nets, random.randint(1, 4))
            site = f"X{x}/Y{y}/SLICE{'ABCD'[n // 2]}.K{n % 2}"
            cells[f"lut{net}"] = _lut(site, net + 1000, *inputs)
            if random.random() < 0.5:
                cells[f"ff{net}"] = register(place, net, net + 1000, "DI")
                continue
        source = random.choice(nets) + random.choice((0, 1000))
        cells[f"ff{net}"] = register(where.pop(), net, source, "M")
    return {"cells": cells}


@pytest.mark.parametrize("seed", range(5))
def test_a_refined_design_keeps_the_rules_and_its_nets(seed):
    before = _random_design(seed)
    assert not broken_rules(Placed(before))
    after = deepcopy(before)
    refined = refine(after)
    assert refined.moved > 0 and refined.after < refined.before
    cells = after["cells"]
    assert not broken_rules(Placed(after))
    timing = _timing(cells)[1]
    assert timing.ends().max() == pytest.approx(refined.after)
    for name, cell in deepcopy(cells).items():
        was = before["cells"][name]
        cell["attributes"][PLACE] = was["attributes"][PLACE]
        assert cell == was
    again = deepcopy(before)
    assert refine(again) == refined and again == after


def test_what_is_far_apart_comes_together():
    cells = _chain(100)
    refined = refine({"cells": cells})
    assert refined.before > 14 and refined.after < 3
    assert _timing(cells)[1].ends().max() < 3


def _knot(count: int) -> dict:
    """A block RAM at column 2, and pairs of LUT and register in two tiles at column 90, each of
    which takes an output of the RAM and the registers of three others."""
    cells = {"ram": _cell("DP16KD", "X2/Y10/EBR0", {}, {f"DOA{n}": 50 + n for n in range(count)})}
    for n in range(count):
        others = [10 + (n + k) % count for k in (1, 2, 3)]
        site = f"X{90 + n // 8}/Y9/SLICE{'ABCD'[n % 8 // 2]}"
        cells[f"lut{n}"] = _lut(f"{site}.K{n % 2}", 30 + n, 50 + n, *others)
        cells[f"ff{n}"] = _register(f"{site}.FF{n % 2}", 10 + n, 30 + n, port="DI")
    cells["border"] = _register("X2/Y9/SLICEA.FF0", 90, 91)
    return cells


def test_a_knot_moves_together():
    cells = _knot(12)
    movable = Movable(Placed({"cells": cells}))
    before = movable.timing.longest
    assert GroupMoves(movable).run() >= 1
    assert movable.timing.longest < before - 1
    assert movable.timing.longest == pytest.approx(_timing(cells)[1].longest)
    assert not broken_rules(Placed({"cells": cells}))
    columns = [movable.placed.x[n] for n, name in enumerate(movable.placed.names) if "lut" in name]
    assert max(columns) < 90 and max(columns) - min(columns) <= 9


def test_a_group_stays_where_nothing_is_gained():
    """Neither end of the longest wire can come nearer: one is fixed, the other one's place is all
    that is free."""
    cells = {
        "ram": _cell("DP16KD", "X2/Y10/EBR0", {}, {"DOA0": 50}),
        "lut": _lut("X90/Y9/SLICEA.K0", 30, 50),
        "ff": _register("X90/Y9/SLICEA.FF0", 10, 30, port="DI"),
    }
    before = deepcopy(cells)
    movable = Movable(Placed({"cells": cells}))
    assert movable.timing.longest > 12
    assert GroupMoves(movable).run() == 0 and cells == before


MULTIPLEXER = {
    "half": _cell("TRELLIS_COMB", "X9/Y5/SLICEC.K0", {"A": 21, "F1": 24}, {"OFX": 25}),
    "other half": _lut("X9/Y5/SLICEC.K1", 24, 21),
}


@pytest.mark.parametrize(
    "cells, broken",
    [
        ({"a": _lut("X9/Y5/SLICEA.FF0", 20)}, "(9, 5): TRELLIS_COMB at SLICEA.FF0"),
        ({"a": _lut("X9/Y5/SLICEE.K0", 20)}, "(9, 5): TRELLIS_COMB at SLICEE.K0"),
        ({"a": _lut("", 20)}, "(0, 0): TRELLIS_COMB at no place"),
        (
            {n: _lut("X9/Y5/SLICEA.K0", net) for n, net in (("a", 20), ("b", 21))},
            "(9, 5): two cells at SLICEA.K0",
        ),
        (
            {
                "a": _register("X9/Y5/SLICEA.FF0", 20, 10),
                "b": _register("X9/Y5/SLICED.FF0", 21, 10, LSR=RESET),
            },
            "(9, 5): registers of different clocks or resets",
        ),
        (
            {
                "a": _register("X9/Y5/SLICEA.FF0", 20, 10, CE=ENABLE),
                "b": _register("X9/Y5/SLICEA.FF1", 21, 10),
            },
            "(9, 5): registers of different enables in a slice",
        ),
        (
            {
                "a": _lut("X9/Y5/SLICEA.K0", 20),
                "b": _register("X9/Y5/SLICEB.FF0", 21, 20, port="DI"),
            },
            "(9, 5): b away from its LUT",
        ),
        (
            {"a": _lut("X9/Y5/SLICEA.K0", 20), "b": _lut("X9/Y5/SLICEA.K1", 21, MODE="CCU2")},
            "(9, 5): a LUT beside a carry chain",
        ),
        (
            MULTIPLEXER | {"other half": _lut("X9/Y5/SLICED.K1", 24, 21)},
            "(9, 5): half away from the other LUT of its multiplexer",
        ),
        (
            MULTIPLEXER | {"a": _register("X9/Y5/SLICEC.FF0", 30, 10)},
            "(9, 5): a at the input of a multiplexer",
        ),
        (
            {"a": _cell("TRELLIS_COMB", "X9/Y5/SLICEC.K0", {"FXA": 24}, {"OFX": 25})},
            "(9, 5): a, a wide multiplexer, in the first place of its slice",
        ),
        (
            {"a": _lut("X9/Y5/SLICEC.K0", 26, 21, MODE="DPRAM")},
            "(9, 5): distributed RAM in slice C or D",
        ),
        (
            {
                "a": _cell("TRELLIS_RAMW", "X9/Y5/SLICEC.RAMW", {}, {}),
                "b": _lut("X9/Y5/SLICEC.K1", 26, 21),
            },
            "(9, 5): a LUT beside the inputs of distributed RAM",
        ),
        (
            {
                "a": _cell("TRELLIS_COMB", "X9/Y5/SLICEA.K0", {}, {}, MODE="DPRAM", WCKMUX="INV"),
                "b": _register("X9/Y5/SLICED.FF0", 20, 10),
            },
            "(9, 5): distributed RAM and registers of different clocks or resets",
        ),
    ],
)
def test_each_rule_is_told(cells, broken):
    assert broken_rules(Placed({"cells": cells})) == {broken}


def test_a_multiplexer_and_a_ram_with_registers_keep_the_rules():
    cells = MULTIPLEXER | {
        "of the multiplexer": _register("X9/Y5/SLICEC.FF0", 30, 25, port="DI"),
        "wide": _cell("TRELLIS_COMB", "X8/Y5/SLICEC.K1", {"FXA": 25}, {"OFX": 31}),
        "ram": _lut("X9/Y5/SLICEA.K0", 26, 21, MODE="DPRAM"),
        "beside": _register("X9/Y5/SLICED.FF0", 20, 10),
    }
    assert not broken_rules(Placed({"cells": cells}))


def test_a_move_that_breaks_a_rule_ends_the_build(monkeypatch):
    monkeypatch.setattr(Slices, "free", lambda self, tile, unit: 0)
    with pytest.raises(BuildError, match="two cells at"):
        refine(_random_design(0))
