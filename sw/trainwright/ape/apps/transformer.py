"""A transformer's encoder block, as torch has it, and one training step of it."""

import copy

import torch
from torch import Tensor, nn


def block(width: int = 64, heads: int = 4, seed: int = 0) -> nn.TransformerEncoderLayer:
    """``nn.TransformerEncoderLayer`` without dropout, its weights from ``seed``."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )


def step(layer: nn.Module, x: Tensor, wanted: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Output (N, T, width) and the gradients of the mean squared error for every parameter."""
    layer = copy.deepcopy(layer)
    output = layer(x)
    nn.functional.mse_loss(output, wanted).backward()
    return output.detach(), {
        name: value.grad for name, value in layer.named_parameters() if value.grad is not None
    }
