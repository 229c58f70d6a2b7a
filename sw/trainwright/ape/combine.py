"""alpha P + beta C for a C wider than the factors' arithmetic: one rounding of the exact sum."""

from typing import Any

import torch
from torch import Tensor

from trainwright.support.errorfree import round_to_odd, two_product, two_sum


class RoundedOnce(torch.autograd.Function):
    """alpha ``product`` + beta ``c``, rounded to the product's type once.

    Gradients, also those of alpha and beta, are plain products.
    """

    @staticmethod
    def forward(ctx: Any, product: Tensor, c: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:  # pyright: ignore
        """Return the sum for a float32 or float64 product; ``c`` is float64 or of integers."""
        to_alpha, to_beta = ctx.needs_input_grad[2:]
        ctx.shape, ctx.dtype = c.shape, c.dtype
        ctx.save_for_backward(alpha, beta, product if to_alpha else None, c if to_beta else None)
        return _rounded_once(product, c, float(alpha), float(beta))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # pyright: ignore
        """Scale the gradient by alpha and by beta; sum over broadcast sizes and for the factors."""
        to_product, to_c, to_alpha, to_beta = ctx.needs_input_grad
        alpha, beta, product, c = ctx.saved_tensors
        return (
            grad * alpha.to(grad) if to_product else None,
            (grad.to(ctx.dtype) * beta.to(grad.device, ctx.dtype)).sum_to_size(ctx.shape)
            if to_c
            else None,
            (grad * product).sum().to(alpha) if to_alpha else None,
            (grad * c.to(grad)).sum().to(beta) if to_beta else None,
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
    total, remainder, rest = (term.contiguous() for term in terms[:3])
    if product.dtype is torch.float64:
        # Where the remainder is half of the last place, the sign of the rest decides.
        exact = total + round_to_odd(remainder, rest)
    else:
        exact = round_to_odd(total, remainder)
    # Factors near the ends of float64's range have no error-free products.
    return torch.where(exact.isfinite(), exact, plain).to(product.dtype)
