"""Sums of products: every operation rounded, or the draft's Assumption 2.4.

``a`` (..., p, k) times ``b`` (..., k, q), values already in the format, in its carrier type.
"""

import torch

from trainwright.precision.formats import PrecisionFormat, digits_of, get_format
from trainwright.precision.simulate import checked
from trainwright.support.graphs import library_call

_TABLE = 1 << 24
"""Most products that are kept at once."""


def _outer_factors(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (k, ..., p, 1) and (k, ..., 1, q); index k of their product is step k."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    columns = a.expand(*batch, *a.shape[-2:]).movedim(-1, 0).unsqueeze(-1)
    rows = b.expand(*batch, *b.shape[-2:]).movedim(-2, 0).unsqueeze(-2)
    return columns, rows


def matmul_rounded(a: torch.Tensor, b: torch.Tensor, format: PrecisionFormat) -> torch.Tensor:
    """Return the product with every multiplication and addition rounded, summed in order of k.

    Each element has the relative error gamma_k of the draft's (2.7). The sum runs over k one step
    at a time, all elements at once.
    """
    if format.native:
        return a @ b
    steps = a.shape[-1]
    columns, rows = _outer_factors(a, b)
    chunk = max(1, _TABLE // max(1, (columns[0] * rows[0]).numel()))
    # torch adds float16 and bfloat16 in float32 and rounds: one call where others need three.
    narrow = format.dtype if format.dtype in (torch.float16, torch.bfloat16) else None
    total = None
    for begin in range(0, steps, chunk):
        products = format.round(columns[begin : begin + chunk] * rows[begin : begin + chunk])
        if narrow is not None:
            products = products.to(narrow)
        for product in products.unbind(0):
            if total is None:
                total = product.clone()
            elif narrow is not None:
                total.add_(product)
            else:
                total = format.round(total + product)
    if total is None:
        raise ValueError("a product of matrices needs at least one element to sum over")
    return total.to(a.dtype)


def matmul_exact_products(
    a: torch.Tensor, b: torch.Tensor, low: PrecisionFormat, high: PrecisionFormat
) -> torch.Tensor:
    """Return exact products of low inputs, summed in ``high``; not yet cast (Assumption 2.4).

    Where ``high`` is a machine type with twice the digits of ``low`` this is its matrix product: a
    product of low numbers is exact in it. Elsewhere the products are formed in float64 and each
    addition is rounded. Raises ``PrecisionError`` where float64 is too narrow for that too.
    """
    if high.native and 2 * low.digits <= high.digits:
        wide = high.dtype
        assert wide is not None
        return a.to(wide) @ b.to(wide)
    if 2 * low.digits > digits_of(torch.float64):
        checked(low)
    columns, rows = _outer_factors(a.to(torch.float64), b.to(torch.float64))
    total = None
    for column, row in zip(columns, rows, strict=True):
        product = column * row
        total = high.round(product) if total is None else high.round(total + product)
    if total is None:
        raise ValueError("a product of matrices needs at least one element to sum over")
    return total


def _dot(x: torch.Tensor, y: torch.Tensor, f: PrecisionFormat) -> tuple[torch.Tensor, torch.Tensor]:
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"dot product of {x.shape[-1]} with {y.shape[-1]} elements")
    left, right = (f.round(t).to(f.carrier) for t in (x, y))
    return left.unsqueeze(-2), right.unsqueeze(-1)


@library_call
def dot_rounded(
    x: torch.Tensor, y: torch.Tensor, format: str | PrecisionFormat = "fp16"
) -> torch.Tensor:
    """Return dot products over the last dimension, every operation rounded by simHalf (Table 3)."""
    f = checked(format)
    return matmul_rounded(*_dot(x, y, f), f)[..., 0, 0]


@library_call
def dot_mixed(
    x: torch.Tensor,
    y: torch.Tensor,
    low: str | PrecisionFormat = "fp16",
    high: str | PrecisionFormat = "fp32",
) -> torch.Tensor:
    """Return dot products under Assumption 2.4.

    Low inputs, exact products, high sum, result cast to low. Relative to |x|^T|y| the error is at
    most gamma^l_(d+2), d = floor(m u_h / u_l) (Lemma 2.3).
    """
    narrow, wide = get_format(low), get_format(high)
    total = matmul_exact_products(*_dot(x, y, narrow), narrow, wide)[..., 0, 0]
    return narrow.round(total).to(narrow.carrier)
