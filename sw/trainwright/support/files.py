"""Files that are whole or not there at all, and tables in the package."""

import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import SEEK_END
from pathlib import Path
from typing import Any


def packaged(module: str, name: str) -> dict[str, Any]:
    """Return the TOML file ``name`` next to a module, whose ``__file__`` is given."""
    return tomllib.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


@contextmanager
def folder_of_files(folder: Path) -> Iterator[None]:
    """Make a folder for files that the block writes; a new one that stays empty is removed.

    Raises ``OSError`` before the block if files cannot be written there.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        yield
    finally:
        for path in missing:
            with suppress(OSError):  # it has files, as it should
                path.rmdir()


def check_folder(folder: Path) -> None:
    """Check that files can be written to a folder; without it, it is not there afterwards either.

    Raises ``OSError``.
    """
    with folder_of_files(folder):
        pass


def write_whole(path: Path, content: bytes | str) -> None:
    """Write ``path`` so that a reader, or a crash, sees the old content or the new, never a part.

    The content goes to a temporary file in the same folder, to the disk, and then takes the name.
    Raises ``OSError``.
    """
    data = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def append_line(path: Path, text: str) -> None:
    """Append a line to a file, on a line of its own also where the last one was cut off."""
    with path.open("ab+") as file:
        if file.seek(0, SEEK_END):
            file.seek(-1, SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(f"{text}\n".encode())
