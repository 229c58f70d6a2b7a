"""Processes that threads of this one wait for, and that end with it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Children:
    """Running processes: an interrupt reaches the main thread alone, which ends them by ``end``."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()

    @contextmanager
    def including(self, process: subprocess.Popen) -> Iterator[None]:
        """Let ``end`` end this process, too, while the block lasts."""
        self._running.add(process)
        try:
            yield
        finally:
            self._running.discard(process)

    def end(self) -> None:
        """Ask all processes to end (SIGTERM)."""
        for process in self._running.copy():
            process.terminate()
