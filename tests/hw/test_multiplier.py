"""Multipliers that are primitives of a device."""

import re
from random import Random

import pytest
from amaranth.hdl import Elaboratable, Module, Signal, signed, unsigned
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.multiplier import FAMILIES, DevicePlatform, registered_product
from trainwright_hw.build.convert import design_to_rtlil, to_rtlil

PRIMITIVES = {"ecp5": ("MULT18X18D", 18, 18), "gw5a": ("MULTALU27X18", 27, 18)}
REGISTERS = {
    "ecp5": ("REG_INPUTA_CE", "REG_INPUTB_CE", "REG_OUTPUT_CE"),
    "gw5a": ("AREG_CE", "BREG_CE", "PREG_CE"),
}
"""What enables the operands' registers and that of the product."""
ENABLES = {"ecp5": ("CE0", "CE3"), "gw5a": ("CE0", "CE1")}
"""That of the left operand; the one that is always high."""
SMALL = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2)


class Product(Elaboratable):
    """One product."""

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
@pytest.mark.parametrize("family", FAMILIES)
def test_a_product_is_one_primitive_with_its_registers(family, held):
    text = rtlil(family, 17, 16, held=held)
    primitive, *_ = PRIMITIVES[family]
    assert len(re.findall(rf"cell \\{primitive} ", text)) == 1
    assert not re.search(r"cell \$(mul|dff|add)", text)
    left, always = ENABLES[family]
    for register, enable in zip(
        REGISTERS[family], (left if held else always, always, always), strict=True
    ):
        assert f'parameter \\{register} "{enable}"' in text


@pytest.mark.parametrize("family", FAMILIES)
def test_raw_words_are_signed(family):
    """Rows of the scratchpad carry no sign in their shape."""
    texts = [rtlil(family, 16, 16, held=False, raw=raw) for raw in (False, True)]
    assert texts[0] != texts[1]
    shapeless = [re.sub(r"^( *wire .*) signed ", r"\1 ", text, flags=re.M) for text in texts]
    assert shapeless[0] == shapeless[1]


@pytest.mark.parametrize("family", FAMILIES)
def test_operands_that_are_too_wide_are_named(family):
    _, left, right = PRIMITIVES[family]
    assert rtlil(family, left, right, held=False)
    for widths in ((left + 1, right), (left, right + 1)):
        operands = [Signal(signed(width)) for width in widths]
        with pytest.raises(ValueError, match=rf"operands of {widths[0]} and {widths[1]} bits"):
            FAMILIES[family](None, "it", *operands)  # before anything is added to a module


@pytest.mark.parametrize("family", FAMILIES)
def test_every_product_of_an_accelerator_is_a_primitive(family):
    text = to_rtlil(SMALL, target=DevicePlatform(family))
    primitive, *_ = PRIMITIVES[family]
    assert text.count(f"cell \\{primitive} ") == SMALL.multipliers + 2 * SMALL.lanes


def test_without_a_target_an_accelerator_has_no_primitive():
    text = to_rtlil(SMALL)
    assert not any(f"cell \\{primitive} " in text for primitive, *_ in PRIMITIVES.values())


def test_a_family_that_there_is_not():
    with pytest.raises(ValueError, match="no family 'zx81'; there are ecp5, gw5a"):
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
