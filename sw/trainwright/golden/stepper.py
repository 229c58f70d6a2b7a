"""Programs on the golden model, stopped after each descriptor: for notebooks and debuggers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainwright.golden.flat import TRACED
from trainwright.golden.interpreter import Record, executions
from trainwright.golden.state import Addresses, Bytes, MachineState, Words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Program
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile
from trainwright.program.validation import check_program


@dataclass(frozen=True)
class Stepped:
    """Descriptor that was executed, and the rows that it wrote to the scratchpad."""

    number: int
    """Number in the program."""
    descriptor: Descriptor
    addresses: Addresses
    rows: Words


class Stepper:
    """Program that stops behind each descriptor, on external ``memory`` that is used in place.

    Iterating executes. ``state`` is the machine between two descriptors: scratchpad (``state.pad``,
    and which of its rows were written, ``state.known``), registers, stream of random bits.
    ``sums``, ``saturations`` and ``underflows`` count by statistics slot.
    Raises ``ProgramError`` for what ``trainwright.program.validation`` refuses, and where a row is
    read before it is written.
    """

    def __init__(self, program: Program, memory: Bytes, parameters: AcceleratorParameters):
        check_program(program, parameters, memory_bytes=memory.size)
        self.program = program
        self.state = MachineState.fresh(memory, parameters)
        self.state.file = ExponentFile(parameters.exponents)
        self._record = Record.counting(program.descriptors, parameters)
        self._written = {engine: 0 for engine in TRACED}
        self._steps = executions(program.descriptors, self.state, self._record, parameters)
        self.sums, self.saturations = self._record.sums, self._record.saturations
        self.underflows = self._record.underflows

    def __iter__(self) -> Iterator[Stepped]:
        return self

    def __next__(self) -> Stepped:
        number = next(self._steps)
        d = self.program.descriptors[number]
        addresses, rows = np.zeros(0, np.int64), self.state.pad[:0]
        for engine, written in self._record.written.items():
            if len(written) > self._written[engine]:
                self._written[engine] = len(written)
                *_, addresses, rows = written[-1]
        return Stepped(number, d, addresses, rows)

    def run_to(self, number: int) -> Stepped:
        """Execute up to the next execution of a descriptor, and that one too.

        Raises ``ProgramError`` where the program ends before.
        """
        for step in self:
            if step.number == number:
                return step
        raise ProgramError(
            f"descriptor {number} is not executed again: the program has descriptors 0 to "
            f"{len(self.program.descriptors) - 1} and has ended"
        )
