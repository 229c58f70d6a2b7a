"""GPU settings of cuBLAS, access to the fused kernels, and int16 products on int8 tensor cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 16
"""Elements that a row of bytes is a multiple of: cuBLAS needs 16 bytes for its fast kernels."""


@contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """Fix how cuBLAS multiplies float32 within a context, and restore the caller's settings.

    ``tf32`` is true for operands that are TF32 numbers, false for native float32. Accumulation in
    float16 is always off.
    """
    if not torch.backends.cuda.is_built():
        yield
        return
    backend: Any = torch.backends.cuda.matmul
    # In torch 2.9 and later, reading the old name is an error once a caller has set the new one.
    name = "fp32_precision" if hasattr(backend, "fp32_precision") else "allow_tf32"
    wanted = {name: ("tf32" if tf32 else "ieee") if name == "fp32_precision" else tf32}
    if hasattr(backend, "allow_fp16_accumulation"):
        wanted["allow_fp16_accumulation"] = False
    before = {setting: getattr(backend, setting) for setting in wanted}
    for setting, value in wanted.items():
        setattr(backend, setting, value)
    try:
        yield
    finally:
        for setting, value in before.items():
            setattr(backend, setting, value)


def kernels(x: Tensor) -> Any:
    """Return the fused kernels, or ``None`` if x is not on a GPU or Triton is not installed."""
    return _kernels() if x.is_cuda else None


@cache
def _kernels() -> Any:
    if find_spec("triton") is None:
        return None
    from trainwright.ape import kernels as module

    return module


def aligned(size: int) -> int:
    """Round a number of elements up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def byte_product(a: Tensor, b: Tensor, total: Tensor) -> None:
    """Add int16 a (M, K) times b (K, N) to ``total`` (int64), on the int8 tensor cores.

    Tensor cores take signed bytes, so x = 256 h + l + 128 with signed h and l. Sums of rows and
    columns give the terms of the constant 128. Sums of 2 K products of bytes must fit int32.
    """
    (m, k), n = a.shape, b.shape[1]
    # h and l lie side by side in `left`, l and h in `right`: one product gives both cross terms.
    left, size = _bytes(a, max(32, -(-m // 8) * 8), reverse=False)
    right, _ = _bytes(b.mT, -(-n // 8) * 8, reverse=True)
    multiply = torch.ops.aten._int_mm
    high = multiply(left[:, :size], right[:, size:].mT)
    cross = multiply(left, right.mT)
    low = multiply(left[:, size:], right[:, :size].mT)
    rows = a.sum(1, dtype=torch.int64) - 128 * k
    columns = b.sum(0, dtype=torch.int64) - 128 * k
    if (fused := kernels(total)) is not None:
        fused.combine(high, cross, low, rows, columns, total, k)
        return
    wide = [x[:m, :n].to(torch.int64) for x in (high, cross, low)]
    total += (wide[0] << 16) + (wide[1] << 8) + wide[2]
    total += 128 * (rows[:, None] + columns[None, :]) + 128 * 128 * k


def _bytes(x: Tensor, rows: int, *, reverse: bool) -> tuple[Tensor, int]:
    """Return the high and low bytes of int16 x (R, C) side by side, and the columns of each half.

    With ``reverse`` the low bytes come first. Zeros fill up ``rows`` rows and aligned columns.
    """
    size = aligned(x.shape[1])
    if (fused := kernels(x)) is not None:
        out = torch.empty(1, rows, 2 * size, dtype=torch.int8, device=x.device)
        fused.split(x[None], out, 2, fused.BYTES, 0, beside=True, reverse=reverse)
        return out[0], size
    out = torch.zeros(rows, 2 * size, dtype=torch.int8, device=x.device)
    parts = ((x >> 8).to(torch.int8), ((x & 0xFF) - 128).to(torch.int8))
    for slot, part in enumerate(parts[::-1] if reverse else parts):
        out[: x.shape[0], slot * size : slot * size + x.shape[1]] = part
    return out, size
