"""A compiled simulator in this process: the functions of ``native/library.cc``."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError, CommandRecord, Trace
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import EVERY_ENGINE, TRACED
from trainwright.program.fields import MOST_DESCRIPTORS
from trainwright_sim.memory import CHANNELS, MemoryModel
from trainwright_sim.model import NativeModel

ABI = 1
_BEAT_CREDIT = 1 << 16
_CERTAIN = 1 << 12


class Stop(IntEnum):
    """Why ``Simulator.run`` returned."""

    CYCLES = 0
    INTERRUPT = 1
    IDLE = 2
    FAULT = 3


class _MemorySettings(Structure):
    _fields_ = (
        ("read_latency", c_uint32),
        ("write_latency", c_uint32),
        ("outstanding", c_uint32),
        ("rate", c_uint32),
        ("stall", c_uint32 * len(CHANNELS)),
        ("reserved", c_uint32),
        ("seed", c_uint64),
    )


_FUNCTIONS = {
    "abi": (c_uint32, ()),
    "open": (c_void_p, (c_void_p, c_uint64)),
    "close": (None, (c_void_p,)),
    "reset": (None, (c_void_p,)),
    "configure": (None, (c_void_p, POINTER(_MemorySettings))),
    "write_register": (c_int, (c_void_p, c_uint32, c_uint32)),
    "read_register": (c_int, (c_void_p, c_uint32, POINTER(c_uint32))),
    "run": (c_int, (c_void_p, c_uint64, c_uint64)),
    "fault": (c_char_p, (c_void_p,)),
    "cycles": (c_uint64, (c_void_p,)),
    "beats_read": (c_uint64, (c_void_p,)),
    "beats_written": (c_uint64, (c_void_p,)),
    "trace": (None, (c_void_p, c_int)),
    "commands_length": (c_uint64, (c_void_p,)),
    "commands_copy": (None, (c_void_p, POINTER(c_uint64))),
    "trace_length": (c_uint64, (c_void_p, c_int)),
    "trace_copy": (None, (c_void_p, c_int, POINTER(c_uint32), POINTER(c_uint8))),
}


class Simulator(NativeModel):
    """Simulation of one design, out of reset, with ``memory`` behind its memory port.

    ``memory`` (n,) uint8, contiguous, is used in place and must not be moved. Calls release the
    interpreter lock; one thread at a time. Raises ``OSError`` or ``AttributeError`` for a file
    that is no such library, ``AcceleratorError`` when the simulated host port does not answer.
    """

    FUNCTIONS: ClassVar[Mapping[str, tuple[Any, tuple]]] = _FUNCTIONS

    def __init__(self, library: Path, memory: npt.NDArray[np.uint8]):
        super().__init__(ctypes.CDLL(str(library)), "trainwright_", self.FUNCTIONS)
        self._memory = memory
        if self._functions["abi"]() != ABI:
            raise OSError(f"{library} is of another version")
        self._open(memory.ctypes.data, memory.size)

    def reset(self) -> None:
        """Reset the design, and forget bursts under way and faults."""
        self._call("reset")

    def configure(self, model: MemoryModel) -> None:
        """Set the timing of the memory."""
        settings = _MemorySettings(
            read_latency=model.read_latency,
            write_latency=model.write_latency,
            outstanding=model.outstanding,
            rate=round(model.bandwidth * _BEAT_CREDIT),
            stall=(c_uint32 * len(CHANNELS))(
                *(round(stall * _CERTAIN) for stall in model.channel_stalls())
            ),
            seed=model.seed,
        )
        self._call("configure", ctypes.byref(settings))

    def write_register(self, address: int, value: int) -> None:
        """Write one register through AXI4-Lite."""
        if not self._call("write_register", address, value):
            raise AcceleratorError(self.fault)

    def read_register(self, address: int) -> int:
        """Read one register through AXI4-Lite."""
        value = c_uint32()
        if not self._call("read_register", address, ctypes.byref(value)):
            raise AcceleratorError(self.fault)
        return value.value

    def read_registers(self, address: int, count: int) -> npt.NDArray[np.uint32]:
        """Read ``count`` registers from ``address`` on, one read each."""
        return np.array([self.read_register(address + 4 * n) for n in range(count)], np.uint32)

    def run(self, cycles: int, idle_cycles: int) -> Stop:
        """Run until the interrupt, ``cycles``, a fault, or ``idle_cycles`` without a beat."""
        return Stop(self._call("run", cycles, idle_cycles))

    @property
    def fault(self) -> str:
        """The first fault of a port, or nothing."""
        return self._call("fault").decode()

    @property
    def cycles(self) -> int:
        """Cycles simulated so far, resets and register accesses among them."""
        return self._call("cycles")

    @property
    def beats(self) -> tuple[int, int]:
        """Beats read and written over the memory port so far."""
        return self._call("beats_read"), self._call("beats_written")

    def trace(self, enable: bool) -> None:
        """Forget what was traced; record from now on, or no more."""
        self._call("trace", enable)

    def traced_rows(self) -> tuple[int, ...]:
        """Return how many rows each engine of ``TRACED`` has written while tracing."""
        return tuple(self._call("trace_length", engine) for engine in range(len(TRACED)))

    def command_words(self) -> npt.NDArray[np.uint64]:
        """Return commands in order: engine, descriptor, first and last cycle, and both stalls.

        A command's last cycle is its first one until the command is done.
        """
        records = np.empty((self._call("commands_length"), 6), np.uint64)
        self._call("commands_copy", records.ctypes.data_as(POINTER(c_uint64)))
        return records

    def commands(self) -> tuple[CommandRecord, ...]:
        """Return the commands that the engines were given while tracing, in order."""
        records = self.command_words()
        begun = int(records[0, 2]) if len(records) else 0
        commands = []
        for engine, number, taken, done, operand, result in records.tolist():
            number = number if number < MOST_DESCRIPTORS else -1  # a load of the program itself
            span = (taken - begun, done - begun)
            commands.append(CommandRecord(number, EVERY_ENGINE[engine], *span, operand, result))
        return tuple(commands)

    def traces(self, parameters: AcceleratorParameters) -> dict[str, Trace]:
        """Return the trace of each engine."""
        traces = {}
        for number, (engine, length) in enumerate(zip(TRACED, self.traced_rows(), strict=True)):
            addresses = np.empty(length, np.uint32)
            rows = np.empty((length, parameters.lanes), f"i{parameters.word_width // 8}")
            self._call(
                "trace_copy",
                number,
                addresses.ctypes.data_as(POINTER(c_uint32)),
                rows.ctypes.data_as(POINTER(c_uint8)),
            )
            traces[engine] = Trace(addresses.astype(np.int64), rows.astype(np.int16))
        return traces


class WaveSimulator(Simulator):
    """Simulation that can write a waveform of its signals (``native/waves/waves.cc``)."""

    FUNCTIONS = _FUNCTIONS | {
        "signals": (None, (c_void_p, c_char_p)),
        "waveform": (None, (c_void_p, c_char_p, c_char_p, c_uint64, c_uint64)),
        "waveform_end": (None, (c_void_p,)),
    }

    def signals(self, path: Path) -> None:
        """Write an FST file with every signal and its present value."""
        self._call("signals", os.fsencode(path))

    def waveform(self, path: Path, signals: Sequence[str], first: int, last: int) -> None:
        """Write an FST file while the descriptors ``first`` to ``last`` of the next run execute.

        ``signals`` are full names, none for every signal.
        """
        names = "\n".join(signals).encode()
        self._call("waveform", os.fsencode(path), names, first, last)

    def end_waveform(self) -> None:
        """Complete the file of a waveform whose last descriptor was not executed."""
        self._call("waveform_end")
