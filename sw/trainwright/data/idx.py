"""IDX files of MNIST and its successors, plain or gzipped.

Big-endian: a 32-bit magic (0x0803 images, 0x0801 labels), a 32-bit size for each dimension, then
the bytes, row-major.
"""

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainwright.data.content import MOST_BYTES, Readable, read_stated
from trainwright.data.dataset import DataError, Split
from trainwright.support.text import amount

IMAGES = 0x0803
LABELS = 0x0801
_KINDS = {IMAGES: "images", LABELS: "labels"}


def read_idx(path: Path, magic: int) -> npt.NDArray[np.uint8]:
    """Read one IDX file of bytes.

    ``magic`` is ``IMAGES`` or ``LABELS``; returns uint8 of the dimensions that the file states.
    Raises ``DataError`` for a file that cannot be read, another magic, or a wrong length.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return _array(path, stream, magic)
    except EOFError:
        raise DataError(f"{path}: truncated gzip file; remove it and add --download") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: not a sound gzip file ({error}); remove it and add --download"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _array(path: Path, stream: Readable, magic: int) -> npt.NDArray[np.uint8]:
    shape = _shape(path, stream, magic)
    wanted = prod(shape)
    asked = f"its header {list(shape)} asks for {amount(wanted, 'byte')} of data"
    if wanted > MOST_BYTES:
        raise DataError(f"{path}: {asked}, at most {MOST_BYTES:,} are read")
    content = read_stated(stream, wanted)
    if len(content) < wanted:
        raise DataError(
            f"{path}: truncated, has {amount(len(content), 'byte')} of data and {asked}"
        )
    if len(content) > wanted:
        raise DataError(f"{path}: too long, {asked} and more follow")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: Path, stream: Readable, magic: int) -> tuple[int, ...]:
    """Return the dimensions that the header states."""
    dimensions = magic & 0xFF
    size = 4 + 4 * dimensions
    header = stream.read(size)
    if len(header) < 4:
        raise DataError(f"{path}: truncated, {amount(len(header), 'byte')} are no IDX header")
    (actual,) = struct.unpack(">I", header[:4])
    if actual != magic:
        raise DataError(
            f"{path}: not an IDX file of {_KINDS[magic]}, magic is 0x{actual:08x} "
            f"and not 0x{magic:08x}"
        )
    if len(header) < size:
        raise DataError(f"{path}: truncated, {len(header)} of {amount(size, 'header byte')}")
    return struct.unpack(f">{dimensions}I", header[4:])


def _find(folder: Path, stem: str) -> Path | None:
    # "train-images.idx3-ubyte" is how some tools unpack "train-images-idx3-ubyte".
    head, _, tail = stem.partition("-idx")
    for name in (f"{stem}.gz", stem, f"{head}.idx{tail}", f"{head}.idx{tail}.gz"):
        if (path := folder / name).is_file():
            return path
    return None


STEMS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def missing(folder: Path) -> list[str]:
    """List the file names of the four that ``folder`` does not have, plain or gzipped."""
    return [stem for pair in STEMS.values() for stem in pair if _find(folder, stem) is None]


def read_split(folder: Path, split: str) -> Split:
    """Read ``train`` or ``test`` of an MNIST-like folder. Raises ``DataError``."""
    paths = [_find(folder, stem) for stem in STEMS[split]]
    if paths[0] is None or paths[1] is None:
        raise DataError(f"{folder} lacks {', '.join(missing(folder))}")
    images, labels = read_idx(paths[0], IMAGES), read_idx(paths[1], LABELS)
    if len(images) != len(labels):
        raise DataError(
            f"{paths[0]} has {amount(len(images), 'image')} but {paths[1]} has "
            f"{amount(len(labels), 'label')}"
        )
    return Split(images, labels)
