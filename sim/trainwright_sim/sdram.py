"""A model of an SDRAM chip that checks what it is told: ``native/serial/sdram_chip.h``."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_uint8, c_uint32, c_uint64, c_void_p

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError
from trainwright.support.native import load
from trainwright.support.native.tools import INSTALL
from trainwright_sim.engines import SERIAL
from trainwright_sim.model import NativeModel

MEMORY_BYTES = 1 << 25
PINS = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o", "dq_oe")
"""Pins that a controller drives, in the order of ``SdramChip.step``."""
COUNTS = ("activates", "precharges", "reads", "writes", "refreshes", "cycles")


class _Pins(Structure):
    _fields_ = tuple((name, c_uint32) for name in PINS)


_FUNCTIONS = {
    "open": (c_void_p, (c_uint64, c_uint64)),
    "close": (None, (c_void_p,)),
    "reset": (None, (c_void_p,)),
    "step": (c_uint32, (c_void_p, POINTER(_Pins))),
    "fault": (c_char_p, (c_void_p,)),
    "bytes": (POINTER(c_uint8), (c_void_p,)),
    "counts": (POINTER(c_uint64), (c_void_p,)),
}


class SdramChip(NativeModel):
    """A chip of 32 MiB with a clock of ``clock_hz`` that wants ``power_up_ns`` before commands.

    Its commands, their times, refreshes and who drives the data are checked; ``fault`` tells the
    first breach. Raises ``AcceleratorError`` where there is no compiler to build it with.
    """

    def __init__(self, clock_hz: float, *, power_up_ns: float = 200e3):
        library = load(SERIAL.folder / "sdram_chip.c")
        if library is None:
            raise AcceleratorError(f"the model of an SDRAM needs a C compiler: {INSTALL}")
        super().__init__(library, "trainwright_sdram_", _FUNCTIONS)
        self._pins = _Pins()
        self._open(round(1e12 / clock_hz), round(power_up_ns * 1e3))

    def step(self, pins: Sequence[int]) -> int:
        """Step one cycle with these ``PINS``; return the data pins of the next cycle."""
        for name, value in zip(PINS, pins, strict=True):
            setattr(self._pins, name, value)
        return self._call("step", ctypes.byref(self._pins)) & 0xFFFF

    @property
    def fault(self) -> str:
        """The first thing that was wrong, or nothing."""
        return self._call("fault").decode()

    @property
    def memory(self) -> npt.NDArray[np.uint8]:
        """The contents (``MEMORY_BYTES``,), in place: rows of banks in the order of addresses."""
        return np.ctypeslib.as_array(self._call("bytes"), (MEMORY_BYTES,))

    @property
    def counts(self) -> dict[str, int]:
        """Commands so far, and cycles."""
        return dict(zip(COUNTS, self._call("counts")[: len(COUNTS)], strict=True))

    def reset(self) -> None:
        """Switch the power off and on; the contents stay."""
        self._call("reset")
