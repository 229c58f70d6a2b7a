# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportIndexIssue=false
"""Fused CUDA kernels of APE in Triton, which comes with torch's CUDA builds on Linux.

Each reads its input once, where a chain of torch's operations would pass over memory a dozen times.
``trainwright.ape.cuda`` computes the same bits by torch where Triton is missing.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024
"""Elements of a program: 8 for each thread of 4 warps, so two loads of 16 bytes are in flight."""
FP16, BF16, TF32, BYTES = 0, 1, 2, 3


@triton.jit
def _rounded(x, CUT: tl.constexpr):
    """Round ``CUT`` last bits of float32 away, to nearest even: bits are ordered as magnitudes."""
    bits = x.to(tl.int32, bitcast=True)
    near = bits + ((1 << (CUT - 1)) - 1) + ((bits >> CUT) & 1)
    near = (near & -(1 << CUT)).to(tl.float32, bitcast=True)
    return tl.where((bits & 0x7F800000) != 0x7F800000, near, x)


@triton.jit
def _part(rest, KIND: tl.constexpr, SCALE: tl.constexpr):
    """Return a part in its type and what it stands for, as ``parts.split`` does."""
    scaled = rest * SCALE
    if KIND == 0:
        part = scaled.to(tl.float16)
        if SCALE != 1.0:  # a tie of the top binade saturates
            part = tl.where(part.to(tl.float32) > 65504.0, 65504.0, part.to(tl.float32))
            part = tl.where(part < -65504.0, -65504.0, part).to(tl.float16)
    elif KIND == 1:
        part = _rounded(scaled, 16).to(tl.bfloat16)  # exact, whatever the cast's rounding
    else:
        part = _rounded(scaled, 13)
    return part, part.to(tl.float32) * (1.0 / SCALE)


@triton.jit
def _split(
    x, out, rows, columns, padded_rows, padded_columns, total, by_batch, by_row, by_column,
    PARTS: tl.constexpr, KIND: tl.constexpr, SCALE: tl.constexpr, BESIDE: tl.constexpr,
    REVERSED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = i % padded_columns
    line = i // padded_columns
    r = line % padded_rows
    batch = line // padded_rows
    inside = (i < total) & (r < rows) & (c < columns)
    rest = tl.load(x + batch * by_batch + r * by_row + c * by_column, mask=inside, other=0)
    for p in tl.static_range(PARTS):
        slot = PARTS - 1 - p if REVERSED else p
        if BESIDE:
            place = (line * PARTS + slot) * padded_columns + c
        else:
            place = ((batch * PARTS + slot) * padded_rows + r) * padded_columns + c
        if KIND == 3:  # x = 256 high + low + 128, both signed; nothing stands in the padding
            byte = rest >> 8 if p == 0 else (rest & 0xFF) - 128
            part = tl.where(inside, byte, 0).to(tl.int8)
        else:
            part, taken = _part(rest, KIND, 1.0 if p == 0 else SCALE)
            finite = tl.abs(taken) < float("inf")
            rest = tl.where(finite, rest - taken, 0.0)
        tl.store(out + place, part, mask=i < total)


def split(
    x: Tensor, out: Tensor, parts: int, kind: int, scale: int, *, beside: bool, reverse: bool
) -> None:
    """Write the parts of x (B, R, C) to ``out``, padded with zeros.

    ``out`` is contiguous: (B, R', parts C') if ``beside``, else (B, parts R', C').
    """
    batch, rows, columns = x.shape
    padded_rows = out.shape[1] // (1 if beside else parts)
    padded_columns = out.shape[2] // (parts if beside else 1)
    total = batch * padded_rows * padded_columns
    with torch.cuda.device_of(x):
        _launch(
            _split, total, x, out, rows, columns, padded_rows, padded_columns, total, *x.stride(),
            PARTS=parts, KIND=kind, SCALE=2.0**scale, BESIDE=beside, REVERSED=reverse,
        )  # fmt: skip


@triton.jit
def _combine(
    high, cross, low, left, right, out, rows, columns, wide, constant, BLOCK: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < rows * columns
    r, c = i // columns, i % columns
    place = r * wide + c
    total = tl.load(high + place, mask=inside, other=0).to(tl.int64) << 16
    total += tl.load(cross + place, mask=inside, other=0).to(tl.int64) << 8
    total += tl.load(low + place, mask=inside, other=0).to(tl.int64)
    total += 128 * tl.load(left + r, mask=inside, other=0)
    total += 128 * tl.load(right + c, mask=inside, other=0) + constant
    tl.store(out + i, total + tl.load(out + i, mask=inside, other=0), mask=inside)


def combine(
    high: Tensor, cross: Tensor, low: Tensor, left: Tensor, right: Tensor, out: Tensor, inner: int
) -> None:
    """Add the int32 products of bytes (padded alike) and the sums' corrections to ``out``."""
    rows, columns = out.shape
    with torch.cuda.device_of(out):
        _launch(
            _combine, rows * columns, high, cross, low, left, right, out, rows, columns,
            high.stride(0), 128 * 128 * inner,
        )  # fmt: skip


def _launch(kernel: Any, total: int, *arguments: Any, **constants: Any) -> None:
    kernel[(-(-total // _BLOCK),)](*arguments, **constants, BLOCK=_BLOCK, num_warps=4)


# Levels are the numbers of ``masks.RangeLevel``, 0 to 5.
@triton.jit
def _summary(
    x, levels, least, most, rows, columns, by_row, by_column, across, HIGH: tl.constexpr,
    WIDE: tl.constexpr, STEP: tl.constexpr, LEAST_F: tl.constexpr, MOST_F: tl.constexpr,
    LEAST_B: tl.constexpr, MOST_B: tl.constexpr, LEAST_T: tl.constexpr, MOST_T: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    down, right = block.to(tl.int64) // across, block.to(tl.int64) % across
    c = right * WIDE + tl.arange(0, WIDE)
    worst = tl.zeros((STEP, WIDE), tl.int32)
    smallest = tl.full((STEP, WIDE), float("inf"), tl.float32)
    largest = tl.zeros((STEP, WIDE), tl.float32)
    for begin in range(0, HIGH, STEP):
        r = down * HIGH + begin + tl.arange(0, STEP)
        inside = (r < rows)[:, None] & (c < columns)[None, :]
        place = r[:, None] * by_row + c[None, :] * by_column
        value = tl.load(x + place, mask=inside, other=0.0)
        size = tl.abs(value)
        rest = (value - value.to(tl.float16).to(tl.float32)) * 4096.0
        low = rest.to(tl.float16).to(tl.float32)
        # Only the rest matters element by element: ranges are compared once a block, which takes a
        # fifth off the time. Outside of fp32-f's range the rest decides nothing.
        part = tl.where(rest == 0, 0, tl.where(low == rest, 1, 2))
        part = tl.where(tl.abs(rest) >= 65536.0, 3, part)
        worst = tl.maximum(worst, tl.where(size == size, part, 5))
        smallest = tl.where((size < smallest) & (size > 0), size, smallest)
        largest = tl.where(size > largest, size, largest)
    nearest = tl.min(tl.min(smallest, 1), 0)
    farthest = tl.max(tl.max(largest, 1), 0)
    residue = tl.max(tl.max(worst, 1), 0)
    level = tl.where((nearest >= LEAST_T) & (farthest <= MOST_T), 4, 5)
    level = tl.where((nearest >= LEAST_B) & (farthest <= MOST_B), 3, level)
    level = tl.where((nearest >= LEAST_F) & (farthest <= MOST_F), residue, level)
    level = tl.where(residue == 5, 5, level)  # a NaN, which the extent does not see
    tl.store(levels + block, level.to(tl.int8))
    tl.store(least + block, nearest.to(tl.float64))
    tl.store(most + block, farthest.to(tl.float64))


def summary(
    x: Tensor, rows: int, columns: int, limits: tuple[float, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return levels, least and largest |x| of the blocks of float32 x (M, N), in powers of two.

    ``limits``: least and largest |x| of fp32-f, fp32-b and fp32-t, one after the other.
    """
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // columns)
    levels = torch.empty(down, across, dtype=torch.int8, device=x.device)
    least, most = torch.empty(2, down, across, dtype=torch.float64, device=x.device)
    with torch.cuda.device_of(x):
        # 4,096 elements at a time stay in registers.
        _summary[(down * across,)](
            x, levels, least, most, *x.shape, *x.stride(), across, HIGH=rows, WIDE=columns,
            STEP=min(rows, max(1, 4096 // columns)), LEAST_F=limits[0], MOST_F=limits[1],
            LEAST_B=limits[2], MOST_B=limits[3], LEAST_T=limits[4], MOST_T=limits[5], num_warps=8,
        )  # fmt: skip
    return levels, least, most


@triton.jit
def _kind(a, b, STRICT: tl.constexpr):
    """Return the kind for levels of two blocks: ``decider.ProductKind`` by ``masks.RangeLevel``."""
    top, low = tl.maximum(a, b), tl.minimum(a, b)
    kind = tl.where(top == 3, 2, tl.where(top == 4, 3, 4))
    kind = tl.where((top == 2) & (low > 0), 1 if STRICT else 0, kind)
    return tl.where((top <= 1) | ((top == 2) & (low == 0)), 0, kind)


@triton.jit
def _pairs(
    levels_a, least_a, most_a, levels_b, least_b, most_b, kinds, counts, m, strips, n, across,
    inner, STRICT: tl.constexpr, UNDERFLOW: tl.constexpr, OVERFLOW: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // across).to(tl.int64)
    columns = tl.program_id(0) % across * TILE + tl.arange(0, TILE)
    inside = columns < n
    total = tl.zeros((TILE,), tl.float64)
    wide = tl.zeros((TILE,), tl.int32)
    for k in range(strips):
        kind = _kind(
            tl.load(levels_a + row * strips + k).to(tl.int32),
            tl.load(levels_b + k * n + columns, mask=inside, other=0).to(tl.int32), STRICT,
        )  # fmt: skip
        wide = tl.maximum(wide, ((kind == 2) | (kind == 3)).to(tl.int32))
        left = tl.load(most_a + row * strips + k)
        right = tl.load(most_b + k * n + columns, mask=inside, other=0.0)
        # Infinities count as float64's greatest number, so that none times 0 becomes a NaN.
        total += tl.minimum(left, 1.7e308) * tl.minimum(right, 1.7e308)
    over = (wide > 0) & ((total * inner < OVERFLOW) == 0)
    zero = tl.zeros((TILE,), tl.int32)
    c0, c1, c2, c3, c4 = zero, zero, zero, zero, zero
    for k in range(strips):
        kind = _kind(
            tl.load(levels_a + row * strips + k).to(tl.int32),
            tl.load(levels_b + k * n + columns, mask=inside, other=0).to(tl.int32), STRICT,
        )  # fmt: skip
        least = tl.load(least_a + row * strips + k)
        least = least * tl.load(least_b + k * n + columns, mask=inside, other=1.0)
        kind = tl.where(over | ((kind > 1) & (least < UNDERFLOW)), 4, kind)
        place = (k * m + row) * n + columns
        tl.store(kinds + place, kind.to(tl.int8), mask=inside)
        c0 += (inside & (kind == 0)).to(tl.int32)
        c1 += (inside & (kind == 1)).to(tl.int32)
        c2 += (inside & (kind == 2)).to(tl.int32)
        c3 += (inside & (kind == 3)).to(tl.int32)
        c4 += (inside & (kind == 4)).to(tl.int32)
    tl.atomic_add(counts, tl.sum(c0, 0))
    tl.atomic_add(counts + 1, tl.sum(c1, 0))
    tl.atomic_add(counts + 2, tl.sum(c2, 0))
    tl.atomic_add(counts + 3, tl.sum(c3, 0))
    tl.atomic_add(counts + 4, tl.sum(c4, 0))


def pairs(
    left: tuple[Tensor, Tensor, Tensor], right: tuple[Tensor, Tensor, Tensor], inner: int,
    *, strict: bool, underflow: float, overflow: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the kind of each block product, int8 (K, M, N), and how many there are of each, int32.

    ``left`` and ``right``: levels, least and most of blocks (M, K) and (K, N), contiguous, as
    ``summary`` returns them; ``inner``: columns of a block on the left. See
    ``decider.block_kinds``. In torch the same takes 40 launches of kernels, 0.3 to 0.7 ms.
    """
    (m, strips), n = left[0].shape, right[0].shape[1]
    kinds = torch.empty(strips, m, n, dtype=torch.int8, device=left[0].device)
    counts = torch.zeros(5, dtype=torch.int32, device=left[0].device)
    tile = min(128, triton.next_power_of_2(n))
    across = -(-n // tile)
    with torch.cuda.device_of(kinds):
        _pairs[(m * across,)](
            *left, *right, kinds, counts, m, strips, n, across, inner, STRICT=strict,
            UNDERFLOW=underflow, OVERFLOW=overflow, TILE=tile, num_warps=4,
        )  # fmt: skip
    return kinds, counts
