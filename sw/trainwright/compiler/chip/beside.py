"""Place the side programs of a resident step in rows that the main passes leave free.

Forward pass, loss and backward pass are the main commands. Samples, update and prior work next to
them, so that both arrays and the memory port are busy: their rows must not be touched by the main
commands that run at the same time. Each method tries rows from the earliest moment on, and falls
back to later moments, at last to after all main commands. ``resident`` is the user.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.hazards import rows_of, touches
from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip.exponents import ExponentSlots
from trainwright.compiler.chip.memory import WORD_BYTES, ChipMemory, gradient_of
from trainwright.compiler.chip.samples import (
    SampleRecords,
    buffers_written,
    bytes_loaded,
    samples_program,
)
from trainwright.compiler.chip.update import UpdateRule, update_program
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Program, Transfer
from trainwright.program.fields import Operation, Target
from trainwright.program.footprint import Touch
from trainwright.support.memo import CachedMethod

EIGHTHS = 8
"""Parts of the commands that a program may run next to: it is tried from the start of each on."""


def _fitting(
    program: Callable[..., Program], choices: Sequence[tuple[Any, ...]]
) -> Sequence[Descriptor]:
    """Return the program of the first choice that fits the scratchpad, or raise the last error."""
    for choice in choices[:-1]:
        with suppress(DoesNotFitError):
            return program(*choice).descriptors[:-1]
    return program(*choices[-1]).descriptors[:-1]


@dataclass(frozen=True)
class Beside:
    """Main commands of a step, and the programs that run next to them.

    ``main`` has forward pass, loss and backward pass; its first ``forward`` commands are the
    forward pass. Each method returns commands that take exponents from ``slots``.
    """

    memory: ChipMemory
    slots: ExponentSlots
    main: Sequence[Descriptor]
    forward: int

    @property
    def _p(self) -> AcceleratorParameters:
        return self.memory.step.parameters

    # Each attempt asks for the rows of every part: two encoders asked 18,000 times for 200
    # ranges, which took 36 of 60 s.
    @CachedMethod
    def _rows(self, first: int, stop: int | None = None) -> Sequence[Region]:
        """Return the rows of main commands ``first`` to ``stop``."""
        return tuple(rows_of(self.main[first:stop], self._p))

    def _from(self, first: int, stop: int | None = None) -> list[Sequence[Region]]:
        """Return the rows that main commands use from eight moments on, and at last none."""
        stop = len(self.main) if stop is None else stop
        moments = dict.fromkeys(first + (stop - first) * n // EIGHTHS for n in range(EIGHTHS + 1))
        return [self._rows(moment, stop) for moment in moments]

    def earliest(self, program: Callable[[Sequence[Region]], Program]) -> Sequence[Descriptor]:
        """Return a program in rows that the forward pass leaves free from some moment on.

        The earlier the moment, the earlier the program can begin, and the more rows are in use.
        """
        return _fitting(program, [(rows,) for rows in self._from(0, self.forward)])

    def samples(self, data: SampleRecords) -> Sequence[Descriptor]:
        """Return the commands of the next step's samples.

        They load the whole batch at once if enough rows are free from some moment of loss or
        backward pass on. Otherwise they load a few samples at a time, after this step has read its
        own samples for the last time.
        """
        buffers = [self.memory.everything[name] for name in buffers_written(self.memory.step)]
        read = 1 + max(
            n for n, d in enumerate(self.main)
            if any(bytes_loaded(d, buffer, self._p) for buffer in buffers)
        )  # fmt: skip
        # A whole batch needs no second load, so it is tried first, but for behind all commands.
        choices = [(rows, True) for rows in self._from(self.forward)[:-1]]
        choices += [(rows, False) for rows in self._from(read)]
        program = partial(samples_program, self.memory, data, slots=self.slots)
        return _fitting(lambda rows, whole: program(rows, whole=whole), choices)

    def update(self, rule: UpdateRule, samples: Sequence[Descriptor]) -> Sequence[Descriptor]:
        """Return the update of all parts, each as soon as its gradient exists.

        The update avoids the rows of ``samples`` where there is room for both.
        """
        done = {d.tensor: n for n, d in enumerate(self.main) if isinstance(d, Compute)}
        ready = [done[gradient_of(part)] for part in self.memory.layout.parts]
        order = sorted(range(len(ready)), key=lambda n: ready[n])
        gradients, sample_rows = self._gradients(), rows_of(samples, self._p)

        def program(
            reuse: bool, first: int, taken: Sequence[Region], kept: Mapping[int, Region]
        ) -> Program:
            rows = [*kept.values(), *taken]
            avoid = {n: [*self._rows(max(first, 1 + ready[n])), *rows] for n in order}
            starts = {n: region.start for n, region in kept.items()}
            return update_program(
                self.memory, rule, self.slots, order=order, gradients=starts, avoid=avoid,
                reuse=reuse,
            )  # fmt: skip

        # The earlier the first row is used, the more rows of main commands have to be avoided. The
        # last resorts reuse rows of parts that are done, which makes the update wait for its own
        # stores, and load all gradients, as those in the scratchpad divide its free rows.
        firsts = dict.fromkeys((*(1 + ready[n] for n in order), len(self.main)))
        last = len(self.main), ()
        choices = [*((False, n, sample_rows, gradients) for n in firsts)]
        choices += [(False, *last, gradients), (True, *last, gradients), (True, *last, {})]
        return _fitting(program, choices)

    def _gradients(self) -> dict[int, Region]:
        """Return where gradients lie that are still in the scratchpad after the main commands.

        Only a gradient that one store wrote out whole, and whose rows nobody writes afterwards, can
        be read there instead of being loaded again.
        """
        regions: dict[int, Region] = {}
        for n, part in enumerate(self.memory.layout.parts):
            name, live = gradient_of(part), self.memory.live(part)
            stores = [
                (number, d) for number, d in enumerate(self.main)
                if isinstance(d, Transfer) and d.operation is Operation.STORE and d.tensor == name
            ]  # fmt: skip
            if len(stores) != 1:
                continue
            after, d = stores[0]
            lines = len(live.left) * part.rows // (part.blocks * part.line_rows)
            region = Region(name, d.local, lines * live.line_rows)
            size = self._p.row_bytes * region.count
            is_whole = not d.levels and d.beats * self._p.beat_bytes == size
            if is_whole and d.element_bytes == WORD_BYTES and not self._writes(after, region):
                regions[n] = region
        return regions

    def _writes(self, after: int, region: Region) -> bool:
        """Return whether a command after number ``after`` writes to these rows."""
        mine = Touch(Target.SCRATCHPAD.name, region.start, region.stop, write=False)
        return any(
            touch.write and touch.overlaps(mine)
            for d in self.main[after + 1 :]
            for touch in touches(d, self._p)
        )
