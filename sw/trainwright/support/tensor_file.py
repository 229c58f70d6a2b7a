"""Tensors in a safetensors file, with JSON and a digest in its header: arrays and no code."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from trainwright.support.errors import UserError, reason_of
from trainwright.support.text import shown

MODEL = "model.safetensors"
"""Name of the file that a run leaves in its folder."""


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be read, is damaged, or belongs to another run."""


def tensor_digest(tensors: dict[str, torch.Tensor]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()


def _digest(tensors: dict[str, torch.Tensor]) -> str | None:
    """Return the digest; None for tensors of types that are never written."""
    try:
        return tensor_digest(tensors)
    except TypeError:
        return None


def encode(metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> bytes:
    """Return a safetensors file with ``metadata`` as JSON and the tensors' digest in its header."""
    from safetensors.torch import save

    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**metadata, "sha256": tensor_digest(tensors)}, sort_keys=True)
    return save(tensors, metadata={"trainwright": text})


def decode(path: Path, *kinds: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return metadata and tensors of a file that ``encode`` made, its digest checked.

    Raises ``CheckpointError`` naming the file where it cannot be read, is damaged, or does not say
    that its format is one of ``kinds``.
    """
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name a file in it, as {path / MODEL}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if "trainwright" not in header:
                raise ValueError("its header has no entry 'trainwright'")
            metadata = json.loads(header["trainwright"])
            if not isinstance(metadata, dict):
                raise ValueError("its header is not an object")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {reason_of(error)}") from None
    except (SafetensorError, ValueError, LookupError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged or not of trainwright: {error}") from None
    if metadata.get("format") not in kinds:
        wanted = " or ".join(map(repr, kinds))
        raise CheckpointError(f"{path} has format {shown(metadata.get('format'))} and not {wanted}")
    if (digest := _digest(tensors)) is None or metadata.get("sha256") != digest:
        raise CheckpointError(f"{path} is damaged: its contents do not have the digest it states")
    return metadata, tensors
