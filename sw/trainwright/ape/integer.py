"""int16 on 8-bit multipliers (section 4.4): two bytes, four products, no error."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright.ape import cuda
from trainwright.support.text import shown

_INT64 = 1 << 63
INT32_TERMS = (2**31 - 1) // 255**2
"""Terms of two-byte products that always fit an int32 accumulator; longer K is cut."""


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (high byte as int8, low byte as uint8): x = 256 * high + low. Raises ``TypeError``."""
    if x.dtype != torch.int16:
        raise TypeError(f"int16 is made from torch.int16, not {x.dtype}")
    return (x >> 8).to(torch.int8), (x & 0xFF).to(torch.uint8)


def join(parts: Sequence[Tensor]) -> Tensor:
    """Combine two bytes to int64 values."""
    if len(parts) != 2:
        raise ValueError(f"int16 has 2 parts, not {len(parts)}")
    return (parts[0].to(torch.int64) << 8) + parts[1].to(torch.int64)


def _cpu_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply bytes (..., M, K) by (..., K, N) to int64: sums below 2^53 are exact in float64."""
    return torch.matmul(a.to(torch.float64), b.to(torch.float64)).to(torch.int64)


def combined(product: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
    """Return alpha ``product`` + beta ``c`` in int64, exact.

    Raises ``ValueError`` for factors or elements of ``c`` that are not integers, and where a result
    leaves int64.
    """
    factors = []
    for name, factor in (("alpha", alpha), ("beta", beta)):
        # Compared before anything is converted, as a float holds no integer beyond 2^1024.
        if not (abs(factor) < _INT64 and factor == int(factor)):
            raise ValueError(f"{name} of int16 must be an integer of int64, not {shown(factor)}")
        factors.append(int(factor))
    if c is None:
        c, factors[1] = torch.zeros((), dtype=torch.int64, device=product.device), 0
    elif c.is_floating_point():
        wide = c.to(torch.float64)
        wrong = wide[~((wide == wide.trunc()) & (wide >= -_INT64) & (wide < _INT64))]
        if wrong.numel():
            raise ValueError(f"c of int16 must hold integers of int64, not {float(wrong[0])}")
        c = wide
    c = c.to(torch.int64)
    result = product * factors[0] + c * factors[1]  # modulo 2^64
    # int64 wraps silently: recompute exactly the elements whose float64 value is near the limit.
    about = product.double() * factors[0] + c.double() * factors[1]
    near = about.abs() >= _INT64 * (1 - 2.0**-40)
    if bool(near.any()):
        pairs = zip(product[near].tolist(), c.expand_as(product)[near].tolist(), strict=True)
        for p, q in pairs:
            value = p * factors[0] + q * factors[1]
            if not -_INT64 <= value < _INT64:
                raise ValueError(f"alpha a b + beta c is {value} in an element, outside int64")
    return result


def product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply int16 (B, M, K) by (B, K, N) to int64 (B, M, N), exact for K below 2^33.

    Each of the four byte products is summed over at most ``INT32_TERMS`` terms, as int32
    accumulators allow, and these sums are added in int64.
    """
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.int64, device=a.device)
    for begin in range(0, a.shape[-1], INT32_TERMS):
        left = a[..., begin : begin + INT32_TERMS]
        right = b[..., begin : begin + INT32_TERMS, :]
        if a.is_cuda:
            for x, y, out in zip(left, right, total, strict=True):
                cuda.byte_product(x, y, out)
            continue
        ah, al = split(left)
        bh, bl = split(right)
        total += _cpu_product(ah, bh) << 16
        total += (_cpu_product(ah, bl) + _cpu_product(al, bh)) << 8
        total += _cpu_product(al, bl)
    return total
