"""The golden model as an accelerator: same memory, same programs, exact, no cycles."""

import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Run
from trainwright.golden.executor import Executor
from trainwright.golden.interpreter import interpret
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.errors import ProgramError
from trainwright.program.validation import check_program


class GoldenAccelerator:
    """The golden model as a ``trainwright.accelerator.Accelerator``.

    A C kernel executes programs where there is a compiler (``trainwright.support.native``), the
    interpreter elsewhere, or where ``interpreted`` asks for it: the bits are the same.
    """

    def __init__(
        self, parameters: AcceleratorParameters, *, memory_bytes: int, interpreted: bool = False
    ):
        self.parameters = parameters
        self.memory_bytes = memory_bytes
        self._memory = np.zeros(memory_bytes, np.uint8)
        self._executor = None if interpreted else Executor.open(parameters, self._memory)

    @property
    def interpreted(self) -> bool:
        """Whether the interpreter executes the programs."""
        return self._executor is None

    def _check(self, address: int, size: int) -> None:
        if not 0 <= address <= address + size <= self.memory_bytes:
            raise ValueError(
                f"bytes {address} to {address + size - 1} of a memory of {self.memory_bytes}"
            )

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self._check(address, data.size)
        self._memory[address : address + data.size] = data.ravel()

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        self._check(address, size)
        return self._memory[address : address + size].copy()

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        if program.fingerprint != self.parameters.fingerprint:
            raise ProgramError("the program was compiled for other accelerator parameters")
        started = time.perf_counter()
        run = None if self._executor is None else self._executor.run(program, trace=trace)
        if run is None:  # there is no compiler, or a row is read before it is written: this says so
            check_program(program, self.parameters, memory_bytes=self.memory_bytes)
            run = interpret(program.descriptors, self._memory, self.parameters, trace=trace)
        return replace(run, seconds=time.perf_counter() - started)

    def close(self) -> None:
        """Nothing to release."""

    def __enter__(self) -> "GoldenAccelerator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
