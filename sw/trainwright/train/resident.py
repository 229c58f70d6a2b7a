"""Training by one resident program: the host starts many steps and reads their result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, UnattendedAccelerator
from trainwright.compiler import CompiledStep, compile_step
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.base.names import SAMPLES_OUTSIDE
from trainwright.compiler.chip.memory import STATE, Words, classes_in_rows
from trainwright.compiler.chip.prior import CutRule
from trainwright.compiler.chip.samples import PIXELS, SampleRecords
from trainwright.compiler.chip.update import UpdateRule
from trainwright.data import DataSet, Split
from trainwright.driver import persist
from trainwright.driver.card import Card, end_of_start, identity, read_card, write_card
from trainwright.driver.records import filled_records, sample_records
from trainwright.driver.resident import LossResult, ResidentDriver, ResidentRun, lay_out_data
from trainwright.driver.tokens import exponent_of_inputs
from trainwright.fixed.scale import Scales
from trainwright.onchip.choices import no_label
from trainwright.onchip.prior import Pulls, cut_distance
from trainwright.onchip.samples import label_words, records
from trainwright.onchip.schedule import schedule_words
from trainwright.train.batches import input_quantiser, label_tensor, stored_images
from trainwright.train.chip_update import ChipModel, ChipUpdate, loss_name
from trainwright.train.engine import StepResult, TrainingTask
from trainwright.train.settings import TrainSettings
from trainwright.train.state import scale_ranges


def require_programs(settings: TrainSettings) -> None:
    """Raise ``ValueError`` for settings that an accelerator that trains alone cannot follow."""
    # Such a program sets streams of random bits for masks and update alone: forward and backward
    # pass would draw the same bits in every step.
    if settings.rounding != "nearest":
        raise ValueError(
            f"an accelerator that trains alone has rounding mode nearest, not {settings.rounding}: "
            "leave loss and update to the host by --accelerator exponents=0"
        )


@dataclass(frozen=True)
class _Read:
    """State of an accelerator after its last step."""

    words: Words
    factors: Words
    moments: list[int]
    """Exponents of the parts' moments."""
    pulls: Pulls
    kept: list[Words] | None
    """Columns of each bond that are left; None where the host cuts."""


def stored_records(
    model: ChipModel, data: DataSet, pixels: int, step: CompiledStep, split: Split | None = None
) -> npt.NDArray[np.uint8]:
    """Return the samples of a split as the accelerator stores them, uint8 (samples, bytes).

    ``step`` has the programs that read them; None stands for the training samples.
    """
    split = split or data.train
    images, network, exponent = split.images, model.network, exponent_of_inputs(step)
    if SAMPLES_OUTSIDE not in step.buffers:
        inputs = input_quantiser(network, data.full_scale, exponent, pixels)(images)
        labels = label_words(label_tensor(split.labels, network.labels).numpy())
        return sample_records(step, inputs, labels)
    stored = stored_images(network, images, data.full_scale, exponent, pixels)
    # Images are padded before they are stored: the chip's address counter then reads whole rows of
    # the network's input.
    height, width = network.padded
    edges = ((0, 0), (0, height - images.shape[1]), (0, width - images.shape[2]))
    whole = np.pad(stored, edges).reshape(len(images), -1)
    lanes, labels = step.parameters.lanes, label_words(split.labels)
    numbered = classes_in_rows(network, lanes)
    return records(whole, labels, pixels, network.classes, numbered=numbered, beat=lanes)


class ResidentEngine:
    """Implements ``train.engine.StepEngine`` by one program that the accelerator repeats alone.

    A start runs whole epochs, or the steps between two looks at the ranks where a cut is to have
    programs of its own at once.
    """

    def __init__(self, accelerator: Accelerator, *, plan: str = AUTO, trace: bool = False) -> None:
        self._accelerator, self._plan, self._trace = accelerator, plan, trace
        self._unattended = (
            cast(UnattendedAccelerator, accelerator) if hasattr(accelerator, "attend") else None
        )
        self.unattended = self._unattended is not None

    @property
    def driver(self) -> ResidentDriver:
        """See ``StepEngine``."""
        return self._driver

    def open(self, task: TrainingTask) -> None:
        """Lay out data and programs; the test split comes before the training samples if it fits.

        ``evaluates`` tells whether it did.
        """
        model, update, settings = task.state.model, task.update, task.state.settings
        chip = settings.chip
        assert isinstance(model, ChipModel) and isinstance(update, ChipUpdate) and chip is not None
        require_programs(settings)
        schedule_words(update.rates, 0, settings.prior.interval if settings.prior else 1)
        self._task, self._model, self._update, self._settings = task, model, update, settings
        self._epoch = len(task.data.train) // settings.batch
        self._attended: LossResult | None = None
        self._step: CompiledStep | None = None
        self._chip = chip
        self._cut_rule: CutRule | None = None
        if chip.cut_programs == "kept":
            prior = settings.prior
            self._cut_rule = prior and CutRule(prior.interval, cut_distance(prior.threshold))
        self.reopen()

    def _lay_out(self, step: CompiledStep) -> None:
        """Place records of training samples and test set, as the programs of ``step`` read them.

        The test set comes before the training samples, unless it is larger than the room there.
        """
        task, model, settings = self._task, self._model, self._settings
        batch, pixels, seed = settings.batch, self._chip.pixels, settings.seed
        images = SAMPLES_OUTSIDE in step.buffers
        self._records = stored_records(model, task.data, pixels, step)
        width = pixels if images else PIXELS
        self._data = lay_out_data(self._accelerator, self._records, batch, seed, width)
        # -1 is no count of resets: the next start writes the data.
        self._resets = -1  # count of the accelerator's resets when the data sets were written
        self._test_records = np.zeros((0, 0), np.uint8)
        self._test: SampleRecords | None = None
        # The chip counts correct samples, of which a regression has none.
        if model.network.is_regression:
            return
        # Programs classify whole batches: blank records fill up the last one, and count nothing.
        stored = stored_records(model, task.data, pixels, step, task.test)
        stored = filled_records(step, stored)
        if stored.size <= self._data.address:
            self._test_records = stored
            self._test = lay_out_data(
                self._accelerator, stored, batch, seed, width, before=self._data.address
            )

    @property
    def evaluates(self) -> bool:
        """Whether the test set is in the accelerator's memory."""
        return self._test is not None

    @property
    def data_sets(self) -> list[SampleRecords]:
        """Places of the training samples and of the test set, if there is one."""
        return [where for where, _ in self._sets]

    def evaluate(self, scales: Scales, step: int) -> tuple[float, int]:
        """Return the summed loss of the test set after ``step`` steps, and its correct samples."""
        self._put(scales, step)
        done = self.driver.evaluate()
        return done.total * self.driver.loss_unit, done.correct

    def reopen(self) -> None:
        """Open a driver for the columns of the model's programs.

        The next start writes the state.
        """
        self._begun = -1
        step = compile_step(
            self._model.compiled, self._settings.batch, self._accelerator.parameters,
            plan=IN_ROWS[self._plan],
        )  # fmt: skip
        # Programs of other ranks may read the samples in other layouts; images have one.
        if self._step is None or SAMPLES_OUTSIDE not in step.buffers:
            self._lay_out(step)
        self._step = step
        self._driver = self._open(self._model.state.compiled)

    def _open(self, columns: Sequence[npt.NDArray[np.int64]]) -> ResidentDriver:
        """Open a driver whose programs have these columns of each bond.

        Where programs and test set together do not fit the memory, the test set is left out.
        """
        driver = self._opened(columns)
        if self._test and driver.bytes_needed > self._test.address:
            self._test = None
            return self._opened(columns)
        return driver

    def _opened(self, columns: Sequence[npt.NDArray[np.int64]]) -> ResidentDriver:
        settings, network = self._settings, self._model.network
        rule = UpdateRule(
            self._update.rates, settings.prior is not None, self._cut_rule, self._chip.optimiser
        )
        ranges = scale_ranges(network, settings) if settings.scales == "automatic" else None
        run = ResidentRun(
            rule, settings.seed, ranges, self._data, self._test, self._task.occupied,
            loss_name(network, self._chip), self._plan,
        )  # fmt: skip
        return ResidentDriver(
            self._accelerator, self._model.state.layout, settings.batch, run,
            kept=tuple(tuple(own.tolist()) for own in columns), trace=self._trace,
        )  # fmt: skip

    @property
    def _interval(self) -> int:
        """Steps between two looks of the host at the ranks; 0 where it does not look."""
        prior = self._settings.prior
        return prior.interval if prior and not self._cut_rule else 0

    def end(self, step: int) -> int:
        """Return the step at which a run from ``step`` ends."""
        return end_of_start(step, self._epoch, self._task.total_steps, self._interval)

    @property
    def _sets(self) -> list[tuple[SampleRecords, npt.NDArray[np.uint8]]]:
        """Return the data sets in the accelerator's memory with their records."""
        test = [(self._test, self._test_records)] if self._test else []
        return [(self._data, self._records), *test]

    @property
    def _card(self) -> Card:
        driver, settings = self.driver, self._settings
        network, train = driver.layout.network, self._task.data.train
        labels = network.labels_of(network.main, label_tensor(train.labels, network.labels))
        none = no_label(network.classes)
        chosen = json.dumps(settings.to_dict(), sort_keys=True)
        return Card(
            # The card names data and run apart: another run on the same data leaves the samples,
            # which take the longest to write, where they are.
            data=identity(
                *(item for where, whole in self._sets for item in (whole.tobytes(), str(where)))
            ),
            run=identity(driver.identity, chosen),
            network=network.name,
            ranks=self._model.network.ranks,
            batch=settings.batch,
            labels=int((label_words(labels.numpy()) > none).sum()) / len(train),
            epoch=self._epoch,
            total=self._task.total_steps,
            interval=self._interval,
            address=driver.memory.size,
            loss_slot=driver.resident.loss_slot,
            exponents=driver.slots,
        )

    def attend(self, step: int) -> bool:
        """Return whether the accelerator runs, or ran, the steps from ``step`` for an earlier host.

        ``run`` then waits for the end of those steps.
        """
        accelerator, self._attended = self._unattended, None
        # A count of resets that is known means that this process wrote the data itself.
        if accelerator is None or self._resets >= 0:
            return False
        stored, mine = read_card(accelerator), self._card
        if stored is None or stored.data != mine.data or not accelerator.kept:
            return False
        self._resets = accelerator.resets
        if stored.run != mine.run:
            return False
        self._attended = self.driver.attend_steps(self.end(step) - step, step=step)
        self._begun = -1 if self._attended is None else step
        return self._begun == step

    def begin(self, scales: Scales, step: int) -> None:
        """Bring the accelerator to ``step`` as ``_put`` does, and fetch the step's first samples.

        Samples are fetched again where an evaluation has used the buffers meanwhile.
        """
        self._put(scales, step)
        if not self.driver.primed:
            self.driver.prime(step)

    def _put(self, scales: Scales, step: int) -> None:
        """Write whatever the accelerator lacks at ``step``.

        Data sets after a reset; state, programs and exponents unless the accelerator is at
        ``step``.
        """
        accelerator = self._unattended
        resets = accelerator.resets if accelerator else 0
        if self._begun == step and self._resets == resets:
            return
        card = self._card
        if self._resets != resets:
            # While data is being written the card is void: a host that dies in between must not
            # leave a card that describes half of it.
            if accelerator:
                write_card(accelerator, None)
            for where, whole in self._sets:
                self._accelerator.write(where.address, whole)
            self._resets = resets
        if accelerator:
            # Data is whole, the run is not: a host that looks now may keep the data.
            write_card(accelerator, replace(card, run=""))
        self.driver.put(self._model.state, self._model.operands())
        self.driver.begin(scales, self._model.state, step)
        if accelerator:
            write_card(accelerator, card)
        self._begun = step

    def run(self, count: int, scales: Scales) -> StepResult:
        """Run ``count`` steps, or wait for those that the accelerator is at already.

        A lost board is reset and the steps run again from the saved state, to the same bits. See
        ``StepEngine``.
        """
        return persist(lambda: self._run(count, scales))

    def _run(self, count: int, scales: Scales) -> StepResult:
        driver, task, step = self.driver, self._task, self._task.state.step
        attended = scales.exponents.keys() >= driver.tensors and self.attend(step)
        if not attended:
            task.calibrate(driver, scales)
            self.begin(scales, step)
        task.state.scales = scales.copy()
        # The accelerator outlives this process here: exponents and state have to be on disk before
        # it starts, or a later process could not tell at which step it began.
        if self.unattended and not attended:
            task.save()
        task.begun()
        self._begun = -1  # a run that is interrupted begins again
        done, self._attended = self._attended, None
        if done is None:
            done = driver.run_steps(count, step=step)
        run, before = driver.last_run, dict(scales.exponents)
        labels = sum(task.labels(number) for number in range(step, step + count))
        assert run is not None
        self._read = _Read(
            words=driver.rows(STATE),
            factors=driver.factors(),
            moments=driver.moments(),
            pulls=driver.pulls(),
            kept=driver.kept() if self._cut_rule else None,
        )
        scales.exponents |= driver.exponents()
        self._begun = step + count
        return StepResult(
            loss=done.total * driver.loss_unit / max(1, labels),
            correct=done.correct,
            cycles=run.counters.cycles,
            seconds=run.seconds,
            saturations=driver.saturations,
            moved=sum(scales.exponents[name] != was for name, was in before.items()),
            observed=driver.observed(before, count),
            words=labels if self._model.network.labels > 1 else 0,
        )

    def take(self) -> tuple[float, float]:
        """See ``StepEngine``."""
        state, read = self._model.state, self._read
        state.take(read.words, read.factors, np.array(read.moments, np.int64))
        state.pulls = read.pulls
        if read.kept is not None:
            state.kept = read.kept
        return self._update.rates_used(self._begun - 1)

    def classify(self, scales: Scales) -> int | None:
        """See ``StepEngine``."""
        if not self.evaluates:
            return None
        return persist(lambda: self.evaluate(scales, self._task.state.step))[1]
