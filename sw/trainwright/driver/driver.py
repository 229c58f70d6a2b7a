"""The driver: training steps on any accelerator, from integers in to gradients out."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import TypeVar

import numpy as np
import torch

from trainwright.accelerator import (
    Accelerator,
    AcceleratorError,
    AcceleratorReset,
    Counters,
    Run,
)
from trainwright.compiler import Bound, CompiledProgram, CompiledStep, compile_step
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.base.progress import MOST_EFFORT
from trainwright.compiler.base.rules import Written
from trainwright.driver.dropout import dropout_words, dropped
from trainwright.driver.model import (
    BackwardOperands,
    BackwardResult,
    ForwardOperands,
    ForwardResult,
    QuantisedModel,
    check_words,
)
from trainwright.driver.records import input_view, written_words
from trainwright.driver.runner import GradientOf, Occupied, StepDriver
from trainwright.driver.tokens import (
    NO_MASKS,
    ReachedTokens,
    TokenCounts,
    exponent_of_inputs,
    present_tokens,
)
from trainwright.fixed.quantise import dequantise, fitting_exponent, quantise
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.formats.base import SUM_WIDTH
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.network import host_name, host_operands
from trainwright.network import Network
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.support.text import amount

Result = TypeVar("Result")
RESETS = 3
"""Times that a step is repeated because the accelerator was reset under it."""


def persist(work: Callable[[], Result], restore: Callable[[], object] = lambda: None) -> Result:
    """Return the result of ``work``.

    After a reset of the accelerator, ``restore`` and try again.
    """
    for attempt in range(RESETS + 1):
        try:
            if attempt:
                restore()
            return work()
        except AcceleratorReset:
            if attempt == RESETS:
                raise
    raise AssertionError


class Driver(StepDriver):
    """Runs steps of one network shape and batch size on an accelerator.

    Make a new driver when ranks or the batch size change; tensors keep their names, so the same
    ``Scales`` go on. With ``input_gradients`` backward passes give those of the inputs, too. Raises
    ``trainwright.compiler.CompileError`` where the network does not fit the accelerator.
    ``occupied`` says how many values of a tensor are no padding, where sizes were padded.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        network: Network,
        batch: int,
        *,
        plan: str = AUTO,
        input_gradients: bool = False,
        trace: bool = False,
        occupied: Occupied | None = None,
        effort: int = MOST_EFFORT,
    ):
        self._effort = effort
        self.accelerator = accelerator
        self._occupied = occupied or (lambda tensor: tensor.count)
        causal = any(getattr(node, "causal", False) for node in network.nodes)
        self._masked = any(getattr(node, "masked", False) for node in network.nodes)
        self._pads = bool(network.padding or network.of_sequences or (causal and not self._masked))
        self._share_reached: Callable[[Written], float] = lambda tensor: 1.0
        self.trace = trace
        self.step: CompiledStep = compile_step(
            network, batch, accelerator.parameters, plan=plan, input_gradients=input_gradients,
            effort=effort,
        )  # fmt: skip
        self._require_memory(self.step.memory_bytes)
        self.input_exponent = exponent_of_inputs(self.step)
        self.tensors: frozenset[str] = frozenset(t.name for t in self.step.tensors if t.counted)
        # Operands and results of functions are fixed point, whatever format their class has.
        self._formats = {tensor.name: tensor.format for tensor in self.step.tensors}
        self._forward: tuple[ForwardOperands, dict[str, int]] | None = None
        self._repeat_forward: Callable[[], ForwardResult] | None = None

    def _require_memory(self, needed: int, what: str = "a step") -> None:
        """Raise ``AcceleratorError`` where the accelerator has less external memory."""
        if needed > self.accelerator.memory_bytes:
            raise AcceleratorError(
                f"{what} needs {needed} bytes of external memory, the accelerator has "
                f"{self.accelerator.memory_bytes}"
            )

    @property
    def network(self) -> Network:
        """The network the programs were compiled for."""
        return self.step.network

    @property
    def written(self) -> int:
        """See ``StepDriver``."""
        return getattr(self.accelerator, "written", 0)

    def count_as(self, occupied: Occupied) -> None:
        """See ``StepDriver``."""
        self._occupied, self._pads = occupied, False

    def _put(self, name: str, values: torch.Tensor) -> None:
        """Write an integer tensor into its buffers."""
        values = values.to(torch.int32)  # holds every word, and halves what packing reads
        for alias in self.step.aliases.get(name, (name,)):
            buffer = self.step.buffers[alias]
            self.accelerator.write(buffer.address, buffer.pack(values))

    def _given_exponents(self) -> dict[str, int]:
        """Return the exponents of the inputs, and of the masks of padding and dropout."""
        inputs = (node.name for node in self.network.nodes if not node.sources)
        return dict.fromkeys(("x", *inputs), self.input_exponent) | host_operands(self.network)

    def _put_inputs(
        self,
        inputs: torch.Tensor,
        masks: int | None,
        attended: Mapping[str, torch.Tensor] = NO_MASKS,
    ) -> None:
        """Write inputs (batch, I), and their masks of padding, attention and dropout."""
        if self._pads:
            present = present_tokens(self.network, inputs)
            self._occupied = TokenCounts(self.network, present).of
        for name, values in written_words(self.network, self.step.inputs, inputs, attended):
            self._put(name, values)
        for number, node in dropped(self.network):
            words = dropout_words(self.network, node, number, self.step.batch, masks)
            self._put(host_name(self.network, node), words)

    def _input_gradient(self, bound: Bound) -> torch.Tensor | None:
        """Return the gradient to the inputs, (batch, values); None where it was not asked for."""
        if not self.step.input_gradients:
            return None
        shape = (self.step.batch, self.network.input_size)
        total = torch.zeros(shape, dtype=torch.float64)
        for name, gradient in zip(self.step.inputs, self.step.input_gradients, strict=True):
            part = input_view(self.network, name, total)
            part += self._value(gradient, bound, "gradient").reshape(part.shape)
        return total

    def _get(self, name: str) -> torch.Tensor:
        """Read an int64 tensor from its buffer."""
        buffer = self.step.buffers[name]
        return buffer.unpack(self.accelerator.read(buffer.address, buffer.size))

    def _value(self, name: str, bound: Bound, kind: str) -> torch.Tensor:
        """Return a tensor of a class as float64."""
        fmt = self._formats.get(name, self.network.format(kind))
        return dequantise(self._get(name), bound.exponents[name], fmt)

    def _put_images(
        self, program: CompiledProgram, model: QuantisedModel, *, present: Container[str] = ()
    ) -> None:
        """Write the images of a program, except those that are ``present`` already."""
        for image in program.images:
            if image.name in present:
                continue
            factor = model.factors[image.layer][image.index] if image.is_factor else torch.zeros(())
            self.accelerator.write(image.address, image.pack(factor))

    def _check_model(self, model: QuantisedModel) -> None:
        layers = self.network.layers
        counts = [len(layer) for layer in model.factors], len(model.biases)
        wanted = [len(layer.factor_shapes) for layer in layers], len(layers)
        if counts != wanted:
            raise ValueError(
                "the model has {} factors a layer and {} biases, ".format(*counts)
                + "the network {} and {}: make the model of this network".format(*wanted)
            )
        for number, (bias, layer) in enumerate(zip(model.biases, layers, strict=True), 1):
            if bias is not None and bias.numel() != layer.output_size:
                raise ValueError(f"l{number}.b has {bias.numel()} values, not {layer.output_size}")
        for number, layer in enumerate(self.network.layers, 1):
            for n, shape in enumerate(layer.factor_shapes, 1):
                factor = model.factors[number - 1][n - 1]
                fmt = self.network.factor_format(number - 1, n - 1)
                check_words(f"l{number}.G{n}", factor, shape, fmt)

    def _outcome(
        self, program: CompiledProgram, bound: Bound, run: Run
    ) -> tuple[dict[str, TensorStatistics], Counters, float, Run]:
        """Return the members of a ``PassOutcome``."""
        clips = np.zeros_like(run.sums) if run.clips is None else run.clips
        counts = (c.tolist() for c in (run.sums, run.saturations, run.underflows, clips))
        statistics = {
            t.name: TensorStatistics(
                kind=t.kind,
                format=t.format,
                exponent=bound.exponents[t.name],
                floor=bound.floors[t.name],
                count=max(1, round(self._occupied(t) * self._share_reached(t))),
                total=total,
                saturations=saturations,
                underflows=underflows,
                per_sample=t.per_sample,
                uncounted=t.name in program.uncounted,
                clipped=clipped if t.name in program.uncounted else 0,
                coarsest=program.coarsest.get(t.name),
            )
            for t, total, saturations, underflows, clipped in zip(
                program.tensors, *counts, strict=False
            )
            if t.counted
        }
        return statistics, run.counters, run.seconds, run

    def _check_seed(self, which: str, program: CompiledProgram, seed: int | None) -> None:
        """Raise ``AcceleratorError`` for a seed without stochastic rounding, or room for it."""
        if seed is None:
            return
        p = self.step.parameters
        if not p.stochastic_rounding:
            raise AcceleratorError(
                "stochastic rounding is asked for, and this accelerator was built without it; "
                "set stochastic_rounding=1"
            )
        needed = len(program.descriptors) + 1
        room = self.step.buffers[f"program.{which}"].size // DESCRIPTOR_BYTES
        if needed > room:
            raise AcceleratorError(
                f"with its seed the program has {amount(needed, 'descriptor')}, there is room for "
                f"{room}; use fewer layers or factors"
            )

    def run_forward(self, given: ForwardOperands) -> ForwardResult:
        """See ``StepDriver.forward``."""
        self._check_seed("forward", self.step.forward, given.seed)
        exponents = dict(given.scales.exponents)
        self._repeat_forward = lambda: self._forward_once(given, exponents)
        return persist(self._repeat_forward)

    def _forward_once(self, given: ForwardOperands, wanted: Mapping[str, int]) -> ForwardResult:
        inputs, model = given.inputs, given.model
        shape = (self.step.batch, self.network.input_size)
        check_words("inputs", inputs, shape, self.network.format("activation"))
        self._check_model(model)
        self._put_images(self.step.forward, model)
        width = self.network.widths.bias
        operands = self._given_exponents()
        for number, exponents in enumerate(model.factor_exponents, 1):
            operands |= {f"l{number}.G{n}": exponent for n, exponent in enumerate(exponents, 1)}
        # A bias of zeros takes the exponent of its products: tiny products cannot be shifted up to
        # exponent 0.
        products = self.input_exponent + sum(model.factor_exponents[0]) + SUM_WIDTH
        # The host writes zeros for no bias; a layer that has none reads no exponent of them.
        pairs = zip(model.biases, self.network.layers, strict=True)
        biases = [torch.zeros(layer.output_size) if b is None else b for b, layer in pairs]
        for number, bias in enumerate(biases, 1):
            if model.bias_exponents is not None:
                operands[f"l{number}.b"] = model.bias_exponents[number - 1]
            else:
                zero = wanted.get(f"l{number}.y", min(0, products))
                operands[f"l{number}.b"] = fitting_exponent(bias, width, zero=zero)
        bound = self.step.forward.bind(wanted, operands, seed=given.seed)
        for number, bias in enumerate(biases, 1):
            name = f"l{number}.b"
            if name in self.step.buffers:
                self._put(name, quantise(bias, bound.exponents[name], width))
        self._put_inputs(inputs, given.masks, given.attended)
        run = self.accelerator.run(bound.program, self.step.forward.address, trace=self.trace)
        self._forward = given, bound.exponents
        heads = [self._value(name, bound, "intermediate") for name in self.step.results]
        logits = torch.cat([head.reshape(self.step.batch, -1) for head in heads], 1)
        return ForwardResult(*self._outcome(self.step.forward, bound, run), logits)

    def run_backward(self, given: BackwardOperands) -> BackwardResult:
        """See ``StepDriver.backward``."""
        self._check_seed("backward", self.step.backward, given.seed)
        if self._forward is None or self._repeat_forward is None:
            raise ValueError("backward needs a forward pass before it")
        wanted = dict(given.scales.exponents)
        return persist(lambda: self._backward_once(given, wanted), self._repeat_forward)

    def _backward_once(self, given: BackwardOperands, wanted: Mapping[str, int]) -> BackwardResult:
        assert self._forward is not None
        (forward, exponents), model = self._forward, self._forward[0].model
        gradient, exponent = given.gradient, given.exponent
        shape = (self.step.batch, self.network.output_size)
        if tuple(gradient.shape) != shape:
            raise ValueError(f"the gradient has shape {tuple(gradient.shape)}, not {shape}")
        if self._masked:
            self._share_reached = ReachedTokens(self.network, forward.attended, gradient).of
        present = {image.name for image in self.step.forward.images}
        self._put_images(self.step.backward, model, present=present)
        fmt = self.step.upper_format
        parts = dict(zip(self.step.uppers, gradient.split(self.network.head_sizes, 1), strict=True))
        zero = fmt.input_exponent
        operands = dict(exponents)
        if not isinstance(exponent, Sequence):
            exponent = [exponent] * len(parts)
        if len(exponent) != len(parts):
            raise ValueError(
                f"gradients have {amount(len(exponent), 'exponent')}, not {len(parts)}: one a head"
            )
        for (name, part), asked in zip(parts.items(), exponent, strict=True):
            operands[name] = (
                fitting_exponent(part, fmt, zero=zero) if asked is None else index(asked)
            )
        bound = self.step.backward.bind(wanted, operands, seed=given.seed)
        underflow = self.network.host_underflow
        for name, part in parts.items():
            self._put(name, quantise(part, bound.exponents[name], fmt, underflow=underflow))
        run = self.accelerator.run(bound.program, self.step.backward.address, trace=self.trace)

        def value(tensor: str) -> torch.Tensor:
            return self._value(tensor, bound, "gradient")

        layers = list(enumerate(self.network.layers, 1))
        return BackwardResult(
            *self._outcome(self.step.backward, bound, run),
            factors=[
                [value(f"l{k}.dG{n}").reshape(s) for n, s in enumerate(v.factor_shapes, 1)]
                for k, v in layers
            ],
            biases=[value(f"l{k}.db").flatten() if v.bias else None for k, v in layers],
            factor_exponents=[
                [bound.exponents[f"l{k}.dG{n}"] for n in range(1, v.order + 1)] for k, v in layers
            ],
            bias_exponents=[bound.exponents[f"l{k}.db"] if v.bias else None for k, v in layers],
            inputs=self._input_gradient(bound),
        )

    def calibrate(
        self, inputs: torch.Tensor, gradient_of: GradientOf, model: QuantisedModel, scales: Scales
    ) -> int:
        """See ``StepDriver``.

        The golden model executes the steps, whatever the accelerator is: the bits are the same.
        """
        with self.twin() as twin:
            return StepDriver.calibrate(twin, inputs, gradient_of, model, scales)

    @contextmanager
    def twin(self) -> Iterator["Driver"]:
        """Yield a driver of the same programs on the golden model, with the same bits."""
        p = self.accelerator.parameters
        with GoldenAccelerator(p, memory_bytes=self.step.memory_bytes) as golden:
            twin = Driver(
                golden, self.network, self.step.batch, plan=self.step.plan,
                input_gradients=bool(self.step.input_gradients), occupied=self._occupied,
                effort=self._effort,
            )  # fmt: skip
            twin.input_exponent = self.input_exponent
            yield twin
