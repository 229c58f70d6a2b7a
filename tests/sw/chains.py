"""The chains of equations 8 to 19 in float64 with a rounding after every contraction.

Integers of 16 bits, their products and the sums here are exact in float64, so these are the very
values the accelerator must give, reached without programs. Every value carries a bound of its
distance to the same computation without any rounding: the operand's bound contracted with the
magnitudes of the other operand, and half a unit of the exponent it is rounded to.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod

import torch

from trainwright.driver import QuantisedModel
from trainwright.fixed.scale import TensorStatistics
from trainwright.network import Layer


@dataclass(frozen=True)
class Tracked:
    """A tensor and a bound of its error, both float64 of the same shape."""

    value: torch.Tensor
    error: torch.Tensor

    def reshape(self, *shape: int) -> "Tracked":
        return Tracked(self.value.reshape(shape), self.error.reshape(shape))


@dataclass
class Counted:
    """Statistics that a tensor must have."""

    count: int
    total: int
    saturations: int


def product(number: int, factors: Iterable[int], rest: str) -> str:
    """Name a product of a layer's factors (from 0) with further operands."""
    return ".".join((f"l{number}", *(f"G{n + 1}" for n in factors), rest))


def exact(value: torch.Tensor) -> Tracked:
    """Wrap a value that carries no error."""
    return Tracked(value, torch.zeros_like(value))


def contract(equation: str, x: Tracked, g: torch.Tensor) -> Tracked:
    """Apply ``einsum`` to a tracked operand and an exact one."""
    return Tracked(torch.einsum(equation, x.value, g), torch.einsum(equation, x.error, g.abs()))


def finest(values: torch.Tensor, width: int) -> int:
    """Return the least exponent at which ``width`` bits saturate nowhere."""
    greatest, top = float(values.abs().max()), 2 ** (width - 1) - 1
    if greatest == 0:
        return 1 - width
    exponent = math.ceil(math.log2(greatest)) - width - 2
    while top * 2.0**exponent < greatest:
        exponent += 1
    return exponent


def rounded(x: Tracked, exponent: int, width: int) -> tuple[Tracked, Counted]:
    """Round half to even at an exponent and saturate; the bound holds where nothing saturates."""
    whole = torch.round(x.value * 2.0**-exponent)
    limit = 2.0 ** (width - 1)
    q = whole.clamp(-limit, limit - 1)
    counted = Counted(q.numel(), int(q.abs().sum()), int((q != whole).sum()))
    return Tracked(q * 2.0**exponent, x.error + 2.0 ** (exponent - 1)), counted


@dataclass
class Chains:
    """Training step at the exponents that the accelerator reports of each tensor."""

    model: QuantisedModel
    statistics: Mapping[str, TensorStatistics]
    counted: dict[str, Counted] = field(default_factory=dict)
    counted_biases: dict[str, Counted] = field(default_factory=dict)
    activations: list[Tracked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = self.model.network
        self.factors = [
            [g.double() * 2.0**e for g, e in zip(factors, exponents, strict=True)]
            for factors, exponents in zip(
                self.model.factors, self.model.factor_exponents, strict=True
            )
        ]

    def round(self, name: str, x: Tracked) -> Tracked:
        """Round to the exponent and width reported of tensor ``name``; what has none is exact."""
        if name not in self.statistics:
            return x
        s = self.statistics[name]
        result, self.counted[name] = rounded(x, s.exponent, s.width)
        return result

    # Forward: equations 8 to 10, bias, ReLU.

    def forward(self, inputs: torch.Tensor) -> Tracked:
        """Return the logits."""
        x = exact(inputs.double() * 2.0 ** (1 - self.network.widths.activation))
        self.activations = [x]
        for number, layer in enumerate(self.network.layers, 1):
            y = self._layer(number, layer, x)
            x = self.round(f"l{number}.a", self._biased(number, layer, y))
            self.activations.append(x)
        return x

    def _layer(self, number: int, layer: Layer, x: Tracked) -> Tracked:
        batch, z = x.value.shape[0], x
        for n in range(layer.order - 1, -1, -1):
            _, _, i, right = layer.factor_shapes[n]
            lead, trail = prod(layer.inputs[:n]), prod(layer.outputs[n + 1 :])
            z = z.reshape(batch * lead, i, right, trail)
            z = contract("aisc,rjis->arjc", z, self.factors[number - 1][n])
            name = product(number, range(n, layer.order), "x") if n else f"l{number}.y"
            z = self.round(name, z)
        return z.reshape(batch, layer.output_size)

    def _biased(self, number: int, layer: Layer, y: Tracked) -> Tracked:
        bias = self.model.biases[number - 1]
        if bias is not None:
            width = self.network.widths.bias
            pivot = self.statistics[f"l{number}.y"].exponent
            exponent = finest(bias, width) if float(bias.abs().max()) else pivot
            exponent = min(max(exponent, pivot - 15), pivot + 15)
            b, self.counted_biases[f"l{number}.b"] = rounded(exact(bias), exponent, width)
            y = Tracked(y.value + b.value, y.error + b.error)
        return Tracked(y.value.clamp_min(0), y.error) if layer.relu else y

    def _upper(self, number: int) -> str:
        """Return the gradient given to a layer: to its activations if it has no ReLU."""
        masked = self.network.layers[number - 1].relu or number == len(self.network.layers)
        return "dy" if masked else "da"

    # Backward: equations 11 to 19.

    def backward(self, gradient: torch.Tensor) -> tuple[list[list[Tracked]], list[Tracked]]:
        """Return gradients of the factors and of the biases of each layer."""
        width = self.network.widths.gradient
        count = len(self.network.layers)
        dy, _ = rounded(exact(gradient), finest(gradient, width), width)
        gradients = {count: dy}
        for number in range(count, 1, -1):
            gradients[number - 1] = self._through(number, gradients[number])
        factors, biases = [], []
        for number, layer in enumerate(self.network.layers, 1):
            dy = gradients[number]
            factors.append(self._factor_gradients(number, layer, dy))
            ones = torch.ones(dy.value.shape[0], dtype=torch.float64)
            total = contract("sj,s->j", dy, ones)
            biases.append(self.round(f"l{number}.db", total) if layer.bias else total)
        return factors, biases

    def _through(self, number: int, dy: Tracked) -> Tracked:
        """Return the gradient to the pre-activation below layer ``number``."""
        layer, below = self.network.layers[number - 1], self.network.layers[number - 2]
        batch, z = dy.value.shape[0], dy
        for n, (left, j, _, _) in enumerate(layer.factor_shapes):
            lead, trail = prod(layer.inputs[:n]), prod(layer.outputs[n + 1 :])
            z = z.reshape(batch * lead, left, j, trail)
            z = contract("arjc,rjis->aisc", z, self.factors[number - 1][n])
            last = f"l{number}.dx"
            z = self.round(
                last
                if n == layer.order - 1
                else product(number, range(n + 1), self._upper(number)),
                z,
            )
        z = z.reshape(batch, layer.input_size)
        if not below.relu:
            return z
        alive = (self.activations[number - 1].value > 0).double()
        masked = Tracked(z.value * alive, z.error * alive)
        return Tracked(self.round(f"l{number - 1}.dy", masked).value, masked.error)

    def _factor_gradients(self, number: int, layer: Layer, dy: Tracked) -> list[Tracked]:
        batch, d = dy.value.shape[0], layer.order
        factors = self.factors[number - 1]
        y = dy.reshape(batch, layer.output_size)
        x = self.activations[number - 1].value
        w = contract("sj,si->ji", y, x)
        w = w.reshape(*layer.outputs, *layer.inputs)
        upper = f"x.{self._upper(number)}"
        order = [axis for n in range(d) for axis in (n, d + n)]
        w = Tracked(w.value.permute(order), w.error.permute(order))
        rights = {d: self.round(product(number, (), upper), w)}  # (j_1, i_1, ..., j_n, i_n, R_n)
        for n in range(d - 1, 0, -1):
            left, j, i, right = layer.factor_shapes[n]
            z = rights[n + 1].reshape(-1, j, i, right)
            z = contract("ajis,rjis->ar", z, factors[n])
            name = product(number, range(n, d), upper)
            rights[n] = self.round(name if n > 1 else f"l{number}.dG1", z)
        result = [rights[1].reshape(*layer.factor_shapes[0])]
        for n in range(1, d):
            z, name = rights[n + 1], f"l{number}.dG{n + 1}"
            for k in range(n):
                left, j, i, right = layer.factor_shapes[k]
                z = z.reshape(left, j, i, -1)
                z = contract("rjic,rjis->sc", z, factors[k])
                part = product(number, (*range(k + 1), *range(n + 1, d)), upper)
                z = self.round(name if k == n - 1 else part, z)
            result.append(z.reshape(*layer.factor_shapes[n]))
        return result


def matrix(layer: Layer, factors: list[torch.Tensor]) -> torch.Tensor:
    """Return W (J, I), whose elements are products of d matrices (definition of a TTM)."""
    w = torch.ones(1, 1, 1, dtype=torch.float64)
    for g in factors:
        w = torch.einsum("abr,rjis->ajbis", w, g)
        w = w.reshape(w.shape[0] * w.shape[1], w.shape[2] * w.shape[3], w.shape[4])
    assert w.shape == (layer.output_size, layer.input_size, 1)
    return w[:, :, 0]


def straight_through(
    chains: Chains, inputs: torch.Tensor, gradient: torch.Tensor
) -> tuple[list[list[torch.Tensor]], list[torch.Tensor | None]]:
    """Return gradients by torch's autograd, straight through quantised activations."""
    x = inputs.double() * 2.0 ** (1 - chains.network.widths.activation)
    leaves, biases = [], []
    for number, layer in enumerate(chains.network.layers):
        factors = [g.clone().requires_grad_() for g in chains.factors[number]]
        bias = torch.zeros(layer.output_size, dtype=torch.float64, requires_grad=True)
        y = x @ matrix(layer, factors).T + bias
        a = chains.activations[number + 1].value
        slope = (a > 0).double() if layer.relu else torch.ones_like(a)
        x = a + slope * (y - y.detach())
        leaves.append(factors)
        biases.append(bias)
    flat = [g for factors in leaves for g in factors] + biases
    gradients = iter(torch.autograd.grad((x * gradient).sum(), flat))
    return [[next(gradients) for _ in factors] for factors in leaves], list(gradients)


def plain_forward(chains: Chains, inputs: torch.Tensor) -> torch.Tensor:
    """Return logits in float64 with only inputs and factors rounded."""
    x = inputs.double() * 2.0 ** (1 - chains.network.widths.activation)
    for number, layer in enumerate(chains.network.layers):
        x = x @ matrix(layer, chains.factors[number]).T
        bias = chains.model.biases[number]
        x = x if bias is None else x + bias
        x = x.clamp_min(0) if layer.relu else x
    return x
