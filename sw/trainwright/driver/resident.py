"""Steps by one resident program: the host starts it and reads what came of it."""

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np

from trainwright.accelerator import Accelerator, AcceleratorError, Run
from trainwright.compiler.chip.exponents import RATE, RATE_SHIFT, moment_name
from trainwright.compiler.chip.live import Kept
from trainwright.compiler.chip.memory import TARGETS
from trainwright.compiler.chip.resident import Resident, resident_step
from trainwright.compiler.names import gradient_name
from trainwright.driver.chip import ChipDriver, LossResult
from trainwright.fixed.scale import ScaleRanges, Scales
from trainwright.onchip.layout import Layout
from trainwright.onchip.loss import WORD_WIDTH, batch_exponent
from trainwright.onchip.rates import Entry
from trainwright.onchip.state import State
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors


class FileAccelerator(Accelerator, Protocol):
    """An accelerator with an exponent file (``GoldenAccelerator``, today)."""

    exponents: list[int]
    """By slot."""

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        """Execute a program that lies in memory ``times`` times."""
        ...


class ResidentDriver(ChipDriver):
    """A ``ChipDriver`` whose steps are one program, the same in every step.

    ``put`` writes the state, ``begin`` program and exponents, both once; after that the host writes
    inputs, targets and, with a prior, its coefficients. Raises ``AcceleratorError`` for an
    accelerator that cannot repeat programs, ``CompileError`` for one whose file is too small.
    """

    def __init__(
        self, accelerator: Accelerator, layout: Layout, batch: int, *, kept: Kept | None = None,
        trace: bool = False, seed: int = 0, ranges: ScaleRanges | None = None, pulled: bool = False,
    ) -> None:  # fmt: skip
        """``seed`` is that of the run; scales are frozen where ``ranges`` is None."""
        super().__init__(accelerator, layout, batch, kept=kept, trace=trace)
        if not hasattr(accelerator, "repeat"):
            raise AcceleratorError(
                "this back end does not repeat programs yet; use --backend golden, or exponents=0"
            )
        self._file = cast(FileAccelerator, accelerator)
        self.resident: Resident = resident_step(self.memory, ranges, seed, pulled=pulled)
        self._tensors = [t.name for one in (self.step.forward, self.step.backward)
                         for t in one.tensors if t.counted]  # fmt: skip

    def begin(self, scales: Scales, state: State, entry: Entry) -> None:
        """Write the program, and the exponents of a step of these ``scales`` and ``state``."""
        encoded = np.frombuffer(encode_descriptors(self.resident.program), np.uint8)
        if self.memory.size + encoded.size > self.accelerator.memory_bytes:
            raise AcceleratorError(
                f"a resident step needs {self.memory.size + encoded.size} bytes of external memory,"
                f" the accelerator has {self.accelerator.memory_bytes}"
            )
        self.accelerator.write(self.memory.size, encoded)
        parts = self.layout.parts
        given = {"x": self.input_exponent, RATE: entry.rate, RATE_SHIFT: entry.rate_shift}
        given |= {part.name: part.exponent for part in parts}
        for number, layer in enumerate(self.network.layers, 1):
            if not layer.bias:
                given[f"l{number}.b"] = scales.exponents.get(f"l{number}.y", 0)
        for program in (self.step.forward, self.step.backward):
            given |= program.constants
        upper = gradient_name(len(self.network.layers))
        given[upper] = 1 - WORD_WIDTH - batch_exponent(self.step.batch)
        moments = zip(parts, state.exponents.tolist(), strict=True)
        given |= {moment_name(part.name): exponent for part, exponent in moments}
        given |= scales.exponents
        self._set(given)

    def _set(self, given: dict[str, int]) -> None:
        values = list(self._file.exponents)
        for name, slot in self.resident.slots.numbers.items():
            values[slot] = given.get(name, 0) if slot else 0
        self._file.exponents = values

    def put_rate(self, entry: Entry) -> None:
        """The schedule's next entry."""
        values = list(self._file.exponents)
        values[self.resident.slots[RATE]] = entry.rate
        values[self.resident.slots[RATE_SHIFT]] = entry.rate_shift
        self._file.exponents = values

    def put_batch(self, inputs, labels: np.ndarray, classes: int) -> None:
        """Inputs and targets of the next steps."""
        for name in self.step.inputs:
            self._put(name, inputs)
        self._write(TARGETS, self.memory.target_words(labels, classes))

    def run_steps(self, times: int, *, step: int) -> LossResult:
        """Whole steps, ``times`` of them, the first of number ``step``; their loss, summed.

        Raises ``ProgramError`` for 0 times, and where exponents are beyond what units shift.
        """
        run = self._file.repeat(
            self.resident.program, times, address=self.memory.size, step=step, trace=self.trace
        )
        slot = self.resident.loss_slot
        self.last_run = run
        return LossResult(int(run.sums[slot]), int(run.saturations[slot]))

    def exponents(self) -> dict[str, int]:
        """Exponents of the tensors, as ``Scales`` has them after the last step."""
        values: Sequence[int] = self._file.exponents
        return {name: values[self.resident.slots[name]] for name in self._tensors}

    def moments(self) -> list[int]:
        """Exponents that the moments of each part have."""
        values: Sequence[int] = self._file.exponents
        slots = self.resident.slots
        return [values[slots[moment_name(part.name)]] for part in self.layout.parts]
