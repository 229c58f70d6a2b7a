"""Interface of programs that stop after each descriptor, on golden model and simulation."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from trainwright.program.descriptors import Descriptor, Program
from trainwright.program.errors import ProgramError

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SteppedDescriptor:
    """Descriptor that was executed, and the rows that it wrote to the scratchpad."""

    number: int
    """Number in the program."""
    descriptor: Descriptor
    addresses: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int16]
    cycles: tuple[int, int] | None = None
    """First and last cycle, as in ``CommandRecord``; None on the golden model."""


class StepState(Protocol):
    """Memories of an accelerator between two descriptors."""

    pad: npt.NDArray[np.int16]
    """(rows, lanes): the scratchpad."""
    known: npt.NDArray[np.bool_]
    """(rows,): rows that were written."""
    memory: npt.NDArray[np.uint8]
    """The external memory."""


class Stepping(ABC):
    """Program as an iterator, each iteration of which executes one descriptor.

    ``sums``, ``saturations`` and ``underflows`` count by statistics slot.
    """

    program: Program

    @property
    @abstractmethod
    def state(self) -> StepState:
        """Memories as the last descriptor left them."""

    @abstractmethod
    def _counts(self) -> Counts | tuple[Counts, Counts, Counts]:
        """Return sums, saturations and underflows."""

    @property
    def sums(self) -> Counts:
        return self._counts()[0]

    @property
    def saturations(self) -> Counts:
        return self._counts()[1]

    @property
    def underflows(self) -> Counts:
        return self._counts()[2]

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> SteppedDescriptor:
        """Execute the next descriptor to its end."""

    def run_to(self, number: int) -> SteppedDescriptor:
        """Execute up to and including the next execution of a descriptor.

        Raises ``ProgramError`` if the program ends first.
        """
        executed: Iterator[SteppedDescriptor] = self
        for step in executed:
            if step.number == number:
                return step
        raise ProgramError(
            f"descriptor {number} is not executed again: the program has descriptors 0 to "
            f"{len(self.program.descriptors) - 1} and has ended"
        )
