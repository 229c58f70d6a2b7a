"""Operands of a step for tests, from raw bits of NumPy's PCG64, and scales to go with them."""

import numpy as np
import torch

from trainwright.driver import Driver, QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.network import Network


class Bits:
    """Integers from raw generator words: the same ones with every version of every library."""

    def __init__(self, seed: int):
        self._generator = np.random.PCG64(seed)

    def integers(self, shape: tuple[int, ...], width: int) -> torch.Tensor:
        """Draw signed integers of ``width`` bits, int64, uniform."""
        raw = self._generator.random_raw(int(np.prod(shape)))
        values = (raw >> np.uint64(64 - width)).astype(np.int64) - (1 << (width - 1))
        return torch.from_numpy(values.reshape(shape))

    def bells(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Draw float64 values, bell-shaped, of deviation 1 or so."""
        return sum(self.integers(shape, 20).double() for _ in range(6)) * 2.0**-20


def random_model(network: Network, seed: int) -> QuantisedModel:
    """Draw factors over their whole range, at differing exponents; bell-shaped biases."""
    bits = Bits(seed)
    factors = [
        [bits.integers(shape, network.widths.factor) for shape in layer.factor_shapes]
        for layer in network.layers
    ]
    exponents = [
        [1 + int(e) - network.widths.factor for e in bits.integers((layer.order,), 2)]
        for layer in network.layers
    ]
    biases = [
        bits.bells((layer.output_size,)) * 2.0**-3 if layer.bias else None
        for layer in network.layers
    ]
    return QuantisedModel(network, factors, exponents, biases)


def random_batch(network: Network, batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw inputs over the whole range of activations, and a gradient to the logits."""
    bits = Bits(seed + 1_000_000)
    inputs = bits.integers((batch, network.layers[0].input_size), network.widths.activation)
    return inputs, bits.bells((batch, network.layers[-1].output_size)) / batch


def calibrated(driver: Driver, model: QuantisedModel, inputs, gradient) -> Scales:
    """Return scales that fit these operands."""
    scales = Scales()
    driver.calibrate(inputs, lambda logits: gradient, model, scales)
    return scales


def disturbed(scales: Scales, seed: int, most: int = 4) -> Scales:
    """Move each exponent by -``most`` to ``most``: saturation here, lost bits there."""
    bits = Bits(seed + 2_000_000)
    moves = bits.integers((len(scales.exponents),), 16) % (2 * most + 1) - most
    exponents = {
        name: exponent + int(move)
        for (name, exponent), move in zip(sorted(scales.exponents.items()), moves, strict=True)
    }
    return Scales(scales.ranges, exponents)


def roomy(driver: Driver, model: QuantisedModel, inputs, gradient) -> Scales:
    """Return scales at which nothing saturates."""
    scales = calibrated(driver, model, inputs, gradient)
    for _ in range(64):
        forward = driver.forward(inputs, model, scales)
        backward = driver.backward(gradient, scales)
        statistics = {**forward.statistics, **backward.statistics}
        crowded = [name for name, s in statistics.items() if s.saturations]
        if not crowded:
            return scales
        for name in crowded:
            scales.exponents[name] = statistics[name].exponent + 1
    raise AssertionError("exponents do not settle")
