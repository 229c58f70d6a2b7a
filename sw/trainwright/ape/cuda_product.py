"""Products of floating types on a GPU's tensor cores, through cuBLAS.

The parts of the left operand lie side by side along K, those of the right one below each other in
reverse order. Pairs of parts of one rank (i + j) are then neighbours on both sides, and one product
of two slices, without a copy, sums them all.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from trainwright.ape import cuda
from trainwright.ape.parts import split
from trainwright.ape.schemes import Scheme

CHUNK = 1024
"""Terms that the tensor cores sum by themselves. They truncate, so the error grows with the
length; chunks are added in float32, round to nearest. Sums of lower parts are not cut: their
truncation counts 2^-8 or less of it."""


def _arranged(x: Tensor, form: Scheme, *, beside: bool, reverse: bool) -> tuple[Tensor, int]:
    """Lay out the parts of x (B, R, C) along a dimension; return the size of one as well.

    ``beside``: along the columns, else along the rows. K, which is that dimension, and the inner
    one are filled up with zeros; the result is cut back where it is not K.
    """
    if x.stride(-1) != 1 and x.stride(-2) == 1:  # a transpose: its parts are transposes too
        turned, size = _arranged(x.mT, form, beside=not beside, reverse=reverse)
        return turned.mT, size
    rows, columns = x.shape[-2:]
    fused = cuda.kernels(x)
    if fused is None:
        parts = split(x, form.name)
        dim = -1 if beside else -2
        return torch.cat(parts[::-1] if reverse else parts, dim), x.shape[dim]
    kind = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2}[form.part]
    wide = cuda.aligned(columns)
    high = rows if beside else cuda.aligned(rows)
    shape = (high, form.parts * wide) if beside else (form.parts * high, wide)
    out = torch.empty(len(x), *shape, dtype=form.part, device=x.device)
    fused.split(x, out, form.parts, kind, form.scales[-1], beside=beside, reverse=reverse)
    return (out, wide) if beside else (out[..., :columns], high)


def _spans(form: Scheme, inner: int, size: int) -> Iterator[tuple[slice, slice, float]]:
    """Yield the products in order: slices of K on the left and right, and the sum's factor."""
    for group in reversed(form.groups):
        factor = 2.0**-group.shift
        for rank, run in groupby(group.pairs, key=sum):
            pairs = list(run)
            left = pairs[0][0] * size
            right = (form.parts - 1 - pairs[0][1]) * size
            whole = size * len(pairs) if len(pairs) > 1 else inner
            step = whole if rank else CHUNK
            for begin in range(0, whole, step):
                terms = min(step, whole - begin)
                yield (
                    slice(left + begin, left + begin + terms),
                    slice(right + begin, right + begin + terms),
                    factor,
                )


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, alpha: float, beta: float) -> None:
    """Set ``total`` to alpha a b + beta total in float32, in place, (B, M, K) times (B, K, N)."""
    options: dict[str, Any] = {"alpha": alpha, "beta": beta}
    function = torch.baddbmm
    into, left, right = total, a, b
    if len(total) == 1:
        function, into, left, right = torch.addmm, total[0], a[0], b[0]
    if a.dtype is not torch.float32:
        options["out_dtype"] = torch.float32
    function(into, left, right, **options, out=into)


def product(a: Tensor, b: Tensor, form: Scheme) -> Tensor:
    """Multiply float32 (B, M, K) by (B, K, N), none empty, in the type ``form``; float32 result."""
    left, size = _arranged(a, form, beside=True, reverse=False)
    right, other = _arranged(b, form, beside=False, reverse=True)
    assert size == other
    total = torch.empty(*a.shape[:-1], b.shape[-1], dtype=torch.float32, device=a.device)
    with cuda.precision(tf32=form.part is torch.float32):
        for count, (columns, rows, factor) in enumerate(_spans(form, a.shape[-1], size)):
            _add_product(
                total, left[..., columns], right[..., rows, :],
                alpha=factor, beta=1.0 if count else 0.0,
            )  # fmt: skip
    return total
