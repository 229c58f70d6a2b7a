"""The one parameter object shared by compiler, golden model, hardware and tests."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any

from msgspec import Meta

from trainwright.formats import OPERAND_WIDTH, Coded, Fixed, Format, parse_coded, parse_list
from trainwright.support.files import packaged
from trainwright.support.settings import POWERS, OneOf, check
from trainwright.support.text import read_integer, suggestion


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


FLAG = OneOf((0, 1))
FLAGS = (
    "stochastic_rounding",
    "vector_engine",
    "sample_loads",
    "wide_tensors",
    "address_checks",
)
"""Parameters that are 0 or 1."""
WORD_WIDTHS = (8, 16)
TABLES, TABLE_WORD_WIDTH = 4, 8
"""Formats whose integers one block RAM holds, and the bits of their words at most."""
OPERANDS = 4
"""Rows that are decoded at the same time: two operands of each of the two arrays."""
CODED_ACCUMULATOR = 44
"""Default bits of an accumulator that sums coded numbers: enough for 512 products of two numbers of
posit(8,1)c, whatever their values."""
MOST_CODED = 7
"""Coded formats of one accelerator: a descriptor names a format in 3 bits, 0 being fixed point."""


def _coded(value: object) -> tuple[str, ...]:
    """Return the names of coded formats, written one way, from a list of them or a text."""
    given = parse_list(value) if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise TypeError(f"formats must be names of number formats, not {value!r}")
    formats = parse_coded(",".join(map(str, given)))
    names = tuple(map(str, formats))
    for fmt in formats:
        if not fmt.fits(OPERAND_WIDTH):
            raise ValueError(
                f"{fmt} needs operands of {fmt.decoded_width} bits, multipliers have "
                f"{OPERAND_WIDTH}; choose {fmt.narrower}"
            )
    _require(
        len(set(names)) == len(names) <= MOST_CODED,
        f"formats must be at most {MOST_CODED} different ones, not {', '.join(names)}",
    )
    return names


@dataclass(frozen=True, kw_only=True)
class AcceleratorParameters:
    """Every size, width and lane count of one accelerator.

    The multiplier arrays are ``rows`` x ``lanes``; the scratchpad is addressed in *rows* of
    ``lanes`` words. The external memory port is ``lanes`` bytes wide, so that a row of 8-bit
    elements is one beat and a row of 16-bit words two.

    Raises ``ValueError`` naming the offending value when a parameter is out of its range.

    >>> AcceleratorParameters(lanes=8).multipliers
    128
    """

    lanes: Annotated[int, OneOf((4, 8, 16))] = 16
    """Words in a scratchpad row and multipliers along it; bytes of the memory port."""
    pe1_rows: Annotated[int, Meta(ge=2, le=16, extra=POWERS)] = 8
    """Rows of PE1: stationary rows of the first operand (index a of equation 5)."""
    pe2_rows: Annotated[int, Meta(ge=2, le=16, extra=POWERS)] = 8
    """Rows of PE2: second-operand scalars in use at once (index d of equation 6)."""
    word_width: Annotated[int, OneOf(WORD_WIDTHS)] = 16
    """Bits of a scratchpad word, signed: gradients, intermediates, activations."""
    factor_width: Annotated[int, Meta(ge=2, le=16)] = 4
    """Most bits of a factor's element, signed. With at most 8 an element takes a byte of external
    memory, else two."""
    accumulator_width: Annotated[int, Meta(ge=24, le=48)] = 48
    """Bits of an accumulator, signed. The compiler proves that none can overflow."""
    scratchpad_banks: Annotated[int, Meta(ge=1, le=8192, extra=POWERS)] = 4
    """Banks of one read and one write port each; the bank is the top bits of a row address."""
    scratchpad_rows: Annotated[int, Meta(ge=16, le=1 << 17, extra=POWERS)] = 16384
    """Rows in all banks together, at least 16 a bank."""
    program_depth: Annotated[int, Meta(ge=1, le=1 << 12, extra=POWERS)] = 512
    """Descriptors the program memory holds."""
    statistics_depth: Annotated[int, Meta(ge=1, le=1 << 10, extra=POWERS)] = 64
    """Slots of sum|q| and saturation counts."""
    nest_levels: Annotated[int, Meta(ge=3, le=10)] = 10
    """Levels of a contraction descriptor's loop nest."""
    loop_depth: Annotated[int, Meta(ge=1, le=8)] = 4
    """Nested sequencer loops."""
    address_width: Annotated[int, OneOf((32,))] = 32
    """Bits of an external memory address."""
    burst_beats: Annotated[int, Meta(ge=1, le=256, extra=POWERS)] = 16
    """Most beats of one AXI burst."""
    outstanding_bursts: Annotated[int, Meta(ge=1, le=64, extra=POWERS)] = 32
    """Most AXI bursts in flight in each direction."""
    stochastic_rounding: Annotated[bool | int, FLAG] = False
    """Whether the requantisers can also round by random bits."""
    vector_engine: Annotated[bool | int, FLAG] = False
    """Whether there is a vector engine: loss and update as passes of instructions over rows."""
    engine_lanes: Annotated[int, OneOf((0, 1, 2, 4, 8))] = 0
    """Lanes of the vector engine, fewer than ``lanes``; 0 stands for ``lanes``. With fewer lanes a
    pass takes ``lanes`` / ``engine_lanes`` times as many cycles."""
    sample_loads: Annotated[bool | int, FLAG] = False
    """Whether LOAD also fetches samples of a data set in random order, and expands their pixels of
    4 or 8 bits."""
    exponents: Annotated[int, OneOf((0, 16, 32, 64, 128, 256, 512, 1024))] = 0
    """Slots of the exponent file, from which programs take their shifts."""
    wide_tensors: Annotated[bool | int, FLAG] = False
    """Whether an accelerator with words of 8 bits writes results of 9 to 16 bits by digits."""
    address_checks: Annotated[bool | int, FLAG] = False
    """Whether an address outside the memories, or outside the window of the host, ends a run."""
    memory_rate: Annotated[int, Meta(ge=0, le=16)] = 0
    """Bytes a cycle of the external memory for which programs are compiled, reads and writes
    together, at most ``lanes``; 0: four fifths of its port. The hardware does not depend on it."""
    formats: tuple[str, ...] | str = ()
    """Coded formats that tensors may have in addition to fixed point, such as
    ``posit(8,0),posit(8,1)c``."""

    def __post_init__(self) -> None:
        check(self)
        for name in FLAGS:
            object.__setattr__(self, name, bool(getattr(self, name)))
        object.__setattr__(self, "formats", _coded(self.formats))
        self._check_fixed_point()
        self._check_sizes()

    def _check_fixed_point(self) -> None:
        """Reject optional parts that need other words or no coded formats."""
        _require(
            not (self.formats and self.stochastic_rounding),
            "stochastic_rounding is for fixed point only: omit it, or "
            f"formats={','.join(self.formats)}",
        )
        _require(
            not self.vector_engine or self.word_width == 16,
            f"vector_engine needs words of 16 bits, not {self.word_width!r}: omit one of them",
        )
        _require(
            not self.wide_tensors or (self.word_width == min(WORD_WIDTHS) and not self.formats),
            "wide_tensors is for words of 8 bits in fixed point: omit it, or take word_width=8 and "
            "no formats",
        )
        for fmt in self.number_formats:
            _require(
                fmt.width <= self.word_width,
                f"formats: words of {fmt} have {fmt.width} bits, this accelerator's "
                f"{self.word_width}; choose a narrower format or word_width=16",
            )

    def _check_sizes(self) -> None:
        """Reject sizes that do not fit each other."""
        _require(
            self.engine_lanes < self.lanes,
            f"engine_lanes must be less than lanes ({self.lanes}), not {self.engine_lanes!r}",
        )
        _require(
            self.engine_lanes == 0 or bool(self.vector_engine),
            "engine_lanes is for the vector engine: omit it, or take vector_engine=1",
        )
        for name in ("pe1_rows", "pe2_rows", "memory_rate"):
            value = getattr(self, name)
            _require(
                value <= self.lanes, f"{name} must be at most lanes ({self.lanes}), not {value!r}"
            )
        _require(
            self.factor_width <= self.word_width,
            f"factor_width must be at most the {self.word_width} bits of a word, not "
            f"{self.factor_width!r}; choose narrower factors or word_width=16",
        )
        _require(
            self.scratchpad_banks * 16 <= self.scratchpad_rows,
            "scratchpad_rows must be at least 16 rows a bank, "
            f"not {self.scratchpad_rows!r} in {self.scratchpad_banks!r} banks",
        )
        _require(
            self.burst_beats * self.beat_bytes <= 4096,
            f"burst_beats must be at most 4096 bytes a burst, not {self.burst_beats!r}",
        )

    @property
    def multipliers(self) -> int:
        """Multipliers of the arrays."""
        return (self.pe1_rows + self.pe2_rows) * self.lanes

    @property
    def narrow(self) -> bool:
        """Whether operands have 8 bits."""
        return self.operand_width == min(WORD_WIDTHS)

    @property
    def result_width(self) -> int:
        """Bits of a result at most: those of a word, or of all digits that it is written in."""
        return max(WORD_WIDTHS) if self.wide_tensors else self.word_width

    @property
    def elementwise_width(self) -> int:
        """Bits of the sums of the element-wise operations: twice the bits of an operand or of a
        result, whichever has more. With ``wide_tensors`` a result has more bits than an operand.
        """
        return 2 * max(self.operand_width, self.result_width)

    @property
    def engine_width(self) -> int:
        """Lanes of the vector engine."""
        return self.engine_lanes or self.lanes

    @property
    def engine_parts(self) -> int:
        """Parts of a row that the vector engine takes one after the other."""
        return self.lanes // self.engine_width

    @property
    def device_multipliers(self) -> int:
        """Multipliers of a device, of 18 x 18 bits, that the arrays, the vector unit and the vector
        engine take.

        A lane of the vector unit has two multipliers, a lane of the vector engine has one. Operands
        of 8 bits take half as many: devices make every other multiplier of logic, or make two
        products in one multiplier.
        """
        engine = self.engine_width if self.vector_engine else 0
        return (self.multipliers + 2 * self.lanes + engine) // (1 + self.narrow)

    @property
    def beat_bytes(self) -> int:
        """Bytes of one beat of the external memory port."""
        return self.lanes

    @property
    def beat_cycles(self) -> float:
        """Cycles of a beat of the external memory, latency left out, as programs are compiled."""
        return self.beat_bytes / self.memory_rate if self.memory_rate else 1.25

    @property
    def data_width(self) -> int:
        """Bits of the external memory port."""
        return 8 * self.lanes

    @property
    def row_bytes(self) -> int:
        """Bytes of a scratchpad row."""
        return self.lanes * self.word_width // 8

    @property
    def bank_rows(self) -> int:
        """Rows of one scratchpad bank."""
        return self.scratchpad_rows // self.scratchpad_banks

    @property
    def vector_width(self) -> int:
        """Bits of the requantiser's input: a sum of a contraction or an element-wise operation."""
        return max(self.accumulator_width, self.elementwise_width)

    @property
    def number_formats(self) -> tuple[Format, ...]:
        """Formats by their number in a descriptor: fixed point of a word's width, then coded."""
        return Fixed(self.word_width), *self.coded_formats

    @property
    def coded_formats(self) -> tuple[Coded, ...]:
        """Formats that are decoded, number 1 first."""
        return tuple(parse_coded(",".join(self.formats)))

    @property
    def operand_width(self) -> int:
        """Bits of the operands of a multiplier, signed."""
        return OPERAND_WIDTH if self.formats else self.word_width

    @property
    def most_alignment(self) -> int:
        """Most bits by which BIAS shifts an operand to the left.

        BIAS shifts by a product with a power of two. A power of n bits is a signed factor of n + 2
        bits, and multipliers take factors of one bit more than a word at most.
        """
        return min(self.operand_width, 16) - 1

    @property
    def decoder_tables(self) -> int:
        """Block RAMs that decode words, one for two lanes of an operand; 0: by shifts."""
        narrow = all(fmt.width <= TABLE_WORD_WIDTH for fmt in self.coded_formats)
        return OPERANDS * self.lanes // 2 if 0 < len(self.formats) <= TABLES and narrow else 0

    def format_number(self, fmt: Format) -> int:
        """Return the number of a format in a descriptor: 0 for fixed point of any width.

        Raises ``ValueError`` for a coded format that the accelerator lacks.
        """
        if not fmt.coded:
            return 0
        if str(fmt) not in self.formats:
            raise ValueError(
                f"this accelerator has no {fmt}, but "
                f"{', '.join(['fixed point', *self.formats])}; make one with "
                f"formats={','.join([*self.formats, str(fmt)])}"
            )
        return self.formats.index(str(fmt)) + 1

    @property
    def random_stream(self) -> bool:
        """Whether there is a stream of random bits."""
        return bool(self.stochastic_rounding or self.vector_engine)

    @property
    def scratchpad_bits(self) -> int:
        """Bits of the scratchpad: words of all rows and lanes."""
        return self.scratchpad_rows * self.lanes * self.word_width

    @property
    def on_chip_bits(self) -> int:
        """Bits of every memory of the accelerator, queues included."""
        return (
            self.scratchpad_bits
            + self.program_depth * 1024
            + self.statistics_depth * (112 if self.formats else 80)
            + self.pe1_rows * self.lanes * self.accumulator_width
            + _queue_bits(self)
            + (_vector_bits(self) if self.vector_engine else 0)
            + 9 * self.exponents
        )

    @cached_property
    def fingerprint(self) -> int:
        """CRC-32 over all parameters: program files and hardware carry it, and must agree.

        Optional parts count only where they are present.
        """
        values = asdict(self)
        for name in (*FLAGS, "engine_lanes", "exponents", "memory_rate", "formats"):
            if not values[name]:
                del values[name]
        text = ",".join(f"{name}={value}" for name, value in sorted(values.items()))
        return zlib.crc32(text.encode())


def _vector_bits(p: AcceleratorParameters) -> int:
    """Return the bits of the vector engine's memories.

    An address has 20 bits. An engine with fewer lanes than a row has words has one walker for the
    streams that are read and for those that are written.
    """
    row = p.lanes * p.word_width
    # Each word of a row has three copies of 64 registers of 36 bits, one for each operand that an
    # instruction reads; each lane has a table of 512 words.
    lanes = (p.lanes * 3 * 64 + p.engine_width * 512) * 36
    # Rows read with their addresses, and rows to write with their places.
    queues = 16 * (2 * row + 20 + 22 + p.scratchpad_banks)
    walkers = 2 if p.engine_parts == 1 else 1
    # Behind lanes: 64 instructions and which of them read; constants; steps and places of streams.
    return lanes + 64 * (50 + 4) + queues + 8 * 18 + 2 * 8 * (20 + 16) + walkers * 8 * 40


def _queue_bits(p: AcceleratorParameters) -> int:
    """Return the bits of the queues between memories and arrays, and of tables that decode words.

    An address has 20 bits.
    """
    row = p.lanes * p.word_width
    asked = 20 + row  # a row that is fetched: its address, then itself
    # The place of a row to write has a bit for each bank, so that arbiters need not decode it.
    place = 22 + p.scratchpad_banks
    result = place + row
    if p.wide_tensors:
        # A result then has the words of two rows and the number of its digits. Banks follow later,
        # when the result is cut into digits.
        place, result = place + 3, 24 + 2 * row
    ahead = max(2 * p.lanes, 24)  # rows of PE1's entries that are fetched ahead
    group_bits = (p.lanes // p.pe2_rows).bit_length() - 1
    transfers = (
        (max(128, 2 * p.burst_beats) + 8) * p.data_width
        + p.outstanding_bursts * (p.burst_beats.bit_length() + 1)
        + 16 * row
        + 4 * (21 + p.scratchpad_banks + row)
        + 2 * 20
    )
    latency, item = (17, 121) if p.formats else (13, 89)
    results = -(-(p.lanes + p.pe1_rows + latency) // 16) * 16
    step = 29 + p.narrow  # with whether a digit begins
    pe1 = (16 + ahead) * asked + 16 * step + 4 * 21
    pe2 = 32 * asked + 16 * (step + 1 + group_bits)
    write_back = results * result + 2 * place + 4 * item
    table = TABLES * (1 << TABLE_WORD_WIDTH) * OPERAND_WIDTH
    return transfers + pe1 + pe2 + write_back + p.decoder_tables * table


@dataclass(frozen=True)
class Preset:
    """Sizes for one device, and the device's own totals of what they take."""

    multipliers: int
    """Multipliers of at least 18 x 18 bits."""
    memory_bits: int
    """Block RAM."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Parameters other than their defaults."""


PRESETS = {name: Preset(**entry) for name, entry in packaged(__file__, "presets.toml").items()}
"""Parameters of the accelerators built for boards, by the name of the device."""


def preset(name: str) -> AcceleratorParameters:
    """Return the accelerator for a device; ``ValueError`` for an unknown name."""
    return AcceleratorParameters(**_preset_sizes(name))


def _preset_sizes(name: str) -> Mapping[str, Any]:
    if name not in PRESETS:
        raise ValueError(
            f"no preset {name!r}; there are {', '.join(PRESETS)}{suggestion(name, PRESETS)}"
        )
    return PRESETS[name].sizes


GONE = ("pe1_store_depth", "pe2_store_depth")
"""Sizes of factor stores, which accelerators no longer have. Old checkpoints, models and reports
name them."""


def without_gone(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of ``AcceleratorParameters`` from sizes of this version or an old one."""
    return {name: value for name, value in sizes.items() if name not in GONE}


def parse_overrides(items: Sequence[str]) -> dict[str, Any]:
    """Return ``NAME=VALUE`` texts as keyword arguments of ``AcceleratorParameters``.

    ``preset=NAME`` stands for the sizes of a preset; other settings override it. Parameters in
    ``GONE`` are ignored. Raises ``ValueError`` that names the text: for an unknown parameter or
    preset, for two different values of a parameter, and for a value that is no integer (in
    ``formats``: no list of formats).
    """
    known = [field.name for field in fields(AcceleratorParameters)]
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, _, text in (item.partition("=") for item in items):
        if given.setdefault(name, text) != text:
            raise ValueError(
                f"{name} is given twice, as {given[name]!r} and as {text!r}: give it once"
            )
    presets = [item for item in items if item.startswith("preset=")]
    for item in presets:
        values |= _preset_sizes(item.partition("=")[2])
    for item in (item for item in items if item not in presets):
        name, _, text = item.partition("=")
        if name not in known and name not in GONE:
            raise ValueError(
                f"no parameter {name!r} (from {item!r}); there are {', '.join(known)}"
                f"{suggestion(name, known)}"
            )
        if name == "formats":
            values[name] = text
            continue
        try:
            values[name] = read_integer(text, 0)
        except ValueError:
            raise ValueError(f"{name} must be an integer, as in {name}=8, not {text!r}") from None
    return without_gone(values)
