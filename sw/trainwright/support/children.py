"""Processes that threads of this one wait for, and that end with it."""

import atexit
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import cache
from subprocess import DEVNULL, Popen
from threading import Lock
from typing import TypeVar

_T = TypeVar("_T")
LOOK_SECONDS = 0.5
"""Longest wait, in seconds, in which Python sees no signal."""
_WATCH = """\
live=
while read -r sign id && [ "$sign" != . ]; do
  rest=
  for other in $live; do [ "$other" = "$id" ] || rest="$rest $other"; done
  live=$rest
  [ "$sign" = - ] || live="$live $id"
done
for id in $live; do kill -s TERM -- "$id"; done
"""
"""Shell script that reads which processes begin (+) and end (-), up to a line "." or the end of the
pipe, which the system closes however its writer ends; then it ends those that go on."""
_STARTING = Lock()


class Children:
    """Running processes: an interrupt reaches the main thread alone, which ends them by ``end``."""

    def __init__(self) -> None:
        self._running: set[Popen] = set()
        self._closed = False

    @contextmanager
    def including(self, process: Popen) -> Iterator[None]:
        """Let ``end`` end this process, too, while the block lasts."""
        self._running.add(process)
        if self._closed:  # started by a thread after the interrupt
            _terminate(process)
        try:
            with ended_with_this(process):
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


@contextmanager
def ended_with_this(process: Popen) -> Iterator[None]:
    """End a process, and those of the group that it leads, if this one is killed in the block.

    A killed process runs no code: a shell does so in its place. Without one, as on Windows, the
    process goes on.
    """
    with _STARTING:
        pipe = _watcher(os.getpid())  # a fork has a watcher of its own
    name = f"{-process.pid if _leads(process) else process.pid}\n".encode()
    _tell(pipe, b"+ " + name)
    try:
        yield
    finally:
        _tell(pipe, b"- " + name)


@cache
def _watcher(owner: int) -> int | None:
    """Start the shell that watches the process ``owner``, this one; return the pipe to it."""
    if os.name != "posix":
        return None
    reads, writes = os.pipe()
    try:
        # A session of its own, as signals of the terminal, such as Ctrl-C, are for the others.
        shell = Popen(
            ["/bin/sh", "-c", _WATCH], stdin=reads, stdout=DEVNULL,
            stderr=DEVNULL, cwd="/", start_new_session=True,
        )  # fmt: skip
    except OSError:
        os.close(writes)
        return None
    finally:
        os.close(reads)

    def stop() -> None:
        if os.getpid() == owner:
            _tell(writes, b". 0\n")  # forks may hold the pipe open
            shell.wait()
            os.close(writes)

    atexit.register(stop)
    return writes


def _tell(pipe: int | None, line: bytes) -> None:
    if pipe is not None:
        with suppress(OSError):  # the shell was killed
            os.write(pipe, line)


def _leads(process: Popen) -> bool:
    """Return whether a process, which has not ended, leads a group."""
    if os.name != "posix":
        return False
    with suppress(ProcessLookupError):
        return os.getpgid(process.pid) == process.pid
    return False


def result_of(future: Future[_T]) -> _T:
    """Return a future's result, in the thread that interrupts reach.

    Python sees a signal that arrives on the way into an endless wait only after that wait.
    """
    while not future.done():
        wait([future], LOOK_SECONDS)
    return future.result()


def _terminate(process: Popen) -> None:
    if _leads(process):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            return
    process.terminate()
