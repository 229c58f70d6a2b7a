"""Dense weights from a file, and their compression layer by layer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainwright import tt
from trainwright.data import DataError
from trainwright.data.arrays import read_arrays
from trainwright.network import Network
from trainwright.support.errors import errors_as, reason_of
from trainwright.support.text import amount
from trainwright.train.pretrained import Pretrained, fit_weight
from trainwright.tt import Numbers, TensorTrainError
from trainwright.tt.scaling import relative_difference


@dataclass(frozen=True, eq=False)
class Dense:
    """A layer's ``weight`` (rows, columns) and ``bias`` (rows,) or None, under their names."""

    name: str
    weight: torch.Tensor
    bias: torch.Tensor | None


@dataclass(frozen=True)
class CompressedMatrix:
    """Result of compressing one matrix."""

    layer: int
    matrix: str
    ranks: str
    dense_elements: int
    factor_elements: int
    error: float
    """||W - TT||_F / ||W||_F."""


LARGE_ERROR = 0.5
"""Above this relative error a quarter and more of ||W||_F^2 is gone."""


def lossy(rows: Sequence[CompressedMatrix]) -> list[str]:
    """Return a warning for each layer whose relative error is over ``LARGE_ERROR``."""
    return [
        f"layer {row.layer}, {row.matrix}: relative error {row.error:.2f}, so that "
        f"{min(row.error, 1.0) ** 2:.0%} of the squared norm of its weights are gone; a higher "
        "--rank or a lower --tolerance keeps more, else train on with trainwright train --initial"
        for row in rows
        if row.error > LARGE_ERROR
    ]


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """Read the tensors of a file by name. Raises ``DataError``."""
    if path.suffix == ".npz":
        types = {"f": "f8", "i": "f8", "u": "f8", "b": "f8", "c": "c16"}
        arrays = read_arrays(path).items()
        return {
            name: torch.from_numpy(array.astype(types[array.dtype.kind]))
            for name, array in arrays
            if array.dtype.kind in types
        }
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except (SafetensorError, LookupError, ValueError, TypeError) as error:
        raise DataError(f"{path} is neither a safetensors file nor named .npz: {error}") from None


def _real(path: Path, name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64. Raises ``DataError`` for an empty one, or of no numbers."""
    if tensor.is_complex() or not tensor.numel():
        what = "complex" if tensor.is_complex() else "empty"
        raise DataError(f"{path}: {name} is {what}; weights are matrices of real numbers")
    real = tensor.double()
    if not bool(real.isfinite().all()):
        raise DataError(f"{path}: {name} has NaN or infinite elements")
    return real


def _natural(name: str) -> list[Any]:
    """Return a key that sorts ``10.weight`` after ``2.weight``."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part)
            for part in re.split(r"(\d+)", name) if part]  # fmt: skip


def read_dense(path: Path, network: Network, keys: Sequence[str] | None) -> list[Dense]:
    """Read the weight of every layer of ``network``, and its bias where there is one.

    Raises ``DataError`` where the file cannot be read, has other matrices than layers, or elements
    that are no real numbers.
    """
    tensors = _tensors(path)
    matrices = sorted((name for name, t in tensors.items() if t.dim() == 2), key=_natural)
    if not matrices:
        raise DataError(
            f"{path} has no matrix, only {amount(len(tensors), 'tensor')} of other dimensions: "
            "give a state_dict with the weights of dense layers"
        )
    chosen = list(keys or matrices)
    if missing := [key for key in chosen if key not in matrices]:
        raise DataError(f"--weight: no matrix {missing[0]!r} in {path}; has {', '.join(matrices)}")
    if len(chosen) != len(network.layers):
        raise DataError(
            f"{path} has {amount(len(chosen), 'matrix')} ({', '.join(chosen) or 'none'}) for the "
            f"{amount(len(network.layers), 'layer')} of {network.name!r}: name them with --weight"
        )
    layers = []
    for key in chosen:
        beside = re.sub(r"weight(?!.*weight)", "bias", key)
        bias = _real(path, beside, tensors[beside]) if beside in tensors and beside != key else None
        layers.append(Dense(key, _real(path, key, tensors[key]), bias))
    return layers


def describe(
    dense: Sequence[Dense],
    network: Network,
    *,
    rank: int | None,
    tolerance: float | None,
    numbers: Numbers,
) -> tuple[Pretrained, list[CompressedMatrix]]:
    """Compress the layers to tensor trains in the balanced gauge; return them and a row about each.

    Ranks are at most ``rank``; where neither it nor ``tolerance`` is given, the network's.
    """
    factors: list[list[torch.Tensor]] = []
    biases: list[torch.Tensor | None] = []
    rows: list[CompressedMatrix] = []
    for n, (layer, given) in enumerate(zip(network.layers, dense, strict=True)):
        image = (network.image, network.padded) if n == 0 else (None, None)
        ranks = layer.ranks if rank is None and tolerance is None else rank
        with errors_as(given.name, TensorTrainError, TensorTrainError):
            weight = fit_weight(given.weight, layer, *image)
            train = tt.tt_svd(weight, layer.outputs, layer.inputs, ranks=ranks, tolerance=tolerance,
                           numbers=numbers)  # fmt: skip
        error = relative_difference(weight, tt.to_matrix(train))
        even = [_narrowed(factor, given.name) for factor in tt.balance(train)]
        factors.append(even)
        biases.append(_bias(given, layer.output_size) if layer.bias else None)
        name = f"{given.name} {given.weight.shape[0]} x {given.weight.shape[1]}"
        left = " ".join(map(str, tt.ranks_of(even)))
        size = given.weight.numel()
        rows.append(CompressedMatrix(n + 1, name, left, size, tt.parameters_of(even), error))
    ranked = network.with_ranks([tt.ranks_of(train) for train in factors])
    return Pretrained(ranked, factors, biases), rows


def _narrowed(factor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the factor in float32. Raises ``TensorTrainError`` where it over- or underflows."""
    narrow = factor.to(torch.float32)
    if not bool(narrow.isfinite().all()) or (bool(factor.any()) and not bool(narrow.any())):
        top = float(factor.abs().max())
        raise TensorTrainError(
            f"{name}: a factor's elements of {top:.3g} are outside float32's range: scale the "
            "matrix by a power of two"
        )
    return narrow


def _bias(given: Dense, size: int) -> torch.Tensor:
    result = torch.zeros(size)
    if given.bias is not None:
        if given.bias.dim() != 1 or len(given.bias) > size:
            raise TensorTrainError(
                f"{given.name}: its bias {list(given.bias.shape)} is not of {size}"
            )
        result[: len(given.bias)] = given.bias
    return result
