"""Extremes, norms and variances of torch on ``MCTensor``."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.carriers import HALF
from trainwright.mcf.graph import result
from trainwright.mcf.operands import components_of
from trainwright.mcf.protocol import handles, handles_one
from trainwright.mcf.reductions import no_dtype
from trainwright.mcf.tensor import MCTensor, shape_of, wrap
from trainwright.precision.rounding import exponent_of, scale_by_power
from trainwright.support.dimensions import reduced
from trainwright.support.text import amount

_RETURNED: Any = torch.return_types


# --- extremes -----------------------------------------------------------------------------------
def _first_extreme(x: Tensor, beats: Callable[[Any, Any], Tensor]) -> tuple[Tensor, Tensor]:
    """Return the extreme of components (n, ..., nc) along their first dimension, and its index.

    The first of equal numbers wins, and a NaN wins over all other numbers.
    """
    index = torch.arange(len(x), device=x.device).reshape(-1, *[1] * (x.dim() - 2))
    index = index.expand(x.shape[:-1])
    while len(x) > 1:
        even = len(x) // 2 * 2
        left, right = x[:even:2], x[1::2]
        nan_left, nan_right = (torch.isnan(side[..., 0]) for side in (left, right))
        wins = (beats(wrap(right), wrap(left)) | nan_right) & ~nan_left
        x = torch.cat([torch.where(wins.unsqueeze(-1), right, left), x[even:]])
        index = torch.cat([torch.where(wins, index[1::2], index[:even:2]), index[even:]])
    return x[0].clone(), index[0]  # of one element, a view of the operand


def _extreme(
    name: str, input: MCTensor, dim: int, beats: Callable[[Any, Any], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the extremes along a dimension, which is kept, and their indices."""
    shape = shape_of(input)
    d = (*reduced(dim, shape), 0)[0]  # a 0-d tensor has no dimension to check further
    x = input._components if shape else input._components.unsqueeze(0)
    if not x.shape[d]:
        raise IndexError(f"{name} of shape {shape} along {dim}: that dimension has no element")
    value, index = _first_extreme(x.movedim(d, 0), beats)
    return (value.unsqueeze(d), index.unsqueeze(d)) if shape else (value, index)


def _register_extremes(name: str, beats: Any, pairwise: Any) -> None:
    def over(input: MCTensor, dim: Any = (), keepdim: bool = False) -> MCTensor:
        with torch.no_grad():
            kept: Any = input
            dims = reduced(dim, shape_of(input))
            for d in dims:
                kept = wrap(_extreme(name, kept, d, beats)[0])
            flat = kept._components if dims else kept._components.clone()
            computed = flat if keepdim else flat.reshape(
                *(n for d, n in enumerate(flat.shape) if d not in dims)
            )  # fmt: skip
            ties = torch.eq(input, kept)

        def spread(lead: Any) -> Tensor:  # equal numbers share the gradient, as in torch
            picked = torch.where(ties, lead(input), 0)
            every = dims or ()
            share = picked.sum(every, keepdim=keepdim) / ties.sum(every, keepdim=keepdim)
            return share.to(picked.dtype)

        return result(computed, spread, input)

    def one(input: MCTensor, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        if isinstance(dim, Tensor) or other is not None:
            return pairwise(input, dim if other is None else other)
        if dim is None:
            return over(input)
        value, index = _extreme(name, input, dim, beats)
        d = dim if shape_of(input) else 0

        def picked(lead: Any) -> Tensor:
            taken = lead(input).gather(d, index)
            return taken if keepdim or not shape_of(input) else taken.squeeze(d)

        if not keepdim and shape_of(input):
            value = value.squeeze(d % len(shape_of(input)))
        kept = index if keepdim or not shape_of(input) else index.squeeze(d)
        return getattr(_RETURNED, name)((result(value, picked, input), kept))

    def place(input: MCTensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        flat: Any = input.detach() if dim is not None else input.detach().flatten()
        index = _extreme(name, flat, dim or 0, beats)[1]
        if dim is None:
            return index.reshape([1] * len(shape_of(input)) if keepdim else [])
        return index if keepdim or not shape_of(input) else index.squeeze(dim)

    handles(f"a{name}")(over)
    handles(name)(one)
    handles(f"arg{name}")(place)


_register_extremes("max", torch.gt, torch.maximum)
_register_extremes("min", torch.lt, torch.minimum)


# --- norms and variances ------------------------------------------------------------------------
def _scaled(input: MCTensor, dims: list[int]) -> tuple[MCTensor, Tensor]:
    """Divide by powers of two, so that squares stay in range; return the exponents, too."""
    wide: Any = input.detach()
    wide = wide.to(torch.float32) if input.dtype in HALF else wide
    if 0 in shape_of(input):
        return wide, torch.zeros((), dtype=torch.int32)
    top = wide.fc.abs().amax(dims, keepdim=True) if dims else wide.fc.abs()
    exponent = exponent_of(torch.where(torch.isfinite(top), top, 1))
    return wrap(scale_by_power(wide._components, -exponent.unsqueeze(-1))), exponent


def _restored(x: MCTensor, exponent: Tensor, like: MCTensor, dims: list[int], keepdim: bool) -> Any:
    """Multiply a result by powers of two, without the dimensions that were reduced."""
    if exponent.dim() and not keepdim:
        exponent = exponent.reshape([n for d, n in enumerate(exponent.shape) if d not in dims])
    restored: Any = wrap(scale_by_power(x._components, exponent.unsqueeze(-1)))
    return restored.to(like.dtype)._components


def _norm(
    name: str, plain: Callable[..., Tensor], input: Any, given: Any, order: Any, dim: Any,
    keepdim: bool,
) -> MCTensor:  # fmt: skip
    """Return a norm of an order; ``plain`` is torch's function, which takes the ``given`` one."""
    dims = reduced(dim, shape_of(input))
    with torch.no_grad():
        size: Any = torch.abs(input)
        if order == 2:
            scaled, exponent = _scaled(input, dims)
            root: Any = torch.sqrt(torch.sum(torch.square(scaled), dims, keepdim))
            computed = _restored(root, exponent, input, dims, keepdim)
        elif order == 1:
            computed = components_of(torch.sum(size, dims, keepdim), input)
        elif order in (math.inf, -math.inf):
            extreme = torch.amax if order > 0 else torch.amin
            computed = components_of(extreme(size, dims, keepdim), input)
        elif order == 0:
            count: Any = torch.where(size != 0, torch.ones_like(size), torch.zeros_like(size))
            computed = components_of(torch.sum(count, dims, keepdim), input)
        else:
            raise TypeError(
                f"{name} of MCTensor has orders 0, 1, 2, inf and -inf, not {order!r}; of matrices "
                "the Frobenius norm: for spectral and nuclear norms take torch.linalg.svdvals"
            )
    return result(computed, lambda lead: plain(lead(input), given, dim, keepdim), input)


@handles("norm")
def _torch_norm(
    input: MCTensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> MCTensor:
    no_dtype(dtype, "norm", input)
    order = 2 if p in ("fro", None) else p
    return _norm("norm", torch.norm, input, p, order, dim, keepdim)


def _vector_norm(
    x: MCTensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> MCTensor:
    no_dtype(dtype, "vector_norm", x)
    return _norm("vector_norm", torch.linalg.vector_norm, x, ord, ord, dim, keepdim)


def _linalg_norm(
    A: MCTensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> MCTensor:
    no_dtype(dtype, "linalg.norm", A)
    count = len(shape_of(A)) if dim is None else 1 if isinstance(dim, int) else len(dim)
    order = 2 if ord is None or (ord == "fro" and count == 2) else ord
    if ord is not None and order is ord and count != 1:
        order = f"{ord!r} of {amount(count, 'dimension')}"
    return _norm("linalg.norm", torch.linalg.norm, A, ord, order, dim, keepdim)


handles_one(torch.linalg.vector_norm, _vector_norm)
handles_one(torch.linalg.norm, _linalg_norm)


def _spread(name: str) -> None:
    plain = getattr(torch, name)

    def run(
        input: MCTensor,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> MCTensor:
        if isinstance(dim, bool):  # torch.var(x, False)
            dim, unbiased = None, dim
        less = int(unbiased) if correction is None else correction
        dims = reduced(dim, shape_of(input))
        count = math.prod(shape_of(input)[d] for d in dims)
        with torch.no_grad():
            scaled, exponent = _scaled(input, dims)
            offset: Any = scaled - torch.mean(scaled, dims, keepdim=True)
            sums: Any = torch.sum(torch.square(offset), dims, keepdim)
            value: Any = sums / max(count - less, 0)
            power = 2 if name == "var" else 1
            value = value if name == "var" else torch.sqrt(value)
            computed = _restored(value, power * exponent, input, dims, keepdim)
        options = {"correction": less, "keepdim": keepdim}
        return result(computed, lambda lead: plain(lead(input), dim, **options), input)

    handles(name)(run)


_spread("var")
_spread("std")
