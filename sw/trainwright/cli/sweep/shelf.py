"""Own data that a sweep reads once and hands to its trials as a file of arrays."""

import hashlib
from dataclasses import replace
from pathlib import Path

from trainwright.cli.sweep.spec import Point
from trainwright.cli.train.job import RunOptions, load_data
from trainwright.data import DataSet
from trainwright.data.prepared import save_prepared
from trainwright.data.registry import OWN
from trainwright.support.memo import CachedMethod


class DataShelf:
    """Data sets of a sweep: own ones are read once for all trials that read them alike."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, DataSet] = {}

    def load(self, options: RunOptions) -> DataSet:
        """Return the data set of a trial. Raises ``DataError``."""
        key = _reading(options)
        if key not in self._read:
            self._read[key] = load_data(options, fetch=False)
        return self._read[key]

    def placed(self, trial: Point, options: RunOptions) -> Point:
        """Return a trial of own data in a folder by their content, with a file of them to train.

        A finished trial has no file. Raises ``OptionError`` where the file cannot be written.
        """
        if options.dataset not in (*OWN, "npz"):
            return trial
        self.load(options)
        key = _reading(options)
        folder = trial.folder.with_name(f"{trial.folder.name}-{self._digest(key)}")
        trial = replace(trial, folder=folder)
        return trial if trial.finished else replace(trial, prepared=self._file(key))

    @CachedMethod
    def _digest(self, key: str) -> str:
        """Return a digest of all arrays of data that were read."""
        digest = hashlib.sha256()
        for part in self._read[key].splits:
            for array in (part.images, part.labels, part.tags):
                digest.update(b"" if array is None else array.tobytes())
        return digest.hexdigest()[:8]

    @CachedMethod
    def _file(self, key: str) -> Path:
        """Write data that were read, and return their file. Raises ``OptionError``."""
        digest = hashlib.sha256(key.encode()).hexdigest()[:8]
        path = (self._folder / f"data-{digest}.safetensors").absolute()
        save_prepared(path, self._read[key])
        return path


def _reading(options: RunOptions) -> str:
    """Return what decides how data is read, whatever else trials differ in."""
    names = ("dataset", "data", "target", "ignore", "category", "image_size", "task")
    return repr([getattr(options, name) for name in names])
