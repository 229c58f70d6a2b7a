"""Progress lines about steps that keep a user waiting."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FIRST_SECONDS = 2.0
"""Silence after which a step is announced: shorter ones need no line."""
MOST_SECONDS = 60.0
"""Longest silence afterwards. Pauses double up to it, so that an hour makes about 60 lines."""
SO_FAR = " s so far"
"""Text of each line of a step that keeps a user waiting, by which a sweep knows those of trials."""


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"trainwright: {line}", file=sys.stderr, flush=True)


@contextmanager
def waiting(
    progress: Callable[[str], None],
    what: str,
    *,
    detail: Callable[[], str] = lambda: "",
    first_seconds: float = FIRST_SECONDS,
) -> Iterator[None]:
    """Report ``what`` is going on while the block runs, once it takes ``first_seconds``.

    Each line says how long it has taken, and what ``detail`` returns then, such as a log's last
    line. ``progress`` is called from another thread; no call is under way once the block is left.
    """
    done, begin = threading.Event(), time.monotonic()

    def report() -> None:
        pause = first_seconds
        while not done.wait(pause):
            more = detail()
            progress(
                f"{what}: {time.monotonic() - begin:.0f}{SO_FAR}" + (f"; {more}" if more else "")
            )
            pause = min(max(2 * pause, 5 * FIRST_SECONDS), MOST_SECONDS)

    thread = threading.Thread(target=report, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def last_line(path: Path, *, most: int = 100) -> str:
    """Return the last line of a growing log that is not blank, cut to ``most`` characters."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:most] if lines else ""
