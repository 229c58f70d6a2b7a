"""A driver in float64 with torch's autograd: the reference for gradients, and a stand-in.

Same methods as ``trainwright.driver.Driver``, no accelerator. With ``rounded`` it also rounds
activations, biases and gradients to their widths with the exponents of ``Scales``, the way the
accelerator does at the tensors between the layers; the results of single contractions stay exact.
"""

import numpy as np
import torch

from trainwright.accelerator import Counters, Run
from trainwright.driver import BackwardResult, ForwardResult, StepDriver
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Fixed
from trainwright.formats.rounding import limits
from trainwright.network import Layer, Network

_NOTHING = np.zeros(0, np.int64)
_NO_RUN = Run(_NOTHING, _NOTHING, _NOTHING)


def ttm_matrix(layer: Layer, factors: list[torch.Tensor]) -> torch.Tensor:
    """Return W (J, I) of definition 1: element (j_1..j_d, i_1..i_d) is a product of matrices."""
    w = factors[0][0]  # (J_1, I_1, R_1)
    for g in factors[1:]:
        w = torch.einsum("jir,rkls->jkils", w, g)  # (J, J_n, I, I_n, R_n)
        j, k, i, m, r = w.shape
        w = w.reshape(j * k, i * m, r)
    return w[:, :, 0]


class FloatDriver(StepDriver):
    """Runs steps in float64."""

    def __init__(self, accelerator, network: Network, batch: int, *, plan="auto", rounded=True):
        self.network = network
        self.batch = batch
        self.rounded = rounded
        self.input_exponent = 1 - network.widths.activation
        self.steps = 0
        self.tensors = frozenset({"l1.a"})

    def _round(self, x, name, kind, scales, statistics):
        """Round to the tensor's exponent; the gradient goes through as it is."""
        width = getattr(self.network.widths, kind.value)
        exponent = scales.exponents.setdefault(name, -8)
        least, greatest = limits(width)
        whole = (x.detach() * 2.0**-exponent).round()
        q = whole.clamp(least, greatest)
        statistics[name] = TensorStatistics(
            kind=kind,
            format=Fixed(width),
            exponent=exponent,
            floor=-40,
            count=q.numel(),
            total=int(q.abs().sum()),
            saturations=int((q != whole).sum()),
        )
        return q * 2.0**exponent if self.rounded else x.detach()

    def run_forward(self, given) -> ForwardResult:
        inputs, model, scales = given.inputs, given.model, given.scales
        assert inputs.shape == (self.batch, self.network.layers[0].input_size)
        assert model.network == self.network
        statistics: dict[str, TensorStatistics] = {}
        x = inputs.to(torch.float64) * 2.0**self.input_exponent
        self.tape = []
        for n, layer in enumerate(self.network.layers):
            factors = [
                (g.to(torch.float64) * 2.0**k).requires_grad_()
                for g, k in zip(model.factors[n], model.factor_exponents[n], strict=True)
            ]
            bias = model.biases[n]
            bias = None if bias is None else bias.to(torch.float64).clone().requires_grad_()
            x = x.detach().requires_grad_()
            y = x @ ttm_matrix(layer, factors).T
            y = y if bias is None else y + bias
            y = y.relu() if layer.relu else y
            self.tape.append((x, factors, bias, y))
            x = self._round(y, f"layer{n}.output", TensorClass.ACTIVATION, scales, statistics)
        return ForwardResult(statistics, Counters(cycles=1000), 0.001, _NO_RUN, x)

    def run_backward(self, given) -> BackwardResult:
        gradient, scales = given.gradient, given.scales
        statistics: dict[str, TensorStatistics] = {}
        gradients: list[list[torch.Tensor]] = []
        biases: list[torch.Tensor | None] = []
        g = gradient
        for n in reversed(range(len(self.tape))):
            x, factors, bias, y = self.tape[n]
            name = f"layer{n}.gradient"
            g = self._round(g, name, TensorClass.GRADIENT, scales, statistics)
            leaves = [x, *factors] + ([] if bias is None else [bias])
            grads = torch.autograd.grad(y, leaves, g)
            g = grads[0]
            gradients.insert(0, list(grads[1 : 1 + len(factors)]))
            biases.insert(0, None if bias is None else grads[-1])
        return BackwardResult(statistics, Counters(cycles=2000), 0.002, _NO_RUN, gradients, biases)

    def calibrate(self, inputs, gradient_of, model, scales: Scales) -> int:
        for _ in range(64):
            forward = self.forward(inputs, model, scales)
            backward = self.backward(gradient_of(forward.logits), scales)
            if scales.update({**forward.statistics, **backward.statistics}) == 0:
                break
        return 0
