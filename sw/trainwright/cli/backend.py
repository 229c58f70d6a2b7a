"""Opens the requested back end, for every command that needs one."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from trainwright.accelerator import Accelerator, backend_names, is_backend, open_accelerator
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, number, positive
from trainwright.network import Network
from trainwright.support.text import suggestion

MEMORY_BYTES = 1 << 26
"""External memory of the accelerator."""


def add_simulation_options(parser: argparse.ArgumentParser) -> None:
    """Options of the back end ``rtl``; read by ``memory_options``."""
    group = parser.add_argument_group("the simulated hardware (back end rtl)")
    group.add_argument(
        "--memory-latency", type=positive, metavar="CYCLES", help="of a read (default: 40)"
    )
    group.add_argument(
        "--memory-bandwidth", type=number, metavar="BEATS", help="beats a cycle (default: 0.8)"
    )
    group.add_argument(
        "--memory-stall", type=number, metavar="P", help="random pauses, 0 to 0.95 (default: 0)"
    )
    group.add_argument("--engine", help="simulator: verilator (default), leaves or cxxrtl")


def memory_options(args: argparse.Namespace) -> dict[str, float]:
    """The memory model's settings that were given, by its own names."""
    memory = {
        "read_latency": args.memory_latency,
        "bandwidth": args.memory_bandwidth,
        "stall": args.memory_stall,
    }
    return {name: value for name, value in memory.items() if value is not None}


def check_simulation_options(backend: str, memory: Mapping[str, float], engine: str | None) -> None:
    """Raise ``OptionError`` for options of the simulation beside another back end."""
    given = [f"--memory-{name.split('_')[-1]}" for name in memory]
    given += ["--engine"] if engine else []
    if given and backend != "rtl":
        raise OptionError(
            f"{given[0]} is of the simulated hardware: add --backend rtl, or leave it away"
        )


@contextmanager
def opened(
    backend: str,
    *,
    network: Network,
    accelerator: Sequence[str] = (),
    memory: Mapping[str, float] | None = None,
    engine: str | None = None,
    stochastic: bool = False,
    alone: bool = False,
) -> Iterator[Accelerator]:
    """An accelerator by the name of its back end, closed at the end.

    By default it has the factor width and the posits of ``network``. ``stochastic``: by default
    with stochastic rounding; ``alone``: with what ``--update chip`` needs. ``accelerator`` are
    NAME=N items, ``memory`` settings of the simulated memory. Raises ``OptionError`` for an unknown
    back end or an invalid value, ``AcceleratorError`` where the back end is not available.
    """
    if not is_backend(backend):
        names = backend_names()
        close = suggestion(backend, names)
        raise OptionError(f"--backend must be one of {', '.join(names)}, not {backend!r}{close}")
    parameters = accelerator_parameters(accelerator, network, stochastic=stochastic, alone=alone)
    if stochastic and not parameters.stochastic_rounding:
        raise OptionError(
            "--rounding-mode asks for stochastic rounding and --accelerator stochastic_rounding=0 "
            "has none: leave one of them away"
        )
    options: dict[str, Any] = {"memory": dict(memory)} if memory else {}
    if engine:
        options["engine"] = engine
    try:
        machine = open_accelerator(backend, parameters, memory_bytes=MEMORY_BYTES, **options)
    except ValueError as error:
        raise OptionError(f"back end {backend!r}: {error}") from error
    with closing(machine):
        yield machine
