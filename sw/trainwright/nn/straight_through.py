"""The accelerator's numbers in torch: quantisers whose gradient passes straight through.

Values are words x 2^exponent, rounded half to even and saturated, as in ``trainwright.fixed``. They
are exact in float32, which holds every integer of up to 24 bits and every number of a coded format.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch

from trainwright.driver import fitting_exponent
from trainwright.fixed.quantise import dequantise, extremes, quantise
from trainwright.formats import Format
from trainwright.nn.untyped import node, with_batch_dim, without_batch_dim

LEAST = -1022
"""Least exponent of a tensor: float64, in which values are scaled, has normal numbers from
there."""
NORMAL = -126
"""Least exponent of normal float32 numbers; below, 2^-exponent may be infinite in float32."""


def scaled(values: torch.Tensor, exponent: int) -> torch.Tensor:
    """Return ``values`` x 2^-exponent, in float64 where float32 cannot hold the power."""
    # 2^128 is infinite in float32, and 0 times it NaN: gradients of weights that decayed away.
    return (values.double() if exponent < NORMAL else values) * 2.0**-exponent


def rounded(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """Round to words of ``fmt`` x 2^exponent; return values of the type of ``values``.

    ``underflow`` is the rule for numbers that are too small, as in ``Format.encode``.
    """
    if fmt.coded:
        words = quantise(values.detach().cpu(), exponent, fmt, underflow=underflow)
        return dequantise(words, exponent, fmt).to(values)
    least, greatest = extremes(fmt)
    words = torch.round(scaled(values, exponent)).clamp_(least, greatest)
    return words.mul_(2.0**exponent).to(values.dtype)


class _PassingThrough(torch.autograd.Function):
    """Function of values and three options whose gradient is that of the identity."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangents[0].view_as(tangents[0])


class _StraightThrough(_PassingThrough):
    """``rounded`` with the gradient of the identity."""

    @staticmethod
    def forward(values: torch.Tensor, exponent: int, fmt: Format, underflow: str) -> torch.Tensor:
        return rounded(values, exponent, fmt, underflow=underflow)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return node(_StraightThrough, *args), in_dims[0]  # rounding is element-wise


Overflowed = Callable[[float], None]
"""Function to call, with the largest magnitude, for a gradient that is not finite."""


class _RoundedAtItsScale(_PassingThrough):
    """Rounding of a gradient at the exponent that suits its largest value."""

    @staticmethod
    def forward(
        gradient: torch.Tensor, fmt: Format, underflow: str, overflowed: Overflowed | None
    ) -> torch.Tensor:
        if not gradient.numel():
            return gradient.clone()
        greatest = float(gradient.abs().max())
        if overflowed is not None and not isfinite(greatest):
            overflowed(greatest)
            return gradient.clone()
        exponent = fitting_exponent(gradient, fmt)
        return rounded(gradient, exponent, fmt, underflow=underflow)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return _one_by_one(_RoundedAtItsScale, in_dims, *args)


class _GradientRounded(_PassingThrough):
    """Identity whose gradient is rounded."""

    @staticmethod
    def forward(
        values: torch.Tensor, fmt: Format, underflow: str, overflowed: Overflowed | None
    ) -> torch.Tensor:
        return values.clone()  # a view could not be modified in place outside of the function

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.options = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        batched = without_batch_dim(gradients[0])
        if batched is None:
            rounded_gradient = node(_RoundedAtItsScale, gradients[0], *ctx.options)
        else:
            samples, level = batched  # of `vmap` over gradients, as for a Jacobian
            each = [node(_RoundedAtItsScale, sample, *ctx.options) for sample in samples]
            rounded_gradient = with_batch_dim(each, level)
        return rounded_gradient, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return _one_by_one(_GradientRounded, in_dims, *args)


def _one_by_one(
    function: Any, in_dims: tuple[Any, ...], values: torch.Tensor, *options: Any
) -> tuple[torch.Tensor, int]:
    """Apply a function to each sample of ``vmap``, so that each has an exponent of its own."""
    return torch.stack(
        [node(function, sample, *options) for sample in values.unbind(in_dims[0])]
    ), 0


def straight_through(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """Round with the gradient of the identity, also for saturated values."""
    return node(_StraightThrough, values, exponent, fmt, underflow)


def gradient_rounded(
    values: torch.Tensor,
    fmt: Format,
    *,
    underflow: str = "zero",
    overflowed: Overflowed | None = None,
) -> torch.Tensor:
    """Return ``values``; round their gradient at the exponent that suits its largest value.

    In fixed point that is the finest exponent at which nothing saturates. A gradient that is not
    finite passes unchanged, and ``overflowed`` is called; without ``overflowed`` the gradient
    raises ``ValueError``.
    """
    return node(_GradientRounded, values, fmt, underflow, overflowed)
