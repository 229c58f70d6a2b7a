"""Hazards: a descriptor waits for every engine that still touches what it touches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwright.program.fields import Engine
from trainwright.program.footprint import Touch

ARRAYS = Engine.PE1 | Engine.PE2
"""Engines that hold two commands: they accept one only when the one before the last is done."""


class Waits(NamedTuple):
    """What a descriptor waits for."""

    wait: Engine
    """Engines that must be idle."""
    wait_older: Engine
    """Engines that must have finished all commands but the last."""


@dataclass
class Hazards:
    """What the engines may still be touching, as descriptors are issued in order.

    ``exact``: of what two commands touch that lies among each other's rows, the rows are compared;
    else, as quickly, what lies from the first to the last.
    """

    exact: bool = False
    _pending: dict[Engine, list[Sequence[Touch]]] = field(default_factory=dict)
    """The commands of each engine that may not be done, oldest first."""

    def issue(self, engine: Engine, touched: Sequence[Touch]) -> Waits:
        """What a descriptor must wait for (read after write, write after read or write).

        Commands of one engine are in order but for this: an array reads the operands of a command
        while it still writes the last results of the one before.
        """
        wait = older = Engine.NONE
        for other, (*before, last) in self._pending.items():
            if other is engine:
                wait |= other if self._reads(touched, last) else Engine.NONE
            elif self._conflict(touched, last):
                wait |= other
            elif any(self._conflict(touched, command) for command in before):
                older |= other
        older_idle = older & ~ARRAYS
        wait, older = wait | older_idle, older & ARRAYS
        # What is waited for is done once this is issued.
        self._pending = {
            e: commands[-1:] if e & older else commands
            for e, commands in self._pending.items()
            if not e & wait
        }
        before = self._pending.get(engine, [])
        self._pending[engine] = [*(before[-1:] if engine & ARRAYS else before), touched]
        return Waits(wait, older)

    def _meet(self, a: Touch, b: Touch) -> bool:
        return a.meets(b) if self.exact else a.overlaps(b)

    def _conflict(self, touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
        """Whether one writes what the other touches."""
        return any((a.write or b.write) and self._meet(a, b) for a in touched for b in pending)

    def _reads(self, touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
        """Whether ``touched`` reads what ``pending`` writes."""
        pairs = ((a, b) for a in touched for b in pending if b.write and not a.write)
        return any(self._meet(a, b) for a, b in pairs)

    def barrier(self) -> None:
        """All engines are idle."""
        self._pending.clear()
