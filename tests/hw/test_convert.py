import inspect
import re
from functools import cache
from itertools import product

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.parameters import PRESETS, AcceleratorParameters, preset
from trainwright_hw.accelerator import accelerator_signature
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.amaranth_text import rtlil_text
from trainwright_hw.build.convert import (
    ConversionError,
    component_to_rtlil,
    flat_ports,
    rtlil_to_verilog,
    to_rtlil,
)
from trainwright_hw.compute.pe2.fetch import OperandFetch
from trainwright_hw.control.exponent_file import ExponentFile

LEAST = {
    "lanes": 4,
    "pe1_rows": 2,
    "pe2_rows": 2,
    "accumulator_width": 24,
    "scratchpad_banks": 1,
    "scratchpad_rows": 16,
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
    "bytes": LEAST | {"word_width": 8},
    "digits": LEAST
    | {"word_width": 8, "wide_tensors": True, "scratchpad_banks": 2, "scratchpad_rows": 32},
    "resident": LEAST | {"vector_engine": 1, "engine_lanes": 1, "exponents": 64, "sample_loads": 1},
}


converted = cache(to_rtlil)
"""Corners are asked for more than once."""


@pytest.mark.parametrize(
    "name, trace", (pytest.param("least", False, marks=pytest.mark.slow), ("most", True))
)
def test_corner_parameters_convert(name, trace):
    parameters = AcceleratorParameters(**CORNERS[name])
    text = rtlil_to_verilog(converted(parameters, trace=trace))
    head = text[text.index("module trainwright(") :]
    head = head[: head.index(";")].replace("\n", " ")
    ports = {name.strip() for name in head[head.index("(") + 1 : head.index(")")].split(",")}
    signature = accelerator_signature(parameters, trace=trace)
    assert ports == {"clk", "rst"} | flat_ports(signature, signature.create()).keys()
    assert not re.search(r"\[-1:0\]|\{0\{|\b0'", text), "something is of no bits"


def test_no_element_is_named_like_a_bit():
    """For a device, as yosys takes ``row[3]`` for a bit of ``row`` after ``abc9``."""
    parameters = AcceleratorParameters(**LEAST)
    named = re.compile(r"\\\S*row(?:\$\d+)?(\[\d+\]|\.\d+)\s")
    platform = DevicePlatform("gw5a")
    texts = converted(parameters, trace=False), to_rtlil(parameters, target=platform)
    for target, text, mark in ((None, texts[0], "["), (platform, texts[1], ".")):
        assert {match[1][0] for match in named.finditer(text)} == {mark}
        assert bool(re.search(r"\S\[\d+\]", text)) == (target is None)


def test_accelerator_without_a_target_has_no_primitive():
    text = converted(AcceleratorParameters(**LEAST), trace=False)
    assert "cell $mul " in text
    assert not re.search(r"cell \\(MULT\w+|DSP\w+)", text)


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


def test_exponent_file_keeps_the_zeros_of_its_exponents():
    """Slot 0 is read as 0 and never written; `above` is written before it is read."""
    text = component_to_rtlil(ExponentFile(AcceleratorParameters(exponents=16, vector_engine=1)))
    contents = re.findall(r"cell \$meminit_v2 .*?DATA (\S+)", text, re.DOTALL)
    assert contents == [f"{16 * 8}'" + 16 * 8 * "0"]


def _numbered(text: str) -> str:
    """Number the private names of RTLIL by first use."""
    numbers: dict[str, str] = {}
    return re.sub(r"(?<= )\$\d+", lambda m: numbers.setdefault(m[0], f"$n{len(numbers)}"), text)


def test_amaranth_still_writes_contents_where_they_are_left_out():
    """Patched method exists, takes its usual arguments, and only writes contents."""
    taken = [*inspect.signature(rtlil.ModuleEmitter.emit_memory).parameters]
    assert taken == ["self", "cell_idx", "cell"]
    lines = r"(?:    .*\n)*?"
    contents = rf"  cell \$meminit_v2 \$\d+\n{lines}    connect \\DATA 8'(\d+)\n{lines}  end\n\n"
    whole = rtlil.convert(Tables(), name="top", emit_src=False)
    assert re.findall(contents, whole) == ["10010000", "00000000"]
    without = re.sub(contents, lambda m: m[0] if "1" in m[1] else "", whole)
    assert _numbered(rtlil_text(Tables(), name="top")) == _numbered(without)
    assert rtlil.convert(Tables(), name="top", emit_src=False) == whole


class Port(wiring.Signature):
    def __init__(self):
        super().__init__({"row": Out(4)})


def _component(members: dict[str, wiring.Member]) -> wiring.Component:
    class Made(wiring.Component):
        def elaborate(self, platform) -> Module:
            return Module()

    return Made(members)


def test_ports_that_would_have_the_same_name_are_refused():
    both = wiring.Signature({"x": Out(Port()), "x_row": Out(4)})
    with pytest.raises(ConversionError, match=r"ports x\.row and x_row would both be named x_row"):
        flat_ports(both, both.create())
    clock = _component({"clk": In(1)})
    with pytest.raises(ConversionError, match="port clk has the name of the top's own"):
        component_to_rtlil(clock, registered_reset=True)
    assert "input" in component_to_rtlil(clock), "the name is free without a clock of the top's"


def test_undriven_output_stays_output_in_rtlil():
    text = component_to_rtlil(_component({"x": Out(Port()), "y": In(4)}))
    directions = {name: kind for kind, name in re.findall(r"wire width 4 (\w+) \d+ +\\(\w+)", text)}
    assert directions == {"x_row": "output", "y": "input"}


def test_operand_fetch_keeps_every_port():
    """Operands' ports, and rows that fetching reads."""
    text = component_to_rtlil(OperandFetch(AcceleratorParameters(**LEAST)), name="fetch")
    top = text[text.index("\nmodule \\fetch\n") :]
    for direction, name in (("input", "x_row"), ("output", "x_operand")):
        assert re.search(rf"wire width \d+ {direction} \d+ +\\{name}\n", top)


def memory_bits(parameters: AcceleratorParameters, *, trace: bool = False) -> int:
    """Count the bits of the memories in the converted design."""
    text = converted(parameters, trace=trace)
    cells = re.findall(r"^\s+memory width (\d+) size (\d+) ", text, re.MULTILINE)
    return sum(int(width) * int(size) for width, size in cells)


QUICK = {("most", ""), ("least", "posit(10,0)")}
"""Corners that the default suite has, and their formats."""


@pytest.mark.parametrize(
    "name, formats",
    [
        pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
        for pair in product(CORNERS, ("", "posit(8,0),posit(8,1)c", "posit(10,0)"))
        # Digits and the vector engine are of fixed point alone.
        if not pair[1] or not {"word_width", "vector_engine"} & CORNERS[pair[0]].keys()
    ],
)
def test_every_memory_is_counted(name, formats):
    """With traces, which have no memory, where the design is converted with them anyway."""
    parameters = AcceleratorParameters(**CORNERS[name] | {"formats": formats})
    trace = (name, formats) == ("most", "")
    assert parameters.on_chip_bits == memory_bits(parameters, trace=trace)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in PRESETS],
)
def test_every_memory_of_a_preset_is_counted(name):
    assert preset(name).on_chip_bits == memory_bits(preset(name))
