"""What a resident step has beside forward pass, loss and backward pass, in rows of the scratchpad
that these do not touch meanwhile: so that both can be at work together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.memory import Buffer, LocalMemory, Region
from trainwright.compiler.base.names import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.chip.builder import MEMORY
from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.memory import TARGETS, ChipMemory
from trainwright.compiler.chip.samples import DataSet, ample_rows, samples_program
from trainwright.compiler.chip.update import gradient_of, update_program
from trainwright.compiler.chip.weave import Phase, can_weave, touches
from trainwright.onchip.layout import LANES
from trainwright.onchip.rates import RateTable
from trainwright.onchip.update_pass import PartUpdate
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Program, Transfer
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Engine, Operation, Target
from trainwright.program.footprint import Touch, external
from trainwright.program.vector import Vector
from trainwright.timing.commands import work_of

WORD_BYTES = 2
QUARTERS = 4
"""Places of what is left of a step at which something may begin, where it does not fit before."""
EIGHTHS = 8
"""Such places for a batch that is in the scratchpad as a whole."""


def rows_of(descriptors: Sequence[Descriptor], p: AcceleratorParameters) -> list[Region]:
    """Rows of the scratchpad that commands touch, or may."""
    found: list[Region] = []
    spans = {
        (touch.start, touch.stop)
        for d in descriptors
        for touch in touches(d, p)
        if touch.space == Target.SCRATCHPAD.name
    }
    for start, stop in sorted(spans):
        if found and start <= found[-1].stop:
            last = found.pop()
            start, stop = last.start, max(stop, last.stop)
        found.append(Region("others", start, stop - start))
    return found


def _reads(d: Descriptor, buffers: Sequence[Buffer], p: AcceleratorParameters) -> bool:
    if not isinstance(d, Transfer) or d.operation is not Operation.LOAD:
        return False
    low, high = external(d, p)
    return any(low < buffer.stop and buffer.address < high for buffer in buffers)


def _fitting(programs: Iterator[Callable[[], Program]]) -> Program:
    """The first that fits the scratchpad, or the last one's error."""
    one = next(programs)
    for other in programs:
        try:
            return one()
        except DoesNotFitError:
            one = other
    return one()


@dataclass(frozen=True)
class Beside:
    """``main``: forward pass, loss and backward pass, the commands of the first ``forward``."""

    memory: ChipMemory
    main: Sequence[Descriptor]
    forward: int

    @property
    def _p(self) -> AcceleratorParameters:
        return self.memory.step.parameters

    def _rows(self, first: int, stop: int | None = None) -> list[Region]:
        return rows_of(self.main[first:stop], self._p)

    def _outside(self, d: Descriptor) -> list[Touch]:
        return [touch for touch in touches(d, self._p) if touch.space == MEMORY]

    @property
    def beginning(self) -> range:
        """Commands with which the forward pass begins."""
        return range(self.forward // 3)

    def samples(self, data: DataSet) -> Program:
        """Those of the next step: all of them in the scratchpad where these rows are free from some
        place of the backward pass on; else after the last time that this one reads its own.
        """
        names = (SAMPLES_OUTSIDE, SAMPLES_INSIDE, TARGETS)
        buffers = [{**self.memory.step.buffers, **self.memory.buffers}[name] for name in names]
        first = 1 + max(n for n, d in enumerate(self.main) if _reads(d, buffers, self._p))
        spans = [self._rows(n) for n in range(first, len(self.main))]
        pad = LocalMemory(self._p)
        for n, rows in enumerate(spans):
            pad.avoid(rows)
            if pad.has_room(ample_rows(self.memory.step.batch)):
                del spans[:n]
                break
        spans.append([])
        left = len(self.main) - self.forward
        early = [self.forward + left * n // EIGHTHS for n in range(EIGHTHS)]
        choices = [(self._rows(n), True) for n in early]
        choices += [(rows, False) for rows in spans]
        return _fitting(
            lambda rows=rows, whole=whole: samples_program(self.memory, data, rows, whole=whole)
            for rows, whole in choices
        )

    def pause(self, late: Sequence[Descriptor]) -> range:
        """Commands of the forward pass beside which ``late`` ones find most time: up to the first
        that needs theirs, PE1 has that much more to do than PE2.
        """
        mine = [one for d in late for one in self._outside(d)]
        needing = (
            n for n in range(self.forward)
            if any(_conflict(*pair) for pair in product(self._outside(self.main[n]), mine))
        )  # fmt: skip
        stop = next(needing, self.forward)
        wanted = sum(self._cycles(d, Engine.PE2) for d in late)
        spare, most, first = 0.0, 0.0, stop
        for n in reversed(range(stop)):
            d = self.main[n]
            spare += self._cycles(d, Engine.PE1) - self._cycles(d, Engine.PE2)
            if spare > most:
                most, first = spare, n
            if spare >= wanted:
                break
        return range(first, stop)

    def _cycles(self, d: Descriptor, engine: Engine) -> float:
        if not isinstance(d, Compute | Vector) or ENGINE_OF[d.operation] is not engine:
            return 0.0
        return work_of(d, self._p).cycles

    def within(
        self, pause: range, program: Callable[[Sequence[Region]], Program],
        others: Sequence[Descriptor] = (),
    ) -> Program:  # fmt: skip
        """A ``program`` that avoids the rows of commands of a ``pause``, and of as many before it
        as leave room, and of ``others``.
        """
        taken = rows_of(others, self._p)
        firsts = dict.fromkeys(pause.start * n // QUARTERS for n in range(QUARTERS + 1))
        spans = [[*self._rows(first, pause.stop), *taken] for first in firsts]
        spans.append([])
        return _fitting(lambda rows=rows: program(rows) for rows in spans)

    def update(
        self, parts: Sequence[PartUpdate], seed: int, table: RateTable, looks: Looks | None,
        samples: Program | None, numbers: Sequence[int],
    ) -> Program:  # fmt: skip
        """Of the parts of these ``numbers``, each as soon as its gradient is there; not in rows of
        the ``samples``, where there is room beside them.
        """
        whole = self.memory.layout.parts
        done = {d.tensor: n for n, d in enumerate(self.main) if isinstance(d, Compute)}
        ready = {n: done[gradient_of(whole[n])] for n in numbers}
        order = sorted(numbers, key=lambda n: ready[n])
        made = self._gradients(numbers)
        others = [*made.values(), *(rows_of(samples.descriptors, self._p) if samples else [])]
        starts = {n: region.start for n, region in made.items()}

        def program(first: int, taken: Sequence[Region], *, sparing: bool) -> Program:
            avoid = {n: [*self._rows(max(first, 1 + ready[n])), *taken] for n in order}
            return update_program(
                self.memory, parts, seed, table, looks, avoid,
                of=order, made=starts, sparing=sparing,
            )  # fmt: skip

        firsts = dict.fromkeys((*(1 + ready[n] for n in order), len(self.main)))
        last = len(self.main), list(made.values())
        choices = [*((n, others) for n in firsts), last]
        return _fitting(
            lambda choice=choice, sparing=sparing: program(*choice, sparing=sparing)
            for choice, sparing in (*((one, False) for one in choices), (last, True))
        )

    def _gradients(self, numbers: Sequence[int]) -> dict[int, Region]:
        """Of the parts of these ``numbers`` whose gradients are in the scratchpad when all else is
        done: where they lie, in the order of the layout.
        """
        found: dict[int, Region] = {}
        if not can_weave([Phase("step", self.main)]):
            return found
        for n in numbers:
            part = self.memory.layout.parts[n]
            name, blocks = gradient_of(part), len(self.memory.live(part).left)
            stores = [k for k, d in enumerate(self.main) if _is_store(d, name)]
            if len(stores) != 1:
                continue
            d = self.main[stores[0]]
            assert isinstance(d, Transfer)
            region = Region(name, d.local, blocks * part.rows // part.blocks)
            size = WORD_BYTES * LANES * region.count
            whole = not d.levels and d.beats * self._p.beat_bytes == size
            if whole and d.element_bytes == WORD_BYTES and not self._writes(stores[0], region):
                found[n] = region
        return found

    def _writes(self, after: int, region: Region) -> bool:
        """Whether a command ``after`` that number writes to these rows."""
        mine = Touch(Target.SCRATCHPAD.name, region.start, region.stop, write=False)
        return any(
            touch.write and touch.overlaps(mine)
            for d in self.main[after + 1 :]
            for touch in touches(d, self._p)
        )


def _conflict(one: Touch, other: Touch) -> bool:
    return one.overlaps(other) and (one.write or other.write)


def _is_store(d: Descriptor, name: str) -> bool:
    return isinstance(d, Transfer) and d.operation is Operation.STORE and d.tensor == name
