"""Multipliers that are primitives of a device."""

import re
from dataclasses import replace
from random import Random

import pytest
from amaranth.hdl import C, Cat, Elaboratable, Module, Signal, signed, unsigned
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.multiplier import PRIMITIVES as MAKERS
from trainwright_hw.arith.multiplier import DevicePlatform, registered_product
from trainwright_hw.build.convert import design_to_rtlil, to_rtlil
from trainwright_hw.vendor import ecp5_logic

PRIMITIVES = {"ecp5": ("MULT18X18D", 18, 18), "gw5a": ("MULTALU27X18", 27, 18)}
REGISTERS = {
    "ecp5": ("REG_INPUTA_CE", "REG_INPUTB_CE", "REG_OUTPUT_CE"),
    "gw5a": ("AREG_CE", "BREG_CE", "PREG_CE"),
}
"""Enables of the registers of operands and product."""
ENABLES = {"ecp5": ("CE0", "CE3"), "gw5a": ("CE0", "CE1")}
"""Enable of the left operand, and the constant enable."""
SMALL = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2)


class Product(Elaboratable):
    """Single product."""

    def __init__(self, left: int, right: int, *, held: bool, raw: bool = False):
        shape = unsigned if raw else signed
        self.left, self.right = Signal(shape(left)), Signal(shape(right))
        self.enable, self.product = Signal(), Signal(signed(left + right))
        self._held = held

    def elaborate(self, platform) -> Module:
        m = Module()
        enable = self.enable if self._held else None
        product = registered_product(m, platform, "it", self.left, self.right, left_enable=enable)
        m.d.comb += self.product.eq(product)
        return m


def rtlil(family: str, left: int, right: int, *, held: bool, raw: bool = False) -> str:
    design = Product(left, right, held=held, raw=raw)
    ports = [design.left, design.right, design.enable, design.product]
    return design_to_rtlil(design, ports, name="top", target=DevicePlatform(family))


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("family", MAKERS)
def test_product_maps_to_primitive_with_registers(family, held):
    text = rtlil(family, 17, 16, held=held)
    primitive, *_ = PRIMITIVES[family]
    assert len(re.findall(rf"cell \\{primitive} ", text)) == 1
    assert not re.search(r"cell \$(mul|dff|add)", text)
    left, always = ENABLES[family]
    for register, enable in zip(
        REGISTERS[family], (left if held else always, always, always), strict=True
    ):
        assert f'parameter \\{register} "{enable}"' in text


@pytest.mark.parametrize("family", MAKERS)
def test_raw_words_are_signed(family):
    """Rows of the scratchpad carry no sign in their shape."""
    texts = [rtlil(family, 16, 16, held=False, raw=raw) for raw in (False, True)]
    assert texts[0] != texts[1]
    shapeless = [re.sub(r"^( *wire .*) signed ", r"\1 ", text, flags=re.M) for text in texts]
    assert shapeless[0] == shapeless[1]


@pytest.mark.parametrize("family", MAKERS)
def test_operands_that_are_too_wide_are_named(family):
    _, left, right = PRIMITIVES[family]
    assert rtlil(family, left, right, held=False)
    for widths in ((left + 1, right), (left, right + 1)):
        operands = [Signal(signed(width)) for width in widths]
        with pytest.raises(ValueError, match=rf"operands of {widths[0]} and {widths[1]} bits"):
            MAKERS[family](None, "it", *operands)  # before anything is added to a module


@pytest.mark.parametrize(
    "family",
    # each family's maker has tests of its own above; converting an accelerator takes 3 s
    [pytest.param(f, marks=[pytest.mark.slow] if n else []) for n, f in enumerate(MAKERS)],
)
def test_every_product_of_an_accelerator_is_a_primitive(family):
    text = to_rtlil(SMALL, target=DevicePlatform(family))
    primitive, *_ = PRIMITIVES[family]
    assert text.count(f"cell \\{primitive} ") == SMALL.multipliers + 2 * SMALL.lanes


def test_ecp5_makes_every_second_narrow_product_of_logic():
    p = replace(SMALL, pe1_rows=2, word_width=8)
    text = to_rtlil(p, target=DevicePlatform("ecp5"))
    assert text.count("cell \\MULT18X18D ") == p.device_multipliers == 8 + 4


class Ccu2c(Elaboratable):
    """A CCU2C as yosys simulates it."""

    def __init__(self, kind: str, **ports):
        assert kind == "CCU2C" and ports["p_INJECT1_0"] == ports["p_INJECT1_1"] == "NO"
        self._ports = ports

    def elaborate(self, platform) -> Module:
        m, carry = Module(), self._ports["i_CIN"]
        for half in "01":
            pins = [self._ports[f"i_{pin}{half}"] for pin in "ABCD"]
            table = C(self._ports[f"p_INIT{half}"], 16)
            lut4, lut2 = table.bit_select(Cat(*pins), 1), table.bit_select(Cat(*pins[:2]), 1)
            m.d.comb += self._ports[f"o_S{half}"].eq(lut4 ^ carry)
            carry = (~lut4 & lut2) | (lut4 & carry)
        m.d.comb += self._ports["o_COUT"].eq(carry)
        return m


@pytest.mark.parametrize("left, right", [(8, 8), (9, 8), (7, 4)])
def test_product_of_carry_chains_is_exact(monkeypatch, left, right):
    monkeypatch.setattr(ecp5_logic, "Instance", Ccu2c)
    random = Random(f"chains {left} {right}")
    a, b, enable = Signal(signed(left)), Signal(signed(right)), Signal()
    m = Module()
    product = ecp5_logic.chain_product(m, "it", a, b, left_enable=enable)
    least = [-(1 << (width - 1)) for width in (left, right)]
    corners = [[low, low + 1, -1, 0, 1, -low - 1] for low in least]

    async def testbench(ctx):
        held, due = 0, [0, 0]
        for number in range(600):
            values = [
                random.choice(corner) if number % 2 else random.randrange(low, -low)
                for corner, low in zip(corners, least, strict=True)
            ]
            take = random.random() < 0.8
            for port, value in zip((a, b, enable), (*values, take), strict=True):
                ctx.set(port, value)
            held = values[0] if take else held
            due.append(held * values[1])
            await ctx.tick()
            assert ctx.get(product) == due[-2]

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


def test_operands_that_carry_chains_do_not_multiply():
    for widths in ((10, 8), (8, 10), (8, 7)):
        a, b = (Signal(signed(width)) for width in widths)
        with pytest.raises(
            ValueError, match=f"operands of {widths[0]} and {widths[1]} bits: carry"
        ):
            ecp5_logic.chain_product(None, "it", a, b)  # before anything is added


def test_device_platform_of_unknown_family_names_known_ones():
    known = "ecp5, gw5a, nexus, xcup, xc7"
    with pytest.raises(ValueError, match=f"no family 'zx81'; there are {known}"):
        DevicePlatform("zx81")


@pytest.mark.parametrize("held", [True, False])
def test_without_a_target_it_has_the_same_two_cycles(held):
    random = Random(f"product {held}")
    dut = Product(17, 16, held=held)
    lefts, products = [0], [0, 0]

    async def testbench(ctx):
        for _ in range(200):
            left, right, enable = (random.getrandbits(n) for n in (17, 16, 1))
            left, right = left - (1 << 16), right - (1 << 15)
            for port, value in ((dut.left, left), (dut.right, right), (dut.enable, enable)):
                ctx.set(port, value)
            lefts.append(left if enable or not held else lefts[-1])
            products.append(lefts[-1] * right)
            await ctx.tick()
            assert ctx.get(dut.product) == products[-2]

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()
