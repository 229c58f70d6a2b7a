"""Hazards: a descriptor waits for every other engine that still touches what it touches."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ttforge.program.fields import Engine
from ttforge.program.footprint import Touch


@dataclass
class Hazards:
    """What the engines may still be touching, as descriptors are issued in order."""

    _pending: list[tuple[Engine, Touch]] = field(default_factory=list)

    def issue(self, engine: Engine, touched: Sequence[Touch]) -> Engine:
        """The engines a descriptor must wait for (read after write, write after read or write).

        Commands of one engine follow each other, so that an engine never waits for itself.
        """
        wait = Engine.NONE
        for touch in touched:
            for other, pending in self._pending:
                conflict = touch.overlaps(pending) and (touch.write or pending.write)
                if conflict and other is not engine:
                    wait |= other
        # Those engines are idle once this is issued; an array takes one command at a time.
        done = wait | (engine & (Engine.PE1 | Engine.PE2))
        self._pending = [(other, touch) for other, touch in self._pending if not other & done]
        self._pending += [(engine, touch) for touch in touched]
        return wait

    def barrier(self) -> None:
        """All engines are idle."""
        self._pending.clear()
