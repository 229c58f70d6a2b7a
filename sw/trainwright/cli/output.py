"""Results on the screen, as JSON, and in a folder with pictures."""

import atexit
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.support.errors import file_errors
from trainwright.support.files import check_folder, write_whole
from trainwright.support.tables import markdown


# -- results ---------------------------------------------------------------------------------------
def check_results(folder: Path) -> None:
    """Check the folder that ``write_results`` takes, before long work. Raises ``UserError``."""
    if folder.is_file():
        raise OptionError(f"cannot write to {folder}: it is a file; name a folder")
    with file_errors(f"cannot write to {folder}"):
        check_folder(folder)


def write_results(
    folder: Path, files: Mapping[str, bytes | str], replaced: Iterable[str] = ()
) -> None:
    """Write files into a folder, which is made if there is none. Raises ``UserError``.

    Files of earlier results that are ``replaced``, by name, are removed if none is written.
    """
    check_results(folder)
    with file_errors(f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
        for name in {*replaced}.difference(files):
            (folder / name).unlink(missing_ok=True)


def to_json(value: Any, indent: int | None = 1) -> str:
    """Return JSON of plain data and dataclasses, with null for numbers that are not finite."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """Return plain data for JSON: dictionaries in place of dataclasses, None for NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def dict_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of dictionaries, a column for each key that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return markdown(names, [[_cell(row.get(name)) for name in names] for row in rows])


def _cell(value: Any) -> Any:
    """Write a list or dictionary for a cell, its items apart by spaces."""
    if isinstance(value, Mapping):
        value = [f"{name}:{item}" for name, item in value.items()]
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def tell(notes: Iterable[str]) -> None:
    """Print lines for the user on stderr, as stdout may be one JSON object."""
    for note in notes:
        print(note, file=sys.stderr)


def show(as_json: bool, content: Any, text: str) -> int:
    """Print results as JSON or as text, and return the exit status of success."""
    print(to_json(content) if as_json else text.rstrip("\n"))
    return 0


# -- progress --------------------------------------------------------------------------------------
Progress = Callable[..., None]
"""Takes (done, total), and a note to show next to them if there is one."""


def on_terminal() -> bool:
    """Return whether stderr is a terminal that rich redraws."""
    redraws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return redraws and find_spec("rich") is not None


_BARS = Lock()
"""Held while bars change: trials of a sweep are told of by several threads."""


@cache
def _bars() -> Any:
    """Return the bars of this process, which one display redraws together."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    text, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    bars = Progress(
        text, BarColumn(), MofNCompleteColumn(), Left(), note, console=Console(stderr=True)
    )
    atexit.register(bars.stop)  # gives the cursor back, however the process ends
    return bars


def stop_bars() -> None:
    """End the display of bars; the next bar begins another."""
    if on_terminal():
        _bars().stop()
        for task in _bars().task_ids:
            _bars().remove_task(task)


def teller(title: str, interval: float = 5.0) -> Progress:
    """Return a callback that shows progress on stderr: a bar, or lines ``interval`` s apart."""
    if on_terminal():
        return _bar(title)
    told = time.monotonic()

    def tell(done: int, total: int, note: str = "") -> None:
        nonlocal told
        if done >= total or time.monotonic() - told >= interval:
            told = time.monotonic()
            text = ", ".join(filter(None, (f"{title}: {done:,} of {total:,}", note)))
            print(text, file=sys.stderr, flush=True)

    return tell


def _bar(title: str) -> Progress:
    bars = _bars()
    task, full = None, False

    def tell(done: int, total: int, note: str = "") -> None:
        nonlocal task, full
        with _BARS:
            if full and done >= total:
                return  # a training tells its last step twice
            full = done >= total
            if task not in bars.task_ids:  # not begun yet, or ended with all others
                task = bars.add_task(title, note="")
            bars.start()
            bars.update(task, completed=done, total=total, note=note)
            if bars.finished:
                stop_bars()

    return tell
