"""The accelerator's registers as its host sees them (``docs/accelerator.md``)."""

from dataclasses import fields

from ttforge.accelerator import Counters

IDENTITY_VALUE = 0x54544631
"""What IDENTITY reads: "TTF1"."""

IDENTITY = 0x000
FINGERPRINT = 0x004
CONTROL = 0x008
STATUS = 0x00C
PROGRAM_ADDRESS = 0x010
PROGRAM_LENGTH = 0x014
INTERRUPT_ENABLE = 0x018
COUNTERS = 0x040
"""The first of the 64-bit counters."""
STATISTICS = 0x1000
STATISTICS_SLOT_BYTES = 16

CONTROL_START = 1
CONTROL_CLEAR = 2
STATUS_BUSY = 1
STATUS_DONE = 2
STATUS_ERROR = 4

COUNTER_NAMES = tuple(field.name for field in fields(Counters))
"""In the order of the counters from ``COUNTERS``."""

ERRORS = {
    1: "unknown operation",
    2: "program too long for the program memory",
    3: "loops nested too deep, or an END without its LOOP",
    4: "the memory answered a read with an error",
    5: "the memory answered a write with an error",
}
"""Meaning of STATUS's error code."""


def status_error(status: int) -> tuple[int, int]:
    """Error code and descriptor number of a STATUS value."""
    return status >> 8 & 0xFF, status >> 16 & 0xFFF
