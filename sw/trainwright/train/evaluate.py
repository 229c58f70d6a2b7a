"""Accuracy through the accelerator itself: forward programs over a split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


def evaluate(
    driver: StepDriver,
    model: Model | ChipModel | QuantisedModel,
    scales: Scales,
    quantiser: ImageQuantiser,
    split: Split,
    batch: int,
    *,
    scale: tuple[float, float] | None = None,
    names: Sequence[str] = (),
    line_names: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, samples: None,
) -> Evaluation:
    """Classify every sample of a split; the last batch is filled up with blank images.

    Words are classified where labels are (samples, words), and lines as well where the network has
    heads of both; ``names`` and ``line_names`` are those of the classes. Words behind the last
    token of the network count as predicted outside of any span.

    With the ``scale`` of a regression's targets the first output is the number predicted.

    Neither the model nor the scales change.
    """
    quantised = model if isinstance(model, QuantisedModel) else operands_of(model)
    scales = scales.copy()
    counters, seconds = Counters(), 0.0
    predictions: list[npt.NDArray[np.int64]] = []
    outputs: list[npt.NDArray[np.float64]] = []
    network, by_word = model.network, split.labels.ndim == 2
    classes, lines = network.classes, list[npt.NDArray[np.int64]]()
    line_head = network.sequence_head if network.is_joint else None
    for start in range(0, len(split), batch):
        inputs, real = quantiser.padded_batch(split, start, batch)
        result = driver.forward(inputs, quantised, scales)
        # numpy takes the first of equal logits, torch whichever its kernel meets.
        if by_word:
            head = head_logits(network, network.main, result.logits)[:real]
            every = head.reshape(real, network.tokens, -1)[..., :classes].numpy()
            predictions.append(np.argmax(every, 2))
            # One forward pass has the logits of both kinds of heads.
            if line_head:
                head = head_logits(network, line_head, result.logits)[:real]
                lines.append(np.argmax(head[:, : network.classes_of(line_head)].numpy(), 1))
        else:
            logits = result.logits[:real, :classes].numpy()
            predictions.append(np.argmax(logits, 1))
            outputs.append(logits[:, 0])
        counters, seconds = counters + result.counters, seconds + result.seconds
        progress(start + real, len(split))
    if scale is not None:
        mean, deviation = scale
        predicted = mean + deviation * np.concatenate(outputs).astype(np.float64)
        values = Regression(predicted, mean + deviation * split.labels)
        nothing = np.zeros(len(split), np.int64)
        return Evaluation(nothing, nothing, counters, seconds, values)
    labels, predicted_classes = split.labels.astype(np.int64), np.concatenate(predictions)
    if not by_word:
        return Evaluation(predicted_classes, labels, counters, seconds)
    line_labels = None
    if line_head:
        best = np.concatenate(lines)
        numbers = map(int, best)
        named = [line_names[n] if n < len(line_names) else str(n) for n in numbers]
        right = best == network.labels_of(line_head, labels)
        line_labels = LineLabels(named, float(right.mean()))
        labels = labels[:, 1:]
    whole = np.full_like(labels, outside_of(names))
    tokens = min(predicted_classes.shape[1], labels.shape[1])
    whole[:, :tokens] = predicted_classes[:, :tokens]
    kept = labels >= 0
    words = WordLabels(
        *(
            [[names[int(n)] for n in row[own]] for row, own in zip(classes_of, kept, strict=True)]
            for classes_of in (whole, labels)
        )
    )
    return Evaluation(whole[kept], labels[kept], counters, seconds, words=words, lines=line_labels)
