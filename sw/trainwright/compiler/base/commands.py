"""Collect the descriptors of one program, with the waits that each needs.

``unrolled`` writes out the levels that a loop nest of the hardware lacks, of transfers here and of
contractions in ``forms.nests``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from trainwright.compiler.base.hazards import Hazards, touches
from trainwright.compiler.base.limits import COUNTS, MOST_COUNT
from trainwright.compiler.base.memory import largest_divisor
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Level, Transfer, TransferLevel
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import TRANSFER_LEVELS, Operation
from trainwright.program.samples import Samples
from trainwright.program.vector import CODE_DEPTH, CODE_WORDS, Code, Instruction, Vector

Nested = TypeVar("Nested", Compute, Transfer)
"""Descriptor with levels of loops."""


def unrolled(d: Nested, level: Level | TransferLevel) -> list[Nested]:
    """Return a descriptor for each iteration of a level that ``d`` lacks, the first one ``d``."""
    steps = {name: step for name, step in vars(level).items() if name != "count"}
    return [
        replace(d, **{name: getattr(d, name) + n * step for name, step in steps.items()})
        for n in range(level.count)
    ]


class Commands:
    """Descriptors in the order of issue, and the instructions that the vector engine holds."""

    def __init__(self, p: AcceleratorParameters) -> None:
        self.p = p
        self.descriptors: list[Descriptor] = []
        self._hazards = Hazards()
        self._held: dict[tuple[Instruction, ...], int] = {}
        self._next = 0

    def add(self, d: Compute | Transfer | Samples | Vector) -> None:
        """Add a command, with the waits it needs; a transfer of any number of levels."""
        # Before the field is encoded: a count that is too large is an error with a remedy here.
        for level in d.levels if isinstance(d, Compute | Transfer) else ():
            COUNTS.require(level.count, self.p, d.tensor)
        if isinstance(d, Transfer) and len(d.levels) > TRANSFER_LEVELS:
            outermost, *inner = d.levels
            for each in unrolled(replace(d, levels=tuple(inner)), outermost):
                self.add(each)
            return
        waits = self._hazards.issue(ENGINE_OF[d.operation], touches(d, self.p))
        # Copy only if needed: a copy takes as long as everything else here, and half of the
        # descriptors wait for nothing.
        self.descriptors.append(replace(d, **waits._asdict()) if any(waits) else d)

    def move(
        self, operation: Operation, tensor: str, address: int, local: int, rows: int, size: int,
        levels: Sequence[TransferLevel],
    ) -> None:  # fmt: skip
        """Add the transfer of runs of ``rows`` rows, with elements of ``size`` bytes in memory.

        ``levels`` have the steps from one run to the next.
        """
        # A count has 16 bits: split a longer run evenly, by one level of the transfer.
        run = largest_divisor(rows, MOST_COUNT // size)
        levels = [*levels, TransferLevel(rows // run, run * size * self.p.beat_bytes, run)]
        self.add(
            Transfer(
                operation=operation, address=address, local=local, beats=run * size, tensor=tensor,
                levels=tuple(level for level in levels if level.count > 1), element_bytes=size,
            )
        )  # fmt: skip

    def hold(self, code: tuple[Instruction, ...]) -> int:
        """Return the first place of a kernel's instructions; load them if the engine lacks them.

        A full store is overwritten from its start. The engine executes CODE only after all passes
        issued before it, so no pass loses its instructions.
        """
        if code in self._held:
            return self._held[code]
        # Overwriting from the start is simple, and rare: the kernels of most programs fit.
        if self._next + len(code) > CODE_DEPTH:
            self._held, self._next = {}, 0
        entry = self._held[code] = self._next
        self._next += len(code)
        for start in range(0, len(code), CODE_WORDS):
            words = code[start : start + CODE_WORDS]
            self.descriptors.append(Code(first=entry + start, instructions=words))
        return entry
