"""Data sets by name, and where their files are looked for."""

import os
from pathlib import Path

from ttforge.data.dataset import DataError, DataSet
from ttforge.data.digits import load_digits_data
from ttforge.data.idx import STEMS, missing, read_split

DATA_SETS = ("digits", "fashion-mnist", "mnist")

_CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
}


def _folder(name: str, root: str | os.PathLike[str] | None) -> Path:
    option = "--data DIR"
    if root is None:
        root = os.environ.get("TTFORGE_DATA")
        option = "TTFORGE_DATA"
    files = ", ".join(f"{stem}.gz" for pair in STEMS.values() for stem in pair)
    if not root:
        raise DataError(
            f"data set {name!r} needs its files: give --data DIR or set TTFORGE_DATA to a folder "
            f"with {name}/ or with {files} (plain or .gz)"
        )
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"{option}: no such folder {str(base)!r}; data set {name!r} needs {files}")
    for folder in (base / name, base):
        absent = missing(folder)
        if not absent:
            return folder
        if len(absent) < 4:
            raise DataError(f"{folder} lacks {', '.join(absent)} (plain or .gz) for {name!r}")
    raise DataError(
        f"{option}: neither {base / name} nor {base} has the files of {name!r}: {files} "
        "(plain or .gz)"
    )


def load_data_set(name: str, root: str | os.PathLike[str] | None = None) -> DataSet:
    """Load a data set whole.

    ``digits`` needs no files. The others are read from ``root``/``name`` or ``root`` itself;
    without ``root`` the environment variable TTFORGE_DATA names it. Raises ``DataError`` in one
    line for an unknown name, a missing folder or file, and a file that is not sound.
    """
    if name == "digits":
        return load_digits_data()
    if name not in DATA_SETS:
        raise DataError(f"unknown data set {name!r}; there are {', '.join(DATA_SETS)}")
    folder = _folder(name, root)
    train, test = read_split(folder, "train"), read_split(folder, "test")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise DataError(f"{folder}: train and test images differ in size")
    return DataSet(name, train, test, full_scale=255, class_names=_CLASS_NAMES[name])
