"""A board in simulation: all of ``trainwright_hw.soc`` behind a simulated serial line."""

import ctypes
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

import numpy as np
from amaranth.lib import wiring
from numpy.typing import NDArray

from trainwright.accelerator import AcceleratorError, memory_bytes_of
from trainwright.link.backend import LinkAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.support.native.cache import Cache
from trainwright.support.native.tools import Progress
from trainwright_hw.external.on_chip_memory import OnChipMemory
from trainwright_hw.external.sdram.controller import SdramMemory
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_hw.soc import soc_to_rtlil
from trainwright_sim import sdram
from trainwright_sim.build import build, tell
from trainwright_sim.engines import SERIAL
from trainwright_sim.model import NativeModel

DIVISOR = 4
"""Cycles of a bit: few, as the line is most of what is simulated."""
CLOCK_HZ = 100_000_000
MEMORY_BYTES = 1 << 17
"""Bytes of block RAM that an LFE5U-85F has to spare."""

_FUNCTIONS = {
    "abi": (c_uint32, ()),
    "open": (c_void_p, (c_uint32, c_uint64)),
    "close": (None, (c_void_p,)),
    "reset": (None, (c_void_p,)),
    "send": (None, (c_void_p, ctypes.c_char_p, c_uint64)),
    "run": (None, (c_void_p, c_uint64)),
    "take": (c_uint64, (c_void_p, ctypes.POINTER(c_uint8), c_uint64)),
    "cycles": (c_uint64, (c_void_p,)),
    "fault": (ctypes.c_char_p, (c_void_p,)),
    "memory": (ctypes.POINTER(c_uint8), (c_void_p,)),
}
_MOST_BYTES = 1 << 12


class SimulatedLine(NativeModel):
    """A ``trainwright.link.host.Line`` to a simulated design, compiled at ``library``.

    Seconds are those of its clock, ``clock_hz``; the design stands still between two calls.
    ``memory`` is what its SDRAM holds, in place (``trainwright_sim.sdram.MEMORY_BYTES``,) uint8;
    None without one. What the chip complains of is an ``AcceleratorError``.
    """

    def __init__(self, library: Path, *, divisor: int, clock_hz: int):
        self.name = "the simulated line"
        self.baud = clock_hz / divisor
        self._clock_hz = clock_hz
        super().__init__(ctypes.CDLL(str(library)), "trainwright_", _FUNCTIONS)
        if self._functions["abi"]() != 2:
            raise AcceleratorError(f"the simulator {library} is of another version; remove it")
        self._open(divisor, round(1e12 / clock_hz))
        chip = self._call("memory")
        self.memory = np.ctypeslib.as_array(chip, (sdram.MEMORY_BYTES,)) if chip else None

    @property
    def cycles(self) -> int:
        """Cycles simulated so far."""
        return self._call("cycles")

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._call("send", data, len(data))

    def read(self, seconds: float) -> bytes:
        """Wait for bytes: at least one, unless ``seconds`` of simulated time pass."""
        self._call("run", max(1, round(seconds * self._clock_hz)))
        if fault := self._call("fault"):
            raise AcceleratorError(f"the SDRAM was misused: {fault.decode()}")
        buffer = (c_uint8 * _MOST_BYTES)()
        size = self._call("take", buffer, _MOST_BYTES)
        return bytes(buffer)[:size]

    def drain(self) -> None:
        """Forget what has come."""
        self.read(0)

    def reopen(self) -> None:
        """Keep the line as it is: a simulated line does not fail."""

    def reset(self) -> None:
        """Press the reset button of the board: work under way is lost."""
        self._call("reset")


def open_line(
    parameters: AcceleratorParameters,
    *,
    memory_bytes: int = MEMORY_BYTES,
    divisor: int = DIVISOR,
    clock_hz: int = CLOCK_HZ,
    progress: Progress = tell,
    cache: str | Path | None = None,
    accelerator: wiring.Component | None = None,
    timing: SdramTiming | None = None,
) -> SimulatedLine:
    """Open a simulated board with on-chip memory, or with the SDRAM that ``timing`` describes.

    ``memory_bytes`` of on-chip memory are a power of two. The SDRAM's chip checks its commands.
    ``accelerator`` may be another component with the accelerator's ports.

    Raises ``AcceleratorError`` where the simulator cannot be built.
    """
    memory = (
        OnChipMemory(parameters, memory_bytes=memory_bytes)
        if timing is None
        else SdramMemory(parameters, timing=timing, cycles=timing.cycles(clock_hz))
    )
    rtlil = soc_to_rtlil(
        parameters,
        memory=memory,
        divisor=divisor,
        clock_hz=clock_hz,
        accelerator=accelerator,
    )
    kept = Cache(None if cache is None else Path(cache))
    library = build(rtlil, harness=SERIAL, cache=kept, progress=progress)
    return SimulatedLine(library, divisor=divisor, clock_hz=clock_hz)


class BackDoor(LinkAccelerator):
    """Accelerator on a simulated board whose memory is written and read in the chip itself.

    The serial line would take minutes for the memory's bytes. Registers, and starts and ends of
    programs, go over the line; unless ``direct`` the memory does, too.
    """

    def __init__(
        self, parameters: AcceleratorParameters, line: SimulatedLine, *, direct: bool = True
    ):
        self._chip = line.memory if direct else None
        # simulated time: an answer that is not there within a few thousand cycles never comes
        patience = 1e-3 if line.memory is None else 1e-2
        super().__init__(parameters, line, patience=patience, run_seconds=3600)

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Write bytes of the chip."""
        if self._chip is None:
            super().write(address, data)
            return
        self._check_place(address, data.size)
        self._require_idle()
        self._chip[address : address + data.size] = memory_bytes_of(data)

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """Read bytes of the chip."""
        if self._chip is None:
            return super().read(address, size)
        self._check_place(address, size)
        return self._chip[address : address + size].copy()


def open_sdram_board(
    parameters: AcceleratorParameters, *, memory_bytes: int, clock_hz: int
) -> BackDoor:
    """Open a simulated board with an SDRAM, at a clock (back end ``sdram-board``).

    Raises ``AcceleratorError`` where the simulator cannot be built or the chip is too small.
    """
    timing = SdramTiming()
    if memory_bytes > timing.memory_bytes:
        raise AcceleratorError(
            f"{memory_bytes} bytes are asked for, the SDRAM has {timing.memory_bytes}"
        )
    return BackDoor(parameters, open_line(parameters, timing=timing, clock_hz=clock_hz))


SDRAM = "sdram"
"""Value of a board's ``target`` that selects the SDRAM, at ``SDRAM_CLOCK_HZ``."""
DIRECT = "sdram,direct"
"""Value of a board's ``target`` that selects the SDRAM with a ``BackDoor`` to the memory."""
SDRAM_CLOCK_HZ = 60_000_000


class SimulatedBoard(BackDoor):
    """The accelerator on a simulated board (back end ``board``), through its host link.

    ``memory_bytes`` is what is asked for; the memory is block RAM as large as it must be to have
    it, but no larger than ``MEMORY_BYTES``. ``target`` may name another memory, ``SDRAM``. Raises
    ``AcceleratorError`` where the simulator cannot be built, ``ValueError`` for another ``target``.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        memory_bytes: int = MEMORY_BYTES,
        target: str = "",
        progress: Progress = tell,
        cache: str | Path | None = None,
    ):
        if target not in ("", SDRAM, DIRECT):
            raise ValueError(f"board, board:{SDRAM} or board:{DIRECT}, not board:{target}")
        least = 1 << (max(memory_bytes, 4096) - 1).bit_length()
        line = open_line(
            parameters,
            memory_bytes=min(least, MEMORY_BYTES),
            progress=progress,
            cache=cache,
            **({"timing": SdramTiming(), "clock_hz": SDRAM_CLOCK_HZ} if target else {}),
        )
        super().__init__(parameters, line, direct=target == DIRECT)
