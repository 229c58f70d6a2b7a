"""Record what a host does to an accelerator that trains alone."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, AcceleratorError, Run
from trainwright.accelerator.counted import CountedWrites
from trainwright.program.descriptors import Program
from trainwright.program.sample_order import SampleOrder


@dataclass(frozen=True)
class Write:
    """Bytes put into external memory."""

    address: int
    data: bytes


@dataclass(frozen=True)
class SetExponents:
    """Values of the exponent file, by slot."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class SetOrder:
    """State of the order of samples."""

    order: SampleOrder


@dataclass(frozen=True)
class Start:
    """Start of a program in memory, with its result."""

    address: int
    times: int
    step: int
    run: Run


Action = Write | SetExponents | SetOrder | Start


class RecordedAccelerator(CountedWrites):
    """Accelerator that records the actions of its host, and computes by ``accelerator``."""

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator)
        self.actions: list[Action] = []

    @property
    def order(self) -> SampleOrder:
        return super().order

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self.actions.append(SetOrder(order))
        self._accelerator.order = order

    @property
    def exponents(self) -> list[int]:
        return super().exponents

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        self.actions.append(SetExponents(tuple(values)))
        self._accelerator.exponents = values

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        given, before = data.tobytes(), self.actions[-1] if self.actions else None
        if isinstance(before, Write) and before.address + len(before.data) == address:
            self.actions[-1] = Write(before.address, before.data + given)
        else:
            self.actions.append(Write(address, given))
        super().write(address, data)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        """Raise ``AcceleratorError``: the host would have to compute shifts before every step."""
        raise AcceleratorError("a job has only programs that its accelerator repeats by itself")

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        run = self._accelerator.repeat(program, times, address=address, step=step, trace=trace)
        self.actions.append(Start(address, times, step, run))
        return run
