"""Initial values and exponents of the factors.

An element of W is a sum over all bonds of products of one element of each factor, so that for
independent elements Var(W) = R_1 ... R_{d-1} sigma_1^2 ... sigma_d^2. Wanted is Var(W) = 2/I before
a ReLU and 1/I elsewhere, which keeps the size of activations from layer to layer.

Four bits are used well where the factor's standard deviation is about ``SPREAD`` steps: the levels
-8..7 then reach 3 standard deviations at the start and leave some headroom. Every factor gets
the power of two that brings an equal share of the wanted product nearest to that, and the residue
(within a factor of sqrt 2) goes into the values themselves.
"""

from math import inf, log2, prod

import numpy as np
import torch

from trainwright.formats import Format, FormatError
from trainwright.network import Layer, Network
from trainwright.train.adam import Parameter
from trainwright.train.choices import SPREAD
from trainwright.train.connect import clip


def deviation(layer: Layer, gain: float | None = None) -> float:
    """Return the standard deviation of every factor's elements that gives W its variance.

    ``gain`` is the variance of W times its inputs; by default that of the layer's own ReLU.
    """
    gain = (2.0 if layer.relu else 1.0) if gain is None else gain
    wanted = gain / layer.input_size
    return (wanted / prod(layer.ranks)) ** (0.5 / layer.order)


FEW_VALUES = 8
"""Values of a factor up to which its deviation is made exact, not left to chance.

A layer of up to 16 inputs and outputs has a factor of one value. A sixth of the layers began, and
stayed, at zero, as that value rounded to 0 in 4 bits.
"""


def of_deviation(values: torch.Tensor, sigma: float) -> torch.Tensor:
    """Return drawn values of a factor, of which few are scaled to their wanted deviation."""
    if values.numel() > FEW_VALUES:
        return values
    return values * (sigma * values.square().mean().rsqrt())


def fresh_exponent(sigma: float, fmt: Format, spread: float = SPREAD) -> int:
    """Return the exponent that brings a deviation nearest to ``spread`` steps at 4 bits."""
    if not 0 < fmt.step < inf:
        raise FormatError(f"{fmt}: step is {fmt.step}, which must be above 0 and finite")
    return round(log2(sigma / (spread * fmt.step)))


def initial_factors(
    network: Network, seed: int, spread: float = SPREAD
) -> tuple[list[list[Parameter]], list[tuple[int, ...]]]:
    """Return normal factors of every layer, and their exponents.

    The numbers come from numpy's ``RandomState``, whose stream is frozen.
    """
    random = np.random.RandomState([seed, 0])
    factors: list[list[Parameter]] = []
    exponents: list[tuple[int, ...]] = []
    # Drawn in float64 for every format, so that networks that differ only in their formats start
    # from the same numbers.
    for number, layer in enumerate(network.layers):
        if layer.diagonal:  # scales, such as the gamma of a LayerNorm, begin at 1
            sigma = 1.0
            values = [torch.ones(shape, dtype=torch.float64) for shape in layer.factor_shapes]
        else:
            sigma = deviation(layer, network.gain(number))
            values = [
                of_deviation(torch.from_numpy(random.standard_normal(shape) * sigma), sigma)
                for shape in layer.factor_shapes
            ]
        if network.widths.is_float:
            scales = (0,) * layer.order
        else:
            formats = network.factor_formats(number)
            scales = tuple(fresh_exponent(sigma, fmt, spread) for fmt in formats)
            values = [clip(*operands) for operands in zip(values, scales, formats, strict=True)]
        factors.append([Parameter.of(value) for value in values])
        exponents.append(scales)
    return factors, exponents
