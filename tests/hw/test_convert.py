import re

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Out

from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import component_to_rtlil, port_list, rtlil_to_verilog, to_rtlil

LEAST = {
    "lanes": 4,
    "pe1_rows": 2,
    "pe2_rows": 2,
    "factor_width": 2,
    "accumulator_width": 24,
    "scratchpad_banks": 1,
    "scratchpad_rows": 16,
    "pe1_store_depth": 16,
    "pe2_store_depth": 16,
    "program_depth": 1,
    "statistics_depth": 1,
    "nest_levels": 3,
    "loop_depth": 1,
    "burst_beats": 1,
    "outstanding_bursts": 1,
}
CORNERS = {
    "least": LEAST,
    "most": LEAST
    | {
        "lanes": 8,
        "pe1_rows": 8,
        "pe2_rows": 8,
        "factor_width": 16,
        "accumulator_width": 48,
        "scratchpad_banks": 16,
        "scratchpad_rows": 1024,
        "program_depth": 4096,
        "statistics_depth": 256,
        "nest_levels": 10,
        "loop_depth": 8,
        "burst_beats": 256,
        "outstanding_bursts": 64,
    },
}


@pytest.mark.parametrize("name, trace", (("least", False), ("most", True)))
def test_corner_parameters_convert(name, trace):
    parameters = AcceleratorParameters(**CORNERS[name])
    text = rtlil_to_verilog(to_rtlil(parameters, trace=trace))
    head = text[text.index("module trainwright(") :]
    head = head[: head.index(";")].replace("\n", " ")
    found = {name.strip() for name in head[head.index("(") + 1 : head.index(")")].split(",")}
    assert found == {port["name"] for port in port_list(parameters, trace=trace)}


def test_no_element_is_named_like_a_bit():
    """For a device, as yosys takes ``row[3]`` for a bit of ``row`` after ``abc9``."""
    parameters = AcceleratorParameters(**LEAST)
    named = re.compile(r"\\\S*row(?:\$\d+)?(\[\d+\]|\.\d+)\s")
    for target, mark in ((None, "["), (DevicePlatform("gw5a"), ".")):
        text = to_rtlil(parameters, target=target)
        assert {found[1][0] for found in named.finditer(text)} == {mark}
        assert bool(re.search(r"\S\[\d+\]", text)) == (target is None)


class Tables(wiring.Component):
    """Two memories that are read, with initial contents and without."""

    first: Out(4)
    second: Out(4)

    def elaborate(self, platform) -> Module:
        m = Module()
        for port, init in ((self.first, [0, 9]), (self.second, [])):
            memory = Memory(shape=4, depth=2, init=init)
            m.submodules += memory
            m.d.comb += port.eq(memory.read_port(domain="comb").data)
        return m


def test_zeros_in_memories_are_left_out():
    """And what else a memory begins with is not."""
    text = component_to_rtlil(Tables())
    assert len(re.findall(r"^\s+memory width 4 size 2 ", text, re.MULTILINE)) == 2
    assert re.findall(r"cell \$meminit_v2 .*?DATA (\S+)", text, re.DOTALL) == ["8'10010000"]


def memory_bits(parameters: AcceleratorParameters) -> int:
    """Bits of the memories in the converted design."""
    cells = re.findall(r"^\s+memory width (\d+) size (\d+) ", to_rtlil(parameters), re.MULTILINE)
    return sum(int(width) * int(size) for width, size in cells)


@pytest.mark.parametrize("name", CORNERS)
def test_every_memory_is_counted(name):
    parameters = AcceleratorParameters(**CORNERS[name])
    assert parameters.on_chip_bits == memory_bits(parameters)


QUICK = ("zu3eg", "ecp5-85f", "gw5ast-138c")
"""A preset of every family of devices."""


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS],
)
def test_every_memory_of_a_preset_is_counted(name):
    assert preset(name).on_chip_bits == memory_bits(preset(name))
