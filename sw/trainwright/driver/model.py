"""A model as the accelerator takes it, and the results of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from trainwright.accelerator import Counters, Run
from trainwright.fixed.quantise import extremes
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.formats import Fixed, Format
from trainwright.network import Network

HeadExponents = int | tuple[int, ...] | None
"""Exponent of the gradients to all heads, or of each; None: the finest that saturates nothing."""


@dataclass(frozen=True)
class QuantisedModel:
    """A model as the driver takes it.

    ``factors[l][n]`` int64 (R_{n-1}, J_n, I_n, R_n), words, with ``factor_exponents[l][n]``;
    ``biases[l]`` float (J,) or None: the driver quantises them, as their exponent depends on the
    layer's.
    """

    network: Network
    factors: Sequence[Sequence[torch.Tensor]]
    factor_exponents: Sequence[Sequence[int]]
    biases: Sequence[torch.Tensor | None]
    bias_exponents: Sequence[int] | None = None
    """Exponents of the layers' biases, where they are fixed.

    None for the least that fits each time.
    """


@dataclass(frozen=True, eq=False)
class ForwardOperands:
    """Operands of a forward pass, which repeat it bit by bit; see ``StepDriver.forward``."""

    inputs: torch.Tensor
    model: QuantisedModel
    scales: Scales
    seed: int | None = None
    masks: int | None = None
    attended: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Keys that each query of a masked attention finds, bool (sequences, heads, queries, keys)."""


@dataclass(frozen=True, eq=False)
class BackwardOperands:
    """Operands of a backward pass; see ``StepDriver.backward``."""

    gradient: torch.Tensor
    scales: Scales
    seed: int | None = None
    exponent: HeadExponents = None


@dataclass(frozen=True)
class PassOutcome:
    """Run of a pass of a step, with what the accelerator counted."""

    statistics: dict[str, TensorStatistics]
    counters: Counters
    seconds: float
    run: Run


@dataclass(frozen=True)
class ForwardResult(PassOutcome):
    """``logits`` float64 (batch, outputs of all heads), exact values of the integers."""

    logits: torch.Tensor


@dataclass(frozen=True)
class BackwardResult(PassOutcome):
    """Gradients of the sum over the batch, float64, exact values of the accelerator's integers.

    ``factors[l][n]`` has the factor's shape, ``biases[l]`` (J,) or None.
    """

    factors: list[list[torch.Tensor]]
    biases: list[torch.Tensor | None]
    factor_exponents: list[list[int]] = field(default_factory=list)
    """Exponents of ``factors`` and ``biases``: divided by 2^exponent they are integers."""
    bias_exponents: list[int | None] = field(default_factory=list)
    inputs: torch.Tensor | None = None
    """(batch, I), where the driver was made with ``input_gradients``."""


def check_words(name: str, values: torch.Tensor, shape: tuple[int, ...], fmt: Format | int) -> None:
    """Raise unless ``values`` is int64 of ``shape`` with words of a format.

    Raises ``ValueError`` or ``TypeError``.
    """
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of torch, not {type(values).__name__}")
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, not {shape}")
    if values.dtype != torch.int64:
        raise TypeError(f"{name} must be int64, not {values.dtype}")
    least, greatest = extremes(fmt)
    low, high = (int(value) for value in torch.aminmax(values))
    if low < least or high > greatest:
        within = (Fixed(fmt) if isinstance(fmt, int) else fmt).words_text
        raise ValueError(f"{name} has values from {low} to {high}, not {within}")
