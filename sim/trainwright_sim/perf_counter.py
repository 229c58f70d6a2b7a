"""Counts of the processor's own, where the system lets a process have them."""

import ctypes
import os
import platform
import struct
import sys

HARDWARE, INSTRUCTIONS = 0, 1
SOFTWARE, TASK_CLOCK = 1, 1
_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = 112  # bytes of perf_event_attr, version 5
_EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 5, 1 << 6


class PerfCounter:
    """Events of this thread outside of the kernel, by ``perf_event_open(2)``.

    ``read`` gives how many there were, None where the system has no such counter.
    """

    def __init__(self, kind: int = HARDWARE, event: int = INSTRUCTIONS):
        self._file = -1
        call = _CALLS.get(platform.machine())
        if not sys.platform.startswith("linux") or call is None:
            return
        flags = _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
        packed = struct.pack("<IIQQQQQ", kind, _ATTRIBUTES, event, 0, 0, 0, flags)
        attributes = ctypes.create_string_buffer(packed, _ATTRIBUTES)
        arguments = (ctypes.c_long(n) for n in (0, -1, -1, 0))
        self._file = ctypes.CDLL(None).syscall(
            ctypes.c_long(call), ctypes.byref(attributes), *arguments
        )

    def read(self) -> int | None:
        """Read the events so far, or None without a counter."""
        if self._file < 0:
            return None
        return struct.unpack("<Q", os.read(self._file, 8))[0]

    def close(self) -> None:
        """Give the counter back; idempotent."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
