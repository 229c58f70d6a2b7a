"""Reports of a build, and the rules that a netlist must keep."""

import json

import pytest

from trainwright.cli import main
from trainwright.parameters import preset
from trainwright_boards import runs
from trainwright_boards.board import ECP5_85F, GW5AST_138
from trainwright_boards.commands import summary
from trainwright_boards.netlist import Netlist, complaints
from trainwright_boards.report import clocks, count_cells, critical_path, resources, spare_luts
from trainwright_boards.tools import BuildError

DIRECTIONS = {"CLK": "input", "DI": "input", "Q": "output", "LSR": "input"}


def flip_flop(clock, data, out) -> dict:
    pins = {"CLK": [clock], "DI": [data], "Q": [out], "LSR": ["0"]}
    return {"type": "TRELLIS_FF", "connections": pins, "port_directions": DIRECTIONS}


def gowin_flip_flop(clock, data, out) -> dict:
    pins = {"CLK": [clock], "D": [data], "Q": [out], "CE": ["1"], "RESET": ["0"]}
    directions = dict.fromkeys(("CLK", "D", "CE", "RESET"), "input") | {"Q": "output"}
    return {"type": "DFFRE", "connections": pins, "port_directions": directions}


def pad(pin, inside) -> dict:
    directions = {"I": "input", "O": "output"}
    return {
        "type": "IBUF",
        "connections": {"I": [pin], "O": [inside]},
        "port_directions": directions,
    }


def lut(*pins) -> dict:
    names = dict(zip("ABZ", ([pin] for pin in pins), strict=True))
    directions = {"A": "input", "B": "input", "Z": "output"}
    return {"type": "LUT4", "connections": names, "port_directions": directions}


def netlist(cells: dict) -> Netlist:
    ports = {
        "clk_in": {"direction": "input", "bits": [2]},
        "rx": {"direction": "input", "bits": [3]},
        "tx": {"direction": "output", "bits": [9]},
        "dq": {"direction": "inout", "bits": [7]},
    }
    names = {f"n{bit}": {"bits": [bit]} for bit in range(2, 10)}
    names |= {"soc.deep.clock": {"bits": [4]}, "soc.constants": {"bits": ["0", "1"]}}
    module = {"cells": cells, "ports": ports, "netnames": names}
    return Netlist({"modules": {"top": module}}, "top")


PLL = {"type": "EHXPLLL", "connections": {"CLKOP": [4]}, "port_directions": {"CLKOP": "output"}}
SOUND = {
    "pll": PLL,
    "first": flip_flop(4, 3, 5),
    "second": flip_flop(4, 5, 6),
    "logic": lut(6, 6, 9),
}


def rules(cells: dict) -> list[str]:
    return complaints(netlist(cells), clock_inputs={"clk_in"})


def bidirectional(reader: dict) -> dict:
    directions = {"B": "inout", "I": "input", "O": "output", "T": "input"}
    pins = {"B": [7], "I": [6], "O": [8], "T": [6]}
    buffer = {"type": "TRELLIS_IO", "connections": pins, "port_directions": directions}
    return SOUND | {"dq": buffer, "reader": reader}


def pad_register(clock: int) -> dict:
    pins = {"D": [8], "SCLK": [clock], "Q1": [9]}
    directions = {"D": "input", "SCLK": "input", "Q1": "output"}
    return {"type": "IDDRX1F", "connections": pins, "port_directions": directions}


def test_bidirectional_pin_needs_register_in_pad():
    cells = bidirectional(pad_register(4))
    assert rules(cells) == []
    crossings = netlist(cells).crossings({"clk_in"})
    assert [(c.source, c.register, c.guarded) for c in crossings if c.source == "dq"] == [
        ("dq", "reader", True)
    ]
    assert "2 clocks" in rules(bidirectional(pad_register(2)))[0]
    for reader in (lut(8, 6, 9), flip_flop(4, 8, 9)):
        assert rules(bidirectional(reader)) == ["input dq reaches reader without a synchroniser"]


def test_clock_rules_accept_synchroniser():
    assert rules(SOUND) == []
    (crossing,) = netlist(SOUND).crossings({"clk_in"})
    assert (crossing.source, crossing.register, crossing.guarded) == ("rx", "first", True)


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"first": lut(3, 6, 5)}, "input rx reaches first without a synchroniser"),
        ({"extra": lut(3, 6, 8)}, "input rx reaches extra without a synchroniser"),
        ({"extra": lut(5, 6, 8)}, "input rx reaches first without a synchroniser"),
        ({"second": lut(5, 5, 6)}, "input rx reaches first without a synchroniser"),
        ({"bad": lut(6, 6, 8) | {"type": "$_DLATCH_P_"}}, "latch bad"),
    ],
)
def test_clock_rules_name_violation(change, complaint):
    assert rules(SOUND | change) == [complaint]


def test_clock_rules_accept_unclocked_rom_port():
    """Clock 0 is a bit that other nets have, too."""
    directions = {"CLKA": "input", "CLKB": "input", "DOB0": "output"}
    pins = {"CLKA": ["0"], "CLKB": [4], "DOB0": [8]}
    rom = {"type": "DP16KD", "connections": pins, "port_directions": directions}
    assert rules(SOUND | {"rom": rom}) == []
    assert netlist(SOUND | {"rom": rom}).clocks() == {"n4"}


def test_other_clocks_are_named():
    assert rules(SOUND | {"extra": flip_flop(7, 6, 8)}) == [
        "unconstrained clock n7",
        "2 clocks (n4, n7), and no check of paths",
    ]
    assert rules(SOUND | {"extra": flip_flop(2, 6, 8)}) == [
        "2 clocks (n2, n4), and no check of paths"
    ]


GOWIN_SOUND = {
    "clock_pad": pad(2, 4),
    "rx_pad": pad(3, 8),
    "first": gowin_flip_flop(4, 8, 5),
    "second": gowin_flip_flop(4, 5, 6),
    "logic": lut(6, 6, 9),
}


def test_inputs_of_a_gowin_part_are_followed_through_their_pads():
    assert rules(GOWIN_SOUND) == []
    (crossing,) = netlist(GOWIN_SOUND).crossings({"clk_in"})
    assert (crossing.source, crossing.register, crossing.guarded) == ("rx", "first", True)
    assert netlist(GOWIN_SOUND).clocks() == {"n4"}


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"first": lut(8, 6, 5)}, "input rx reaches first without a synchroniser"),
        ({"extra": lut(8, 6, 7)}, "input rx reaches extra without a synchroniser"),
        ({"second": lut(5, 5, 6)}, "input rx reaches first without a synchroniser"),
        ({"bad": gowin_flip_flop(4, 6, 7) | {"type": "DLNCE"}}, "latch bad"),
        ({"bad": gowin_flip_flop(4, 6, 7) | {"type": "DL"}}, "latch bad"),
    ],
)
def test_clock_rules_of_gowin_name_violation(change, complaint):
    assert rules(GOWIN_SOUND | change) == [complaint]


def _cell(kind: str, **pins: int) -> dict:
    """Make a cell whose outputs are ``Q``, ``O`` and ``CLKOUT0``."""
    outputs = {"Q", "O", "CLKOUT0"}
    return {
        "type": kind,
        "connections": {pin: [bit] for pin, bit in pins.items()},
        "port_directions": {pin: "output" if pin in outputs else "input" for pin in pins},
    }


ARTIX = {
    "pad": _cell("IBUF", I=3, O=30),
    "mmcm": _cell("MMCME2_BASE", CLKIN1=2, CLKOUT0=20),
    "buffer": _cell("BUFG", I=20, O=4),
    "first": _cell("FDRE", C=4, D=30, Q=5),
    "second": _cell("FDSE", C=4, D=5, Q=6),
    "ram": _cell("RAMB18E1", CLKARDCLK=4, CLKBWRCLK=4),
}
NEXUS = {
    "clock": _cell("IB", I=2, O=4),
    "pad": _cell("IB", I=3, O=30),
    "first": _cell("FD1P3DX", CK=4, D=30, Q=5),
    "second": _cell("FD1P3IX", CK=4, D=5, Q=6),
    "ram": _cell("PDP16K", CLKW=4, CLKR=4),
}


@pytest.mark.parametrize("cells", [ARTIX, NEXUS], ids=["artix", "nexus"])
def test_inputs_and_clocks_of_a_part_are_followed_through_its_buffers(cells):
    assert rules(cells) == []
    without = {name: cell for name, cell in cells.items() if name not in ("buffer", "clock")}
    assert rules(without) == ["unconstrained clock n4"]
    direct = cells | {"second": lut(5, 6, 8)}
    assert rules(direct) == ["input rx reaches first without a synchroniser"]


def test_cells_of_unknown_memory_are_an_error_and_not_overlooked():
    assert count_cells({"DPR16X4": 2, "CCU2": 1, "PDP16K": 3}, "nexus")["block_rams"] == 3
    assert count_cells({"RAMB36E1": 2, "RAMB18E1": 1}, "xc7")["block_rams"] == 5
    with pytest.raises(BuildError, match="what 4 cells PDP99 take"):
        count_cells({"PDP99": 4}, "nexus")


def test_other_clocks_of_a_gowin_part_are_named():
    assert rules(GOWIN_SOUND | {"extra": gowin_flip_flop(7, 6, 3)}) == [
        "unconstrained clock n7",
        "2 clocks (n4, n7), and no check of paths",
    ]
    for cell, port in (("RAM16SDP4", "CLK"), ("SDPX9B", "CLKB"), ("MULTALU27X18", "CLK")):
        ram = {"type": cell, "connections": {port: [7]}, "port_directions": {port: "input"}}
        assert rules(GOWIN_SOUND | {"ram": ram})[0] == "unconstrained clock n7"
        nothing = {"type": "GND", "connections": {"G": [7]}, "port_directions": {"G": "output"}}
        assert rules(GOWIN_SOUND | {"ram": ram, "nothing": nothing}) == []


TIMING = {
    "utilization": {
        "TRELLIS_COMB": {"used": 41820, "available": 83640},
        "TRELLIS_FF": {"used": 100, "available": 83640},
        "MULT18X18D": {"used": 128, "available": 156},
        "DP16KD": {"used": 171, "available": 208},
    },
    "fmax": {"$glbnet$clock": {"achieved": 91.5, "constraint": 100.0}},
    "critical_paths": [
        {"from": "posedge clock", "to": "<async>", "path": [{"delay": 99.0}]},
        {
            "from": "posedge clock",
            "to": "posedge clock",
            "path": [
                {
                    "type": "clk-to-q",
                    "delay": 0.5,
                    "from": {"cell": "soc.pe2.x_TRELLIS_FF_Q"},
                    "to": {"cell": "soc.pe2.x_TRELLIS_FF_Q"},
                },
                {
                    "type": "routing",
                    "delay": 5.0,
                    "from": {"cell": "soc.pe2.x_TRELLIS_FF_Q"},
                    "to": {"cell": "soc.pe2.sum_CCU2C_S0$CCU2_COMB0"},
                    "net": "soc.pe2.x",
                },
            ],
        },
    ],
}


def test_timing_report_uses_names_of_design():
    used = resources(TIMING, ECP5_85F)
    assert used["luts"] == {"used": 41820, "available": 83640}
    assert used["multipliers"] == {"used": 128, "available": 156}
    assert spare_luts(used) == 0.5
    with pytest.raises(BuildError, match=r"80000 of 83640 LUTs .* less than 10% to spare"):
        spare_luts({"luts": {"used": 80000, "available": 83640}})
    assert clocks(TIMING) == {"clock": {"fmax_mhz": 91.5, "asked_mhz": 100.0}}
    path = critical_path(TIMING)
    assert [step["ns"] for step in path] == [0.5, 5.0]
    assert path[1]["from"] == "soc.pe2.x"
    assert path[1]["to"] == "soc.pe2.sum"
    assert path[1]["net"] == "soc.pe2.x"


def test_gowin_resources_count_sums_as_luts():
    used = {"LUT4": 1000, "ALU": 200, "RAM16SDP4": 10, "DFF": 700, "MULTALU27X18": 80, "BSRAM": 158}
    counted = {cell: {"used": n, "available": 10 * n} for cell, n in used.items()}
    counts = resources({"utilization": counted}, GW5AST_138)
    assert counts == {
        "luts": {"used": 1240, "available": 138240},
        "flip_flops": {"used": 700, "available": 7000},
        "multipliers": {"used": 80, "available": 298},
        "block_rams": {"used": 158, "available": 340},
    }


def test_build_figures_append_line_to_history(tmp_path):
    figures = {
        "board": "ulx3s-85f",
        "fingerprint": preset("ecp5-85f").fingerprint,
        "memory": "block",
        "stage": "pack",
        "clock_mhz": 48.0,
        "seed": 1,
        "resources": resources(TIMING, ECP5_85F),
        "fmax_mhz": 51.234,
        "seconds": {"yosys": 100.4, "nextpnr-ecp5": 200.4},
    }
    for label in ("one", "two"):
        runs.append(tmp_path / "lines", runs.run_of(figures, label))
    first, second = map(json.loads, (tmp_path / "lines").read_text().splitlines())
    assert (first["label"], second["label"]) == ("one", "two")
    assert first["luts"] == 41820 and first["block_rams"] == 171
    assert first["fmax_mhz"] == 51.23 and first["seconds"] == 301
    assert runs.Run(**first).complete and first["preset"] == "ecp5-85f"
    placed = runs.run_of(figures | {"stage": "place", "fingerprint": 7}, "")
    assert not placed.complete and placed.preset is None
    with pytest.raises(BuildError, match="cannot write to"):
        runs.append(tmp_path, runs.run_of(figures, "a folder"))


def test_run_of_an_estimate_counts_block_rams_of_18_kbit():
    counts = {"luts": 10.0, "flip_flops": 7.0, "multipliers": 4.0, "block_rams": 3.5}
    figures = {
        "board": "kv260",
        "fingerprint": 7,
        "stage": "synth",
        "clock_mhz": 100.0,
        "resources": {kind: {"used": used, "available": 99} for kind, used in counts.items()},
        "seconds": {"yosys": 100.4},
    }
    run = runs.run_of(figures, "label")
    assert (run.luts, run.block_rams, run.fmax_mhz, run.memory) == (10, 7, None, "")
    assert run.complete
    assert runs.run_of(figures | {"seconds": {"nextpnr-ecp5": 9.0}}, "label").seconds is None


def test_missing_timing_report_is_build_error(tmp_path):
    from trainwright_boards.report import read_timing

    with pytest.raises(BuildError, match="no report of place and route"):
        read_timing(tmp_path / "timing.json")


@pytest.mark.parametrize("check, told", [("proof", "proved to leave"), ("none", "NOT checked")])
def test_summary_tells_check_of_each_change(check, told):
    figures = {
        "bitstream": "top.bit",
        "bitstream_bytes": 7,
        "resources": {},
        "clocks": {},
        "crossings": [],
        "tiles": 1,
        "fmax_mhz": 61.0,
        "clock_mhz": 60.0,
        "timing_met": True,
        "critical_path": [],
        "seconds": {},
        "changes": [{"change": "spacers", "check": check, "cells": 1}],
    }
    (line,) = (line for line in summary(figures).splitlines() if "spacers" in line)
    assert line.startswith(f"  spacers: {told}")


@pytest.mark.parametrize(
    "command", (["build", "ulx3s-85f"], ["export", "arty-a7-35t", "--estimate"])
)
def test_command_without_a_label_has_an_empty_one(command, tmp_path, capsys):
    """Reach the check of a file: an empty default is no empty value of the user's."""
    status = main([*command, "--append", str(tmp_path / "missing" / "runs.jsonl")])
    assert status == 2 and "--append: cannot write to" in capsys.readouterr().err
