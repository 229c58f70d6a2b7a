"""BinaryConnect (equation 3): float32 master weights, few-bit factors for the accelerator.

Master weights are the trainer's (``train.model.Model``) or a torch module's (``trainwright.nn``);
what the accelerator is given of them is made here.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from trainwright.driver import QuantisedModel
from trainwright.fixed.quantise import quantise
from trainwright.formats import Format
from trainwright.network import Network


def clip(value: torch.Tensor, exponent: int, fmt: Format) -> torch.Tensor:
    """Clamp a master weight to the range that the factor's format can represent.

    Outside that range the quantised factor no longer moves while the master weight would run away.
    Some formats hold weights within fewer steps (``Format.factor_steps``).
    """
    return value.clamp(*held_range(exponent, fmt))


@lru_cache
# The range is asked for at every step and every factor, and depends on two small keys.
def held_range(exponent: int, fmt: Format) -> tuple[float, float]:
    """Return the least and the greatest master weight that ``clip`` leaves."""
    least, greatest = fmt.integer_limits
    if fmt.factor_steps is not None:
        # The largest words of such a format are sparse and far out: weights there grow until
        # training fails. The bound is the same on both sides.
        greatest = min(greatest, int(fmt.factor_steps * fmt.step))
        least = -greatest
    return least * 2.0**exponent, greatest * 2.0**exponent


def quantised_model(
    network: Network,
    factors: Sequence[Sequence[torch.Tensor]],
    exponents: Sequence[Sequence[int]],
    biases: Sequence[torch.Tensor | None],
    bias_exponents: Sequence[int] | None = None,
) -> QuantisedModel:
    """Return the driver's operands of master weights ``factors[l][n]`` and ``biases[l]`` (J,).

    Factors are rounded to the network's formats at 2^``exponents[l][n]``; those of a network in
    float32 stay as they are. The driver quantises biases.
    """
    words = factors
    if not network.widths.is_float:
        underflow = network.host_underflow
        words = [
            [
                quantise(value, exponent, fmt, underflow=underflow)
                for value, exponent, fmt in zip(
                    layer, exponents[number], network.factor_formats(number), strict=True
                )
            ]
            for number, layer in enumerate(factors)
        ]
    exact = [None if bias is None else bias.to(torch.float64) for bias in biases]
    return QuantisedModel(network, words, exponents, exact, bias_exponents)


MEAN_STEPS = (1.5, 3.6)
"""Quantisation steps at 4 bits that a factor's mean magnitude may have.

A normal distribution then has a standard deviation of 1.9 to 4.5 steps; the best for 16 levels is
3.
"""


def direction(value: torch.Tensor, exponent: int, fmt: Format) -> int:
    """Return by how much the exponent of a factor should move: -1, 0 or 1."""
    steps = float(value.to(torch.float64).abs().mean()) * 2.0**-exponent / fmt.step
    least, greatest = MEAN_STEPS
    # A factor of zeros has no size to follow: its exponent stays.
    return 1 if steps > greatest else -1 if 0 < steps < least else 0
