"""Processes that threads of this one wait for, and that end with it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

_T = TypeVar("_T")
LOOK_SECONDS = 0.5
"""Longest wait, in seconds, in which Python sees no signal."""


class Children:
    """Running processes: an interrupt reaches the main thread alone, which ends them by ``end``."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._closed = False

    @contextmanager
    def including(self, process: subprocess.Popen) -> Iterator[None]:
        """Let ``end`` end this process, too, while the block lasts."""
        self._running.add(process)
        if self._closed:  # started by a thread after the interrupt
            _terminate(process)
        try:
            yield
        finally:
            self._running.discard(process)

    def end(self) -> None:
        """Ask all processes, and those of the groups that they lead, to end (SIGTERM)."""
        for process in self._running.copy():
            _terminate(process)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """End all processes, and those that start later, where an interrupt ends the block."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, Exception):
                self._closed = True
                self.end()
            raise


def result_of(future: Future[_T]) -> _T:
    """Return a future's result, in the thread that interrupts reach.

    Python sees a signal that arrives on the way into an endless wait only after that wait.
    """
    while not future.done():
        wait([future], LOOK_SECONDS)
    return future.result()


def _terminate(process: subprocess.Popen) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGTERM)
                return
    process.terminate()
