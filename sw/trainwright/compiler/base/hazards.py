"""Hazards: a descriptor waits for every engine that still touches what it touches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from trainwright.program.fields import Engine
from trainwright.program.footprint import Touch

ARRAYS = Engine.PE1 | Engine.PE2
"""Engines that hold two commands: they accept one only when the one before the last is done."""
MASKS = tuple(Engine(bits) for bits in range(int(Engine.ALL) + 1))
"""Every mask of engines by its bits, which take a fraction of the time to put together."""
_ARRAYS = int(ARRAYS)


Meet = Callable[[Touch, Touch], bool]
"""Whether two commands touch the same."""


def conflict(
    touched: Sequence[Touch], pending: Sequence[Touch], meet: Meet = Touch.overlaps
) -> bool:
    """Whether one writes what the other touches."""
    return any((a.write or b.write) and meet(a, b) for a in touched for b in pending)


def reads(touched: Sequence[Touch], pending: Sequence[Touch], meet: Meet = Touch.overlaps) -> bool:
    """Whether ``touched`` reads what ``pending`` writes."""
    return any(b.write and not a.write and meet(a, b) for a in touched for b in pending)


class Waits(NamedTuple):
    """What a descriptor waits for."""

    wait: Engine
    """Engines that must be idle."""
    wait_older: Engine
    """Engines that must have finished all commands but the last."""


@dataclass
class Hazards:
    """What the engines may still be touching, as descriptors are issued in order: of what two
    commands touch, all from the first row to the last (``exact_hazards`` compares the rows).
    """

    conflict: Callable[[Any, Any], bool] = conflict
    """Whether one of two commands writes what the other touches."""
    reads: Callable[[Any, Any], bool] = reads
    """Whether the first reads what the second writes."""
    _pending: dict[Engine, list[Any]] = field(default_factory=dict)
    """The commands of each engine that may not be done, oldest first: what they touch, or whatever
    ``conflict`` and ``reads`` take."""

    def fork(self) -> "Hazards":
        """Another one in the same state."""
        pending = {engine: list(commands) for engine, commands in self._pending.items()}
        return Hazards(self.conflict, self.reads, pending)

    def waits(self, engine: Engine, touched: Any) -> Waits:
        """What a descriptor must wait for (read after write, write after read or write).

        Commands of one engine are in order but for this: an array reads the operands of a command
        while it still writes the last results of the one before.
        """
        wait = older = 0
        for other, (*before, last) in self._pending.items():
            if other is engine:
                if self.reads(touched, last):
                    wait |= int(other)
            elif self.conflict(touched, last):
                wait |= int(other)
            elif any(self.conflict(touched, command) for command in before):
                older |= int(other)
        older_idle = older & ~_ARRAYS
        return Waits(MASKS[wait | older_idle], MASKS[older & _ARRAYS])

    def issue(self, engine: Engine, touched: Any) -> Waits:
        """As ``waits``; the descriptor is issued."""
        found = self.waits(engine, touched)
        wait, older = int(found.wait), int(found.wait_older)
        # What is waited for is done once this is issued.
        self._pending = {
            e: commands[-1:] if int(e) & older else commands
            for e, commands in self._pending.items()
            if not int(e) & wait
        }
        before = self._pending.get(engine, [])
        self._pending[engine] = [*(before[-1:] if int(engine) & _ARRAYS else before), touched]
        return found

    def barrier(self) -> None:
        """All engines are idle."""
        self._pending.clear()


def exact_hazards() -> Hazards:
    """Hazards that compare rows which lie among each other's, at some cost."""
    return Hazards(partial(conflict, meet=Touch.meets), partial(reads, meet=Touch.meets))
