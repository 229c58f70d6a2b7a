"""Training steps in float32 on the host: the baseline for the accelerator's numbers.

Same methods as ``trainwright.driver.Driver``. Nothing is quantised, so that there are no scales, no
statistics and no cycles.
"""

import numpy as np
import torch

from trainwright.accelerator import Counters, Run
from trainwright.driver import (
    BackwardOperands,
    BackwardResult,
    ForwardOperands,
    ForwardResult,
    StepDriver,
)
from trainwright.network import Network
from trainwright.train.functional import outputs
from trainwright.tt import to_matrix

_NOTHING = np.zeros(0, np.int64)
_NO_RUN = Run(_NOTHING, _NOTHING, _NOTHING)


class FloatDriver(StepDriver):
    """Forward and backward passes of one network in float32, each layer's W rebuilt (J, I)."""

    input_exponent = -23
    """Pixels of 0..1 as integers of this exponent have the precision of float32."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._leaves: list[list[torch.Tensor]] = []
        self._biases: list[torch.Tensor] = []
        self._logits = torch.zeros(())

    def run_forward(self, given: ForwardOperands) -> ForwardResult:
        """Return logits of ``inputs`` int64 (batch, I) with the values of the model's factors."""
        model = given.model
        # Inputs arrive as integers, as on the accelerator: both kinds of run read one quantiser.
        x = given.inputs.to(torch.float32) * 2.0**self.input_exponent
        self._leaves = [
            [
                (factor.to(torch.float32) * 2.0**exponent).requires_grad_()
                for factor, exponent in zip(factors, exponents, strict=True)
            ]
            for factors, exponents in zip(model.factors, model.factor_exponents, strict=True)
        ]
        self._biases = [
            torch.zeros(layer.output_size) if bias is None else bias.to(torch.float32)
            for layer, bias in zip(self.network.layers, model.biases, strict=True)
        ]
        self._biases = [bias.detach().requires_grad_() for bias in self._biases]
        weights = [to_matrix(leaves, torch.float32) for leaves in self._leaves]
        self._logits = outputs(self.network, weights, self._biases, x, given.masks)
        logits = self._logits.detach().to(torch.float64)
        return ForwardResult({}, Counters(), 0.0, _NO_RUN, logits)

    def run_backward(self, given: BackwardOperands) -> BackwardResult:
        """Return gradients of the last ``forward``; ``gradient`` (batch, outputs of all heads)."""
        every = [factor for leaves in self._leaves for factor in leaves]
        by_leaf = list(
            torch.autograd.grad(
                # One call for all leaves: autograd walks the graph once. Layers without a bias
                # still have a leaf of zeros so that factors and biases come back in fixed
                # positions.
                self._logits, [*every, *self._biases], given.gradient.to(torch.float32),
                materialize_grads=True,
            )
        )  # fmt: skip
        factors = [[by_leaf.pop(0) for _ in leaves] for leaves in self._leaves]
        biases = [
            by_bias if layer.bias else None
            for layer, by_bias in zip(self.network.layers, by_leaf, strict=True)
        ]
        return BackwardResult({}, Counters(), 0.0, _NO_RUN, factors, biases)
