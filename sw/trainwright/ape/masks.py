"""Range levels of blocks: the paper's listing 5, for negative numbers and zeros too.

As printed, listing 5 compares ``v`` and not ``|v|`` with the limits, so every negative number and
every zero falls below MIN and goes native. Here |v| is compared and 0 passes.
"""

from enum import IntEnum
from itertools import chain

import torch
from torch import Tensor

from trainwright.ape import cuda
from trainwright.ape.schemes import SCHEMES, value_range


class RangeLevel(IntEnum):
    """Type that an element, or a block's worst element, needs; higher levels contain lower ones.

    ``HALF``: a float16, lo = 0. ``EXACT``: two scaled float16 hold the element without error.
    ``F``: in the range of fp32-f with an error of at most 2^-23. ``B``, ``T``: in the range of
    fp32-b, fp32-t. ``NATIVE``: none of these; infinities and NaN.
    """

    HALF = 0
    EXACT = 1
    F = 2
    B = 3
    T = 4
    NATIVE = 5


def element_levels(x: Tensor) -> Tensor:
    """Return the ``RangeLevel`` of every element of a float32 tensor, as int8."""
    size = x.abs()
    levels = torch.full(x.shape, int(RangeLevel.NATIVE), dtype=torch.int8, device=x.device)

    def inside(dtype: str) -> Tensor:
        low, high = value_range(dtype)
        return (size >= low) & (size <= high)

    levels[inside("fp32-t")] = RangeLevel.T
    levels[inside("fp32-b")] = RangeLevel.B
    in_f = inside("fp32-f")
    high = x.to(torch.float16)
    residual = (x - high.to(torch.float32)) * 2.0 ** SCHEMES["fp32-f"].scales[1]
    low = residual.to(torch.float16)
    # A tie in the top binade leaves a residual of 2^16, beyond float16, which saturates with
    # twice the error.
    levels[in_f & (residual.abs() < 2.0**16)] = RangeLevel.F
    levels[in_f & (low.to(torch.float32) == residual)] = RangeLevel.EXACT
    levels[(in_f & (residual == 0)) | (x == 0)] = RangeLevel.HALF
    return levels


def _blocks(x: Tensor, rows: int, columns: int, fill: float) -> Tensor:
    """Pad (M, N) with ``fill`` and cut it: (M/rows, N/columns, rows * columns)."""
    m, n = x.shape
    padded = torch.nn.functional.pad(x, (0, -n % columns, 0, -m % rows), value=fill)
    cut = padded.reshape(-(-m // rows), rows, -(-n // columns), columns)
    return cut.transpose(1, 2).reshape(cut.shape[0], cut.shape[2], rows * columns)


def block_levels(x: Tensor, rows: int, columns: int) -> Tensor:
    """Return the highest ``RangeLevel`` in each block of x (M, N), int8.

    The shape is (ceil(M/rows), ceil(N/columns)).
    """
    if 0 in x.shape:
        shape = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
        return torch.zeros(shape, dtype=torch.int8, device=x.device)
    return _blocks(element_levels(x), rows, columns, 0).amax(-1)


def block_extent(x: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Return (smallest nonzero |x|, largest |x|) of each block in float64; (inf, 0) for zeros."""
    size = x.abs().to(torch.float64)
    least = torch.where(size == 0, torch.inf, size)
    return (
        _blocks(least, rows, columns, torch.inf).amin(-1),
        _blocks(size, rows, columns, 0.0).amax(-1),
    )


def fused_summaries(
    a: Tensor, b: Tensor, blocks: tuple[int, int, int]
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]] | None:
    """Return levels, least and most of the blocks of a (M, K) and b (K, N), each in one pass.

    ``None`` where no kernel takes them: off a GPU, or with sizes that are no powers of two. The
    extent of a block with a NaN means nothing.
    """
    powers = all(size.bit_count() == 1 for size in blocks) and max(blocks[1:]) <= 4096
    fused = cuda.kernels(a) if powers and a.numel() and b.numel() else None
    if fused is None:
        return None
    limits = chain.from_iterable(value_range(name) for name in ("fp32-f", "fp32-b", "fp32-t"))
    limits = tuple(limits)
    bm, bk, bn = blocks
    return fused.summary(a, bm, bk, limits), fused.summary(b, bk, bn, limits)
