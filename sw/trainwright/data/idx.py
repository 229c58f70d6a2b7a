"""IDX files of MNIST and its successors, plain or gzipped.

Big-endian: a 32-bit magic (0x0803 images, 0x0801 labels), a 32-bit size for each dimension, then
the bytes, row-major.
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainwright.data.dataset import DataError, Split

IMAGES = 0x0803
LABELS = 0x0801
_KINDS = {IMAGES: "images", LABELS: "labels"}


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except EOFError:
        raise DataError(f"{path}: truncated gzip file; remove it and add --download") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: not a sound gzip file ({error}); remove it and add --download"
        ) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def read_idx(path: Path, magic: int) -> npt.NDArray[np.uint8]:
    """Read one IDX file of bytes.

    ``magic`` is ``IMAGES`` or ``LABELS``; returns uint8 of the dimensions that the file states.
    Raises ``DataError`` for a file that cannot be read, another magic, or a wrong length.
    """
    content = _content(path)
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(content) < 4:
        raise DataError(f"{path}: truncated, {len(content)} bytes are no IDX header")
    (found,) = struct.unpack(">I", content[:4])
    if found != magic:
        raise DataError(
            f"{path}: not an IDX file of {_KINDS[magic]}, magic is 0x{found:08x} "
            f"and not 0x{magic:08x}"
        )
    if len(content) < header:
        raise DataError(f"{path}: truncated, {len(content)} of {header} header bytes")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    wanted = int(np.prod(shape, dtype=object))
    if len(content) - header != wanted:
        sort = "truncated" if len(content) - header < wanted else "too long"
        raise DataError(
            f"{path}: {sort}, has {len(content) - header:,} bytes of data and its header "
            f"{list(shape)} asks for {wanted:,}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


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
    """File names of the four that ``folder`` does not have, plain or gzipped."""
    return [stem for pair in STEMS.values() for stem in pair if _find(folder, stem) is None]


def read_split(folder: Path, split: str) -> Split:
    """Read ``train`` or ``test`` of an MNIST-like folder. Raises ``DataError``."""
    paths = [_find(folder, stem) for stem in STEMS[split]]
    if paths[0] is None or paths[1] is None:
        raise DataError(f"{folder} lacks {', '.join(missing(folder))}")
    images, labels = read_idx(paths[0], IMAGES), read_idx(paths[1], LABELS)
    if len(images) != len(labels):
        raise DataError(
            f"{paths[0]} has {len(images):,} images but {paths[1]} has {len(labels):,} labels"
        )
    return Split(images, labels)
