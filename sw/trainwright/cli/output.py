"""Results on the screen, as JSON, and in a folder with pictures."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError, file_errors
from trainwright.report.tables import markdown
from trainwright.support.files import write_whole


def write_results(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files into a folder, which is made if there is none. Raises ``OptionError``."""
    if folder.is_file():
        raise OptionError(f"cannot write to {folder}: it is a file; name a folder")
    with file_errors(f"cannot write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)


def to_json(value: Any) -> str:
    """Return JSON with null for numbers that are not finite, which JSON lacks."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def rows_of(items: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the fields of dataclasses as the rows of a table."""
    return [tuple(vars(item).values()) for item in items]


def plain(items: Iterable[Any]) -> list[dict[str, Any]]:
    """Return dataclasses as plain data for JSON."""
    return [asdict(item) for item in items]


def dict_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of dictionaries, a column for each key that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return markdown(names, [[row.get(name) for name in names] for row in rows])


def show(as_json: bool, content: Mapping[str, Any], text: str) -> int:
    """Print results as JSON or as text, and return the exit status of success."""
    print(to_json(content) if as_json else text.rstrip("\n"))
    return 0


def on_terminal() -> bool:
    """Return whether stderr is a terminal that redraws a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def teller(what: str, interval: float = 5.0) -> Callable[..., None]:
    """Return a callback of (done, total, note) that reports the progress of ``what`` on stderr."""
    told = time.monotonic()
    live = on_terminal()

    def tell(done: int, total: int, note: str = "") -> None:
        nonlocal told
        if done < total and time.monotonic() - told < (0.5 if live else interval):
            return
        told = time.monotonic()
        end = "\n" if done >= total or not live else "\r"
        text = ", ".join(filter(None, (f"{what}: {done:,} of {total:,}", note)))
        print(text, end=end, file=sys.stderr, flush=True)

    return tell


Progress = Callable[..., None]
"""Takes (done, total), and a note to show next to them if there is one."""


@contextmanager
def progress_bar(title: str, interval: float = 30.0) -> Iterator[Progress]:
    """Yield a callback shown on stderr: a bar, or without a terminal lines ``interval`` s apart."""
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
