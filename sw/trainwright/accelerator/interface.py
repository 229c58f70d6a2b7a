"""The one interface to an accelerator, whatever executes it: golden model, simulation, board.

An accelerator is a byte-addressed memory and the means to run a program that lies in it. Back ends
register under the entry-point group ``trainwright.backends``; the driver and the trainer know only
what is here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.fields import Engine
from trainwright.program.sample_order import SampleOrder
from trainwright.support.arguments import is_size
from trainwright.support.errors import UserError


class AcceleratorError(UserError, RuntimeError):
    """The accelerator, or its simulation, stopped with an error or is not available.

    >>> import trainwright
    >>> from trainwright.accelerator import open_accelerator
    >>> from trainwright.driver import Driver
    >>> from trainwright.network import load_network
    >>> small = open_accelerator("golden", trainwright.AcceleratorParameters(), memory_bytes=1024)
    >>> Driver(small, load_network("digits"), 64)
    Traceback (most recent call last):
    trainwright.accelerator.interface.AcceleratorError: a step needs ... bytes of external memory...
    """


class AcceleratorReset(AcceleratorError):
    """The accelerator was reset: memory and registers are lost, and it can be used again.

    The driver repeats the step.
    """


@dataclass(frozen=True)
class Counters:
    """Hardware counters, in cycles or bytes, of one run or the sum over several."""

    cycles: int = 0
    busy_load: int = 0
    busy_store: int = 0
    busy_pe1: int = 0
    busy_pe2: int = 0
    stall_pe1_operand: int = 0
    stall_pe1_result: int = 0
    stall_pe2_operand: int = 0
    stall_pe2_result: int = 0
    wait_engine: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    stall_load: int = 0
    stall_store: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@dataclass(frozen=True)
class Trace:
    """Rows that one engine wrote to the scratchpad in a run, in order.

    ``addresses`` (n,) int64, ``rows`` (n, lanes) int16. The golden model also gives ``labels``:
    the tensor that each stretch of rows belongs to, and its length.
    """

    addresses: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int16]
    labels: tuple[tuple[str, int], ...] = ()
    numbers: tuple[int, ...] = ()
    """Number of the descriptor of each stretch of ``labels``."""


@dataclass(frozen=True)
class CommandRecord:
    """Command of an engine, with its cycles.

    Cycles count from the acceptance of the first command, which loads the program.
    """

    number: int
    """Number of the descriptor; -1 for the load of the program."""
    engine: Engine
    start: int
    end: int
    """When its last result is out; for LOAD and STORE, when the next command is accepted or all are
    done."""
    stall_operand: int
    """Cycles in which it waited for operands, or for the external memory."""
    stall_result: int
    """Cycles in which it waited for a credit, or for the write port."""


@dataclass(frozen=True)
class Run:
    """Results of one execution of a program, apart from the memory."""

    sums: npt.NDArray[np.int64]
    """(statistics_depth,) sum of |q| of each statistics slot."""
    saturations: npt.NDArray[np.int64]
    """(statistics_depth,) saturated values of each slot."""
    underflows: npt.NDArray[np.int64]
    """(statistics_depth,) values of each slot that were closer to 0 than the smallest posit."""
    counters: Counters = field(default_factory=Counters)
    """Event counts; all zero where there are none (the golden model counts only bytes)."""
    seconds: float = 0.0
    """Wall time of the execution."""
    traces: dict[str, Trace] | None = None
    """For each engine of ``program.engines.TRACED`` where the run was traced."""
    commands: tuple[CommandRecord, ...] | None = None
    """Commands of the engines, where the run was traced and takes cycles."""
    clips: npt.NDArray[np.int64] | None = None
    """(statistics_depth,) values of each slot that passes of the vector engine clipped. Only the
    golden model counts these."""

    @property
    def statistics(self) -> npt.NDArray[np.int64]:
        """Sums, saturations and underflows, (3, statistics_depth)."""
        return np.stack([self.sums, self.saturations, self.underflows])


def memory_bytes_of(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the bytes to write to a memory, in one dimension. Raises ``TypeError`` for others.

    Back ends would keep the lowest byte of each wider number, or write more bytes than they check.
    """
    if getattr(data, "dtype", None) != np.uint8:
        kind = getattr(data, "dtype", type(data).__name__)
        raise TypeError(
            f"a memory is written with arrays of uint8, not {kind}: numpy.frombuffer(data, "
            "numpy.uint8) has its bytes"
        )
    return np.ascontiguousarray(data).reshape(-1)


class Accelerator(Protocol):
    """Accelerator with its external memory. Use as a context manager."""

    @property
    def parameters(self) -> AcceleratorParameters: ...

    @property
    def memory_bytes(self) -> int:
        """Size of the external memory; addresses run from 0."""
        ...

    @property
    def order(self) -> SampleOrder:
        """State of the order of samples, between runs; a reset makes it ``SampleOrder()``."""
        ...

    @order.setter
    def order(self, order: SampleOrder) -> None: ...

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        """Put bytes into the external memory; ``ValueError`` outside of it."""
        ...

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Copy bytes out of the external memory; ``ValueError`` outside of it."""
        ...

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        """Execute ``program``; ``address`` is where in memory its encoding may be put.

        With ``trace`` the run also returns every row written to the scratchpad, where the back
        end can see it. Raises ``AcceleratorError`` when the execution fails.
        """
        ...

    def close(self) -> None:
        """Release what the back end holds; idempotent."""
        ...


class FileAccelerator(Accelerator, Protocol):
    """An accelerator with an exponent file, which repeats programs that lie in its memory."""

    exponents: list[int]
    """Exponents by slot."""

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        """Execute ``program``, stored at ``address``, ``times`` times, from step ``step`` on."""
        ...


class UnattendedAccelerator(FileAccelerator, Protocol):
    """An accelerator that goes on when its host does not: one on a board."""

    resets: int
    """Number of resets found since the accelerator was opened."""

    @property
    def kept(self) -> bool:
        """Whether the memory is as the last start left it: no reset has come since."""
        ...

    def attend(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run | None:
        """Wait for a run that another host has started; return what ``repeat`` returns.

        None if the accelerator executes another run, or if the run that ended last is another one.
        """
        ...


BackendFactory = Callable[..., Accelerator]


def backend_names() -> list[str]:
    """List the names of the installed back ends."""
    return sorted(entry.name for entry in entry_points(group="trainwright.backends"))


def is_backend(backend: str) -> bool:
    """Return whether a back end of that name is installed; a colon ends the name."""
    return backend.partition(":")[0] in backend_names()


def open_accelerator(
    backend: str, parameters: AcceleratorParameters, *, memory_bytes: int, **options: object
) -> Accelerator:
    """Open an accelerator of a back end by name; ``options`` are the back end's own.

    In a name such as ``serial:/dev/ttyUSB0`` what follows the colon is the back end's ``target``.

    Raises ``ValueError`` for an unknown name, a size or options that the back end does not take,
    ``AcceleratorError`` where the back end cannot run on this machine.
    """
    if not is_size(memory_bytes, 0) or memory_bytes > 1 << parameters.address_width:
        raise ValueError(f"memory_bytes must be an integer from 0 to 2^32, not {memory_bytes!r}")
    name, _, target = backend.partition(":")
    if target:
        options["target"] = target
    for entry in entry_points(group="trainwright.backends"):
        if entry.name == name:
            try:
                factory: BackendFactory = entry.load()
            except ModuleNotFoundError as error:
                raise AcceleratorError(
                    f"back end {name!r} needs the package {error.name!r}: "
                    "install trainwright with its extra, pip install 'trainwright[sim]'"
                ) from error
            known = signature(factory).parameters
            strange = sorted(options.keys() - known.keys())
            if strange and all(p.kind is not Parameter.VAR_KEYWORD for p in known.values()):
                raise ValueError(f"back end {name!r} takes no {', '.join(strange)}: omit it")
            return factory(parameters, memory_bytes=memory_bytes, **options)
    raise ValueError(f"unknown back end {backend!r}; there are {', '.join(backend_names())}")
