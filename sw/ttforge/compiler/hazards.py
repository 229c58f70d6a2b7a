"""Hazards: a descriptor waits for every engine that still touches what it touches."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ttforge.program.fields import Engine
from ttforge.program.footprint import Touch

ARRAYS = Engine.PE1 | Engine.PE2
"""Engines that take a command only when the one before the last is done."""


def _conflict(touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
    """Whether one writes what the other touches."""
    return any(a.overlaps(b) and (a.write or b.write) for a in touched for b in pending)


def _reads(touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
    """Whether ``touched`` reads what ``pending`` writes."""
    return any(a.overlaps(b) and b.write and not a.write for a in touched for b in pending)


@dataclass
class Hazards:
    """What the engines may still be touching, as descriptors are issued in order."""

    _pending: dict[Engine, list[Sequence[Touch]]] = field(default_factory=dict)
    """The commands of each engine that may not be done, oldest first."""
    _settling: Engine = Engine.NONE

    def issue(self, engine: Engine, touched: Sequence[Touch]) -> Engine:
        """The engines a descriptor must wait for (read after write, write after read or write).

        Commands of one engine are in order but for this: an array reads the operands of a command
        while it still writes the last results of the one before.
        """
        wait = self._settling
        self._settling = Engine.NONE
        for other, commands in self._pending.items():
            if other is engine:
                conflict = _reads(touched, commands[-1])
            else:
                conflict = any(_conflict(touched, command) for command in commands)
            if conflict:
                wait |= other
        # Those engines are idle once this is issued.
        self._pending = {e: commands for e, commands in self._pending.items() if not e & wait}
        before = self._pending.get(engine, [])
        self._pending[engine] = [*(before[-1:] if engine & ARRAYS else before), touched]
        return wait

    def settle(self) -> None:
        """Let the next descriptor wait for both arrays, whatever it touches.

        Where each array goes on with what the other made: else the second of them would wait for
        the first one's new command, too.
        """
        self._settling = ARRAYS

    def barrier(self) -> None:
        """All engines are idle."""
        self._pending.clear()
