"""Data sets in memory, whatever they were read from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

import numpy.typing as npt

from trainwright.support.errors import UserError
from trainwright.support.text import amount

CLASSIFICATION, REGRESSION = TASKS = ("classification", "regression")
MOST_CLASSES = 256


class DataError(UserError, ValueError):
    """A data set that is not available or not valid, with the remedy."""


@dataclass(frozen=True)
class Split:
    """Images with their labels.

    ``images`` uint8 (samples, rows, columns), or int32 (samples, 1, words) numbers of words, and
    ``labels`` (samples,): uint8 classes, or float64 targets of a regression; if words are
    classified, the ``tags``.
    """

    images: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    tags: npt.NDArray[Any] | None = None
    """Classes of the words of lines, int16 (samples, words), -1 where a line has no word."""

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(
                f"{amount(len(self.images), 'image')} but {amount(len(self.labels), 'label')}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, samples: int) -> "Split":
        """Return the first ``samples``, or all where there are fewer."""
        tags = None if self.tags is None else self.tags[:samples]
        return Split(self.images[:samples], self.labels[:samples], tags)


@dataclass(frozen=True)
class DataSet:
    """Two splits of one data set. A pixel's value is its byte divided by ``full_scale``: 0..1."""

    name: str
    train: Split
    test: Split
    full_scale: int
    class_names: tuple[str, ...]
    preparation: Mapping[str, Any] | None = None
    """How `data.own` made bytes of samples; None where samples are bytes from the start."""
    channels: int = 1
    """Values of a pixel, side by side in an image's row: 1 for grey, 3 for RGB."""
    scale: tuple[float, float] | None = None
    """Mean and deviation of a regression's targets: labels are (target - mean) / deviation."""
    notes: tuple[str, ...] = ()
    """Lines for the user on what was read, and on what was filled in."""
    tag_names: tuple[str, ...] = ()
    """Names of the classes of words, where lines of text have a label for each."""

    def __post_init__(self) -> None:
        for split in self.splits:
            if len(split) == 0:
                raise DataError(f"data set {self.name!r} has an empty split")
            if self.scale is None and (greatest := int(split.labels.max())) >= self.classes:
                raise DataError(
                    f"data set {self.name!r}: label {greatest} is out of range, "
                    f"there are {self.classes} classes"
                )
            if (brightest := int(split.images.max())) > self.full_scale:
                raise DataError(
                    f"data set {self.name!r}: pixel {brightest} is over {self.full_scale}"
                )

    @property
    def splits(self) -> tuple[Split, Split]:
        """The training and the test split."""
        return self.train, self.test

    @property
    def classes(self) -> int:
        """Number of classes; 1 of a regression, the name of whose target is the only one."""
        return len(self.class_names)

    @property
    def samples_are(self) -> str:
        """Noun for several samples: ``rows`` of a table, ``lines`` of a text, else ``images``."""
        kind = self.preparation["kind"] if self.preparation else ""
        return {"table": "rows", "text": "lines"}.get(kind, "images")

    @property
    def is_text(self) -> bool:
        """Whether a sample is a sequence of words."""
        return self.samples_are == "lines"

    @property
    def has_tags(self) -> bool:
        """Whether the labels are those of words, not of lines."""
        return self.train.labels.ndim == 2

    def labelled(self, *, words: bool) -> "DataSet":
        """Return the data set with the labels of its words, or with those of its lines alone."""
        if not self.tag_names:
            return self
        train, test = (
            Split(split.images, split.tags if words and split.tags is not None else split.labels)
            for split in self.splits
        )
        names = self.tag_names if words else self.class_names
        # A model of words does not know the classes of lines, nor a model of lines those of words.
        omitted = "classes" if words else "tags"
        kept = {k: v for k, v in (self.preparation or {}).items() if k != omitted}
        return replace(
            self, train=train, test=test, class_names=names, tag_names=(), preparation=kept
        )

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        return self.train.images.shape[1], self.train.images.shape[2]


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and deviation; values are scaled by the largest, so that no square overflows."""
    largest = max(map(abs, values)) or 1.0
    scaled = [value / largest for value in values]
    return fmean(scaled) * largest, pstdev(scaled) * largest
