"""What a resident step has beside forward pass, loss and backward pass, in rows of the scratchpad
that these do not touch meanwhile: so that both can be at work together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.memory import TARGETS, ChipMemory
from trainwright.compiler.chip.prior import renewal_program
from trainwright.compiler.chip.samples import DataSet, ample_rows, samples_program
from trainwright.compiler.chip.update import gradient_of, update_program
from trainwright.compiler.chip.weave import touches
from trainwright.compiler.errors import DoesNotFitError
from trainwright.compiler.memory import Buffer, LocalMemory, Region
from trainwright.compiler.names import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.onchip.rates import RateTable
from trainwright.onchip.update_pass import PartUpdate
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Program, Transfer
from trainwright.program.fields import Operation, Target
from trainwright.program.footprint import external

QUARTERS = 4
"""Places of what is left of a step at which something may begin, where it does not fit before."""


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

    def _from(self, first: int) -> list[int]:
        """Commands from ``first`` on, at which something may begin; the end is the last one."""
        left = len(self.main) - first
        return [first + left * n // QUARTERS for n in range(QUARTERS + 1)]

    def renewal(self, table: RateTable, looks: Looks | None) -> Program:
        """Columns left and the prior's coefficients, while the forward pass begins."""
        spans = [self._rows(0, self.forward // 3), []]
        return _fitting(
            lambda rows=rows: renewal_program(self.memory, table, looks, rows) for rows in spans
        )

    def samples(self, data: DataSet) -> Program:
        """Those of the next step, after the last time that this one reads its own."""
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
        return _fitting(
            lambda rows=rows: samples_program(self.memory, data, rows) for rows in spans
        )

    def update(
        self, parts: Sequence[PartUpdate], seed: int, table: RateTable, looks: Looks | None,
        samples: Program | None,
    ) -> Program:  # fmt: skip
        """Of the last layer as soon as its gradients are there; not in rows of the ``samples``,
        where there is room beside them."""
        of = {gradient_of(part): part.layer for part in self.memory.layout.parts}
        layers = sorted(set(of.values()))
        made = {
            layer: [n for n, d in enumerate(self.main)
                    if isinstance(d, Compute) and of.get(d.tensor) == layer]
            for layer in layers
        }  # fmt: skip
        last = layers.pop()
        later = min((n for layer in layers for n in made[layer]), default=len(self.main))
        taken = rows_of(samples.descriptors, self._p) if samples else []

        def program(first: int, taken: Sequence[Region]) -> Program:
            avoid = {layer: [*self._rows(max(later, first)), *taken] for layer in layers}
            avoid[last] = [*self._rows(first), *taken]
            return update_program(self.memory, parts, seed, table, looks, avoid)

        choices = [(n, taken) for n in self._from(1 + max(made[last]))]
        choices.append((len(self.main), []))
        return _fitting(lambda choice=choice: program(*choice) for choice in choices)
