"""Accuracy through the accelerator itself: forward programs over a split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainwright.accelerator import Counters
from trainwright.data import Split
from trainwright.data.sentences import OUTSIDE
from trainwright.driver import QuantisedModel, StepDriver
from trainwright.fixed.scale import Scales
from trainwright.train.batches import ImageQuantiser
from trainwright.train.chip_update import ChipModel, operands_of
from trainwright.train.loss import head_logits
from trainwright.train.model import Model
from trainwright.train.spans import f1

MOST_IN_MATRIX = 1024
"""Classes of a confusion matrix that is written: a million counts, 2 to 3 MB of JSON."""


@dataclass(frozen=True)
class Regression:
    """Predictions and targets of a regression, float64 (samples,), in the units of the data."""

    predictions: npt.NDArray[np.float64]
    targets: npt.NDArray[np.float64]

    @property
    def r2(self) -> float:
        """Return the coefficient of determination: 1 less squared errors over the variance.

        Where all targets are one value it is 1 for exact predictions, else 0.
        """
        spread = self.targets - self.targets.mean()
        scale = np.abs(spread).max()
        if self.targets.max() == self.targets.min():  # whose mean may be rounded
            return float(np.array_equal(self.predictions, self.targets))
        # Dividing by the largest deviation first keeps the squares in range for targets of any
        # unit.
        error = (self.predictions - self.targets) / scale
        return float(1 - (error**2).sum() / ((spread / scale) ** 2).sum())

    @property
    def mae(self) -> float:
        """Return the mean of the absolute errors."""
        return float(np.abs(self.predictions - self.targets).mean())

    @property
    def rmse(self) -> float:
        """Return the root of the mean squared error."""
        # As above: squares of values near the ends of float64 would overflow or vanish.
        error = np.abs(self.predictions - self.targets)
        largest = error.max() or 1.0
        return float(largest * np.sqrt(((error / largest) ** 2).mean()))


@dataclass(frozen=True)
class WordLabels:
    """Names of the classes of the words of each line: predicted, and as labelled."""

    predicted: Sequence[Sequence[str]]
    labelled: Sequence[Sequence[str]]

    @property
    def f1(self) -> float:
        """Return the F1 score of the spans of words (``train.spans``)."""
        return f1(self.predicted, self.labelled)


@dataclass(frozen=True)
class LineLabels:
    """Names of the classes predicted of lines, where words are classified as well."""

    predicted: Sequence[str]
    accuracy: float


@dataclass(frozen=True)
class Evaluation:
    """Classes predicted of a split; ``predictions`` and ``labels`` int64 (samples,), or (words,).

    Both are all 0 for a regression, whose numbers are in ``regression``.
    """

    predictions: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    counters: Counters
    seconds: float
    """Wall time on the accelerator."""
    regression: Regression | None = None
    words: WordLabels | None = None
    """Labels of words, where words are classified: ``predictions`` and ``labels`` are theirs."""
    lines: LineLabels | None = None

    @property
    def accuracy(self) -> float:
        """Fraction of samples classified correctly.

        For a regression R2, which is at most 1, too.
        """
        if self.regression is not None:
            return self.regression.r2
        return float((self.predictions == self.labels).mean())

    @property
    def written(self) -> list[list[str]]:
        """Names of the classes of words, line by line; the class of a line itself comes first."""
        words = [list(names) for names in self.words.predicted] if self.words else []
        if self.lines is None:
            return words
        return [[line, *own] for line, own in zip(self.lines.predicted, words, strict=True)]

    @property
    def predicts_one_class(self) -> bool:
        """Whether samples of several classes all got one class, as after no training at all."""
        return len(np.unique(self.predictions)) == 1 < len(np.unique(self.labels))

    def confusion(self, classes: int) -> npt.NDArray[np.int64]:
        """Count samples in a matrix (classes, classes): rows are labels, columns predictions."""
        matrix = np.zeros((classes, classes), np.int64)
        np.add.at(matrix, (self.labels, self.predictions), 1)
        return matrix

    def confusion_lists(self, classes: int) -> list[list[int]] | None:
        """Return the matrix for JSON; None for a regression, or where it would be very large."""
        if self.regression is not None or classes > MOST_IN_MATRIX:
            return None
        return self.confusion(classes).tolist()


def outside_of(names: Sequence[str]) -> int:
    """Return the class of words outside all spans; words behind the last token count as such."""
    return names.index(OUTSIDE) if OUTSIDE in names else 0


@dataclass(frozen=True)
class LabelKinds:
    """Names of the classes of a data set, or the scale of its numbers."""

    names: Sequence[str] = ()
    """Classes of samples, or of words where these have labels."""
    line_names: Sequence[str] = ()
    """Classes of lines, where both lines and words have labels."""
    scale: tuple[float, float] | None = None
    """Mean and deviation of the targets of a regression."""

    def line_name(self, number: int) -> str:
        """Return the name of a class of lines; a network may have more classes than the data."""
        return self.line_names[number] if number < len(self.line_names) else str(number)


def evaluate(
    driver: StepDriver,
    model: Model | ChipModel | QuantisedModel,
    scales: Scales,
    quantiser: ImageQuantiser,
    split: Split,
    batch: int,
    *,
    labels: LabelKinds | None = None,
    progress: Callable[[int, int], None] = lambda done, samples: None,
) -> Evaluation:
    """Classify every sample of a split; the last batch is filled up with blank images.

    Words are classified where labels are (samples, words), and lines as well where the network has
    heads of both. Words behind the last token of the network count as predicted outside of any
    span. In a regression the first output is the number predicted.

    Neither the model nor the scales change.
    """
    labels = labels or LabelKinds()
    quantised = model if isinstance(model, QuantisedModel) else operands_of(model)
    scales, network = scales.copy(), model.network
    counters, seconds = Counters(), 0.0
    by_batch, lines_by_batch = list[npt.NDArray[Any]](), list[npt.NDArray[np.int64]]()
    for start in range(0, len(split), batch):
        inputs, real = quantiser.padded_batch(split, start, batch)
        result = driver.forward(inputs, quantised, scales)
        logits = result.logits[:real]
        if labels.scale is not None:
            by_batch.append(logits[:, 0].numpy())
        elif split.labels.ndim == 1:
            by_batch.append(_best(logits, network.classes))
        else:
            words = head_logits(network, network.main, logits)
            by_batch.append(_best(words.reshape(real, network.tokens, -1), network.classes))
            if network.is_joint:  # one forward pass has the logits of both kinds of heads
                head = network.sequence_head
                own = head_logits(network, head, logits)
                lines_by_batch.append(_best(own, network.classes_of(head)))
        counters, seconds = counters + result.counters, seconds + result.seconds
        progress(start + real, len(split))
    predictions = np.concatenate(by_batch)
    if labels.scale is not None:
        mean, deviation = labels.scale
        predicted = mean + deviation * predictions.astype(np.float64)
        values = Regression(predicted, mean + deviation * split.labels)
        nothing = np.zeros(len(split), np.int64)
        return Evaluation(nothing, nothing, counters, seconds, values)
    targets, lines = split.labels.astype(np.int64), None
    if targets.ndim == 1:
        return Evaluation(predictions, targets, counters, seconds)
    if network.is_joint:
        best = np.concatenate(lines_by_batch)
        right = best == network.labels_of(network.sequence_head, targets)
        lines = LineLabels([*map(labels.line_name, best.tolist())], float(right.mean()))
        targets = targets[:, 1:]
    # Words behind the network's last token are not predicted.
    whole = np.full_like(targets, outside_of(labels.names))
    tokens = min(predictions.shape[1], targets.shape[1])
    whole[:, :tokens] = predictions[:, :tokens]
    kept = targets >= 0
    words = WordLabels(*(_names_of(classes, kept, labels.names) for classes in (whole, targets)))
    return Evaluation(whole[kept], targets[kept], counters, seconds, words=words, lines=lines)


def _best(logits: torch.Tensor, classes: int) -> npt.NDArray[np.int64]:
    """Return the class of the largest of the first ``classes`` logits, along the last axis."""
    # numpy takes the first of equal logits, torch whichever its kernel meets.
    return np.argmax(logits[..., :classes].numpy(), -1)


def _names_of(
    classes: npt.NDArray[np.int64], kept: npt.NDArray[np.bool_], names: Sequence[str]
) -> list[list[str]]:
    """Return the names of the classes of kept words, line by line."""
    return [[names[int(n)] for n in row[own]] for row, own in zip(classes, kept, strict=True)]
