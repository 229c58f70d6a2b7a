"""Pictures in folders, one folder a class, as bytes of one size."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from trainwright.data.dataset import DataError
from trainwright.support.errors import file_errors, reason_of
from trainwright.support.text import amount

PICTURES = (".png", ".jpg", ".jpeg")
TRAIN, TEST = SPLITS = ("train", "test")
"""Folders of the splits, where the pictures are split already."""
GREY_MODES = ("1", "L", "LA")
_NO_PICTURES = ("thumbs.db", "desktop.ini", "__macosx")
"""Names that systems leave in folders of pictures."""


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size: uint8 (pictures, rows, columns x channels), a pixel's values adjacent.

    `classes` has the folder of each; None where they lie in no subfolder.
    """

    images: npt.NDArray[np.uint8]
    classes: list[str] | None
    channels: int
    greyed: int = 0
    """Pictures in colour that are read as grey."""

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.images.shape[1], self.images.shape[2] // self.channels


def is_picture_folder(root: Path) -> bool:
    """Return whether a folder has pictures, in itself or up to two folders below."""
    if not root.is_dir():
        return False
    depths = ("*", "*/*", "*/*/*")
    return any(p.suffix.lower() in PICTURES for depth in depths for p in root.glob(depth))


def read_pictures(
    root: Path, size: tuple[int, int] | None = None, channels: int | None = None, *,
    remedy: str = "give --image-size ROWSxCOLUMNS to have all resized",
) -> Pictures:  # fmt: skip
    """Read a picture, a folder of pictures, or a folder with a subfolder for each class.

    `size` resizes every picture; `channels` is 1 (grey) or 3, by default 3 where any has colour.
    ``remedy`` ends the error about pictures of several sizes. Raises `DataError` that names the
    file.
    """
    if find_spec("PIL") is None:
        raise DataError(
            f"{root}: pictures are read by Pillow, which is not installed: "
            "pip install 'trainwright[data]'"
        )
    from PIL import Image, ImageOps

    paths = list(_paths(root))
    if not paths:
        raise DataError(f"{root} has no pictures ({', '.join(PICTURES)})")
    loaded = []
    for path, _ in paths:
        try:
            with Image.open(path) as picture:
                # Phones store a still with its preview or depth as several frames, an MPO.
                frames = 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)
                # Cameras store how a picture is turned apart from its pixels.
                picture = _in_bytes(ImageOps.exif_transpose(picture))
                if size is not None:
                    picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
                loaded.append(picture)
        except Exception as error:  # each of Pillow's parsers raises errors of its own
            text = str(error).removesuffix(f" {str(path)!r}")
            if isinstance(error, OSError) and error.errno:
                text = reason_of(error)
            reason = " ".join(text.split()) or type(error).__name__
            raise DataError(f"{path}: not a sound picture ({reason})") from None
        if frames > 1:
            raise DataError(
                f"{path} is an animation of {amount(frames, 'frame')}: save one as a picture"
            )
    coloured = sum(not _is_grey(picture) for picture in loaded)
    if channels is None:
        channels = 3 if coloured else 1
    mode = "L" if channels == 1 else "RGB"
    first = loaded[0].size
    for (path, _), picture in zip(paths, loaded, strict=True):
        if picture.size != first:
            raise DataError(
                f"{path} is {picture.size[1]} x {picture.size[0]} and {paths[0][0].name} "
                f"{first[1]} x {first[0]}: {remedy}"
            )
    images = np.stack([np.asarray(picture.convert(mode)) for picture in loaded])
    classes = [folder for _, folder in paths if folder is not None]
    if classes and len(classes) < len(paths):
        stray = next(path for path, folder in paths if folder is None)
        raise DataError(f"{stray} is in no folder of a class, and other pictures are: move it")
    flat = images.reshape(len(images), images.shape[1], -1)
    return Pictures(flat, classes or None, channels, greyed=coloured if channels == 1 else 0)


def _is_grey(picture: Any) -> bool:
    """Return whether red, green and blue of every pixel are equal, in whatever mode it is stored.

    Palettes, grey pictures of 16 bits with transparency and most grey JPEG files arrive as RGB.
    """
    return picture.mode == "L" or bool(np.ptp(np.asarray(picture), axis=2).max() == 0)


def _in_bytes(picture: Any) -> Any:
    """Return a picture in grey or RGB of 8 bits a value, on white where it is transparent."""
    from PIL import Image

    if picture.mode[:1] == "I":  # 16 bits, which Pillow's own conversion clips at 255
        values = np.asarray(picture).astype(np.int64).clip(0, 65535)
        values[values == picture.info.get("transparency")] = 65535
        return Image.fromarray(((2 * 255 * values + 65535) // (2 * 65535)).astype(np.uint8))
    mode = "L" if picture.mode in GREY_MODES else "RGB"
    if "transparency" in picture.info or picture.mode in ("LA", "PA", "RGBA"):
        # Transparent pixels have any colour below, which viewers do not show.
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    return picture.convert(mode)


def _paths(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield each picture in the order of names, with the subfolder it lies in."""
    with file_errors(f"cannot read {root}", DataError):
        if not root.is_dir():
            yield root, None
            return
        for entry in sorted(root.iterdir()):
            if _is_left(entry):
                continue
            inside = (
                [path for path in sorted(entry.iterdir()) if not _is_left(path)]
                if (folder := entry.is_dir())
                else [entry]
            )
            if not inside:
                raise DataError(f"{entry} has no pictures: put some in, or delete the folder")
            for path in inside:
                if path.is_dir():
                    raise DataError(
                        f"{path} is a folder in {entry.name}: the pictures of a class are in "
                        f"{root}/CLASS, or in {root}/{TRAIN}/CLASS and {root}/{TEST}/CLASS"
                    )
                if path.suffix.lower() not in PICTURES:
                    raise DataError(f"{path} is no picture ({', '.join(PICTURES)}): move it away")
                yield path, normalize("NFC", entry.name) if folder else None


def _is_left(path: Path) -> bool:
    """Return whether a file or folder is one that systems and notebooks leave next to pictures."""
    return path.name.startswith(".") or path.name.lower() in _NO_PICTURES
