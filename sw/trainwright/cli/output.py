"""Where the results of an experiment go: a folder with pictures and JSON, and the screen."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.support.files import write_whole


def write_results(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files into a folder, which is made if there is none. Raises ``OptionError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
    except FileExistsError:
        raise OptionError(f"cannot write to {folder}: it is a file; name a folder") from None
    except OSError as error:
        raise OptionError(f"cannot write to {folder}: {error.strerror}") from None


def to_json(value: Any) -> str:
    """JSON with null for what is not finite, which JSON has no numbers for."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def on_terminal() -> bool:
    """Whether stderr is a terminal that redraws a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def teller(what: str, interval: float = 5.0) -> Callable[..., None]:
    """A callback of (done, total, note) that reports the progress of ``what`` on stderr."""
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
