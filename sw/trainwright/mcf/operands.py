"""Conversion of mixed operands to component tensors, with errors that name both shapes."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainwright.mcf import constants, exact
from trainwright.mcf.carriers import HALF
from trainwright.mcf.graph import wants_grad
from trainwright.mcf.tensor import MCTensor, shape_of, wrap
from trainwright.support.text import amount

Number = int | float | Fraction | Decimal


def model(*operands: Any) -> MCTensor:
    """Return the first ``MCTensor``; raise ``ValueError`` if another has a different nc or type."""
    first, *rest = [x for x in operands if isinstance(x, MCTensor)]
    for other in rest:
        if other.nc != first.nc:
            raise ValueError(
                f"operands have {first.nc} and {amount(other.nc, 'component')}, shapes "
                f"{shape_of(first)} and {shape_of(other)}: bring one to the other by to_nc()"
            )
        _check_types(first, other._components.dtype, shape_of(other))
    return first


def _check_types(first: MCTensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    own = first._components.dtype
    if dtype is not own:
        raise ValueError(
            f"component types {own} and {dtype} do not mix, shapes {shape_of(first)} and {shape}: "
            "convert one by to(dtype)"
        )


def factor_of(x: Any, like: MCTensor) -> Tensor:
    """Convert an operand of arithmetic to components.

    A number next to a half type becomes float32, because it needs that type's range and digits.
    """
    own = like._components
    if isinstance(x, Tensor) or own.dtype not in HALF:
        return components_of(x, like)
    return components_of(x, wrap(own.new_zeros(like.nc, dtype=torch.float32)))


def components_of(x: Any, like: MCTensor) -> Tensor:
    """Convert an operand to components (..., nc), or (..., 1) if one component suffices.

    Plain tensors have one component; integers, truth values and numbers are exact up to nc
    components. A plain tensor without dimensions counts as a number, as in torch.
    """
    if isinstance(x, MCTensor):
        return x._components
    own, nc = like._components, like.nc
    if isinstance(x, Tensor):
        x = x.detach()
        if x.dtype is own.dtype:
            return x.unsqueeze(-1)
        if x.dim() == 0 and x.dtype.is_floating_point:
            return components_of(x.item(), like)
        if x.dtype.is_floating_point:
            _check_types(like, x.dtype, tuple(x.shape))
        return exact.components_from(x, own.dtype, nc, own.device)
    if isinstance(x, float) and (x == 0 or not math.isfinite(x)):  # fractions have no -0
        return torch.full((1,), x, dtype=own.dtype, device=own.device)
    if isinstance(x, np.generic):
        x = x.item()
    if isinstance(x, bool | int | float | Fraction | Decimal):
        parts = constants.components_of(Fraction(x), own.dtype, nc)
        kept = parts if any(parts[1:]) else parts[:1]
        return torch.tensor(kept, dtype=torch.float64).to(own.device, own.dtype)
    raise TypeError(f"an MCTensor, a tensor or a number is needed, not {type(x).__name__}")


def check_broadcast(x: Any, y: Any, name: str) -> None:
    """Raise ``ValueError`` naming both shapes if they do not broadcast."""
    a, b = (shape_of(t) if isinstance(t, Tensor) else () for t in (x, y))
    if a == b or not a or not b:
        return
    try:
        torch.broadcast_shapes(a, b)
    except RuntimeError:
        raise ValueError(f"shapes {a} and {b} do not broadcast in {name}") from None


def written(x: Any, components: Tensor, name: str) -> MCTensor:
    """Write new components into ``x`` in place, and return it.

    Raises where ``x`` cannot hold them.
    """
    if not isinstance(x, MCTensor):
        raise TypeError(
            f"{name} cannot write multi-component numbers into a plain {shape_of(x)} tensor"
        )
    if wants_grad(x):
        raise RuntimeError(
            f"{name} writes into an MCTensor that requires grad: do so under torch.no_grad()"
        )
    if components.shape[-1] < x.nc:
        x._components[..., 1:] = 0
        x._components[..., :1] = components
    else:
        x._components.copy_(components)
    return x
