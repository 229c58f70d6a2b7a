"""Runs of whole steps by one resident program: the host starts them and reads what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator
from trainwright.compiler import CompiledStep, CompileError
from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.memory import STATE
from trainwright.compiler.chip.samples import DataSet as Samples
from trainwright.data import DataSet, Split
from trainwright.driver.resident import ResidentDriver, place_data
from trainwright.fixed.scale import PRESETS, Scales
from trainwright.onchip.prior import cut_distance
from trainwright.onchip.rates import RateTable
from trainwright.onchip.samples import filled_up, records, stored_pixels
from trainwright.onchip.schedule_pass import schedule_words
from trainwright.train.chip_update import ChipModel
from trainwright.train.engine import require_programs
from trainwright.train.settings import TrainSettings


@dataclass(frozen=True)
class Steps:
    """What came of several steps together."""

    loss: float
    """Mean over all samples."""
    correct: int
    saturations: int
    cycles: int
    seconds: float


def stored_records(
    model: ChipModel, data: DataSet, pixels: int, split: Split | None = None
) -> npt.NDArray[np.uint8]:
    """The samples of a split, the training samples where it is None, as the accelerator stores
    them, (samples, bytes)."""
    split = split or data.train
    images, network = split.images, model.network
    stored = stored_pixels(images, data.full_scale, pixels)
    height, width = network.padded
    edges = ((0, 0), (0, height - images.shape[1]), (0, width - images.shape[2]))
    whole = np.pad(stored, edges).reshape(len(images), -1)
    return records(whole, split.labels, pixels, network.classes)


class ResidentEngine:
    """Trains a model by one program; its state is the accelerator's after each run.

    Raises ``ValueError`` for what the programs do not compute and for a schedule that the chip does
    not count, ``AcceleratorError`` for a data set that its memory does not hold.
    """

    def __init__(
        self, accelerator: Accelerator, model: ChipModel, settings: TrainSettings, table: RateTable,
        data: DataSet, test: Split | None = None,
    ) -> None:  # fmt: skip
        """The ``test`` split is placed beside the training samples where there is room for it: then
        ``evaluates``."""
        chip = settings.chip
        assert chip is not None
        require_programs(settings)
        schedule_words(table, 0, settings.prior.interval if settings.prior else 1)
        self._model, self._settings = model, settings
        stored = stored_records(model, data, chip.pixels)
        self._accelerator, self._table = accelerator, table
        self._data = place_data(accelerator, stored, settings.batch, settings.seed, chip.pixels)
        self._test = None if test is None else self._place(model, data, test, chip.pixels)
        self._chip = chip
        self._looks: Looks | None = None
        self._first: CompiledStep | None = None
        if chip.cut_programs == "kept":
            prior = settings.prior
            self._looks = prior and Looks(prior.interval, cut_distance(prior.threshold))
            self._first = self._open(model.state.compiled).step
        self.reopen()

    def _place(self, model: ChipModel, data: DataSet, test: Split, pixels: int) -> Samples | None:
        """The test set before the training samples; None where it is more than what is left."""
        settings, batch = self._settings, self._settings.batch
        stored = stored_records(model, data, pixels, test)
        stored = filled_up(stored, batch)
        if stored.size > self._data.address:
            return None
        return place_data(
            self._accelerator, stored, batch, settings.seed, pixels, before=self._data.address
        )

    @property
    def evaluates(self) -> bool:
        """Whether the test set is in the accelerator's memory."""
        return self._test is not None

    def evaluate(self, scales: Scales, step: int) -> tuple[float, int]:
        """Summed loss of the test set after ``step`` steps, and samples that are right."""
        self.begin(scales, step)
        done = self.driver.evaluate()
        return done.total * self.driver.loss_unit, done.correct

    def reopen(self) -> None:
        """A driver for the columns that are left, or for those that programs have, where these
        cannot be compiled for fewer; it is given the state again."""
        state = self._model.state
        self._begun = -1
        try:
            self.driver = self._open(state.kept)
        except CompileError:
            if self._first is None:
                raise
            self.driver = self._open(state.compiled)
        else:
            state.compile_for(state.kept)

    def _open(self, columns: Sequence[npt.NDArray[np.int64]]) -> ResidentDriver:
        """A driver of programs that have these columns of each bond; the test set goes where there
        is no room beside them."""
        driver = self._opened(columns)
        if self._test and driver.bytes_needed > self._test.address:
            self._test = None
            return self._opened(columns)
        return driver

    def _opened(self, columns: Sequence[npt.NDArray[np.int64]]) -> ResidentDriver:
        settings = self._settings
        return ResidentDriver(
            self._accelerator, self._model.state.layout, settings.batch, self._table,
            kept=tuple(tuple(own.tolist()) for own in columns), seed=settings.seed,
            ranges=PRESETS[settings.scale_range] if settings.scales == "automatic" else None,
            pulled=settings.prior is not None, looks=self._looks, data=self._data,
            first=self._first, loss=self._chip.loss, test=self._test,
            optimiser=self._chip.optimiser,
        )  # fmt: skip

    def begin(self, scales: Scales, step: int) -> None:
        """Write state, program and exponents, where the accelerator is not at ``step``."""
        if self._begun != step:
            self.driver.put(self._model.state, self._model.operands())
            self.driver.begin(scales, self._model.state, step)
            self._begun = step
        elif not self.driver.primed:  # other inputs were classified meanwhile
            self.driver.prime(step)

    def run(self, count: int, scales: Scales) -> Steps:
        """``count`` steps; at the end the model's state and ``scales`` are the accelerator's."""
        driver, state = self.driver, self._model.state
        step, self._begun = self._begun, -1  # what is abandoned begins again
        done = driver.run_steps(count, step=step)
        run, samples = driver.last_run, count * self._settings.batch
        assert run is not None
        state.take(driver.rows(STATE), driver.factors(), np.array(driver.moments(), np.int64))
        state.pulls = driver.pulls()
        if self._looks:
            state.kept = driver.kept()
        scales.exponents |= driver.exponents()
        self._begun = step + count
        return Steps(
            loss=done.total * driver.loss_unit / samples,
            correct=done.correct,
            saturations=driver.saturations,
            cycles=run.counters.cycles,
            seconds=run.seconds,
        )
