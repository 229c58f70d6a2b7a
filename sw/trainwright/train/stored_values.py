"""Parameters of a model in a file, and checks: shapes, finite numbers, possible exponents.

A file's digest says that it is as it was written, not that what was written is a model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import torch
from msgspec import Meta

from trainwright.network import Network
from trainwright.support.plain import typed

Exponent = Annotated[int, Meta(ge=-256, le=256)]
"""Exponent of a tensor.

A float32 reaches 128, and every product of two such numbers stays a float64.
"""


Read = TypeVar("Read")


def parameter_names(
    factors: Sequence[Sequence[Read]], biases: Sequence[Read | None]
) -> dict[str, Read]:
    """Return factors and biases by their names in a file, ``factor.L.N`` and ``bias.L``."""
    named = {
        f"factor.{n}.{k}": own for n, layer in enumerate(factors) for k, own in enumerate(layer)
    }
    return named | {f"bias.{n}": bias for n, bias in enumerate(biases) if bias is not None}


def read_parameters(
    network: Network, read: Callable[[str, tuple[int, ...]], Read]
) -> tuple[list[list[Read]], list[Read | None]]:
    """Return factors and biases of a network; ``read`` gets the name and the shape of each."""
    layers = list(enumerate(network.layers))
    factors = [
        [read(f"factor.{n}.{k}", shape) for k, shape in enumerate(layer.factor_shapes)]
        for n, layer in layers
    ]
    biases = [
        read(f"bias.{n}", (layer.output_size,)) if layer.bias else None for n, layer in layers
    ]
    return factors, biases


def shaped(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor; raise ``ValueError`` for another shape."""
    if tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} does not have the shape {list(shape)} of the network, but {list(tensor.shape)}"
        )
    return tensor


def finite(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return the float32 tensor; raise ``ValueError`` for another type, NaN and infinities."""
    if tensor.dtype != torch.float32:
        raise ValueError(f"{name} is {tensor.dtype}, not float32")
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name} has NaN or infinite elements")
    return tensor


def factor_exponents(network: Network, metadata: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Return the exponents layer by layer, one for each factor. ``TypeError``, ``ValueError``."""
    exponents = typed(name := "factor_exponents", metadata[name], list[tuple[Exponent, ...]])
    orders = [layer.order for layer in network.layers]
    if (given := list(map(len, exponents))) != orders:
        raise ValueError(f"exponents of {given} factors, not {orders}")
    return exponents


def tensor_exponents(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the exponents of tensors by name. Raises ``TypeError``."""
    return typed("exponents", metadata["exponents"], dict[str, Exponent])
