"""An accelerator whose memories are hit now and then."""

from collections.abc import Callable
from random import Random

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, Run
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.sample_order import SampleOrder
from trainwright_sim.flips.inject import SPARE_BYTES, Flip, Injector, row_bits

MEMORIES = ("scratchpad", "external")
"""Memories in which bits are flipped.

In external memory, only the data of a step is flipped, not its programs.
"""

Spans = list[tuple[int, int]]
"""First byte and the one after the last."""


class Flipping:
    """``accelerator``, with bits flipped in ``memory``, one of ``MEMORIES``.

    ``count`` says before each run how many bits are hit in it: of any row, used or not,
    before any descriptor but the first. ``outside`` are the bytes of external memory that may be.
    """

    def __init__(self, accelerator: Accelerator, memory: str, random: Random):
        if memory not in MEMORIES:
            raise ValueError(f"memory must be one of {', '.join(MEMORIES)}, not {memory!r}")
        self._accelerator, self._memory, self._random = accelerator, memory, random
        self._injector = Injector(accelerator)
        self.count: Callable[[], int] = lambda: 0
        self.outside: Spans = []
        self.flips = 0
        """Bits flipped so far."""

    @property
    def parameters(self) -> AcceleratorParameters:
        return self._accelerator.parameters

    @property
    def memory_bytes(self) -> int:
        """The memory available to the user: the spare bytes for flips are taken off."""
        return self._accelerator.memory_bytes - SPARE_BYTES

    @property
    def order(self) -> SampleOrder:
        return self._accelerator.order

    @order.setter
    def order(self, order: SampleOrder) -> None:
        self._accelerator.order = order

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self._accelerator.write(address, data)

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        return self._accelerator.read(address, size)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        for number in range(self.count()):
            self.flips += 1
            if self._memory == "external":
                self._flip_outside()
            else:
                program = self._flip_inside(program, number)
        return self._accelerator.run(program, address, trace=trace)

    def close(self) -> None:
        self._accelerator.close()

    def _flip_outside(self) -> None:
        sizes = [stop - start for start, stop in self.outside]
        [(start, stop)] = self._random.choices(self.outside, sizes)
        place = self._random.randrange(start, stop)
        self.write(place, self.read(place, 1) ^ np.uint8(1 << self._random.randrange(8)))

    def _flip_inside(self, program: Program, number: int) -> Program:
        flip = Flip(
            before=self._random.randrange(1, len(program.descriptors)),
            row=self._random.randrange(self.parameters.scratchpad_rows),
            bit=self._random.randrange(row_bits(self.parameters)),
        )
        return self._injector.flipped(program, flip, number) or program
