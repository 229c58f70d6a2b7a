"""Back ends, opened for every command that needs one."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Annotated, Any, ClassVar

from trainwright.accelerator import Accelerator, backend_names, is_backend, open_accelerator
from trainwright.cli.errors import OptionError
from trainwright.parameters import AcceleratorParameters
from trainwright.support.settings import OneOf, Option, Positive, SettingsModel
from trainwright.support.text import suggestion

MEMORY_BYTES = 1 << 26
"""Bytes of the accelerator's external memory."""


class SimulationOptions(SettingsModel):
    """Settings of the simulated hardware."""

    TITLE: ClassVar = "the simulated hardware (back end rtl)"
    memory_latency: Annotated[Positive | None, Option(metavar="CYCLES")] = None
    """cycles of a read (default: 40)"""
    memory_bandwidth: Annotated[float | None, Option(metavar="BEATS")] = None
    """beats a cycle (default: the accelerator's memory_rate, or 0.8)"""
    memory_stall: Annotated[float | None, Option(metavar="P")] = None
    """random pauses, 0 to 0.95 (default: 0)"""
    engine: Annotated[str | None, OneOf(("verilator", "leaves", "cxxrtl"))] = None
    """simulator (default: verilator)"""


def memory_options(args: Any) -> dict[str, float]:
    """Return the memory model's settings that were given, by its own names."""
    memory = {
        "read_latency": args.memory_latency,
        "bandwidth": args.memory_bandwidth,
        "stall": args.memory_stall,
    }
    return {name: value for name, value in memory.items() if value is not None}


def check_simulation_options(backend: str, memory: Mapping[str, float], engine: str | None) -> None:
    """Reject options of the simulation with another back end."""
    given = [f"--memory-{name.split('_')[-1]}" for name in memory] + ["--engine"] * bool(engine)
    if given and backend != "rtl":
        raise OptionError(
            f"{given[0]} only applies to the simulated hardware: add --backend rtl, or omit it"
        )


@contextmanager
def opened_for(options: Any, parameters: AcceleratorParameters) -> Iterator[Accelerator]:
    """Open the back end that a command's options ask for, and close it at the end (see ``opened``).

    ``options`` has ``backend`` and those of ``SimulationOptions``.
    """
    memory = memory_options(options)
    check_simulation_options(options.backend, memory, options.engine)
    with opened(options.backend, parameters, memory, options.engine) as accelerator:
        yield accelerator


@contextmanager
def opened(
    backend: str,
    parameters: AcceleratorParameters,
    memory: Mapping[str, float] | None = None,
    engine: str | None = None,
) -> Iterator[Accelerator]:
    """Open an accelerator by the name of its back end, and close it at the end.

    ``memory`` are settings of the simulated memory. Raises ``OptionError`` for an unknown back end
    or an invalid value, ``AcceleratorError`` where the back end is not available.
    """
    if not is_backend(backend):
        names = backend_names()
        close = suggestion(backend, names)
        raise OptionError(f"--backend must be one of {', '.join(names)}, not {backend!r}{close}")
    options: dict[str, Any] = {"memory": dict(memory)} if memory else {}
    options |= {"engine": engine} if engine else {}
    try:
        machine = open_accelerator(backend, parameters, memory_bytes=MEMORY_BYTES, **options)
    except ValueError as error:
        raise OptionError(f"back end {backend!r}: {error}") from error
    with closing(machine):
        yield machine
