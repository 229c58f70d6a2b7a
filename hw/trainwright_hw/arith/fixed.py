"""Two's complement lanes: the number format of an accelerator without posits."""

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
    """Bits as a two's complement integer, what fixed point takes words for."""
    return bits.as_signed()


@dataclass(frozen=True, kw_only=True)
class FixedArithmetic(LaneFormat):
    """Integer products, exact sums.

    The arrays place the registers: every stage of the adder tree and accumulator are one register
    each. Sums are kept modulo 2^accumulator_width, which is exact because the compiler proves that
    no complete sum overflows.
    """

    left_width: int
    """Bits of the operand from the scratchpad."""
    right_width: int
    """Bits of the second operand."""
    accumulator_width: int
    """Bits of a sum."""
    word_width: int = WORD_WIDTH
    """Bits of an encoded word, or of a whole result that is cut into several."""
    with_random: bool = False
    """Whether the encoder can round by random bits."""

    decode_cycles = 0
    product_cycles = PRODUCT_CYCLES

    def encode_cycles(self, lanes: int) -> int:
        """Those of the requantiser."""
        return LANE_CYCLES + lanes - 1

    @property
    def left(self) -> Shape:
        """Signed."""
        return signed(self.left_width)

    @property
    def right(self) -> Shape:
        """Signed."""
        return signed(self.right_width)

    @property
    def product(self) -> Shape:
        """As wide as the operands together."""
        return signed(self.left_width + self.right_width)

    @property
    def accumulator(self) -> Shape:
        """Signed."""
        return signed(self.accumulator_width)

    def word(self, bits: Value) -> Value:
        """The bits as a signed integer, as words of every format are."""
        return self.operand(bits)

    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """The words themselves, whose format ``select`` does not change. All are numbers."""
        return [self.operand(word) for word in words], [C(0, 1)] * len(words)

    def operand(self, bits: Value) -> Value:
        """The bits as a signed integer."""
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
        """One hardware multiplier, or of narrow words, where ``spare``, logic."""
        return registered_product(
            m, platform, name, left, right, left_enable=left_enable, spare=spare
        )

    def sharing(self, platform: object, shared_width: int) -> int:
        """2 of narrow words on devices that have such multipliers."""
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
        """From one hardware multiplier."""
        return registered_pair(m, platform, name, own, shared, enable=enable)

    def sum_shape(self, terms: int) -> Shape:
        """A bit more with each doubling, up to the accumulator's."""
        growth = (terms - 1).bit_length()
        return signed(min(self.product.width + growth, self.accumulator_width))

    def reduce(self, terms: Sequence[Value]) -> Value:
        """A balanced tree of adders."""
        level = list(terms)
        while len(level) > 1:
            odd = level[len(level) // 2 * 2 :]
            level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + odd
        return level[0]

    @property
    def zero(self) -> int:
        """0."""
        return 0

    def start(
        self, accumulator: Value, *, first: Value | None = None, digit: Value | None = None
    ) -> Value:
        """Of two by ``first``, of three by ``digit`` too."""
        if digit is not None:
            accumulator = Mux(digit, accumulator << DIGIT_WIDTH, accumulator)
        return accumulator if first is None else Mux(first, self.zero, accumulator)

    def accumulate(self, accumulator: Value, term: Value) -> Value:
        """Their sum."""
        return accumulator + term

    def encoder(self, *, lanes: int, value_width: int) -> Requantiser:
        """The requantiser."""
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
        """What is closer to 0 than half the last place becomes 0."""
        return False

    def magnitude(self, word: Value) -> Value:
        """|word|, in as many bits as the word."""
        return Mux(word[-1], -word, word)[: len(word)]
