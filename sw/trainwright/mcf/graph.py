"""Autograd of ``MCTensor``: derivatives are those of plain tensors.

As in the paper, the operation is repeated on the leading components, and a gradient is one float of
their type: 11 or 8 digits for a half type, however many digits the numbers have. A leaf whose
``grad_dtype`` (recent versions of torch) is a wider type gets a gradient of that type: every
operation on it is repeated on the whole numbers, rounded to that type, and the backward pass stays
in it.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import exact
from trainwright.mcf.tensor import MCTensor, wrap

Lead = Callable[[Any], Any]
"""Function from an operand to the plain tensor that represents it in the graph."""


class _Exchange(torch.autograd.Function):
    """Replacement of a tensor's value that keeps its derivative."""

    @staticmethod
    def forward(ctx: Any, replaced: Tensor, held: list[Tensor]) -> Tensor:
        return held[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0], None


def leading(x: Any, dtype: torch.dtype | None = None) -> Any:
    """Return the plain tensor that represents an operand in the graph; numbers become floats.

    ``dtype``: a wider type, for the whole number; default: the leading component.
    """
    if isinstance(x, MCTensor):
        return x.fc if dtype is None else _whole(x, dtype)
    if isinstance(x, Fraction | Decimal) or (isinstance(x, int) and abs(x) >= 1 << 63):
        return float(x)  # torch takes integers of 64 bits
    return x.to(dtype) if dtype and isinstance(x, Tensor) and x.is_floating_point() else x


def in_graph(x: MCTensor) -> Tensor:
    """Return the plain tensor that represents a single operand in the graph."""
    return leading(x, _recorded((x,))[1])


def _whole(x: MCTensor, dtype: torch.dtype) -> Tensor:
    if x._twin is not None:
        return x._twin.to(dtype)
    value = exact.converted(x._components, dtype, 1)[..., 0]
    whole: Any = _Exchange.apply(x, [value]) if wants_grad(x) else value
    return whole


def _recorded(operands: tuple[Any, ...]) -> tuple[bool, torch.dtype | None]:
    """Return whether autograd records the result, and the widest gradient type asked for.

    The type is ``None`` if none is wider than the operands' own, and where nothing is recorded.
    """
    if not torch.is_grad_enabled():
        return False, None
    recorded, widest = False, None
    with torch._C.DisableTorchFunctionSubclass():
        for x in operands:
            if not (isinstance(x, Tensor) and x.requires_grad):
                continue
            recorded = True
            if not isinstance(x, MCTensor):
                continue
            if x.is_leaf:
                wanted = getattr(x, "grad_dtype", None)
            else:
                wanted = None if x._twin is None else x._twin.dtype
            if wanted and wanted.itemsize > (widest or x.dtype).itemsize:
                widest = wanted
    return recorded, widest


def wants_grad(*operands: Any) -> bool:
    """Return whether autograd records the result."""
    if not torch.is_grad_enabled():
        return False
    with torch._C.DisableTorchFunctionSubclass():
        return any(isinstance(x, Tensor) and x.requires_grad for x in operands)


def result(components: Tensor, plain: Callable[[Lead], Tensor], *operands: Any) -> MCTensor:
    """Make an ``MCTensor``, recorded in the graph if an operand wants a gradient.

    ``plain`` repeats the operation on the tensors that represent the operands, and torch
    differentiates this repetition.
    """
    recorded, dtype = _recorded(operands)
    if not recorded:
        return wrap(components)
    twin = plain(leading if dtype is None else partial(leading, dtype=dtype))
    lead: Any = _Exchange.apply(twin, [components.select(-1, 0)])
    tensor = wrap(components, lead)
    if twin.dtype is not components.dtype:
        tensor._twin = twin
    return tensor
