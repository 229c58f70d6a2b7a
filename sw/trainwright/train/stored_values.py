"""Parameters of a model in a file, and checks: shapes, finite numbers, possible exponents.

A file's digest says that it is as it was written, not that what was written is a model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from trainwright.network import Network
from trainwright.support.text import shown

MOST_EXPONENT = 256
"""Largest magnitude of a tensor's exponent.

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


def exponent(name: str, value: Any) -> int:
    """Return an exponent; raise ``ValueError`` for anything but an integer in range."""
    # A bool is an int to `isinstance`: JSON's true is no exponent.
    if type(value) is not int or abs(value) > MOST_EXPONENT:
        raise ValueError(
            f"the exponent of {name} is {shown(value)}, not an integer of at most {MOST_EXPONENT}"
        )
    return value


def factor_exponents(network: Network, values: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
    """Return exponents layer by layer, one for each factor. Raises ``ValueError``."""
    orders = [layer.order for layer in network.layers]
    if [len(layer) for layer in values] != orders:
        raise ValueError(f"exponents of {[len(layer) for layer in values]} factors, not {orders}")
    return [
        tuple(exponent(f"factor {n}.{k}", value) for k, value in enumerate(layer))
        for n, layer in enumerate(values)
    ]


def tensor_exponents(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the exponents of tensors by name. Raises ``ValueError``."""
    return {name: exponent(name, value) for name, value in values.items()}
