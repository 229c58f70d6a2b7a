"""Decoder from the words of an operand to the integers that the multipliers take.

A coded word is a fixed-point integer on a coarser grid (``trainwright.formats``). It is decoded
once where it is fetched, for all rows and lanes that use it.
"""

from collections.abc import Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.formats import Coded, slope
from trainwright.parameters import TABLE_WORD_WIDTH, TABLES
from trainwright_hw.arith.requantiser import WORD_WIDTH
from trainwright_hw.arith.truth_table import TruthTables

SHIFT_DECODE_CYCLES = 2
ROM_DECODE_CYCLES = 2
ROM_ADDRESS_WIDTH = TABLE_WORD_WIDTH
"""Bits of a word that address a table of ``RomDecoder``."""
ROM_TABLES = TABLES
ROM_DATA_WIDTH = 18
ROM_INVALID = -(1 << (ROM_DATA_WIDTH - 1))
"""Table entry of a word that stands for no number: less than any integer."""


def decoded_width(formats: Sequence[Coded], word_width: int = WORD_WIDTH) -> int:
    """Return the bits of any word's integer, over the formats and fixed point."""
    return max(word_width, *(fmt.decoded_width for fmt in formats))


class ShiftDecoder(wiring.Component):
    """Decoder of a word per cycle by shifts: a few LUTs, for words that serve many lanes.

    ``format`` 0 is fixed point, whose word is its integer; n > 0 is ``formats[n - 1]``, whose words
    are sign-extended. For words that stand for no number ``invalid`` is high
    and ``value`` unspecified. Both follow ``SHIFT_DECODE_CYCLES`` later.

    Members: in ``word`` (signed, ``word_width`` bits) and ``format``, out ``value`` (signed,
    ``decoded_width`` bits) and ``invalid``.
    """

    def __init__(self, formats: Sequence[Coded], *, word_width: int = WORD_WIDTH):
        self._formats, self._word_width = tuple(formats), word_width
        super().__init__(
            {
                "word": In(signed(word_width)),
                "format": In(range(len(formats) + 1)),
                "value": Out(signed(decoded_width(formats, word_width))),
                "invalid": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        sign = self.word[-1]
        is_format = [self.format == number for number in range(1, len(self._formats) + 1)]
        cuts, prefixes, none = [], [], []
        # One-hot from the start: every format's tables are gated by its flag and joined by OR,
        # which is shorter than a choice of the format behind them.
        for flag, fmt in zip(is_format, self._formats, strict=True):
            size = fmt.width - 1
            rest = Signal(size, name=f"rest_{fmt.identifier}")
            # A negative word, complemented, has the pattern of a positive one: the tables see both
            # with the same prefix.
            m.d.comb += rest.eq(self.word[:size] ^ sign.replicate(size))
            tables = TruthTables(m, [sign, *rest], f"of_{fmt.identifier}")
            places = [
                decoding(fmt, code >> 1, negative=bool(code & 1)) for code in range(2 << size)
            ]
            for numbers, index in ((prefixes, 0), (cuts, 1)):
                numbers.append(_gated(tables, [place and place[index] for place in places], flag))
            none += _gated(tables, [int(place is None) for place in places], flag)
        size = max(fmt.width for fmt in self._formats) - 1
        # First cycle: look up cut and prefix, apply the prefix. Second cycle: shift.
        cut = Signal(_bits(cuts), reset_less=True)
        word = Signal(signed(self._word_width), reset_less=True)
        is_none = Signal(reset_less=True)
        m.d.sync += [
            is_none.eq(Cat(none).any()),
            self.invalid.eq(is_none),
            cut.eq(_any(cuts)),
            word.eq(Cat(self.word[:size] ^ _any(prefixes), self.word[size:])),
        ]
        # Only coded words are shifted, and all bits from `size` on are the sign. So a stage shifts
        # the low bits only, as far up as they can reach, and copies the sign above them.
        shifted, width = word, len(self.value)
        for stage in range(len(cut)):
            by, size = 1 << stage, min(width, size + (1 << stage))
            low = Cat(C(0, by), shifted)[:size]
            wide = Signal(signed(max(size + 1, self._word_width)), name=f"by_{by}")
            kept = Cat(shifted, word[-1].replicate(width))
            m.d.comb += wide.eq(Cat(Mux(cut[stage], low, kept[:size]), kept[size : len(wide)]))
            shifted = wide
        m.d.sync += self.value.eq(shifted[:width])
        return m


def check_tables(formats: Sequence[Coded]) -> None:
    """Raise ``ValueError`` for formats that do not fit one block RAM."""
    if not 0 < len(formats) <= ROM_TABLES:
        raise ValueError(f"a block RAM holds 1 to {ROM_TABLES} tables, not {len(formats)}")
    for fmt in formats:
        if fmt.width > ROM_ADDRESS_WIDTH or not fmt.fits(ROM_DATA_WIDTH):
            raise ValueError(
                f"{fmt} has words of {fmt.width} bits and integers of {fmt.decoded_width}; a table "
                f"takes {ROM_ADDRESS_WIDTH} and {ROM_DATA_WIDTH}: choose a ShiftDecoder"
            )


class RomDecoder(wiring.Component):
    """Decoder of two lanes' words by tables in one two-port block RAM.

    Accepts up to ``ROM_TABLES`` formats, with words of at most ``ROM_ADDRESS_WIDTH`` bits and
    integers of at most ``ROM_DATA_WIDTH`` bits. Otherwise it behaves like ``ShiftDecoder`` in each
    lane, with the same ``format`` for both; ``value`` and ``invalid`` follow ``ROM_DECODE_CYCLES``
    later.

    Members: in ``word`` (an array of two) and ``format``, out ``value`` and ``invalid`` (arrays of
    two).

    Raises ``ValueError`` like ``check_tables``.
    """

    def __init__(self, formats: Sequence[Coded], *, word_width: int = WORD_WIDTH):
        check_tables(formats)
        self._formats, self._word_width = tuple(formats), word_width
        super().__init__(
            {
                "word": In(signed(word_width)).array(2),
                "format": In(range(len(formats) + 1)),
                "value": Out(signed(ROM_DATA_WIDTH)).array(2),
                "invalid": Out(1).array(2),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        size = 1 << ROM_ADDRESS_WIDTH
        contents = [ROM_INVALID] * (ROM_TABLES * size)
        for table, fmt in enumerate(self._formats):
            words = fmt.words()
            for word, integer in zip(words.tolist(), fmt.decode(words).tolist(), strict=True):
                # Words that stand for no number keep this marker, which no integer reaches.
                contents[table * size + word % size] = integer
        rom = m.submodules.rom = Memory(
            shape=signed(ROM_DATA_WIDTH), depth=len(contents), init=contents
        )
        # The bits from `low` on distinguish ROM_INVALID from any integer and from any word: only
        # these few are compared.
        greatest = max(1 << (self._word_width - 1), *(fmt.most for fmt in self._formats))
        low = (-ROM_INVALID - greatest).bit_length() - 1
        is_none = 1 << (ROM_DATA_WIDTH - 1 - low)
        table = Signal(range(ROM_TABLES))
        m.d.comb += table.eq(self.format - 1)
        is_fixed = Signal()
        # Fixed point passes the decoder unchanged, with the same latency: arrays need no second
        # path.
        m.d.sync += is_fixed.eq(self.format == 0)
        for lane in range(2):
            port = rom.read_port()
            word = Signal(signed(self._word_width), name=f"word_{lane}", reset_less=True)
            m.d.comb += port.addr.eq(Cat(self.word[lane][:ROM_ADDRESS_WIDTH], table))
            m.d.sync += [
                word.eq(self.word[lane]),
                self.value[lane].eq(Mux(is_fixed, word, port.data)),
            ]
            m.d.comb += self.invalid[lane].eq(self.value[lane][low:] == is_none)
        return m


def decoding(fmt: Coded, rest: int, *, negative: bool) -> tuple[int, int] | None:
    """Return ``prefix`` and ``cut`` of a word: integer = (word ^ prefix) << cut, sign-extended.

    ``rest`` is the word without its sign, complemented where it is ``negative``: |word| - 1 there.
    None for a word that stands for no number.
    """
    word = rest + negative
    if word > fmt.largest:
        return None
    if rest == 0:
        return 0, 0
    integer = int(fmt.decode(word))
    # A negative word's bits are those of the integer below: its binade has the cut.
    place = (integer - negative).bit_length() - 1
    fraction = slope(fmt, place)
    # Where words are fewer than binades an integer is a power of two, without bits behind it.
    cut = place - fraction if fraction >= 0 else integer.bit_length() - 1
    return rest ^ (integer >> cut) - negative, cut


def _gated(tables: TruthTables, numbers: Sequence[int | None], flag: Value) -> list[Value]:
    """Return the bits of a function's values, all zero unless ``flag``."""
    width = max(number or 0 for number in numbers).bit_length()
    return [
        flag & tables.function([number and number >> bit & 1 for number in numbers])
        for bit in range(width)
    ]


def _bits(numbers: Sequence[Sequence[Value]]) -> int:
    return max(len(number) for number in numbers)


def _any(numbers: Sequence[Sequence[Value]]) -> Value:
    """Return the number that is not zero, of numbers of which at most one is not."""
    return Cat(
        Cat(number[bit] for number in numbers if bit < len(number)).any()
        for bit in range(_bits(numbers))
    )
