"""A model as the accelerator takes it, the results of a step, and quantising to integers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from trainwright.accelerator import Counters, Run
from trainwright.fixed.requantise import limits
from trainwright.fixed.scale import TensorStatistics
from trainwright.network import Network


@dataclass(frozen=True)
class QuantisedModel:
    """A model as the driver takes it.

    ``factors[l][n]`` int64 (R_{n-1}, J_n, I_n, R_n) with ``factor_exponents[l][n]``; ``biases[l]``
    float (J,) or None: the driver quantises them, as their exponent depends on the layer's.
    """

    network: Network
    factors: Sequence[Sequence[torch.Tensor]]
    factor_exponents: Sequence[Sequence[int]]
    biases: Sequence[torch.Tensor | None]
    bias_exponents: Sequence[int] | None = None
    """Of each layer's bias, where they are fixed; None for the least that fits each time."""


@dataclass(frozen=True)
class ForwardResult:
    """``logits`` float64 (batch, outputs of the last layer), exact values of the integers."""

    logits: torch.Tensor
    statistics: dict[str, TensorStatistics]
    counters: Counters
    seconds: float
    run: Run


@dataclass(frozen=True)
class BackwardResult:
    """Gradients of the sum over the batch, float64, exact values of the accelerator's integers.

    ``factors[l][n]`` has the factor's shape, ``biases[l]`` (J,) or None.
    """

    factors: list[list[torch.Tensor]]
    biases: list[torch.Tensor | None]
    statistics: dict[str, TensorStatistics]
    counters: Counters
    seconds: float
    run: Run
    factor_exponents: list[list[int]] = field(default_factory=list)
    """Exponents of ``factors`` and ``biases``: divided by 2^exponent they are integers."""
    bias_exponents: list[int | None] = field(default_factory=list)


def fitting_exponent(values: torch.Tensor, width: int, *, zero: int = 0) -> int:
    """Least exponent at which no value of a float tensor saturates ``width`` bits.

    ``zero`` where all values are 0. Raises ``ValueError`` for values that are not finite.
    """
    greatest = float(values.abs().max())
    if not math.isfinite(greatest):
        raise ValueError(f"cannot quantise a tensor whose largest value is {greatest}")
    if greatest == 0:
        return zero
    top = limits(width)[1]
    exponent = math.frexp(greatest / top)[1]  # greatest / top < 2^exponent
    return exponent - 1 if greatest <= top * 2.0 ** (exponent - 1) else exponent


def quantise(values: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
    """Float values to int64 integers x 2^exponent: round half to even, saturate."""
    least, greatest = limits(width)
    scaled = torch.round(values.double() * 2.0**-exponent)
    return scaled.clamp(least, greatest).to(torch.int64)


def check_integers(name: str, values: torch.Tensor, shape: tuple[int, ...], width: int) -> None:
    """``ValueError`` or ``TypeError`` unless ``values`` is int64 of ``shape`` in ``width`` bits."""
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, not {shape}")
    if values.dtype != torch.int64:
        raise TypeError(f"{name} must be int64, not {values.dtype}")
    least, greatest = limits(width)
    low, high = (int(value) for value in torch.aminmax(values))
    if low < least or high > greatest:
        raise ValueError(f"{name} has values from {low} to {high}, not within {width} bits")
