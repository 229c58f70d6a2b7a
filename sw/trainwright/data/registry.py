"""Data sets by name, and where their files are looked for."""

import os
from pathlib import Path

from trainwright.data.dataset import DataError, DataSet
from trainwright.data.digits import load_digits_data
from trainwright.data.download import PUBLISHED, SOURCES, download
from trainwright.data.idx import STEMS, missing, read_split
from trainwright.data.npz import load_npz
from trainwright.data.own import (
    TABLE_SUFFIXES,
    OwnOptions,
    Preparation,
    load_own,
    own_kind,
)
from trainwright.data.picture_files import PICTURES
from trainwright.data.sentences import TEXT
from trainwright.support.native.cache import default_folder
from trainwright.support.text import suggestion
from trainwright.support.waiting import say, waiting

DATA_SETS = ("digits", "fashion-mnist", "mnist", "npz", "table", "text", "pictures")
OWN = ("table", "text", "pictures")
"""Names of data of a user's own, as `own_kind` tells them apart; `npz` is one more."""
NPZ = ".npz"

_CLASS_NAMES = {name: tuple(entry["class_names"]) for name, entry in PUBLISHED.items()}
_FILES = tuple(stem for pair in STEMS.values() for stem in pair)


def cache_folder(name: str) -> Path:
    """Return the folder for files of a data set that was downloaded without naming a folder."""
    return default_folder() / "data" / name


def own_data(root: str | os.PathLike[str] | None, *, sequences: bool = False) -> str | None:
    """Return the name of the data set that a file or folder of a user's own is, else None.

    A network of ``sequences`` reads lines of text as such.
    """
    if root is None:
        return None
    return "npz" if is_npz(root) else own_kind(Path(root), sequences=sequences)


def is_npz(root: str | os.PathLike[str] | None) -> bool:
    """Return whether ``root`` names an ``.npz`` file and not a folder."""
    return root is not None and Path(root).suffix.lower() == NPZ


def load_data_set(
    name: str,
    root: str | os.PathLike[str] | None = None,
    *,
    fetch: bool = False,
    own: OwnOptions | None = None,
    preparation: Preparation | None = None,
) -> DataSet:
    """Load a data set whole.

    ``digits`` needs no files and takes no ``root``; ``npz`` is any user's, read from the file
    ``root``. The others are read from ``root``/``name`` or ``root`` itself, or from an ``.npz``;
    without ``root`` the environment variable TRAINWRIGHT_DATA names it, or else the user's cache
    folder does. With ``fetch`` files that are not there are downloaded first. An ``.npz`` is read
    with the classes or the scale of a model's ``preparation``. Raises ``DataError`` in one line for
    an unknown name, a missing folder or file, and a file that is not sound.
    """
    if name == "":
        raise DataError("the network names no data set: give data of your own with --data")
    if name not in DATA_SETS:
        raise DataError(
            f"unknown data set {name!r}; there are {', '.join(DATA_SETS)}"
            f"{suggestion(name, DATA_SETS)}"
        )
    if fetch and (name in (*OWN, "npz", "digits") or is_npz(root)):
        raise DataError(
            f"--download fetches {' and '.join(SOURCES)}, {name!r} is none of them: omit it"
        )
    if name in OWN:
        return _load_own_kind(name, root, own or OwnOptions())
    if root is not None and not is_npz(root) and Path(root).is_file():
        if own_kind(Path(root)) is not None:
            raise DataError(f"--data {root} is data of your own, not {name!r}: omit --dataset")
        raise DataError(
            f"--data: {root} has no known suffix: unpack it, or convert it to one of "
            f"{', '.join((NPZ, *TABLE_SUFFIXES))}"
        )
    task = own and own.task
    if own not in (None, OwnOptions(), OwnOptions(task=task) if is_npz(root) else None):
        raise DataError(
            "--target, --ignore, --category, --task and --image-size only apply to tables and "
            "pictures: omit them, or name a file with --data"
        )
    if name == "npz" and not is_npz(root):
        raise DataError(f"data set 'npz' is a file: give --data FILE{NPZ}")
    if name == "digits":
        if root is not None:
            if not Path(root).exists():
                raise DataError(f"--data: there is no file or folder {str(root)!r}")
            raise DataError(
                "data set 'digits' comes with scikit-learn and has no files: omit --data "
                f"{str(root)!r}, or name the data set that is stored there with --dataset; a "
                f"folder of pictures has {', '.join(PICTURES)} files"
            )
        return load_digits_data()
    if root is not None and is_npz(root):
        return load_npz(
            root, name=name, class_names=_CLASS_NAMES.get(name), task=task, preparation=preparation
        )
    folder = _folder(name, root, fetch=fetch)
    train, test = read_split(folder, "train"), read_split(folder, "test")
    if train.images.shape[1:] != test.images.shape[1:]:
        raise DataError(f"{folder}: train and test images differ in size")
    return DataSet(name, train, test, full_scale=255, class_names=_CLASS_NAMES[name])


def _load_own_kind(name: str, root: str | os.PathLike[str] | None, own: OwnOptions) -> DataSet:
    """Load data of a user's own; ``DataError`` unless ``root`` is of the kind ``name``."""
    kind = None if root is None else own_kind(Path(root), sequences=name == "text")
    if root is None or kind != name:
        what = f"--data {str(root)!r} is none" if root else "give it with --data"
        wanted = {
            "table": f"a file {', '.join(TABLE_SUFFIXES)}",
            "text": f"a file {TEXT}, or a folder with train{TEXT} or train/seq.in,",
        }.get(name, "a folder")
        raise DataError(f"data set {name!r} is {wanted} of your own: {what}")
    with waiting(say, f"reading {root}"):
        return load_own(Path(root), own, name)


def _folder(name: str, root: str | os.PathLike[str] | None, *, fetch: bool) -> Path:
    """Return the folder that has the four files of a data set, after fetching them if asked to."""
    option = "--data DIR"
    if root is None:
        root = os.environ.get("TRAINWRIGHT_DATA")
        option = "TRAINWRIGHT_DATA"
    if not root:
        return _cached(name, fetch=fetch)
    base = Path(root)
    if fetch and all(missing(folder) for folder in (base / name, base)):
        _fetch(name, base / name)
    return _given(name, base, option)


def _fetch(name: str, folder: Path) -> None:
    download(name, folder, missing(folder), source=SOURCES[name])


def _cached(name: str, *, fetch: bool) -> Path:
    folder = cache_folder(name)
    if fetch and missing(folder):
        _fetch(name, folder)
    if missing(folder):
        raise DataError(
            f"data set {name!r} needs its files: give --data DIR or set TRAINWRIGHT_DATA to a "
            f"folder with {name}/ or with {_listed()}, or add --download"
        )
    return folder


def _given(name: str, base: Path, option: str) -> Path:
    if not base.is_dir():
        raise DataError(
            f"{option}: no such folder {str(base)!r}; data set {name!r} needs {_listed()}"
        )
    for folder in (base / name, base):
        absent = missing(folder)
        if not absent:
            return folder
        if len(absent) < len(_FILES):
            raise DataError(
                f"{folder} lacks {', '.join(absent)} (plain or .gz) for {name!r}; --download "
                "fetches what is missing"
            )
    raise DataError(
        f"{option}: neither {base / name} nor {base} has the files of {name!r}: {_listed()}; "
        "--download fetches them"
    )


def _listed() -> str:
    return ", ".join(f"{stem}.gz" for stem in _FILES) + " (plain or .gz)"
