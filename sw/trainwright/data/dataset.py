"""Data sets in memory, whatever they were read from."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean, pstdev
from typing import Any
from unicodedata import category, normalize

import numpy as np
import numpy.typing as npt

from trainwright.support.errors import UserError
from trainwright.support.text import amount

CLASSIFICATION, REGRESSION = TASKS = ("classification", "regression")
MOST_CLASSES = 8192
"""Classes that the loss of the accelerator distinguishes."""
MANY_NUMBERS = 256
"""Different numbers of a target above which they may be amounts to predict in place of classes."""
LEAST_BRIGHT = 0.25
"""Share of full scale below which the brightest pixel of all images gets a note. Photographs reach
it. Masks of 0 and 1, and 12-bit images in 16-bit files do not, and train as if they were black."""
CLASS_SAMPLES = 8
"""Test samples for each class from which a class without any is probably a mistake."""
MOST_NAMES = 20
"""Names of classes that a note lists at most."""


class DataError(UserError, ValueError):
    """A data set that is not available or not valid, with the remedy."""


def joined(labels: npt.NDArray[Any], tags: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels of lines (samples,) and of their words as (samples, 1 + words)."""
    return np.column_stack([labels.astype(tags.dtype), tags])


@dataclass(frozen=True)
class Split:
    """Images with their labels.

    ``images`` uint8 (samples, rows, columns), or int32 (samples, 1, words) numbers of words, and
    ``labels`` (samples,): classes of ``label_type``, or float64 targets of a regression; if
    words are classified, the ``tags``; if lines and words are, (samples, 1 + words), the line's
    first.
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

    @property
    def crc(self) -> int:
        """CRC-32 over samples and labels, by which a training split is known again."""
        return zlib.crc32(self.labels.tobytes(), zlib.crc32(self.images.tobytes()))

    def labelled(self, *, words: bool, lines: bool) -> "Split":
        """Return the samples with the labels of their ``words``, of their ``lines``, or of both."""
        if self.tags is None or not words:
            return Split(self.images, self.labels)
        return Split(self.images, joined(self.labels, self.tags) if lines else self.tags)

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
    """How `data.own` turned samples into bytes; None where samples are bytes from the start."""
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
            groups = [(split.labels, self.classes)] if self.scale is None else []
            if lines := len(self.line_names):
                groups = [(split.labels[:, 0], lines), (split.labels[:, 1:], self.classes)]
            for labels, classes in groups:
                least = 1 - split.labels.ndim  # a place behind the last word has no label, -1
                ends = int(labels.min()), int(labels.max())
                if wrong := [label for label in ends if not least <= label < classes]:
                    raise DataError(
                        f"data set {self.name!r}: label {wrong[-1]} is out of range, "
                        f"there are {amount(classes, 'class')}"
                    )
            if (brightest := int(split.images.max())) > self.full_scale:
                raise DataError(
                    f"data set {self.name!r}: pixel {brightest} is over {self.full_scale}"
                )

    @property
    def crc(self) -> int:
        """CRC-32 over both splits and what gives their labels a meaning, such as class names."""
        meaning = self.class_names, self.tag_names, self.scale, dict(self.preparation or {})
        text = json.dumps(meaning, sort_keys=True)  # tuples and lists are equal, as once stored
        return zlib.crc32(text.encode(), self.train.crc ^ self.test.crc)

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
        """Whether labels are those of words, alone or with those of lines."""
        return self.train.labels.ndim == 2

    @property
    def line_names(self) -> tuple[str, ...]:
        """Names of the classes of lines, where both lines and words have labels."""
        kept = self.preparation or {}
        both = self.has_tags and "classes" in kept and "tags" in kept
        return tuple(kept["classes"]) if both else ()

    def labelled(self, *, words: bool, lines: bool = False) -> "DataSet":
        """Return the data set with the labels of its words, or with those of its lines alone.

        With ``words`` and ``lines`` it has both; ``class_names`` are then those of words.
        """
        if not self.tag_names:
            return self
        train, test = (split.labelled(words=words, lines=lines) for split in self.splits)
        names = self.tag_names if words else self.class_names
        # A model of words does not know the classes of lines, nor a model of lines those of words.
        omitted = ("classes" if words else "tags") if not (words and lines) else ""
        kept = {k: v for k, v in (self.preparation or {}).items() if k != omitted}
        return replace(
            self, train=train, test=test, class_names=names, tag_names=(), preparation=kept
        )

    @property
    def doubts(self) -> list[str]:
        """Notes on pixels and classes that are probably mistakes."""
        notes = [] if self.samples_are != "images" else _pixel_doubts(self)
        if self.scale is None and self.train.labels.ndim == 1 and self.train is not self.test:
            notes += _class_doubts(self)
        return notes

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        return self.train.images.shape[1], self.train.images.shape[2]


def _pixel_doubts(data: DataSet) -> list[str]:
    """Return notes on images of one value, and on images that use few of the levels."""
    notes, full = [], data.full_scale
    parts = {"training": data.train.images, "test": data.test.images}
    if data.train is data.test:  # samples to classify
        del parts["training"]
    for part, images in parts.items():
        low, high = int(images.min()), int(images.max())
        if low == high:
            notes.append(f"all pixels of all {part} images are {low}: they teach nothing")
        elif high < LEAST_BRIGHT * full:
            notes.append(
                f"the brightest pixel of all {part} images is {high} of {full}, and a network "
                f"reads pixels as shares of {full}: scale images to 0 .. {full}, or to 0 .. 1 "
                "as floating point"
            )
    return notes


def _class_doubts(data: DataSet) -> list[str]:
    """Return notes on classes that are spelled alike, or have no sample to learn from."""
    names = data.class_names
    notes = [f"classes {alike}" for alike in alike_names(names)]
    present = set(data.train.labels.tolist())
    absent = [name for n, name in enumerate(names) if n not in present]
    if absent and not data.is_text:  # lines of text have a class for labels to come
        notes.append(
            f"the training split has no {data.samples_are[:-1]} of class {_listed(absent)}"
        )
    tested = set(data.test.labels.tolist())
    untested = [name for n, name in enumerate(names) if n in present - tested]
    if untested and len(data.test) >= CLASS_SAMPLES * len(names):
        notes.append(
            f"the test split has no {data.samples_are[:-1]} of class {_listed(untested)}: its "
            "accuracy says nothing about that"
        )
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(repr, names[:MOST_NAMES]))}{more}"


def label_type(classes: int) -> type[np.integer[Any]]:
    """Return the type of labels: bytes wherever they suffice, as in checksums of stored models."""
    return np.uint8 if classes <= 1 << 8 else np.int16


def alike_names(names: Sequence[str]) -> list[str]:
    """List names that differ only in capital letters, spaces or invisible characters.

    Returns a text for each group of such names.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        visible = (
            c for c in normalize("NFKC", name) if c.isspace() or category(c) not in _INVISIBLE
        )
        groups.setdefault(" ".join("".join(visible).lower().split()), []).append(name)
    alike: list[str] = []
    for group in groups.values():
        if len(group) == 1:
            continue
        what, shown = "capital letters", repr
        if len({name.lower() for name in group}) > 1:
            what = "spaces or capital letters"
        if len({" ".join(name.lower().split()) for name in group}) > 1:
            # Letters with combined accents look equal, too, unless they are written as codes.
            what, shown = "the codes of characters that look alike or are invisible", ascii
        alike.append(f"{', '.join(map(shown, group))} differ only in {what}")
    return alike


_INVISIBLE = ("Cc", "Cf")
"""Categories of control characters and of marks such as U+200B."""


def standardised(value: float, mean: float, deviation: float) -> float:
    """Return how many deviations a value is above the mean."""
    difference = value - mean
    # The difference may overflow. Quotients do not, and lose digits of values far from zero.
    return difference / deviation if isfinite(difference) else value / deviation - mean / deviation


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and deviation; values are scaled by the largest, so that no square overflows."""
    largest = max(map(abs, values)) or 1.0
    scaled = [value / largest for value in values]
    return fmean(scaled) * largest, pstdev(scaled) * largest
