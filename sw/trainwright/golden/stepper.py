"""Programs on the golden model, stopped after each descriptor: for notebooks and debuggers."""

import numpy as np

from trainwright.accelerator.stepping import Counts, SteppedDescriptor, Stepping
from trainwright.golden.interpreter import Record, executions
from trainwright.golden.state import Bytes, MachineState
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.engines import TRACED
from trainwright.program.exponents import ExponentFile
from trainwright.program.validation import check_program


class Stepper(Stepping):
    """Program on the golden model, with external ``memory`` that is used in place.

    Raises ``ProgramError`` for what ``trainwright.program.validation`` refuses, and where a row is
    read before it is written.
    """

    def __init__(self, program: Program, memory: Bytes, parameters: AcceleratorParameters):
        check_program(program, parameters, memory_bytes=memory.size)
        self.program = program
        self._state = MachineState.fresh(memory, parameters)
        self._state.file = ExponentFile(parameters.exponents)
        self._record = Record.counting(program.descriptors, parameters)
        self._written = {engine: 0 for engine in TRACED}
        self._steps = executions(program.descriptors, self._state, self._record, parameters)

    @property
    def state(self) -> MachineState:
        """Machine as the last descriptor left it; registers and random bits, too."""
        return self._state

    def _counts(self) -> Counts:
        return self._record.statistics

    def __next__(self) -> SteppedDescriptor:
        number = next(self._steps)
        d = self.program.descriptors[number]
        addresses, rows = np.zeros(0, np.int64), self._state.pad[:0]
        for engine, written in self._record.written.items():
            if len(written) > self._written[engine]:
                self._written[engine] = len(written)
                *_, addresses, rows = written[-1]
        return SteppedDescriptor(number, d, addresses, rows)
