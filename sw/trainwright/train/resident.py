"""Runs of whole steps by one resident program: the host starts them and reads what came of it."""

from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator
from trainwright.compiler.chip.memory import STATE
from trainwright.data import DataSet
from trainwright.driver.resident import ResidentDriver, place_data
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
        stored = stored_records(model, data, chip.pixels)
        self._accelerator, self._table = accelerator, table
        self._data = place_data(accelerator, stored, settings.batch, settings.seed, chip.pixels)
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

    def begin(self, scales: Scales, step: int) -> None:
        """Write state, program and exponents, where the accelerator is not at ``step``."""
        if self._begun != step:
            self.driver.put(self._model.state, self._model.quantised())
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
        scales.exponents |= driver.exponents()
        self._begun = step + count
        return Steps(
            loss=done.total * log(2) / (1 << FRACTION) / samples,
            correct=done.correct,
            saturations=driver.saturations,
            cycles=run.counters.cycles,
            seconds=run.seconds,
        )
