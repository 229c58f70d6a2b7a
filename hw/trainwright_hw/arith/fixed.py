"""Two's complement lanes: the number format of an accelerator without coded ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import C, Module, Mux, Shape, Signal, Value, signed

from trainwright.program.descriptors import DIGIT_WIDTH
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.arith.multiplier import (
    PRODUCT_CYCLES,
    registered_pair,
    registered_product,
    sharing,
)
from trainwright_hw.arith.requantiser import LANE_CYCLES, WORD_WIDTH, Requantiser


def integer(bits: Value) -> Value:
    """Read bits as a two's complement integer, the meaning of a fixed-point word."""
    return bits.as_signed()


@dataclass(frozen=True, kw_only=True)
class FixedArithmetic(LaneFormat):
    """Lane format of integer products and exact sums.

    The arrays place the registers: one after every stage of the adder tree, and one per
    accumulator. Sums are kept modulo 2^accumulator_width, which is exact because the compiler
    proves that no complete sum overflows.
    """

    left_width: int
    """Bits of the operand from the scratchpad."""
    right_width: int
    """Bits of the second operand."""
    accumulator_width: int
    """Bits of a sum."""
    word_width: int = WORD_WIDTH
    """Bits of an encoded word, or of a whole result that is cut into several words."""
    with_random: bool = False
    """Whether the encoder can round by random bits."""

    decode_cycles = 0
    product_cycles = PRODUCT_CYCLES

    def encode_cycles(self, lanes: int) -> int:
        """Return the requantiser's latency in cycles."""
        return LANE_CYCLES + lanes - 1

    @property
    def left(self) -> Shape:
        """Shape of the first operand, signed."""
        return signed(self.left_width)

    @property
    def right(self) -> Shape:
        """Shape of the second operand, signed."""
        return signed(self.right_width)

    # A product of two most negative words needs every bit of the sum of the widths.
    @property
    def product(self) -> Shape:
        """Shape of a product, as wide as both operands together."""
        return signed(self.left_width + self.right_width)

    @property
    def accumulator(self) -> Shape:
        """Shape of an accumulator, signed."""
        return signed(self.accumulator_width)

    def word(self, bits: Value) -> Value:
        """Read the bits as a signed integer, like words of every format."""
        return self.operand(bits)

    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """Return the words themselves, whatever ``select`` says; all of them are numbers."""
        return [self.operand(word) for word in words], [C(0, 1)] * len(words)

    def operand(self, bits: Value) -> Value:
        """Read the bits as a signed integer."""
        return integer(bits)

    def multiply(
        self,
        m: Module,
        platform: object,
        name: str,
        left: Value,
        right: Value,
        *,
        left_enable: Value | None = None,
        spare: bool = False,
    ) -> Signal:
        """Use one hardware multiplier, or logic for narrow words where ``spare``."""
        return registered_product(
            m, platform, name, left, right, left_enable=left_enable, spare=spare
        )

    def sharing(self, platform: object, shared_width: int) -> int:
        """Return 2 for narrow words on devices whose multipliers make two products, else 1."""
        return sharing(platform, max(self.left_width, self.right_width), shared_width)

    def multiply_pair(
        self,
        m: Module,
        platform: object,
        name: str,
        own: Sequence[Value],
        shared: Value,
        *,
        enable: Value | None = None,
    ) -> list[Signal]:
        """Use one hardware multiplier for both products."""
        return registered_pair(m, platform, name, own, shared, enable=enable)

    def sum_shape(self, terms: int) -> Shape:
        """Add a bit for each doubling of terms, up to the accumulator's width."""
        # Growth stops at the accumulator's width: upper bits of a term would be cut off there
        # anyway.
        growth = (terms - 1).bit_length()
        return signed(min(self.product.width + growth, self.accumulator_width))

    def reduce(self, terms: Sequence[Value]) -> Value:
        """Build a balanced tree of adders."""
        # Balanced: the depth of the tree, not its size, decides the clock.
        level = list(terms)
        while len(level) > 1:
            # An odd element out joins the next level unchanged.
            odd = level[len(level) // 2 * 2 :]
            level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + odd
        return level[0]

    @property
    def zero(self) -> int:
        """Integer 0."""
        return 0

    def start(
        self, accumulator: Value, *, first: Value | None = None, digit: Value | None = None
    ) -> Value:
        """Choose the sum to add to: by ``first`` zero or the sum, by ``digit`` shifted or not."""
        if digit is not None:
            # Digits come highest first: what was summed so far is worth 2^7 times as much for the
            # next one.
            accumulator = Mux(digit, accumulator << DIGIT_WIDTH, accumulator)
        return accumulator if first is None else Mux(first, self.zero, accumulator)

    def accumulate(self, accumulator: Value, term: Value) -> Value:
        """Add a term to the sum."""
        return accumulator + term

    def encoder(self, *, lanes: int, value_width: int) -> Requantiser:
        """Return the requantiser."""
        return Requantiser(
            lanes=lanes,
            value_width=value_width,
            word_width=self.word_width,
            with_random=self.with_random,
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Shift and width, and whether to round by random bits."""
        names = ("shift", "out_width", *(["stochastic"] if self.with_random else []))
        return {name: name for name in names}

    @property
    def underflows(self) -> bool:
        """Always false: magnitudes below half the last place become 0 without a flag."""
        return False

    def magnitude(self, word: Value) -> Value:
        """Return |word| in as many bits as the word."""
        # The most negative word has no positive counterpart in its own bits, but its magnitude fits
        # them as an unsigned number.
        return Mux(word[-1], -word, word)[: len(word)]
