"""The accelerator's numbers in torch: quantisers whose gradient passes straight through.

Values are words x 2^exponent, rounded half to even and saturated, as ``trainwright.fixed`` has
them; they are exact in float32, which holds all integers of up to 24 bits, and all posits of 16.
"""

from typing import Any

import torch

from trainwright.driver import fitting_exponent
from trainwright.fixed.quantise import dequantise, extremes, quantise
from trainwright.formats import Format, Posit
from trainwright.nn.untyped import node


def rounded(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """The values nearest to ``values`` that words of ``fmt`` x 2^exponent have; same type.

    ``underflow`` is what becomes of too small posits, as in ``Format.encode``.
    """
    if isinstance(fmt, Posit):
        words = quantise(values.detach().cpu(), exponent, fmt, underflow=underflow)
        return dequantise(words, exponent, fmt).to(values)
    least, greatest = extremes(fmt)
    return torch.round(values * 2.0**-exponent).clamp_(least, greatest).mul_(2.0**exponent)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, exponent: int, fmt: Format, underflow: str
    ) -> torch.Tensor:
        return rounded(values, exponent, fmt, underflow=underflow)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None, None, None


class _GradientRounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, fmt: Format, underflow: str) -> torch.Tensor:
        ctx.fmt, ctx.underflow = fmt, underflow
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0]
        exponent = fitting_exponent(gradient, ctx.fmt)
        return rounded(gradient, exponent, ctx.fmt, underflow=ctx.underflow), None, None


def straight_through(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """``rounded``, with the gradient of the identity (saturated values included)."""
    return node(_StraightThrough, values, exponent, fmt, underflow)


def gradient_rounded(values: torch.Tensor, fmt: Format, *, underflow: str = "zero") -> torch.Tensor:
    """The identity; the gradient is rounded at the exponent that suits its largest value.

    In fixed point that is the finest that saturates nothing. Backward raises ``ValueError`` for a
    gradient that is not finite.
    """
    return node(_GradientRounded, values, fmt, underflow)
