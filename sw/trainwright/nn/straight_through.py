"""The accelerator's numbers in torch: quantisers whose gradient passes straight through.

Values are integers x 2^exponent, rounded half to even and saturated, as ``trainwright.fixed`` has
them; they are exact in float32, which holds all integers of up to 24 bits.
"""

from typing import Any

import torch

from trainwright.driver import fitting_exponent
from trainwright.fixed.requantise import limits


def rounded(values: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
    """Multiples of 2^exponent nearest to ``values``, within ``width`` bits; same type."""
    least, greatest = limits(width)
    return torch.round(values * 2.0**-exponent).clamp_(least, greatest).mul_(2.0**exponent)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
        return rounded(values, exponent, width)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None, None


class _GradientRounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, width: int) -> torch.Tensor:
        ctx.width = width
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0]
        return rounded(gradient, fitting_exponent(gradient, ctx.width), ctx.width), None


def straight_through(values: torch.Tensor, exponent: int, width: int) -> torch.Tensor:
    """``rounded``, with the gradient of the identity (saturated values included)."""
    result = _StraightThrough.apply(values, exponent, width)
    assert isinstance(result, torch.Tensor)
    return result


def gradient_rounded(values: torch.Tensor, width: int) -> torch.Tensor:
    """The identity; the gradient is rounded at the finest exponent that saturates nothing.

    Backward raises ``ValueError`` for a gradient that is not finite.
    """
    result = _GradientRounded.apply(values, width)
    assert isinstance(result, torch.Tensor)
    return result
