"""Segments as a torch module: ``autograd.Function`` over the accelerator."""

from collections.abc import Sequence
from typing import Any

import torch

from trainwright.nn import TTLinear
from trainwright.offload.machine import Machine
from trainwright.offload.segment import Segment


class _Step(torch.autograd.Function):
    """Outputs of at most a batch of samples; ``parameters`` are all factors, then all biases."""

    @staticmethod
    def forward(
        ctx: Any, segment: Segment, x: torch.Tensor, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.segment = segment
        ctx.kinds = [(one.dtype, one.device) for one in (x, *parameters)]
        y, ctx.call = segment.forward(x)
        return y.to(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        segment: Segment = ctx.segment
        found = segment.backward(ctx.call, gradients[0].double().cpu())
        inputs = found.inputs
        if inputs is not None:
            inputs = inputs[:, : segment.layers[0].columns]
        biases = [bias for bias in found.biases if bias is not None]
        values = [inputs, *found.factors, *biases]
        return None, *(
            None if value is None else value.to(dtype=dtype, device=device)
            for value, (dtype, device) in zip(values, ctx.kinds, strict=True)
        )


class Chain(torch.nn.Module):
    """Layers and the ReLUs between them, on the accelerator.

    One program has them all, and another one where the inputs need a gradient.
    """

    def __init__(self, layers: Sequence[TTLinear], relus: Sequence[bool], machine: Machine) -> None:
        super().__init__()
        self.whole = Segment(layers, relus, machine)
        self.within = Segment(layers, relus, machine, input_gradients=True)

    @property
    def segments(self) -> list[Segment]:
        """Both segments, whether they were used or not."""
        return [self.whole, self.within]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., I) to (..., J); ``TypeError`` or ``ValueError`` for inputs that cannot be."""
        size = self.whole.layers[0].columns
        if not x.is_floating_point():
            raise TypeError(f"inputs must be floating point, not {x.dtype}")
        if x.shape[-1] != size:
            raise ValueError(f"inputs have {x.shape[-1]} features, the first layer takes {size}")
        flat = x.reshape(-1, size)
        within = torch.is_grad_enabled() and x.requires_grad
        flat = _run(self.within if within else self.whole, flat)
        return flat.reshape(*x.shape[:-1], flat.shape[-1])


def _run(segment: Segment, x: torch.Tensor) -> torch.Tensor:
    """All samples, a batch at a time."""
    if not len(x):
        return x.new_zeros(0, segment.layers[-1].rows)
    parameters = [factor for layer in segment.layers for factor in layer.all_factors]
    parameters += [layer.bias for layer in segment.layers if layer.bias is not None]
    batch = segment.machine.settings.batch
    parts: list[Any] = [_Step.apply(segment, part, *parameters) for part in x.split(batch)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]
