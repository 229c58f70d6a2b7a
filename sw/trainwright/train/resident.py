"""Training by one resident program: the host starts many steps and reads their result."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, UnattendedAccelerator
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.chip.cuts import CutRule
from trainwright.compiler.chip.memory import STATE
from trainwright.compiler.chip.samples import SampleRecords
from trainwright.data import DataSet, Split
from trainwright.driver.card import Card, end_of_start, identity, read_card, write_card
from trainwright.driver.chip import LossResult
from trainwright.driver.resident import ResidentDriver, lay_out_data
from trainwright.fixed.scale import PRESETS, Scales
from trainwright.onchip.prior import cut_distance
from trainwright.onchip.rates import RateTable
from trainwright.onchip.samples import filled_up, records, stored_pixels
from trainwright.onchip.schedule_pass import schedule_words
from trainwright.train.chip_update import ChipModel
from trainwright.train.engine import require_programs
from trainwright.train.settings import TrainSettings


@dataclass(frozen=True)
class ResidentSteps:
    """Outcome of several steps together."""

    loss: float
    """Mean over all samples."""
    correct: int
    saturations: int
    cycles: int
    seconds: float


def stored_records(
    model: ChipModel, data: DataSet, pixels: int, split: Split | None = None
) -> npt.NDArray[np.uint8]:
    """Return the samples of a split as the accelerator stores them, uint8 (samples, bytes).

    None stands for the training samples.
    """
    split = split or data.train
    images, network = split.images, model.network
    stored = stored_pixels(images, data.full_scale, pixels)
    # Images are padded before they are stored: the chip's address counter then reads whole rows of
    # the network's input.
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
        data: DataSet, test: Split | None = None, plan: str = AUTO,
    ) -> None:  # fmt: skip
        """Lay out data and programs; ``test`` is placed before the training samples if it fits.

        ``evaluates`` tells whether it did.
        """
        chip = settings.chip
        assert chip is not None
        require_programs(settings)
        schedule_words(table, 0, settings.prior.interval if settings.prior else 1)
        self._model, self._settings = model, settings
        self._records = stored_records(model, data, chip.pixels)
        self._accelerator, self._table, self._plan = accelerator, table, plan
        self._data = lay_out_data(
            accelerator, self._records, settings.batch, settings.seed, chip.pixels
        )
        self._epoch = self._data.length // settings.batch
        self._total = settings.total_steps(self._data.total)
        self._unattended = (
            cast(UnattendedAccelerator, accelerator) if hasattr(accelerator, "attend") else None
        )
        # -1 is no count of resets: the first start always writes the data.
        self._resets = -1  # of the accelerator, when it was given the data sets
        self._attended: LossResult | None = None
        self._test_records = np.zeros((0, 0), np.uint8)
        self._test = None if test is None else self._lay_out(model, data, test, chip.pixels)
        self._chip = chip
        self._cut_rule: CutRule | None = None
        if chip.cut_programs == "kept":
            prior = settings.prior
            self._cut_rule = prior and CutRule(prior.interval, cut_distance(prior.threshold))
        self.reopen()

    def _lay_out(
        self, model: ChipModel, data: DataSet, test: Split, pixels: int
    ) -> SampleRecords | None:
        """Place the test set before the training samples.

        None if it is larger than the room there.
        """
        settings, batch = self._settings, self._settings.batch
        stored = stored_records(model, data, pixels, test)
        # Programs classify whole batches; the fillers' labels match no class, so they count
        # nothing.
        stored = filled_up(stored, batch)
        if stored.size > self._data.address:
            return None
        self._test_records = stored
        return lay_out_data(
            self._accelerator, stored, batch, settings.seed, pixels, before=self._data.address
        )

    @property
    def evaluates(self) -> bool:
        """Whether the test set is in the accelerator's memory."""
        return self._test is not None

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
        self.driver = self._open(self._model.state.compiled)

    def _open(self, columns: Sequence[npt.NDArray[np.int64]]) -> ResidentDriver:
        """Open a driver whose programs have these columns of each bond.

        The test set gives way where programs and test set together do not fit the memory.
        """
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
            pulled=settings.prior is not None, cuts=self._cut_rule, data=self._data,
            loss=self._chip.loss, test=self._test, optimiser=self._chip.optimiser,
            plan=self._plan,
        )  # fmt: skip

    @property
    def unattended(self) -> bool:
        """Whether a run goes on where this process ends."""
        return self._unattended is not None

    @property
    def _interval(self) -> int:
        """Steps between two looks of the host at the ranks; 0 where it does not look."""
        prior = self._settings.prior
        return prior.interval if prior and not self._cut_rule else 0

    def end(self, step: int) -> int:
        """Return the step at which a run from ``step`` ends."""
        return end_of_start(step, self._epoch, self._total, self._interval)

    @property
    def _sets(self) -> list[tuple[SampleRecords, npt.NDArray[np.uint8]]]:
        """Return the data sets in the accelerator's memory with their records."""
        test = [(self._test, self._test_records)] if self._test else []
        return [(self._data, self._records), *test]

    @property
    def _card(self) -> Card:
        driver, settings = self.driver, self._settings
        chosen = json.dumps(settings.to_dict(), sort_keys=True)
        return Card(
            # The card names data and run apart: another run on the same data leaves the samples,
            # which take the longest to write, where they are.
            data=identity(
                *(item for where, whole in self._sets for item in (whole.tobytes(), str(where)))
            ),
            run=identity(driver.identity, chosen),
            network=driver.layout.network.name,
            ranks=self._model.network.ranks,
            batch=settings.batch,
            epoch=self._epoch,
            total=self._total,
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

    def run(self, count: int, scales: Scales) -> ResidentSteps:
        """Run ``count`` steps.

        Copy the accelerator's state and exponents to model and ``scales``.
        """
        driver, state = self.driver, self._model.state
        step, self._begun = self._begun, -1  # what is abandoned begins again
        done, self._attended = self._attended, None
        if done is None:
            done = driver.run_steps(count, step=step)
        run, samples = driver.last_run, count * self._settings.batch
        assert run is not None
        state.take(driver.rows(STATE), driver.factors(), np.array(driver.moments(), np.int64))
        state.pulls = driver.pulls()
        if self._cut_rule:
            state.kept = driver.kept()
        scales.exponents |= driver.exponents()
        self._begun = step + count
        return ResidentSteps(
            loss=done.total * driver.loss_unit / samples,
            correct=done.correct,
            saturations=driver.saturations,
            cycles=run.counters.cycles,
            seconds=run.seconds,
        )
