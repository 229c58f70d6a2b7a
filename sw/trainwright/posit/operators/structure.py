"""Operators that move and select values unchanged: torch's own, without rounding."""

import torch
from torch import Tensor

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import (
    IN_PLACE,
    RULES,
    covers,
    filling,
    move,
    number,
    operand,
    operator,
)

MOVES = """
    _reshape_alias _unsafe_view alias as_strided block_diag cat channel_shuffle clone detach
    diag_embed diagonal diagonal_scatter embedding expand flip gather im2col index.Tensor index_copy
    index_select masked_scatter masked_select max_unpool2d max_unpool3d permute pixel_shuffle
    pixel_unshuffle relu repeat roll rot90 select.int select_scatter slice.Tensor slice_scatter
    split.Tensor split_with_sizes squeeze squeeze.dim squeeze.dims stack t take transpose.int tril
    triu unbind.int unfold unsafe_split.Tensor unsqueeze view
    masked_scatter_backward select_backward slice_backward diagonal_backward
    amax amin aminmax argmax argmin cummax cummin fmax fmin kthvalue max max.dim median min
    min.dim mode nanmedian sort sort.stable topk _unique2 unique_dim
    all all.dim all.dims any any.dim any.dims bucketize.Tensor count_nonzero
    count_nonzero.dim_IntList isinf isnan isneginf isposinf logical_and logical_not logical_or
    logical_xor multinomial nonzero searchsorted.Tensor _local_scalar_dense
""".split()
"""Operators that return values of their arguments, 0, or tensors that hold no posits."""


for _name in MOVES:
    move(_name)
for _name in ("index_copy", "masked_scatter", "relu", "tril", "triu"):
    IN_PLACE[operator(f"{_name}_")] = RULES[operator(_name)]


def _median(name: str) -> None:
    """Register a median of contiguous memory: torch's of an expanded tensor reads beyond it."""
    call = operator(name)

    @covers(name)
    def median(
        fmt: PositFormat, x: Tensor, dim: int, keepdim: bool = False
    ) -> tuple[Tensor, Tensor]:
        return call(x.contiguous(), dim, keepdim)


_median("median.dim")
_median("nanmedian.dim")


@covers("masked_fill.Scalar")
def masked_fill(fmt: PositFormat, x: Tensor, mask: Tensor, fill: float) -> Tensor:
    """Fill masked elements with a number rounded to the format; -inf hides scores."""
    return x.masked_fill(mask, filling(fill, fmt))


@covers("masked_fill.Tensor")
def masked_fill_tensor(fmt: PositFormat, x: Tensor, mask: Tensor, fill: Tensor) -> Tensor:
    """Fill masked elements with a posit."""
    return x.masked_fill(mask, operand(fill, fmt, x))


@covers("where.self")
def where(fmt: PositFormat, condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Select elements; a number must be exact in the format, -inf, or a float type's least.

    torch may have converted the number to another type before dispatch, so rounding here could
    round twice: ``overrides`` rounds numbers before.
    """
    x, y = (t if isinstance(t, Tensor) else _choice(t, fmt) for t in (x, y))
    return operand(x, fmt, condition).where(condition, operand(y, fmt, condition))


LEAST = {torch.finfo(t).min for t in (torch.float32, torch.float64, torch.bfloat16)}
"""Least numbers of float types: masks, and torch's gradient of ``logcumsumexp``, have them for
-inf. That of float16, -65504, is within the range of most formats."""


def _choice(x: float, fmt: PositFormat) -> float:
    """Return a number of ``where`` as a posit. Raises ``PositError`` for one that is none."""
    if x in LEAST:
        return -fmt.maxpos
    if number(x, fmt) != x != float("-inf"):
        raise PositError(
            f"where: {x} is no value of {fmt}: {fmt.maxpos!r} is its greatest, and "
            f"PositTensor({x}, fmt) rounds {x}; torch.masked fills with {x}: call it on x.decode()"
        )
    return filling(x, fmt)


@covers("scatter.src", "scatter.value")
def scatter(fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor | float) -> Tensor:
    """Put values at places; a number is rounded to the format."""
    if isinstance(source, Tensor):
        return x.scatter(dim, index, operand(source, fmt, x))
    return x.scatter(dim, index, number(source, fmt))


@covers("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(
    fmt: PositFormat, x: Tensor, dim: int, index: Tensor, value: Tensor | float
) -> Tensor:
    """Fill slices with a value; a number is rounded to the format."""
    return x.index_fill(dim, index, operand(value, fmt, x))


@covers("nan_to_num")
def nan_to_num(
    fmt: PositFormat, x: Tensor, nan: float | None = None, *infinities: float | None
) -> Tensor:
    """Replace NaR by a number rounded to the format, 0 by default; posits have no infinities."""
    return torch.where(x.isnan(), number(nan or 0.0, fmt), x)


@covers("constant_pad_nd")
def pad(fmt: PositFormat, x: Tensor, edges: list[int], fill: float = 0) -> Tensor:
    """Pad with a number rounded to the format."""
    return operator("constant_pad_nd")(x, edges, number(fill, fmt))
