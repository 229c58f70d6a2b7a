"""Float64 operations rounded to odd: one more rounding, to a posit, is then correct.

Posits have at most 30 digits, and rounding to odd in 53 digits serves targets of up to 51. Tensors
are float64 and hold values of a format, whose nonzero magnitudes, from 2^-480 to 2^480, keep every
intermediate float normal.
"""

import torch
from torch import Tensor

from trainwright.support.errorfree import round_to_odd, two_product, two_sum


def product_to_odd(x: Tensor, y: Tensor) -> Tensor:
    """Multiply, rounding to odd."""
    return round_to_odd(*two_product(x, y))


def quotient_to_odd(x: Tensor, y: Tensor) -> Tensor:
    """Divide ``x`` by ``y``, rounding to odd. The remainder x - q y is a float (exact)."""
    q = x / y
    p, e = two_product(q, y)
    remainder = (x - p) - e
    return round_to_odd(q, torch.where(y < 0, -remainder, remainder))


def root_to_odd(x: Tensor) -> Tensor:
    """Take the square root, rounding to odd. The remainder x - q^2 is a float (exact)."""
    q = x.sqrt()
    p, e = two_product(q, q)
    return round_to_odd(q, (x - p) - e)


def reciprocal_root_to_odd(x: Tensor) -> Tensor:
    """Compute 1 / root x, rounding to odd.

    A Newton step leaves q within one unit, and the sign of the residual 1 - q^2 x says on which
    side. Only at a q of at most 31 digits, a half-way number, does the side matter: there q^2 x has
    at most 92 digits, so that a residual other than 0 is above the 2^-104 lost in the sum.
    """
    q = 1 / x.sqrt()
    q = q + q * (_residual(q, x) / 2)
    return round_to_odd(q, _residual(q, x))


def _residual(q: Tensor, x: Tensor) -> Tensor:
    """Compute 1 - q^2 x to about 104 digits after the point, for q^2 x near 1."""
    high, low = two_product(q, q)
    above, beside = two_product(high, x)
    middle, below = two_product(low, x)
    return ((1 - above) - (beside + middle)) - below


def fused_to_odd(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Compute x y + z, rounding to odd.

    x y = p + e, where e has at most 7 digits. After three error-free sums the total is v + w + rest
    with rest at most half a unit of w, and v + w = s + t. If t is not 0, it is a multiple of w's
    unit and has the sign of t + rest. t can be 0 only if rest is 0: otherwise w would have to reach
    from the last place of v down past 53 digits, while e and z have only 30 digits to give.
    """
    p, e = two_product(x, y)
    high, low = two_sum(z, e)
    v, lost = two_sum(p, high)
    return round_to_odd(*two_sum(v, lost + low))
