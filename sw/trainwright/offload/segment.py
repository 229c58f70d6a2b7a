"""A stretch of tensor-train layers as the programs of one training step, and its steps."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch

from trainwright.accelerator import Counters
from trainwright.compiler import CompileError
from trainwright.driver import Driver, ForwardResult, QuantisedModel
from trainwright.fixed.quantise import (
    extremes,
    fitting_exponent,
    input_exponent,
    quantise,
)
from trainwright.fixed.scale import Scales
from trainwright.formats import Posit
from trainwright.network import Network, NumberFormats
from trainwright.nn import TTLinear
from trainwright.nn.scales import InputQuantiser, largest
from trainwright.offload.machine import Machine

MOST_REPETITIONS = 64
"""Steps at most until the exponents stand still."""


@dataclass(eq=False)
class Call:
    """A forward pass: all that repeats it bit by bit, and what its backward pass needs."""

    driver: Driver
    inputs: torch.Tensor
    """int64 (batch, I)."""
    input_exponent: int
    model: QuantisedModel
    scales: Scales
    """A copy, as they were."""
    samples: int
    """Of the batch; the rest of it repeats them."""
    training: bool
    result: ForwardResult


@dataclass
class Totals:
    """What a segment has run."""

    forward: int = 0
    backward: int = 0
    """Programs executed, repetitions included; calibration is not."""
    counters: Counters = field(default_factory=Counters)
    saturations: int = 0
    underflows: int = 0
    seconds: float = 0.0

    def add(self, result: Any) -> None:
        """Count the result of a program."""
        self.counters += result.counters
        self.saturations += sum(s.saturations for s in result.statistics.values())
        self.underflows += sum(s.underflows for s in result.statistics.values())
        self.seconds += result.seconds


class Segment:
    """``layers`` with a ReLU after each but the last, where ``relus`` has one.

    With ``input_gradients`` its programs give the gradient to the inputs, too.
    Exponents are calibrated on the first batch and follow every training step, as the trainer's
    do. ``settling`` is set while ``calibrate`` of the compiled model repeats a step: programs then
    run on the golden model and exponents jump.
    """

    def __init__(
        self,
        layers: Sequence[TTLinear],
        relus: Sequence[bool],
        machine: Machine,
        *,
        input_gradients: bool = False,
    ) -> None:
        self.layers, self.relus, self.machine = tuple(layers), tuple(relus), machine
        self.input_gradients = input_gradients
        self.scales = Scales()
        self.totals = Totals()
        self.settling: Settling | None = None
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None, "settling": None}

    @property
    def network(self) -> Network:
        """The network of these layers at their present ranks."""
        layers = tuple(
            replace(layer.layer, relu=relu, bias=layer.bias is not None)
            for layer, relu in zip(self.layers, (*self.relus, False), strict=True)
        )
        size, numbers = (1, layers[0].input_size), self.layers[0].numbers
        return Network(
            "compiled", layers, layers[-1].output_size, size, size, widths=numbers.widths,
            posits=numbers.posits, underflow=numbers.underflow,
        )  # fmt: skip

    @property
    def driver(self) -> Driver:
        """The driver of the present ranks; ``CompileError`` where the accelerator cannot."""
        ranks = tuple(layer.ranks for layer in self.layers)
        accelerator = self.machine.accelerator
        stale = self._driver is None or self._driver.accelerator is not accelerator
        if self._driver is None or stale or self._driver.network.ranks != ranks:
            self._driver = Driver(
                accelerator, self.network, self.machine.settings.batch,
                input_gradients=self.input_gradients,
            )  # fmt: skip
        return self._driver

    def _model(self, network: Network) -> QuantisedModel:
        """The layers' factors and biases as the driver takes them."""
        fmt, underflow = network.format("factor"), network.host_underflow
        exponents = [layer.factor_exponents.tolist() for layer in self.layers]
        return QuantisedModel(
            network=network,
            factors=[
                [
                    quantise(f.detach().cpu(), k, fmt, underflow=underflow)
                    for f, k in zip(own, ks, strict=True)
                ]
                for own, ks in zip((one.all_factors for one in self.layers), exponents, strict=True)
            ],
            factor_exponents=exponents,
            biases=[_padded_bias(layer) for layer in self.layers],
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Call]:
        """Outputs float64 (n, J) of x (n, I) of at most a batch, both without padding."""
        first, training = self.layers[0], self.layers[0].training
        if training:
            for layer in self.layers:
                layer.clip()
        quantiser = first.quantise_input
        assert isinstance(quantiser, InputQuantiser)
        greatest = largest(x)
        if not greatest < float("inf"):
            raise ValueError(f"inputs have NaN or infinite values; the largest is {greatest}")
        exponent = quantiser.before(x)
        if training and self.settling is None:
            quantiser.set_exponent(quantiser.moved(exponent, greatest))
        driver = self.driver
        driver.input_exponent = exponent
        batch = self.machine.settings.batch
        inputs = _words(x.cpu(), exponent, first.numbers)
        if first.padding_columns:
            inputs = torch.nn.functional.pad(inputs, (0, first.padding_columns))
        if len(x) < batch:
            inputs = inputs[torch.arange(batch) % len(x)]
        model = self._model(driver.network)
        scales = self.scales
        if self.settling is not None:
            driver = self.settling.twin(driver)
        elif not scales.exponents.keys() >= driver.tensors:
            self._settle_forward(driver, inputs, model)
        used = Scales(scales.ranges, dict(scales.exponents))
        result = driver.forward(inputs, model, scales)
        call = Call(driver, inputs, exponent, model, used, len(x), training, result)
        if self.settling is not None:
            self.settling.moved += scales.jump(result.statistics)
        else:
            self.machine.last = call
            self.totals.forward += 1
            self.totals.add(result)
        return result.logits[: len(x), : self.layers[-1].rows], call

    def _settle_forward(self, driver: Driver, inputs: torch.Tensor, model: QuantisedModel) -> None:
        with driver.twin() as twin:
            twin.input_exponent = driver.input_exponent
            for _ in range(MOST_REPETITIONS):
                if not self.scales.jump(twin.forward(inputs, model, self.scales).statistics):
                    break

    def _settle_backward(self, call: Call, gradient: torch.Tensor, exponent: int) -> None:
        with call.driver.twin() as twin:
            twin.input_exponent = call.input_exponent
            for _ in range(MOST_REPETITIONS):
                twin.forward(call.inputs, call.model, call.scales)
                back = twin.backward(gradient, self.scales, exponent=exponent)
                if not self.scales.jump(back.statistics):
                    break

    def backward(self, call: Call, gradient: torch.Tensor) -> "Gradients":
        """Gradients of a forward pass from that of its outputs, (n, J).

        Raises ``CompileError`` where the ranks changed since the forward pass.
        """
        driver = call.driver
        if self.settling is None and driver is not self._driver:
            raise CompileError(
                "the program of this forward pass is stale: the ranks changed, or the model was "
                "closed, before backward; run forward again (cut ranks after optimizer.step())"
            )
        last = self.layers[-1]
        whole = torch.zeros(self.machine.settings.batch, prod(last.outputs), dtype=torch.float64)
        whole[: call.samples, : last.rows] = gradient
        fmt = last.numbers.format("gradient")
        exponent = fitting_exponent(whole, fmt, zero=input_exponent(fmt))
        known = self.scales.exponents.keys() >= driver.tensors
        if self.settling is None:
            if self.machine.last is not call:
                driver.input_exponent = call.input_exponent
                self.totals.forward += 1
                self.totals.add(driver.forward(call.inputs, call.model, call.scales))
            if not known:
                self._settle_backward(call, whole, exponent)
        back = driver.backward(whole, self.scales, exponent=exponent)
        if self.settling is not None:
            self.settling.moved += self.scales.jump(back.statistics)
        else:
            self.machine.last = None
            self.totals.backward += 1
            self.totals.add(back)
            if call.training and 2 * call.samples >= self.machine.settings.batch:
                self.scales.update({**call.result.statistics, **back.statistics})
        return Gradients(
            factors=[gradient for layer in back.factors for gradient in layer],
            biases=[
                None if gradient is None else gradient[: layer.rows]
                for gradient, layer in zip(back.biases, self.layers, strict=True)
            ],
            inputs=None if back.inputs is None else back.inputs[: call.samples],
        )


@dataclass(frozen=True, eq=False)
class Gradients:
    """Of all factors in order, of the biases, and (n, I) of the inputs; float64."""

    factors: list[torch.Tensor]
    biases: list[torch.Tensor | None]
    inputs: torch.Tensor | None


class Settling:
    """Drivers of the golden model for as long as exponents are calibrated."""

    def __init__(self) -> None:
        self.moved = 0
        self._stack = ExitStack()
        self._twins: dict[int, Driver] = {}

    def twin(self, driver: Driver) -> Driver:
        """The twin of a driver, the same one each time."""
        if id(driver) not in self._twins:
            self._twins[id(driver)] = self._stack.enter_context(driver.twin())
        twin = self._twins[id(driver)]
        twin.input_exponent = driver.input_exponent
        return twin

    def close(self) -> None:
        """Release the twins."""
        self._stack.close()


def _words(x: torch.Tensor, exponent: int, numbers: NumberFormats) -> torch.Tensor:
    """``quantise``, in fixed point in the type of ``x``: exact, as widths are 16 at most."""
    fmt = numbers.format("activation")
    if isinstance(fmt, Posit):
        return quantise(x, exponent, fmt, underflow=numbers.host_underflow)
    least, greatest = extremes(fmt)
    return torch.round(x * 2.0**-exponent).clamp_(least, greatest).to(torch.int64)


def _padded_bias(layer: TTLinear) -> torch.Tensor | None:
    if layer.bias is None:
        return None
    bias = torch.zeros(prod(layer.outputs), dtype=torch.float64)
    bias[: layer.rows] = layer.bias.detach()
    return bias
