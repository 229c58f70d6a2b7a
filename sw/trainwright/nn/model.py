"""What concerns all tensor-train layers of a model: prior, ranks, and the way from and to torch."""

from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from typing import Any

import torch

from trainwright.network import Network, NetworkError, NumberFormats, load_network
from trainwright.nn.layers import TTConv2d, TTEmbedding, TTLinear
from trainwright.nn.tensor_train import Numbers, Rank, TensorTrain
from trainwright.nn.untyped import require_module
from trainwright.train.initial import initial_factors

Convert = Callable[[str, torch.nn.Module], torch.nn.Module | None]


def trains(model: torch.nn.Module) -> Iterator[TensorTrain]:
    """The tensor-train layers of a model, each once; ``TypeError`` for what is no module."""
    require_module(model)
    return (module for module in model.modules() if isinstance(module, TensorTrain))


def rank_prior(model: torch.nn.Module, *, form: str = "storage") -> torch.Tensor:
    """Sum of ``TensorTrain.rank_prior`` over the layers of a model; ``ValueError`` without any.

    >>> model = torch.nn.Sequential(TTLinear(64, 32, rank=4), TTLinear(32, 10, rank=4))
    >>> loss = model(torch.rand(8, 64)).square().mean() + 0.25 / 1437 * rank_prior(model)
    >>> loss.backward()
    """
    found = [layer.rank_prior(form=form) for layer in trains(model)]
    if not found:
        raise ValueError("the model has no tensor-train layer, and so no rank prior")
    return torch.stack(found).sum()


def cut_ranks(
    model: torch.nn.Module,
    threshold: float = 0.02,
    *,
    form: str = "storage",
    optimizer: torch.optim.Optimizer | None = None,
) -> bool:
    """``TensorTrain.cut_ranks`` of all layers of a model; returns whether anything was cut.

    Raises ``ValueError`` for a threshold outside of (0, 1).

    >>> layer = TTLinear(64, 10, rank=4)
    >>> torch.nn.init.zeros_(layer.factors[0][..., 2:].data).shape
    torch.Size([1, 1, 4, 2])
    >>> cut_ranks(layer, 1e-6), layer.ranks
    (True, (2,))
    """
    return any([
        layer.cut_ranks(threshold, form=form, optimizer=optimizer) for layer in trains(model)
    ])  # fmt: skip


def _replaced(model: torch.nn.Module, convert: Convert) -> torch.nn.Module:
    """A copy of a model with some modules replaced; one that is shared stays shared."""
    require_module(model)
    copy = deepcopy(model)
    done: dict[int, torch.nn.Module | None] = {}

    def visit(name: str, module: torch.nn.Module) -> torch.nn.Module:
        if id(module) not in done:
            done[id(module)] = convert(name, module)
        new = done[id(module)]
        if new is not None:
            return new.train(module.training)
        children: dict[str, torch.nn.Module | None] = vars(module)["_modules"]
        for key, child in children.items():  # named_children leaves repeated ones out
            if child is not None:
                children[key] = visit(f"{name}.{key}" if name else key, child)
        return module

    return visit("", copy)


def from_torch(
    model: torch.nn.Module,
    rank: Rank = 16,
    *,
    tolerance: float | None = None,
    numbers: Numbers = "fixed",
    skip: Collection[str] = (),
) -> torch.nn.Module:
    """A copy of a model whose dense layers are tensor trains (TT-SVD); the model stays as it is.

    ``torch.nn.Linear``, ``Conv2d`` without groups and ``Embedding`` become ``TTLinear``,
    ``TTConv2d`` and ``TTEmbedding`` of at most ``rank`` (``"auto"``: as many as ``tolerance``
    asks for, a relative error of each matrix, 0.1 where none is given). Left dense are layers named
    in ``skip``, and those whose train would not have fewer bits. Train on for a few
    epochs: 4 bits and a low rank cost accuracy. Raises ``ValueError`` for weights that are not
    finite and ranks that cannot be, ``TypeError`` for what is no module.

    >>> mlp = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh())
    >>> [type(module).__name__ for module in from_torch(mlp, rank=4)]
    ['TTLinear', 'Tanh']
    """
    for name in skip:
        model.get_submodule(name)
    bound: Rank | None = rank
    if rank == "auto":
        tolerance = 0.1 if tolerance is None else tolerance
        bound = 1 << 30

    def convert(name: str, module: torch.nn.Module) -> torch.nn.Module | None:
        made = None if name in skip else _empty(module, rank, numbers)
        if made is None:
            return None
        bias = getattr(module, "bias", None)
        dense = module.weight
        assert isinstance(dense, torch.Tensor)
        load = made.load_kernel if isinstance(made, TTConv2d) else made.load_dense
        load(dense, bias, rank=bound, tolerance=tolerance)
        smaller = made.layer.factor_parameters * made.widths.factor < 32 * dense.numel()
        return made.to(dense.device) if smaller else None

    return _replaced(model, convert)


def _empty(module: torch.nn.Module, rank: Rank, numbers: Numbers) -> TensorTrain | None:
    """A fresh tensor-train layer of the size of a dense one, or None where there is none."""
    kind = type(module)
    if isinstance(module, torch.nn.Linear) and kind is torch.nn.Linear:
        has_bias = getattr(module, "bias", None) is not None
        return TTLinear(
            module.in_features, module.out_features, rank=rank, bias=has_bias, numbers=numbers
        )
    if isinstance(module, torch.nn.Embedding) and kind is torch.nn.Embedding:
        return TTEmbedding(module.num_embeddings, module.embedding_dim, rank=rank, numbers=numbers)
    if isinstance(module, torch.nn.Conv2d) and kind is torch.nn.Conv2d:
        plain = module.groups == 1 and module.padding_mode == "zeros"
        if plain and not isinstance(module.padding, str):
            geometry = (module.kernel_size, module.stride, module.padding, module.dilation)
            return TTConv2d(
                module.in_channels, module.out_channels, *geometry, rank=rank,
                bias=module.bias is not None, numbers=numbers,
            )  # type: ignore[arg-type]  # fmt: skip
    return None


def to_torch(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a model with ordinary dense layers in place of tensor trains, in float32.

    Weights and biases are those that a forward pass computes with, rounded to their bits; outputs
    differ by the rounding of activations alone.

    >>> to_torch(TTLinear(64, 10, rank=4))
    Linear(in_features=64, out_features=10, bias=True)
    """

    def convert(name: str, module: torch.nn.Module) -> torch.nn.Module | None:
        return _dense(module) if isinstance(module, TensorTrain) else None

    return _replaced(model, convert)


@torch.no_grad()
def _dense(layer: TensorTrain) -> torch.nn.Module:
    weight, bias = layer.weight(), layer.used_bias()
    if isinstance(layer, TTEmbedding):
        embedding: Any = torch.nn.Embedding
        return embedding.from_pretrained(weight, freeze=False)
    if isinstance(layer, TTConv2d):
        made = torch.nn.Conv2d(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding,
            layer.dilation, bias=bias is not None, device=weight.device, dtype=weight.dtype,
        )  # fmt: skip
    else:
        made = torch.nn.Linear(
            layer.columns, layer.rows, bias=bias is not None, device=weight.device,
            dtype=weight.dtype,
        )  # fmt: skip
    made.weight.copy_(layer.kernel() if isinstance(layer, TTConv2d) else weight)
    if made.bias is not None and bias is not None:
        made.bias.copy_(bias)
    return made


def from_network(network: Network | str, seed: int = 0) -> torch.nn.Sequential:
    """A network (or the name or TOML file of one) as modules, as ``trainwright train`` begins.

    The same initial factors for the same ``seed``; inputs are (n, I), outputs (n, J) with all
    outputs of the last layer. Raises ``NetworkError``.

    >>> [type(module).__name__ for module in from_network("digits")]
    ['TTLinear', 'ReLU', 'TTLinear']
    """
    network = load_network(network) if isinstance(network, str) else network
    if not network.is_straight:
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
    for layer, own, scales in zip(network.layers, factors, exponents, strict=True):
        made = TTLinear(
            layer.input_size, layer.output_size, rank=layer.ranks, outputs=layer.outputs,
            inputs=layer.inputs, bias=layer.bias, relu=layer.relu,
            numbers=NumberFormats(network.widths, network.posits, network.underflow),
        )  # fmt: skip
        made.set_factors([factor.value for factor in own], scales)
        modules += [made, torch.nn.ReLU()] if layer.relu else [made]
    return torch.nn.Sequential(*modules)
