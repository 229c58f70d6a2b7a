"""The golden model as an accelerator: same memory, same programs, exact, no cycles."""

import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Run, memory_bytes_of
from trainwright.golden.executor import Executor
from trainwright.golden.interpreter import interpret
from trainwright.golden.stepper import Stepper
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile, require_times
from trainwright.program.sample_order import SampleOrder
from trainwright.program.segments import require_one_run
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
        self._file = ExponentFile(parameters.exponents)
        # The executor works on this very array: a program's results are in memory without a copy.
        self._executor = None if interpreted else Executor.open(parameters, self._memory)

        self.order = SampleOrder()

    @property
    def order(self) -> SampleOrder:
        """See ``Accelerator.order``."""
        return self._order if self._executor is None else self._executor.order

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self._order = order
        if self._executor is not None:
            self._executor.order = order

    @property
    def interpreted(self) -> bool:
        """Whether the interpreter executes the programs."""
        return self._executor is None

    def _check(self, address: int, size: int) -> None:
        if not 0 <= address <= address + size <= self.memory_bytes:
            raise ValueError(
                f"bytes {address} to {address + size - 1} are outside of a memory of "
                f"{self.memory_bytes} bytes"
            )

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        data = memory_bytes_of(data)
        self._check(address, data.size)
        self._memory[address : address + data.size] = data

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        self._check(address, size)
        return self._memory[address : address + size].copy()

    @property
    def exponents(self) -> list[int]:
        """The exponent file, by slot; setting it raises ``ProgramError`` for what it does not hold.

        Runs go on with what the last one left.
        """
        return list(self._file.exponents)

    @exponents.setter
    def exponents(self, values: list[int]) -> None:
        self._file.set(values)

    def repeat(
        self, program: Program, times: int, *, address: int = 0, step: int = 0, trace: bool = False
    ) -> Run:
        """Execute a resident program at ``address`` several times, from step number ``step`` on.

        Statistics are those of all times together, but for sums that SCALES took.
        """
        require_times(times)
        require_one_run(program, self.parameters.statistics_depth)
        return self._execute(program, trace=trace, times=times, step=step)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        return self._execute(program, trace=trace)

    def stepper(self, program: Program, address: int) -> Stepper:
        """Return a program before its first descriptor, to be executed step by step in place."""
        return Stepper(program, self._memory, self.parameters)

    def _execute(self, program: Program, *, trace: bool, times: int = 1, step: int = 0) -> Run:
        # A program holds sizes of its accelerator: on another one the same words mean other
        # addresses.
        if program.fingerprint != self.parameters.fingerprint:
            raise ProgramError("the program was compiled for other accelerator parameters")
        started, file = time.perf_counter(), self._file
        run = None
        if self._executor is not None:
            run = self._executor.run(program, trace=trace, file=file, times=times, step=step)
        # Only the interpreter tracks which row was written when, so only it can name the row that a
        # program reads too early. Programs like that are rare, and cost two attempts.
        if run is None:  # there is no compiler, or a row is read before it is written: this says so
            check_program(program, self.parameters, memory_bytes=self.memory_bytes)
            run, self.order = interpret(
                program.descriptors, self._memory, self.parameters, trace=trace, order=self.order,
                file=file, times=times, step=step,
            )  # fmt: skip
        return replace(run, seconds=time.perf_counter() - started)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> "GoldenAccelerator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
