"""Any data set in a NumPy ``.npz``: arrays of images and of labels or numbers, never code.

Names of the arrays: ``x_train``, ``y_train``, ``x_test``, ``y_test`` (Keras), ``train_images``,
``train_labels``, ``test_images``, ``test_labels`` (MedMNIST), or one set ``images``, ``labels`` (or
``x``, ``y``) that is split here. ``class_names`` (strings) may be beside them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt

from trainwright.data.arrays import read_arrays
from trainwright.data.cells import MISSING
from trainwright.data.dataset import (
    CLASSIFICATION,
    LEAST_BRIGHT,
    MANY_NUMBERS,
    MOST_CLASSES,
    REGRESSION,
    DataError,
    DataSet,
    Split,
    label_type,
    moments,
    standardised,
)
from trainwright.support.errors import errors_as
from trainwright.support.text import amount

SPLIT_SEED = 0
TEST_PART = 5
"""Samples for each sample that goes into the test split, where a file has no test split."""
FULL_SCALE = 255
CONTRAST = 64
"""Range of a split's pixels below which a note asks for their scale: 2, 16 or 32 levels use at most
an eighth of the whole range, photographs and drawings nearly all of it."""
_SPLITS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
_WHOLES = (("images", "labels"), ("x", "y"))
_CLASS_NAMES = "class_names"


def load_npz(
    path: str | PathLike[str],
    *,
    name: str = "npz",
    class_names: Sequence[str] | None = None,
    task: str | None = None,
    preparation: Mapping[str, Any] | None = None,
) -> DataSet:
    """Read a data set from an ``.npz``.

    Images are uint8, or floating point from 0 to 1 and then rounded to 255 levels, half to even;
    (samples, rows, columns), with or without one channel at either place. Labels are integers from
    0 or strings, (samples,) or (samples, 1); numbers with fractions, many integers with gaps, or
    ``task`` make a regression. ``class_names`` come from the argument, the file, or are numbers. A
    model's ``preparation`` gives the task, with the ``classes`` of strings, the ``names`` of
    numbered classes, or the ``scale`` of a regression.
    A file with one set is split by ``RandomState(0).permutation``: the last fifth is the test
    split. Raises ``DataError`` in one line for anything else.
    """
    path = Path(path)
    known = {name for names in (*_SPLITS, *_WHOLES) for name in names} | {_CLASS_NAMES}
    arrays = read_arrays(path, known)
    splits, used = _splits(path, arrays)
    notes = _notes(path, splits, used) + _colour_notes(path, {name: arrays[name] for name in used})
    notes += contrast_notes(path, {name: split.images for name, split in splits.items()})
    colours = {_is_rgb(array) for array in arrays.values() if array.ndim > 2}
    if splits["train"].images.shape[1:] != splits["test"].images.shape[1:] or len(colours) > 1:
        raise DataError(f"{path}: train and test images differ in size or colours")
    channels = 3 if colours == {True} else 1
    parts = [splits[part].labels for part in ("train", "test")]
    values: npt.NDArray[Any] = np.concatenate(parts)
    if preparation is not None:
        task = REGRESSION if "scale" in preparation else CLASSIFICATION
        class_names = _known_names(path, arrays, preparation)
        if "classes" in preparation and values.dtype.kind != "U":
            raise DataError(
                f"{path}: labels are numbers, those of the model are strings: "
                f"{', '.join(preparation['classes'][:20])}"
            )
    is_regression = _is_regression(path, values, task)
    if task is None:
        notes += _task_notes(path, values, is_regression=is_regression)
    if is_regression:
        notes += _lost_integers(path, values)
        targets = _amounts(path, parts, preparation)
    elif values.dtype.kind == "U":
        targets = _texts(path, parts, preparation)
    else:
        labels = [_numbered(path, part) for part in parts]
        names = tuple(class_names or _names(path, arrays, labels))
        most = max(len(names), *(int(part.max()) + 1 for part in labels if part.size))
        targets = _Targets(names, [part.astype(label_type(most)) for part in labels], None)
    if targets.scale is None and not 2 <= len(targets.names) <= MOST_CLASSES:
        raise DataError(
            f"{path} has {amount(len(targets.names), 'class')}: 2 to {MOST_CLASSES:,} can be learnt"
        )
    train, test = (
        Split(splits[part].images, values)
        for part, values in zip(("train", "test"), targets.labels, strict=True)
    )
    with errors_as(str(path), DataError, DataError):
        return DataSet(
            name, train, test, FULL_SCALE, targets.names, targets.preparation, channels=channels,
            scale=targets.scale, notes=notes,
        )  # fmt: skip


class _Targets(NamedTuple):
    """Labels of both splits as a network learns them, and how they were made."""

    names: tuple[str, ...]
    labels: list[npt.NDArray[Any]]
    preparation: Mapping[str, Any] | None
    scale: tuple[float, float] | None = None


def _amounts(
    path: Path, parts: Sequence[npt.NDArray[Any]], preparation: Mapping[str, Any] | None
) -> _Targets:
    """Return the numbers of a regression, by the mean and deviation of the training split."""
    preparation = preparation or {"kind": "npz", "scale": _scale(path, parts[0])}
    mean, deviation = preparation["scale"]
    labels = [
        np.array([standardised(value, mean, deviation) for value in part.tolist()])
        for part in (part.astype(np.float64) for part in parts)
    ]
    return _Targets(("number",), labels, preparation, (mean, deviation))


def _texts(
    path: Path, parts: Sequence[npt.NDArray[Any]], preparation: Mapping[str, Any] | None
) -> _Targets:
    """Return the classes that texts name: those of a model, or all of the file, sorted."""
    texts = sorted({text for part in parts for text in part.tolist()})
    preparation = preparation or {"kind": "npz", "classes": texts}
    names = tuple(preparation["classes"])
    return _Targets(names, [_places(path, part, names) for part in parts], preparation)


def _is_regression(path: Path, values: npt.NDArray[Any], task: str | None) -> bool:
    """Return whether the task is a regression: as asked for, else by the values."""
    if values.dtype.kind == "U":
        if task == REGRESSION:
            raise DataError(f"{path}: --task {REGRESSION}: the labels are strings, not numbers")
        return False
    are_amounts, different = bool((values % 1).any()), len(np.unique(values))
    if task == CLASSIFICATION and (are_amounts or different > MOST_CLASSES):
        raise DataError(
            f"{path}: --task {CLASSIFICATION}: labels have fractions or are over {MOST_CLASSES:,} "
            "different numbers: write classes as integers from 0 or as strings"
        )
    if task is None and different > MANY_NUMBERS:
        # Numbers of classes begin at 0, or at -1 where a mark stands for no class, and few are
        # without a sample. Other integers, such as prices and counts, are amounts.
        low, high = float(values.min()), float(values.max())
        are_classes = low >= -1 and high < MOST_CLASSES and 2 * different > high - low
        are_amounts = are_amounts or not are_classes
    return task == REGRESSION or (task is None and are_amounts)


def _task_notes(path: Path, values: npt.NDArray[Any], *, is_regression: bool) -> tuple[str, ...]:
    """Return a note on a task that the labels decided, where they could mean another one."""
    if is_regression:
        return (
            f"{path}: a regression, as labels have fractions or are many different numbers (--task "
            f"{CLASSIFICATION} takes integers from 0 for classes)",
        )
    if values.dtype.kind == "U" or (different := len(np.unique(values))) <= MANY_NUMBERS:
        return ()
    return (
        f"{path}: labels of {different:,} different integers are classes (--task {REGRESSION} "
        "predicts the number)",
    )


def _known_names(
    path: Path, arrays: dict[str, npt.NDArray[Any]], preparation: Mapping[str, Any]
) -> Sequence[str] | None:
    """Return the names of a model's numbered classes, if it has some; the file's may not differ."""
    names = preparation.get("names")
    if names is None or _CLASS_NAMES not in arrays:
        return names
    for place, (known, given) in enumerate(zip(names, _names(path, arrays, []), strict=False)):
        if known != given:
            raise DataError(
                f"{path}: {_CLASS_NAMES} has {given!r} at {place}, the model has {known!r}: number "
                "the classes as in the training data"
            )
    return names


def _scale(path: Path, values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return mean and deviation of the targets of the training split."""
    mean, deviation = moments(values.astype(np.float64).tolist())
    if deviation == 0:
        place = "the training split"
        if len(np.unique(values)) > 1:
            place = "64 bits of floating point: subtract one number from all"
        raise DataError(f"{path}: all numbers to predict are {mean:g} in {place}")
    return mean, deviation


def _lost_integers(path: Path, values: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return a note on different integers that are equal as float64."""
    exact, held = (len(np.unique(part)) for part in (values, values.astype(np.float64)))
    if exact == held:
        return ()
    return (
        f"{path}: {exact:,} different numbers to predict, such as {values.max()}, are {held:,} in "
        "64 bits of floating point: subtract one number from all",
    )


def _places(path: Path, labels: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
    """Return the place of each label among the names."""
    if unknown := sorted({*labels.tolist()} - {*names}):
        raise DataError(f"{path}: {unknown[0]!r} is no class of the model: {', '.join(names[:20])}")
    places = {name: place for place, name in enumerate(names)}
    return np.array([places[label] for label in labels], label_type(len(names)))


def _numbered(path: Path, labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if labels.size and not 0 <= labels.min() <= labels.max() < MOST_CLASSES:
        raise DataError(
            f"{path} has labels from {labels.min():g} to {labels.max():g}, not within 0 to "
            f"{MOST_CLASSES - 1:,}: count classes from 0, write their names as strings, or take "
            f"--task {REGRESSION} for numbers to predict"
        )
    return labels.astype(np.int64)


def _notes(path: Path, splits: Mapping[str, Split], used: Sequence[str]) -> tuple[str, ...]:
    """Return notes on arrays that are not read, and on how one set is split."""
    notes = []
    with ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    if unread := [name for name in names if name not in (*used, _CLASS_NAMES)]:
        notes.append(f"{path}: arrays that are not read: {', '.join(sorted(unread))}")
    if len(used) < len(_SPLITS[0]):
        train, test = (len(splits[part]) for part in ("train", "test"))
        notes.append(
            f"{path} has one set: the test split is {test:,} of its "
            f"{amount(train + test, 'sample')}"
        )
    return tuple(notes)


def _colour_notes(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    """Return notes on images whose colours may be at either of two places."""
    return tuple(
        f"{path}: {name} has shape {array.shape}: the last 3 are taken for red, green and blue"
        for name, array in arrays.items()
        if _is_rgb(array) and array.shape[1] == array.shape[3]
    )


def contrast_notes(path: Path, images: Mapping[str, npt.NDArray[np.uint8]]) -> tuple[str, ...]:
    """Return notes on splits whose bytes use little of the range, as bits and classes do.

    ``DataSet.doubts`` names dark splits, and those of one value.
    """
    ranges = {name: (int(part.min()), int(part.max())) for name, part in images.items()}
    return tuple(
        f"{path}: pixels of the {name} split are from {low} to {high} of 0 to {FULL_SCALE}: scale "
        "images of fewer levels to the whole range"
        for name, (low, high) in ranges.items()
        if 0 < high - low < CONTRAST and high >= LEAST_BRIGHT * FULL_SCALE
    )


def _splits(
    path: Path, arrays: dict[str, npt.NDArray[Any]]
) -> tuple[dict[str, Split], Sequence[str]]:
    """Return the splits, and the names of the arrays that they are made of."""
    for names in (*_SPLITS, *_WHOLES):
        absent = [name for name in names if name not in arrays]
        if not absent:
            pairs = [
                _split(path, arrays, images, labels)
                for images, labels in zip(names[::2], names[1::2], strict=True)
            ]
            train, test = pairs if len(pairs) > 1 else divided(path, pairs[0])
            if len({split.labels.dtype.kind == "U" for split in (train, test)}) > 1:
                raise DataError(f"{path}: labels are strings in one split and numbers in the other")
            return {"train": train, "test": test}, names
        if len(absent) < len(names):
            raise DataError(f"{path} has {_listed(arrays)} and lacks {', '.join(absent)}")
    wanted = " or ".join(", ".join(names) for names in (*_SPLITS, *_WHOLES))
    raise DataError(f"{path}: no arrays of images and labels; wanted are {wanted}")


def _listed(arrays: dict[str, npt.NDArray[Any]]) -> str:
    return ", ".join(name for name in sorted(arrays) if name != _CLASS_NAMES)


def _split(path: Path, arrays: dict[str, npt.NDArray[Any]], images: str, labels: str) -> Split:
    pixels, classes = _images(path, images, arrays[images]), _labels(path, labels, arrays[labels])
    if len(pixels) != len(classes):
        raise DataError(f"{path}: {len(pixels):,} {images} but {len(classes):,} {labels}")
    return Split(pixels, classes)


def _is_rgb(array: npt.NDArray[Any]) -> bool:
    sides = (array.shape[3], array.shape[1]) if array.ndim == 4 else ()
    return 3 in sides and 1 not in sides  # a side of 1 is the channel of grey images


def _images(path: Path, name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.ndim == 4 and 1 in (array.shape[3], array.shape[1]):
        array = array.squeeze(3 if array.shape[3] == 1 else 1)
    if _is_rgb(array):  # a pixel's values become adjacent
        array = array if array.shape[3] == 3 else np.moveaxis(array, 1, 3)
        array = array.reshape(*array.shape[:2], -1)
    if array.ndim != 3 or 0 in array.shape:
        advice = f"; for a table take {name}[:, None, :]" if array.ndim == 2 else ""
        raise DataError(
            f"{path}: {name} has shape {array.shape}, not (samples, rows, columns) of grey images "
            f"or (samples, rows, columns, 3) of RGB{advice}"
        )
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        raise DataError(
            f"{path}: {name} is {array.dtype}, not uint8 (0 to 255) or floating point (0 to 1): "
            "divide by the greatest value that a pixel can have"
        )
    if not np.isfinite(array).all():
        where = tuple(int(n) for n in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{path}: {name} has {array[where]} at {where}; pixels are from 0 to 1")
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        raise DataError(
            f"{path}: {name} has values from {low:.9g} to {high:.9g}; floating-point pixels are "
            "from 0 to 1"
        )
    return np.rint(array.astype(np.float64) * FULL_SCALE).astype(np.uint8)


def _labels(path: Path, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels as strings or as finite numbers."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            f"{path}: {name} has shape {array.shape}, not (samples,): of scores or one-hot rows "
            "take the argmax"
        )
    if array.dtype.kind not in "biufU":
        raise DataError(
            f"{path}: {name} is {array.dtype}; labels are numbers or strings: convert them with "
            "astype(int) or astype(str)"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = int(np.argmin(np.isfinite(array)))
        raise DataError(f"{path}: {name} has {array[where]} at ({where},); labels are finite")
    if array.dtype.kind == "U":
        gaps = [n for n, text in enumerate(array.tolist()) if text.strip().lower() in MISSING]
        if gaps:
            raise DataError(
                f"{path}: {name} has {str(array[gaps[0]])!r} at ({gaps[0]},), which stands for no "
                "label: remove the sample, or spell the class differently"
            )
    return array.astype(np.int64) if array.dtype.kind == "b" else array


def cut_off_test(path: Path, samples: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of training samples and of test samples, each in random order.

    Raises `DataError` where there are too few.
    """
    test = samples // TEST_PART
    if not test:
        raise DataError(
            f"{path} has {amount(samples, 'sample')}, at least {TEST_PART} are needed to split them"
        )
    order = np.random.RandomState(SPLIT_SEED).permutation(samples)
    return order[:-test], order[-test:]


def divided(path: Path, whole: Split) -> list[Split]:
    """Return the training split and the test split of data in one set. Raises `DataError`."""
    parts = cut_off_test(path, len(whole))
    return [Split(whole.images[part], whole.labels[part]) for part in parts]


def _names(
    path: Path, arrays: dict[str, npt.NDArray[Any]], labels: Sequence[npt.NDArray[np.int64]]
) -> tuple[str, ...]:
    if _CLASS_NAMES not in arrays:
        least = min(int(part.min(initial=MOST_CLASSES)) for part in labels)
        if least > 0:
            raise DataError(
                f"{path}: labels begin at {least}, and classes are counted from 0: subtract "
                f"{least}, or add {_CLASS_NAMES} with a name for each number from 0 on; --task "
                f"{REGRESSION} predicts numbers"
            )
        greatest = max(int(part.max(initial=0)) for part in labels)
        return tuple(map(str, range(greatest + 1)))
    names = arrays[_CLASS_NAMES]
    if names.ndim != 1 or names.dtype.kind != "U" or not names.size:
        raise DataError(
            f"{path}: {_CLASS_NAMES} is {names.dtype} of shape {names.shape}, not strings"
        )
    texts = tuple(map(str, names))
    if twice := [text for text, count in Counter(texts).items() if count > 1]:
        raise DataError(f"{path}: {_CLASS_NAMES} has {twice[0]!r} twice: name each class once")
    return texts
