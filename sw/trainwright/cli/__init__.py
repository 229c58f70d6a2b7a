"""The command line: ``trainwright train``, ``check``, and what other packages register."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import NoReturn


def _interrupt(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(number)


@contextmanager
def _ending_as_interrupted() -> Iterator[None]:
    """Let ``kill`` and a closed terminal end a command like Ctrl-C: its tools and trials end too.

    Signals that the caller handles or ignores (``nohup``) stay as they are.
    """
    names = ("SIGTERM", "SIGHUP") if current_thread() is main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``trainwright`` with these arguments (default: the process's); the exit status.

    Imports are made here, so that Ctrl-C gives one line even during the slow imports.
    """
    try:
        with _ending_as_interrupted():
            from trainwright.cli import core

            return core.main(argv)
    except KeyboardInterrupt as error:
        print("trainwright: interrupted", file=sys.stderr)
        # Python remembers an interrupt inside exec or eval of a text (dataclasses) as
        # unhandled, even once it is caught, and kills itself at exit. Another exec forgets it.
        exec("")
        return 128 + (error.args or (signal.SIGINT,))[0]
