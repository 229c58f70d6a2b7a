"""The element-wise functions: one factory each, which makes the function's record."""

from collections.abc import Callable
from math import e, log2, pi
from typing import TYPE_CHECKING

from trainwright.functions.record import ElementKernel, Function, register
from trainwright.kernels.library import exp2, reciprocal
from trainwright.kernels.trace import Body, Condition, Value, where
from trainwright.program.vector import FACTOR_WIDTH, Rounding

if TYPE_CHECKING:
    import torch

EVEN = Rounding.EVEN

# -- leaky ReLU --------------------------------------------------------------------------------
SLOPE_BITS = 16
"""Bits below the point of a slope: a product of a word and a slope fits one instruction."""


@register("LeakyReLU", slope="negative_slope")
def leaky_relu(slope: float = 0.01) -> Function:
    """Return x where x is positive, ``slope`` times x elsewhere."""
    if not 0 <= slope < 1:
        raise ValueError(f"the slope is from 0 to below 1, not {slope:g}")
    factor = round(slope * 2**SLOPE_BITS)

    def body(k: Body, x: Value, width: int) -> Value:
        return where(x.negative, (x * factor).rounded(SLOPE_BITS, EVEN), x)

    def gradient(k: Body, upper: Value, x: Value, width: int) -> Value:
        return where(x.negative, (upper * factor).rounded(SLOPE_BITS, EVEN), upper)

    def real(x: "torch.Tensor") -> "torch.Tensor":
        return x.where(x >= 0, slope * x)

    def real_gradient(upper: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
        return upper.where(x >= 0, slope * upper)

    text = f"leaky_relu({slope})"
    # The gradient reads x: a small negative x rounds to a result of 0, which has lost the sign.
    return Function(
        text, ElementKernel(text, body, real), ElementKernel(f"{text}'", gradient, real_gradient),
        reads_result=False, gain=2 / (1 + slope**2),
    )  # fmt: skip


# -- tanh --------------------------------------------------------------------------------------
TANH_FRACTION = 13
"""Bits below the point of tanh's argument: beyond 8 the result rounds to 1 in 16 bits."""
TWO_LOG2_E = 47274
"""2 log2(e) 2^3 with 11 bits below the point: from units of 2^-13 to the units of ``exp2``."""


def _tanh(k: Body, x: Value, width: int, scaled: Value) -> Value:
    """Compute (1 - t) / (1 + t) with t = exp(-2 |x|), whose error is below 2^-14.

    1 stands at 32,767, the largest t that ``exp2`` returns, so that tanh of 0 is exactly 0.
    """
    size = where(scaled.negative, 0 - scaled, scaled)
    t = exp2((size * TWO_LOG2_E).rounded(11, EVEN)).at_least(0)
    twice = t + t + (1 << 16)
    quotient = ((t * -1 + 32767) * reciprocal(twice)).rounded(33 - width, EVEN)
    return where(scaled.negative, 0 - quotient, quotient)


def _tanh_gradient(k: Body, upper: Value, y: Value, width: int) -> Value:
    """Multiply by (1 - y)(1 + y), rounded to 16 bits below the point as a factor has 18 bits."""
    bits = y.high.bit_length()
    derivative = ((1 << bits) - y) * (y + (1 << bits))
    kept = min(2 * bits, 16)
    derivative = derivative.rounded(2 * bits - kept, EVEN).clip(FACTOR_WIDTH)
    return (upper * derivative).rounded(kept, EVEN)


@register("Tanh")
def tanh() -> Function:
    """Return the hyperbolic tangent of x."""

    def real(x: "torch.Tensor") -> "torch.Tensor":
        return x.tanh()

    return Function(
        "tanh",
        ElementKernel("tanh", _tanh, real, fraction=TANH_FRACTION, whole_bits=0),
        ElementKernel("tanh'", _tanh_gradient, lambda upper, y: upper * (1 - y * y)),
        reads_result=True,
    )  # fmt: skip


# -- GELU and SiLU: x times a sigmoid ----------------------------------------------------------
GATE_FRACTION = 12
"""Bits below the point of a gate's argument: a sigmoid beyond 16 is 0 or 1 in any word."""
LOG2_E = 47274
"""log2(e) 2^4 with 11 bits below the point: from units of 2^-12 to the units of ``exp2``."""
CUBE = 0.044715
"""Coefficient of x^3 in the argument of GELU's tanh (Hendrycks and Gimpel, 2016)."""
GELU_LOG2_E = round(2 * (2 / pi) ** 0.5 * log2(e) * 2**15)
"""2 sqrt(2 / pi) log2(e) 2^4 with 11 bits below the point."""
GELU_SLOPE = round(2 * (2 / pi) ** 0.5 * 2**15)
"""2 sqrt(2 / pi) with 15 bits below the point."""


def _sigmoid(negative: Condition, size: Value) -> tuple[Value, Value]:
    """Return a sigmoid and its derivative, both with 15 bits below the point.

    ``size`` is the argument's absolute value times log2(e) in the units of ``exp2``. With
    t = 2^-size the sigmoid is high = 1 / (1 + t), or low = t / (1 + t) where the argument is
    negative; the derivative is their product, which loses no bits where t is small.
    """
    t = exp2(size).at_least(0)
    inverse = reciprocal(t + t + (1 << 16))
    high, low = inverse.rounded(2, EVEN), (t * inverse).rounded(17, EVEN)
    return where(negative, low, high), (low * high).rounded(15, EVEN)


def _absolute(x: Value) -> Value:
    return where(x.negative, 0 - x, x)


def _square(x: Value) -> Value:
    """Return x^2 in units of 2^-9."""
    return (x * x).rounded(15, EVEN).clip(FACTOR_WIDTH)


def _silu_gate(x: Value) -> tuple[Value, Value]:
    return _sigmoid(x.negative, (_absolute(x) * LOG2_E).rounded(11, EVEN))


def _gelu_gate(x: Value) -> tuple[Value, Value]:
    """Return the sigmoid, and its derivative, of 2 sqrt(2 / pi) (x + CUBE x^3)."""
    factor = (_square(x) * round(CUBE * 2**18)).rounded(14, EVEN) + (1 << 13)
    size = (_absolute(x) * factor).rounded(13, EVEN).clip(FACTOR_WIDTH)
    return _sigmoid(x.negative, (size * GELU_LOG2_E).rounded(11, EVEN))


def _gated(gate: Callable[[Value], tuple[Value, Value]]) -> Callable[..., Value]:
    """Make a kernel of x times a gate of x."""

    def body(k: Body, x: Value, width: int, scaled: Value) -> Value:
        return (x * gate(scaled)[0]).rounded(15, EVEN)

    return body


def _silu_gradient(k: Body, upper: Value, x: Value, width: int, scaled: Value) -> Value:
    """Multiply by s + x s (1 - s)."""
    gate, bend = _silu_gate(scaled)
    slope = gate + (scaled * bend).rounded(GATE_FRACTION, EVEN)
    return (upper * slope.clip(FACTOR_WIDTH)).rounded(15, EVEN)


def _gelu_gradient(k: Body, upper: Value, x: Value, width: int, scaled: Value) -> Value:
    """Multiply by s + x s (1 - s) 2 sqrt(2 / pi) (1 + 3 CUBE x^2)."""
    # An engine has 8 constants: a sum of squares saves one, and saturates where the bend is 0.
    square = _square(scaled)
    triple = (square + square + square).clip(FACTOR_WIDTH)
    factor = ((triple * round(CUBE * 2**18)).rounded(14, EVEN) + (1 << 13)).clip(FACTOR_WIDTH)
    inner = (scaled * factor).rounded(14, EVEN).clip(FACTOR_WIDTH)
    gate, bend = _gelu_gate(scaled)
    steep = (inner * bend).rounded(11, EVEN).clip(FACTOR_WIDTH)
    slope = gate + (steep * GELU_SLOPE).rounded(15, EVEN)
    return (upper * slope.clip(FACTOR_WIDTH)).rounded(15, EVEN)


def _gate_function(
    text: str,
    gate: Callable[[Value], tuple[Value, Value]],
    gradient: Callable[..., Value],
    real: "Callable[[torch.Tensor], torch.Tensor]",
) -> Function:
    def real_gradient(upper: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
        # Networks are described without torch, which takes seconds to import.
        from torch import autograd, enable_grad

        x = x.detach().requires_grad_()
        with enable_grad():
            (slope,) = autograd.grad(real(x).sum(), x)
        return upper * slope

    return Function(
        text,
        ElementKernel(text, _gated(gate), real, fraction=GATE_FRACTION),
        ElementKernel(f"{text}'", gradient, real_gradient, fraction=GATE_FRACTION, scaled=1),
        reads_result=False, gain=2.0,
    )  # fmt: skip


@register("SiLU")
def silu() -> Function:
    """Return x times the sigmoid of x."""
    return _gate_function("silu", _silu_gate, _silu_gradient, lambda x: x * x.sigmoid())


@register("GELU")
def gelu() -> Function:
    """Return GELU of x by its tanh approximation, at most 0.0005 from torch's default."""

    def real(x: "torch.Tensor") -> "torch.Tensor":
        return x * (2 * (2 / pi) ** 0.5 * (x + CUBE * x**3)).sigmoid()

    return _gate_function("gelu", _gelu_gate, _gelu_gradient, real)
