"""Interface of a number format to the arrays, operand fetches and write-back units."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import wiring


class LaneFormat(ABC):
    """Number format of an array's lanes: words in, exact sums, words out.

    Words are decoded once, where operands are fetched; multiplied and summed exactly, in as many
    lanes as the array has; and encoded with one rounding where results are written back. Latencies
    are members, in cycles, for whoever places registers around a format.

    Functions with a ``Module`` parameter add registers or submodules to it; all other functions
    build combinational logic.
    """

    decode_cycles: int
    """Cycles from words to operands."""
    product_cycles: int
    """Cycles from operands to their product."""

    @abstractmethod
    def encode_cycles(self, lanes: int) -> int:
        """Return the cycles from lane 0's value at the encoder to the words of all lanes."""

    @property
    @abstractmethod
    def left(self) -> Shape:
        """Shape of a first operand at the multiplier."""

    @property
    @abstractmethod
    def right(self) -> Shape:
        """Shape of a second operand at the multiplier."""

    @property
    @abstractmethod
    def product(self) -> Shape:
        """Shape of a product register."""

    @property
    @abstractmethod
    def accumulator(self) -> Shape:
        """Shape of an accumulator and of the encoder's input."""

    @abstractmethod
    def word(self, bits: Value) -> Value:
        """Interpret plain bits as a word of memory that can be extended to any width."""

    @abstractmethod
    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """Decode raw memory words, all of the format that ``select`` names, to operands.

        Returns the operands and, for each, whether its word stands for no number; such an operand
        is unspecified.
        """

    @abstractmethod
    def operand(self, bits: Value) -> Value:
        """Interpret plain bits from a port as a decoded operand."""

    @abstractmethod
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
        """Return the exact product, ``product_cycles`` later; ``left`` loads where ``left_enable``.

        ``spare`` marks the half of all products that may do without a multiplier of the device.
        """

    @abstractmethod
    def sharing(self, platform: object, shared_width: int) -> int:
        """Return how many products with a common operand one multiplier of the device makes.

        The common operand has ``shared_width`` bits. The result is 1, or 2 where ``multiply_pair``
        works.
        """

    @abstractmethod
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
        """Return the products of each ``own`` with ``shared``, ``product_cycles`` later.

        ``own`` loads where ``enable``.
        """

    @abstractmethod
    def sum_shape(self, terms: int) -> Shape:
        """Return the shape of a register that holds the sum of ``terms`` products."""

    @abstractmethod
    def reduce(self, terms: Sequence[Value]) -> Value:
        """Sum products or partial sums."""

    @property
    @abstractmethod
    def zero(self) -> int:
        """Value of an accumulator without terms."""

    @abstractmethod
    def start(
        self, accumulator: Value, *, first: Value | None = None, digit: Value | None = None
    ) -> Value:
        """Return the value that a term is added to.

        It is the sum so far, or ``zero`` on the ``first`` term; where a ``digit`` begins, the sum
        so far times 2^``DIGIT_WIDTH``.
        """

    @abstractmethod
    def accumulate(self, accumulator: Value, term: Value) -> Value:
        """Return the next value of an accumulator, given a product or a sum of products."""

    @abstractmethod
    def encoder(self, *, lanes: int, value_width: int) -> wiring.Component:
        """Return a component with ``value``, ``word``, ``saturated`` and the ports of ``settings``.

        Where words can underflow it also has ``underflow``.
        """

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Encoder ports set per command, and the ``Compute`` fields that set them.

        They are due in the cycle before value 0.
        """

    @property
    @abstractmethod
    def underflows(self) -> bool:
        """Whether words can underflow."""

    @abstractmethod
    def magnitude(self, word: Value) -> Value:
        """Return the quantity that a tensor's statistics sum for an encoded word."""
