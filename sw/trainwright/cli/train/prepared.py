"""Own data that a sweep reads once and hands to its trials as a file of arrays."""

import hashlib
from pathlib import Path
from typing import Any

import torch

from trainwright.cli.errors import OptionError
from trainwright.cli.train.job import RunOptions, load_data
from trainwright.data import DataSet, Split
from trainwright.data.registry import OWN
from trainwright.support.errors import file_errors
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE
from trainwright.support.tensor_file import CheckpointError, decode, encode

FORMAT = "trainwright-data-1"
_ARRAYS = ("images", "labels", "tags")
"""Arrays of a split; only lines of text have the last one."""


def save_prepared(path: Path, data: DataSet) -> None:
    """Write a data set. Raises ``OptionError``."""
    tensors = {
        f"{part}.{name}": torch.from_numpy(getattr(split, name).copy())
        for part, split in (("train", data.train), ("test", data.test))
        for name in _ARRAYS
        if getattr(split, name) is not None
    }
    plain: dict[str, Any] = {
        name: value for name, value in vars(data).items() if not isinstance(value, Split)
    }
    if data.preparation is not None:
        plain["preparation"] = dict(data.preparation)
    with file_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, encode({"format": FORMAT, "data": plain}, tensors))


def load_prepared(path: Path) -> DataSet:
    """Read a data set that ``save_prepared`` wrote. Raises ``OptionError``."""
    try:
        metadata, tensors = decode(path, FORMAT)
        plain = metadata["data"]
        splits = {
            part: Split(
                **{n: tensors[k].numpy() for n in _ARRAYS if (k := f"{part}.{n}") in tensors}
            )
            for part in ("train", "test")
        }
        lists = {name: tuple(plain[name]) for name in ("class_names", "notes", "tag_names")}
        scale = plain["scale"] and tuple(plain["scale"])
        return DataSet(**{**plain, **lists, **splits, "scale": scale})
    except (CheckpointError, *NONSENSE) as error:
        raise OptionError(f"the sweep's data {path}: {error}; start the sweep again") from None


class DataShelf:
    """Data sets of a sweep: own ones are read once for all trials that read them alike."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, DataSet] = {}
        self._written: dict[str, Path] = {}

    def load(self, options: RunOptions) -> DataSet:
        """Return the data set of a trial. Raises ``DataError``."""
        key = _reading(options)
        if key not in self._read:
            self._read[key] = load_data(options, fetch=False)
        return self._read[key]

    def file(self, options: RunOptions) -> Path | None:
        """Return the file with a trial's data, where it is own data. Raises ``OptionError``."""
        if options.dataset not in (*OWN, "npz"):
            return None
        key = _reading(options)
        if key not in self._written:
            digest = hashlib.sha256(key.encode()).hexdigest()[:8]
            self._written[key] = (self._folder / f"data-{digest}.safetensors").absolute()
            save_prepared(self._written[key], self.load(options))
        return self._written[key]


def _reading(options: RunOptions) -> str:
    """Return what decides how data is read, whatever else trials differ in."""
    names = ("dataset", "data", "target", "ignore", "category", "image_size", "task")
    return repr([getattr(options, name) for name in names])
