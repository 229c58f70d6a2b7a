"""The other way to multiply and add posits, for comparison: significands, shifted to a quire.

PDPU and its like keep a posit as sign, exponent and significand. A product is then a small one, and
has to be shifted to its place in the sum. This block does so without truncating: exact as ours.
"""

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.formats import Posit
from trainwright_hw.arith.multiplier import PRODUCT_CYCLES, registered_product

GUARD = 10
"""Bits of a sum above those of one product: 1,024 of the largest."""


def significand_width(fmt: Posit) -> int:
    """Return the bits of a significand with its leading one: a regime has at least two bits."""
    return fmt.n - 2 - fmt.es


def quire_width(fmt: Posit) -> int:
    """Return the bits of a sum: products are multiples of 2^-2S and at most 2^2S, signed."""
    return 4 * fmt.scale + 2 + GUARD


class SignificandMac(wiring.Component):
    """A multiply-accumulator for decoded posits.

    A posit is significand x 2^(exponent - S - f). The significand is signed, with f bits after its
    leading one, or it is 0; the exponent is from 0 to 2S. ``valid`` adds the product of ``left``
    and ``right`` from ``PRODUCT_CYCLES`` + 1 cycles before to ``total``, which is signed and in
    units of 2^-2S. ``first`` begins a new sum at 0.
    """

    def __init__(self, fmt: Posit):
        self._fmt = fmt
        significand = signed(significand_width(fmt) + 1)
        exponent = unsigned((2 * fmt.scale).bit_length())
        super().__init__(
            {
                "left": In(significand),
                "left_exponent": In(exponent),
                "right": In(significand),
                "right_exponent": In(exponent),
                "valid": In(1),
                "first": In(1),
                "total": Out(signed(quire_width(fmt))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Multiply; shift to its place; add."""
        m, fmt = Module(), self._fmt
        product = registered_product(m, platform, "product", self.left, self.right)
        place = self.left_exponent + self.right_exponent
        for cycle in range(PRODUCT_CYCLES):
            later = Signal(range(4 * fmt.scale + 1), name=f"place_{cycle}", reset_less=True)
            m.d.sync += later.eq(place)
            place = later
        term = Signal(signed(4 * fmt.scale + 2), reset_less=True)
        m.d.sync += term.eq((product << place) >> 2 * (significand_width(fmt) - 1))
        total = Signal(self.total.shape(), reset_less=True)
        with m.If(self.first):
            m.d.sync += total.eq(0)
        with m.Elif(self.valid):
            m.d.sync += total.eq(total + term)
        m.d.comb += self.total.eq(total)
        return m
