"""Cache of compiled simulators: one folder an entry, published whole or not at all."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainwright.support.errors import file_errors
from trainwright.support.locks import locked

MOST_BYTES = 1 << 30
"""Bytes of all entries above which the least recently used are removed: about 800 simulators.

A limit on the number of entries does not work: the test suite uses more than 40, most of them of a
few kilobytes."""
_MANIFEST = "manifest.json"


def default_folder() -> Path:
    """Return the cache folder: ``TRAINWRIGHT_CACHE``, or the user's where the system has caches."""
    if named := os.environ.get("TRAINWRIGHT_CACHE"):
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "trainwright"


def least_recent(folder: Path, most_bytes: int) -> Iterator[Path]:
    """Yield entries to remove: all except the latest used ones, of ``most_bytes`` together."""
    entries: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():  # also what killed processes left unpublished
        with suppress(OSError):  # another process removed the entry
            files = [path, *path.iterdir()] if path.is_dir() else [path]
            size = sum(file.stat().st_size for file in files)
            entries.append((path.stat().st_mtime, size, path))
    total = 0
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > most_bytes:
            yield path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of an entry but its manifest."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != _MANIFEST]
    return {path.name: _digest(path) for path in files}


class Cache:
    """Entries by key below one folder. Safe for several processes at a time."""

    def __init__(self, folder: Path | None = None, most_bytes: int = MOST_BYTES):
        self.folder = default_folder() if folder is None else Path(folder)
        self.most_bytes = most_bytes

    def entry(self, key: str) -> Path:
        """Return the folder of an entry, whether it exists or not."""
        return self.folder / "builds" / key

    def log(self, key: str) -> Path:
        """Return the log of the last attempt to build an entry."""
        return self.folder / "logs" / f"{key}.log"

    def find(self, key: str) -> Path | None:
        """Return the folder of an entry with all files as published, or ``None``."""
        folder = self.entry(key)
        try:
            files = json.loads((folder / _MANIFEST).read_text())
            if not files or files != _digests(folder):
                return None
            os.utime(folder)  # for the choice of what to remove
        except (OSError, ValueError, RecursionError):
            return None
        return folder

    @contextmanager
    def building(self, key: str) -> Iterator[Path | None]:
        """Build an entry: yields an empty folder to fill, or ``None`` if another process just did.

        What lies in the folder when the block ends without an exception becomes the entry, in one
        step; otherwise it is removed. One process at a time builds a key. Raises ``FileError``
        where the folder cannot be written to.
        """
        with file_errors(f"cannot write to the cache {self.folder} (TRAINWRIGHT_CACHE names it)"):
            yield from self._build(key)

    def _build(self, key: str) -> Iterator[Path | None]:
        folder = self.entry(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.log(key).parent.mkdir(exist_ok=True)
        with locked(folder.with_suffix(".lock")):  # without locks: publishing is atomic
            if self.find(key) is not None:
                yield None
                return
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                yield part
                (part / _MANIFEST).write_text(json.dumps(_digests(part)))
                shutil.rmtree(folder, ignore_errors=True)  # a corrupt one
                os.replace(part, folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            self._prune()

    def _prune(self) -> None:
        for path in least_recent(self.folder / "builds", self.most_bytes):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
                path.with_suffix(".lock").unlink(missing_ok=True)
                self.log(path.stem).unlink(missing_ok=True)
