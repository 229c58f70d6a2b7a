"""Blocks whose LUTs and clock are measured: fixed point and posits side by side."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from amaranth.hdl import Elaboratable, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.formats import Posit
from trainwright.parameters import AcceleratorParameters
from trainwright_boards.lanes.significand import SignificandMac
from trainwright_hw.arith.coded import CodedArithmetic
from trainwright_hw.arith.decoder import RomDecoder, ShiftDecoder
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.outer_array import OuterProductArray

POSITS = (Posit(8, 0), Posit(8, 1, clamped=True))
FIXED = FixedArithmetic(left_width=16, right_width=16, accumulator_width=36)
POSIT = CodedArithmetic(formats=POSITS, left_width=18, right_width=18, accumulator_width=44)
NARROW = FixedArithmetic(left_width=8, right_width=8, accumulator_width=28, word_width=8)
FIXED_NAME = "fixed(16)"
NARROW_NAME = "fixed(8)"
POSIT_NAME = " + ".join(("fixed(16)", *map(str, POSITS)))
ARRAYS = AcceleratorParameters(lanes=8, pe1_rows=8, pe2_rows=8, accumulator_width=36)
"""Parameters of arrays of 8 x 8 multipliers."""
NARROW_ARRAYS = replace(ARRAYS, word_width=8, accumulator_width=28)
SIGNIFICANDS = (Posit(8, 1), Posit(8, 2))
"""Formats of measured lanes that shift significands: posit(8,1), and the one of the unit PDPU."""
MORE_LANES = 4
"""Lanes of a second encoder: less the first one, they give the figures of a further lane."""


@dataclass(frozen=True)
class Block:
    """Circuit to build; its figures are divided by the number of its units."""

    name: str
    formats: str
    build: Callable[[], wiring.Component]
    units: int = 1
    less: Callable[[], wiring.Component] | None = None
    """Circuit whose figures are subtracted first, such as the settings that all lanes share."""
    placed: bool = False
    """Whether the circuit is placed for its clock: arrays have more than an LFE5U-25F's 28
    multipliers."""


class Mac(wiring.Component):
    """A multiply-accumulator.

    ``valid`` adds the product of ``left`` and ``right`` from two cycles before to ``total``;
    ``first`` begins a new sum.
    """

    def __init__(self, arithmetic: FixedArithmetic):
        self._arithmetic = arithmetic
        super().__init__(
            {
                "left": In(arithmetic.left),
                "right": In(arithmetic.right),
                "valid": In(1),
                "first": In(1),
                "total": Out(arithmetic.accumulator),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build a cell of PE2's array: the reset leaves accumulators alone.

        A reset would cost a LUT that merges the reset with ``first``.
        """
        m, arithmetic = Module(), self._arithmetic
        product = arithmetic.multiply(m, platform, "product", self.left, self.right)
        accumulator = Signal(arithmetic.accumulator, reset_less=True)
        with m.If(self.first):
            m.d.sync += accumulator.eq(arithmetic.zero)
        with m.Elif(self.valid):
            m.d.sync += accumulator.eq(arithmetic.accumulate(accumulator, product))
        m.d.comb += self.total.eq(accumulator)
        return m


class Registered(Elaboratable):
    """A block between registers, so that all its paths have a beginning and an end."""

    def __init__(self, component: wiring.Component):
        self._component = component
        self.ports: dict[str, Signal] = {}
        self._pairs: list[tuple[Value, Value]] = []
        for path, member, value in component.signature.flatten(component):
            name = "_".join(map(str, path))
            inner = Value.cast(value)
            outer = self.ports[name] = Signal(len(inner), name=name)
            pair = (inner, outer) if member.flow == In else (outer, inner)
            self._pairs.append(pair)

    def elaborate(self, platform: object) -> Module:
        """Add a register to each port of the block."""
        m = Module()
        m.submodules.block = self._component
        for number, (to, source) in enumerate(self._pairs):
            register = Signal(len(source), name=f"port_{number}", reset_less=True)
            m.d.sync += register.eq(source)
            m.d.comb += to.eq(register)
        return m


def _lane(formats: str, arithmetic: FixedArithmetic) -> tuple[Block, Block]:
    def encoder(lanes: int) -> Callable[[], wiring.Component]:
        width = arithmetic.accumulator_width
        return lambda: arithmetic.encoder(lanes=lanes, value_width=width)

    return (
        Block("encoder, a lane and its settings", formats, encoder(1), placed=True),
        Block("encoder, one lane more", formats, encoder(MORE_LANES), MORE_LANES - 1, encoder(1)),
    )


def _array(
    kind: Callable, arithmetic: FixedArithmetic, sizes: AcceleratorParameters = ARRAYS
) -> Callable[[], wiring.Component]:
    return lambda: kind(sizes, arithmetic=arithmetic)


BLOCKS = (
    Block("MAC 16/36", FIXED_NAME, lambda: Mac(FIXED), placed=True),
    Block("MAC 18/44", POSIT_NAME, lambda: Mac(POSIT), placed=True),
    *(
        Block("MAC of significands, exact", str(fmt), partial(SignificandMac, fmt), placed=True)
        for fmt in SIGNIFICANDS
    ),
    Block("decoder by shifts", POSIT_NAME, lambda: ShiftDecoder(POSITS), placed=True),
    Block("decoder by block RAM, two lanes", POSIT_NAME, lambda: RomDecoder(POSITS), placed=True),
    *_lane(FIXED_NAME, FIXED),
    *_lane(POSIT_NAME, POSIT),
    Block("dot array 8x8, 16/36", FIXED_NAME, _array(DotProductArray, FIXED)),
    Block("dot array 8x8, 18/44", POSIT_NAME, _array(DotProductArray, POSIT)),
    Block("dot array 8x8, 8/28", NARROW_NAME, _array(DotProductArray, NARROW, NARROW_ARRAYS)),
    Block("outer array 8x8, 16/36", FIXED_NAME, _array(OuterProductArray, FIXED)),
    Block("outer array 8x8, 18/44", POSIT_NAME, _array(OuterProductArray, POSIT)),
    Block("outer array 8x8, 8/28", NARROW_NAME, _array(OuterProductArray, NARROW, NARROW_ARRAYS)),
)
