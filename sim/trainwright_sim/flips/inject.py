"""Flip one bit between two descriptors of a program, on any accelerator that executes programs.

The content of a scratchpad row between two descriptors is found by running the descriptors before
that point. The program then gets an extra LOAD there, which writes the same words back except for
one bit. So the golden model, the simulation and the boards all apply the same flip, and what
follows is what a particle hitting the block RAM would cause. External memory is simply changed
before the run.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Halt,
    Program,
    Transfer,
)
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Engine, Operation
from trainwright.program.footprint import Touch, footprint

SPARE_BYTES = 4096
"""Bytes at the end of external memory, which no program uses; flips load their rows from there."""
MOST_FLIPS = 32
"""Flips that one program can have: each needs spare bytes of its own."""
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Flip:
    """Bit ``bit`` of row ``row`` of the scratchpad, just before descriptor ``before``."""

    before: int
    row: int
    bit: int


def row_bits(p: AcceleratorParameters) -> int:
    """Return the number of bits in a scratchpad row."""
    return p.lanes * p.word_width


def _require_straight(program: Program) -> None:
    for d in program.descriptors:
        if not isinstance(d, Compute | Transfer | Halt):
            name = d.operation.name
            raise ValueError(f"flips are for programs without loops and registers, not {name}")


def _touched(d: Descriptor, p: AcceleratorParameters) -> tuple[Touch, ...]:
    return footprint(d, p) if isinstance(d, Compute | Transfer) else ()


class Injector:
    """Puts flips into programs; ``accelerator`` finds what the memories hold.

    Its external memory is as before after each call, but for the last ``SPARE_BYTES``, which are
    the injector's own.
    """

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator
        self._p = accelerator.parameters
        self._spare = accelerator.memory_bytes

    def flipped(self, program: Program, flip: Flip, number: int = 0) -> Program | None:
        """Return the program with one more flip, and put the bytes it loads into spare memory.

        ``number`` counts the flips of a program. Returns ``None`` where nothing has written the row
        yet: a program that reads such a row writes it first. Raises ``ValueError`` for a program
        with loops or registers, or with too many flips.
        """
        _require_straight(program)
        if number >= MOST_FLIPS:
            raise ValueError(f"a program has at most {MOST_FLIPS} flips")
        self._spare = self._accelerator.memory_bytes - SPARE_BYTES // MOST_FLIPS * (number + 1)
        if not 0 < flip.before < len(program.descriptors):
            raise ValueError(f"there is no descriptor {flip.before} with one before it")
        load = self._load(flip.row)
        held = self._held(program, flip, load)
        if held is None:
            return None
        held[flip.bit // 8] ^= 1 << flip.bit % 8
        before, after = program.descriptors[: flip.before], program.descriptors[flip.before :]
        # the next descriptor waits for the load, so that all later ones see the flip
        resumed = after[0] if isinstance(after[0], Halt) else replace(after[0], wait=Engine.ALL)
        self._accelerator.write(self._spare, held)
        return Program((*before, load, resumed, *after[1:]), program.fingerprint)

    def _load(self, row: int) -> Transfer:
        size = self._p.word_width // 8
        return Transfer(
            operation=Operation.LOAD, address=self._spare, local=row, beats=size,
            element_bytes=size, wait=Engine.ALL, tensor="flip",
        )  # fmt: skip

    def _after(self, descriptors: tuple[Descriptor, ...], fingerprint: int) -> Bytes | None:
        """Return external memory after a program; ``None`` if it reads rows that nothing wrote."""
        accelerator = self._accelerator
        before = accelerator.read(0, accelerator.memory_bytes)
        try:
            accelerator.run(Program((*descriptors, Halt()), fingerprint), 0)
            return accelerator.read(0, accelerator.memory_bytes)
        except ProgramError:
            return None
        finally:
            accelerator.write(0, before)

    def _held(self, program: Program, flip: Flip, load: Transfer) -> Bytes | None:
        """Return the content of the row before the flip; ``None`` where nothing has written it."""
        before = program.descriptors[: flip.before]
        touched = [touch for d in before for touch in _touched(d, self._p)]
        if not any(touch.write and touch.start <= flip.row < touch.stop for touch in touched):
            return None
        store = replace(load, operation=Operation.STORE)
        memory = self._after((*before, store), program.fingerprint)
        if memory is None:
            return None
        return memory[self._spare : self._spare + self._p.row_bytes].copy()
