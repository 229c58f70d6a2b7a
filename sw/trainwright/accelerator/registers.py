"""The register map: one table, for host, hardware, simulation, driver files and reference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum

from trainwright.accelerator.interface import Counters
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS, ENGINES

WATCHDOG_CYCLES = 200_000
"""WATCHDOG as the driver sets it: twenty times the slowest memory that a simulation takes."""

COUNTER_NAMES = tuple(field.name for field in fields(Counters))
"""Names of the counters, in the order of their registers."""


# ---- Table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegisterField:
    """Bits of a register, from ``low`` upwards."""

    name: str
    low: int
    width: int
    meaning: str

    def value(self, word: int) -> int:
        """Return the field of a register's value."""
        return word >> self.low & ((1 << self.width) - 1)

    @property
    def mask(self) -> int:
        """Bits of the field in a register's value."""
        return ((1 << self.width) - 1) << self.low


@dataclass(frozen=True)
class HostRegister:
    """Register of one or two words of 32 bits, or an array of such registers."""

    name: str
    offset: int
    access: str
    """"R", "W" or "RW"."""
    meaning: str
    fields: tuple[RegisterField, ...] = ()
    reset: int | Callable[[AcceleratorParameters], int] = 0
    words: int = 1
    needs: str = ""
    """Parameter of the accelerator without which the register reads as zero."""
    count: str = ""
    """Parameter with the number of elements, of an array."""
    step: int = 0
    """Bytes from one element of an array to the next."""
    block: str = ""
    """Name of the array of blocks that the register belongs to; without one the register itself
    is repeated."""
    near: int = 0
    """Most elements of an array at ``offset``; 0: any number."""
    far: int = 0
    """Offset of an array of more elements than ``near``."""

    def reset_value(self, p: AcceleratorParameters) -> int:
        """Return the value after a reset."""
        return self.reset if isinstance(self.reset, int) else self.reset(p)

    def elements(self, p: AcceleratorParameters) -> int:
        """Return the number of elements, 0 where the accelerator lacks the register."""
        if self.needs and not getattr(p, self.needs):
            return 0
        return getattr(p, self.count) if self.count else 1

    def place(self, p: AcceleratorParameters) -> int:
        """Return the offset in the map of an accelerator."""
        return self.far if self.near and self.elements(p) > self.near else self.offset


IDENTITY_VALUE = 0x54525735
"""Value of IDENTITY: "TRW5". It grows with what programs find in the hardware, tables included."""
COUNTERS_BASE = 0x040
MORE_COUNTERS_BASE = 0x0C0
"""Place of the counters that do not fit below TIMES."""
PAGE_SHIFT = 12
"""Bits of a byte address within its page, 4 KiB, which no burst crosses."""
STATISTICS_BASE = 0x1000
STATISTICS_BYTES = 16
"""Bytes of a statistics slot."""
# Larger arrays would overlap at the places of smaller ones. Their own places are multiples of their
# sizes, so that bits of the address are the number of a slot.
_FAR_EXPONENTS = 0x2000
_FAR_STATISTICS = 0x4000

_ENGINES = [spec.name for spec in ENGINES]
_COUNTED = {
    "cycles": "cycles of the last run",
    "wait_engine": "cycles the sequencer waited for engines",
    "bytes_read": "bytes read from the external memory",
    "bytes_written": "bytes written to the external memory",
    "stall_load": "cycles LOAD waited for the memory",
    "stall_store": "cycles STORE waited for the memory",
    **{f"busy_{name.lower()}": f"cycles {name} was busy" for name in _ENGINES},
    **{
        f"stall_{spec.unit}_{what}": f"cycles {spec.name} waited for {reason}"
        for spec in ARRAYS.values()
        for what, reason in (("operand", "an operand"), ("result", "credit for a result"))
    },
}
"""Meaning of each counter."""


def _last_page(p: AcceleratorParameters) -> int:
    return (1 << (p.address_width - PAGE_SHIFT)) - 1


def _registers() -> Iterator[HostRegister]:
    """Yield the registers in the order of their offsets."""
    yield HostRegister("IDENTITY", 0x000, "R", '"TRW5"', reset=IDENTITY_VALUE)
    yield HostRegister("FINGERPRINT", 0x004, "R", "fingerprint of the parameters",
                   reset=lambda p: p.fingerprint)  # fmt: skip
    yield HostRegister("CONTROL", 0x008, "W", "", (
        RegisterField("START", 0, 1, "start"),
        RegisterField("CLEAR", 1, 1, "clear done and error"),
    ))  # fmt: skip
    yield HostRegister("STATUS", 0x00C, "R", "", (
        RegisterField("BUSY", 0, 1, "busy"),
        RegisterField("DONE", 1, 1, "done"),
        RegisterField("ERROR", 2, 1, "error"),
        RegisterField("HUNG", 8 - len(_ENGINES), len(_ENGINES),  # bits 3 to 7: five at most
                      f"engines that hang ({', '.join(_ENGINES)})"),
        RegisterField("CODE", 8, 8, "error code"),
        RegisterField("DESCRIPTOR", 16, 16, "descriptor"),
    ))  # fmt: skip
    yield HostRegister("PROGRAM_ADDRESS", 0x010, "RW", "byte address of the first descriptor")
    yield HostRegister("PROGRAM_LENGTH", 0x014, "RW", "descriptors")
    yield HostRegister("INTERRUPT_ENABLE", 0x018, "RW", "", (
        RegisterField("ENABLE", 0, 1, "interrupt when done or error"),
    ))  # fmt: skip
    yield HostRegister("WATCHDOG", 0x01C, "RW",
                   "cycles without movement after which a run is stopped; 0: never")  # fmt: skip
    for number in range(0, len(_ENGINES), 2):
        names = _ENGINES[number : number + 2]
        yield HostRegister(f"LAST_{'_'.join(names)}", 0x020 + 2 * number, "R", "", tuple(
            RegisterField(name, 16 * n, 16, f"descriptor that {name} was given last")
            for n, name in enumerate(names)
        ))  # fmt: skip
    for number, name in enumerate(("NEXT", "INCREMENT", "LEFT")):
        yield HostRegister(f"ORDER_{name}", 0x030 + 4 * number, "RW",
                       "state of the order in which samples are drawn; written between runs",
                       needs="sample_loads")  # fmt: skip
    for number, name in enumerate(COUNTER_NAMES):
        further = number - (0x0B0 - COUNTERS_BASE) // 8
        offset = MORE_COUNTERS_BASE + 8 * further if further >= 0 else COUNTERS_BASE + 8 * number
        yield HostRegister(name.upper(), offset, "R", _COUNTED[name], words=2)
    yield HostRegister("TIMES", 0x0B0, "RW", "how often a start runs the program; 0 is as 1",
                   reset=1, needs="exponents")  # fmt: skip
    yield HostRegister("STEP", 0x0B4, "RW",
                   "number of the present step, while a program runs too; written between runs",
                   needs="exponents")  # fmt: skip
    for number, name in enumerate(("FIRST", "LAST")):
        yield HostRegister(f"WINDOW_{name}", 0x0B8 + 4 * number, "RW",
                       f"{name.lower()} page of 4 KiB of the external memory that programs may "
                       "touch; all of them after a reset", needs="address_checks",
                       reset=_last_page if name == "LAST" else 0)  # fmt: skip
    yield HostRegister("EXPONENT", 0x400, "RW",
                   "exponent of a slot: 8 bits, signed, sign-extended where it is read; written "
                   "between runs (else ignored), when its tensor is not known to be above its "
                   "floor; a reset leaves them",
                   needs="exponents", count="exponents", step=4, near=512,
                   far=_FAR_EXPONENTS)  # fmt: skip
    for offset, name, meaning, words in (
        (0, "SUM", "sum of |q| of a slot", 2),
        (8, "SATURATIONS", "saturations of a slot", 1),
        (12, "UNDERFLOWS", "underflows of a slot (0 without posits)", 1),
    ):
        yield HostRegister(name, STATISTICS_BASE + offset, "R", meaning, words=words,
                           count="statistics_depth", step=STATISTICS_BYTES, block="STATISTICS",
                           near=256, far=_FAR_STATISTICS + offset)  # fmt: skip


REGISTERS = tuple(sorted(_registers(), key=lambda register: register.offset))
_BY_NAME = {register.name: register for register in REGISTERS}
_OFFSETS = {register.name: register.offset for register in REGISTERS}
STATUS_FIELDS = {field.name: field for field in _BY_NAME["STATUS"].fields}
_CONTROL = {field.name: field.mask for field in _BY_NAME["CONTROL"].fields}

IDENTITY = _OFFSETS["IDENTITY"]
FINGERPRINT = _OFFSETS["FINGERPRINT"]
CONTROL = _OFFSETS["CONTROL"]
STATUS = _OFFSETS["STATUS"]
PROGRAM_ADDRESS = _OFFSETS["PROGRAM_ADDRESS"]
PROGRAM_LENGTH = _OFFSETS["PROGRAM_LENGTH"]
INTERRUPT_ENABLE = _OFFSETS["INTERRUPT_ENABLE"]
WATCHDOG = _OFFSETS["WATCHDOG"]
LAST = _OFFSETS["LAST_LOAD_STORE"]
ORDER = _OFFSETS["ORDER_NEXT"]
TIMES = _OFFSETS["TIMES"]
STEP = _OFFSETS["STEP"]
WINDOW = _OFFSETS["WINDOW_FIRST"]
EXPONENTS_BASE = _OFFSETS["EXPONENT"]
COUNTER_OFFSETS = tuple([_OFFSETS[name.upper()] for name in COUNTER_NAMES])
"""Offsets of ``COUNTER_NAMES``."""


def exponents_base(p: AcceleratorParameters) -> int:
    """Return the byte address of exponent 0: ``EXPONENTS_BASE`` for up to 512 exponents."""
    return _BY_NAME["EXPONENT"].place(p)


def statistics_base(p: AcceleratorParameters) -> int:
    """Return the byte address of statistics slot 0: ``STATISTICS_BASE`` for up to 256 slots."""
    return _BY_NAME["SUM"].place(p)


CONTROL_START = _CONTROL["START"]
CONTROL_CLEAR = _CONTROL["CLEAR"]
STATUS_BUSY = STATUS_FIELDS["BUSY"].mask
STATUS_DONE = STATUS_FIELDS["DONE"].mask
STATUS_ERROR = STATUS_FIELDS["ERROR"].mask


# ---- Errors ------------------------------------------------------------------------------------


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
    """Return error code and descriptor number of a STATUS value."""
    return STATUS_FIELDS["CODE"].value(status), STATUS_FIELDS["DESCRIPTOR"].value(status)
