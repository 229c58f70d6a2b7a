"""A stretch of tensor-train layers as the programs of one training step, and its steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from trainwright.driver import BackwardResult, Driver, Pass, QuantisedModel, Runner, Settling
from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import Scales, ranges_of
from trainwright.formats import Posit
from trainwright.network import Network, NumberFormats
from trainwright.nn import TTConv2d, TTLinear
from trainwright.nn.scales import InputQuantiser, largest
from trainwright.nn.untyped import integers
from trainwright.offload.machine import Machine
from trainwright.offload.stretch import Stretch
from trainwright.train.connect import quantised_model

Factors = Sequence[Sequence[torch.Tensor]]
"""Of each layer, those that are trained."""


@dataclass(eq=False)
class Call:
    """A forward pass of at most a batch."""

    done: Pass[Driver]
    samples: int
    """Of the batch; the rest of it repeats them."""
    training: bool
    scales: Scales
    """The segment's, or those of a pass that leaves no trace."""


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
        self._calibrated: frozenset[int] = frozenset()
        """Ends whose gradients have been calibrated."""

    @property
    def driver(self) -> Driver:
        """The driver of the present ranks; ``CompileError`` where the accelerator cannot."""
        return self._driver(self._factors())

    def _driver(self, factors: Factors) -> Driver:
        return self.runner.at(self._wanted(factors), self._opened)

    def _factors(self) -> Factors:
        return [layer.all_factors for layer in self.layers]

    def _wanted(self, factors: Factors) -> tuple[object, ...]:
        """What the driver is for: another accelerator and other ranks have another."""
        return self.machine.accelerator, *(one.shape for layer in factors for one in layer)

    def _opened(self) -> Driver:
        return Driver(
            self.machine.accelerator, self.stretch.network(self.layers, self.image),
            self.machine.settings.batch, input_gradients=self.input_gradients,
        )  # fmt: skip

    def _model(self, network: Network, factors: Factors) -> QuantisedModel:
        """The layers' factors and biases as the driver takes them."""
        return quantised_model(
            network,
            [[_on_host(one) for one in layer] for layer in factors],
            [integers(layer.factor_exponents) for layer in self.layers],
            [_padded_bias(layer) for layer in self.layers],
        )

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """Of a sample's outputs, without padding: of each end (J,), or (C, H, W) of an image."""
        return self._shapes(self.driver.network)

    def _shapes(self, network: Network) -> list[tuple[int, ...]]:
        return [
            _channels_first(network.shapes[end.value]) if end.channels else (end.features,)
            for end in self.stretch.ends
        ]

    def _words(self, x: torch.Tensor, exponent: int) -> torch.Tensor:
        """The whole batch int64 (batch, values); samples that lack are filled up with the same."""
        reading, batch = self.layers[self.stretch.first], self.machine.settings.batch
        words = _rows(_words(x.cpu(), exponent, reading.numbers))
        if self.image is None and reading.padding_columns:
            words = torch.nn.functional.pad(words, (0, reading.padding_columns))
        return words if len(x) == batch else words[torch.arange(batch) % len(x)]

    def forward(self, x: torch.Tensor, *, graded: bool = True) -> tuple[list[torch.Tensor], Call]:
        """Outputs float64 (n, J) of x (n, I), or images of images, of at most a batch of samples.

        One for each end; none has padding.
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
            quantiser.follow(x.detach(), exponent, moves=graded)
        factors = self._factors()
        driver = self._driver(factors)
        network, driver.input_exponent = driver.network, exponent
        inputs, model = self._words(x, exponent), self._model(network, factors)
        scales = self.scales
        if settling is not None:
            done = settling.forward(driver, inputs, model, self.scales)
        else:
            if not self.runner.is_calibrated(scales):
                if not (training and graded and greatest):
                    # A shape check, a probe or zeros must not decide what training computes.
                    scales = Scales(scales.ranges, dict(scales.exponents))
                elif not self._calibrated:
                    # Tensors that are all zeros would stay so at what an earlier batch chose.
                    scales.exponents.clear()
                with Settling[Driver]() as own:
                    own.repeat(lambda: own.forward(driver, inputs, model, scales))
            done = self.runner.forward(inputs, model, scales)
        logits = done.result.logits
        if len(x) < len(logits):
            logits = logits[: len(x)]
        heads = (
            [logits]
            if len(self.stretch.ends) == 1
            else torch.split(logits, list(network.head_sizes), 1)
        )
        return list(map(_shaped, heads, self._shapes(network))), Call(
            done, len(x), training, scales
        )

    def backward(self, call: Call, gradients: Sequence[torch.Tensor | None]) -> "Gradients":
        """Gradients of a forward pass from those of its outputs, one for each end.

        Layers that no end with a gradient is made of have none. Raises ``CompileError`` where the
        ranks changed since the forward pass.
        """
        done, settling = call.done, self.machine.settling
        whole, ends = self._whole(call, gradients)
        scales, kept = call.scales, call.scales is self.scales
        fresh = not kept or not ends <= self._calibrated
        if kept:
            self._calibrated |= ends
        if settling is not None:
            back = settling.backward(done, whole, self.scales)
        else:
            self.runner.keep(self._wanted(self._factors()))
            self.runner.check(done)
            if fresh or not self.runner.is_calibrated(scales):
                self._settle(done, whole, scales)
            back = self.runner.backward(done, whole, scales)
            if call.training and 2 * call.samples >= len(whole):
                scales.update({**done.result.statistics, **back.statistics})
        return self._given(call, back, self.stretch.reaching(ends))

    def restart(self) -> None:
        """Forget all exponents: the next training pass chooses them."""
        self.scales.exponents.clear()
        self._calibrated = frozenset()

    def _settle(self, done: Pass[Driver], gradient: torch.Tensor, scales: Scales) -> None:
        """Exponents of a backward pass, those of the forward pass standing still."""
        with Settling[Driver]() as own:
            own.repeat(lambda: own.backward(own.again(done), gradient, scales))

    def _whole(
        self, call: Call, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, frozenset[int]]:
        """The gradient of all logits of a whole batch, and the ends that have one."""
        network, batch = call.done.driver.network, self.machine.settings.batch
        ends = frozenset(n for n, one in enumerate(gradients) if one is not None)
        if len(gradients) == 1 and gradients[0] is not None:
            rows = _rows(gradients[0])
            if tuple(rows.shape) == (batch, network.output_size):
                return rows, ends
        whole = torch.zeros(batch, network.output_size, dtype=torch.float64)
        for part, gradient in zip(
            torch.split(whole, list(network.head_sizes), 1), gradients, strict=True
        ):
            if gradient is not None:
                rows = _rows(gradient)
                part[: call.samples, : rows.shape[1]] = rows
        return whole, ends

    def _given(self, call: Call, back: BackwardResult, reached: frozenset[int]) -> "Gradients":
        """What is given to torch: without padding, and of the layers ``reached`` alone."""
        layers = list(enumerate(self.layers))
        return Gradients(
            factors=[
                value if n in reached else None for n, _ in layers for value in back.factors[n]
            ],
            biases=[
                _shortened(value, one.rows) if n in reached else None
                for (n, one), value in zip(layers, back.biases, strict=True)
                if value is not None
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
        return rows if rows.shape[1] == shape[0] else rows[:, : shape[0]]
    channels, height, width = shape
    return rows.reshape(len(rows), height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Gradients:
    """Of all factors in order, of all biases, and of the inputs, in their shape; float64."""

    factors: list[torch.Tensor | None]
    biases: list[torch.Tensor | None]
    inputs: torch.Tensor | None


def _words(x: torch.Tensor, exponent: int, numbers: NumberFormats) -> torch.Tensor:
    """``quantise``, in fixed point in the type of ``x``: exact, as widths are 16 at most."""
    fmt = numbers.format("activation")
    if isinstance(fmt, Posit):
        return quantise(x, exponent, fmt, underflow=numbers.host_underflow)
    least, greatest = extremes(fmt)
    return torch.round(x * 2.0**-exponent).clamp_(least, greatest).to(torch.int64)


def _on_host(parameter: torch.Tensor) -> torch.Tensor:
    return parameter if parameter.is_cpu else parameter.cpu()


def _padded_bias(layer: TTLinear | TTConv2d) -> torch.Tensor | None:
    if layer.bias is None:
        return None
    bias, padding = _on_host(layer.bias), prod(layer.outputs) - layer.rows
    return torch.nn.functional.pad(bias, (0, padding)) if padding else bias


def _shortened(values: torch.Tensor, count: int) -> torch.Tensor:
    return values if len(values) == count else values[:count]


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    rows, columns, channels = shape
    return channels, rows, columns
