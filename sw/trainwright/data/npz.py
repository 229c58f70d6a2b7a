"""Any data set in a NumPy ``.npz``: arrays of images and of labels, never code.

Names of the arrays: ``x_train``, ``y_train``, ``x_test``, ``y_test`` (Keras), ``train_images``,
``train_labels``, ``test_images``, ``test_labels`` (MedMNIST), or one set ``images``, ``labels`` (or
``x``, ``y``) that is split here. ``class_names`` (strings) may be beside them.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.data.arrays import read_arrays
from trainwright.data.dataset import DataError, DataSet, Split

SPLIT_SEED = 0
TEST_PART = 5
"""Samples for each sample that goes into the test split, where a file has no test split."""
FULL_SCALE = 255
NUMBERS_ADVICE = (
    "numbers are predicted from tables: write pixels and target as columns of a .csv or .parquet, "
    "and give it with --data FILE --target COLUMN --task regression"
)
_SPLITS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
_WHOLES = (("images", "labels"), ("x", "y"))
_CLASS_NAMES = "class_names"


def load_npz(
    path: str | PathLike[str], *, name: str = "npz", class_names: Sequence[str] | None = None
) -> DataSet:
    """Read a data set from an ``.npz``.

    Images are uint8, or floating point from 0 to 1 and then rounded to 255 levels, half to even;
    (samples, rows, columns), with or without one channel at either place. Labels are integers from
    0, (samples,) or (samples, 1). ``class_names`` come from the argument, the file, or are numbers.
    A file with one set is split by ``RandomState(0).permutation``: the last fifth is the test
    split. Raises ``DataError`` in one line for anything else.
    """
    path = Path(path)
    known = {name for names in (*_SPLITS, *_WHOLES) for name in names} | {_CLASS_NAMES}
    arrays = read_arrays(path, known)
    splits = _splits(path, arrays)
    if splits["train"].images.shape[1:] != splits["test"].images.shape[1:]:
        raise DataError(f"{path}: train and test images differ in size")
    names = class_names or _names(path, arrays, splits)
    channels = 3 if any(map(_is_rgb, arrays.values())) else 1
    train, test = splits["train"], splits["test"]
    try:
        return DataSet(name, train, test, FULL_SCALE, tuple(names), channels=channels)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def _splits(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Split]:
    for names in (*_SPLITS, *_WHOLES):
        absent = [name for name in names if name not in arrays]
        if not absent:
            pairs = [
                _split(path, arrays, images, labels)
                for images, labels in zip(names[::2], names[1::2], strict=True)
            ]
            train, test = pairs if len(pairs) > 1 else _cut(path, pairs[0])
            return {"train": train, "test": test}
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
        raise DataError(
            f"{path}: {name} has shape {array.shape}, not (samples, rows, columns) of grey images "
            "or (samples, rows, columns, 3) of RGB"
        )
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind != "f":
        raise DataError(
            f"{path}: {name} is {array.dtype}, not uint8 (0 to 255) or floating point (0 to 1)"
        )
    if not np.isfinite(array).all():
        where = tuple(int(n) for n in np.argwhere(~np.isfinite(array))[0])
        raise DataError(f"{path}: {name} has {array[where]} at {where}; pixels are from 0 to 1")
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        raise DataError(
            f"{path}: {name} has values from {low:g} to {high:g}; floating-point pixels are from "
            "0 to 1"
        )
    return np.rint(array.astype(np.float64) * FULL_SCALE).astype(np.uint8)


def _labels(path: Path, name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{path}: {name} has shape {array.shape}, not (samples,)")
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{path}: {name} is {array.dtype}; labels are integers from 0; {NUMBERS_ADVICE}"
        )
    if array.size and not 0 <= array.min() <= array.max() <= 255:
        raise DataError(
            f"{path}: {name} has labels from {array.min()} to {array.max()}, not within 0 to 255; "
            f"{NUMBERS_ADVICE}"
        )
    return array.astype(np.uint8)


def cut_off_test(path: Path, samples: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return an order of so many samples, and how many at its end are the test split.

    Raises `DataError` where there are too few.
    """
    test = samples // TEST_PART
    if not test:
        raise DataError(
            f"{path}: {samples} samples are too few to split, at least {TEST_PART} are needed"
        )
    return np.random.RandomState(SPLIT_SEED).permutation(samples), test


def _cut(path: Path, whole: Split) -> list[Split]:
    order, test = cut_off_test(path, len(whole))
    return [
        Split(whole.images[part], whole.labels[part]) for part in (order[:-test], order[-test:])
    ]


def _names(
    path: Path, arrays: dict[str, npt.NDArray[Any]], splits: dict[str, Split]
) -> tuple[str, ...]:
    if _CLASS_NAMES not in arrays:
        least = min(int(split.labels.min(initial=255)) for split in splits.values())
        if least > 0:
            raise DataError(
                f"{path}: labels begin at {least}, and classes are counted from 0: subtract "
                f"{least}, or add {_CLASS_NAMES} with a name for each number from 0 on"
            )
        greatest = max(int(split.labels.max(initial=0)) for split in splits.values())
        return tuple(map(str, range(greatest + 1)))
    names = arrays[_CLASS_NAMES]
    if names.ndim != 1 or names.dtype.kind != "U" or not names.size:
        raise DataError(
            f"{path}: {_CLASS_NAMES} is {names.dtype} of shape {names.shape}, not strings"
        )
    return tuple(map(str, names))
