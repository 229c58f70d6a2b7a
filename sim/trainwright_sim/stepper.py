"""Programs on the simulated hardware, stopped behind each command of an engine."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import AcceleratorError, Trace, control
from trainwright.accelerator.stepping import Counts, SteppedDescriptor, Stepping
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.program.descriptors import Program, Transfer
from trainwright.program.encoding import encode_descriptors
from trainwright.program.engines import ENGINES, TRACED
from trainwright.program.fields import MOST_DESCRIPTORS
from trainwright.program.footprint import rows_written
from trainwright.program.samples import Samples
from trainwright.program.segments import ProgramSegment, segments
from trainwright_sim.library import Simulator

if TYPE_CHECKING:
    from trainwright_sim.backend import RtlAccelerator

_PLACES = [TRACED.index(spec.unit) if spec.writes else 0 for spec in ENGINES]
"""Index in ``TRACED`` of each engine. STORE writes no rows: any index serves it."""


@dataclass
class RtlState:
    """Scratchpad as the traced writes have left it so far, and the external memory."""

    pad: npt.NDArray[np.int16]
    known: npt.NDArray[np.bool_]
    memory: npt.NDArray[np.uint8]


class RtlStepper(Stepping):
    """Program on the simulated accelerator, which stops in the cycle in which a command is done.

    Engines work at the same time: when a command is done, later commands of other engines may have
    written rows, too. Descriptors that the sequencer executes itself, such as SET and LOOP, are no
    steps. Sums are read when the program has ended.
    """

    def __init__(
        self,
        accelerator: "RtlAccelerator",
        program: Program,
        address: int,
        memory: npt.NDArray[np.uint8],
    ):
        self.program, self._p = program, accelerator.parameters
        shape = self._p.scratchpad_rows, self._p.lanes
        self._state = RtlState(np.zeros(shape, np.int16), np.zeros(shape[0], np.bool_), memory)
        self._totals = np.zeros((3, max(self._p.statistics_depth, len(program.slots))), np.int64)
        self._ended = self._closed = False
        self._steps = self._execute(accelerator, address)

    @property
    def state(self) -> RtlState:
        """Memories in the cycle of the stop."""
        return self._state

    def _counts(self) -> tuple[Counts, Counts, Counts]:
        if not self._ended:
            raise AcceleratorError(
                "sums, saturations and underflows of the hardware are known when the program has "
                "ended: step to its end, or use the golden model"
            )
        sums, saturations, underflows = self._totals
        return sums, saturations, underflows

    def __next__(self) -> SteppedDescriptor:
        if self._closed:
            raise AcceleratorError(
                "the accelerator was closed or has begun another run: make a new stepper"
            )
        return next(self._steps)

    def close(self) -> None:
        """End a program that is not done, by a reset; idempotent."""
        self._closed = self._closed or not self._ended
        self._steps.close()

    def _execute(self, accelerator: "RtlAccelerator", address: int) -> Generator[SteppedDescriptor]:
        """Execute the program, in as many runs as it needs."""
        for part in segments(self.program, self._p.statistics_depth, STREAM_STEP):
            encoded = encode_descriptors(part.program)
            accelerator.write(address, np.frombuffer(encoded, np.uint8))
            with accelerator.started(part.program, address, trace=True) as simulator:
                yield from self._stops(part, simulator, accelerator.cycles(simulator, 1))
                control.check(simulator, part.program, self._p)
                counted = control.statistics(simulator, self._p)
            for total, values in zip(self._totals, counted, strict=True):
                total[list(part.slots)] += values[: len(part.slots)]
        self._ended = True

    def _stops(
        self, part: ProgramSegment, simulator: Simulator, cycles: Iterator[None]
    ) -> Iterator[SteppedDescriptor]:
        """Run cycle by cycle, and stop when the next command in order is done."""
        p, given = self._p, [0] * len(TRACED)  # rows of each engine that steps have had
        lengths = [simulator.traced_rows()]  # an entry for each cycle in which rows were written
        # Commands of different engines end out of order: steps wait for the commands before them.
        ended: dict[int, tuple[int, ...]] = {}  # rows written when each command was done
        stopped = 0  # commands that have been steps
        for _ in cycles:
            if (written := simulator.traced_rows()) != lengths[-1]:
                lengths.append(written)
            commands = simulator.command_words()
            over = commands[stopped:, 2] != commands[stopped:, 3]
            for command in np.flatnonzero(over).tolist():
                ended.setdefault(stopped + command, written)
            while stopped in ended:
                engine, number, first, last = commands[stopped, :4].tolist()
                place, end = _PLACES[engine], ended[stopped][_PLACES[engine]]
                if number < MOST_DESCRIPTORS:  # else a load of the program itself, which is no step
                    d = part.program.descriptors[number]
                    if isinstance(d, Transfer | Samples):
                        # LOAD takes its next command before it has written the rows of this one.
                        end = given[place] + rows_written(d, p)
                    if end > written[place]:  # rows are still on their way: a later cycle has them
                        break
                    traces = simulator.traces(p)
                    self._write(traces, lengths)
                    lengths = lengths[-1:]
                    own, start = traces[TRACED[place]], given[place]
                    given[place] = end
                    whole, begun = part.numbers[number], int(commands[0, 2])
                    yield SteppedDescriptor(
                        whole, self.program.descriptors[whole], own.addresses[start:end],
                        own.rows[start:end], (first - begun, last - begun),
                    )  # fmt: skip
                stopped += 1

    def _write(self, traces: dict[str, Trace], lengths: list[tuple[int, ...]]) -> None:
        """Copy the rows of the cycles of ``lengths`` to the scratchpad, in the order of cycles."""
        for before, after in pairwise(lengths):
            for engine, start, end in zip(TRACED, before, after, strict=True):
                where = traces[engine].addresses[start:end]
                self._state.pad[where] = traces[engine].rows[start:end]
                self._state.known[where] = True
