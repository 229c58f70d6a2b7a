"""The Gaussian error linear unit of component tensors, exact and in the tanh approximation."""

import math
from fractions import Fraction

import mpmath
import torch
from torch import Tensor

from trainwright.mcf import carriers, constants
from trainwright.mcf.arithmetic import add_mcn, binary, mult_mcn
from trainwright.mcf.errorfree import PRECISION
from trainwright.mcf.expansion import finished, padded, stacked, terms_of
from trainwright.mcf.functions import (
    number_like,
    sigmoid_of_components,
    sigmoid_of_pair,
    through,
    zeros_signed,
)
from trainwright.support.errorfree import two_product

_ROOT_HALF = math.sqrt(0.5)
_FAR = 40
"""Magnitude above which Phi counts as 0 or 1 in every type: the tail is below 2^-1154."""
_ROOT_HALF_LOW = float(Fraction(1, 2) - Fraction(_ROOT_HALF) ** 2) / (2 * _ROOT_HALF)
"""Difference of the square root of 1/2 to ``_ROOT_HALF``."""


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Compute x Phi(x), Phi the normal distribution function; ``approximate="tanh"`` as in torch.

    More components than a double holds go through mpmath, number by number, which is slow.
    """
    if approximate == "tanh":
        return _tanh_gelu(x)
    if approximate != "none":
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    return through(x, _plain, _double, _by_number)


def _plain(x: Tensor) -> Tensor:
    """Apply torch's function up to ``_FAR``; beyond, torch's may overflow or return NaN."""
    # On some processors, such as one with AVX2, torch makes 0.0 of -0.0 in float32.
    usual = torch.where(x == 0, x, torch.nn.functional.gelu(x))
    return torch.where(x.abs() > _FAR, _far(x), usual)


def _far(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, -0.0)


def _double(high: Tensor, low: Tensor) -> Tensor:
    """Compute x / 2 erfc(-x / root 2), correcting the argument's rounding error to first order."""
    z, error = two_product(high, torch.full_like(high, _ROOT_HALF))
    error = error + (high * _ROOT_HALF_LOW + low * _ROOT_HALF)
    slope = 2 / math.sqrt(math.pi) * torch.exp(-z * z)
    value = torch.special.erfc(-z) + slope * error
    value = 0.5 * (high * value + low * value)
    far = high.abs() > _FAR  # there the splitting, or a product with 0, would give NaN
    return torch.where(far, _far(high), value)


def _by_number(x: Tensor) -> Tensor:
    nc = x.shape[-1]
    rows = x.to(torch.float64).reshape(-1, nc).tolist()
    out = torch.zeros(len(rows), nc, dtype=torch.float64)
    with mpmath.workprec(PRECISION[x.dtype] * nc + 60):
        for at, row in enumerate(rows):
            if not abs(row[0]) <= _FAR:  # or NaN
                ends = [-0.0] + [0.0] * (nc - 1) if row[0] < 0 else row
                out[at] = torch.tensor(ends, dtype=torch.float64)
                continue
            value = mpmath.fsum(row)
            value = value * mpmath.erfc(-value / mpmath.sqrt(2)) / 2
            mantissa, exponent = int(value.man), int(value.exp)
            exact = Fraction(mantissa) * Fraction(2) ** exponent
            exact = -abs(exact) if value < 0 else abs(exact)
            out[at] = torch.tensor(constants.components_of(exact, x.dtype, nc), dtype=torch.float64)
    shaped = out.to(x.device, x.dtype).reshape(x.shape)
    return finished(terms_of(shaped), shaped[..., 0])


def _tanh_gelu(x: Tensor) -> Tensor:
    """Compute x / 2 (1 + tanh u) = x sigmoid(2 u), u = root(2 / pi) (x + 0.044715 x^3)."""
    dtype, nc = x.dtype, x.shape[-1]
    lead = torch.nn.functional.gelu(x[..., 0], approximate="tanh")
    if nc == 1:
        return lead.unsqueeze(-1)
    if dtype in carriers.HALF:
        return carriers.narrowed(_tanh_gelu(carriers.widened(x)), dtype)
    # sigmoid multiplies the relative error of u by u: one more component keeps the digits of small
    # results.
    wide = padded(x, nc + 1)
    digits = PRECISION[dtype] * (nc + 1) + 8
    pi, scale = constants.pi(2 * digits), 1 << digits
    root = Fraction(math.isqrt(int(8 / pi * scale * scale)), scale)  # root(8 / pi) = 2 root(2 / pi)
    cube = mult_mcn(mult_mcn(wide, wide), wide)
    cubic = binary("mul", cube, number_like(Fraction("0.044715"), wide))
    u = binary("mul", add_mcn(wide, cubic), number_like(root, wide))
    if carriers.in_double(dtype, nc):
        part = sigmoid_of_pair(*carriers.join_pair(u))
        result = zeros_signed(carriers.parted(carriers.join(x) * part, dtype, nc), lead)
    else:
        result = mult_mcn(wide, sigmoid_of_components(u))[..., :nc]
        result = finished(terms_of(result), lead)
    # An x^3 that overflows leaves NaN or infinity; torch's function has the right ends.
    usual = torch.isfinite(result[..., 0]).unsqueeze(-1)
    ends = stacked([lead, *[torch.zeros_like(lead)] * (nc - 1)])
    return torch.where(usual, result, ends)
