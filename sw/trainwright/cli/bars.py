"""Progress of long runs: a bar on a terminal, occasional lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainwright.cli.output import on_terminal, teller

Progress = Callable[..., None]
"""Told (done, total), and a note to show beside them if there is one."""


@contextmanager
def progress_bar(title: str, interval: float = 30.0) -> Iterator[Progress]:
    """A callback, shown on stderr; ``interval`` seconds lie between lines."""
    if not on_terminal():
        yield teller(title, interval)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=None, note="")

        def progress(done: int, total: int, note: str = "") -> None:
            bars.update(task, completed=done, total=total, note=note)

        yield progress
