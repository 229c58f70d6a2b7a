"""Attention as users of PyTorch write it: heads split by views around one function of torch."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx import node as fx_node

from trainwright.nn import TTLinear
from trainwright.nn.attention import attend
from trainwright.offload.trace import is_size_node, layer_of, sole_user

_tensor: Any = torch.Tensor
_nodes: Any = fx_node  # its functions have no types
_MOVES = (
    "view", "reshape", "transpose", "swapaxes", "permute", "contiguous", "unflatten", "flatten",
)  # fmt: skip
MOVES = frozenset(
    function
    for name in _MOVES
    for function in (name, getattr(torch, name, None), getattr(_tensor, name))
    if function is not None
)
"""Functions and names of methods that may give the values of a tensor other axes."""
_SAMPLES, _TOKENS = 61, 67
"""Sizes that stand for unknown ones in a trace: primes, which no size of a head is likely to be."""
_ARGUMENTS = (
    "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
)  # fmt: skip


def moved(place: torch.Tensor, function: Any, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Apply one of ``MOVES`` to a tensor without numbers; None where values would be copied."""
    method = getattr(_tensor, function) if isinstance(function, str) else function
    try:
        result = method(place, *args, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    base = place if place._base is None else place._base
    return result if result is base or result._base is base else None


def whole(place: torch.Tensor) -> torch.Tensor:
    """Return the tensor (samples, tokens, features) that ``place`` is a view of."""
    return place if place._base is None else place._base


def is_whole_value(place: torch.Tensor) -> bool:
    """Return whether a view has the axes of its value, in order."""
    return place.shape == whole(place).shape and place.is_contiguous()


def split(value: torch.Tensor, heads: int) -> torch.Tensor:
    """Return a view (samples, heads, tokens, features of a head)."""
    samples, tokens, features = value.shape
    return value.view(samples, tokens, heads, features // heads).transpose(1, 2)


def heads_of(place: torch.Tensor) -> int | None:
    """Return the number of heads that a view splits its value into; None for another view."""
    value = whole(place)
    if place.dim() != 4 or value.dim() != 3 or not place.shape[1]:
        return None
    heads = place.shape[1]
    wanted = split(value, heads) if value.shape[-1] % heads == 0 else value
    same = place.shape == wanted.shape and place.stride() == wanted.stride()
    return heads if same else None


def attention_called(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Any, bool, float | None] | None:
    """Return operands, mask, causality and scale of torch's attention; None for another call."""
    if function is not torch.nn.functional.scaled_dot_product_attention:
        return None
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    mask, causal = given.get("attn_mask"), bool(given.get("is_causal", False))
    if given.get("dropout_p", 0.0) or given.get("enable_gqa") or (causal and mask is not None):
        return None
    operands = tuple(given.get(name) for name in _ARGUMENTS[:3])
    return operands, mask, causal, given.get("scale")


def common_heads(places: list[torch.Tensor | None], scale: float | None) -> int | None:
    """Return the heads of queries, keys and values, if the accelerator has such an attention."""
    heads = {None if place is None else heads_of(place) for place in places}
    if len(heads) > 1 or None in heads or len({p.shape for p in places if p is not None}) > 1:
        return None
    assert places[0] is not None
    usual = places[0].shape[-1] ** -0.5
    return heads.pop() if scale is None or abs(scale - usual) < 1e-6 * usual else None


def join_heads(graph: fx.Graph, module: torch.nn.Module) -> None:
    """Replace attention between views of heads by ``attend``, which programs have."""
    places = _Places(module)
    for node in list(graph.nodes):
        called = attention_called(node.target, node.args, node.kwargs)
        if called is None:
            continue
        operands, mask, causal, scale = called
        views = [places.of(operand) for operand in operands]
        heads = common_heads([place for place, _ in views], scale)
        if heads is None:
            continue
        values = [value for _, value in views]
        place, last = split(torch.empty_like(whole(_known(views[0][0]))), heads), node
        while not is_whole_value(place):
            last = sole_user(last)
            moves = None if last is None else places.moved(last, place)
            if last is None or moves is None:
                break
            place = moves
        if last is None or not is_whole_value(place):
            continue
        with graph.inserting_after(last):
            joined = graph.call_function(attend, (*values, heads, causal, mask))
        last.replace_all_uses_with(joined)
        for old in reversed(list(graph.nodes)):
            dead = old is node or old.target in MOVES or is_size_node(old)
            if not old.users and dead:
                graph.erase_node(old)


def _known(place: torch.Tensor | None) -> torch.Tensor:
    assert place is not None
    return place


class _Places:
    """Views of the values of layers that nodes of a trace are, at sizes that stand for others."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def of(self, node: Any) -> tuple[torch.Tensor | None, fx.Node | None]:
        """Return the view that a node is, and the node of the whole value."""
        if not isinstance(node, fx.Node):
            return None, None
        layer = layer_of(node, self._module)
        if isinstance(layer, TTLinear):
            return torch.empty(_SAMPLES, _TOKENS, layer.rows, device="meta"), node
        if node.target not in MOVES or not isinstance(node.args[0], fx.Node):
            return None, None
        place, value = self.of(node.args[0])
        return (None if place is None else self.moved(node, place)), value

    def moved(self, node: fx.Node, place: torch.Tensor) -> torch.Tensor | None:
        """Return the view that a node makes of a view."""
        if node.target not in MOVES:
            return None
        args: Any = _nodes.map_arg(node.args[1:], self._size)
        kwargs: Any = _nodes.map_arg(node.kwargs, self._size)
        return moved(place, node.target, *args, **kwargs)

    def _size(self, node: fx.Node) -> Any:
        """Return a size; -1 where it is unknown, which torch finds if it is the only such."""
        if not is_size_node(node):
            return -1
        args: list[Any] = list(node.args)
        first, *more = (self._size(arg) if _is_known(arg) else arg for arg in args)
        if node.target in ("size", getattr):
            own, _ = self.of(node.args[0])
            shape = (_SAMPLES, _TOKENS, -1) if own is None else tuple(own.shape)
            return _at(shape, more[0]) if more and node.target == "size" else shape
        if node.target is operator.getitem:
            return _at(first, more[0])
        function: Any = node.target
        return -1 if -1 in (first, *more) else function(first, *more)


def _is_known(arg: object) -> bool:
    return isinstance(arg, fx.Node) and is_size_node(arg)


def _at(shape: Any, place: Any) -> Any:
    """Return a part of a shape; -1 where the shape has no such."""
    try:
        return shape[place]
    except (TypeError, IndexError):
        return -1
