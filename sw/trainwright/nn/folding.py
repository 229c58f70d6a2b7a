"""Fold batch-norm with frozen statistics into the layer before: one scale and shift a channel."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from trainwright.nn.conversion import become
from trainwright.nn.untyped import named_modules, require_module

_NORMS: dict[type[torch.nn.Module], type[torch.nn.Module]] = {
    torch.nn.BatchNorm1d: torch.nn.Linear,
    torch.nn.BatchNorm2d: torch.nn.Conv2d,
}
"""Layer that each kind of batch-norm follows."""


def fold_batch_norm(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a model whose frozen batch-norms are part of the dense layers before them.

    In evaluation mode the statistics are frozen: a ``BatchNorm1d`` after a ``Linear`` and a
    ``BatchNorm2d`` after a ``Conv2d`` multiply each channel by one number and add another. The copy
    has these numbers in the layer's weight and bias, and ``Identity`` in place of the norm, so that
    ``from_torch`` and ``trainwright.compile`` have one layer. The copy computes what the model
    computes in evaluation mode.

    Raises ``ValueError`` for a batch-norm that cannot be folded, with its name and the reason.

    >>> mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).eval()
    >>> [type(part).__name__ for part in fold_batch_norm(mlp)]
    ['Linear', 'Identity']
    """
    require_module(model)
    copy = deepcopy(model)
    pairs = dict(_pairs(copy))
    for name, norm in [(n, m) for n, m in named_modules(copy) if type(m) in _NORMS]:
        _fold(pairs.get(name), name, norm)
        become(norm, torch.nn.Identity())
    return copy


def _pairs(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the name of each batch-norm that alone reads the layer before it, and that layer."""
    try:
        nodes: list[Any] = list(fx.Tracer().trace(model).nodes)
    except Exception as error:  # the user's code may raise anything when tensors are proxies
        raise ValueError(
            f"torch.fx cannot trace {type(model).__name__}, so the layers before its "
            f"batch-norms are unknown: {str(error).splitlines()[0]}"
        ) from error
    calls = [str(node.target) for node in nodes if node.op == "call_module"]
    for node in nodes:
        if node.op != "call_module" or type(model.get_submodule(str(node.target))) not in _NORMS:
            continue
        (given,) = node.all_input_nodes
        once = calls.count(str(given.target)) == calls.count(str(node.target)) == 1
        if given.op == "call_module" and len(given.users) == 1 and once:
            yield str(node.target), model.get_submodule(str(given.target))


def _fold(layer: torch.nn.Module | None, name: str, norm: Any) -> None:
    """Scale and shift a layer's weight and bias as a batch-norm scales and shifts its results."""
    wanted = _NORMS[type(norm)]
    if type(layer) is not wanted:
        raise ValueError(
            f"{name}: a {type(norm).__name__} is folded into a {wanted.__name__} that it alone "
            "reads, each called once: fold before from_torch, or leave this norm to torch"
        )
    if norm.training or norm.running_mean is None:
        raise ValueError(
            f"{name}: statistics follow each batch; freeze them first with {name}.eval(), which "
            "needs a norm with track_running_stats"
        )
    own: Any = layer
    fuse = fuse_linear_bn_weights if wanted is torch.nn.Linear else fuse_conv_bn_weights
    # fuse_linear_bn_weights knows no norm without scales and shifts of its own.
    scale = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight
    shift = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
    given = (own.weight, own.bias, norm.running_mean, norm.running_var, norm.eps)
    weight, bias = fuse(*given, scale, shift)
    # torch makes a bias that the layer did not have one that is never trained.
    offsets = [each for each in (own.bias, norm.bias) if each is not None] or [weight]
    bias.requires_grad_(any(each.requires_grad for each in offsets))
    own.weight, own.bias = weight, bias
