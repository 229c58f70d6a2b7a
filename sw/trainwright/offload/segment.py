"""Run tensor-train layers that follow one another as the programs of one training step."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import torch

from trainwright.compiler import CompileError
from trainwright.compiler.base.errors import ResourceError
from trainwright.driver import (
    BackwardOperands,
    BackwardResult,
    Driver,
    ForwardOperands,
    Pass,
    QuantisedModel,
    Runner,
    Settling,
)
from trainwright.driver.dropout import dropped
from trainwright.fixed.align import AlignmentError
from trainwright.fixed.health import LostTensorWarning, TensorHealth, loss_in_evaluation
from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import (
    MOST_SATURATED,
    SATURATED_ENERGY,
    UNCOUNTED,
    ScaleRanges,
    Scales,
    TensorStatistics,
)
from trainwright.formats.rounding import MAX_SHIFT
from trainwright.network import Network, NetworkError, NumberFormats
from trainwright.nn.overflow import note_overflow
from trainwright.nn.processes import warn_of_own_exponents
from trainwright.nn.scales import InputQuantiser, RecentPasses, largest
from trainwright.nn.straight_through import scaled
from trainwright.offload.machine import AcceleratorHandle
from trainwright.offload.padding import Padding, without_unused_rows
from trainwright.offload.stretch import ProgramLayer, Stretch, options_of
from trainwright.support.caution import warn_user
from trainwright.train.connect import quantised_model

Given = ParamSpec("Given")
Result = TypeVar("Result")
Masks = tuple[torch.Tensor, ...]
"""Masks of attentions, in the order of the program."""
Factors = Sequence[Sequence[torch.Tensor]]
"""Trained factors of each layer."""


@dataclass(eq=False)
class CallSamples:
    """Samples of a call that computes gradients, of one batch or of several, or of a pass."""

    values: torch.Tensor
    masks: Masks = ()
    """Keys that each query finds, bool (n, heads, queries, keys), of each masked attention."""


@dataclass(eq=False)
class ForwardCall:
    """A forward pass of at most a batch."""

    done: Pass[Driver]
    samples: int
    """Samples of the batch; the rest of it repeats them."""
    follows: bool
    """Whether exponents follow the pass: it is one of training, with gradients."""
    whole: CallSamples | None
    """Samples of which the pass has a part."""
    occupied: int
    """Samples of the batch whose values are not zeros: means are taken of these."""


@dataclass(eq=False)
class StepMoves:
    """Moves of exponents by the passes of one training step, several where layers are shared.

    Every pass moves the exponents as they were before the first pass, and the highest result wins.
    If each pass moved the result of the one before, a call with small values would lower an
    exponent that a call with large values had raised, and the large values would always saturate.
    """

    begun: dict[str, int] = field(default_factory=dict)
    """Exponents before the first move."""
    moved: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Tensors mostly saturated in some pass, which the next step chooses anew."""
    chosen_by: CallSamples | None = None
    """Call that chose exponents in this step: other calls may need higher ones."""

    counted: bool = False
    """Whether a backward pass was counted as the training step."""

    def begin(self) -> None:
        """Forget the moves of the step before."""
        self.begun, self.moved, self.lost = {}, set(), set()
        self.chosen_by, self.counted = None, False


@dataclass(frozen=True)
class _Exponents:
    """Exponents of a forward pass: its inputs', and those of its tensors."""

    exponent: int
    scales: Scales


def _naming_layers(method: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let errors about exponents name the layer of the module and its values."""

    @wraps(method)
    def named(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except AlignmentError as error:
            segment: Any = args[0]
            raise ValueError(segment.beyond_shifts(error, args[1])) from None

    return named


@dataclass(frozen=True)
class _PassSetup:
    """Common setup of a call's forward passes, of which only samples and scales differ."""

    driver: Driver
    model: QuantisedModel
    exponent: int
    """Exponent of the inputs."""
    masks: int | None = None
    """Seed of the masks of dropout."""

    @classmethod
    def of(
        cls, driver: Driver, model: QuantisedModel, exponent: int, masks: int | None = None
    ) -> "_PassSetup":
        """Return the setup, after giving the driver the exponent of its inputs."""
        driver.input_exponent = exponent
        return cls(driver, model, exponent, masks)


class Segment:
    """Layers that run as the programs of one training step, for inputs of one size.

    ``stretch`` says how ``layers`` follow one another. ``image`` are rows and columns of the inputs
    if these are images. With ``input_gradients`` the programs also give the gradient to the inputs;
    a segment with these gradients and one without share exponents and ``moves``. The first training
    step calibrates exponents, which then follow every training step, as in the trainer. While the
    machine is ``settling``, ``calibrate`` of the compiled model repeats a step: programs then run
    on the golden model and exponents jump.
    """

    def __init__(
        self,
        stretch: Stretch,
        layers: Sequence[ProgramLayer],
        machine: AcceleratorHandle,
        image: tuple[int, int] | None = None,
        *,
        input_gradients: bool = False,
        moves: StepMoves | None = None,
        tokens: int = 1,
    ) -> None:
        self.stretch, self.layers, self.machine = stretch, tuple(layers), machine
        self.image, self.input_gradients, self.tokens = image, input_gradients, tokens
        # The layer that reads the inputs keeps the exponents: they belong to its state_dict.
        kept, name = self.layers[stretch.first].program_exponents, self._name
        ranges = ScaleRanges(
            coded_saturated=MOST_SATURATED, saturated_energy=SATURATED_ENERGY, uncounted=UNCOUNTED
        )
        held = kept.setdefault(f"{name} held", {})
        self.scales = Scales(ranges, kept.setdefault(name, {}), held)
        self._ends = kept.setdefault(f"{name} ends", {})
        """Ends whose gradients have been calibrated, as names."""
        self._numbers = kept.setdefault(f"{name} numbers", {})
        """Numbers that the exponents were chosen for, as a name; none before."""
        self.runner: Runner[Driver] = Runner(machine.memory)
        self._passes = RecentPasses[_Exponents]()
        """Exponents of the last training passes, for checkpoints that compute them again."""
        self._step = moves or StepMoves()
        self._health = TensorHealth()
        self.steps = 0
        """Training steps: forward passes in training mode, one or several, whose backward ran."""

    @property
    def batch(self) -> int:
        """Samples of a pass: rows of features, or sequences of about as many tokens."""
        return max(1, self.machine.settings.batch // self.tokens)

    @property
    def _name(self) -> str:
        """Name of the programs in a ``state_dict``: the layers, and the size of images.

        Programs with and without gradients of the inputs share their exponents: an evaluation
        computes as the training before it.
        """
        image = f" {self.image[0]}x{self.image[1]}" if self.image else ""
        return ",".join(self.stretch.names) + image

    def forget(self) -> None:
        """Drop all exponents: the next training step chooses them anew."""
        self.scales.exponents.clear()
        self.scales.held.clear()
        self._ends.clear()
        self._numbers.clear()

    def _mark(self, ends: frozenset[int]) -> None:
        """Note that the gradients of these ends have been calibrated."""
        self._ends.update({str(end): 1 for end in ends})

    @property
    def driver(self) -> Driver:
        """The driver of the present ranks; ``CompileError`` where the accelerator cannot."""
        return self._driver(self._factors())

    def _driver(self, factors: Factors) -> Driver:
        return self.runner.driver_for(self._wanted(factors), self._opened)

    def _factors(self) -> Factors:
        return [layer.all_factors for layer in self.layers]

    def _wanted(self, factors: Factors) -> tuple[object, ...]:
        """Return the driver's key: another accelerator, numbers, ranks or options of a layer."""
        numbers = (layer.numbers for layer in self.layers)
        options = (option for layer in self.layers for option in options_of(layer))
        shapes = (factor.shape for layer in factors for factor in layer)
        return self.machine.accelerator, *numbers, *options, *shapes

    def _opened(self) -> Driver:
        width = self.machine.accelerator.parameters.factor_width
        for name, layer in zip(self.stretch.names, self.layers, strict=True):
            if layer.widths.factor > width:
                raise CompileError(
                    f"{name} has factors of {layer.widths.factor} bits since it was compiled for "
                    f"{width}: call trainwright.compile again after set_numbers"
                )
        try:
            return Driver(
                self.machine.accelerator,
                self.stretch.network(self.layers, self.image, self.tokens),
                self.batch, input_gradients=self.input_gradients,
                occupied=Padding(self.layers).occupied, effort=self.machine.settings.effort,
            )  # fmt: skip
        except ResourceError as error:
            raise error.named(self.stretch.user_names) from None
        except NetworkError as error:
            raise CompileError(self.stretch.user_names.description(str(error))) from error

    def _model(self, network: Network, factors: Factors) -> QuantisedModel:
        """Return the layers' factors and biases as the driver takes them."""
        return quantised_model(
            network,
            [
                without_unused_rows(layer, [_on_host(factor) for factor in own])
                for layer, own in zip(self.layers, factors, strict=True)
            ],
            [layer.used_exponents() for layer in self.layers],
            [_padded_bias(layer) for layer in self.layers],
        )

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of a sample's outputs: of each end (J,), or (C, H, W) of an image.

        Padding is left out.
        """
        return self._shapes(self.driver.network)

    def _shapes(self, network: Network) -> list[tuple[int, ...]]:
        return [
            _channels_first(network.shapes[end.value])
            if end.channels
            else (self.tokens * end.features,)
            for end in self.stretch.ends
        ]

    def _words(self, x: torch.Tensor, exponent: int) -> torch.Tensor:
        """Return the whole batch as words int64 (batch, values); repeated samples fill it up."""
        reading, batch = self.layers[self.stretch.first], self.batch
        words = _rows(_words(x.cpu(), exponent, reading.numbers))
        if self.image is None and reading.padding_columns:
            padded = (0, reading.padding_columns)
            words = torch.nn.functional.pad(_by_token(words, self.tokens), padded).flatten(1)
        return words if len(x) == batch else words[torch.arange(batch) % len(x)]

    @_naming_layers
    def forward(
        self, samples: CallSamples, given: CallSamples | None
    ) -> tuple[list[torch.Tensor], ForwardCall]:
        """Compute outputs float64 (n, J) of x (n, I), or images of images, for at most a batch.

        There is an output for each end, without padding. Exponents follow a pass in training mode
        that computes gradients: ``given`` are all samples of its call, which calibrate exponents
        that are not chosen yet. Other passes, with ``given`` None, leave no trace.
        """
        first, settling = self.layers[self.stretch.first], self.machine.settling
        x = samples.values
        follows = given is not None and first.training
        n = first.numbers  # of all layers of a program
        numbers = {f"{','.join(n.stored_formats.values())},{n.widths.bias},{n.underflow}": 1}
        if self._numbers and numbers != self._numbers:
            # Exponents chosen for words of other bits would lose bits without a warning.
            self.forget()
        if follows or settling is not None:
            self._numbers.update(numbers)
        if follows:
            warn_of_own_exponents(first, self.stretch.names[self.stretch.first], compiled=True)
        whole = samples if given is None else given
        for name, layer in zip(self.stretch.names, self.layers, strict=True):
            layer.require_finite(name)
            if first.training:
                layer.clip()
        factors = self._factors()
        driver = self._driver(factors)
        network, model = driver.network, self._model(driver.network, factors)
        occupied = self._occupied(x)
        # A checkpoint computes a pass again in the backward pass: with the same exponents.
        remembered = self._passes.remembered(x)
        masks = _mask_seed(network) if first.training and settling is None else None
        if settling is not None:
            setup = _PassSetup.of(driver, model, self._calibrated_input(x))
            done = settling.forward(driver, self._operands(setup, samples, self.scales))
        elif remembered is not None:
            setup = _PassSetup.of(driver, model, remembered.exponent, masks)
            done = self.runner.forward(self._operands(setup, samples, remembered.scales))
        else:
            done = self._computed(driver, samples, whole, model, masks, follows=follows)
            exponent = done.input_exponent
            self._count_saturated(x, exponent, whole.values if follows else None)
            if follows:
                self._step.begin()
                self._passes.remember(x, _Exponents(exponent, done.operands.scales))
        outputs = self._outputs(network, done.result.logits[: len(x)])
        return outputs, ForwardCall(done, len(x), follows, given, occupied)

    def _outputs(self, network: Network, logits: torch.Tensor) -> list[torch.Tensor]:
        """Cut logits into the outputs of all ends, each in torch's shape."""
        single = len(self.stretch.ends) == 1
        heads = [logits] if single else torch.split(logits, list(network.head_sizes), 1)
        shapes = self._shapes(network)
        return [
            _shaped(head, shape, self.tokens) for head, shape in zip(heads, shapes, strict=True)
        ]

    def _computed(
        self, driver: Driver, samples: CallSamples, whole: CallSamples, model: QuantisedModel,
        masks: int | None, *, follows: bool,
    ) -> Pass[Driver]:  # fmt: skip
        """Run a forward pass; choose exponents anew where no shift leads from theirs to its values.

        A pass that is refused leaves no trace.
        """
        with self.unchanged_if_refused():
            exponent = self._input_exponent(whole.values, follows=follows)
            setup = _PassSetup.of(driver, model, exponent, masks)
            try:
                return self._pass(setup, samples, whole, self.scales, follows=follows)
            except AlignmentError:
                # Exponents of 1e30 leave no shift for values of 1: begin as a fresh model does.
                fresh = Scales(self.scales.ranges)
                return self._pass(setup, samples, whole, fresh, follows=follows)

    @contextmanager
    def unchanged_if_refused(self) -> Generator[None]:
        """Restore all exponents where an error ends the context."""
        quantiser = self._quantiser
        before = {name: value.clone() for name, value in quantiser.named_buffers()}
        tables = self.scales.exponents, self.scales.held, self._ends, self._numbers
        kept = [dict(table) for table in tables]
        try:
            yield
        except BaseException:
            quantiser.load_state_dict(before)
            for table, values in zip(tables, kept, strict=True):
                table.clear()
                table.update(values)
            raise

    def _pass(
        self, setup: _PassSetup, samples: CallSamples, whole: CallSamples, scales: Scales,
        *, follows: bool,
    ) -> Pass[Driver]:  # fmt: skip
        """Run a forward pass with these exponents, or others if values are lost with them."""
        training = self.layers[self.stretch.first].training
        if not self.runner.is_calibrated(scales):
            stays = follows and bool(whole.values.any())
            scales = self._chosen(setup, whole, scales if stays else scales.copy())
        given = self._operands(setup, samples, scales)
        done = self.runner.forward(given)
        counted = self._of_samples(self._occupied(samples.values), done.result.statistics)
        lost = bool(given.inputs.any()) and self._is_astray(counted)
        if lost and not training:
            self._warn_of_frozen(counted)
        elif lost:
            # The values have moved further than exponents follow in one step.
            scales = replace(scales.copy(), held=scales.held)
            scales = self._chosen(setup, whole, scales)
            done = self.runner.forward(replace(given, scales=scales))
        return done

    def _operands(self, setup: _PassSetup, samples: CallSamples, scales: Scales) -> ForwardOperands:
        """Return the operands of a pass; repeated samples fill up the batch."""
        places = torch.arange(self.batch) % max(1, len(samples.values))
        attended = {
            node.name: mask[places]
            for node, mask in zip(self.stretch.masked, samples.masks, strict=True)
        }
        words = self._words(samples.values, setup.exponent)
        return ForwardOperands(words, setup.model, scales, masks=setup.masks, attended=attended)

    @property
    def _quantiser(self) -> InputQuantiser:
        quantiser = self.layers[self.stretch.first].quantise_input
        assert isinstance(quantiser, InputQuantiser)
        return quantiser

    def _calibrated_input(self, x: torch.Tensor) -> int:
        """Choose the exponent of the inputs anew, by one batch."""
        exponent = self._quantiser.fitting(largest(x))
        if bool(x.any()):
            self._quantiser.set_exponent(exponent)
            self._quantiser.watch_inputs(
                self._input_name, x.detach(), exponent, hidden=self.input_gradients
            )
        return exponent

    @property
    def _input_name(self) -> str:
        return f"input of {self.stretch.names[self.stretch.first]}"

    def _input_exponent(self, whole: torch.Tensor, *, follows: bool) -> int:
        """Return the exponent of the inputs; that of the next pass follows the call's largest."""
        greatest = largest(whole)
        if not greatest < float("inf"):
            raise ValueError(
                f"inputs of {self.stretch.names[self.stretch.first]} have NaN or infinite values "
                f"(the largest is {greatest}): check the data with torch.isfinite(x)"
            )
        exponent = self._quantiser.before(whole, follows=follows)
        if follows and bool(self._quantiser.calibrated):
            self._quantiser.follow(exponent, greatest)
        return exponent

    def _chosen(self, setup: _PassSetup, whole: CallSamples, scales: Scales) -> Scales:
        """Let the exponents of a forward pass jump to suit samples drawn from the whole call."""
        batch = self.batch
        every = -(-len(whole.values) // batch)  # evenly from all parts of the call
        drawn = CallSamples(whole.values[::every], tuple(mask[::every] for mask in whole.masks))
        given = self._operands(setup, drawn, scales)
        occupied = self._occupied(drawn.values)
        with Settling() as own:
            own.repeat(lambda: own.forward(setup.driver, given, samples=occupied))
        return scales

    def _occupied(self, x: torch.Tensor) -> int:
        """Return the number of samples of a batch whose values are not zeros.

        With a bias that is not zero, all samples have such values.
        """
        batch = self.batch
        if any(layer.bias is not None and bool(layer.bias.any()) for layer in self.layers):
            return batch
        rows = x.flatten(1).any(1)
        return batch if bool(rows.all()) else max(1, int(rows.sum()) * batch // len(rows))

    def _count_saturated(
        self, x: torch.Tensor, exponent: int, trained: torch.Tensor | None
    ) -> None:
        """Count the inputs beyond the largest word; warn where many are lost.

        ``trained`` are the inputs of a whole call in training; None in others.
        """
        counted = self._quantiser.counted(x.detach(), exponent)
        if not counted.format.coded:
            self.runner.totals.saturations += counted.saturations
            self.runner.totals.values += x.numel()
        name = self._input_name
        if trained is not None:
            self._quantiser.watch_inputs(name, trained, exponent, hidden=self.input_gradients)
        elif not self._quantiser.training and bool(self._quantiser.calibrated):
            self._quantiser.watch_frozen(x.detach(), exponent, name)

    @_naming_layers
    def backward(self, call: ForwardCall, gradients: Sequence[torch.Tensor | None]) -> "Gradients":
        """Compute gradients of a forward pass from those of its outputs, one for each end.

        Layers that lead to no end with a gradient have none. Raises ``CompileError`` where the
        ranks changed since the forward pass.
        """
        done, settling = call.done, self.machine.settling
        whole, ends = self._whole(call, gradients)
        greatest = largest(whole)
        if not greatest < float("inf"):
            return self._overflowed(call, greatest, self.stretch.reaching(ends))
        if settling is not None:
            self._mark(ends)
            operands = BackwardOperands(whole, self.scales)
            back = settling.backward(done, operands, samples=call.samples)
            return self._given(call, back, self.stretch.reaching(ends))
        self.runner.forget_unless(self._wanted(self._factors()))
        self.runner.check(done)
        # Fewer samples have larger gradients, of a mean loss: such a pass has exponents of its own.
        few = call.follows and 2 * call.samples < len(whole)
        follows = call.follows and bool(whole.any()) and not few
        if call.follows:
            self._watch_gradients(gradients)
        # Exponents of a step are those before its moves; a pass in evaluation is of no step.
        step, scales = self._step, self._step_scales() if call.follows else self.scales
        known = {str(end) for end in ends} <= self._ends.keys()
        chosen = follows and step.chosen_by not in (None, call.whole)
        if few or chosen or not (known and self.runner.is_calibrated(scales)):
            if not follows or step.begun:
                scales = self._forward_scales(done)
            self._settle(call, whole, scales)
            if follows:
                self._mark(ends)
                step.chosen_by = call.whole
        back = self.runner.backward(done, BackwardOperands(whole, scales))
        counted = self._of_samples(_filled(whole), back.statistics)
        if bool(whole.any()) and self._is_astray(counted):
            scales = replace(scales.copy(), held=self.scales.held if follows else {})
            self._settle(call, whole, scales)
            back = self.runner.backward(done, BackwardOperands(whole, scales))
        if call.follows and not step.counted:
            step.counted = True
            self.steps += 1
        if follows:
            self._follow(call, self._of_samples(_filled(whole), back.statistics))
        elif call.follows:
            self._follow(call, {})
        return self._given(call, back, self.stretch.reaching(ends))

    def _step_scales(self) -> Scales:
        """Return the scales of a step: with those it has begun with, in a copy, once it has."""
        if not self._step.begun:
            return self.scales
        scales = self.scales.copy()
        scales.exponents.update(self._step.begun)
        return scales

    def _forward_scales(self, done: Pass[Driver]) -> Scales:
        """Return scales that have only the exponents of a forward pass's own tensors."""
        exponents, own = done.operands.scales.exponents, done.result.statistics.keys()
        return Scales(self.scales.ranges, {n: e for n, e in exponents.items() if n in own})

    def _watch_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Warn where outputs have gradients of far different sizes."""
        for number, (end, gradient) in enumerate(zip(self.stretch.ends, gradients, strict=True)):
            if gradient is not None:
                last = max(self.stretch.reaching([number]))
                watched, axis = self.layers[last].gradient_columns, -3 if end.channels else -1
                each = gradient if end.channels else gradient.reshape(-1, end.features)
                watched.watch(self.stretch.names[last], each, axis)

    def _settle(self, call: ForwardCall, whole: torch.Tensor, scales: Scales) -> None:
        """Let the exponents of a backward pass jump on the golden model until none moves."""
        with Settling() as own:
            given, samples = BackwardOperands(whole, scales), _filled(whole)
            own.repeat(lambda: own.backward(own.on_twin(call.done), given, samples=samples))

    def _warn_of_frozen(self, statistics: Mapping[str, TensorStatistics]) -> None:
        """Warn if evaluation loses a tensor; zeros give no warning, as a ReLU may make them."""
        for name, s in statistics.items():
            allowed = self.scales.ranges.of_tensor(s)
            loss = loss_in_evaluation(s, allowed) if s.total else None
            for message in self._health.at_once(name, s.exponent, loss):
                warn_user(self.named(message), LostTensorWarning)

    def _is_astray(self, statistics: Mapping[str, TensorStatistics]) -> bool:
        return any(map(self.scales.is_astray, statistics.values()))

    def _of_samples(
        self, samples: int, statistics: Mapping[str, TensorStatistics]
    ) -> dict[str, TensorStatistics]:
        batch = self.batch
        return {n: s.of_samples(samples, batch) for n, s in statistics.items()}

    def _follow(self, call: ForwardCall, backward: Mapping[str, TensorStatistics]) -> None:
        """Move exponents by the statistics of a training step, without samples of zeros."""
        forward = self._of_samples(call.occupied, call.done.result.statistics)
        statistics = {**forward, **backward}
        step, own = self._step, self.scales.exponents
        step.begun = step.begun or dict(own)
        if not bool(
            call.done.operands.inputs.any()
        ):  # zeros of the user's own, as the first state of an RNN
            statistics = {n: s for n, s in statistics.items() if s.total}
        wanted = Scales(self.scales.ranges, held=self.scales.held)
        wanted.update(statistics)
        for name, exponent in wanted.exponents.items():
            own[name] = max(own.get(name, exponent), exponent) if name in step.moved else exponent
        for message in self._health.observe(statistics):
            warn_user(self.named(message), LostTensorWarning)
        for name, s in statistics.items():
            if s.is_lost and s.total:
                step.lost.add(name)
            elif s.is_lost and s.exponent > s.floor and name not in step.moved:
                del own[name]  # the next step chooses it anew
        step.moved |= statistics.keys()
        for name in step.lost:
            own.pop(name, None)

    def beyond_shifts(self, error: AlignmentError, source: "CallSamples | ForwardCall") -> str:
        """Name the values of a pass that are too far apart for the accelerator, and the remedy."""
        number, *_ = error.tensor.partition(".")
        layers = dict(zip((f"l{n + 1}" for n in range(len(self.layers))), self.layers, strict=True))
        name, values = self.named(error.tensor), list[str]()
        if isinstance(source, CallSamples):
            values.append(f"inputs up to {largest(source.values):.3g}")
        if number in layers:
            layer = layers[number]
            factors = " and ".join(f"{largest(f.detach()):.3g}" for f in layer.all_factors)
            values.append(f"factors up to {factors}")
            if layer.bias is not None:
                values.append(f"a bias up to {largest(layer.bias.detach()):.3g}")
        sizes = f": {', '.join(values)}" if values else ""
        return (
            f"{name} is a sum of values further apart than the accelerator can shift them "
            f"({error.most} bits, and products {MAX_SHIFT}){sizes}; bring inputs, weights and "
            "biases to one scale"
        )

    def named(self, message: str) -> str:
        """Name the layer or operation of the module in a message about a tensor of a program."""
        value, dot, rest = message.partition(".")
        part = self.stretch.parts.get(value) if dot else None
        return message if part is None else f"{part}: {rest}"

    def _whole(
        self, call: ForwardCall, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[torch.Tensor, frozenset[int]]:
        """Return the gradient of all logits of a whole batch, and the ends that have a gradient."""
        network, batch = call.done.driver.network, self.batch
        ends = frozenset(n for n, gradient in enumerate(gradients) if gradient is not None)
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
                each = _by_token(rows, self.tokens)
                _by_token(part, self.tokens)[: call.samples, :, : each.shape[2]] = each
        return whole, ends

    def _given(
        self, call: ForwardCall, back: BackwardResult, reached: frozenset[int]
    ) -> "Gradients":
        """Return the gradients for torch: without padding, and of the layers ``reached`` alone."""
        layers = list(enumerate(self.layers))
        return Gradients(
            factors=[
                value if n in reached else None for n, _ in layers for value in back.factors[n]
            ],
            biases=[
                value[: layer.rows] if n in reached else None
                for (n, layer), value in zip(layers, back.biases, strict=True)
                if value is not None
            ],
            inputs=None if back.inputs is None else self._inputs(back.inputs[: call.samples]),
        )

    def _overflowed(
        self, call: ForwardCall, greatest: float, reached: frozenset[int]
    ) -> "Gradients":
        """Return gradients of NaN, as torch makes of gradients of outputs that are not finite."""
        layers = [layer for n, layer in enumerate(self.layers) if n in reached]
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        note_overflow(", ".join(self.stretch.names), parameters, greatest)
        lost = {id(p): torch.full_like(p, torch.nan, dtype=torch.float64) for p in parameters}
        rows = torch.full_like(
            call.done.operands.inputs[: call.samples], torch.nan, dtype=torch.float64
        )
        return Gradients(
            factors=[lost.get(id(factor)) for own in self._factors() for factor in own],
            biases=[lost.get(id(layer.bias)) for layer in self.layers if layer.bias is not None],
            inputs=self._inputs(rows) if self.input_gradients else None,
        )

    def _inputs(self, rows: torch.Tensor) -> torch.Tensor:
        if self.image is None:
            reading = self.layers[self.stretch.first]
            return _shaped(rows, (self.tokens * reading.columns,), self.tokens)
        return _shaped(rows, (self.stretch.channels, *self.image))


def _filled(whole: torch.Tensor) -> int:
    """Return the number of samples that have a gradient, at least 1."""
    return max(1, int(whole.any(1).sum()))


def _mask_seed(network: Network) -> int | None:
    """Draw the seed of the masks of dropout from torch's generator, which checkpoints restore."""
    return int(torch.randint(1 << 32, ())) if any(dropped(network)) else None


def _rows(values: torch.Tensor) -> torch.Tensor:
    """Return samples as the accelerator has them, (n, values).

    ``values`` is (n, features) or (n, C, H, W).
    """
    return values if values.dim() == 2 else values.permute(0, 2, 3, 1).flatten(1)


def _by_token(rows: torch.Tensor, tokens: int) -> torch.Tensor:
    """Return a view of samples (n, tokens * features) as (n, tokens, features)."""
    return rows.view(len(rows), tokens, rows.shape[1] // tokens)


def _shaped(rows: torch.Tensor, shape: tuple[int, ...], tokens: int = 1) -> torch.Tensor:
    """Undo ``_rows``; values beyond ``shape``, (features,) or (C, H, W), are padding.

    Features are those of all ``tokens``, each of which has its padding.
    """
    if len(shape) == 1:
        if rows.shape[1] == shape[0]:
            return rows
        return _by_token(rows, tokens)[..., : shape[0] // tokens].flatten(1)
    channels, height, width = shape
    return rows.reshape(len(rows), height, width, channels).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of all factors in order, of all biases, and of the inputs, in their shapes.

    Float64.
    """

    factors: list[torch.Tensor | None]
    biases: list[torch.Tensor | None]
    inputs: torch.Tensor | None


def _words(x: torch.Tensor, exponent: int, numbers: NumberFormats) -> torch.Tensor:
    """Quantise to words; in fixed point in float32, exact for widths of at most 16, or float64."""
    fmt = numbers.format("activation")
    if fmt.coded:
        return quantise(x, exponent, fmt, underflow=numbers.host_underflow)
    least, greatest = extremes(fmt)
    # Half precision has no 32,767, and no value beyond 65,504.
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return torch.round(scaled(x, exponent)).clamp_(least, greatest).to(torch.int64)


def _on_host(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach().cpu()


def _padded_bias(layer: ProgramLayer) -> torch.Tensor | None:
    if layer.bias is None:
        return None
    bias, padding = _on_host(layer.bias), prod(layer.outputs) - layer.rows
    return torch.nn.functional.pad(bias, (0, padding)) if padding else bias


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    rows, columns, channels = shape
    return channels, rows, columns
