"""A stretch of tensor-train layers as the programs of one training step, and its steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from trainwright.driver import Driver, Pass, QuantisedModel, Runner
from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import Scales, ranges_of
from trainwright.formats import Posit
from trainwright.network import Network, NumberFormats
from trainwright.nn import TTConv2d, TTLinear
from trainwright.nn.scales import InputQuantiser, largest
from trainwright.offload.machine import Machine
from trainwright.offload.settling import MOST_REPETITIONS
from trainwright.offload.stretch import Stretch


@dataclass(eq=False)
class Call:
    """A forward pass of at most a batch."""

    done: Pass[Driver]
    samples: int
    """Of the batch; the rest of it repeats them."""
    training: bool


class Segment:
    """``layers`` as ``stretch`` says, of inputs of one size.

    ``image`` are rows and columns of the inputs, where these are images. With ``input_gradients``
    its programs give the gradient to the inputs, too. Exponents are calibrated on the first batch
    and follow every training step, as the trainer's do. While the machine is ``settling``,
    ``calibrate`` of the compiled model repeats a step: programs then run on the golden model and
    exponents jump.
    """

    def __init__(
        self,
        stretch: Stretch,
        layers: Sequence[TTLinear | TTConv2d],
        machine: Machine,
        image: tuple[int, int] | None = None,
        *,
        input_gradients: bool = False,
    ) -> None:
        self.stretch, self.layers, self.machine = stretch, tuple(layers), machine
        self.image, self.input_gradients = image, input_gradients
        posits = any(isinstance(one.numbers.format("factor"), Posit) for one in self.layers)
        self.scales = Scales(ranges_of("default", posit_factors=posits))
        self.runner: Runner[Driver] = Runner(machine.memory)

    @property
    def driver(self) -> Driver:
        """The driver of the present ranks; ``CompileError`` where the accelerator cannot."""
        return self.runner.at(self._wanted(), self._opened)

    def _wanted(self) -> tuple[object, ...]:
        """What the driver is for: another accelerator and other ranks have another."""
        return self.machine.accelerator, *(one.ranks for one in self.layers)

    def _opened(self) -> Driver:
        return Driver(
            self.machine.accelerator, self.stretch.network(self.layers, self.image),
            self.machine.settings.batch, input_gradients=self.input_gradients,
        )  # fmt: skip

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

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of a sample's outputs, without padding: (J,), or (C, H, W) of an image."""
        if not self.stretch.made_channels:
            return (self.stretch.features,)
        network = self.driver.network
        rows, columns, channels = network.shapes[network.heads[0]]
        return channels, rows, columns

    def _words(self, x: torch.Tensor, exponent: int) -> torch.Tensor:
        """The whole batch int64 (batch, values); samples that lack are filled up with the same."""
        reading, batch = self.layers[self.stretch.first], self.machine.settings.batch
        words = _rows(_words(x.cpu(), exponent, reading.numbers))
        if self.image is None and reading.padding_columns:
            words = torch.nn.functional.pad(words, (0, reading.padding_columns))
        return words if len(x) == batch else words[torch.arange(batch) % len(x)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Call]:
        """Outputs float64 (n, J) of x (n, I), or images of images, of at most a batch of samples.

        Neither has padding.
        """
        first, settling = self.layers[self.stretch.first], self.machine.settling
        training = first.training
        if training:
            for layer in self.layers:
                layer.clip()
        quantiser = first.quantise_input
        assert isinstance(quantiser, InputQuantiser)
        greatest = largest(x)
        if not greatest < float("inf"):
            raise ValueError(f"inputs have NaN or infinite values; the largest is {greatest}")
        exponent = quantiser.before(x)
        if training and settling is None:
            quantiser.set_exponent(quantiser.moved(exponent, greatest))
        driver = self.driver
        driver.input_exponent = exponent
        inputs, model = self._words(x, exponent), self._model(driver.network)
        if settling is not None:
            done = settling.forward(driver, inputs, model, self.scales)
        else:
            if not self.runner.is_calibrated(self.scales):
                self._settle_forward(driver, inputs, model)
            done = self.runner.forward(inputs, model, self.scales)
        logits = done.result.logits[: len(x)]
        return _shaped(logits, self.output_shape), Call(done, len(x), training)

    def _settle_forward(self, driver: Driver, inputs: torch.Tensor, model: QuantisedModel) -> None:
        with driver.twin() as twin:
            twin.input_exponent = driver.input_exponent
            for _ in range(MOST_REPETITIONS):
                if not self.scales.jump(twin.forward(inputs, model, self.scales).statistics):
                    break

    def _settle_backward(self, done: Pass[Driver], gradient: torch.Tensor) -> None:
        with done.driver.twin() as twin:
            twin.input_exponent = done.input_exponent
            for _ in range(MOST_REPETITIONS):
                twin.forward(done.inputs, done.model, done.scales)
                if not self.scales.jump(twin.backward(gradient, self.scales).statistics):
                    break

    def backward(self, call: Call, gradient: torch.Tensor) -> "Gradients":
        """Gradients of a forward pass from that of its outputs.

        Raises ``CompileError`` where the ranks changed since the forward pass.
        """
        done, settling, batch = call.done, self.machine.settling, self.machine.settings.batch
        whole = torch.zeros(batch, done.driver.network.output_size, dtype=torch.float64)
        rows = _rows(gradient)
        whole[: call.samples, : rows.shape[1]] = rows
        if settling is not None:
            back = settling.backward(done, whole, self.scales)
        else:
            self.runner.keep(self._wanted())
            self.runner.check(done)
            if not self.runner.is_calibrated(self.scales):
                self._settle_backward(done, whole)
            back = self.runner.backward(done, whole, self.scales)
            if call.training and 2 * call.samples >= batch:
                self.scales.update({**done.result.statistics, **back.statistics})
        return Gradients(
            factors=[gradient for layer in back.factors for gradient in layer],
            biases=[
                None if gradient is None else gradient[: layer.rows]
                for gradient, layer in zip(back.biases, self.layers, strict=True)
            ],
            inputs=None if back.inputs is None else self._inputs(back.inputs[: call.samples]),
        )

    def _inputs(self, rows: torch.Tensor) -> torch.Tensor:
        if self.image is None:
            return rows[:, : self.layers[self.stretch.first].columns]
        return _shaped(rows, (self.stretch.channels, *self.image))


def _rows(values: torch.Tensor) -> torch.Tensor:
    """Samples as the accelerator has them, (n, values), of (n, features) or (n, C, H, W)."""
    return values if values.dim() == 2 else values.permute(0, 2, 3, 1).flatten(1)


def _shaped(rows: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """``_rows`` undone; what is beyond ``shape``, (features,) or (C, H, W), is padding."""
    if len(shape) == 1:
        return rows[:, : shape[0]]
    channels, height, width = shape
    return rows.reshape(len(rows), height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Gradients:
    """Of all factors in order, of the biases, and of the inputs, in their shape; float64."""

    factors: list[torch.Tensor]
    biases: list[torch.Tensor | None]
    inputs: torch.Tensor | None


def _words(x: torch.Tensor, exponent: int, numbers: NumberFormats) -> torch.Tensor:
    """``quantise``, in fixed point in the type of ``x``: exact, as widths are 16 at most."""
    fmt = numbers.format("activation")
    if isinstance(fmt, Posit):
        return quantise(x, exponent, fmt, underflow=numbers.host_underflow)
    least, greatest = extremes(fmt)
    return torch.round(x * 2.0**-exponent).clamp_(least, greatest).to(torch.int64)


def _padded_bias(layer: TTLinear | TTConv2d) -> torch.Tensor | None:
    if layer.bias is None:
        return None
    bias = torch.zeros(prod(layer.outputs), dtype=torch.float64)
    bias[: layer.rows] = layer.bias.detach()
    return bias
