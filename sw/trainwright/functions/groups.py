"""Functions over groups of values: softmax over keys, LayerNorm over the features of a token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, floor, inf, log2, sqrt
from typing import TYPE_CHECKING, Any

from trainwright.functions.record import MOST_SHIFT, Scaling
from trainwright.program.vector import FACTOR_WIDTH, Rounding

if TYPE_CHECKING:
    import torch

    from trainwright.kernels.phases import GroupLayout, GroupPass
    from trainwright.kernels.trace import Body, Value

# Kernels take seconds to import, which descriptions of networks do not need: bodies import them.
EVEN = Rounding.EVEN
SUM_BITS = 32
"""Bits of a sum that threads can join (`trainwright.kernels.phases`)."""
STORED = "stored"
"""Stream of values that a kernel keeps in the rows of its result between two sweeps."""


@dataclass(frozen=True)
class GroupKernel:
    """Integer function of a whole group of values of each operand."""

    text: str
    """Name in listings, with the size of the group: kernels with equal texts are equal."""
    group: int
    """Values of a group."""
    body: Callable[..., None] = field(compare=False)
    """Called with a `Body`, the value of each operand, and ``width``, the bits of the result."""
    real: "Callable[..., torch.Tensor]" = field(compare=False)
    """Function of torch tensors (.., group) that computes in real numbers."""
    bound: "Callable[[Sequence[int], int, int | None], Scaling]" = field(compare=False)
    """Function from the operands' exponents, the result's bits and the exponent wanted for it to
    the result's exponent and the constants of the passes."""
    automatic: bool = False
    """Whether the result's exponent follows its statistics, which the passes count."""

    @property
    def keeps_exponent(self) -> bool:
        """Whether the result has the exponent of the first operand: never."""
        return False

    def __reduce__(self) -> "tuple[Callable[[str], GroupKernel], tuple[str]]":
        """Return what pickle keeps, the text: bodies are closures."""
        return group_kernel_of, (self.text,)

    def lowered(
        self, widths: Sequence[int], width: int, layout: "GroupLayout"
    ) -> "tuple[GroupPass, ...]":
        """Lower the kernel for operands of ``widths`` bits in a layout to its passes."""
        from trainwright.kernels.phases import lower_groups

        return lower_groups(
            group_pass, self.group, layout, function=self, widths=tuple(widths), width=width
        )


def group_pass(k: "Body", function: GroupKernel, widths: tuple[int, ...], width: int) -> None:
    """Write stream ``z`` from streams ``x0``, ``x1``, .. by a kernel over groups."""
    operands = [
        k.read(f"x{n}", -(1 << (bits - 1)), (1 << (bits - 1)) - 1) for n, bits in enumerate(widths)
    ]
    function.body(k, *operands, width=width)


@dataclass(frozen=True)
class GroupFunction:
    """Function over groups of a network."""

    text: str
    forward: GroupKernel = field(compare=False)
    """Kernel of x."""
    backward: GroupKernel = field(compare=False)
    """Kernel of two operands: the gradient to the result, and the result or x."""
    reads_result: bool = field(compare=False)
    """Whether ``backward`` reads the result as its second operand; else it reads x."""


def _bits(low: int, high: int) -> int:
    return max(high, ~low).bit_length() + 1


def _summable(k: "Body", v: "Value") -> "tuple[Value, int]":
    """Shift a value so that threads can join its sum; return the shift too."""
    most = _bits(k.group * v.low, k.group * v.high)
    shift = max(0, most - SUM_BITS)
    return (v.rounded(shift, EVEN) if shift else v), shift


def _shift(k: "Body", number: int, most: int = MOST_SHIFT) -> "Value":
    """Return a shift that the host gives a pass when it binds a program."""
    return k.constant(0) + k.given(number, 0, most)


def _held(value: int, most: int = MOST_SHIFT) -> int:
    return min(max(value, 0), most)


def _automatic(least: int, wanted: int | None) -> tuple[int, int]:
    """Return a result's exponent and its shift, given its least exponent."""
    exponent = least if wanted is None else min(max(wanted, least), least + MOST_SHIFT)
    return exponent, exponent - least


# -- softmax -----------------------------------------------------------------------------------
LOG2_E = 1.4426950408889634


def _normalised(value: float) -> tuple[int, int]:
    """Return (f, n) with value = f 2^(n - 16), f of 17 bits."""
    n = floor(log2(value))
    factor = round(value * 2.0 ** (16 - n))
    return (factor >> 1, n + 1) if factor == 1 << 17 else (factor, n)


def softmax(group: int, scale: float = 1.0) -> GroupFunction:
    """Return softmax of ``scale`` times x over a group.

    The shift of ``exp2``'s argument cannot be negative, so scores of a large exponent (above 0 for
    a scale of 1) are taken as if it were smaller. A score one unit in the last place below the
    greatest then gets at most half of the greatest's result (37 % for a scale of 1).
    """
    factor, power = _normalised(LOG2_E * scale)
    half, half_power = _normalised(scale)

    def body(k: "Body", z: "Value", width: int) -> None:
        """Divide 2^(z - the greatest z) by the sum of these powers.

        The sum's leading bits give a reciprocal of 17 bits below the point.
        """
        from trainwright.kernels.library import exp2, mantissa, reciprocal

        # An argument of exp2 has 16 bits below the point, as the factor has.
        below = z - k.greatest(z)
        powers = exp2((below * -factor).rounded(_shift(k, 0), EVEN)).at_least(0)
        powers = k.stored(STORED, powers)
        total = k.sum(powers)
        twice, length = mantissa(total + total)
        inverse = reciprocal(twice)
        shift = length + (32 - width)
        k.write("z", (powers * inverse).rounded(shift, EVEN).clip(width))

    def bound(exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        return Scaling(1 - width, 1 - width, (_held(-exponents[0] - power),))

    def gradient(k: "Body", upper: "Value", p: "Value", width: int) -> None:
        """Compute p (upper - sum of p upper) scale, the difference with a bit below the point."""
        bits = _bits(p.low, p.high) - 1
        product, less = _summable(k, upper * p)
        total = k.sum(product).rounded(max(0, bits - less - 1), EVEN).clip(FACTOR_WIDTH - 1)
        # The sum is rounded further only where it had fewer bits to begin with.
        difference = (upper * 2 - total).clip(FACTOR_WIDTH)
        if half != 1 << 16:
            difference = (difference * half).rounded(17, EVEN).clip(FACTOR_WIDTH)
        k.write("z", (p * difference).rounded(_shift(k, 0), EVEN).clip(width), counted=True)

    def back_bound(exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        upper, p = exponents
        least = upper + p - 1 + half_power + (half != 1 << 16)
        exponent, shift = _automatic(least, wanted)
        return Scaling(exponent, least, (shift,))

    def real(z: "torch.Tensor") -> "torch.Tensor":
        return (z * scale).softmax(-1)

    def real_gradient(upper: "torch.Tensor", p: "torch.Tensor") -> "torch.Tensor":
        return scale * p * (upper - (p * upper).sum(-1, keepdim=True))

    text = f"softmax({group}, {scale!r})"
    return GroupFunction(
        text,
        GroupKernel(text, group, body, real, bound),
        GroupKernel(f"{text}'", group, gradient, real_gradient, back_bound, automatic=True),
        reads_result=True,
    )


# -- LayerNorm ---------------------------------------------------------------------------------
MEAN_BITS = 18
"""Bits of a mean: a factor of a product."""


class _Moments:
    """Mean and deviation of a group of words, as steps of a kernel.

    Differences from the mean are squared, not the words: that loses no bits where the mean is much
    larger than the deviation. The mean is rounded before; the variance is corrected for that.
    """

    def __init__(self, k: "Body", x: "Value") -> None:
        from trainwright.kernels.library import reciprocal_root
        from trainwright.kernels.trace import where

        width = _bits(x.low, x.high)
        self.octave = floor(log2(k.group))
        self.share = min(round(2.0 ** (17 + self.octave) / k.group), (1 << 17) - 1)
        """1 / group, as a fixed-point number with 17 + octave bits below the point."""
        fine = MEAN_BITS - width
        coarse = min(max(0, (SUM_BITS - 1 - 2 * width - ceil(log2(k.group))) // 2), fine)
        self.mean = mean = self.of(k.sum(x), fine, MEAN_BITS)
        near = mean.rounded(fine - coarse, EVEN)
        difference = (x * (1 << coarse) - near).clip(FACTOR_WIDTH)
        square, less = _summable(k, difference * difference)
        squares = k.sum(square)
        lost = (mean - near * (1 << (fine - coarse))).clip(fine - coarse + 1)
        # Bits below the point of the variance, an even number: its root has half of them.
        longest = max(0, _bits(0, squares.high) - FACTOR_WIDTH)
        spare = min(34 - 2 * (width + coarse), 16 + self.octave - less - longest,
                    2 * (fine - coarse)) & ~1  # fmt: skip
        long = (squares.length() - (FACTOR_WIDTH - 1)).at_least(0)
        down = long * -1 + (17 + self.octave - less - spare)
        leading = (squares >> long).clip(FACTOR_WIDTH)
        variance = (leading * self.share) >> down.within(0, MOST_SHIFT)
        variance = variance - (lost * lost).rounded(2 * (fine - coarse) - spare, EVEN)
        root, half = reciprocal_root(variance.at_least(1).within(1, (1 << 35) - 1))
        self.root = where(variance.positive, root, k.constant(0))
        self.length = half - (coarse + spare // 2)
        """1 / deviation = root 2^-(length + 17); root is 0 where all values are equal."""
        self.offset = (mean * self.root).rounded(fine, EVEN)
        """Mean times root."""

    def of(self, total: "Value", fraction: int, width: int) -> "Value":
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

    def normal(self, x: "Value", fraction: int, width: int) -> "Value":
        """Return (x - mean) / deviation with ``fraction`` bits below the point."""
        down = (self.length + (17 - fraction)).at_least(0)
        return (x * self.root - self.offset).rounded(down, EVEN).clip(width)


def whole_bits(group: int, width: int) -> int:
    """Return the bits above the point of a LayerNorm's result.

    No value of a group is more than sqrt(group - 1) deviations from the mean. A narrow result has
    three bits at most: the few values beyond 8 deviations saturate.
    """
    return min(max(1, ceil(log2(sqrt(group)))), max(3, width - 10))


def layer_norm(group: int) -> GroupFunction:
    """Return (x - mean) / deviation over a group.

    A group of equal values gives 0 and a gradient of 0: no epsilon is added to the deviation.
    """

    def body(k: "Body", x: "Value", width: int) -> None:
        fraction = width - 1 - whole_bits(group, width)
        k.write("z", _Moments(k, x).normal(x, fraction, width))

    def bound(exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        exponent = whole_bits(group, width) + 1 - width
        return Scaling(exponent, exponent, ())

    fraction = 15 - whole_bits(group, 16)

    def gradient(k: "Body", upper: "Value", x: "Value", width: int) -> None:
        """Compute (upper - mean of upper - y mean of (upper y)) / deviation, y being the result.

        y has 16 bits and lies in the rows of the gradient until that is written.
        """
        moments = _Moments(k, x)
        total = k.sum(upper)
        y = k.stored(STORED, moments.normal(x, fraction, 16))
        product, less = _summable(k, upper * y)
        slope = moments.of(k.sum(product), 2 - fraction + less, FACTOR_WIDTH)
        level = moments.of(total, 2 + fraction, 35)
        rest = (upper * (1 << (2 + fraction)) - (y * slope + level)).rounded(1 + fraction, EVEN)
        shift = (moments.length + _shift(k, 0, 40)).at_least(0)
        value = (rest.clip(FACTOR_WIDTH) * moments.root).rounded(shift, EVEN)
        k.write("z", value.clip(width), counted=True)

    def back_bound(exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        upper, x = exponents
        least = upper - x - LEAST_DEVIATION
        exponent, shift = _automatic(least, wanted)
        # ``rest`` has one bit below the point, ``root`` has 17.
        return Scaling(exponent, least, (_held(18 - LEAST_DEVIATION + shift, 40),))

    def real(x: "torch.Tensor") -> "torch.Tensor":
        return (x - x.mean(-1, keepdim=True)) / _deviation(x)

    def real_gradient(upper: "torch.Tensor", x: "torch.Tensor") -> "torch.Tensor":
        y = real(x)
        rest = upper - upper.mean(-1, keepdim=True) - y * (upper * y).mean(-1, keepdim=True)
        return rest / _deviation(x)

    text = f"layer_norm({group})"
    return GroupFunction(
        text,
        GroupKernel(text, group, body, real, bound),
        GroupKernel(f"{text}'", group, gradient, real_gradient, back_bound, automatic=True),
        reads_result=False,
    )


LEAST_DEVIATION = 8
"""The least deviation that is not 0 is 2^-8 of a word's unit: groups have up to 2^16 values."""


def _deviation(x: "torch.Tensor") -> "torch.Tensor":
    """Return the deviation of groups, infinity where all values are equal."""
    deviation = x.std(-1, correction=0, keepdim=True)
    return deviation.where(deviation > 0, deviation.new_full((), inf))


def product(group: int) -> GroupFunction:
    """Return the element-wise product of two tensors, in groups of any size.

    No array multiplies values that share all of their axes: both would vary along the lanes.
    """

    def body(k: "Body", x: "Value", y: "Value", width: int) -> None:
        k.write("z", (x * y).rounded(_shift(k, 0), EVEN).clip(width), counted=True)

    def bound(exponents: Sequence[int], width: int, wanted: int | None) -> Scaling:
        exponent, shift = _automatic(sum(exponents), wanted)
        return Scaling(exponent, sum(exponents), (shift,))

    text = f"product({group})"
    kernel = GroupKernel(text, group, body, lambda x, y: x * y, bound, automatic=True)
    return GroupFunction(text, kernel, kernel, reads_result=False)


GROUP_FUNCTIONS: dict[str, Callable[..., GroupFunction]] = {
    "softmax": softmax,
    "layer_norm": layer_norm,
    "product": product,
}
"""Functions over groups by name: each takes the size of a group first."""


@cache
def group_function_of(text: str) -> GroupFunction:
    """Return the function of a text: ``softmax(32, 0.125)``."""
    name, _, rest = text.rstrip(")").partition("(")
    size, *given = rest.split(",")
    numbers: list[Any] = [int(size), *map(float, given)]
    return GROUP_FUNCTIONS[name](*numbers)


def group_kernel_of(text: str) -> GroupKernel:
    """Return the kernel of a function's text; a prime at the end stands for its gradient."""
    if text.endswith("'"):
        return group_function_of(text[:-1]).backward
    return group_function_of(text).forward
