"""Accuracy through the accelerator itself: forward programs over a split."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Counters
from trainwright.data import Split
from trainwright.driver import QuantisedModel
from trainwright.train.batches import InputQuantiser
from trainwright.train.chip_update import ChipModel, operands_of
from trainwright.train.interfaces import StepDriver
from trainwright.train.model import Model
from trainwright.train.state import Scales, copy_scales


@dataclass(frozen=True)
class Evaluation:
    """``predictions`` and ``labels`` int64 (samples,)."""

    predictions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    counters: Counters
    seconds: float
    """Wall time on the accelerator."""

    @property
    def accuracy(self) -> float:
        """Fraction classified right."""
        return float((self.predictions == self.labels).mean())

    def confusion(self, classes: int) -> npt.NDArray[np.int64]:
        """(classes, classes): samples of the row's class that were classified as the column's."""
        matrix = np.zeros((classes, classes), np.int64)
        np.add.at(matrix, (self.labels, self.predictions), 1)
        return matrix


def evaluate(
    driver: StepDriver,
    model: Model | ChipModel | QuantisedModel,
    scales: Scales,
    quantiser: InputQuantiser,
    split: Split,
    batch: int,
    *,
    progress: Callable[[int, int], None] = lambda done, samples: None,
) -> Evaluation:
    """Classify every sample of a split; the last batch is filled up with blank images.

    Neither the model nor the scales change.
    """
    quantised = model if isinstance(model, QuantisedModel) else operands_of(model)
    scales = copy_scales(scales)
    counters, seconds = Counters(), 0.0
    predictions: list[npt.NDArray[np.int64]] = []
    for start in range(0, len(split), batch):
        inputs, real = quantiser.padded_batch(split, start, batch)
        result = driver.forward(inputs, quantised, scales)
        # numpy takes the first of equal logits, torch whichever its kernel meets.
        logits = result.logits[:real, : model.network.classes].numpy()
        predictions.append(np.argmax(logits, 1))
        counters, seconds = counters + result.counters, seconds + result.seconds
        progress(start + real, len(split))
    labels = split.labels.astype(np.int64)
    return Evaluation(np.concatenate(predictions), labels, counters, seconds)
