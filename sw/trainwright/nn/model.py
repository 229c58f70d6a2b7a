"""Prior, ranks and networks: functions of all tensor-train layers of a model."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from trainwright.fixed.quantise import dequantise
from trainwright.network import Apply, Map, Network, NetworkError, NumberFormats, load_network
from trainwright.nn.layers import TTLinear
from trainwright.nn.scales import InputQuantiser
from trainwright.nn.tensor_train import TensorTrain
from trainwright.nn.untyped import named_modules, require_module
from trainwright.onchip.samples import expanded, stored_pixels
from trainwright.support.arguments import require_kind, require_seed
from trainwright.train.initial import initial_factors
from trainwright.train.stored import load_trained


def trains(model: torch.nn.Module) -> Iterator[TensorTrain]:
    """Return the tensor-train layers of a model, each once; ``TypeError`` unless it is a module."""
    require_module(model)
    return (module for module in model.modules() if isinstance(module, TensorTrain))


def rank_prior(model: torch.nn.Module, *, form: str = "storage") -> torch.Tensor:
    """Sum ``TensorTrain.rank_prior`` over the layers of a model; ``ValueError`` without any.

    >>> model = torch.nn.Sequential(TTLinear(64, 32, rank=4), TTLinear(32, 10, rank=4))
    >>> loss = model(torch.rand(8, 64)).square().mean() + 0.25 / 1437 * rank_prior(model)
    >>> loss.backward()
    """
    # Layers that share their factors (tied weights) have one prior.
    layers = {id(layer.factors): layer for layer in trains(model)}.values()
    priors = [layer.rank_prior(form=form) for layer in layers]
    if not priors:
        raise ValueError("the model has no tensor-train layer, and so no rank prior")
    return torch.stack(priors).sum()


def cut_ranks(
    model: torch.nn.Module,
    threshold: float = 0.02,
    *,
    form: str = "storage",
    optimizer: torch.optim.Optimizer | None = None,
    averaged: torch.nn.Module | None = None,
) -> bool:
    """Cut the ranks of all layers of a model; return whether anything was cut.

    Each layer is cut by ``TensorTrain.cut_ranks``; frozen layers stay as they are.
    ``averaged`` is an ``AveragedModel`` (or another copy) of the model: the same columns are cut
    from its layers, so that averaging goes on. Raises ``ValueError`` for a threshold outside of
    (0, 1) and for an ``averaged`` of other layers or ranks.

    >>> layer = TTLinear(64, 10, rank=4)
    >>> torch.nn.init.zeros_(layer.factors[0][..., 2:].data).shape
    torch.Size([1, 1, 4, 2])
    >>> cut_ranks(layer, 1e-6), layer.ranks
    (True, (2,))
    """
    layers = list(trains(model))
    followers = [None] * len(layers) if averaged is None else list(trains(averaged))
    if len(followers) != len(layers):
        raise ValueError(
            f"averaged has {len(followers)} tensor-train layers, the model has {len(layers)}: "
            "give the AveragedModel of this model"
        )
    for layer, follower in zip(layers, followers, strict=True):
        if follower is not None:  # all are compared before the first is cut
            layer.require_average(follower)
    return any([
        layer.cut_ranks(threshold, form=form, optimizer=optimizer, averaged=follower)
        for layer, follower in zip(layers, followers, strict=True)
    ])  # fmt: skip


def from_network(network: Network | str, seed: int = 0) -> torch.nn.Sequential:
    """Return a network (or its name or TOML file) as modules, as ``trainwright train`` begins.

    Equal ``seed``, equal initial factors. Inputs are (n, I), outputs (n, J) with all outputs of the
    last layer. Raises ``NetworkError``.

    >>> [type(module).__name__ for module in from_network("digits")]
    ['TTLinear', 'ReLU', 'TTLinear']
    """
    seed = require_seed(seed, (1 << 32) - 1)
    network = load_network(network) if isinstance(network, str) else network
    require_kind("network", network, Network)
    if not network.is_line:
        raise NetworkError(
            f"network {network.name!r} is a graph: modules in a row are for layers in one line; "
            "train it with trainwright train"
        )
    if network.singles:
        raise NetworkError(
            f"network {network.name!r} has formats of single tensors "
            f"({', '.join(name for name, _ in network.singles)}), modules have one of each class: "
            "train it with trainwright train"
        )
    factors, exponents = initial_factors(network, seed)
    modules: list[torch.nn.Module] = []
    for node in network.nodes[1:]:
        if isinstance(node, Map):
            modules.append(node.function.module())
            continue
        assert isinstance(node, Apply)
        module = _linear(network, node.layer)
        own = [factor.value for factor in factors[node.layer]]
        module.set_factors(own, exponents[node.layer])
        modules += [module, torch.nn.ReLU()] if module.relu else [module]
    return torch.nn.Sequential(*modules)


def _linear(network: Network, number: int, out_features: int | None = None) -> TTLinear:
    """Return a fresh module for a layer of a network, in the network's numbers."""
    layer = network.layers[number]
    return TTLinear(
        layer.input_size, out_features or layer.output_size, rank=layer.ranks,
        outputs=layer.outputs, inputs=layer.inputs, bias=layer.bias, relu=layer.relu,
        numbers=NumberFormats(network.widths, network.coded, network.underflow),
    )  # fmt: skip


class StoredPixels(torch.nn.Module):
    """Rounding of inputs to the pixels that an accelerator keeps in its memory.

    The accelerator of a run of ``--update chip`` reads its samples itself: a byte of ``full_scale``
    is stored in ``pixels`` bits and expanded to inputs of ``activation`` bits. The gradient passes
    straight through.
    """

    inputs: torch.Tensor
    """Input of each byte from 0 to ``full_scale``."""

    def __init__(self, pixels: int, full_scale: int, activation: int) -> None:
        super().__init__()
        levels = np.arange(full_scale + 1)
        words = expanded(stored_pixels(levels, full_scale, pixels), pixels, activation)
        inputs = torch.tensor(words.tolist(), dtype=torch.float32) / 2.0 ** (activation - 1)
        self.full_scale = full_scale
        # Not in a `state_dict`, which has what training changes.
        self.register_buffer("inputs", inputs, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the inputs of the accelerator for ``x`` from 0 to 1."""
        levels = (x.detach().float() * self.full_scale).round().clamp(0, self.full_scale)
        # x - x is 0 and has the gradient.
        return self.inputs[levels.long()].to(x.dtype) + (x - x.detach())


def load(path: str | PathLike[str]) -> torch.nn.Sequential:
    """Return a model that ``trainwright train`` wrote as modules, in evaluation mode.

    ``path`` is that of a ``model.safetensors`` or ``checkpoint.safetensors``. Inputs are (n,
    pixels) of the unpadded image, each pixel divided by the full scale (255 of bytes, 16 of
    ``digits``); outputs are (n, classes). ``trainwright.compile`` of the model, with the batch of
    the run, gives the logits of the golden model bit by bit; so the model of a run of
    ``--update chip`` begins with a module that rounds its inputs as that run did. Raises
    ``CheckpointError`` for another file, ``NetworkError`` for a network that is no line of layers.

    >>> load("run/model.safetensors")
    Traceback (most recent call last):
        ...
    trainwright.support.tensor_file.CheckpointError: there is no checkpoint run/model.safetensors
    """
    trained, origin = load_trained(Path(path))
    network = trained.model.network
    parts = list(from_network(network))
    place = max(n for n, part in enumerate(parts) if isinstance(part, TTLinear))
    parts[place] = _linear(network, -1, network.classes)
    if network.padded != network.image:  # zeros on the right and below
        rows, columns = (
            whole - size for whole, size in zip(network.padded, network.image, strict=True)
        )
        parts = [
            torch.nn.Unflatten(1, network.image), torch.nn.ZeroPad2d((0, columns, 0, rows)),
            torch.nn.Flatten(), *parts,
        ]  # fmt: skip
    if origin.pixels is not None and not network.format("activation").coded:
        stored = StoredPixels(origin.pixels, origin.full_scale, network.widths.activation)
        parts = [stored, *parts]
    model = torch.nn.Sequential(*parts)
    layers = {name: part for name, part in named_modules(model) if isinstance(part, TTLinear)}
    quantised = trained.model
    for layer, factors, exponents, bias in zip(
        layers.values(),
        quantised.factors,
        quantised.factor_exponents,
        quantised.biases,
        strict=True,
    ):
        _take_over(layer, factors, exponents, bias)
    first, programs = next(iter(layers.values())), ",".join(layers)
    if not first.is_float:  # the input's exponent is constant, that of pixels up to 1
        quantiser = first.quantise_input
        assert isinstance(quantiser, InputQuantiser)
        quantiser.set_exponent(quantiser.fmt.input_exponent)
        first.program_exponents = {programs: dict(trained.scales.exponents)}
        first.program_exponents[f"{programs} ends"] = {"0": 1}
    return model.eval()


@torch.no_grad()
def _take_over(
    layer: TTLinear,
    factors: Sequence[torch.Tensor],
    exponents: Sequence[int],
    bias: torch.Tensor | None,
) -> None:
    """Give a layer the factors and the bias of a file."""
    if layer.is_float:
        layer.set_factors(list(factors))
    else:
        fmt = layer.numbers.format("factor")
        pairs = zip(factors, exponents, strict=True)
        layer.set_factors([dequantise(words, e, fmt) for words, e in pairs], exponents)
    if layer.bias is not None and bias is not None:
        layer.bias.copy_(bias[: layer.rows])
