"""Corrected operations of the paper on component tensors: the arithmetic of ``MCTensor``.

Operands are components (..., nc) in float16, bfloat16, float32 or float64, normalised (see
``trainwright.mcf.expansion``); shapes before the last dimension broadcast. A plain operand has no
component dimension. Results are normalised and have nc components; infinities, NaN and signs of
zeros are those of the operation on the leading components. With one component, an operation is
torch's own. ``docs/reference/mcf.md`` has the algorithms and their errors.
"""

import torch
from torch import Tensor

from trainwright.mcf import carriers, native, reference
from trainwright.mcf.expansion import padded, stacked, terms_of
from trainwright.precision.rounding import exponent_of, scale_by_power


def binary(operation: str, x: Tensor, y: Tensor) -> Tensor:
    """Apply ``add``, ``mul`` or ``div`` to components; either operand may have just one.

    An operand next to one of a half type may be float32: the result has the half type.
    """
    dtype, nc = x.dtype, max(x.shape[-1], y.shape[-1])
    if y.dtype is not dtype or (nc > 1 and dtype in carriers.HALF):
        wide = binary(operation, carriers.widened(x), carriers.widened(y))
        return carriers.narrowed(wide, dtype if dtype in carriers.HALF else y.dtype)
    if native.usable(x, nc) and y.device == x.device:
        return native.binary(operation, x, y)
    return getattr(reference, operation)(x, y)


def add_mcn(x: Tensor, y: Tensor) -> Tensor:
    """Add components (algorithm 9).

    Adds components of equal rank with their errors, runs nc passes of ``vec_sum`` over all 2 nc
    terms, and cuts last, so that no error is dropped before the expansion is in order. The relative
    error is at most 2^-(p nc), however much cancels; two float32 components go through float64,
    with three roundings of 2^-53.
    """
    return binary("add", x, y)


def scaled_add(x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """Compute x + alpha y, where alpha is a number as components (float32 next to half types).

    The product is not rounded to a half type before it is added.
    """
    if x.dtype in carriers.HALF:
        dtype, x, y = x.dtype, carriers.widened(x), carriers.widened(y)
        return carriers.narrowed(binary("add", x, binary("mul", y, alpha)), dtype)
    return binary("add", x, binary("mul", y, alpha))


def grow_exp_n(x: Tensor, v: Tensor) -> Tensor:
    """Add a plain tensor to components (algorithm 1)."""
    return binary("add", x, v.unsqueeze(-1))


def scaling_n(x: Tensor, v: Tensor, expand: bool = False) -> Tensor:
    """Multiply components by a plain tensor (algorithm 8). ``expand``: return nc + 1 components."""
    if expand:
        return binary("mul", padded(x, x.shape[-1] + 1), v.unsqueeze(-1))
    return binary("mul", x, v.unsqueeze(-1))


def mult_mcn(x: Tensor, y: Tensor) -> Tensor:
    """Multiply components (algorithms 11 and 12).

    Computes partial products with their errors down to rank nc (i + j = nc), then ``vec_sum``; uses
    no division. Two float32 components multiply in float64, three in a pair of doubles.
    """
    return binary("mul", x, y)


def div_mcn(x: Tensor, y: Tensor) -> Tensor:
    """Divide components (algorithm 10).

    Takes nc + 1 quotients of leading components and normalises the remainder after each. Two
    float32 components divide in float64, three in a pair of doubles. x / 0 and x / infinity follow
    IEEE 754.
    """
    return binary("div", x, y)


def div_n(v: Tensor, y: Tensor) -> Tensor:
    """Divide a plain tensor by components (algorithm 13)."""
    return binary("div", v.unsqueeze(-1), y)


def square_mcn(x: Tensor) -> Tensor:
    """Multiply x by itself (algorithm 15)."""
    return binary("mul", x, x)


def absolute(x: Tensor) -> Tensor:
    """Negate all components of negative numbers; components have their own signs."""
    return torch.where(torch.signbit(x[..., :1]), -x, x)


def sqrt(x: Tensor) -> Tensor:
    """Return the square root: NaN below zero, -0 for -0; one Newton correction per component."""
    dtype, nc = x.dtype, x.shape[-1]
    plain = torch.sqrt(x[..., 0])
    if nc == 1:
        return plain.unsqueeze(-1)
    if carriers.in_double(dtype, nc):
        return carriers.parted(torch.sqrt(carriers.join(x)), dtype, nc, plain)
    if dtype in carriers.HALF:
        return carriers.narrowed(sqrt(carriers.widened(x)), dtype)
    root = _root(x)
    ends = reference.near_end(x[..., 0], nc) & (x[..., 0] > 0)
    if bool(ends.any()):
        # Squares of roots overflow near the largest number and underflow near the smallest, so
        # these numbers are scaled by an even power of two first.
        part = x[ends]
        half_exponent = torch.div(exponent_of(part[..., 0]), 2, rounding_mode="floor")
        near = _root(scale_by_power(part, -2 * half_exponent.unsqueeze(-1)))
        root[ends] = stacked(reference.scaled(terms_of(near), half_exponent))
    special = ~torch.isfinite(plain) | (plain == 0)
    ends = padded(plain.unsqueeze(-1), nc)
    return torch.where(special.unsqueeze(-1), ends, root)


def _root(x: Tensor) -> Tensor:
    """Correct the leading component's root by one Newton step per component."""
    plain, nc = torch.sqrt(x[..., 0]), x.shape[-1]
    root = padded(plain.unsqueeze(-1), nc)
    for _ in range(nc):
        remainder = add_mcn(x, -square_mcn(root))
        root = grow_exp_n(root, remainder[..., 0] / (2 * plain))
    return root


def power(x: Tensor, exponent: int) -> Tensor:
    """Raise x to an exponent of -2, -1, 1, 2, 3 or 4; half types are rounded once, at the end."""
    dtype, nc = x.dtype, x.shape[-1]
    if nc > 1 and dtype in carriers.HALF:
        return carriers.narrowed(power(carriers.widened(x), exponent), dtype)
    if exponent < 0:  # reciprocal first: a large number's square would overflow
        x = binary("div", x.new_ones(1), x)
    if exponent in (1, -1):
        return x.clone() if exponent == 1 else x
    square = square_mcn(x)
    if exponent == 3:
        return mult_mcn(square, x)
    return square_mcn(square) if exponent == 4 else square


def total(x: Tensor, dim: int) -> Tensor:
    """Sum along a leading dimension (dim >= 0), pairwise: halves are added to halves."""
    dtype, nc = x.dtype, x.shape[-1]
    if nc == 1:
        return x.sum(dim)
    if carriers.in_double(dtype, nc):
        return carriers.parted(carriers.join(x).sum(dim), dtype, nc)
    while (count := x.shape[dim]) > 1:
        half = count // 2
        paired = add_mcn(x.narrow(dim, 0, half), x.narrow(dim, half, half))
        x = torch.cat([paired, x.narrow(dim, 2 * half, 1)], dim) if count % 2 else paired
    if not x.shape[dim]:
        return x.sum(dim)
    return x.squeeze(dim) + 0.0  # torch's sum of -0 is +0
