"""The instruction set: one table of fields, for encoder, decoder, hardware and reference.

A descriptor is ``DESCRIPTOR_BITS`` long, little-endian, fields packed from bit 0 upwards in the
order of the tables. Every descriptor starts with the ``HEADER`` fields; the rest depends on the
operation. Addresses and deltas are added modulo their width, so that a negative delta is its two's
complement.
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple

DESCRIPTOR_BITS = 1024
DESCRIPTOR_BYTES = DESCRIPTOR_BITS // 8

LOCAL_WIDTH = 20
"""Bits of a scratchpad row or operand-group address."""
COUNT_WIDTH = 16
"""Bits of a loop count."""
NUMBER_WIDTH = 16
"""Bits of a descriptor's number."""
MOST_DESCRIPTORS = (1 << NUMBER_WIDTH) - 1
"""Descriptors of a program."""
MOST_REFILL = 8
"""Descriptors that are loaded at a time of a program longer than the program memory, at most."""
AHEAD = 64
"""Descriptors that are there at most where the last of them are those with which a program begins
again: the end of a step has other things to load."""
REGISTERS = 8
"""Address registers R0 to R7 of the sequencer; R0 reads as zero."""
REGISTER_WIDTH = 32
ORDER_WIDTH = 24
"""Bits of a sample's number in its data set."""
SLOT_WIDTH = 8
"""Bits of the number of a statistics slot, or of one of the exponent file."""
FORMAT_WIDTH = 3
"""Bits of the number of a format: 0 fixed point, n the n-th posit of the accelerator."""
NEST_LEVELS = 10
"""Levels encoded in a contraction or element-wise descriptor."""
TRANSFER_LEVELS = 3
"""Levels encoded in a load or store descriptor."""


class Operation(IntEnum):
    """What a descriptor does. 3 and 4 are no operations."""

    HALT = 0
    LOAD = 1
    STORE = 2
    PE3 = 5
    BIAS = 6
    MASK = 7
    LOOP = 8
    END = 9
    SET = 10
    PE4 = 11
    VECTOR = 12
    CODE = 13
    SAMPLES = 14
    SCALES = 15


class Engine(IntFlag):
    """Engines that work at the same time; ``wait`` and ``wait_older`` are masks of them."""

    NONE = 0
    LOAD = 1
    STORE = 2
    PE1 = 4
    PE2 = 8
    ALL = 15


ENGINE_OF = {
    Operation.LOAD: Engine.LOAD,
    Operation.STORE: Engine.STORE,
    Operation.PE3: Engine.PE2,
    Operation.BIAS: Engine.PE2,
    Operation.MASK: Engine.PE2,
    Operation.PE4: Engine.PE1,
    Operation.VECTOR: Engine.PE2,
    Operation.CODE: Engine.PE2,
    Operation.SAMPLES: Engine.LOAD,
}
"""The engine that executes each operation; the others are the sequencer's own."""


class Target(IntEnum):
    """Where a load puts its data; those of a program's descriptors are of the scratchpad alone."""

    SCRATCHPAD = 0
    PROGRAM = 3


class Field(NamedTuple):
    """Field of a layout: the widths of the fields before it give its place."""

    name: str
    width: int
    meaning: str
    least: int = 0
    """Least value; the greatest is that of the field's bits."""
    signed: bool = False
    """Whether the value is in two's complement."""
    resident: bool = False
    """Whether the field needs an exponent file: no engine sees it, and it is behind all others."""
    attribute: str = ""
    """Attribute of the descriptor that holds the value, where its name is another."""
    stem: str = ""
    """Name without the number, of a field that is repeated."""
    number: int | None = None
    """Number of the level, register or stream, of a field that is repeated."""

    @property
    def source(self) -> str:
        """Name of the descriptor's attribute with the value."""
        return self.attribute or self.name

    def encoded(self, value: int) -> int:
        """Return the bits of a value: two's complement where it is signed."""
        return value % (1 << self.width) if self.signed else value

    def decoded(self, bits: int) -> int:
        """Inverse of ``encoded``."""
        sign = 1 << (self.width - 1)
        return (bits ^ sign) - sign if self.signed else bits


def numbered(count: int, *fields: Field) -> tuple[Field, ...]:
    """Repeat fields ``count`` times, each with its number."""
    return tuple(
        field._replace(name=f"{field.name}{number}", stem=field.name, number=number)
        for number in range(count)
        for field in fields
    )


HEADER: tuple[Field, ...] = (
    Field("operation", 4, "what the descriptor does"),
    Field("wait", 4, "engines that must be idle first: 1 LOAD, 2 STORE, 4 PE1, 8 PE2"),
    Field(
        "wait_older", 4, "engines that must have done all commands but the last one: 4 PE1, 8 PE2"
    ),
)

COMPUTE: tuple[Field, ...] = (
    *HEADER,
    Field("x_base", LOCAL_WIDTH, "row of the first operand", attribute="x"),
    Field("x_register", 3, "register added to `x_base`"),
    Field("g_base", LOCAL_WIDTH, "row of the second operand, of PE3 group of words", attribute="g"),
    Field("g_register", 3, "register added to `g_base`"),
    Field("z_base", LOCAL_WIDTH, "row of the result", attribute="z"),
    Field("z_register", 3, "register added to `z_base`"),
    Field(
        "x_row_stride", LOCAL_WIDTH, "rows from one tile row of x to the next, signed", signed=True
    ),
    Field(
        "z_row_stride", LOCAL_WIDTH, "rows from one tile row of z to the next, signed", signed=True
    ),
    Field(
        "g_row_stride",
        LOCAL_WIDTH,
        "PE4: rows from one entry of g to the next, signed",
        signed=True,
    ),
    Field("reduce_levels", 4, "innermost levels that are summed"),
    Field("tile_level", 4, "level in whose last iteration a tile may have fewer rows"),
    Field("last_rows", 5, "tile rows written in that last iteration", least=1),
    Field("shift", 6, "right shift of the requantiser"),
    Field("out_width", 5, "bits that the result is saturated to"),
    Field("slot", 8, "statistics slot"),
    Field("relu", 1, "BIAS: negative sums become 0"),
    Field("x_shift", 4, "BIAS: left shift of x"),
    Field("g_shift", 4, "BIAS: left shift of g"),
    *numbered(
        NEST_LEVELS,
        Field("count", COUNT_WIDTH, "iterations of the level", least=1),
        Field("x_delta", LOCAL_WIDTH, "step of x when the level advances"),
        Field("g_delta", LOCAL_WIDTH, "step of g when the level advances"),
        Field("z_delta", LOCAL_WIDTH, "step of z when the level advances"),
    ),
    Field("stochastic", 1, "rounds by random bits"),
    Field(
        "x_format",
        FORMAT_WIDTH,
        "number format of x: 0 fixed point, n the n-th posit of the accelerator",
    ),
    Field("g_format", FORMAT_WIDTH, "number format of g"),
    Field("z_format", FORMAT_WIDTH, "number format of z; `out_width` is of fixed point alone"),
    Field(
        "underflow_zero",
        1,
        "z closer to 0 than the smallest posit becomes the nearer of the two; with `digits`: "
        "the second summed level goes over digits, the outermost over those of the other operand",
    ),
    Field(
        "digits", 1, "the outermost summed level goes over digits: sums so far x 2^7 as it advances"
    ),
    Field("x_exponent", SLOT_WIDTH, "slot of x's exponent", resident=True),
    Field("g_exponent", SLOT_WIDTH, "slot of that of g", resident=True),
    Field(
        "z_exponent",
        SLOT_WIDTH,
        "slot of that of z; not 0: the shifts are those of the exponents",
        resident=True,
    ),
    Field("exact", 1, "the exponent of z is its floor", resident=True),
    Field("grows", 1, "the exponent of z is at most 15 above that of g", resident=True),
)

TRANSFER: tuple[Field, ...] = (
    *HEADER,
    Field("target", 2, "0 scratchpad; 3 program memory, for the sequencer's own loads"),
    Field("element_bytes", 2, "bytes of an element outside: 1 or 2"),
    Field("address", 32, "byte address outside"),
    Field("address_register", 3, "register added to `address`"),
    Field("local", LOCAL_WIDTH, "row inside"),
    Field("local_register", 3, "register added to `local`"),
    Field("beats", COUNT_WIDTH, "beats of a run", least=1),
    *numbered(
        TRANSFER_LEVELS,
        Field("count", COUNT_WIDTH, "iterations of the level", least=1),
        Field("address_delta", 32, "step of `address` when the level advances"),
        Field("local_delta", LOCAL_WIDTH, "step of `local` when the level advances"),
    ),
    Field(
        "eighth",
        4,
        "m + r, m = 1, 2, 4, 8: only in steps of number r modulo m; 0: in all",
        resident=True,
    ),
    Field("later", 1, "1: not in the first step of a run", resident=True),
    Field("last", 1, "1: only in the last step of a run", resident=True),
)

SAMPLES: tuple[Field, ...] = (
    *HEADER,  # as far as ``local_step`` in the places of TRANSFER's fields
    Field("target", 2, "0 scratchpad; 3 program memory, for the sequencer's own loads"),
    Field("pixel_bytes", 2, "bytes of a pixel: 1, or 0 where it has 4 bits"),
    Field("address", 32, "byte address outside"),
    Field("address_register", 3, "register added to `address`"),
    Field("local", LOCAL_WIDTH, "row inside"),
    Field("local_register", 3, "register added to `local`"),
    Field(
        "record_beats",
        COUNT_WIDTH,
        "beats of a record: those of its pixels, and one of targets",
        least=1,
    ),
    Field("samples", COUNT_WIDTH, "records that are loaded", least=1),
    Field("stride", 32, "bytes from one record of the set to the next"),
    Field("local_step", LOCAL_WIDTH, "rows from one sample to the next, signed", signed=True),
    Field("targets", LOCAL_WIDTH, "row of the first sample's targets"),
    Field("input_bits", 4, "bits of an input, its sign left out", least=1),
    Field("drawn", 1, "the generator gives the records; else they are 0, 1, ..."),
    Field("total", ORDER_WIDTH, "records of the set", least=1),
    Field("order_mask", ORDER_WIDTH, "2^k - 1, k the bits of a record's number, at least 2"),
    Field("order_first", ORDER_WIDTH, "the generator's value at the begin of an epoch"),
    Field("order_length", ORDER_WIDTH, "samples of an epoch", least=1),
)

LOOP: tuple[Field, ...] = (
    *HEADER,
    Field("iterations", COUNT_WIDTH, "times the body is executed", least=1),
)

REGISTER_UPDATE: tuple[Field, ...] = (
    *HEADER,
    Field(
        "mask",
        REGISTERS,
        "registers that are set (SET) or stepped (END), bit n for Rn; bit 0, SET: the seed",
    ),
    *numbered(
        REGISTERS, Field("value", REGISTER_WIDTH, "value (SET) or step (END) of the register")
    ),
    Field("by_step", 1, "SET: the stream is the seed + step x 2 x 0x9E3779B9", resident=True),
)

VECTOR: tuple[Field, ...] = (
    *HEADER,
    Field("entry", 6, "first instruction of the pass"),
    Field("length", 6, "instructions of the pass", least=1),
    Field("rows", 24, "rows of the pass", least=1),
    Field("inner", COUNT_WIDTH, "iterations of the inner level", least=1),
    Field("key", LOCAL_WIDTH, "row of the first random bits"),
    Field("slot", 8, "statistics slot"),
    Field("reads", 8, "streams that are read"),
    Field("writes", 8, "streams that are written"),
    *numbered(8, Field("constant", 18, "a constant, signed", signed=True)),
    *numbered(
        8,
        Field("base", LOCAL_WIDTH, "first row of a stream"),
        Field("outer_delta", LOCAL_WIDTH, "step of a stream when the outer level advances"),
        Field("inner_delta", LOCAL_WIDTH, "step of a stream when the inner level advances"),
    ),
    *numbered(
        4,
        Field(
            "scalar",
            2,
            "what the scalar gives: 0 nothing, 1 a constant, 2 a power of two, 3 a shift",
            resident=True,
        ),
        Field("strict", 1, "whether a scalar under 0 is an error", resident=True),
        Field("to", 3, "number of the constant or shift that it gives", resident=True),
        Field("plus", SLOT_WIDTH, "slot that it begins with", resident=True),
        Field("minus", SLOT_WIDTH, "slot that is subtracted", resident=True),
        Field("offset", 7, "what is added, signed", signed=True, resident=True),
    ),
    Field(
        "eighth",
        4,
        "m + r, m = 1, 2, 4, 8: only in steps of number r modulo m; 0: in all",
        resident=True,
    ),
    Field("later", 1, "1: not in the first step of a run", resident=True),
    Field("last", 1, "1: only in the last step of a run", resident=True),
)

INSTRUCTION_WIDTH = 50
"""Bits of an instruction of the vector engine (``trainwright.program.vector``)."""
CODE: tuple[Field, ...] = (
    *HEADER,
    Field("first", 6, "place of the first instruction"),
    Field("instructions", 5, "instructions, 1 to 20", least=1),
    *numbered(20, Field("word", INSTRUCTION_WIDTH, "an instruction")),
    Field("last", 1, "1: only in the last step of a run", resident=True),
)

SCALES: tuple[Field, ...] = (
    *HEADER,
    Field("entries", 11, "entries, 1 to 6", least=1),
    *numbered(  # an entry has the places of three of CODE's words: one selector serves both
        6,
        Field("exponent", 16, "slot that moves; 0: none"),
        Field("statistics", 16, "statistics slot whose sum is taken"),
        Field("copy", 18, "slot that gets the exponent as it was; 0: none"),
        Field("low", INSTRUCTION_WIDTH, "sum under which the exponent goes down"),
        Field("high", INSTRUCTION_WIDTH, "sum over which it goes up"),
    ),
)

LAYOUTS: dict[Operation, tuple[Field, ...]] = {
    Operation.HALT: HEADER,
    Operation.LOAD: TRANSFER,
    Operation.STORE: TRANSFER,
    Operation.PE3: COMPUTE,
    Operation.BIAS: COMPUTE,
    Operation.MASK: COMPUTE,
    Operation.LOOP: LOOP,
    Operation.END: REGISTER_UPDATE,
    Operation.SET: REGISTER_UPDATE,
    Operation.PE4: COMPUTE,
    Operation.VECTOR: VECTOR,
    Operation.CODE: CODE,
    Operation.SAMPLES: SAMPLES,
    Operation.SCALES: SCALES,
}


EIGHTH = 8
"""Steps of which a descriptor with ``eighth`` is executed in one, at least."""


def layout_width(layout: tuple[Field, ...]) -> int:
    """Bits of a layout."""
    return sum(field.width for field in layout)


assert all(layout_width(layout) <= DESCRIPTOR_BITS for layout in LAYOUTS.values())
assert layout_width(SAMPLES) <= layout_width(TRANSFER)
