"""Runs of whole steps by one resident program: the host starts them and reads what came of it."""

import json
from dataclasses import dataclass, replace
from math import log
from typing import cast

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, UnattendedAccelerator
from trainwright.compiler.chip.memory import STATE
from trainwright.data import DataSet
from trainwright.driver.card import Card, end_of_start, identity, read_card, write_card
from trainwright.driver.chip import LossResult
from trainwright.driver.resident import ResidentDriver, lay_out_data
from trainwright.fixed.scale import PRESETS, Scales
from trainwright.onchip.rates import RateTable
from trainwright.onchip.samples import records, stored_pixels
from trainwright.onchip.schedule_pass import schedule_words
from trainwright.onchip.tables import FRACTION
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


def stored_records(model: ChipModel, data: DataSet, pixels: int) -> npt.NDArray[np.uint8]:
    """The training samples as the accelerator stores them, (samples, bytes)."""
    images, network = data.train.images, model.network
    stored = stored_pixels(images, data.full_scale, pixels)
    height, width = network.padded
    edges = ((0, 0), (0, height - images.shape[1]), (0, width - images.shape[2]))
    whole = np.pad(stored, edges).reshape(len(images), -1)
    return records(whole, data.train.labels, pixels, network.classes)


class ResidentEngine:
    """Trains a model by one program; its state is the accelerator's after each run.

    Raises ``ValueError`` for what the programs do not compute and for a schedule that the chip does
    not count, ``AcceleratorError`` for a data set that its memory does not hold.
    """

    def __init__(
        self, accelerator: Accelerator, model: ChipModel, settings: TrainSettings, table: RateTable,
        data: DataSet,
    ) -> None:  # fmt: skip
        chip = settings.chip
        assert chip is not None
        require_programs(settings)
        schedule_words(table, 0)
        self._model, self._settings = model, settings
        self._records = stored_records(model, data, chip.pixels)
        self._accelerator, self._table = accelerator, table
        self._data = lay_out_data(
            accelerator, self._records, settings.batch, settings.seed, chip.pixels
        )
        self._epoch = self._data.length // settings.batch
        self._total = settings.total_steps(self._data.total)
        self._unattended = (
            cast(UnattendedAccelerator, accelerator) if hasattr(accelerator, "attend") else None
        )
        self._resets = -1  # of the accelerator, when it was given the data set
        self._attended: LossResult | None = None
        self.reopen()

    def reopen(self) -> None:
        """A driver for the columns that are left; it is given the state again."""
        state, settings = self._model.state, self._settings
        self._begun = -1
        self.driver = ResidentDriver(
            self._accelerator, state.layout, settings.batch, self._table, seed=settings.seed,
            kept=tuple(tuple(columns.tolist()) for columns in state.kept),
            ranges=PRESETS[settings.scale_range] if settings.scales == "automatic" else None,
            pulled=settings.prior is not None, data=self._data,
        )  # fmt: skip

    @property
    def unattended(self) -> bool:
        """Whether a run goes on where this process ends."""
        return self._unattended is not None

    def end(self, step: int) -> int:
        """Where a run from ``step`` ends."""
        prior = self._settings.prior
        return end_of_start(step, self._epoch, self._total, prior.interval if prior else 0)

    @property
    def _card(self) -> Card:
        driver, settings = self.driver, self._settings
        chosen = json.dumps(settings.to_dict(), sort_keys=True)
        return Card(
            data=identity(self._records.tobytes(), str(self._data)),
            run=identity(driver.identity, chosen),
            network=driver.layout.network.name,
            ranks=self._model.network.ranks,
            batch=settings.batch,
            epoch=self._epoch,
            total=self._total,
            interval=settings.prior.interval if settings.prior else 0,
            address=driver.memory.size,
            loss_slot=driver.resident.loss_slot,
            exponents=driver.slots,
        )

    def attend(self, step: int) -> bool:
        """Whether the accelerator is at the steps from ``step`` on, by a host before this one, or
        has done them; ``run`` then awaits their end."""
        accelerator, self._attended = self._unattended, None
        if accelerator is None or self._resets >= 0:
            return False
        there, mine = read_card(accelerator), self._card
        if there is None or there.data != mine.data or not accelerator.kept:
            return False
        self._resets = accelerator.resets
        if there.run != mine.run:
            return False
        self._attended = self.driver.attend_steps(self.end(step) - step, step=step)
        self._begun = -1 if self._attended is None else step
        return self._begun == step

    def begin(self, scales: Scales, step: int) -> None:
        """Write what the accelerator has not yet: the data set, and state, program and exponents
        where it is not at ``step``."""
        accelerator = self._unattended
        resets = accelerator.resets if accelerator else 0
        if self._begun == step and self._resets == resets:
            return
        card = self._card
        if self._resets != resets:
            if accelerator:
                write_card(accelerator, None)
            self._accelerator.write(self._data.address, self._records)
            self._resets = resets
        if accelerator:
            write_card(accelerator, replace(card, run=""))
        self.driver.put(self._model.state, self._model.quantised())
        self.driver.begin(scales, self._model.state, step)
        if accelerator:
            write_card(accelerator, card)
        self._begun = step

    def run(self, count: int, scales: Scales) -> Steps:
        """``count`` steps; at the end the model's state and ``scales`` are the accelerator's."""
        driver, state = self.driver, self._model.state
        step, self._begun = self._begun, -1  # what is abandoned begins again
        done, self._attended = self._attended, None
        if done is None:
            done = driver.run_steps(count, step=step)
        run, samples = driver.last_run, count * self._settings.batch
        assert run is not None
        state.take(driver.rows(STATE), driver.factors(), np.array(driver.moments(), np.int64))
        state.pulls = driver.pulls()
        scales.exponents |= driver.exponents()
        self._begun = step + count
        return Steps(
            loss=done.total * log(2) / (1 << FRACTION) / samples,
            correct=done.correct,
            saturations=driver.saturations,
            cycles=run.counters.cycles,
            seconds=run.seconds,
        )
