"""Count of the bytes that a host writes to an accelerator: memory, programs, registers of a run."""

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator.interface import Accelerator, Run
from trainwright.program.descriptors import Program
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.program.sample_order import SampleOrder

ORDER_BYTES = 12
"""Bytes of the three registers of the samples' order."""

Kind = TypeVar("Kind", bound=Accelerator)


class CountedWrites:
    """Accelerator that counts the bytes written to it, and leaves everything to ``accelerator``.

    A program that is run counts with its descriptors, a repeated program does not, because it is in
    memory already. An exponent counts as one byte.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.written = 0
        """Bytes so far."""

    def __getattr__(self, name: str) -> Any:
        """Return a member of the accelerator; kinds of them differ (``FileAccelerator``)."""
        return getattr(self._accelerator, name)

    @property
    def order(self) -> SampleOrder:
        return self._accelerator.order

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self.written += ORDER_BYTES
        self._accelerator.order = order

    @property
    def exponents(self) -> list[int]:
        return self._accelerator.exponents

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        self.written += len(values)
        self._accelerator.exponents = values

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self.written += data.nbytes
        self._accelerator.write(address, data)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        self.written += len(program.descriptors) * DESCRIPTOR_BYTES
        return self._accelerator.run(program, address, trace=trace)

    def __enter__(self) -> "CountedWrites":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def counted(accelerator: Kind) -> Kind:
    """Return the accelerator with its writes counted, in ``written``."""
    return cast(Kind, CountedWrites(accelerator))
