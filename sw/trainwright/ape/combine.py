"""alpha P + beta C for a C wider than float32: one rounding of the exact sum."""

from typing import Any

import torch
from torch import Tensor

from trainwright.support.errorfree import round_to_odd, two_product, two_sum


class RoundedOnce(torch.autograd.Function):
    """alpha ``product`` + beta ``c``, rounded to float32 once; gradients are plain products."""

    @staticmethod
    def forward(ctx: Any, product: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:  # pyright: ignore
        """Return the float32 sum for a float32 product and ``c`` of float64 or of integers."""
        ctx.factors, ctx.shape, ctx.dtype = (alpha, beta), c.shape, c.dtype
        return _rounded_once(product, c, alpha, beta)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore
        """Scale the gradient by alpha and by beta; sum ``c``'s gradient over broadcast sizes."""
        to_product, to_c = ctx.needs_input_grad[:2]
        alpha, beta = ctx.factors
        return (
            grad * alpha if to_product else None,
            (grad.to(ctx.dtype) * beta).sum_to_size(ctx.shape) if to_c else None,
            None,
            None,
        )


def _rounded_once(product: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    p = product.to(torch.float64)
    high = c.to(torch.float64)
    low = torch.zeros_like(high)
    if not c.is_floating_point():  # int64's 63 bits need two floats
        wide = c.to(torch.int64)
        # The greatest int64 rounds to 2^63, which does not convert back.
        kept = torch.where(high >= 2.0**63, high - 2.0**10, high)
        low = (wide - kept.to(torch.int64)).to(torch.float64)
        high, low = two_sum(kept, low)
    a, b = (torch.full((), f, dtype=torch.float64, device=p.device) for f in (alpha, beta))
    terms: list[Tensor] = []
    for x, y in ((p, a), (high, b), (low, b)):
        terms += two_product(x, y)
    plain = p * a + high * b
    for _ in range(len(terms)):  # distillation: the first term becomes the rounded total
        for k in range(len(terms) - 2, -1, -1):
            terms[k], terms[k + 1] = two_sum(terms[k], terms[k + 1])
    total, remainder = terms[0], terms[1]
    exact = round_to_odd(total.contiguous(), remainder)
    # Factors near the ends of float64's range have no error-free products.
    return torch.where(exact.isfinite(), exact, plain).to(torch.float32)
