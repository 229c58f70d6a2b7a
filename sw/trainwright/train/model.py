"""The model being trained: master weights, moments and exponents of every layer."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from trainwright.driver import QuantisedModel
from trainwright.formats import Format
from trainwright.network import Network
from trainwright.train import connect
from trainwright.train.adam import Parameter
from trainwright.train.blocks import balance
from trainwright.train.choices import SPREAD
from trainwright.train.initial import initial_factors

BIAS_RANGE = 2
"""Binary logarithm of the largest magnitude of a bias whose exponent never moves."""


def fixed_bias_exponents(network: Network) -> list[int]:
    """Return exponents of the layers' biases that never move: integers reach 2^``BIAS_RANGE``."""
    # A signed integer of b bits reaches 2^(b-1).
    return [BIAS_RANGE + 1 - network.widths.bias] * len(network.layers)


@dataclass
class Model:
    """Master weights; ``network`` always has the ranks that the factors have.

    ``factors[l][n]`` (R_{n-1}, J_n, I_n, R_n) with the fixed ``exponents[l][n]``; ``biases[l]``
    (J,) or None.
    """

    network: Network
    factors: list[list[Parameter]]
    exponents: list[tuple[int, ...]]
    biases: list[Parameter | None]
    bias_exponents: list[int] | None = None
    """Exponents of the biases' integers; None for the finest at which none saturates."""

    def parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every parameter with its name, ``factor.0.1`` or ``bias.0``."""
        for number, (factors, bias) in enumerate(zip(self.factors, self.biases, strict=True)):
            for n, factor in enumerate(factors):
                yield f"factor.{number}.{n}", factor
            if bias is not None:
                yield f"bias.{number}", bias

    def quantised(self) -> QuantisedModel:
        """Return the driver's operands: integer factors, and biases that the driver quantises.

        A network in float32 has the factors themselves, with exponents 0.
        """
        return connect.quantised_model(
            self.network,
            [[factor.value for factor in layer] for layer in self.factors],
            self.exponents,
            [None if bias is None else bias.value for bias in self.biases],
            self.bias_exponents,
        )

    def _scaled(self, number: int) -> Iterator[tuple[Parameter, int, Format]]:
        """Yield the factors of a layer with their exponents and formats."""
        formats = self.network.factor_formats(number)
        yield from zip(self.factors[number], self.exponents[number], formats, strict=True)

    @property
    def _in_words(self) -> range:
        """Layers whose factors are words at an exponent: none of a network in float32."""
        return range(0 if self.network.widths.is_float else len(self.factors))

    def clip(self) -> None:
        """Hold the master weights of the factors within the range of their bits."""
        for number in self._in_words:
            for factor, k, fmt in self._scaled(number):
                factor.value = connect.clip(factor.value, k, fmt)

    def rescale(self) -> None:
        """Move a factor's exponent by one where its weights have outgrown, or left, their bits."""
        for number in self._in_words:
            self.exponents[number] = tuple(
                k + connect.direction(f.value, k, fmt) for f, k, fmt in self._scaled(number)
            )

    def balance(self) -> None:
        """Move the block scales along the bonds (``train.blocks``)."""
        for number in self._in_words:
            balance(self.factors[number], self.exponents[number])

    def digest(self) -> str:
        """Return the SHA-256 over the quantised factors; see ``digest``."""
        return digest(self.quantised())


def digest(model: QuantisedModel) -> str:
    """Return the SHA-256 over quantised factors, as int16 (float32) in order with their exponents.

    Equal digests mean equal factors: runs on different back ends are compared by them.
    """
    sha = hashlib.sha256()
    for layer, exponents in zip(model.factors, model.factor_exponents, strict=True):
        for factor, k in zip(layer, exponents, strict=True):
            # The shape and the exponent are part of what is hashed: equal integers at another
            # exponent are another model.
            sha.update(f"{list(factor.shape)} 2^{k}\n".encode())
            kind = "<f4" if factor.is_floating_point() else "<i2"
            sha.update(factor.contiguous().numpy().astype(kind).tobytes())
    return sha.hexdigest()


def initial_model(network: Network, seed: int, spread: float = SPREAD) -> Model:
    """Return an untrained model: factors of ``train/initial.py``, biases 0."""
    factors, exponents = initial_factors(network, seed, spread)
    biases = [
        Parameter.of(torch.zeros(layer.output_size)) if layer.bias else None
        for layer in network.layers
    ]
    return Model(network, factors, exponents, biases)
