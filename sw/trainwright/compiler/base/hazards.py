"""Find the engines that each descriptor has to wait for.

Descriptors are issued in order and executed by four engines at the same time. A descriptor waits
for every engine that may still touch the same rows, entries or bytes, unless both only read.
``base.commands`` and ``schedule.weave`` call ``Hazards`` for each descriptor;
``tests/sw/hazards.py`` checks programs independently.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainwright.compiler.base.memory import Region
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Transfer
from trainwright.program.engines import EVERY_ARRAY
from trainwright.program.fields import Engine, Operation, Target
from trainwright.program.footprint import Touch, external, footprint
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector

MASKS = tuple(Engine(bits) for bits in range(int(Engine.ALL) + 1))
"""Masks of engines, by their bits: a look-up takes a fraction of the time of building a mask."""
_ARRAYS = sum(map(int, EVERY_ARRAY))
"""Engines that hold up to two commands: they accept a third when the first is done."""


MEMORY = "memory"
"""Name of the external memory among the spaces of ``Touch``."""


def touches(d: Descriptor, p: AcceleratorParameters) -> tuple[Touch, ...]:
    """Return the rows, entries and bytes that a command reads and writes."""
    if not isinstance(d, Compute | Transfer | Samples | Vector):
        return ()
    if not isinstance(d, Transfer | Samples):
        return footprint(d, p)
    outside = Touch(MEMORY, *external(d, p), d.operation is Operation.STORE)
    return (*footprint(d, p), outside)


def rows_of(descriptors: Sequence[Descriptor], p: AcceleratorParameters) -> list[Region]:
    """Return the rows of the scratchpad that commands touch, as disjoint regions."""
    regions: list[Region] = []
    spans = {
        (touch.start, touch.stop)
        for d in descriptors
        for touch in touches(d, p)
        if touch.space == Target.SCRATCHPAD.name
    }
    for start, stop in sorted(spans):
        if regions and start <= regions[-1].stop:
            last = regions.pop()
            start, stop = last.start, max(stop, last.stop)
        regions.append(Region("others", start, stop - start))
    return regions


def conflict(touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
    """Return whether one of two commands writes anything that the other touches."""
    return any((a.write or b.write) and a.meets(b) for a in touched for b in pending)


def reads(touched: Sequence[Touch], pending: Sequence[Touch]) -> bool:
    """Return whether ``touched`` reads anything that ``pending`` writes."""
    return any(b.write and not a.write and a.meets(b) for a in touched for b in pending)


class Waits(NamedTuple):
    """Engines that a descriptor waits for."""

    wait: Engine
    """Engines that must be idle."""
    wait_older: Engine
    """Engines that must have finished all their commands but the last."""


@dataclass
class Hazards:
    """Commands in flight on each engine, while descriptors are issued in order.

    Rows are compared one by one, so that interleaved operands do not conflict.
    """

    conflict: Callable[[Any, Any], bool] = conflict
    """Test whether one of two commands writes anything that the other touches."""
    reads: Callable[[Any, Any], bool] = reads
    """Test whether the first of two commands reads anything that the second writes."""
    _pending: dict[Engine, list[Any]] = field(default_factory=dict)
    """Commands of each engine that may still run, oldest first.

    A command is represented by its touches, or by any value that ``conflict`` and ``reads`` accept.
    """

    def fork(self) -> "Hazards":
        """Return an independent copy."""
        pending = {engine: list(commands) for engine, commands in self._pending.items()}
        return Hazards(self.conflict, self.reads, pending)

    def waits(self, engine: Engine, touched: Any) -> Waits:
        """Return the engines to wait for: read after write, write after read or write.

        An engine executes its commands in order, with one exception: an array reads the operands of
        a command while it still writes the last results of the command before.
        """
        # Sets of engines as integers: joining members of ``Engine`` takes several times as long.
        wait = older = 0
        conflict = self.conflict
        for other, commands in self._pending.items():
            if other is engine:
                if self.reads(touched, commands[-1]):
                    wait |= int(other)
            elif conflict(touched, commands[-1]):
                wait |= int(other)
            else:
                for command in commands[:-1]:
                    if conflict(touched, command):
                        older |= int(other)
                        break
        # Only arrays hold a second command. For a transfer, "all but the last" can only mean idle.
        older_idle = older & ~_ARRAYS
        return Waits(MASKS[wait | older_idle], MASKS[older & _ARRAYS])

    def issue(self, engine: Engine, touched: Any) -> Waits:
        """Issue a descriptor, and return the engines that it waits for."""
        waits = self.waits(engine, touched)
        wait, older = int(waits.wait), int(waits.wait_older)
        # Commands that this descriptor waits for are done by the time it is issued: drop them.
        if wait | older:
            self._pending = {
                e: commands[-1:] if int(e) & older else commands
                for e, commands in self._pending.items()
                if not int(e) & wait
            }
        # The newest command of an array may wait for one that still runs: keep both.
        before = self._pending.get(engine, [])
        self._pending[engine] = [*(before[-1:] if int(engine) & _ARRAYS else before), touched]
        return waits
