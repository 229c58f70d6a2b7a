"""The element-wise functions: one factory each, which makes the function's record."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainwright.functions.record import ElementKernel, Function, register
from trainwright.kernels.library import exp2, reciprocal
from trainwright.kernels.trace import Body, Value, where
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

    text = f"leaky_relu({slope:g})"
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


def _tanh(k: Body, x: Value, width: int) -> Value:
    """Compute (1 - t) / (1 + t) with t = exp(-2 |x|), whose error is below 2^-14.

    1 stands at 32,767, the largest t that ``exp2`` returns, so that tanh of 0 is exactly 0.
    """
    size = where(x.negative, 0 - x, x)
    t = exp2((size * TWO_LOG2_E).rounded(11, EVEN)).at_least(0)
    twice = t + t + (1 << 16)
    quotient = ((t * -1 + 32767) * reciprocal(twice)).rounded(33 - width, EVEN)
    return where(x.negative, 0 - quotient, quotient)


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
    real: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.tanh()  # noqa: E731
    return Function(
        "tanh",
        ElementKernel("tanh", _tanh, real, fraction=TANH_FRACTION, whole_bits=0),
        ElementKernel("tanh'", _tanh_gradient, lambda upper, y: upper * (1 - y * y)),
        reads_result=True,
    )  # fmt: skip
