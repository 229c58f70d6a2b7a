"""The number format of a multiply-accumulate lane, behind one small interface."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Mux, Shape, Value, signed


@dataclass(frozen=True, kw_only=True)
class FixedArithmetic:
    """Two's complement lanes: integer product, exact sum.

    Every method builds combinational logic; the arrays around it place the registers: operands,
    product, every stage of the adder tree and accumulator are one register each. Sums are kept
    modulo 2^accumulator_width, which is exact because the compiler proves that no complete sum
    overflows. Another format (posit with a quire) is another class with the same members.
    """

    left_width: int
    """Bits of the operand from the scratchpad."""
    right_width: int
    """Bits of the operand from the factor store, or the scratchpad (PE3)."""
    accumulator_width: int
    """Bits of a sum."""

    @property
    def left(self) -> Shape:
        """Shape of an operand register; raw words of memory are assigned to it as they are."""
        return signed(self.left_width)

    @property
    def right(self) -> Shape:
        """Shape of a second-operand register."""
        return signed(self.right_width)

    @property
    def product(self) -> Shape:
        """Shape of a product register."""
        return signed(self.left_width + self.right_width)

    @property
    def accumulator(self) -> Shape:
        """Shape of an accumulator, and of what the requantiser takes."""
        return signed(self.accumulator_width)

    def multiply(self, left: Value, right: Value) -> Value:
        """The product, exact: one hardware multiplier."""
        return left * right

    def sum_shape(self, terms: int) -> Shape:
        """Shape of a register that holds the sum of ``terms`` products."""
        growth = (terms - 1).bit_length()
        return signed(min(self.product.width + growth, self.accumulator_width))

    def reduce(self, terms: Sequence[Value]) -> Value:
        """Sum of products or of partial sums, as a balanced tree of adders."""
        level = list(terms)
        while len(level) > 1:
            odd = level[len(level) // 2 * 2 :]
            level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + odd
        return level[0]

    def start(self, accumulator: Value, *, first: Value) -> Value:
        """What a term is added to: the sum so far, or zero on the ``first`` term."""
        return Mux(first, 0, accumulator)

    def accumulate(self, accumulator: Value, term: Value) -> Value:
        """Next value of an accumulator, given a product or a sum of products."""
        return accumulator + term
