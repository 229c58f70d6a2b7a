"""Netlists of three families, with models of their cells, compute the same bits.

yosys makes those of an ECP5 and a GW5A; for an UltraScale+ device the design is exported.
"""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from accelerators import Untraced

from trainwright.accelerator import AcceleratorError
from trainwright.check.step import check_step
from trainwright.check.training import check_training
from trainwright.cli.options import with_formats
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program, Transfer
from trainwright.program.fields import Engine, Operation
from trainwright.support.native.cache import Cache
from trainwright_sim.backend import RtlAccelerator
from trainwright_sim.netlist import built, ecp5, gowin, xcup

SMALL = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)


POSITS = "factor=posit(4,0),activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c"
STEPS = {
    "ecp5": (ecp5, {}, None),
    "gw5a": (gowin, {}, None),
    "xcup": (xcup, {"word_width": 8}, "intermediate=fixed(8),gradient=fixed(8)"),
    "ecp5-posits": (
        ecp5,
        {"formats": "posit(4,0),posit(8,0),posit(8,1)c", "accumulator_width": 44},
        POSITS,
    ),
    "ecp5-digits": (
        ecp5,
        {"word_width": 8, "wide_tensors": 1, "factor_width": 8},
        "l1.G2=fixed(12),intermediate=fixed(9),gradient=fixed(12)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_netlist_step_of_digits_is_exact(step):
    family, changes, formats = STEPS[step]
    network = load_network("digits")
    if formats is not None:
        network = with_formats(network, formats)
    parameters = replace(SMALL, **changes)
    batch = 4
    seed = random.Random(batch).randrange(1000)
    with RtlAccelerator(
        parameters,
        memory_bytes=1 << 20,
        design=family.netlist_rtlil,
        trace=False,
        watchdog_cycles=200_000,
    ) as netlist:
        outcome = check_step(network, batch, Untraced(netlist), seed=seed)
        assert outcome.comparison.mismatches == {}
        assert outcome.comparison.values > 1000
        cycles = outcome.counters.cycles
    with RtlAccelerator(parameters, memory_bytes=1 << 20, trace=False) as rtl:
        outcome = check_step(network, batch, Untraced(rtl), seed=seed)
        assert outcome.comparison.mismatches == {}
        assert outcome.counters.cycles == cycles


CHIP = AcceleratorParameters(
    pe1_rows=2, pe2_rows=2, vector_engine=1, engine_lanes=1, exponents=64, sample_loads=1
)


@pytest.mark.slow
def test_netlist_resident_step_is_exact():
    """Samples, forward, loss, backward, update, prior, scales by one start; a test set."""
    network = load_network("digits").with_ranks(((5,), (7,)))
    cycles = []
    for design in (ecp5.netlist_rtlil, None):
        with RtlAccelerator(
            CHIP, memory_bytes=1 << 20, trace=False, **({"design": design} if design else {})
        ) as netlist:
            result = check_training(network, 16, Untraced(netlist), seed=3, steps=1)
        assert result.comparison.mismatches == {} and result.host_writes == 0
        assert result.comparison.values > 60_000
        cycles.append(result.counters.cycles)
    assert cycles[0] == cycles[1]


def _posit_program(p: AcceleratorParameters) -> tuple[Program, int]:
    """Return a program for both arrays and the vector unit, and the operands' address.

    Operands and results have different formats.
    """
    compute = {"wait": Engine.ALL, "z_row_stride": 1, "shift": 14, "underflow_zero": True}
    by_row = {"levels": (Level(4, x=1, g=1, z=1),), "tile_level": 0}
    tile = {"levels": (Level(2, x=2, z=2), Level(3, x=4, g=4)), "reduce_levels": 1, "last_rows": 2}
    words = 0x1000
    commands = (
        Transfer(operation=Operation.LOAD, address=words, local=0, beats=256),
        Compute(operation=Operation.PE4, x=0, g=80, z=512, x_row_stride=1, g_row_stride=1,
                x_format=2, g_format=1, z_format=1, slot=0, **tile, **compute),
        Compute(operation=Operation.PE4, x=0, g=64, z=516, x_row_stride=1, g_row_stride=1,
                x_format=1, g_format=2, z_format=2, slot=1, **tile, **compute),
        Compute(operation=Operation.PE3, x=0, g=64, z=520, x_format=2, g_format=1, z_format=1,
                slot=2, **tile, **compute),
        Compute(operation=Operation.BIAS, x=0, g=8, z=524, x_format=1, g_format=2, z_format=2,
                x_shift=3, slot=3, **by_row, **compute),
        Compute(operation=Operation.MASK, x=0, g=8, z=528, x_format=2, g_format=1, slot=4,
                **by_row, **compute),
        Transfer(operation=Operation.STORE, address=0x3000, local=512, beats=40, wait=Engine.ALL),
        Halt(),
    )  # fmt: skip
    return Program(commands, p.fingerprint), words


@pytest.mark.slow
def test_posits_on_the_netlist_are_exact():
    """Tables in block RAM have their contents."""
    p = replace(SMALL, formats="posit(8,0),posit(8,1)c", accumulator_width=44)
    program, words = _posit_program(p)
    data = np.random.default_rng(1).integers(-115, 116, 1024).astype("<i2").view(np.uint8)
    golden = GoldenAccelerator(p, memory_bytes=1 << 14)
    design = ecp5.netlist_rtlil
    with RtlAccelerator(p, memory_bytes=1 << 14, design=design, trace=False) as netlist:
        runs = []
        for accelerator in (golden, netlist):
            accelerator.write(words, data)
            runs.append(accelerator.run(program, 0))
        want, got = runs
        for name in ("sums", "saturations", "underflows"):
            assert getattr(want, name).tolist() == getattr(got, name).tolist()
        assert want.underflows.any()
        assert np.array_equal(golden.read(0x3000, 320), netlist.read(0x3000, 320))
        assert golden.read(0x3000, 320).any()


# --- the netlist of a build -----------------------------------------------------------------------


def _cell(kind: str, inputs: dict, outputs: dict, **parameters: str) -> dict:
    return {
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output"),
        "connections": {pin: [net] for pin, net in (inputs | outputs).items()},
    }


def _folder(tmp_path, **system: object):
    """Write a board whose line sends back its input a cycle later."""
    pins = {"CLK": 10, "DI": 3, "LSR": "0"}
    cells = {
        "pll": _cell("EHXPLLL", {"CLKI": 2, "CLKFB": 10}, {"CLKOP": 10}),
        "copy": _cell("TRELLIS_FF", pins, {"Q": 4}, CEMUX="1 ", GSR="DISABLED", REGSET="SET"),
        "lut": _cell("LUT4", {"A": 4, "B": "0"}, {"Z": 5}, INIT="0101010101010101"),
    }
    ways = {"clk_in": ("input", 2), "rx": ("input", 3), "tx": ("output", 4), "lamp": ("output", 5)}
    module = {
        "cells": cells,
        "ports": {name: {"direction": way, "bits": [bit]} for name, (way, bit) in ways.items()},
        "netnames": {"copy": {"bits": [4], "attributes": {}}},
    }
    (tmp_path / built.NETLIST).write_text(json.dumps({"modules": {"top": module}}))
    known = {"family": "ecp5", "memory": "block", "clock_hz": 60_000_000, "divisor": 20}
    (tmp_path / built.SYSTEM).write_text(json.dumps(known | system))
    return tmp_path


def test_netlist_of_build_has_ports_of_board(tmp_path):
    text = built.netlist_rtlil(_folder(tmp_path), Cache(tmp_path / "cache"))
    ports = re.findall(r"wire (input|output) \d+ +\\(\w+)$", text, re.MULTILINE)
    inputs = {name for way, name in ports if way == "input"}
    assert inputs == {"clk", "rst", "rx"}
    assert {name for _, name in ports} - inputs == {"tx", "interrupt"}
    assert "TRELLIS_FF" not in text and "EHXPLLL" not in text
    assert len(re.findall(r"cell \$\w*dff", text)) == 1


def test_netlist_board_rejects_unusable_folder(tmp_path):
    with pytest.raises(ValueError, match="name the build's folder"):
        built.NetlistBoard(SMALL)
    with pytest.raises(AcceleratorError, match=r"no netlist to simulate.*trainwright build BOARD"):
        built.NetlistBoard(SMALL, target=str(tmp_path))
    for system in ({"family": "gw5a"}, {"memory": "sdram"}):
        folder = str(_folder(tmp_path, **system))
        with pytest.raises(AcceleratorError, match="only netlists of an ECP5 with block RAM"):
            built.NetlistBoard(SMALL, target=folder)


def test_zeros_are_not_sent_where_the_memory_begins_as_them(monkeypatch):
    sent = []
    monkeypatch.setattr(
        built.LinkAccelerator,
        "write",
        lambda self, address, data: sent.append((address, data.size)),
    )
    monkeypatch.setattr(built.LinkAccelerator, "run", lambda self, *_, **__: None)
    board = built.NetlistBoard.__new__(built.NetlistBoard)
    board._known = np.zeros(64, bool)
    zeros, ones = np.zeros(16, np.uint8), np.ones(16, np.uint8)
    board.write(0, zeros)
    board.write(16, ones)
    board.write(8, zeros)
    board.write(40, zeros)
    assert sent == [(16, 16), (8, 16)]
    board.run(None, 0)
    board.write(40, zeros)
    assert sent[2:] == [(40, 16)]
