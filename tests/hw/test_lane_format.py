"""Number formats of lanes: words decoded, multiplied and summed by an array, and encoded."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from kept import Inputs

import trainwright_hw
from trainwright.formats import Fixed, Posit, parse_format
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.coded import CodedArithmetic
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.outer_array import OuterProductArray

PARAMETERS = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2, accumulator_width=40)
POSITS = (parse_format("posit(8,0)"), parse_format("posit(8,1)c"), parse_format("posit(6,1)"))
WIDE = {"left_width": 18, "right_width": 18, "accumulator_width": 44}
ARITHMETICS = {
    "fixed": FixedArithmetic(left_width=16, right_width=16, accumulator_width=40),
    "shifts": CodedArithmetic(formats=POSITS, **WIDE),
    "tables": CodedArithmetic(formats=POSITS, tables=True, **WIDE),
}


class Chain(wiring.Component):
    """Decoders, the array of PE1 and an encoder; the words of a row and of an entry come in."""

    def __init__(self, arithmetic):
        self._arithmetic = arithmetic
        lanes = PARAMETERS.lanes
        super().__init__(
            {
                "row": In(signed(16)).array(lanes),
                "row_format": In(2),
                "entry": In(signed(16)).array(lanes),
                "entry_format": In(2),
                "load": In(1),
                "load_row": In(range(PARAMETERS.pe1_rows)),
                "swap": In(1),
                "valid": In(1),
                "first": In(1),
                "shift": In(6),
                "out_width": In(5),
                "format": In(2),
                "word": Out(signed(16)).array(PARAMETERS.pe1_rows),
                "magnitude": Out(16),
            }
        )

    def elaborate(self, platform):
        m, arithmetic = Module(), self._arithmetic
        array = m.submodules.array = DotProductArray(PARAMETERS, arithmetic=arithmetic)
        encoder = m.submodules.encoder = arithmetic.encoder(
            lanes=PARAMETERS.pe1_rows, value_width=arithmetic.accumulator.width
        )
        row, invalid = arithmetic.decode(m, "row", list(self.row), self.row_format)
        entry, _ = arithmetic.decode(m, "entry", list(self.entry), self.entry_format)
        assert len(invalid) == PARAMETERS.lanes
        for lane in range(PARAMETERS.lanes):
            m.d.comb += [array.row[lane].eq(row[lane]), array.entry[lane].eq(entry[lane])]
        for name in ("load", "load_row", "swap", "valid", "first"):
            m.d.comb += getattr(array, name).eq(getattr(self, name))
        for name in ("shift", "out_width", "format"):
            if hasattr(encoder, name):
                m.d.comb += getattr(encoder, name).eq(getattr(self, name))
        m.d.comb += self.magnitude.eq(arithmetic.magnitude(encoder.word[0]))
        for index in range(PARAMETERS.pe1_rows):
            m.d.comb += [
                encoder.value[index].eq(array.value[index]),
                self.word[index].eq(encoder.word[index]),
            ]
        return m


@pytest.mark.parametrize("kind", ARITHMETICS)
def test_lane_dot_products_match_formats(kind):
    """Sums of three steps, each operand and the result of a format of its own."""
    arithmetic = ARITHMETICS[kind]
    dut, random = Chain(arithmetic), Random(kind)
    row_inputs, entry_inputs = Inputs(*dut.row), Inputs(*dut.entry)
    settings = Inputs(dut.row_format, dut.entry_format, dut.format, dut.shift, dut.out_width)
    choices = [(0, Fixed(8)), *enumerate(POSITS, 1)] if kind != "fixed" else [(0, Fixed(8))]

    def words(fmt, count):
        return [random.randint(-fmt.largest, fmt.largest) for _ in range(count)]

    async def pulse(ctx, **values):
        for _ in range(arithmetic.decode_cycles):
            await ctx.tick()
        for name, value in values.items():
            ctx.set(getattr(dut, name), value)
        await ctx.tick()
        for name in values:
            ctx.set(getattr(dut, name), 0)

    async def testbench(ctx):
        for _ in range(25):
            (x_select, x), (g_select, g), (z_select, z) = (random.choice(choices) for _ in range(3))
            shift = random.randrange(18)
            settings.set(ctx, x_select, g_select, z_select, shift, z.width)
            sums = np.zeros(PARAMETERS.pe1_rows, dtype=np.int64)
            for step in range(3):
                rows = [words(x, PARAMETERS.lanes) for _ in range(PARAMETERS.pe1_rows)]
                entry = words(g, PARAMETERS.lanes)
                sums += (x.decode(rows) * g.decode(entry)).sum(axis=1)
                for number, row in enumerate(rows):
                    row_inputs.set(ctx, *row)
                    await pulse(ctx, load=1, load_row=number)
                for _ in rows:  # the last row is loaded as many cycles later as it has rows above
                    await ctx.tick()
                entry_inputs.set(ctx, *entry)
                await pulse(ctx, swap=1, valid=1, first=step == 0)
            cycles = arithmetic.product_cycles + 3 + arithmetic.encode_cycles(PARAMETERS.pe1_rows)
            wanted = z.encode(sums, shift)[0].tolist()
            for _ in range(cycles - PARAMETERS.pe1_rows):
                await ctx.tick()
            assert ctx.get(dut.magnitude) == z.magnitude(np.array(wanted))[0]
            for word, want in zip(dut.word, wanted, strict=True):  # a cycle apart
                assert ctx.get(word) == want, (str(x), str(g), str(z))
                await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


@pytest.mark.parametrize("kind", ARITHMETICS)
def test_lane_outer_products_match_formats(kind):
    """The array of PE2 at the operands' full widths."""
    arithmetic = ARITHMETICS[kind]
    dut, random = OuterProductArray(PARAMETERS, arithmetic=arithmetic), Random(kind)
    lanes, rows = PARAMETERS.lanes, PARAMETERS.pe2_rows
    width = arithmetic.left_width
    limit, wrap = 1 << (width - 1), 1 << arithmetic.accumulator_width
    inputs = Inputs(*dut.g_row, *dut.x_row, dut.valid, dut.last)

    async def testbench(ctx):
        sums = [[0] * lanes for _ in range(rows)]
        for step in range(5):
            x, g = ([random.randrange(-limit, limit) for _ in range(lanes)] for _ in range(2))
            inputs.set(ctx, *g, *x, 1, step == 4)
            for lane in range(lanes):
                for row in range(rows):
                    sums[row][lane] += x[lane] * g[row]
            await ctx.tick()
        ctx.set(dut.valid, 0)
        for _ in range(arithmetic.product_cycles + 1 + lanes):
            await ctx.tick()
        for row in range(rows):
            ctx.set(dut.row, row)
            for _ in range(lanes):
                await ctx.tick()
            got = [ctx.get(value) for value in dut.value]
            assert got == [(s + wrap // 2) % wrap - wrap // 2 for s in sums[row]]

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def test_formats_that_operands_do_not_hold():
    with pytest.raises(ValueError, match=r"integers of posit\(8,1\) have 26 bits, operands 18"):
        CodedArithmetic(formats=(Posit(8, 1),), **WIDE)
    with pytest.raises(ValueError, match="stochastic rounding works with fixed point only"):
        CodedArithmetic(formats=POSITS, with_random=True, **WIDE)
    with pytest.raises(ValueError, match="value_width must be from 18"):
        CodedArithmetic(formats=POSITS, **WIDE | {"accumulator_width": 16})
    with pytest.raises(ValueError, match="1 to 4 tables, not 5"):
        CodedArithmetic(formats=(POSITS[0],) * 5, tables=True, **WIDE)


SEVERAL = "posit(8,0),posit(7,0),posit(6,0),posit(5,0),posit(4,0)"
"""More than a block RAM holds."""


@pytest.mark.parametrize(
    "formats", ("", "posit(8,0),posit(8,1)c", SEVERAL), ids=("fixed", "tables", "shifts")
)
@pytest.mark.parametrize("word_width", (8, 16))
def test_lanes_have_the_words_of_their_accelerator(word_width, formats):
    p = replace(PARAMETERS, word_width=word_width, formats=formats, accumulator_width=48)
    arithmetic = lane_format(p)
    assert arithmetic.left.width == p.operand_width
    m, words = Module(), [Signal(signed(word_width)) for _ in range(2)]
    values, _ = arithmetic.decode(m, "words", words, Signal(3))
    dut = arithmetic.encoder(lanes=1, value_width=48)
    m.submodules.encoder = dut
    assert len(dut.word[0]) == word_width

    async def testbench(ctx):
        ctx.set(words[0], -3)
        ctx.set(words[1], -(1 << word_width - 1))
        await ctx.tick().repeat(3)
        assert [ctx.get(value) for value in values] == [-3, -(1 << word_width - 1)]

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def test_signedness_is_decided_in_one_place():
    """Words are plain bits everywhere else."""
    package = Path(trainwright_hw.__file__).parent
    lines = [
        f"{path.relative_to(package).as_posix()}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text().splitlines()
        if "as_signed" in line
    ]
    assert lines == ["arith/fixed.py: return bits.as_signed()"]
