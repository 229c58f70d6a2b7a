"""The operations of the paper on component tensors, corrected: what ``MCTensor`` computes with.

Operands are components (..., nc) in float16, bfloat16, float32 or float64, normalised (see
``trainwright.mcf.expansion``); shapes before the last broadcast. Where a function takes a plain
tensor it has no component dimension. Results are normalised and have nc components; infinities, NaN
and the signs of zeros are those of the operation on the leading components. An operation on one
component is the plain one. ``docs/mcf.md`` has the algorithms, their errors and measurements.
"""

import torch
from torch import Tensor

from trainwright.mcf import carriers, native, reference
from trainwright.mcf.expansion import padded, stacked, terms_of, vec_sum
from trainwright.precision.rounding import exponent_of, scale_by_power


def binary(operation: str, x: Tensor, y: Tensor) -> Tensor:
    """``add``, ``mul`` or ``div`` of components, either of which may have just one.

    An operand beside one of a half type may be of float32: the result is of the half type.
    """
    dtype, nc = x.dtype, max(x.shape[-1], y.shape[-1])
    if y.dtype is not dtype or (nc > 1 and dtype in carriers.HALF):
        wide = binary(operation, carriers.widened(x), carriers.widened(y))
        return carriers.narrowed(wide, dtype if dtype in carriers.HALF else y.dtype)
    if native.usable(x, nc) and y.device == x.device:
        return native.binary(operation, x, y)
    return getattr(reference, operation)(x, y)


def add_mcn(x: Tensor, y: Tensor) -> Tensor:
    """x + y, components both (algorithm 9).

    Sums of equal rank with their errors, nc passes of ``vec_sum`` over all 2 nc terms, then cut:
    no error is dropped before the expansion is in order. Relative error 2^-(p nc) or less, whatever
    cancels; two float32 components go through float64, three roundings of 2^-53.
    """
    return binary("add", x, y)


def scaled_add(x: Tensor, y: Tensor, alpha: Tensor) -> Tensor:
    """x + alpha y, alpha a number as components, of float32 beside half types.

    The product is not rounded to a half type before it is added.
    """
    half = x.dtype in carriers.HALF
    if half:
        dtype, x, y = x.dtype, carriers.widened(x), carriers.widened(y)
        return carriers.narrowed(binary("add", x, binary("mul", y, alpha)), dtype)
    return binary("add", x, binary("mul", y, alpha))


def grow_exp_n(x: Tensor, v: Tensor) -> Tensor:
    """x + v, v plain (algorithm 1)."""
    return binary("add", x, v.unsqueeze(-1))


def scaling_n(x: Tensor, v: Tensor, expand: bool = False) -> Tensor:
    """x v, v plain (algorithm 8). ``expand``: nc + 1 components."""
    if expand:
        return binary("mul", padded(x, x.shape[-1] + 1), v.unsqueeze(-1))
    return binary("mul", x, v.unsqueeze(-1))


def mult_mcn(x: Tensor, y: Tensor) -> Tensor:
    """x y, components both (algorithms 11 and 12).

    Partial products with their errors down to rank nc (i + j = nc), then ``vec_sum``: no division.
    Two float32 components multiply in float64, three in a pair of doubles.
    """
    return binary("mul", x, y)


def div_mcn(x: Tensor, y: Tensor) -> Tensor:
    """x / y, components both (algorithm 10).

    nc + 1 quotients of leading components, the remainder normalised after each. Two float32
    components divide in float64, three in a pair of doubles. x / 0 and x / infinity are IEEE's.
    """
    return binary("div", x, y)


def div_n(v: Tensor, y: Tensor) -> Tensor:
    """v / y, v plain (algorithm 13)."""
    return binary("div", v.unsqueeze(-1), y)


def div_plain(x: Tensor, v: Tensor) -> Tensor:
    """x / v, v plain."""
    return binary("div", x, v.unsqueeze(-1))


def square_mcn(x: Tensor) -> Tensor:
    """x^2, the product of x with itself (algorithm 15)."""
    return binary("mul", x, x)


def negated(x: Tensor) -> Tensor:
    """-x: every component."""
    return -x


def absolute(x: Tensor) -> Tensor:
    """|x|: the number is negated where it is negative, not each component by itself."""
    return torch.where(torch.signbit(x[..., :1]), -x, x)


def sqrt(x: Tensor) -> Tensor:
    """Return the root: NaN below zero, -0 of -0. Newton's correction once a component."""
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
        # Squares of roots would overflow near the greatest number and underflow near the least.
        part = x[ends]
        half = torch.div(exponent_of(part[..., 0]), 2, rounding_mode="floor")
        near = _root(scale_by_power(part, -2 * half.unsqueeze(-1)))
        root[ends] = stacked(reference.scaled(terms_of(near), half))
    special = ~torch.isfinite(plain) | (plain == 0)
    ends = padded(plain.unsqueeze(-1), nc)
    return torch.where(special.unsqueeze(-1), ends, root)


def _root(x: Tensor) -> Tensor:
    """Correct the leading component's root by Newton's step, once a component."""
    plain, nc = torch.sqrt(x[..., 0]), x.shape[-1]
    root = padded(plain.unsqueeze(-1), nc)
    for _ in range(nc):
        rest = add_mcn(x, -square_mcn(root))
        root = grow_exp_n(root, rest[..., 0] / (2 * plain))
    return root


def power(x: Tensor, exponent: int) -> Tensor:
    """Raise x to an exponent of -2, -1, 1, 2, 3 or 4; half types are rounded once, at the end."""
    dtype, nc = x.dtype, x.shape[-1]
    if nc > 1 and dtype in carriers.HALF:
        return carriers.narrowed(power(carriers.widened(x), exponent), dtype)
    if exponent < 0:  # the square of the reciprocal: that of a large number would overflow
        x = binary("div", x.new_ones(1), x)
    if exponent in (1, -1):
        return x
    square = square_mcn(x)
    if exponent == 3:
        return mult_mcn(square, x)
    return square_mcn(square) if exponent == 4 else square


def total(x: Tensor, dim: int) -> Tensor:
    """The sum along one of the leading dimensions, halves added to halves (dim >= 0)."""
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
        return x.new_zeros(_without(x.shape, dim))
    return x.squeeze(dim) + 0.0  # as torch's, a sum of -0 is +0


def _without(shape: torch.Size, dim: int) -> tuple[int, ...]:
    return tuple(shape[:dim]) + tuple(shape[dim + 1 :])


def simplest(x: Tensor) -> Tensor:
    """The number (...) in the components' type, correctly rounded from all of them."""
    return vec_sum(terms_of(x))[0]
