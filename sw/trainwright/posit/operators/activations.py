"""Activations and their gradients: one function of one value, or steps that are each rounded.

A gradient is g times the function's slope, which is rounded first.
"""

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import scaled
from trainwright.posit.operators.functions import apply
from trainwright.posit.operators.registry import bound, covers, number, operand
from trainwright.posit.rounding import round_to


def _gelu_name(approximate: str) -> str:
    return "gelu by tanh" if approximate == "tanh" else "gelu"


@covers("gelu", checked=True)
def gelu(fmt: PositFormat, x: Tensor, *, approximate: str = "none") -> Tensor:
    """Compute x Phi(x), or its approximation by tanh."""
    return apply(_gelu_name(approximate), x, fmt)


@covers("gelu_backward")
def gelu_backward(fmt: PositFormat, g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """Multiply g by the slope."""
    return grid.mul(g, apply(f"{_gelu_name(approximate)} slope", x, fmt), fmt)


@covers("silu_backward")
def silu_backward(fmt: PositFormat, g: Tensor, x: Tensor) -> Tensor:
    """Multiply g by the slope."""
    return grid.mul(g, apply("silu slope", x, fmt), fmt)


@covers("mish_backward")
def mish_backward(fmt: PositFormat, g: Tensor, x: Tensor) -> Tensor:
    """Multiply g by the slope."""
    return grid.mul(g, apply("mish slope", x, fmt), fmt)


@covers("softplus")
def softplus(fmt: PositFormat, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Compute softplus(beta x) / beta, or x where beta x is above the threshold."""
    z = scaled(x, beta, fmt)
    y = apply("softplus", z, fmt)
    if beta != 1:
        y = grid.div(y, operand(beta, fmt, x), fmt)
    return torch.where(z > bound(threshold, fmt), x, y)


@covers("softplus_backward")
def softplus_backward(
    fmt: PositFormat, g: Tensor, x: Tensor, beta: float, threshold: float
) -> Tensor:
    """Multiply g by sigmoid(beta x), or by 1 where beta x is above the threshold."""
    z = scaled(x, beta, fmt)
    slope = grid.mul(g, apply("sigmoid", z, fmt), fmt)
    return torch.where(z > bound(threshold, fmt), g, slope)


@covers("log_sigmoid_forward")
def log_sigmoid(fmt: PositFormat, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compute -softplus(-x); torch expects a buffer as the second result."""
    return 0 - apply("softplus", 0 - x, fmt), x.new_empty(0)


@covers("log_sigmoid_backward")
def log_sigmoid_backward(fmt: PositFormat, g: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    """Multiply g by sigmoid(-x)."""
    return grid.mul(g, apply("sigmoid", 0 - x, fmt), fmt)


@covers("elu")
def elu(
    fmt: PositFormat, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Tensor:
    """Compute scale x above 0, else (alpha scale) expm1(input_scale x)."""
    below = scaled(apply("expm1", scaled(x, input_scale, fmt), fmt), alpha * scale, fmt)
    return torch.where(x > 0, scaled(x, scale, fmt), below)


@covers("celu")
def celu(fmt: PositFormat, x: Tensor, alpha: float = 1) -> Tensor:
    """Compute x above 0, else alpha expm1(x / alpha)."""
    return elu(fmt, x, alpha, 1, 1 / alpha)


@covers("elu_backward")
def elu_backward(
    fmt: PositFormat,
    g: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    x: Tensor,
) -> Tensor:
    """Compute scale g above 0, else ((input_scale alpha scale) g) exp(input_scale x).

    Given the result y instead of x: (input_scale g) (y + alpha scale).
    """
    if is_result:
        rest = grid.add(x, operand(alpha * scale, fmt, x), fmt)
        below = grid.mul(scaled(g, input_scale, fmt), rest, fmt)
    else:
        e = apply("exp", scaled(x, input_scale, fmt), fmt)
        below = grid.mul(scaled(g, input_scale * alpha * scale, fmt), e, fmt)
    return torch.where(x > 0, scaled(g, scale, fmt), below)


@covers("leaky_relu")
def leaky_relu(fmt: PositFormat, x: Tensor, slope: float = 0.01) -> Tensor:
    """Compute x above 0, else slope x."""
    return torch.where(x > 0, x, scaled(x, slope, fmt))


@covers("leaky_relu_backward")
def leaky_relu_backward(
    fmt: PositFormat, g: Tensor, x: Tensor, slope: float, is_result: bool
) -> Tensor:
    """Compute g above 0, else slope g."""
    return torch.where(x > 0, g, scaled(g, slope, fmt))


@covers("_prelu_kernel")
def prelu(fmt: PositFormat, x: Tensor, weight: Tensor) -> Tensor:
    """Compute x above 0, else weight x."""
    return torch.where(x > 0, x, grid.mul(x, weight, fmt))


@covers("_prelu_kernel_backward")
def prelu_backward(fmt: PositFormat, g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients of x and weight, element by element."""
    dx = torch.where(x > 0, g, grid.mul(g, weight, fmt))
    return dx, torch.where(x > 0, 0.0, grid.mul(g, x, fmt))


@covers("rrelu_with_noise")
def rrelu(
    fmt: PositFormat,
    x: Tensor,
    noise: Tensor,
    low: float = 0.125,
    high: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Compute x above 0, else x times a number drawn between the limits, or their mean."""
    if not training:
        return leaky_relu(fmt, x, (low + high) / 2)
    drawn = round_to(torch.empty_like(x).uniform_(low, high, generator=generator), fmt)
    noise.copy_(torch.where(x > 0, 1.0, drawn))
    return grid.mul(x, noise, fmt)


@covers("rrelu_with_noise_backward")
def rrelu_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    noise: Tensor,
    low: float,
    high: float,
    training: bool,
    is_result: bool,
) -> Tensor:
    """Multiply g by the number that x was multiplied by."""
    if training:
        return grid.mul(g, noise, fmt)
    return leaky_relu_backward(fmt, g, x, (low + high) / 2, is_result)


@covers("hardtanh")
def hardtanh(fmt: PositFormat, x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    """Clamp between limits, which are rounded to the format first."""
    return x.clamp(bound(low, fmt), bound(high, fmt))


@covers("hardtanh_backward")
def hardtanh_backward(fmt: PositFormat, g: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """Pass the gradient between the limits, and at NaR."""
    return torch.where((x <= bound(low, fmt)) | (x >= bound(high, fmt)), 0.0, g)


def _ramp(x: Tensor, fmt: PositFormat) -> Tensor:
    """Compute x + 3, clamped between 0 and 6."""
    return grid.add(x, operand(3.0, fmt, x), fmt).clamp(0, number(6.0, fmt))


@covers("hardsigmoid")
def hardsigmoid(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute (x + 3, clamped between 0 and 6) / 6."""
    return grid.div(_ramp(x, fmt), operand(6.0, fmt, x), fmt)


@covers("hardsigmoid_backward")
def hardsigmoid_backward(fmt: PositFormat, g: Tensor, x: Tensor) -> Tensor:
    """Compute g / 6 where x is between -3 and 3, or NaR."""
    outside = (x <= number(-3.0, fmt)) | (x >= number(3.0, fmt))
    return torch.where(outside, 0.0, grid.div(g, operand(6.0, fmt, x), fmt))


@covers("hardswish")
def hardswish(fmt: PositFormat, x: Tensor) -> Tensor:
    """Compute (x (x + 3, clamped between 0 and 6)) / 6."""
    return grid.div(grid.mul(x, _ramp(x, fmt), fmt), operand(6.0, fmt, x), fmt)


@covers("hardswish_backward")
def hardswish_backward(fmt: PositFormat, g: Tensor, x: Tensor) -> Tensor:
    """Compute g (x / 3 + 1/2) between -3 and 3, 0 below and g above."""
    slope = grid.add(grid.div(x, operand(3.0, fmt, x), fmt), operand(0.5, fmt, x), fmt)
    inner = torch.where(x <= number(-3.0, fmt), 0.0, grid.mul(g, slope, fmt))
    return torch.where(x >= number(3.0, fmt), g, inner)


@covers("softshrink", checked=True)
def softshrink(fmt: PositFormat, x: Tensor, width: float = 0.5) -> Tensor:
    """Move x towards 0 by the width, which is rounded first; 0 within it."""
    lam = operand(width, fmt, x)
    moved = grid.sub(x, torch.where(x > 0, lam, 0 - lam), fmt)
    return torch.where(x.abs() <= lam, 0.0, moved)


@covers("hardshrink")
def hardshrink(fmt: PositFormat, x: Tensor, width: float = 0.5) -> Tensor:
    """Replace x by 0 within the width, which is rounded first."""
    return torch.where(x.abs() <= bound(width, fmt), 0.0, x)


@covers("softshrink_backward", "hardshrink_backward")
def shrink_backward(fmt: PositFormat, g: Tensor, x: Tensor, width: float) -> Tensor:
    """Pass the gradient outside the width."""
    return torch.where(x.abs() <= bound(width, fmt), 0.0, g)


@covers("glu", checked=True)
def glu(fmt: PositFormat, x: Tensor, dim: int = -1) -> Tensor:
    """Multiply the first half by the sigmoid of the second."""
    a, b = x.chunk(2, dim)
    return grid.mul(a, apply("sigmoid", b, fmt), fmt)


@covers("glu_backward")
def glu_backward(fmt: PositFormat, g: Tensor, x: Tensor, dim: int) -> Tensor:
    """Return (g s, ((g a) (1 - s)) s): a is the first half, s the sigmoid of the second."""
    a, b = x.chunk(2, dim)
    s = apply("sigmoid", b, fmt)
    rest = grid.mul(grid.mul(g, a, fmt), grid.sub(s.new_ones(()), s, fmt), fmt)
    return torch.cat([grid.mul(g, s, fmt), grid.mul(rest, s, fmt)], dim)
