"""Products of parts on the tensor cores, through cuBLAS.

The default tests, which need no GPU, never run this path; ``tests/sw/test_ape_cuda.py`` runs where
``torch.cuda.is_available()``. No figure of this path has been measured yet.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

CHUNK = 2048
"""Terms that the tensor cores sum without help.

They truncate, so the error grows with the length; chunks are added in float32, rounding to nearest.
"""


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Switch TF32 in float32 products: on for parts that are TF32, off for native float32."""
    if not torch.cuda.is_available():
        yield
        return
    backend = torch.backends.cuda.matmul
    before = backend.allow_tf32
    backend.allow_tf32 = allowed
    try:
        yield
    finally:
        backend.allow_tf32 = before


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Multiply (B, M, K) by (B, K, N); the float32 result is never rounded to the parts' type."""
    if a.dtype == torch.float32:
        with tf32(True):
            return torch.bmm(a, b)
    try:
        if len(a) == 1:
            return torch.mm(a[0], b[0], out_dtype=torch.float32)[None]
        return torch.bmm(a, b, out_dtype=torch.float32)
    except TypeError:  # torch before out_dtype: right results, but without tensor cores
        with tf32(False):
            return torch.bmm(a.to(torch.float32), b.to(torch.float32))


def product(a: Tensor, b: Tensor, chunk: int = CHUNK) -> Tensor:
    """Multiply parts (B, M, K) by (B, K, N) to float32.

    Parts are fp16, bf16, or TF32 held in float32.
    """
    total: Tensor | None = None
    for begin in range(0, a.shape[-1], chunk):
        part = _multiply(a[..., begin : begin + chunk], b[..., begin : begin + chunk, :])
        total = part if total is None else total.add_(part)
    assert total is not None
    return total
