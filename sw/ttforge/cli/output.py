"""Where the results of an experiment go: a folder with pictures and JSON, and the screen."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ttforge.cli.errors import OptionError
from ttforge.files import write_whole


def write_results(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files into a folder that is made if need be. Raises ``OptionError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_whole(folder / name, content)
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


def teller(what: str, interval: float = 5.0) -> Callable[[int, int], None]:
    """A progress callback that tells how far ``what`` is, on stderr, every few seconds."""
    told = time.monotonic()
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def tell(done: int, total: int) -> None:
        nonlocal told
        if done < total and time.monotonic() - told < (0.5 if live else interval):
            return
        told = time.monotonic()
        end = "\n" if done >= total or not live else "\r"
        print(f"{what}: {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)

    return tell
