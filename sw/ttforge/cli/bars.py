"""A progress bar for long runs on a terminal, and lines now and then elsewhere."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ttforge.cli.output import teller

Progress = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, interval: float = 30.0) -> Iterator[Progress]:
    """A callback of (done, total), on stderr; ``interval`` seconds lie between lines."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield teller(title, interval)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
