"""BinaryConnect (equation 3): float32 master weights, few-bit factors for the accelerator.

Master weights are the trainer's (``train.model.Model``) or a torch module's (``trainwright.nn``);
what the accelerator is given of them is made here.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from trainwright.driver import QuantisedModel
from trainwright.fixed.quantise import integer_limits, quantise
from trainwright.formats import Format, Posit
from trainwright.network import Network

MOST_STEPS = 8
"""Greatest magnitude of a posit factor's weights, in quantisation steps at 4 bits."""


def clip(value: torch.Tensor, exponent: int, fmt: Format | int) -> torch.Tensor:
    """The master weight held within what the factor's format can represent.

    Beyond it the quantised factor no longer moves while the master weight would run away. A posit's
    largest words are sparse and far out; its weights are held within ``MOST_STEPS`` steps, as those
    of 4 bits of fixed point are, else they grow for epochs until training fails.
    """
    return value.clamp(*_held(exponent, fmt))


@lru_cache
def _held(exponent: int, fmt: Format | int) -> tuple[float, float]:
    least, greatest = integer_limits(fmt)
    if isinstance(fmt, Posit):
        greatest = min(greatest, int(MOST_STEPS * steps_of(fmt)))
        least = -greatest
    return least * 2.0**exponent, greatest * 2.0**exponent


def quantised_model(
    network: Network,
    factors: Sequence[Sequence[torch.Tensor]],
    exponents: Sequence[Sequence[int]],
    biases: Sequence[torch.Tensor | None],
    bias_exponents: Sequence[int] | None = None,
) -> QuantisedModel:
    """What the driver is given of master weights ``factors[l][n]`` and ``biases[l]`` (J,) or None.

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
"""Where the mean magnitude of a factor may lie, in quantisation steps at 4 bits: its standard
deviation is then 1.9 to 4.5 steps if it is normal, and the best for 16 levels is 3."""


def steps_of(fmt: Format | int) -> float:
    """How many of a format's integers are one quantisation step at 4 bits.

    A posit's 1 is 4 steps, as it is of the posit(4,0): of 4 bits both, half the values that a
    normal factor has lie below 1.7 steps.
    """
    if isinstance(fmt, Posit):
        return 2.0 ** (fmt.scale - 2)
    return 2.0 ** ((fmt if isinstance(fmt, int) else fmt.width) - 4)


def direction(value: torch.Tensor, exponent: int, fmt: Format | int) -> int:
    """By how much the exponent of a factor should move: -1, 0 or 1."""
    steps = float(value.to(torch.float64).abs().mean()) * 2.0**-exponent / steps_of(fmt)
    least, greatest = MEAN_STEPS
    return 1 if steps > greatest else -1 if 0 < steps < least else 0
