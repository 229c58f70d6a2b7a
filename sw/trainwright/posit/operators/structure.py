"""Operators that move and select values, whatever these are: torch's own, nothing is rounded."""

from typing import Any

from torch import Tensor

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import (
    RULES,
    UncoveredError,
    covers,
    number,
    operand,
    operator,
)

MOVES = """
    _reshape_alias _unsafe_view alias as_strided cat clone detach diagonal expand flip gather
    index.Tensor index_select masked_select permute repeat roll select.int slice.Tensor split.Tensor
    split_with_sizes squeeze squeeze.dim squeeze.dims stack t take transpose.int tril triu
    unbind.int unfold unsqueeze view select_backward slice_backward diagonal_backward
    amax amin argmax argmin max max.dim min min.dim sort sort.stable topk
    isnan isinf nonzero _local_scalar_dense
""".split()
"""What they return are values of their arguments, or 0, or no posits at all."""


def _move(name: str) -> None:
    call = operator(name)

    def rule(fmt: PositFormat, *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    RULES[call] = rule


for _name in MOVES:
    _move(_name)


@covers("masked_fill.Scalar")
def masked_fill(fmt: PositFormat, x: Tensor, mask: Tensor, fill: float) -> Tensor:
    """The number is rounded to the format."""
    return x.masked_fill(mask, number(fill, fmt))


@covers("masked_fill.Tensor")
def masked_fill_tensor(fmt: PositFormat, x: Tensor, mask: Tensor, fill: Tensor) -> Tensor:
    """``fill`` is a posit too."""
    return x.masked_fill(mask, operand(fill, fmt, x))


@covers("where.self")
def where(fmt: PositFormat, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Numbers must be posits: some have been in another type before they come here."""
    for choice in (x, y):
        if not isinstance(choice, Tensor) and number(choice, fmt) != choice:
            raise PositError(f"{choice} is no value of {fmt}: PositTensor({choice}, fmt) rounds it")
    return operand(x, fmt, condition).where(condition, operand(y, fmt, condition))


@covers("index_put")
def index_put(
    fmt: PositFormat, x: Tensor, places: list[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Values put at places; not added to what is there."""
    if accumulate:
        raise UncoveredError("index_put that accumulates is not covered for posits")
    return x.index_put(places, operand(values, fmt, x))


@covers("scatter.src", "scatter.value")
def scatter(fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor | float) -> Tensor:
    """Values put at places; a number is rounded to the format."""
    if isinstance(source, Tensor):
        return x.scatter(dim, index, operand(source, fmt, x))
    return x.scatter(dim, index, number(source, fmt))


@covers("constant_pad_nd")
def pad(fmt: PositFormat, x: Tensor, edges: list[int], fill: float = 0) -> Tensor:
    """The number is rounded to the format."""
    return operator("constant_pad_nd")(x, edges, number(fill, fmt))
