"""Accuracy class by class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainwright.support.tables import markdown
from trainwright.train.evaluate import Evaluation


@dataclass(frozen=True)
class ClassResult:
    """Counts and shares of one class's samples."""

    name: str
    samples: int
    correct: int
    accuracy: float | None
    """``correct`` of ``samples`` (recall); None where there are none."""
    precision: float | None
    """``correct`` of the samples given this class (precision); None where there are none."""
    mistaken_for: str | None
    """Class that most misclassified samples were given; None where there are none."""


def class_results(evaluation: Evaluation, names: Sequence[str]) -> list[ClassResult]:
    """Return a result for each name."""
    labels, guesses = evaluation.labels, evaluation.predictions
    right = labels == guesses
    # A matrix of thousands of classes would have half a gigabyte: pairs that occur are counted.
    counts = [np.bincount(part, minlength=len(names)) for part in (labels, guesses, labels[right])]
    pairs = np.stack([labels[~right], guesses[~right]], 1)
    mistaken: dict[int, tuple[int, int]] = {}
    for (label, guess), count in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
        if count > mistaken.get(int(label), (0, 0))[0]:
            mistaken[int(label)] = int(count), int(guess)
    results = []
    for n, name in enumerate(names):
        samples, taken, correct = (int(part[n]) for part in counts)
        results.append(
            ClassResult(
                name=name,
                samples=samples,
                correct=correct,
                accuracy=correct / samples if samples else None,
                precision=correct / taken if taken else None,
                mistaken_for=names[mistaken[n][1]] if n in mistaken else None,
            )
        )
    return results


def class_table(results: Sequence[ClassResult], samples_are: str) -> str:
    """Return the results as a Markdown table, fractions in percent.

    ``samples_are`` (``DataSet.samples_are``) heads the column of counts.
    """

    def percent(part: float | None) -> str:
        return "-" if part is None else f"{part:.2%}"

    head = ("class", samples_are, "right", "accuracy", "precision", "most mistaken for")
    rows = [
        (
            r.name,
            r.samples,
            r.correct,
            percent(r.accuracy),
            percent(r.precision),
            r.mistaken_for or "-",
        )
        for r in results
    ]
    return markdown(head, rows)
