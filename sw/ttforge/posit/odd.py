"""Float64 operations rounded to odd, for posits: one more rounding is then correct.

Posits have at most 30 digits and rounding to odd in 53 serves up to 51. Tensors are float64 and
hold values of a format, whose magnitudes, from 2^-480 to 2^480 or 0, keep all that is here normal.
"""

import torch
from torch import Tensor

from ttforge.errorfree import round_to_odd, two_product, two_sum


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

    x y = p + e. After three error-free sums the total is v + w + rest, |rest| at most half a unit
    of w; v + w = s + t. t, if not 0, is a multiple of w's unit and decides; else rest does.
    """
    p, e = two_product(x, y)
    high, low = two_sum(z, e)
    v, lost = two_sum(p, high)
    w, rest = two_sum(lost, low)
    s, t = two_sum(v, w)
    return round_to_odd(s, torch.where(t == 0, rest, t))
