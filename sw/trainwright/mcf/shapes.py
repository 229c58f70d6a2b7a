"""Indexing, and functions of torch that move numbers unchanged, on ``MCTensor``."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.mcf.expansion import padded
from trainwright.mcf.graph import in_graph, leading, result
from trainwright.mcf.operands import components_of, model, written
from trainwright.mcf.protocol import handles, handles_one
from trainwright.mcf.tensor import MCTensor, shape_of


def _key(key: Any) -> Any:
    """Extend a key so that it leaves the component dimension alone."""
    parts = key if isinstance(key, tuple | list) else (key,)
    return (*parts, slice(None)) if any(part is Ellipsis for part in parts) else key


@handles("__getitem__")
def _getitem(self: MCTensor, key: Any) -> MCTensor:
    _check_key(self, key)
    return result(self._components[_key(key)], lambda lead: lead(self)[key], self)


def _check_key(x: MCTensor, key: Any) -> None:
    """Let torch index numbers first: a key with too many indices would reach the components."""
    x._components[..., 0][key]


@handles("__setitem__")
def _setitem(self: MCTensor, key: Any, value: Any) -> None:
    if not isinstance(self, MCTensor):
        raise TypeError("a plain tensor cannot hold multi-component numbers")
    _check_key(self, key)
    computed = padded(components_of(value, self), self.nc)
    written(self, self._components, "setting elements")  # checks the graph
    self._components[_key(key)] = computed


def _each(plain: Callable[..., Any], x: MCTensor, *args: Any, **kwargs: Any) -> Any:
    """Apply ``plain`` to every component; return one result or a tuple of results."""
    if any(isinstance(a, torch.dtype) for a in (*args, *kwargs.values())):
        raise TypeError(f"{plain.__name__} of MCTensor keeps its type: convert by to(dtype)")
    with torch.no_grad():
        # vmap takes some dimensions that torch refuses, and mixes components into the numbers.
        plain(x._components[..., 0], *args, **kwargs)

        def run(part: Tensor) -> Any:
            return plain(part, *args, **kwargs)

        if shape_of(x):
            mapped = torch.vmap(run, in_dims=-1, out_dims=-1)(x._components)
        else:  # vmap rejects dimension -1 of a 0-d tensor
            mapped = _of_number(run, x._components)
    if isinstance(mapped, Tensor):
        return result(mapped, lambda lead: plain(lead(x), *args, **kwargs), x)
    leads = plain(in_graph(x), *args, **kwargs)
    return tuple(
        result(part, lambda _, own=own: own, x) for part, own in zip(mapped, leads, strict=True)
    )


def _of_number(run: Callable[[Tensor], Tensor], c: Tensor) -> Tensor:
    """Apply a function to each of the components (nc,) of a number; a view stays a view."""
    parts = [run(part) for part in c]
    first = parts[0]
    if first.untyped_storage().data_ptr() != c.untyped_storage().data_ptr():
        return torch.stack(parts, -1)
    shape, strides = (*first.shape, len(c)), (*first.stride(), c.stride(0))
    return c.as_strided(shape, strides, first.storage_offset())


_MOVING = """
reshape view transpose swapaxes swapdims t adjoint permute squeeze unsqueeze flatten unflatten
expand expand_as narrow select chunk split unbind movedim moveaxis flip roll repeat tile
index_select gather broadcast_to contiguous clone diagonal tril triu take_along_dim view_as
reshape_as repeat_interleave ravel tensor_split hsplit vsplit rot90 fliplr flipud
""".split()


_PLACED = {"narrow", "tensor_split"}
"""Functions that also take tensors of places."""
_STORED = {"clone", "contiguous"}
"""Functions that take a memory format."""
_LAYOUTS = (torch.contiguous_format, torch.preserve_format, None)


def _without_layout(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Drop the memory format of plain planes. Raises ``TypeError`` for other formats."""
    layout = kwargs.get("memory_format")
    if layout not in _LAYOUTS:
        raise TypeError(f"{name} of MCTensor stores planes one after another, not as {layout}")
    return {key: value for key, value in kwargs.items() if key != "memory_format"}


def _moving(name: str, compute: Callable[..., Tensor] | None = None) -> None:
    """Register a function; ``compute``, of components and dimensions, spares it vmap's overhead."""
    for place in (torch, Tensor):
        # vmap has no rule for moveaxis.
        plain = getattr(place, "movedim" if name == "moveaxis" else name, None)

        def run(input: Any, *args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            if not isinstance(input, MCTensor):  # a plain tensor in the shape of a number
                named = {key: leading(value) for key, value in kwargs.items()}
                return plain(input, *map(leading, args), **named)
            if name in _STORED:
                kwargs = _without_layout(name, kwargs)
            if name in _PLACED:  # vmap takes numbers only
                args = tuple(a.tolist() if isinstance(a, Tensor) else a for a in args)
            if kwargs or compute is None:
                return _each(plain, input, *map(leading, args), **kwargs)
            computed = compute(input._components, len(shape_of(input)), *args)
            return result(computed, lambda lead: plain(lead(input), *args), input)

        if plain is not None:
            handles_one(getattr(place, name), run)


for _name in _MOVING:
    _moving(_name)


def _swapped(c: Tensor, dims: int, first: int = -2, second: int = -1) -> Tensor:
    for d in (first, second):
        if not -max(dims, 1) <= d < max(dims, 1):
            raise IndexError(f"dimension {d} is out of range for shape {tuple(c.shape[:-1])}")
    return c.transpose(first % dims, second % dims) if dims else c


_moving("transpose", _swapped)


def _turned(c: Tensor, dims: int) -> Tensor:
    if dims > 2:
        raise RuntimeError(f"t needs at most 2 dimensions, not shape {tuple(c.shape[:-1])}")
    return c if dims < 2 else c.transpose(0, 1)


_moving("t", _turned)


def _cloned(c: Tensor, dims: int) -> Tensor:
    return c.movedim(-1, 0).clone(memory_format=torch.contiguous_format).movedim(0, -1)


def _packed(c: Tensor, dims: int) -> Tensor:
    return c if c[..., 0].is_contiguous() else _cloned(c, dims)


_moving("clone", _cloned)
_moving("contiguous", _packed)


def _property(name: str, compute: Callable[[Tensor, int], Tensor]) -> None:
    getter = getattr(Tensor, name).__get__

    def run(x: MCTensor, *_: Any) -> MCTensor:
        computed = compute(x._components, len(shape_of(x)))
        return result(computed, lambda lead: getattr(lead(x), name), x)

    handles_one(getter, run)


_property("T", lambda c, dims: c.permute(*reversed(range(dims)), dims))
_property("real", lambda c, dims: c)


def _transposed(name: str) -> None:
    def compute(c: Tensor, dims: int) -> Tensor:
        getattr(c[..., 0], name)  # raises as torch does: a vector has none
        return c.transpose(dims - 2, dims - 1) if dims else c

    _property(name, compute)


for _name in ("mT", "mH", "H"):
    _transposed(_name)


def _joined(name: str) -> None:
    plain = getattr(torch, name)

    def run(tensors: Any, dim: int = 0) -> MCTensor:
        like = model(*tensors)
        if name == "cat" and any(shape_of(t) != (0,) for t in tensors):
            tensors = [t for t in tensors if shape_of(t) != (0,)]  # fits all shapes, as in torch
        shapes = [shape_of(t) for t in tensors]
        extra = 1 if name == "stack" else 0
        count = len(shapes[0]) + extra
        if not -count <= dim < count:
            raise IndexError(f"dimension {dim} is out of range in {name} of shape {shapes[0]}")
        at = dim % count
        ours = [tuple(s[d] for d in range(len(s)) if extra or d != at) for s in shapes]
        if any(shape != ours[0] for shape in ours):
            raise ValueError(
                f"shapes {', '.join(map(str, shapes))} do not fit in {name} along {dim}"
            )
        parts = [padded(components_of(t, like), like.nc).movedim(-1, 0) for t in tensors]
        computed = plain(parts, at + 1).movedim(0, -1)
        return result(computed, lambda lead: plain([lead(t) for t in tensors], dim), *tensors)

    handles(name)(run)
    if name == "cat":
        handles("concat", "concatenate")(run)


_joined("stack")
_joined("cat")


@handles("embedding")
def embedding(
    input: Tensor,
    weight: MCTensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> MCTensor:
    """Look up rows of ``weight``."""
    if max_norm is not None:
        raise TypeError("max_norm is not defined for MCTensor: embed first, then scale")
    options = {"scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
    with torch.no_grad():  # torch knows which indices are wrong
        F.embedding(input, weight._components[..., 0], padding_idx)
    computed = weight._components[input]
    computed = computed if input.dim() else computed.clone()  # a view, where F.embedding copies
    return result(
        computed, lambda lead: F.embedding(input, lead(weight), padding_idx, **options), weight
    )  # fmt: skip
