"""The accelerator's numbers in torch: quantisers whose gradient passes straight through.

Values are words x 2^exponent, rounded half to even and saturated, as ``trainwright.fixed`` has
them; they are exact in float32, which holds all integers of up to 24 bits, and all coded formats'.
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
"""Least exponent: words x 2^-1022 are the normal numbers of float64, in which they are scaled."""
NORMAL = -126
"""Exponent below which float32 has subnormal numbers alone, and 2^-exponent is infinite."""


def scaled(values: torch.Tensor, exponent: int) -> torch.Tensor:
    """Return ``values`` x 2^-exponent, in float64 where float32 cannot hold the power."""
    # 2^128 is infinite in float32, and 0 times it NaN: gradients of weights that decayed away.
    return (values.double() if exponent < NORMAL else values) * 2.0**-exponent


def rounded(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """Return the nearest values that words of ``fmt`` x 2^exponent have, in the type of ``values``.

    ``underflow`` is the rule for too small numbers, as in ``Format.encode``.
    """
    if fmt.coded:
        words = quantise(values.detach().cpu(), exponent, fmt, underflow=underflow)
        return dequantise(words, exponent, fmt).to(values)
    least, greatest = extremes(fmt)
    words = torch.round(scaled(values, exponent)).clamp_(least, greatest)
    return words.mul_(2.0**exponent).to(values.dtype)


class _PassingThrough(torch.autograd.Function):
    """A function of values and three options that has the gradient of the identity."""

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
    """``rounded``, whose gradient is the identity's."""

    @staticmethod
    def forward(values: torch.Tensor, exponent: int, fmt: Format, underflow: str) -> torch.Tensor:
        return rounded(values, exponent, fmt, underflow=underflow)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return node(_StraightThrough, *args), in_dims[0]  # element by element


Overflowed = Callable[[float], None]
"""Takes the largest value of a gradient that is not finite."""


class _RoundedAtItsScale(_PassingThrough):
    """A gradient rounded at the exponent that suits its largest value."""

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
    """The identity, whose gradient is rounded."""

    @staticmethod
    def forward(
        values: torch.Tensor, fmt: Format, underflow: str, overflowed: Overflowed | None
    ) -> torch.Tensor:
        return values.clone()  # torch lets no view out of a function be modified in place

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.options = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        together = without_batch_dim(gradients[0])
        if together is None:
            rounded_gradient = node(_RoundedAtItsScale, gradients[0], *ctx.options)
        else:
            samples, level = together
            each = [node(_RoundedAtItsScale, sample, *ctx.options) for sample in samples]
            rounded_gradient = with_batch_dim(each, level)
        return rounded_gradient, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[torch.Tensor, int]:
        return _one_by_one(_GradientRounded, in_dims, *args)


def _one_by_one(
    function: Any, in_dims: tuple[Any, ...], values: torch.Tensor, *options: Any
) -> tuple[torch.Tensor, int]:
    """Give each sample of ``vmap`` an exponent of its own, as if it had been alone."""
    return torch.stack(
        [node(function, sample, *options) for sample in values.unbind(in_dims[0])]
    ), 0


def straight_through(
    values: torch.Tensor, exponent: int, fmt: Format, *, underflow: str = "zero"
) -> torch.Tensor:
    """Round, with the gradient of the identity (saturated values included)."""
    return node(_StraightThrough, values, exponent, fmt, underflow)


def gradient_rounded(
    values: torch.Tensor,
    fmt: Format,
    *,
    underflow: str = "zero",
    overflowed: Overflowed | None = None,
) -> torch.Tensor:
    """Return ``values``; round their gradient at the exponent that suits its largest value.

    In fixed point it is the finest exponent that saturates nothing. A gradient that is not finite
    passes as it is, and ``overflowed`` is called; without ``overflowed`` it is a ``ValueError``.
    """
    return node(_GradientRounded, values, fmt, underflow, overflowed)
