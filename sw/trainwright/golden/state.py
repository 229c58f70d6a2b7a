"""Everything that a program changes: memories, registers, statistics."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trainwright.parameters import AcceleratorParameters
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import ExponentFile
from trainwright.program.fields import REGISTERS
from trainwright.program.sample_order import SampleOrder
from trainwright.program.vector import Instruction

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int16]
Addresses = npt.NDArray[np.int64]
VectorRegisters = dict[tuple[int, int], npt.NDArray[np.int64]]
"""Registers of the vector engine, int64 (lanes,), by register and thread."""


@dataclass
class MachineState:
    """Accelerator in the middle of a program."""

    memory: Bytes
    pad: Words
    """(rows, lanes): the scratchpad."""
    known: npt.NDArray[np.bool_]
    """(rows,) whether a row was written; reading any other is an error in the program."""
    registers: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    stream: int = 0
    """Stream of stochastic rounding, for the next compute descriptor."""
    order: SampleOrder = field(default_factory=SampleOrder)
    """Order in which samples are drawn."""
    file: ExponentFile = field(default_factory=lambda: ExponentFile(0))
    step: int = 0
    """Number of the step, modulo 2^32."""
    code: dict[int, Instruction] = field(default_factory=dict)
    """Instructions of the vector engine, by address."""
    vector: VectorRegisters = field(default_factory=dict)
    """Registers of the vector engine that were written."""
    bytes_read: int = 0
    bytes_written: int = 0

    @classmethod
    def fresh(cls, memory: Bytes, p: AcceleratorParameters) -> "MachineState":
        """Return the state at the start of a program: an empty scratchpad on ``memory``."""
        return cls(
            memory=memory,
            pad=np.zeros((p.scratchpad_rows, p.lanes), np.int16),
            known=np.zeros(p.scratchpad_rows, np.bool_),
        )

    def read(self, rows: Addresses) -> Words:
        """Read rows of the scratchpad: (..., lanes) for addresses (...)."""
        # Rows are zero at first, and a program could be right by chance on a fresh model alone.
        if not self.known[rows].all():
            unknown = int(rows[~self.known[rows]].min())
            raise ProgramError(
                f"scratchpad rows {rows.min()} to {rows.max()} are read, but row {unknown} was "
                "never written"
            )
        return self.pad[rows]

    def write(self, rows: Addresses, words: npt.NDArray[np.generic]) -> None:
        """Put ``words`` (n, lanes) at ``rows`` (n,); of equal addresses the last one stays."""
        self.pad[rows] = words
        self.known[rows] = True
