"""Training steps by a resident program, which the host only starts and whose results it reads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from trainwright.accelerator import (
    Accelerator,
    AcceleratorError,
    FileAccelerator,
    Run,
    UnattendedAccelerator,
)
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.chip.exponents import moment_name
from trainwright.compiler.chip.memory import FACTORS, PRIOR, SCHEDULE, STATE, ChipMemory, Kept
from trainwright.compiler.chip.resident import Resident, resident_evaluation, resident_step
from trainwright.compiler.chip.samples import SampleRecords, samples_program
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.card import PAGE, identity
from trainwright.driver.driver import Driver
from trainwright.driver.model import ForwardOperands, ForwardResult, QuantisedModel
from trainwright.driver.runner import Occupied
from trainwright.fixed.scale import ScaleRanges, Scales, TensorStatistics
from trainwright.onchip.layout import LANES, WeightLayout, Words
from trainwright.onchip.loss import UNITS, gradient_exponent
from trainwright.onchip.prior import COEFFICIENT, EXPONENT, KEPT, Pulls, no_pulls, sums_of_squares
from trainwright.onchip.samples import first_of, order_at
from trainwright.onchip.schedule import schedule_words
from trainwright.onchip.state import ChipState
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors
from trainwright.program.errors import ProgramError
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.support.text import amount


def lay_out_data(accelerator: Accelerator, records: npt.NDArray[np.uint8], batch: int, seed: int,
                 pixels: int, *, before: int | None = None) -> SampleRecords:  # fmt: skip
    """Place the ``records`` of a run (``onchip.samples.records``) at the end of the memory.

    The records end before the page of the card, or before the address ``before``. Raises
    ``AcceleratorError`` if they are larger than the memory.
    """
    total, size = records.shape
    end = accelerator.memory_bytes - PAGE if before is None else before
    address = (end - records.size) // PAGE * PAGE
    data = SampleRecords(
        address, total, size, pixels, first_of(total, seed), total // batch * batch
    )
    if address < 0:
        raise _too_big(data, accelerator, 0)
    return data


def _too_big(data: SampleRecords, accelerator: Accelerator, step: int) -> AcceleratorError:
    beside = f", {step} of them the step's" if step else ""
    smaller = "--pixels 4, or " if data.pixels > 4 else ""
    return AcceleratorError(
        f"{amount(data.total, 'sample')} of {data.record_bytes} bytes: "
        f"{data.total * data.record_bytes}, the accelerator has {accelerator.memory_bytes} bytes "
        f"of external memory{beside}; use "
        f"{smaller}fewer samples, or more memory (for a job --memory-bytes), or train with loss "
        "and update on the host: --accelerator exponents=0"
    )


@dataclass(frozen=True)
class Executed:
    """Program that has been run, with the result of its run."""

    name: str
    program: Program
    run: Run


@dataclass(frozen=True)
class LossResult:
    """Summed loss of samples, over all heads, and how many of them are correct.

    The loss is in units of the loss function (``onchip.loss.UNITS``). A sample is correct if its
    label has the largest logit of the first head.
    """

    total: int
    correct: int


@dataclass(frozen=True)
class PlacedProgram:
    """Program with its byte address in external memory."""

    address: int
    program: Program

    @property
    def stop(self) -> int:
        """Address behind the last descriptor."""
        return self.address + len(self.program.descriptors) * DESCRIPTOR_BYTES


@dataclass(frozen=True)
class ResidentRun:
    """Settings of a run that its resident programs depend on."""

    rule: UpdateRule
    seed: int = 0
    ranges: ScaleRanges | None = None
    """Ranges in which scales are kept; None if scales are frozen."""
    data: SampleRecords | None = None
    """Training samples in external memory; None if the host writes each batch."""
    test: SampleRecords | None = None
    """Test set in external memory, in whole batches (``driver.records.filled_records``)."""
    occupied: Occupied | None = None
    """Argument of ``count_as``, if sizes were padded."""
    loss: str = "cross-entropy"
    """Key of ``onchip.loss.KERNELS``."""
    plan: str = AUTO
    """Key of ``compiler.base.compiled.IN_ROWS``."""


class ResidentDriver(Driver):
    """Driver of a network whose weights are in the accelerator's memory, with one program a step.

    ``put`` writes the state once, and ``begin`` programs, schedule and exponents. From then on the
    accelerator's programs write factors and biases, the images of factors (each a factor as one
    program reads it), and the state of the update; the host writes nothing, except inputs and
    targets if the run has no ``data`` set. Raises ``AcceleratorError`` if the accelerator cannot
    repeat programs or the data set leaves too little memory, ``CompileError`` for a network that
    the programs do not support or if the exponent file is too small, and ``ValueError`` for a prior
    with columns of more elements than a word counts.
    """

    def __init__(
        self, accelerator: Accelerator, layout: WeightLayout, batch: int, run: ResidentRun, *,
        kept: Kept | None = None, trace: bool = False,
    ) -> None:  # fmt: skip
        """Compile the programs of a ``run`` for the columns ``kept`` of each bond of ``layout``.

        If ``kept`` is None, all columns are kept.
        """
        network = layout.network
        if kept is not None:
            network = network.with_ranks(layout.ranks(kept))
        super().__init__(accelerator, network, batch, plan=IN_ROWS[run.plan], trace=trace)
        self.layout = layout
        self.memory = ChipMemory.of(self.step, layout, kept)
        self._require_memory(self.memory.size)
        self.executed: list[Executed] = []
        """Programs in the order of their runs, since a caller last emptied the list."""
        if not hasattr(accelerator, "repeat"):
            raise AcceleratorError(
                "this back end does not repeat programs; use --backend golden, or exponents=0"
            )
        if run.occupied:
            self.count_as(run.occupied)
        self._file = cast(FileAccelerator, accelerator)
        self._run, self._data, self._pulled = run, run.data, run.rule.pulled
        self.resident: Resident = resident_step(
            self.memory, run.ranges, run.seed, run.rule,
            data=run.data, loss=run.loss, occupied=self._occupied,
        )  # fmt: skip
        self._samples = samples_program(self.memory, run.data) if run.data else None
        """Program that fetches the samples of the first step."""
        self.evaluation: Program | None = None
        """Program that classifies a batch of the test set."""
        if run.test:
            self.evaluation = resident_evaluation(self.memory, self.resident, run.test, run.loss)
        if self._pulled:  # check costs now: ``ValueError`` for a cost that a word cannot hold
            every = [np.arange(bond.left.columns) for bond in layout.bonds]
            sums = np.zeros(layout.columns, np.int64)
            self.memory.prior_rows.words(sums, no_pulls(layout), every)
        self._counted = [t.name for t in self.step.tensors if t.counted]
        self.last_run: Run | None = None
        """Run of the last ``run_steps`` or ``attend_steps``."""
        self.primed = run.data is None
        """Whether the samples of the next step are in memory; always true if the host writes
        them."""

    @property
    def loss_unit(self) -> float:
        """Loss that one unit of ``LossResult.total`` stands for."""
        return UNITS[self._run.loss]

    def put(self, state: ChipState, model: QuantisedModel) -> None:
        """Write the whole state, and the images of its factors."""
        arrays = state.to_arrays()
        # Rows of ``trainwright.onchip`` have LANES words, rows in memory the accelerator's lanes.
        for name, words in ((STATE, arrays["state"]), (FACTORS, arrays["factors"])):
            self._write(name, words.astype(np.int64).reshape(-1, self.memory.layout.lanes))
        for name, words in self.memory.constants().items():
            self._write(name, words)
        for program in self.step.programs.values():
            self._put_images(program, model)
        for part in self.layout.parts:
            if part.index < 0:
                values = arrays["factors"].ravel()[part.places].astype(np.int64)
                self._put(part.name, torch.from_numpy(values))

    def _write(self, name: str, words: Words) -> None:
        buffer = self.memory.buffers[name]
        self.accelerator.write(buffer.address, buffer.pack(torch.from_numpy(np.asarray(words))))

    def factors(self) -> Words:
        """Read factors and biases in the rows of the layout, int64 (rows, LANES)."""
        layout = self.memory.layout
        result = np.zeros((layout.rows, layout.lanes), np.int64)
        for part in layout.parts:
            name, first = self.memory.place_of(part)
            blocks = part.blocks if name == FACTORS else len(self.memory.live(part).left)
            rows = self.rows(name)[first : first + blocks * (part.rows // part.blocks)]
            result[part.row : part.row + len(rows)] = rows
        return result.reshape(-1, LANES)

    def rows(self, name: str) -> Words:
        """Read a buffer, such as ``STATE``, int64 (rows, lanes), as it is in memory."""
        buffer = self.memory.everything[name]
        data = self.accelerator.read(buffer.address, buffer.size)
        return data.view(buffer.dtype).reshape(-1, self.memory.layout.lanes).astype(np.int64)

    def begin(self, scales: Scales, state: ChipState, step: int) -> None:
        """Write programs, schedule and exponents for a start at ``step``, and fetch its samples.

        Exponents come from ``scales``; exponents of moments, and the prior, from ``state``.
        """
        self._write_programs()
        if self._data:
            # Write constants, and rows of padding, which records lack.
            self._put_inputs(torch.zeros(self.step.batch, self.network.input_size), None)
        self.prime(step)
        self._write(SCHEDULE, self._schedule(step))
        if self._pulled:
            sums = sums_of_squares(self.layout, state.weights)
            self._write(PRIOR, self.memory.prior_rows.words(sums, state.pulls, state.kept))
        parts = self.layout.parts
        given = self._given_exponents() | {part.name: part.read_exponent for part in parts}
        for program in self.step.programs.values():
            given |= program.constants
        given |= self.resident.slots.fixed
        for name, upper in zip(self.network.heads, self.step.uppers, strict=True):
            labels = self.step.batch * self.network.rows_of(name)
            given[upper] = gradient_exponent(self._run.loss, labels)
        moments = zip(parts, state.exponents.tolist(), strict=True)
        given |= {moment_name(part.name): exponent for part, exponent in moments}
        given |= scales.exponents
        self._set(given)

    def prime(self, step: int) -> None:
        """Make the accelerator fetch the samples of ``step``.

        From then on each step fetches the samples of the next step while it computes.
        """
        if self._data:
            order = order_at(self._data.total, self.step.batch, self._run.seed, step)
            self.accelerator.order = order
            samples = self.programs["samples"]
            self._repeat(samples.program, 1, address=samples.address, step=step)
        self.primed = True

    def run_forward(self, given: ForwardOperands) -> ForwardResult:
        """Run a forward pass as ``Driver`` does, which overwrites the inputs of the next step."""
        self.primed = self._data is None
        return super().run_forward(given)

    @cached_property
    def programs(self) -> dict[str, PlacedProgram]:
        """Programs by name, in the order in memory: step, evaluation, and fetching of samples."""
        named = {
            "step": self.resident.program, "evaluation": self.evaluation, "samples": self._samples
        }  # fmt: skip
        placed, address = dict[str, PlacedProgram](), self.memory.size
        for name, program in named.items():
            if program:
                placed[name] = PlacedProgram(address, program)
                address = placed[name].stop
        return placed

    @property
    def bytes_needed(self) -> int:
        """Bytes of external memory without the data sets."""
        return [*self.programs.values()][-1].stop

    def _write_programs(self) -> None:
        """Write the programs; raise ``AcceleratorError`` where the memory is too small."""
        encoded = np.frombuffer(self._encoded, np.uint8)
        needed = self.bytes_needed
        if self._data and needed > self._data.address:
            raise _too_big(self._data, self.accelerator, needed)
        self._require_memory(needed, "a resident step")
        self.accelerator.write(self.memory.size, encoded)

    def _set(self, given: dict[str, int]) -> None:
        values = list(self._file.exponents)
        for name, slot in self.resident.slots.numbers.items():
            values[slot] = given.get(name, 0) if slot else 0
        with self._named():
            self._file.exponents = values

    @cached_property
    def _encoded(self) -> bytes:
        return b"".join(encode_descriptors(placed.program) for placed in self.programs.values())

    def _schedule(self, step: int) -> Words:
        """Return the rows of the schedule at a step, with the steps between cuts of columns."""
        rule = self._run.rule
        interval = rule.cut_rule.interval if rule.cut_rule else 1
        return schedule_words(rule.table, step, interval, self.memory.layout.lanes)

    @property
    def identity(self) -> str:
        """Digest of programs and schedule, which is equal for equal runs."""
        # This text is part of the cards on boards: keep its first word, or their runs cannot go on.
        rule = self._run.rule.cut_rule
        cuts = f"Looks(interval={rule.interval}, distance={rule.distance})" if rule else "None"
        return identity(self._encoded, self._schedule(0).tobytes(), cuts)

    def run_steps(self, times: int, *, step: int) -> LossResult:
        """Run ``times`` whole steps from step number ``step`` on; return their summed loss.

        Raises ``ProgramError`` for 0 times, and for exponents too far apart for shifts.
        """
        if not self.primed:
            self.prime(step)
        self.last_run = self._repeat(
            self.resident.program, times, address=self.memory.size, step=step, trace=self.trace
        )
        self.executed = [Executed("resident", self.resident.program, self.last_run)]
        return self.loss_of(self.last_run)

    def _repeat(self, program: Program, times: int, **options: Any) -> Run:
        with self._named():
            return self._file.repeat(program, times, **options)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name tensors in place of slots in an error of the exponent file."""
        try:
            yield
        except ProgramError as error:
            raise ProgramError(self.resident.slots.named(str(error))) from None

    def attend_steps(self, times: int, *, step: int) -> LossResult | None:
        """Wait for steps that another host has started; return the result of ``run_steps``.

        Returns None if the accelerator neither computes these steps nor has just done them. The
        caller must know that the program is the same.
        """
        accelerator = cast(UnattendedAccelerator, self._file)
        run = accelerator.attend(
            self.resident.program, times, address=self.memory.size, step=step
        )  # fmt: skip
        if run is None:
            return None
        self.last_run, self.primed = run, True
        return self.loss_of(run)

    def loss_of(self, run: Run) -> LossResult:
        """Return the summed loss of a run."""
        slot = self.resident.loss_slot
        return LossResult(int(run.sums[slot]), int(run.saturations[slot]))

    def evaluate(self) -> LossResult:
        """Classify the test set with the present weights: loss and correct samples.

        Samples without a label do not count. Training is not disturbed: the samples of the next
        step are fetched again, and the step computes all other tensors that the evaluation
        overwrote.
        """
        test, program = self._run.test, self.evaluation
        assert test and program
        self.primed = self._data is None
        self.accelerator.order = order_at(test.total, self.step.batch, self._run.seed, 0)
        run = self._repeat(
            program, test.total // self.step.batch, address=self.programs["evaluation"].address,
            step=0, trace=self.trace,
        )  # fmt: skip
        self.executed.append(Executed("evaluation", program, run))
        return self.loss_of(run)

    def pulls(self) -> Pulls:
        """Read the prior's coefficients after the last step; all 0 without a prior."""
        result = no_pulls(self.layout)
        if self._pulled:
            result.coefficients[:] = self._of_columns(COEFFICIENT)
            result.exponents[:] = self._of_columns(EXPONENT)
        return result

    def kept(self) -> list[Words]:
        """Read the columns of each bond that the accelerator's cuts have left."""
        return self.layout.columns_marked(self._of_columns(KEPT) == 0)

    def _of_columns(self, field: str) -> Words:
        """Read a field of the side rows, a number for each column."""
        return self.memory.prior_rows.values(self.rows(PRIOR), field)

    @property
    def saturations(self) -> int:
        """Values of the step's tensors that saturated in the last ``run_steps``."""
        assert self.last_run is not None
        counts = self.last_run.saturations.tolist()
        return sum(count for t, count in zip(self.step.tensors, counts, strict=False) if t.counted)

    def observed(self, before: Mapping[str, int], times: int) -> dict[str, TensorStatistics]:
        """Return statistics of the last ``run_steps`` for finding lost tensors.

        The accelerator clears sums after each step, so sums are not known. Saturations are the mean
        of the ``times`` steps. If an exponent fell from ``before`` in every step, which for long
        only happens to a tensor of zeros, the sum is given as 0, else as full scale.
        """
        assert self.last_run is not None
        after = self.exponents()
        counts = self.last_run.saturations.tolist()
        return {
            t.name: TensorStatistics(
                kind=t.kind,
                format=t.format,
                exponent=after[t.name],
                floor=0,
                count=self._occupied(t),
                total=self._occupied(t) << (t.format.width - 1)
                if before.get(t.name, 0) - after[t.name] < times
                else 0,
                saturations=saturated // times,
                coarsest=self.step.forward.coarsest.get(t.name),
            )
            for t, saturated in zip(self.step.tensors, counts, strict=False)
            if t.counted and t.name in after
        }

    def exponents(self) -> dict[str, int]:
        """Read the exponents of the tensors, as ``Scales`` has them after the last step."""
        values: Sequence[int] = self._file.exponents
        return {name: values[slot] for name, slot in self.slots.items()}

    @property
    def slots(self) -> dict[str, int]:
        """Slots of the tensors' exponents."""
        return {name: self.resident.slots[name] for name in self._counted}

    def moments(self) -> list[int]:
        """Read the exponents of each part's moments."""
        values: Sequence[int] = self._file.exponents
        slots = self.resident.slots
        return [values[slots[moment_name(part.name)]] for part in self.layout.parts]
