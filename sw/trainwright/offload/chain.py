"""Layers on the accelerator as a torch function: ``autograd.Function`` around segments.

A *stretch* is a part of a module that the accelerator can compute. A *segment* is the programs of a
stretch for inputs of one size. A *chain* is a stretch with its segments.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from trainwright.nn.tensor_train import TensorTrain
from trainwright.nn.untyped import (
    FLOATS,
    autocast_type,
    refuse_second_gradients,
    require_features,
    require_tensor,
    with_batch_dim,
    without_batch_dim,
)
from trainwright.offload.machine import AcceleratorHandle
from trainwright.offload.segment import CallSamples, Masks, Segment, StepMoves
from trainwright.offload.stretch import ProgramLayer, Stretch


class _Step(torch.autograd.Function):
    """Function from at most a batch of samples to outputs.

    ``parameters`` are all factors, then all biases. ``whole`` holds the samples of all batches of
    the call, or is None if the call computes no gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, segment: Segment, whole: CallSamples | None, masks: Masks, x: torch.Tensor,
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.segment, ctx.devices = segment, [values.device for values in (x, *parameters)]
        # Save an empty tensor only so that torch raises its usual error in a second backward pass:
        # torch frees saved tensors after the first one, but knows nothing of ``ctx.call``.
        ctx.save_for_backward(torch.empty(0))
        with segment.machine.lock:
            outputs, ctx.call = segment.forward(CallSamples(x, masks), whole)
        # A copy, because a view could not be modified in place outside of the function.
        return tuple(y.to(x, copy=True) for y in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse_second_gradients()
        _ = ctx.saved_tensors
        segment: Segment = ctx.segment
        batched = [None if g is None else without_batch_dim(g) for g in gradients]
        levels = [pair[1] for pair in batched if pair is not None]
        if not levels:
            return None, None, None, *_gradients(segment, ctx, gradients)
        # Autograd may ask for several gradients at once, as for a Jacobian: compute them in turn.
        count = next(len(pair[0]) for pair in batched if pair is not None)
        each = [
            _gradients(
                segment,
                ctx,
                [
                    g if pair is None else pair[0][k]
                    for g, pair in zip(gradients, batched, strict=True)
                ],
            )
            for k in range(count)
        ]
        joined = [
            None if values[0] is None else with_batch_dim(values, levels[0])
            for values in zip(*each, strict=True)
        ]
        return None, None, None, *joined

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(
            "compiled models have no forward-mode gradients: call backward or grad, or use the "
            "dense model with the same rounded weights, model.to_torch()"
        )


def _gradients(segment: Segment, ctx: Any, gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients of the inputs and of the parameters; None: no gradient."""
    given = [None if g is None else g.to("cpu", torch.float64) for g in gradients]
    with segment.machine.lock:
        results = segment.backward(ctx.call, given)
    values = [results.inputs, *results.factors, *results.biases]
    return [  # torch rounds each gradient to the type of its input or parameter
        value if value is None or device.type == "cpu" else value.to(device)
        for value, device in zip(values, ctx.devices, strict=True)
    ]


class Chain:
    """Stretch of layers on the accelerator, with its programs.

    A stretch has one segment for inputs without a gradient and one for inputs with. A stretch of
    images has two such segments for each size of image, compiled when the size first comes.
    """

    def __init__(
        self, stretch: Stretch, layers: Sequence[ProgramLayer], machine: AcceleratorHandle,
        steps: int = 0,
    ) -> None:  # fmt: skip
        self._steps_before = steps
        """Training steps of the model before the chain was made."""
        self.stretch, self.layers, self.machine = stretch, tuple(layers), machine
        self._segments: dict[tuple[tuple[int, int] | None, bool, int], Segment] = {}
        # The first state of an RNN needs no gradient, later states do: one step runs both segments.
        self._moves: defaultdict[tuple[int, int] | None, StepMoves] = defaultdict(StepMoves)
        self._latest: Segment | None = None
        if not stretch.channels and not stretch.attends:
            self._latest = self.segment(None, input_gradients=False)
            self.segment(None, input_gradients=True)

    def segment(
        self, image: tuple[int, int] | None, *, input_gradients: bool, tokens: int = 1
    ) -> Segment:
        """Return the segment for images (rows, columns), or, if ``image`` is None, for features.

        Its backward pass computes the gradient of the inputs if ``input_gradients``. A sample is a
        sequence of ``tokens``.
        """
        key = image, input_gradients, tokens
        if key not in self._segments:
            self._segments[key] = Segment(
                self.stretch, self.layers, self.machine, image, input_gradients=input_gradients,
                moves=self._moves[image], tokens=tokens,
            )  # fmt: skip
        return self._segments[key]

    @property
    def segments(self) -> list[Segment]:
        """Segments that were made, used or not."""
        return list(self._segments.values())

    def forget(self) -> None:
        """Drop the exponents, which would be stale when the programs are used again."""
        for segment in self.segments:
            segment.forget()

    @property
    def steps(self) -> int:
        """Training steps of the model, as far as the chain knows of them."""
        return self._steps_before + sum(segment.steps for segment in self.segments)

    @property
    def predicted_cycles(self) -> int:
        """Cycles of a step for the latest images, by the cycle model; 0 before any call."""
        return 0 if self._latest is None else self._latest.driver.step.predicted_cycles

    @property
    def _dtype(self) -> torch.dtype:
        return self.layers[self.stretch.first].all_factors[0].dtype

    def layer_type(self, x: torch.Tensor, layer: TensorTrain | None = None) -> torch.dtype:
        """Return the type of what a layer makes of ``x``: that of ``x``, or of autocast."""
        asked = autocast_type(x.device)
        if asked is None or torch.float64 in (x.dtype, self._dtype):
            return x.dtype
        return asked if layer is None else layer.autocast_dtype(x, asked)

    def __call__(self, x: torch.Tensor, masks: Masks = ()) -> tuple[torch.Tensor, ...]:
        """Map (..., I) to (..., J), or images (n, C, H, W), for each end of the stretch.

        ``masks`` are those of the stretch's masked attentions, in order.
        Outputs have the type of ``x``, whatever autocast asks for. Raises ``TypeError`` or
        ``ValueError`` for unsuitable inputs.
        """
        require_tensor(x)
        if x.dtype not in FLOATS:
            raise TypeError(
                f"inputs must be float16, bfloat16, float32 or float64, not {x.dtype}: convert "
                f"them, x.to({self._dtype}), and indices by an embedding in front of the layer"
            )
        needed = torch.is_grad_enabled() and x.requires_grad
        if self.stretch.channels:
            return self._images(x, input_gradients=needed)
        return self._rows(x, masks, input_gradients=needed)

    @property
    def _reader(self) -> str:
        """Name of the layer that reads the inputs, for errors."""
        name = self.stretch.names[self.stretch.first]
        return f"layer {name}" if name else "the layer"

    def _rows(
        self, x: torch.Tensor, masks: Masks, *, input_gradients: bool
    ) -> tuple[torch.Tensor, ...]:
        size = self.layers[self.stretch.first].columns
        require_features(x, size, self._reader)
        tokens = x.shape[-2] if self.stretch.attends else 1
        segment = self.segment(None, input_gradients=input_gradients, tokens=tokens)
        if tokens > 1:
            self._latest = segment
        if x.dim() == 2:
            return _run(segment, x)
        whole = tuple(
            mask.cpu().expand(*x.shape[:-2], node.heads, tokens, tokens).flatten(0, -4)
            for node, mask in zip(self.stretch.masked, masks, strict=True)
        )
        flat = _run(segment, x.reshape(-1, tokens * size), whole)
        return tuple(y.reshape(*x.shape[:-1], y.shape[-1] // tokens) for y in flat)

    def takes(self, x: torch.Tensor) -> bool:
        """Return whether inputs are images in a batch, or sequences of at least two tokens.

        Inputs of a stretch without images and attention may have any shape.
        """
        if self.stretch.channels:
            return x.dim() != 3
        return not self.stretch.attends or (x.dim() > 2 and x.shape[-2] > 1)

    def _images(self, x: torch.Tensor, *, input_gradients: bool) -> tuple[torch.Tensor, ...]:
        channels = self.stretch.channels
        if x.dim() not in (3, 4) or x.shape[-3] != channels:
            raise ValueError(
                f"inputs have the shape {tuple(x.shape)}, {self._reader} takes images "
                f"(n, {channels}, rows, columns), or one image ({channels}, rows, columns)"
            )
        if x.dim() == 3:
            outputs = self._images(x.unsqueeze(0), input_gradients=input_gradients)
            return tuple(y.squeeze(0) for y in outputs)
        self._latest = self.segment((x.shape[2], x.shape[3]), input_gradients=input_gradients)
        return _run(self._latest, x)


def _run(segment: Segment, x: torch.Tensor, masks: Masks = ()) -> tuple[torch.Tensor, ...]:
    """Run all samples, a batch at a time."""
    parameters = [factor for layer in segment.layers for factor in layer.all_factors]
    parameters += [layer.bias for layer in segment.layers if layer.bias is not None]
    if not len(x):  # no samples: gradients of zeros, as in torch
        nothing = sum((0 * parameter.sum() for parameter in parameters), 0 * x.sum())
        return tuple(x.new_zeros(0, *shape) + nothing.to(x) for shape in segment.output_shapes)
    batch = segment.batch
    # Ask here: inside of an autograd.Function gradients count as disabled.
    whole = CallSamples(x.detach(), masks) if torch.is_grad_enabled() else None
    if len(x) <= batch:
        return _applied(segment, whole, masks, x, parameters)
    cut = zip(*(torch.split(values, batch) for values in (x, *masks)), strict=True)
    parts = [_applied(segment, whole, tuple(own), part, parameters) for part, *own in cut]
    return tuple(torch.cat(outputs) for outputs in zip(*parts, strict=True))


def _applied(
    segment: Segment, whole: CallSamples | None, masks: Masks, x: torch.Tensor,
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    step: Any = _Step
    return step.apply(segment, whole, masks, x, *parameters)
