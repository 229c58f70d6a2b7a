"""Encoder block of a transformer, torch's own, and one training step of it."""

import copy

import torch
from torch import Tensor, nn


def block(width: int = 64, heads: int = 4, seed: int = 0) -> nn.TransformerEncoderLayer:
    """Make ``nn.TransformerEncoderLayer`` without dropout, with weights from ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )


def step(layer: nn.Module, x: Tensor, wanted: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output (N, T, width) and every parameter's gradient of the mean squared error."""
    layer = copy.deepcopy(layer)
    output = layer(x)
    nn.functional.mse_loss(output, wanted).backward()
    return output.detach(), {
        name: value.grad for name, value in layer.named_parameters() if value.grad is not None
    }
