"""Training steps in float32 on the host: the baseline for the accelerator's numbers.

Same methods as ``trainwright.driver.Driver``. Nothing is quantised, so that there are no scales, no
statistics and no cycles.
"""

import numpy as np
import torch

from trainwright.accelerator import Counters, Run
from trainwright.driver import BackwardResult, ForwardResult, QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.network import Network
from trainwright.train.interfaces import GradientOf
from trainwright.tt.trains import to_matrix

_NOTHING = np.zeros(0, np.int64)
_NO_RUN = Run(_NOTHING, _NOTHING, _NOTHING)


class FloatDriver:
    """Forward and backward passes of one network in float32, each layer's W rebuilt (J, I)."""

    input_exponent = -23
    """Pixels of 0..1 as integers of this exponent have the precision of float32."""
    tensors: frozenset[str] = frozenset()

    def __init__(self, network: Network) -> None:
        self.network = network
        self._tape: list[tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor]] = []

    def forward(
        self,
        inputs: torch.Tensor,
        model: QuantisedModel,
        scales: Scales,
        *,
        seed: int | None = None,
    ) -> ForwardResult:
        """Logits of ``inputs`` int64 (batch, I) with the values of the model's factors."""
        x = inputs.to(torch.float32) * 2.0**self.input_exponent
        self._tape = []
        for layer, factors, exponents, bias in zip(
            self.network.layers, model.factors, model.factor_exponents, model.biases, strict=True
        ):
            leaves = [
                (factor.to(torch.float32) * 2.0**exponent).requires_grad_()
                for factor, exponent in zip(factors, exponents, strict=True)
            ]
            b = torch.zeros(layer.output_size) if bias is None else bias.to(torch.float32)
            x = x.detach().requires_grad_()
            y = torch.addmm(b.requires_grad_(), x, to_matrix(leaves, torch.float32).T)
            y = y.relu() if layer.relu else y
            self._tape.append((x, leaves, b, y))
            x = y
        return ForwardResult(x.detach().to(torch.float64), {}, Counters(), 0.0, _NO_RUN)

    def backward(
        self,
        gradient: torch.Tensor,
        scales: Scales,
        *,
        seed: int | None = None,
        exponent: int | None = None,
    ) -> BackwardResult:
        """Gradients of the last ``forward``; ``gradient`` float (batch, J)."""
        factors: list[list[torch.Tensor]] = []
        biases: list[torch.Tensor | None] = []
        g = gradient.to(torch.float32)
        for layer, (x, leaves, b, y) in zip(
            reversed(self.network.layers), reversed(self._tape), strict=True
        ):
            g, by_bias, *found = torch.autograd.grad(y, [x, b, *leaves], g)
            factors.insert(0, list(found))
            biases.insert(0, by_bias if layer.bias else None)
        return BackwardResult(factors, biases, {}, Counters(), 0.0, _NO_RUN)

    def calibrate(
        self, inputs: torch.Tensor, gradient_of: GradientOf, model: QuantisedModel, scales: Scales
    ) -> None:
        """Nothing: there are no scales."""
