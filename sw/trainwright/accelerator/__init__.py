"""Interface of accelerators to their users, with registers, and runs through them."""

from trainwright.accelerator.interface import (
    Accelerator,
    AcceleratorError,
    AcceleratorReset,
    CommandRecord,
    Counters,
    FileAccelerator,
    Run,
    Trace,
    UnattendedAccelerator,
    backend_names,
    is_backend,
    memory_bytes_of,
    open_accelerator,
)

__all__ = [
    "Accelerator",
    "AcceleratorError",
    "AcceleratorReset",
    "CommandRecord",
    "Counters",
    "FileAccelerator",
    "Run",
    "Trace",
    "UnattendedAccelerator",
    "backend_names",
    "is_backend",
    "memory_bytes_of",
    "open_accelerator",
]
