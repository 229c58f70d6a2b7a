"""Bit layout of the descriptors: one table, read by the encoder, the listing and the hardware.

A descriptor is ``DESCRIPTOR_BITS`` long, little-endian, fields packed from bit 0 upwards in the
order of the tables. Every descriptor starts with the ``HEADER`` fields; the rest depends on the
operation. All fields are unsigned; addresses and deltas are added modulo their width, so that a
negative delta is its two's complement.
"""

from enum import IntEnum, IntFlag

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


Field = tuple[str, int]

HEADER: tuple[Field, ...] = (("operation", 4), ("wait", 4), ("wait_older", 4))

COMPUTE: tuple[Field, ...] = (
    *HEADER,
    ("x_base", LOCAL_WIDTH),
    ("x_register", 3),
    ("g_base", LOCAL_WIDTH),
    ("g_register", 3),
    ("z_base", LOCAL_WIDTH),
    ("z_register", 3),
    ("x_row_stride", LOCAL_WIDTH),
    ("z_row_stride", LOCAL_WIDTH),
    ("g_row_stride", LOCAL_WIDTH),
    ("reduce_levels", 4),
    ("tile_level", 4),
    ("last_rows", 5),
    ("shift", 6),
    ("out_width", 5),
    ("slot", 8),
    ("relu", 1),
    ("x_shift", 4),
    ("g_shift", 4),
    *(
        (f"{name}{level}", width)
        for level in range(NEST_LEVELS)
        for name, width in (
            ("count", COUNT_WIDTH),
            ("x_delta", LOCAL_WIDTH),
            ("g_delta", LOCAL_WIDTH),
            ("z_delta", LOCAL_WIDTH),
        )
    ),
    ("stochastic", 1),
    ("x_format", FORMAT_WIDTH),
    ("g_format", FORMAT_WIDTH),
    ("z_format", FORMAT_WIDTH),
    ("underflow_zero", 1),
    ("digits", 1),
    ("x_exponent", SLOT_WIDTH),
    ("g_exponent", SLOT_WIDTH),
    ("z_exponent", SLOT_WIDTH),
    ("exact", 1),
    ("grows", 1),
)

TRANSFER: tuple[Field, ...] = (
    *HEADER,
    ("target", 2),
    ("element_bytes", 2),
    ("address", 32),
    ("address_register", 3),
    ("local", LOCAL_WIDTH),
    ("local_register", 3),
    ("beats", COUNT_WIDTH),
    *(
        (f"{name}{level}", width)
        for level in range(TRANSFER_LEVELS)
        for name, width in (
            ("count", COUNT_WIDTH),
            ("address_delta", 32),
            ("local_delta", LOCAL_WIDTH),
        )
    ),
    ("eighth", 4),
    ("later", 1),
    ("last", 1),
)

SAMPLES: tuple[Field, ...] = (
    *HEADER,  # as far as ``local_step`` in the places of TRANSFER's fields
    ("target", 2),
    ("pixel_bytes", 2),
    ("address", 32),
    ("address_register", 3),
    ("local", LOCAL_WIDTH),
    ("local_register", 3),
    ("record_beats", COUNT_WIDTH),
    ("samples", COUNT_WIDTH),
    ("stride", 32),
    ("local_step", LOCAL_WIDTH),
    ("targets", LOCAL_WIDTH),
    ("input_bits", 4),
    ("drawn", 1),
    ("total", ORDER_WIDTH),
    ("order_mask", ORDER_WIDTH),
    ("order_first", ORDER_WIDTH),
    ("order_length", ORDER_WIDTH),
)

LOOP: tuple[Field, ...] = (*HEADER, ("iterations", COUNT_WIDTH))

REGISTER_UPDATE: tuple[Field, ...] = (
    *HEADER,
    ("mask", REGISTERS),
    *((f"value{register}", REGISTER_WIDTH) for register in range(REGISTERS)),
    ("by_step", 1),
)

VECTOR: tuple[Field, ...] = (
    *HEADER,
    ("entry", 6),
    ("length", 6),
    ("rows", 24),
    ("inner", COUNT_WIDTH),
    ("key", LOCAL_WIDTH),
    ("slot", 8),
    ("reads", 8),
    ("writes", 8),
    *((f"constant{number}", 18) for number in range(8)),
    *(
        (f"{name}{stream}", LOCAL_WIDTH)
        for stream in range(8)
        for name in ("base", "outer_delta", "inner_delta")
    ),
    *(
        (f"{name}{scalar}", width)
        for scalar in range(4)
        for name, width in (
            ("scalar", 2),
            ("strict", 1),
            ("to", 3),
            ("plus", SLOT_WIDTH),
            ("minus", SLOT_WIDTH),
            ("offset", 7),
        )
    ),
    ("eighth", 4),
    ("later", 1),
    ("last", 1),
)

INSTRUCTION_WIDTH = 50
"""Bits of an instruction of the vector engine (``trainwright.program.vector``)."""
CODE: tuple[Field, ...] = (
    *HEADER,
    ("first", 6),
    ("instructions", 5),
    *((f"word{number}", INSTRUCTION_WIDTH) for number in range(20)),
    ("last", 1),
)

SCALES: tuple[Field, ...] = (
    *HEADER,
    ("entries", 11),  # an entry has the places of three of CODE's words: one selector serves both
    *(
        (f"{name}{entry}", width)
        for entry in range(6)
        for name, width in (
            ("exponent", 16),
            ("statistics", 16),
            ("copy", 18),
            ("low", INSTRUCTION_WIDTH),
            ("high", INSTRUCTION_WIDTH),
        )
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


OF_EXPONENTS = (
    "x_exponent", "g_exponent", "z_exponent", "exact", "grows", "by_step",
    *(
        f"{name}{scalar}"
        for scalar in range(4)
        for name in ("scalar", "strict", "to", "plus", "minus", "offset")
    ),
    "eighth", "later", "last",
)  # fmt: skip
"""Fields of descriptors that need an accelerator with an exponent file, the last ones of their
layouts."""
EIGHTH = 8
"""Steps of which a descriptor with ``eighth`` is executed in one, at least."""


def layout_width(layout: tuple[Field, ...]) -> int:
    """Bits of a layout."""
    return sum(width for _, width in layout)


assert all(layout_width(layout) <= DESCRIPTOR_BITS for layout in LAYOUTS.values())
assert layout_width(SAMPLES) <= layout_width(TRANSFER)
