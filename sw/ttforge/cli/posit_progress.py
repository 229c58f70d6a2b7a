"""How far a training run in posits is: a bar on a terminal, else a line now and then."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttforge.posit.experiments.training import Run

Progress = Callable[[int, int, "Run"], None]
_INTERVAL = 30.0
"""Seconds between lines."""


def _note(run: "Run") -> str:
    loss = f"loss {run.loss / run.done:.4f}" if run.done else ""
    test = f"test {run.epochs[-1].accuracy:.2%}" if run.epochs else ""
    return ", ".join(filter(None, (f"epoch {len(run.epochs) + bool(run.done)}", loss, test)))


@contextmanager
def training_progress(title: str) -> Iterator[Progress]:
    """A callback of (images done, images in all, the run)."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _bar(title) as progress:
            yield progress
    else:
        yield _lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
               TimeRemainingColumn())  # fmt: skip
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=None, note="")

        def progress(done: int, total: int, run: "Run") -> None:
            bars.update(task, completed=done, total=total, note=_note(run))

        yield progress


def _lines(title: str) -> Progress:
    told = time.monotonic()

    def progress(done: int, total: int, run: "Run") -> None:
        nonlocal told
        if time.monotonic() - told > _INTERVAL or (run.epochs and not run.done):
            told = time.monotonic()
            print(f"{title}: {done:,} of {total:,}, {_note(run)}", file=sys.stderr, flush=True)

    return progress
