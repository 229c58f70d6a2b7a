"""Posit tensors in safetensors files: words of 8, 16 or 32 bits, formats in the header.

Other tensors are stored unchanged next to the posits. Values can also go to safetensors as any
``state_dict`` does: the file then holds floats, which ``load_state_dict`` rounds.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.tensor import PositTensor
from trainwright.support.files import write_whole
from trainwright.support.plain import NONSENSE
from trainwright.support.text import shown

_KEY = "posits"


def pack(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return (tensors with words in place of posits, the posits' formats by tensor name)."""
    formats = {name: str(x.fmt) for name, x in tensors.items() if isinstance(x, PositTensor)}
    return {name: _stored(x).contiguous() for name, x in tensors.items()}, formats


def unpack(tensors: Mapping[str, Tensor], formats: Mapping[str, str]) -> dict[str, Tensor]:
    """Make posit tensors of the words that ``pack`` stored.

    Raises ``PositError`` for unknown formats and words.
    """
    return {
        name: PositTensor.from_codes(x, PositFormat.parse(formats[name])) if name in formats else x
        for name, x in tensors.items()
    }


def _stored(x: Tensor) -> Tensor:
    """Return words in the narrowest unsigned integer type that holds them."""
    if not isinstance(x, PositTensor):
        return x.detach()
    if x.fmt.n <= 8:
        return x.codes().to(torch.uint8)
    return x.codes().to(torch.uint16 if x.fmt.n <= 16 else torch.uint32)


def save_file(
    tensors: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a ``state_dict``; an existing file is replaced atomically. Raises ``OSError``."""
    from safetensors.torch import save

    content, formats = pack(tensors)
    header = {**(metadata or {}), _KEY: json.dumps(formats, sort_keys=True)}
    write_whole(Path(path), save(content, metadata=header))


def load_file(path: str | Path) -> dict[str, Tensor]:
    """Read a file of ``save_file``. Raises ``PositError`` for other files, and ``OSError``."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            formats = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not isinstance(formats, dict):
            raise ValueError(f"its formats are {shown(formats)}, not an object")
        if missing := formats.keys() - tensors.keys():
            raise ValueError(f"it has a format of {shown(min(missing))} and no such tensor")
        return unpack(tensors, formats)
    except (SafetensorError, *NONSENSE) as error:
        raise PositError(f"{path} holds no posits of save_file, or is damaged: {error}") from None
