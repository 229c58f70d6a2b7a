"""Emit transfers of a program for a loop on the chip, with the waits between all commands.

``passes.Passes`` adds passes of the vector engine and products of PE1 on top.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partialmethod

from trainwright.compiler.base.hazards import Hazards
from trainwright.compiler.base.limits import COUNTS, MOST_COUNT, PROGRAM
from trainwright.compiler.base.memory import Buffer, LocalMemory, Region, largest_divisor
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Halt, Transfer, TransferLevel
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Operation
from trainwright.program.footprint import Touch, footprint
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector

MEMORY = "memory"
"""Name of the external memory among the spaces of ``Touch``."""


class Builder:
    """A program under construction, with the scratchpad that it allocates from."""

    def __init__(self, p: AcceleratorParameters):
        self.p = p
        self.pad = LocalMemory(p)
        self.descriptors: list[Descriptor] = []
        self._hazards = Hazards()

    def emit(self, d: Compute | Transfer | Samples | Vector, memory: Sequence[Touch] = ()) -> None:
        """Add ``d`` with the waits it needs; ``memory`` is what it touches of external memory."""
        # Before the field is encoded: a count that is too large is an error with a remedy here.
        for level in d.levels if isinstance(d, Compute | Transfer) else ():
            COUNTS.require(level.count, self.p, d.tensor)
        waits = self._hazards.issue(ENGINE_OF[d.operation], (*footprint(d, self.p), *memory))
        self.descriptors.append(replace(d, **waits._asdict()))

    def _transfer(
        self,
        operation: Operation,
        buffer: Buffer,
        region: Region,
        rows: int,
        *,
        levels: Sequence[TransferLevel] = (),
    ) -> None:
        """Move runs of ``rows`` rows between ``buffer`` and ``region``."""
        run = largest_divisor(rows, MOST_COUNT // buffer.element_bytes)
        size = run * buffer.element_bytes  # in beats: a row of one-byte elements is one beat
        levels = [*levels, TransferLevel(rows // run, size * self.p.beat_bytes, run)]
        levels = [level for level in levels if level.count > 1]
        reach = sum((level.count - 1) * level.address for level in levels)
        stop = buffer.address + reach + size * self.p.beat_bytes
        self.emit(
            Transfer(
                operation=operation,
                address=buffer.address,
                local=region.start,
                beats=size,
                levels=tuple(levels),
                element_bytes=buffer.element_bytes,
                tensor=buffer.name,
            ),
            (Touch(MEMORY, buffer.address, stop, operation is Operation.STORE),),
        )

    load = partialmethod(_transfer, Operation.LOAD)
    store = partialmethod(_transfer, Operation.STORE)

    def halt(self, which: str) -> None:
        """End the program, named for messages ``which``."""
        self.descriptors.append(Halt())
        PROGRAM.require(len(self.descriptors), self.p, which)
