"""Operations, engines and sizes of the instruction set.

A descriptor is ``DESCRIPTOR_BITS`` long, little-endian, fields packed from bit 0 upwards in the
order of its class (``trainwright.program.table``). Addresses and deltas are added modulo their
width, so that a negative delta is its two's complement.
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
SLOT_WIDTH = 10
"""Bits of the number of a statistics slot."""
EXPONENT_SLOT_WIDTH = 10
"""Bits of the number of a slot of the exponent file."""
FORMAT_WIDTH = 3
"""Bits of the number of a format: 0 fixed point, n the n-th posit of the accelerator."""
NEST_LEVELS = 10
"""Levels encoded in a contraction or element-wise descriptor."""
TRANSFER_LEVELS = 3
"""Levels encoded in a load or store descriptor."""


class Operation(IntEnum):
    """Operations of descriptors; codes 3 and 4 are unused."""

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


class Target(IntEnum):
    """Destination of a load; a program's own descriptors use the scratchpad alone."""

    SCRATCHPAD = 0
    PROGRAM = 3


INSTRUCTION_WIDTH = 50
"""Bits of an instruction of the vector engine (``trainwright.program.vector``)."""
EIGHTH = 8
"""Steps of which a descriptor with ``eighth`` is executed in one, at least."""
