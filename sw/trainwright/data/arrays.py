"""The arrays of an ``.npz`` file, whatever it was packed with: numbers and text, never code."""

import io
import zipfile
from collections.abc import Container
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from trainwright.data.content import MOST_BYTES, read_stated
from trainwright.data.dataset import DataError
from trainwright.support.errors import reason_of
from trainwright.support.text import amount

Arrays = dict[str, npt.NDArray[Any]]


def read_arrays(path: Path, wanted: Container[str] | None = None) -> Arrays:
    """Return the arrays of a file, or those ``wanted``, by name.

    Raises ``DataError`` in one line for a file that cannot be read, is damaged, holds objects, or
    unpacks to more than ``MOST_BYTES`` an array.
    """
    try:
        with path.open("rb") as raw:
            return _read(path, raw, wanted)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None


def _read(path: Path, raw: BinaryIO, wanted: Container[str] | None) -> Arrays:
    if raw.read(2) != b"PK":
        raise DataError(f"{path}: not an .npz file, which is a zip archive of .npy arrays")
    try:
        archive = zipfile.ZipFile(raw)
    except Exception as error:  # whatever its parser trips over
        raise DataError(f"{path}: truncated or damaged ({_reason(error)})") from None
    arrays: Arrays = {}
    with archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if wanted is None or name in wanted:
                arrays[name] = _member(path, archive, member, name)
    return arrays


def _member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str
) -> npt.NDArray[Any]:
    if member.file_size > MOST_BYTES:
        raise DataError(
            f"{path}: {name} unpacks to {amount(member.file_size, 'byte')}, at most "
            f"{MOST_BYTES:,} are read"
        )
    try:
        with archive.open(member) as stream:
            content = io.BytesIO(read_stated(stream, member.file_size))
        if not content.getbuffer()[:6] == np.lib.format.MAGIC_PREFIX:
            raise DataError(f"{path}: {name} is not an array")
        array = np.lib.format.read_array(content, allow_pickle=False)
        if content.read(1):
            raise ValueError("more bytes than its shape asks for")
        return array
    except DataError:
        raise
    except MemoryError:
        raise DataError(f"{path}: {name} is too large for the memory, or damaged") from None
    except Exception as error:  # three decompressors, two parsers: theirs is no closed set
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path}: {name} holds pickled Python objects, which are not read; save plain "
                "arrays"
            ) from None
        raise DataError(f"{path}: {name} is damaged ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return the message of an error, or its kind where there is none."""
    return str(error) or type(error).__name__
