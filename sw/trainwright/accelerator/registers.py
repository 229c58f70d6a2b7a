"""The register map: what host, hardware and simulation agree on (``docs/accelerator.md``)."""

from dataclasses import fields
from enum import IntEnum

from trainwright.accelerator.interface import Counters
from trainwright.program.fields import Engine

IDENTITY_VALUE = 0x54525733
"""What IDENTITY reads: "TRW3"."""

IDENTITY = 0x000
FINGERPRINT = 0x004
CONTROL = 0x008
STATUS = 0x00C
PROGRAM_ADDRESS = 0x010
PROGRAM_LENGTH = 0x014
INTERRUPT_ENABLE = 0x018
WATCHDOG = 0x01C
"""Cycles without any movement after which a run is stopped; 0: never."""
LAST = 0x020
"""Descriptors that the engines were given last: 16 bits each for LOAD, STORE, PE1, PE2."""
ORDER = 0x030
"""With ``sample_loads``: next, increment and left of the order in which samples are drawn."""
COUNTERS_BASE = 0x040
"""The first of the 64-bit counters."""
TIMES = 0x0B0
"""With ``exponents``: how often a start runs the program; 0 is as 1."""
STEP = 0x0B4
"""With ``exponents``: the number of the present step; it counts on."""
WINDOW = 0x0B8
"""With ``address_checks``: the first page of the external memory that programs may touch, and the
last one, pages being of 4 KiB; after a reset all of them."""
EXPONENTS_BASE = 0x400
"""With ``exponents``: a word for each slot, signed; written between runs."""
STATISTICS_BASE = 0x1000
STATISTICS_BYTES = 16
"""Bytes of a statistics slot."""

CONTROL_START = 1
CONTROL_CLEAR = 2
STATUS_BUSY = 1
STATUS_DONE = 2
STATUS_ERROR = 4

WATCHDOG_CYCLES = 200_000
"""WATCHDOG as the driver sets it: twenty times the slowest memory that a simulation takes."""

COUNTER_NAMES = tuple(field.name for field in fields(Counters))
"""In the order of the counters from ``COUNTERS_BASE``."""


class Error(IntEnum):
    """Why a run stopped: STATUS's error code."""

    NONE = 0
    OPERATION = 1
    PROGRAM = 2
    NESTING = 3
    READ = 4
    WRITE = 5
    WATCHDOG = 6
    FORMAT = 7
    EXPONENT = 8
    ALIGNMENT = 9
    NEGATIVE = 10
    ADDRESS = 11


OF_FILE = (Error.EXPONENT, Error.ALIGNMENT, Error.NEGATIVE)
"""Errors with which the exponent file refuses a descriptor; the accelerator goes on after them."""

MEANINGS: dict[int, str] = {
    Error.OPERATION: "unknown operation, or a program without HALT",
    Error.PROGRAM: "program of more than 65,535 descriptors",
    Error.NESTING: "loops nested too deep, or an END without its LOOP",
    Error.READ: "the memory answered a read with an error",
    Error.WRITE: "the memory answered a write with an error",
    Error.WATCHDOG: "nothing moved for as long as WATCHDOG says",
    Error.FORMAT: "an operand holds NaR, or a word beyond its format's greatest posit",
    Error.EXPONENT: "an exponent beyond 8 bits",
    Error.ALIGNMENT: "operands of BIAS further apart than it aligns",
    Error.NEGATIVE: "a shift by exponents that is negative",
    Error.ADDRESS: "an address outside a memory, or outside the window of the external one",
}


def status_error(status: int) -> tuple[int, int]:
    """Error code and descriptor number of a STATUS value."""
    return status >> 8 & 0xFF, status >> 16


def hung_engines(status: int) -> Engine:
    """The engines that were busy when the watchdog stopped the run, of a STATUS value."""
    return Engine(status >> 4 & 15)
