"""Float64 operations rounded to odd, for posits: one more rounding is then correct.

Posits have at most 30 digits and rounding to odd in 53 serves up to 51. Tensors are float64 and
hold values of a format, whose magnitudes, from 2^-480 to 2^480 or 0, keep all that is here normal.
"""

import torch
from torch import Tensor

from trainwright.support.errorfree import round_to_odd, two_product, two_sum


def product_to_odd(x: Tensor, y: Tensor) -> Tensor:
    """x y rounded to odd."""
    return round_to_odd(*two_product(x, y))


def quotient_to_odd(x: Tensor, y: Tensor) -> Tensor:
    """x / y rounded to odd. The remainder x - q y is a float (exact)."""
    q = x / y
    p, e = two_product(q, y)
    rest = (x - p) - e
    return round_to_odd(q, torch.where(y < 0, -rest, rest))


def root_to_odd(x: Tensor) -> Tensor:
    """Square root rounded to odd. The remainder x - q^2 is a float (exact)."""
    q = x.sqrt()
    p, e = two_product(q, q)
    return round_to_odd(q, (x - p) - e)


def fused_to_odd(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x y + z rounded to odd.

    x y = p + e, e of at most 7 digits. After three error-free sums the total is v + w + rest, rest
    at most half a unit of w, and v + w = s + t. If t is not 0 it is a multiple of w's unit, and has
    the sign of t + rest. It is 0 only if rest is: w would have to reach from the last place of v
    down past 53 digits, which what is left of e and z, of 30 digits, does not.
    """
    p, e = two_product(x, y)
    high, low = two_sum(z, e)
    v, lost = two_sum(p, high)
    return round_to_odd(*two_sum(v, lost + low))
