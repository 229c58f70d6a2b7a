"""Places of ``MCTensor``s in torch's graph: derivatives are those of plain tensors.

As the paper has it, the operation is repeated on the leading components, and a gradient is one
float of their type. Of a half type that is 11 or 8 digits, however many the numbers have. A leaf
whose ``grad_dtype`` (of recent versions of torch) is a wider type has a gradient of that type:
whatever is computed from it is repeated on the whole numbers, rounded to that type, and the
backward pass stays in it.
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
"""From an operand to the plain tensor that stands for it in the graph."""


class _Exchange(torch.autograd.Function):
    """Another value in the place of a tensor's: its derivative is the same."""

    @staticmethod
    def forward(ctx: Any, replaced: Tensor, held: list[Tensor]) -> Tensor:
        return held[0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0], None


def leading(x: Any, dtype: torch.dtype | None = None) -> Any:
    """The plain tensor that stands for an operand in the graph; numbers as floats.

    ``dtype``: a wider type, for the whole number; default: the leading component.
    """
    if isinstance(x, MCTensor):
        return x.fc if dtype is None else _whole(x, dtype)
    if isinstance(x, Fraction | Decimal):
        return float(x)
    return x.to(dtype) if dtype and isinstance(x, Tensor) and x.is_floating_point() else x


def in_graph(x: MCTensor) -> Tensor:
    """The plain tensor that stands for one operand alone."""
    return leading(x, _wider((x,)) if wants_grad(x) else None)


def _whole(x: MCTensor, dtype: torch.dtype) -> Tensor:
    if x._twin is not None:
        return x._twin.to(dtype)
    value = exact.converted(x._components, dtype, 1)[..., 0]
    whole: Any = _Exchange.apply(x, [value]) if wants_grad(x) else value
    return whole


def _wider(operands: tuple[Any, ...]) -> torch.dtype | None:
    """The widest type that an operand wants its gradient in, if that is wider than its own."""
    found = None
    with torch._C.DisableTorchFunctionSubclass():
        for x in operands:
            if not isinstance(x, MCTensor):
                continue
            wanted = None if x._twin is None else x._twin.dtype
            if x.is_leaf and x.requires_grad:
                wanted = getattr(x, "grad_dtype", None)
            if wanted and wanted.itemsize > (found or x.dtype).itemsize:
                found = wanted
    return found


def wants_grad(*operands: Any) -> bool:
    """Whether the result has a place in the graph."""
    if not torch.is_grad_enabled():
        return False
    with torch._C.DisableTorchFunctionSubclass():
        return any(isinstance(x, Tensor) and x.requires_grad for x in operands)


def result(components: Tensor, plain: Callable[[Lead], Tensor], *operands: Any) -> MCTensor:
    """An ``MCTensor``; where an operand wants a gradient, ``plain`` repeats the operation on the
    tensors that stand for the operands in the graph, and the derivative is that of torch.
    """
    if not wants_grad(*operands):
        return wrap(components)
    twin = plain(partial(leading, dtype=_wider(operands)))
    lead: Any = _Exchange.apply(twin, [components[..., 0]])
    made = wrap(components, lead)
    if twin.dtype is not components.dtype:
        made._twin = twin
    return made
