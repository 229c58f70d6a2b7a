# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportIndexIssue=false
"""Sequential products of posits on a GPU in one kernel, in Triton.

Triton comes with torch's CUDA builds on Linux. Without it torch's operations yield the same bits,
with about fifty launches for each term of a sum.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.posit.rounding import LAYOUTS

_TILE = 32
"""Rows and columns that a program handles: 8 sums a thread hide the latency of their chains."""


@triton.jit
def _rounded(
    x, INTEGER: tl.constexpr, TOP: tl.constexpr, INFINITY: tl.constexpr, LEAST: tl.constexpr,
    MOST: tl.constexpr, REGIME: tl.constexpr, SHIFT: tl.constexpr, FIRST: tl.constexpr,
    KEPT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Round to the format step by step as ``rounding.round_bits`` does; see its comments."""
    bits = x.to(INTEGER, bitcast=True)
    size = bits & TOP
    real, nonzero = size < INFINITY, size != 0
    size = tl.where(size > MOST - 1, MOST - 1, size)
    size = tl.where(size < LEAST, LEAST, size) + SHIFT
    k = (size >> REGIME) - FIRST
    lost = (k ^ (k >> (WIDTH - 1))) + KEPT
    unit = tl.full(size.shape, 1, INTEGER)
    size += (unit << (lost - 1)) - 1 + ((size >> lost) & 1)
    size = ((size >> lost) << lost) - SHIFT
    value = tl.where(nonzero, size, 0).to(x.dtype, bitcast=True)
    value = tl.where(nonzero & (bits < 0), -value, value)
    return tl.where(real, value, float("nan"))


@triton.jit
def _sequential(
    a, b, total, m, depth, n, a_batch, a_row, a_column, b_batch, b_row, b_column, across, tiles,
    INTEGER: tl.constexpr, TOP: tl.constexpr, INFINITY: tl.constexpr, LEAST: tl.constexpr,
    MOST: tl.constexpr, REGIME: tl.constexpr, SHIFT: tl.constexpr, FIRST: tl.constexpr,
    KEPT: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64) // tiles
    tile = tl.program_id(0).to(tl.int64) % tiles
    rows = tile // across * TILE + tl.arange(0, TILE)
    columns = tile % across * TILE + tl.arange(0, TILE)
    left = a + batch * a_batch + rows * a_row
    right = b + batch * b_batch + columns * b_column
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    place = total + (batch * m + rows)[:, None] * n + columns[None, :]
    sums = tl.load(place, mask=inside, other=0.0)
    for k in range(depth):
        x = tl.load(left + k * a_column, mask=rows < m, other=0.0)
        y = tl.load(right + k * b_row, mask=columns < n, other=0.0)
        product = _rounded(
            x[:, None] * y[None, :], INTEGER, TOP, INFINITY, LEAST, MOST, REGIME, SHIFT, FIRST,
            KEPT, WIDTH,
        )  # fmt: skip
        sums = _rounded(
            sums + product, INTEGER, TOP, INFINITY, LEAST, MOST, REGIME, SHIFT, FIRST, KEPT, WIDTH,
        )  # fmt: skip
    tl.store(place, sums, mask=inside)


def sequential(a: Tensor, b: Tensor, total: Tensor, fmt: PositFormat) -> None:
    """Add a (B, M, K) times b (B, K, N) to ``total`` (B, M, N), contiguous, in order of k.

    All in the carrier, float32 or float64, in which products and sums are rounded once.
    """
    layout, width = LAYOUTS[a.dtype], 8 * a.element_size()
    regime, extra = layout.fraction + fmt.es, 1 - fmt.n % 2
    constants = {
        "INTEGER": tl.int32 if width == 32 else tl.int64,
        "TOP": (1 << (width - 1)) - 1,
        "INFINITY": layout.infinity,
        "LEAST": (layout.bias - fmt.max_scale) << layout.fraction,
        "MOST": (layout.bias + fmt.max_scale) << layout.fraction,
        "REGIME": regime,
        "SHIFT": (1 << layout.fraction) + (extra << regime),
        "FIRST": ((layout.bias + 1) >> fmt.es) + extra,
        "KEPT": regime + (3 - fmt.n if fmt.n > 2 else 0),
        "WIDTH": width,
    }
    batch, m, n = total.shape
    across = -(-n // _TILE)
    tiles = across * -(-m // _TILE)
    with torch.cuda.device_of(a):
        _sequential[(batch * tiles,)](
            a, b, total, m, a.shape[2], n, *a.stride(), *b.stride(), across, tiles, **constants,
            TILE=_TILE, num_warps=4,
        )  # fmt: skip
