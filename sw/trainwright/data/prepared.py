"""Data sets in a file of arrays, as a sweep hands them to its trials."""

from pathlib import Path
from typing import Any

import torch

from trainwright.data.dataset import DataError, DataSet, Split
from trainwright.support.errors import file_errors
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE
from trainwright.support.tensor_file import CheckpointError, decode, encode

FORMAT = "trainwright-data-1"
_ARRAYS = ("images", "labels", "tags")
"""Arrays of a split; only splits of text have ``tags``."""


def save_prepared(path: Path, data: DataSet) -> None:
    """Write a data set. Raises ``FileError``."""
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
    """Read a data set that ``save_prepared`` wrote. Raises ``DataError``."""
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
        raise DataError(f"the sweep's data {path}: {error}; start the sweep again") from None
