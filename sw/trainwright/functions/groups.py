"""Functions over groups of values: softmax over keys, LayerNorm over the features of a token."""

from collections.abc import Sequence
from functools import partial
from math import ceil, floor, inf, log2, sqrt
from typing import TYPE_CHECKING

from trainwright.functions.library import normalised
from trainwright.functions.record import MOST_SHIFT, Scale, Scaling
from trainwright.functions.registry import kernel
from trainwright.kernels.library import any_mantissa, exp2, mantissa, reciprocal, reciprocal_root
from trainwright.kernels.trace import STORED, Body, Value, where
from trainwright.program.vector import FACTOR_WIDTH, Rounding

if TYPE_CHECKING:
    import torch

EVEN = Rounding.EVEN
SUM_BITS = 32
"""Bits of a sum that threads can join (`trainwright.kernels.phases`)."""


def _bits(low: int, high: int) -> int:
    return max(high, ~low).bit_length() + 1


def _summable(k: Body, v: Value) -> tuple[Value, int]:
    """Shift a value so that threads can join its sum; return the shift too."""
    most = _bits(k.group * v.low, k.group * v.high)
    shift = max(0, most - SUM_BITS)
    return (v.rounded(shift, EVEN) if shift else v), shift


def _shift(k: Body, number: int, most: int = MOST_SHIFT, least: int = 0) -> Value:
    """Return a shift, or a part of one, that a pass is given with the exponents of a step."""
    return k.constant(0) + k.given(number, least, most)


def _held(value: int, most: int = MOST_SHIFT, least: int = 0) -> int:
    return min(max(value, least), most)


def _automatic(least: int, wanted: int | None) -> tuple[int, int]:
    """Return a result's exponent and its shift, given its least exponent."""
    exponent = least if wanted is None else min(max(wanted, least), least + MOST_SHIFT)
    return exponent, exponent - least


# -- softmax -----------------------------------------------------------------------------------
LOG2_E = 1.4426950408889634


def _softmax_scale(
    exponents: Sequence[int], width: int, wanted: int | None, group: int, scale: float
) -> Scaling:
    return Scaling(1 - width, 1 - width, (_held(_coarsest_scores(scale) - exponents[0]),))


def _coarsest_scores(scale: float = 1.0) -> int:
    """Return the exponent of scores at which the shift of ``exp2``'s argument is 0."""
    return -normalised(LOG2_E * scale)[1]


def _softmax_gradient(k: Body, upper: Value, result: Value, scale: float = 1.0) -> Value:
    """Compute p (upper - sum of p upper) scale, the difference with a bit below the point."""
    factor = normalised(scale)[0]  # of 17 bits: 2^16 if the scale is a power of two
    bits = _bits(result.low, result.high) - 1
    product, less = _summable(k, upper * result)
    total = k.sum(product).rounded(max(0, bits - less - 1), EVEN).clip(FACTOR_WIDTH - 1)
    # The sum is rounded further only where it had fewer bits to begin with.
    difference = (upper * 2 - total).clip(FACTOR_WIDTH)
    if factor != 1 << 16:
        difference = (difference * factor).rounded(17, EVEN).clip(FACTOR_WIDTH)
    return (result * difference).rounded(_shift(k, 0), EVEN)


def _softmax_gradient_scale(
    exponents: Sequence[int], width: int, wanted: int | None, group: int, scale: float
) -> Scaling:
    (upper, p), (factor, power) = exponents, normalised(scale)
    # - 1: the difference has a bit below the point. The product with the factor drops it again.
    least = upper + p - 1 + power + (factor != 1 << 16)
    exponent, shift = _automatic(least, wanted)
    return Scaling(exponent, least, (shift,))


_softmax_kernel = partial(
    kernel,
    gradient=_softmax_gradient,
    over="features",
    scale=Scale(_softmax_scale, coarsest=_coarsest_scores),
    gradient_scale=Scale(_softmax_gradient_scale, automatic=True),
    real_gradient=lambda upper, p, scale: scale * p * (upper - (p * upper).sum(-1, keepdim=True)),
)


@_softmax_kernel(real=lambda z, scale: (z * scale).softmax(-1))
def softmax(k: Body, z: Value, scale: float = 1.0) -> Value:
    """Return softmax of ``scale`` times z over a group.

    Powers 2^(z - the greatest z) are divided by their sum, whose leading bits give a reciprocal of
    17 bits below the point. The shift of ``exp2``'s argument cannot be negative, so scores of a
    large exponent (above 0 for a scale of 1) are taken as if it were smaller. A score one unit in
    the last place below the greatest then gets at most half of the greatest's result (37 % for a
    scale of 1).
    """
    return _shared(k, _powers(k, z, scale))


def _powers(k: Body, z: Value, scale: float) -> Value:
    """Return 2^(z - the greatest z), with z in units of ``scale`` log2(e)."""
    # An argument of exp2 has 16 bits below the point, as the factor has.
    below = (z - k.greatest(z)) * -normalised(LOG2_E * scale)[0]
    return exp2(below.rounded(_shift(k, 0), EVEN))


def _shared(k: Body, powers: Value) -> Value:
    """Divide powers by their sum."""
    powers = k.stored(STORED, powers)
    total = k.sum(powers)
    twice, length = mantissa(total + total)
    inverse = reciprocal(twice)
    shift = length + (32 - k.bits)
    return (powers * inverse).rounded(shift, EVEN)


def _real_masked_softmax(z: "torch.Tensor", mask: "torch.Tensor", scale: float) -> "torch.Tensor":
    return (z * scale).masked_fill(mask <= 0, -inf).softmax(-1).nan_to_num()


@_softmax_kernel(real=_real_masked_softmax)
def masked_softmax(k: Body, z: Value, mask: Value, scale: float = 1.0) -> Value:
    """Return softmax of the values whose mask is positive; 0 for the other values.

    A group without such a value gives 0.
    """
    powers = _powers(k, where(mask.positive, z, k.constant(z.low)), scale)
    # The lowest word may be the greatest of its group: its power is cleared, too.
    return _shared(k, where(mask.positive, powers, k.constant(0)))


# -- LayerNorm ---------------------------------------------------------------------------------
MEAN_BITS = 18
"""Bits of a mean: a factor of a product."""


class _Moments:
    """Mean and deviation of a group of words, as steps of a kernel.

    Differences from the mean are squared, not the words: this loses no bits if the mean is much
    larger than the deviation. Differences are taken from a rounded mean, and the variance is
    corrected for the rounding.
    """

    def __init__(self, k: Body, x: Value) -> None:
        width = _bits(x.low, x.high)
        self.octave = floor(log2(k.group))
        """Whole bits of log2 of the group's size."""
        self.share = min(round(2.0 ** (17 + self.octave) / k.group), (1 << 17) - 1)
        """1 / group, as a fixed-point number with 17 + octave bits below the point."""
        # Bits below the point of the mean, and of differences from it: as many as a factor has room
        # for, and as few as their squares need so that threads can join the sum.
        mean_bits = MEAN_BITS - width
        spare = (SUM_BITS - 1 - 2 * width - ceil(log2(k.group))) // 2
        difference_bits = min(max(0, spare), mean_bits)
        rounded_off = mean_bits - difference_bits
        self.mean = mean = self.mean_of(k.sum(x), mean_bits, MEAN_BITS)
        near = mean.rounded(rounded_off, EVEN)
        difference = (x * (1 << difference_bits) - near).clip(FACTOR_WIDTH)
        square, dropped = _summable(k, difference * difference)
        squares = k.sum(square)
        error = (mean - near * (1 << rounded_off)).clip(rounded_off + 1)
        # Bits below the point of the variance, an even number: its root has half of them.
        longest = max(0, _bits(0, squares.high) - FACTOR_WIDTH)
        variance_bits = min(34 - 2 * (width + difference_bits),
                            16 + self.octave - dropped - longest, 2 * rounded_off) & ~1  # fmt: skip
        # A sum that is longer than a factor is multiplied by its leading bits.
        excess = (squares.length() - (FACTOR_WIDTH - 1)).at_least(0)
        down = excess * -1 + (17 + self.octave - dropped - variance_bits)
        leading = (squares >> excess).clip(FACTOR_WIDTH)
        variance = (leading * self.share) >> down.within(0, MOST_SHIFT)
        # The mean of the squares is too large by the square of the mean's rounding error.
        variance = variance - (error * error).rounded(2 * rounded_off - variance_bits, EVEN)
        root, half = reciprocal_root(variance.at_least(1).within(1, (1 << 35) - 1))
        self.root = where(variance.positive, root, k.constant(0))
        self.length = half - (difference_bits + variance_bits // 2)
        """1 / deviation = root 2^-(length + 17); root is 0 where all values are equal."""
        self.offset = (mean * self.root).rounded(mean_bits, EVEN)
        """Mean times root."""

    def mean_of(self, total: Value, fraction: int, width: int) -> Value:
        """Divide the sum of a group by its size, to ``fraction`` bits below the point."""
        down = 17 + self.octave - fraction
        less = max(0, _bits(total.low, total.high) - FACTOR_WIDTH)
        if not less:
            return (total * self.share).rounded(down, EVEN).clip(width)
        # A sum with more bits than a factor is multiplied in two parts. Dropping its low bits
        # instead would lose most of a typical sum, which is far below its bound.
        low = ((total & ((1 << less) - 1)) * self.share) >> less
        whole = (total >> less).clip(FACTOR_WIDTH) * self.share + low
        return whole.rounded(down - less, EVEN).clip(width)

    def normal(self, x: Value, fraction: int, width: int) -> Value:
        """Return (x - mean) / deviation with ``fraction`` bits below the point."""
        down = (self.length + (17 - fraction)).at_least(0)
        return (x * self.root - self.offset).rounded(down, EVEN).clip(width)


def whole_bits(group: int, width: int) -> int:
    """Return the bits above the point of a LayerNorm's result.

    No value of a group is more than sqrt(group - 1) deviations from the mean. A narrow result has
    three bits at most: the few values beyond 8 deviations saturate.
    """
    return min(max(1, ceil(log2(sqrt(group)))), max(3, width - 10))


def _layer_norm_scale(
    exponents: Sequence[int], width: int, wanted: int | None, group: int
) -> Scaling:
    exponent = whole_bits(group, width) + 1 - width
    return Scaling(exponent, exponent, ())


def _layer_norm_gradient(k: Body, upper: Value, x: Value) -> Value:
    """Compute (upper - mean of upper - y mean of (upper y)) / deviation, y being the result.

    y has 16 bits and lies in the rows of the gradient until that is written.
    """
    fraction = 15 - whole_bits(k.group, 16)
    moments = _Moments(k, x)
    total = k.sum(upper)
    y = k.stored(STORED, moments.normal(x, fraction, 16))
    product, less = _summable(k, upper * y)
    slope = moments.mean_of(k.sum(product), 2 - fraction + less, FACTOR_WIDTH)
    level = moments.mean_of(total, 2 + fraction, 35)
    rest = (upper * (1 << (2 + fraction)) - (y * slope + level)).rounded(1 + fraction, EVEN)
    shift = (moments.length + _shift(k, 0, 40, least=-40)).at_least(0)
    return (rest.clip(FACTOR_WIDTH) * moments.root).rounded(shift, EVEN)


def _layer_norm_gradient_scale(
    exponents: Sequence[int], width: int, wanted: int | None, group: int
) -> Scaling:
    upper, x = exponents
    # The least exponent does not depend on x, because the least exponent of a result must be a sum
    # of exponents and a number on an accelerator that trains alone, and x would be subtracted.
    # Where the shift is limited to 0, words are smaller than they should be, but saturate anyway.
    first = upper - x - LEAST_DEVIATION
    exponent = _automatic(upper - FINEST_GRADIENT, first if wanted is None else wanted)[0]
    # ``rest`` has one bit below the point, ``root`` has 17.
    return Scaling(exponent, upper - FINEST_GRADIENT, (_held(18 + exponent - upper + x, 40, -40),))


def _real_layer_norm(x: "torch.Tensor") -> "torch.Tensor":
    return (x - x.mean(-1, keepdim=True)) / _deviation(x)


def _real_layer_norm_gradient(upper: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
    y = _real_layer_norm(x)
    rest = upper - upper.mean(-1, keepdim=True) - y * (upper * y).mean(-1, keepdim=True)
    return rest / _deviation(x)


@kernel(
    gradient=_layer_norm_gradient,
    over="features",
    scale=Scale(_layer_norm_scale),
    gradient_scale=Scale(_layer_norm_gradient_scale, automatic=True),
    real=_real_layer_norm,
    real_gradient=_real_layer_norm_gradient,
)
def layer_norm(k: Body, x: Value) -> Value:
    """Return (x - mean) / deviation over a group.

    A group of equal values gives 0 and a gradient of 0: no epsilon is added to the deviation.
    """
    fraction = k.bits - 1 - whole_bits(k.group, k.bits)
    return _Moments(k, x).normal(x, fraction, k.bits)


LEAST_DEVIATION = 8
"""The least deviation that is not 0 is 2^-8 of a word's unit: groups have up to 2^16 values."""
FINEST_GRADIENT = 32
"""Bits by which the exponent of LayerNorm's gradient may be below that of the upper gradient.

Words of x have a deviation of 4 to 32 units, so the gradient's exponent is near that of the upper
gradient less that of x less 4. The exponent of x was from -20 to 20 in every training run."""


def _deviation(x: "torch.Tensor") -> "torch.Tensor":
    """Return the deviation of groups, infinity where all values are equal."""
    deviation = x.std(-1, correction=0, keepdim=True)
    return deviation.where(deviation > 0, deviation.new_full((), inf))


def _product_scale(exponents: Sequence[int], width: int, wanted: int | None, group: int) -> Scaling:
    exponent, shift = _automatic(sum(exponents), wanted)
    return Scaling(exponent, sum(exponents), (shift,))


@kernel(
    over="features", scale=Scale(_product_scale, automatic=True), real=lambda x, y: x * y
)  # fmt: skip
def product(k: Body, x: Value, y: Value) -> Value:
    """Return the element-wise product of two tensors, in groups of any size.

    No array multiplies values that share all of their axes: both would vary along the lanes.
    """
    return (x * y).rounded(_shift(k, 0), EVEN)


# -- pooling -----------------------------------------------------------------------------------
def _max_pool_gradient(k: Body, upper: Value, x: Value) -> Value:
    """Share the gradient of a window among its greatest values, as torch's ``amax`` does."""
    ahead = where((x - k.greatest(x)).negative, 0, k.constant(1))
    twice, length = any_mantissa(k.sum(ahead))
    share = (upper * reciprocal(twice)).rounded((length + 32).within(0, MOST_SHIFT), EVEN)
    return where(ahead.zero, 0, share)


def _greatest(x: "torch.Tensor") -> "torch.Tensor":
    return x.amax(-1, keepdim=True).expand(x.shape)


@kernel(
    gradient=_max_pool_gradient,
    over="window",
    real=_greatest,
    real_gradient=lambda upper, x: (
        upper * (x == _greatest(x)) / (x == _greatest(x)).sum(-1, keepdim=True)
    ),
)
def max_pool(k: Body, x: Value) -> Value:
    """Return the greatest value of a window."""
    return k.greatest(x)


@kernel(gradient="straight-through")
def _raised(k: Body, x: Value) -> Value:
    """Return x less the least word, in a bit more: no value is then below the zeros of padding."""
    return x + (1 << (k.bits - 2))


@kernel(gradient="straight-through")
def _lowered(k: Body, x: Value) -> Value:
    """Undo ``_raised``, in a bit less."""
    return x - (1 << (k.bits - 1))


def _avg_pool_gradient(k: Body, upper: Value) -> Value:
    return (upper * round(65536 / k.group)).rounded(16, EVEN)


@kernel(
    gradient=_avg_pool_gradient,
    over="window",
    real=lambda x: x.mean(-1, keepdim=True).expand(x.shape),
    real_gradient=lambda upper: upper / upper.shape[-1],
)
def avg_pool(k: Body, x: Value) -> Value:
    """Return the mean of a window, rounded once where its sum has at most 18 bits."""
    total = k.sum(x)
    less = max(0, _bits(total.low, total.high) - FACTOR_WIDTH)
    return ((total >> less) * round(65536 / k.group)).rounded(16 - less, EVEN)
