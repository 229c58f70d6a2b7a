"""How many bytes the host gives an accelerator: memory, programs and registers that a run reads."""

from typing import cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator.interface import (
    Accelerator,
    FileAccelerator,
    Run,
    UnattendedAccelerator,
)
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.program.sample_order import SampleOrder

ORDER_BYTES = 12
"""Bytes of the three registers of the samples' order."""


class CountedWrites:
    """An accelerator that counts what is written to it, programs among it; else the same."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.written = 0
        """Bytes so far."""

    @property
    def parameters(self) -> AcceleratorParameters:
        return self._accelerator.parameters

    @property
    def memory_bytes(self) -> int:
        return self._accelerator.memory_bytes

    @property
    def order(self) -> SampleOrder:
        return self._accelerator.order

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self.written += ORDER_BYTES
        self._accelerator.order = order

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self.written += data.nbytes
        self._accelerator.write(address, data)

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        return self._accelerator.read(address, size)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        self.written += len(program.descriptors) * DESCRIPTOR_BYTES
        return self._accelerator.run(program, address, trace=trace)

    def close(self) -> None:
        self._accelerator.close()

    def __enter__(self) -> "CountedWrites":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CountedFile(CountedWrites):
    """Counter of writes to an accelerator with an exponent file, whose slots are a byte each."""

    def __init__(self, accelerator: FileAccelerator) -> None:
        super().__init__(accelerator)
        self._file = accelerator

    @property
    def exponents(self) -> list[int]:
        return self._file.exponents

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        self.written += len(values)
        self._file.exponents = values

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        return self._file.repeat(program, times, address=address, step=step, trace=trace)


class CountedUnattended(CountedFile):
    """Counter of the writes to an accelerator that continues without its host."""

    def __init__(self, accelerator: UnattendedAccelerator) -> None:
        super().__init__(accelerator)
        self._unattended = accelerator

    @property
    def kept(self) -> bool:
        return self._unattended.kept

    @property
    def resets(self) -> int:
        return self._unattended.resets

    def attend(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run | None:
        return self._unattended.attend(program, times, address=address, step=step, trace=trace)


def counted(accelerator: Accelerator) -> CountedWrites:
    """Return the accelerator with its writes counted."""
    if hasattr(accelerator, "attend"):
        return CountedUnattended(cast(UnattendedAccelerator, accelerator))
    if hasattr(accelerator, "repeat"):
        return CountedFile(cast(FileAccelerator, accelerator))
    return CountedWrites(accelerator)
