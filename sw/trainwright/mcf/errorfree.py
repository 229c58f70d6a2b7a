"""Error-free transformations of floats: a sum or product together with its rounding error.

Algorithms 2 to 5 of the MCTensor paper, corrected. They work element-wise with broadcasting in
float16, bfloat16, float32 and float64, and give the same bits on every device.
"""

import torch
from torch import Tensor

from trainwright.precision.rounding import scale_by_power
from trainwright.support.errorfree import two_product, two_sum

__all__ = ["fast_two_sum", "split", "two_prod", "two_prod_fma", "two_sum"]

PRECISION = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
"""Significant binary digits of each type, the implicit digit included."""
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64}
_LEAST_PRODUCT = 2.0**-968
"""Smallest double product whose error Dekker's method computes without underflow."""


def fast_two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return (s, e), s = fl(a + b), s + e = a + b exactly, for |a| >= |b| or a = 0 (Dekker)."""
    s = a + b
    return s, b - (s - a)


def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return (high, low), high + low = a, each with half the digits (algorithm 3, Veltkamp).

    The constant has ceil(p / 2) digits: 27 for float64, where the paper has 26. Values so large
    that the product with the constant would overflow are scaled, so that no finite value becomes
    NaN; infinities give (a, 0).
    """
    digits = -(-PRECISION[a.dtype] // 2)
    large = a.abs() >= torch.finfo(a.dtype).max * 2.0 ** -(digits + 2)
    x = torch.where(large, a * 2.0 ** -(digits + 2), a)
    t = x * (2.0**digits + 1)
    high = t - (t - x)
    low = x - high
    scale = 2.0 ** (digits + 2)
    high, low = (torch.where(large, part * scale, part) for part in (high, low))
    # The high part of the largest values may itself be out of range: then keep the value whole.
    whole = ~torch.isfinite(high)
    return torch.where(whole, a, high), torch.where(whole, torch.zeros_like(a), low)


def two_prod(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return (p, e) with p = fl(a b), e = fl(a b - p) (algorithms 4 and 5).

    p + e = a b exactly wherever a b - p is a number of the type; elsewhere e is the nearest number.
    e is 0 where p is not finite.
    """
    p = a * b
    if a.dtype in _WIDER:  # the product is exact in the wider type: no splitting
        wide = _WIDER[a.dtype]
        e = (a.to(wide) * b.to(wide) - p.to(wide)).to(a.dtype)
    else:
        e = _error_64(a, b, p)
    return p, torch.where(torch.isfinite(p), e, torch.zeros_like(p))


def two_prod_fma(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``two_prod``, which fulfils the contract of algorithm 5 on every machine.

    torch has no operation that is sure to be fused (``addcmul`` rounds twice on most CPUs), so this
    function does not rely on one; the C kernels use the machine's fused operation and yield the
    same bits.
    """
    return two_prod(a, b)


def _error_64(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """Return a b - p in float64, rounded once; 0 where p is subnormal."""
    a, b = torch.broadcast_tensors(a, b)
    size = p.abs()
    inside = (size >= torch.finfo(p.dtype).smallest_normal) & torch.isfinite(p)
    limit = 2.0**995
    plain = (size >= _LEAST_PRODUCT) & (a.abs() < limit) & (b.abs() < limit) & (size < 2.0**1021)
    zero = torch.zeros_like(p)
    e = torch.where(plain, two_product(a, b)[1], zero)
    scaled = inside & ~plain
    if bool(scaled.any()):
        (x, i), (y, j) = torch.frexp(a), torch.frexp(b)
        lost = two_product(x, y)[1]
        e = torch.where(scaled, scale_by_power(lost, i + j), e)
    return e
