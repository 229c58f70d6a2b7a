"""Fetching the files of MNIST and Fashion-MNIST, checked against the published SHA-256.

Nothing is fetched unless it is asked for (``trainwright train --download``). A file that was
fetched whole stays when another fails, so that the next attempt goes on with what is missing.
"""

import hashlib
import sys
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from trainwright.data.dataset import DataError
from trainwright.support.files import packaged, write_whole

TIMEOUT = 30.0
"""Seconds that a mirror may be silent."""
_CHUNK = 1 << 16

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there and the bytes there will be."""


@dataclass(frozen=True)
class RemoteFile:
    """File as it was published."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """Places of a data set: base URLs, each with all files below it."""

    mirrors: Sequence[str]
    files: Sequence[RemoteFile]


PUBLISHED = packaged(__file__, "published.toml")
SOURCES = {
    name: Source(entry["mirrors"], [RemoteFile(**file) for file in entry["files"]])
    for name, entry in PUBLISHED.items()
}
"""Mirrors and files of each data set, by its name."""


def tell_progress(name: str, done: int, total: int) -> None:
    """Report progress on stderr: a line a file when it is complete, redrawn on a terminal."""
    if done == total:
        print(f"{name}: {total:,} bytes", file=sys.stderr, flush=True)
    elif sys.stderr.isatty():
        print(f"{name}: {done / total:.0%}", end="\r", file=sys.stderr, flush=True)


def fetch(url: str, file: RemoteFile, progress: Progress = tell_progress) -> bytes:
    """Return the content behind a URL (http, https or file), its size and SHA-256 checked.

    Raises ``DataError`` where it cannot be had or is another file. Never reads more than one byte
    over the expected size.
    """
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            while block := answer.read(min(_CHUNK, file.size + 1 - len(content))):
                content += block
                if len(content) < file.size:
                    progress(file.name, len(content), file.size)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url}: {reason or type(error).__name__}") from None
    if len(content) != file.size:
        sort = "truncated" if len(content) < file.size else "longer than it should be"
        raise DataError(f"{url}: {sort}, {len(content):,} bytes and not {file.size:,}")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise DataError(f"{url}: another file, SHA-256 {digest[:16]}... not {file.sha256[:16]}...")
    progress(file.name, file.size, file.size)
    return bytes(content)


def download(
    name: str,
    folder: Path,
    wanted: Sequence[str],
    *,
    source: Source | None = None,
    progress: Progress = tell_progress,
) -> None:
    """Fetch the files of a data set whose names begin with one of ``wanted`` into ``folder``.

    Mirrors are tried in order. Each file is written whole or not at all; the folder is made where
    there is none. Raises ``DataError`` in one line that says what each mirror answered.
    """
    source = source or SOURCES[name]
    new_folder = not folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in source.files:
            if any(file.name.startswith(stem) for stem in wanted):
                write_whole(folder / file.name, _from_any(name, source, file, progress))
    except OSError as error:
        raise DataError(f"cannot write to {folder}: {error.strerror}") from None
    except DataError:
        if new_folder:
            with suppress(OSError):  # files that came whole stay, and the folder with them
                folder.rmdir()
        raise


def _from_any(name: str, source: Source, file: RemoteFile, progress: Progress) -> bytes:
    complaints = []
    for mirror in source.mirrors:
        try:
            return fetch(mirror + file.name, file, progress)
        except DataError as error:
            complaints.append(str(error))
    raise DataError(
        f"cannot download {name!r}: {'; '.join(complaints)}; try again later, or fetch "
        f"{file.name} by other means and give its folder with --data"
    )
