"""What the arrays, operand fetches and write-back units know of a number format."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from amaranth.hdl import Module, Shape, Signal, Value
from amaranth.lib import wiring


class LaneFormat(ABC):
    """The number format of the lanes of an array: words in, exact sums, words out.

    Words are decoded once, where operands are fetched; multiplied and summed exactly, in as many
    lanes as the array has; and encoded with one rounding where results are written back. Latencies
    are members, in cycles: whoever places registers around a format asks it.

    What takes a ``Module`` adds registers or submodules to it; the other functions build
    combinational logic.
    """

    decode_cycles: int
    """From words to operands."""
    product_cycles: int
    """From operands to their product."""

    @abstractmethod
    def encode_cycles(self, lanes: int) -> int:
        """From the value of lane 0 at the encoder's input to the words of all lanes."""

    @property
    @abstractmethod
    def left(self) -> Shape:
        """Shape of a first operand, as the multiplier takes it."""

    @property
    @abstractmethod
    def right(self) -> Shape:
        """Shape of a second operand."""

    @property
    @abstractmethod
    def product(self) -> Shape:
        """Shape of a product register."""

    @property
    @abstractmethod
    def accumulator(self) -> Shape:
        """Shape of an accumulator, and of what the encoder takes."""

    @abstractmethod
    def word(self, bits: Value) -> Value:
        """A word of memory that came as plain bits, to be extended to any width."""

    @abstractmethod
    def decode(
        self, m: Module, name: str, words: Sequence[Value], select: Value
    ) -> tuple[list[Value], list[Value]]:
        """Operands of raw words of memory, all of the format that ``select`` names; and, with each
        of them, whether its word stands for no number: the operand is unspecified then.
        """

    @abstractmethod
    def operand(self, bits: Value) -> Value:
        """A decoded operand that came through a port as plain bits."""

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
        """The exact product, ``product_cycles`` later; ``left`` is taken where ``left_enable``.

        ``spare``: one of those that may do without a multiplier of the device, half of them all.
        """

    @abstractmethod
    def sharing(self, platform: object, shared_width: int) -> int:
        """How many products, of operands that have one of ``shared_width`` bits in common, a
        multiplier of the device makes: 1, or 2 where ``multiply_pair`` makes them.
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
        """Two exact products, ``product_cycles`` later, of ``own`` each with ``shared``; ``own``
        are taken where ``enable``.
        """

    @abstractmethod
    def sum_shape(self, terms: int) -> Shape:
        """Shape of a register that holds the sum of ``terms`` products."""

    @abstractmethod
    def reduce(self, terms: Sequence[Value]) -> Value:
        """Sum of products or of partial sums."""

    @property
    @abstractmethod
    def zero(self) -> int:
        """What an accumulator holds of no terms."""

    @abstractmethod
    def start(
        self, accumulator: Value, *, first: Value | None = None, digit: Value | None = None
    ) -> Value:
        """What a term is added to: the sum so far, or ``zero`` on the ``first`` term; where a
        ``digit`` begins, the sum so far times 2^``DIGIT_WIDTH``.
        """

    @abstractmethod
    def accumulate(self, accumulator: Value, term: Value) -> Value:
        """Next value of an accumulator, given a product or a sum of products."""

    @abstractmethod
    def encoder(self, *, lanes: int, value_width: int) -> wiring.Component:
        """A component with ``value``, ``word``, ``saturated`` and the ports of ``settings``; with
        ``underflow`` too where words can underflow.
        """

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """The encoder's ports that are set for each command, due in the cycle before value 0, and
        the fields of a ``Compute`` that they are.
        """

    @property
    @abstractmethod
    def underflows(self) -> bool:
        """Whether words can underflow."""

    @abstractmethod
    def magnitude(self, word: Value) -> Value:
        """What the statistics of a tensor add up of an encoded word."""
