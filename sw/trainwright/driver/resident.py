"""Steps by one resident program: the host starts it and reads what came of it."""

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import (
    Accelerator,
    AcceleratorError,
    FileAccelerator,
    Run,
    UnattendedAccelerator,
)
from trainwright.compiler.chip.exponents import moment_name
from trainwright.compiler.chip.live import Kept
from trainwright.compiler.chip.memory import PRIOR, SCHEDULE, TARGETS
from trainwright.compiler.chip.resident import Resident, resident_step
from trainwright.compiler.chip.samples import DataSet
from trainwright.compiler.names import gradient_name
from trainwright.driver.card import PAGE, identity
from trainwright.driver.chip import ChipDriver, LossResult
from trainwright.fixed.scale import ScaleRanges, Scales
from trainwright.onchip.layout import LANES, Layout
from trainwright.onchip.loss import WORD_WIDTH, batch_exponent
from trainwright.onchip.prior import Pulls, no_pulls, sums_of_squares
from trainwright.onchip.prior_pass import COEFFICIENT, EXPONENT, FIELDS
from trainwright.onchip.rates import RateTable
from trainwright.onchip.samples import first_of, order_at
from trainwright.onchip.schedule_pass import schedule_words
from trainwright.onchip.state import State
from trainwright.program.encoding import encode_descriptors


def lay_out_data(accelerator: Accelerator, records: npt.NDArray[np.uint8], batch: int, seed: int,
                 pixels: int) -> DataSet:  # fmt: skip
    """Where ``place_data`` puts ``records``; raises what it raises."""
    total, size = records.shape
    address = (accelerator.memory_bytes - PAGE - records.size) // PAGE * PAGE
    data = DataSet(address, total, size, pixels, first_of(total, seed), total // batch * batch)
    if address < 0:
        raise _too_big(data, accelerator, 0)
    return data


def place_data(accelerator: Accelerator, records: npt.NDArray[np.uint8], batch: int, seed: int,
               pixels: int) -> DataSet:  # fmt: skip
    """Write ``records`` (``onchip.samples.records``) to the end of the memory, before the page of
    its card, once for all drivers of a run of ``seed``; raises ``AcceleratorError`` where they are
    more than the memory."""
    data = lay_out_data(accelerator, records, batch, seed, pixels)
    accelerator.write(data.address, records)
    return data


def _too_big(data: DataSet, accelerator: Accelerator, step: int) -> AcceleratorError:
    beside = f", {step} of them the step's" if step else ""
    smaller = "--pixels 4, or " if data.pixels > 4 else ""
    return AcceleratorError(
        f"{data.total} samples of {data.record_bytes} bytes are {data.total * data.record_bytes}, "
        f"the accelerator has {accelerator.memory_bytes} bytes of external memory{beside}; use "
        f"{smaller}fewer samples, or write them in every step: --accelerator sample_loads=0"
    )


class ResidentDriver(ChipDriver):
    """A ``ChipDriver`` whose steps are one program, the same in every step.

    ``put`` writes the state, ``begin`` program, schedule and exponents, all once; after that the
    host writes inputs and targets, or nothing where there is a ``data`` set, and with a prior its
    coefficients. Raises ``AcceleratorError`` for an accelerator that cannot repeat programs, and
    where the data set leaves too little memory, ``CompileError`` for one whose file is too small,
    ``ValueError`` for a prior of columns of more elements than a word counts.
    """

    def __init__(
        self, accelerator: Accelerator, layout: Layout, batch: int, table: RateTable, *,
        kept: Kept | None = None, trace: bool = False, seed: int = 0,
        ranges: ScaleRanges | None = None, pulled: bool = False, data: DataSet | None = None,
    ) -> None:  # fmt: skip
        """``seed`` is that of the run; scales are frozen where ``ranges`` is None."""
        super().__init__(accelerator, layout, batch, kept=kept, trace=trace)
        if not hasattr(accelerator, "repeat"):
            raise AcceleratorError(
                "this back end does not repeat programs yet; use --backend golden, or exponents=0"
            )
        self._file = cast(FileAccelerator, accelerator)
        self._table, self._seed, self._data, self._pulled = table, seed, data, pulled
        self.resident: Resident = resident_step(
            self.memory, ranges, seed, table, pulled=pulled, data=data
        )
        if pulled:
            self.memory.prior_words(*np.zeros((3, layout.columns), np.int64))  # its costs are words
        self._tensors = [t.name for one in (self.step.forward, self.step.backward)
                         for t in one.tensors if t.counted]  # fmt: skip
        self.last_run: Run | None = None
        """The last ``run_steps`` or ``attend_steps``."""

    def begin(self, scales: Scales, state: State, step: int) -> None:
        """Write program and schedule, and the exponents and the order of the samples, as they are
        before ``step`` with these ``scales`` and this ``state``."""
        self._write_program()
        self._write(SCHEDULE, schedule_words(self._table, step))
        if self._pulled:
            sums, pulls = sums_of_squares(self.layout, state.weights), state.pulls
            words = self.memory.prior_words(sums, pulls.coefficients, pulls.exponents)
            self._write(PRIOR, words)
        parts = self.layout.parts
        given = {"x": self.input_exponent} | {part.name: part.exponent for part in parts}
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
        if self._data:
            batch = self.step.batch
            self.accelerator.order = order_at(self._data.total, batch, self._seed, step)

    def _write_program(self) -> None:
        encoded = np.frombuffer(self._encoded, np.uint8)
        needed = self.memory.size + encoded.size
        if self._data and needed > self._data.address:
            raise _too_big(self._data, self.accelerator, needed)
        if needed > self.accelerator.memory_bytes:
            raise AcceleratorError(
                f"a resident step needs {needed} bytes of external memory,"
                f" the accelerator has {self.accelerator.memory_bytes}"
            )
        self.accelerator.write(self.memory.size, encoded)

    def _set(self, given: dict[str, int]) -> None:
        values = list(self._file.exponents)
        for name, slot in self.resident.slots.numbers.items():
            values[slot] = given.get(name, 0) if slot else 0
        self._file.exponents = values

    @cached_property
    def _encoded(self) -> bytes:
        return encode_descriptors(self.resident.program)

    @property
    def identity(self) -> str:
        """Of program and schedule."""
        return identity(self._encoded, schedule_words(self._table, 0).tobytes())

    def put_batch(self, inputs, labels: np.ndarray, classes: int) -> None:
        """Inputs and targets of the next steps, where there is no data set."""
        for name in self.step.inputs:
            self._put(name, inputs)
        self._write(TARGETS, self.memory.target_words(labels, classes))

    def run_steps(self, times: int, *, step: int) -> LossResult:
        """Whole steps, ``times`` of them, the first of number ``step``; their loss, summed.

        Raises ``ProgramError`` for 0 times, and where exponents are beyond what units shift.
        """
        self.last_run = self._file.repeat(
            self.resident.program, times, address=self.memory.size, step=step, trace=self.trace
        )
        return self._loss(self.last_run)

    def attend_steps(self, times: int, *, step: int) -> LossResult | None:
        """What ``run_steps`` gives of steps that another host has started; None where the
        accelerator is not at these, and has not done them last. That the program is this one is to
        be known."""
        accelerator = cast(UnattendedAccelerator, self._file)
        run = accelerator.attend(
            self.resident.program, times, address=self.memory.size, step=step
        )  # fmt: skip
        if run is None:
            return None
        self.last_run = run
        return self._loss(run)

    def _loss(self, run: Run) -> LossResult:
        slot = self.resident.loss_slot
        return LossResult(int(run.sums[slot]), int(run.saturations[slot]))

    def pulls(self) -> Pulls:
        """The prior's coefficients after the last step; of none where there is no prior."""
        found = no_pulls(self.layout)
        if self._pulled:
            rows = self.rows(PRIOR).reshape(FIELDS, -1, LANES)
            columns = self.memory.side_columns
            found.coefficients[columns] = rows[COEFFICIENT]
            found.exponents[columns] = rows[EXPONENT]
            found.coefficients[0] = found.exponents[0] = 0
        return found

    @property
    def saturations(self) -> int:
        """Values of the step's tensors that saturated in the last ``run_steps``."""
        assert self.last_run is not None
        written = [t for one in (self.step.forward, self.step.backward) for t in one.tensors]
        counts = self.last_run.saturations.tolist()
        return sum(count for t, count in zip(written, counts, strict=False) if t.counted)

    def exponents(self) -> dict[str, int]:
        """Exponents of the tensors, as ``Scales`` has them after the last step."""
        values: Sequence[int] = self._file.exponents
        return {name: values[slot] for name, slot in self.slots.items()}

    @property
    def slots(self) -> dict[str, int]:
        """Of the exponents of the tensors."""
        return {name: self.resident.slots[name] for name in self._tensors}

    def moments(self) -> list[int]:
        """Exponents that the moments of each part have."""
        values: Sequence[int] = self._file.exponents
        slots = self.resident.slots
        return [values[slots[moment_name(part.name)]] for part in self.layout.parts]
