"""Matrix products in one emulated type: split, one accumulator per group, smallest group first."""

import torch
from torch import Tensor

from trainwright.ape import cuda, cuda_product
from trainwright.ape.accumulate import NEAREST, Accumulation, accumulated
from trainwright.ape.parts import split
from trainwright.ape.schemes import ProductGroup, Scheme


def joined(
    a: tuple[Tensor, ...], b: tuple[Tensor, ...], group: ProductGroup
) -> tuple[Tensor, Tensor]:
    """Concatenate a group's left parts along K, and its right parts along K."""
    left = torch.cat([a[i] for i, _ in group.pairs], dim=-1)  # (..., M, pairs * K)
    right = torch.cat([b[j] for _, j in group.pairs], dim=-2)  # (..., pairs * K, N)
    return left, right


TILE = 128
"""Rows and columns of the result that the simulation keeps in the CPU cache while K runs."""


def _cpu_group(a: Tensor, b: Tensor, how: Accumulation) -> Tensor:
    a, b = a.to(torch.float64), b.to(torch.float64)
    result = torch.empty(*a.shape[:-1], b.shape[-1], dtype=torch.float32)
    for x, y, out in zip(a, b, result, strict=True):
        for rows in range(0, x.shape[0], TILE):
            for columns in range(0, y.shape[1], TILE):
                left, right = x[rows : rows + TILE], y[:, columns : columns + TILE]
                out[rows : rows + TILE, columns : columns + TILE] = accumulated(left, right, how)
    return result


def product(a: Tensor, b: Tensor, form: Scheme, how: Accumulation | None = None) -> Tensor:
    """Multiply float32 (B, M, K) by (B, K, N) in the type ``form``; float32 (B, M, N).

    On the CPU the result is exactly the scheme's value for ``how`` (default ``NEAREST``); group
    sums are added in float32, rounding to nearest. On CUDA the tensor cores multiply and add in
    their own way, so ``how`` must be None there (``ValueError``).
    """
    if a.is_cuda and how is not None:
        raise ValueError("on CUDA the tensor cores accumulate in their own way: accumulation=None")
    shape = (*a.shape[:-1], b.shape[-1])
    if 0 in shape or a.shape[-1] == 0:
        return a.new_zeros(shape)
    if a.is_cuda:
        return cuda_product.product(a, b, form)
    x, y = split(a, form.name), split(b, form.name)
    total: Tensor | None = None
    for group in reversed(form.groups):
        left, right = joined(x, y, group)
        part = _cpu_group(left, right, how or NEAREST)
        part = part * 2.0**-group.shift if group.shift else part
        total = part if total is None else total + part
    assert total is not None
    return total


def native_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply float32 (B, M, K) by (B, K, N) with torch, TF32 off."""
    with cuda.precision(tf32=False):
        return torch.matmul(a, b)
