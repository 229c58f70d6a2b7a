"""A network in torch, of any floating-point type: what the accelerator's integers stand for."""

from collections.abc import Sequence
from math import inf

import torch

from trainwright.driver.dropout import dropout_words, dropped
from trainwright.driver.tokens import (
    key_masks,
    position_values,
    present_tokens,
    token_shares,
)
from trainwright.functions import Function
from trainwright.functions.in_torch import over_groups
from trainwright.graph.network import is_masked
from trainwright.network import (
    Apply,
    Attention,
    Dropout,
    Input,
    Layer,
    Map,
    Network,
    Norm,
    Pool,
    Positions,
    Sum,
    TokenPool,
    Window,
)


def outputs(
    network: Network,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor | None],
    images: torch.Tensor,
    masks: int | None = None,
) -> torch.Tensor:
    """Return logits (batch, outputs of all heads) of ``images`` (batch, inputs of a sample).

    ``weights`` are W (J, I) of each layer, ``biases`` (J,), ``masks`` the seed of dropouts, which
    are the identity without one.
    """
    values: dict[str, torch.Tensor] = {}
    present = present_tokens(network, images)
    numbers = {node: number for number, node in dropped(network)}
    for node in network.nodes:
        below = [values[name] for name in node.sources]
        match node:
            case Input():
                whole = images.reshape(-1, *network.padded)
                # An input node may take a part of the image: heads and branches read different
                # windows.
                value = whole[:, slice(*node.rows), slice(*node.columns)]
            case Positions():
                value = position_values(node, network.tokens).to(images).repeat(len(images), 1)
            case Apply():
                layer = network.layers[node.layer]
                value = _applied(layer, weights[node.layer], biases[node.layer], _outer(below))
                value = value.relu() if layer.relu else value
            case Sum():
                value = below[0] + below[1].reshape(below[0].shape)
                value = value.relu() if node.relu else value
            case Attention():
                value = _attended(network, node, present, *below)
            case Dropout():
                words = dropout_words(network, node, numbers[node], len(images), masks)
                mask = words.reshape(below[0].shape)
                value = network.function_at(node).forward.real(below[0], mask)
            case Map() | Norm():
                value = _mapped(network.function_at(node), below[0])
            case TokenPool():
                tokens = below[0].reshape(len(images), network.tokens, -1)
                shares = token_shares(node, present).to(tokens.dtype)
                value = (shares[:, None] @ tokens)[:, 0]
            case Pool(function=None):
                value = _averaged(node.window, below[0])
            case Pool():
                value = _pooled(network.function_at(node), node.window, below[0])
        values[node.name] = value.reshape(-1, *network.shapes[node.name])
    return torch.cat([values[name].reshape(len(images), -1) for name in network.heads], 1)


def _outer(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the outer product of values: a layer of several values reads it."""
    product = values[0]
    for value in values[1:]:
        product = product.flatten(1)[:, :, None] * value.flatten(1)[:, None]
    return product


def _averaged(window: Window, x: torch.Tensor) -> torch.Tensor:
    """Average the windows of images (batch, rows, columns, channels), the accelerator's order."""
    # torch pools and convolves with channels before rows.
    (rows, columns), image = window.padding, x.permute(0, 3, 1, 2)
    image = torch.nn.functional.pad(image, (columns, columns, rows, rows))
    return torch.nn.functional.avg_pool2d(image, window.kernel, window.stride).permute(0, 2, 3, 1)


def _mapped(function: Function, x: torch.Tensor) -> torch.Tensor:
    """Apply a function to (batch, ..), its groups along the last axis; images have channels last.

    The batch of a network of tokens has the tokens of all sequences.
    """
    if not function.over:
        return function.forward.real(x)
    if "tokens" in function.over:
        raise ValueError(f"{function.text} is over tokens, which torch's model of it does not have")
    names = ("rows", "columns", "channels") if x.dim() == 4 else ("features",)
    over = [n for n, a in enumerate(names, 1) if {a, "features"} & set(function.over)]
    return over_groups(x, over, function.forward.real, reduces=function.reduces)


def _pooled(function: Function, window: Window, x: torch.Tensor) -> torch.Tensor:
    """Apply a function to the windows of images (batch, rows, columns, channels)."""
    (rows, columns), (samples, *_, channels) = window.padding, x.shape
    # The greatest value of a window is never padding.
    outside = -inf if function.definition.name == "max_pool" else 0.0
    image = torch.nn.functional.pad(x, (0, 0, columns, columns, rows, rows), value=outside)
    parts = image.unfold(1, window.kernel[0], window.stride[0])
    parts = parts.unfold(2, window.kernel[1], window.stride[1])
    value = function.forward.real(parts.reshape(-1, function.group))[:, 0]
    return value.reshape(samples, *parts.shape[1:3], channels)


def _attended(
    network: Network, node: Attention, present: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
    v: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Compute attention within each sequence; values are (sequences * tokens, size)."""
    q, k, v = (
        x.reshape(-1, network.tokens, node.heads, x[0].numel() // node.heads).transpose(1, 2)
        for x in (q, k, v)
    )
    masks = [key_masks(network, node, present)[:, None]] if is_masked(network, node) else []
    p = network.function_at(node).forward.real(q @ k.transpose(-1, -2), *masks)
    return (p @ v).transpose(1, 2)


def _applied(
    layer: Layer, weight: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor
) -> torch.Tensor:
    if layer.diagonal:
        y = x.flatten(1) * weight.flatten()
        return y if bias is None else y + bias
    if layer.window is None:
        # A leading layer takes its channels first, as the factors of a dense layer after a
        # convolution were laid out.
        x = (x.permute(0, 3, 1, 2) if layer.leading else x).flatten(1)
        return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)
    w = layer.window
    kernel = weight.reshape(-1, *w.kernel, layer.channels).permute(0, 3, 1, 2)
    y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), kernel, bias, w.stride, w.padding)
    return y.permute(0, 2, 3, 1)
