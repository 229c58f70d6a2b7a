"""Locks between processes, which vanish with the process that holds them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class Locked(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the file ``path``, which is created if need be; its folder exists.

    Without ``wait`` a lock that is held raises ``Locked``. Where the system or the file system has
    no locks, nothing is locked. Raises ``OSError`` where the file cannot be opened.
    """
    while True:
        with path.open("a") as file:
            _lock(file, wait=wait)
            if _is_there(file, path):
                yield
                return
        # Who held it removed the file: the next one to come would lock another.


LOCK = ".lock"
"""File of a folder in which a process is at work."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Keep other processes from a folder that exists. Raises ``Locked`` where it is claimed."""
    path = folder / LOCK
    with locked(path, wait=False):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _lock(file: TextIO, *, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:  # released when the file closes, or the process dies
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise Locked(file.name) from None
    except OSError:  # a file system without locks
        return


def _is_there(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
