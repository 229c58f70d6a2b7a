"""Element-wise functions of the library, each a kernel like those that users write."""

from collections.abc import Sequence
from math import ceil, floor, inf, log2
from typing import TYPE_CHECKING

from trainwright.functions.record import Scale, Scaling
from trainwright.functions.registry import kernel
from trainwright.kernels.library import exp2, reciprocal
from trainwright.kernels.slots import Slot
from trainwright.kernels.tables import FRACTION, SLOPE_SHIFT
from trainwright.kernels.trace import Body, Condition, Value, where
from trainwright.program.vector import FACTOR_WIDTH, Rounding

if TYPE_CHECKING:
    import torch

EVEN = Rounding.EVEN


def normalised(value: float) -> tuple[int, int]:
    """Return (f, n) with value = f 2^(n - 16), f of 17 bits."""
    n = floor(log2(value))
    factor = round(value * 2.0 ** (16 - n))
    return (factor >> 1, n + 1) if factor == 1 << 17 else (factor, n)


# -- leaky ReLU --------------------------------------------------------------------------------
SLOPE_BITS = 16
"""Bits below the point of a slope: a product of a word and a slope fits one instruction."""


def _sloped(value: Value, slope: float) -> Value:
    if not 0 <= slope < 1:
        raise ValueError(f"the slope is from 0 to below 1, not {slope:g}")
    return (value * round(slope * 2**SLOPE_BITS)).rounded(SLOPE_BITS, EVEN)


def _leaky_relu_gradient(k: Body, upper: Value, x: Value, slope: float = 0.01) -> Value:
    # The gradient reads x: a small negative x rounds to a result of 0, which has lost the sign.
    return where(x.negative, _sloped(upper, slope), upper)


@kernel(
    gradient=_leaky_relu_gradient,
    real=lambda x, slope: x.where(x >= 0, slope * x),
    gain=lambda slope: 2 / (1 + slope**2),
    torch_class="LeakyReLU", calls=("leaky_relu",), attributes={"slope": "negative_slope"},
)  # fmt: skip
def leaky_relu(k: Body, x: Value, slope: float = 0.01) -> Value:
    """Return x where x is positive, ``slope`` times x elsewhere."""
    return where(x.negative, _sloped(x, slope), x)


# -- tanh --------------------------------------------------------------------------------------
TANH_FRACTION = 13
"""Bits below the point of tanh's argument, which ends at 8: there tanh rounds to 1 in 16 bits."""
TWO_LOG2_E = 47274
"""2 log2(e) 2^3 with 11 bits below the point: from units of 2^-13 to the units of ``exp2``."""


def _tanh_gradient(k: Body, upper: Value, result: Value) -> Value:
    """Multiply by (1 - y)(1 + y), rounded to 16 bits below the point as a factor has 18 bits."""
    bits = result.high.bit_length()
    derivative = ((1 << bits) - result) * (result + (1 << bits))
    kept = min(2 * bits, 16)
    derivative = derivative.rounded(2 * bits - kept, EVEN).clip(FACTOR_WIDTH)
    return (upper * derivative).rounded(kept, EVEN)


@kernel(
    gradient=_tanh_gradient,
    whole_bits=0,
    real=lambda x: x.tanh(),
    real_gradient=lambda upper, y: upper * (1 - y * y),
    torch_class="Tanh", calls=("tanh",),
)  # fmt: skip
def tanh(k: Body, x: Value) -> Value:
    """Return the hyperbolic tangent of x.

    Computed as (1 - t) / (1 + t) with t = exp(-2 |x|); the error is below 2^-14. The numerator
    takes 32,767 as 1, the largest t that ``exp2`` returns, so that tanh of 0 is exactly 0.
    """
    scaled = k.scaled(x, TANH_FRACTION)
    size = where(scaled.negative, 0 - scaled, scaled)
    t = exp2((size * TWO_LOG2_E).rounded(11, EVEN))
    quotient = ((t * -1 + 32767) * reciprocal(t + t)).rounded(33 - k.bits, EVEN)
    return where(scaled.negative, 0 - quotient, quotient)


# -- sigmoid, and SiLU: x times a sigmoid, the gate ------------------------------------------------
GATE_FRACTION = 12
"""Bits below the point of a gate's argument, which ends at 16: there a sigmoid rounds to 0 or 1."""
LOG2_E = 47274
"""log2(e) 2^4 with 11 bits below the point: from units of 2^-12 to the units of ``exp2``."""


def _sigmoid(negative: Condition, size: Value) -> tuple[Value, Value]:
    """Return a sigmoid and its derivative, both with 15 bits below the point.

    ``size`` is the argument's absolute value times log2(e) in the units of ``exp2``. With
    t = 2^-size the sigmoid is high = 1 / (1 + t), or low = t / (1 + t) where the argument is
    negative; the derivative is their product, which loses no bits where t is small.
    """
    t = exp2(size)
    # The table takes the bits of 1 + t below the point.
    inverse = reciprocal(t + t)
    high, low = inverse.rounded(2, EVEN), (t * inverse).rounded(17, EVEN)
    slope = (low * high).rounded(15, EVEN)
    return where(negative, low, high), slope


def _absolute(x: Value) -> Value:
    return where(x.negative, 0 - x, x)


def _silu_gate(x: Value) -> tuple[Value, Value]:
    """Return the sigmoid of x and its derivative."""
    return _sigmoid(x.negative, (_absolute(x) * LOG2_E).rounded(11, EVEN))


def _sigmoid_gradient(k: Body, upper: Value, result: Value) -> Value:
    """Multiply by y (1 - y), rounded to 16 bits below the point as a factor has 18 bits."""
    bits = result.high.bit_length()
    kept = min(2 * bits, 16)
    derivative = (result * ((1 << bits) - result)).rounded(2 * bits - kept, EVEN)
    return (upper * derivative.clip(FACTOR_WIDTH)).rounded(kept, EVEN)


@kernel(
    gradient=_sigmoid_gradient,
    whole_bits=0,
    real=lambda x: x.sigmoid(),
    real_gradient=lambda upper, y: upper * y * (1 - y),
    torch_class="Sigmoid", calls=("sigmoid",),
)  # fmt: skip
def sigmoid(k: Body, x: Value) -> Value:
    """Return 1 / (1 + exp(-x)), which ends a step below 1."""
    return k.fixed(_silu_gate(k.scaled(x, GATE_FRACTION))[0], 15)


def _silu_gradient(k: Body, upper: Value, x: Value) -> Value:
    """Multiply by s + x s (1 - s), where s is the sigmoid of x."""
    scaled = k.scaled(x, GATE_FRACTION)
    gate, gate_slope = _silu_gate(scaled)
    slope = (scaled * gate_slope).rounded(GATE_FRACTION, EVEN) + gate
    return (upper * slope.clip(FACTOR_WIDTH)).rounded(15, EVEN)


@kernel(
    gradient=_silu_gradient, real=lambda x: x * x.sigmoid(), gain=2.0,
    torch_class="SiLU", calls=("silu",),
)  # fmt: skip
def silu(k: Body, x: Value) -> Value:
    """Return x times the sigmoid of x."""
    return (x * _silu_gate(k.scaled(x, GATE_FRACTION))[0]).rounded(15, EVEN)


# -- GELU: x times the share of the normal distribution below x ------------------------------------
GELU_FRACTION = 13
"""Bits below the point of the tables' arguments, which end at 4."""


def _gelu_gradient(k: Body, upper: Value, x: Value) -> Value:
    slope = k.scaled(x, GELU_FRACTION, FRACTION).lookup(Slot.GELU_SLOPE)
    return (upper * slope.rounded(SLOPE_SHIFT, EVEN)).rounded(14, EVEN)


def _real_gelu(x: "torch.Tensor") -> "torch.Tensor":
    import torch

    return torch.nn.functional.gelu(x)


@kernel(gradient=_gelu_gradient, real=_real_gelu, gain=2.0, torch_class="GELU", calls=("gelu",))
def gelu(k: Body, x: Value) -> Value:
    """Return GELU of x, at most 0.00034 from torch's default."""
    share = k.scaled(x, GELU_FRACTION, FRACTION).lookup(Slot.NORMAL)
    return (x * share.rounded(SLOPE_SHIFT, EVEN)).rounded(15, EVEN)


# -- batch normalisation with frozen statistics ------------------------------------------------
DEVIATION_FRACTION = 12
"""Bits below the point of values in deviations: arguments end at 16 deviations."""


def _batch_norm_gradient(k: Body, upper: Value, mean: float = 0.0, deviation: float = 1.0) -> Value:
    factor, _ = normalised(1 / deviation)
    # A factor above 2^16 would saturate the largest gradients: the exponent is one higher then.
    return (upper * factor).rounded(16 + (factor != 1 << 16), EVEN)


def _batch_norm_gradient_scale(
    exponents: Sequence[int], width: int, wanted: int | None, group: int, mean: float,
    deviation: float,
) -> Scaling:  # fmt: skip
    factor, power = normalised(1 / deviation)
    exponent = exponents[0] + power + (factor != 1 << 16)
    return Scaling(exponent, exponent, ())


@kernel(
    gradient=_batch_norm_gradient,
    whole_bits=3,
    gradient_scale=Scale(_batch_norm_gradient_scale),
    real=lambda x, mean, deviation: (x - mean) / deviation,
)
def batch_norm(k: Body, x: Value, mean: float = 0.0, deviation: float = 1.0) -> Value:
    """Return (x - mean) / deviation for statistics that do not change, saturated at 8 deviations.

    All values share one mean and one deviation.
    """
    if not 0 < deviation < inf or not abs(mean) <= 8 * deviation:
        raise ValueError(
            f"the deviation is above 0 and the mean within 8 deviations, not {deviation:g} and "
            f"{mean:g}"
        )
    fraction = DEVIATION_FRACTION - ceil(log2(deviation))
    centred = (k.scaled(x, fraction) - round(mean * 2.0**fraction)).clip(FACTOR_WIDTH)
    factor, power = normalised(2.0**-fraction / deviation)
    return k.fixed(centred * factor, 16 - power)


# -- dropout -----------------------------------------------------------------------------------
def _dropout_gradient(k: Body, upper: Value, mask: Value, p: float = 0.5) -> Value:
    return dropout.body(k, upper, mask, p)


def _real_dropout(x: "torch.Tensor", mask: "torch.Tensor", p: float) -> "torch.Tensor":
    return x.where(mask < 0, x * (mask > 0) / (1 - p))


@kernel(gradient=_dropout_gradient, real=_real_dropout, real_gradient=_real_dropout)
def dropout(k: Body, x: Value, mask: Value, p: float = 0.5) -> Value:
    """Return x / (1 - p) where the mask is positive, 0 where it is 0, and x where it is negative.

    Evaluations run the program of training with a mask of -1, which makes dropout the identity.
    """
    factor, power = normalised(1 / (1 - p))
    kept = (x * factor).rounded(16 - power, EVEN)
    return where(mask.negative, x, where(mask.zero, 0, kept))
