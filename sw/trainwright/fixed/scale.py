"""Automatic scale selection (section 3.3 of the paper): exponents that follow the mean of |q|.

A tensor's value is integer x 2^exponent. After each step the accelerator reports sum|q| of every
tensor it wrote; the exponent for the next step moves by one when the mean of |q|, as a fraction of
full scale, leaves the range of the tensor's class.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from trainwright.formats import Format
from trainwright.formats.exponents import followed


class TensorClass(StrEnum):
    """Classes of tensors that share a width and a scale range."""

    ACTIVATION = "activation"
    INTERMEDIATE = "intermediate"
    GRADIENT = "gradient"


# Rules of exponents. They belong neither to the machine nor to the search of the compiler: another
# value changes the exponents that training chooses, and so its bits.

MOST_SATURATED = 1 / 64
"""``ScaleRanges.coded_saturated`` of compiled models, and of trainers of coded factors."""
MEANS_HIGH = 1 / 4
"""Greatest mean of coded words, as a fraction of full scale, where means alone move exponents."""
CODED_HIGH = 7 / 8
"""Mean of coded words, as a fraction of full scale, above which a tensor is astray."""
LOST_SHARE = 0.25
"""Share of saturated values above which a mean says little. ``Scales.jump`` uses it; a layer in
torch or a compiled model then chooses the exponent anew, instead of moving it by one."""
LOST_JUMP = 8
"""Bits by which calibration lowers the exponent of a tensor that is all zeros."""
SATURATED_ENERGY = 1 / 2
"""``ScaleRanges.saturated_energy`` of layers in torch and of compiled models. Saturated values may
have any size, and a few of them can dominate a gradient. At a mean of a fortieth of full scale one
saturated value in a thousand has half of the energy, as in the first steps of the trainer's
networks.
"""
GROWN_ENERGY = 1 / 64
"""Share of the sum of squares above which saturated values make a tensor astray if its mean is
above its scale range, too: it grew in one step. Without this rule a loss, or inputs, 4 to 16 times
as large as in the step before changed gradients by up to 40 %."""
HELD_STEPS = 32
"""Steps for which an exponent does not go down after too many values saturated: at worst one step
of 33 saturates."""
UNCOUNTED_WIDTH = 15
"""Bits from which the range of uncounted tensors holds: narrower words would round to few steps."""
FAINT_WORDS = 2
"""Mean of |q|, in quantisation steps, below which rounding changes a tensor by over a sixth. Such a
tensor is astray if its mean is also more than FAINT_BELOW times below its scale range."""
FAINT_BELOW = 4
"""Ratio of the scale range's lower end to a mean above which the mean is too low."""
FINE_WORDS = 64
"""Mean of |q|, in quantisation steps, above which a bit more of headroom costs little: rounding
then changes a tensor by at most 0.7 %. Such tensors may saturate in less than others."""
FINE_ENERGY = 1 / 1024
"""Share of the sum of squares of a tensor of fine words above which saturated values raise its
exponent. Above ``GROWN_ENERGY`` the tensor is astray. A few values of a softmax are far above the
mean: with ``saturated_energy`` alone 6 of 4,096 values saturated, and outputs of the next layer
were 25 % off.
"""


@dataclass(frozen=True)
class ScaleRange:
    """Range of the mean of |q|, as fractions of full scale 2^(width - 1)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 1:
            raise ValueError(
                f"a scale range needs 0 < low < high < 1, not [{self.low}, {self.high}]"
            )
        if self.high < 2 * self.low:
            raise ValueError(
                f"scale range [{self.low}, {self.high}] is narrower than a factor of 2: exponents "
                "would move back and forth"
            )


@dataclass(frozen=True)
class SumLimits:
    """Sums of |q| at which a tensor's exponent moves: a scale range as two integers."""

    low: int
    """Sum under which the exponent goes down."""
    high: int
    """Sum over which the exponent goes up."""


@lru_cache(maxsize=4096)
def sum_limits(allowed: ScaleRange, count: int, width: int) -> SumLimits:
    """Return the limits of a tensor of ``count`` values of ``width`` bits.

    They are exactly the range of means of |q|: sums are integers, so limits are rounded inwards.
    """
    scale = count << (width - 1)
    return SumLimits(
        math.ceil(Fraction(allowed.low) * scale), math.floor(Fraction(allowed.high) * scale)
    )


@dataclass(frozen=True)
class ScaleRanges:
    """A range for each class of tensor, unless its format has one (``Format.mean_range``)."""

    activation: ScaleRange = ScaleRange(0.02, 0.06)
    intermediate: ScaleRange = ScaleRange(0.02, 0.08)
    gradient: ScaleRange = ScaleRange(0.008, 0.03)
    coded_saturated: float | None = None
    """Share of a coded tensor's values above which its exponent goes up if they saturate; above an
    eighth of this share the exponent does not go down. None: only means decide. Means let a tensor
    of many zeros saturate: its exponent goes down in quiet steps, and its mean never reaches the
    upper end of the range.
    """
    saturated_energy: float | None = None
    """Share of a fixed-point tensor's sum of squares above which saturated values raise and hold
    its exponent: a few large samples among zeros hardly change a mean. None: only means decide, as
    in ``trainwright train``.
    """

    uncounted: ScaleRange | None = None
    """Range of wide results of passes, whose saturated values no engine counts. None: that of the
    class, as in ``trainwright train``.
    """
    by_means: bool = False
    """Whether exponents of coded tensors ignore saturated values after a step, as on the chip: the
    exponent file compares only sums."""

    def of(self, kind: TensorClass, fmt: Format) -> ScaleRange:
        """Return the range of a format that has its own, or else of a class."""
        if not fmt.mean_range:
            return getattr(self, kind.value)
        low, high = fmt.mean_range
        if self.by_means:  # a mean over many zeros is low, however many of the rest saturate
            high = min(high, MEANS_HIGH)
            low = min(low, high / 2)
        return ScaleRange(low, high)

    def of_tensor(self, s: "TensorStatistics") -> ScaleRange:
        """Return the range of a tensor by its statistics."""
        wide = s.uncounted and not s.format.coded and s.width >= UNCOUNTED_WIDTH
        return self.uncounted if wide and self.uncounted else self.of(s.kind, s.format)


_PAPER = ScaleRange(0.1, 0.3)
PRESETS: dict[str, ScaleRanges] = {
    "default": ScaleRanges(),
    "paper": ScaleRanges(_PAPER, _PAPER, _PAPER),
}
"""``paper`` is [0.1, 0.3] for every class; ``default`` leaves headroom for heavy tails: activations
that saturate still pass gradients straight through; factors then grow and saturate more of them."""


UNCOUNTED = ScaleRange(0.001, 0.004)
"""``ScaleRanges.uncounted`` of compiled models: full scale is 250 to 1,000 times the mean.

Gradients of a norm's scale have values of 74 times their mean; in the range of their class these
values saturated, and 28 % of the gradient was lost. In this range the mean is at least 33
quantisation steps, so rounding loses 1 %."""


@dataclass(frozen=True)
class TensorStatistics:
    """Accelerator's counts of one tensor in one step."""

    kind: TensorClass
    format: Format
    exponent: int
    """Exponent that the tensor was computed with."""
    floor: int
    """Least exponent it could have: that of the exact products, where no shift is needed."""
    count: int
    """Values written."""
    total: int
    """Sum of |q|."""
    saturations: int
    underflows: int = 0
    """Values closer to 0 than the smallest number of a coded format."""
    per_sample: bool = False
    """Whether each sample of the batch has values of its own."""
    uncounted: bool = False
    """Whether saturated values are not counted: a pass of the vector engine writes the tensor."""
    clipped: int = 0
    """Saturated values of such a tensor, where the golden model counts them; exponents do not
    follow these, as other back ends have no such count."""
    coarsest: int | None = None
    """Greatest exponent that the functions which read the tensor take as it is."""

    def of_samples(self, samples: int, batch: int) -> "TensorStatistics":
        """Count the values of the first ``samples`` alone: the rest of the batch is zeros."""
        if not self.per_sample or samples == batch:
            return self
        return replace(self, count=max(1, self.count * samples // batch))

    @property
    def width(self) -> int:
        """Bits of a word."""
        return self.format.width

    @property
    def is_lost(self) -> bool:
        """Whether the words do not show the scale: all are 0, or over ``LOST_SHARE`` saturated."""
        return not self.total or self.saturations > LOST_SHARE * self.count

    @property
    def saturated_part(self) -> float:
        """Part of the sum of |q| that saturated values make."""
        return (self.saturations << (self.width - 1)) / self.total if self.total else 0.0

    @property
    def saturated_energy(self) -> float:
        """Share of the sum of squares that saturated values have at least."""
        top = 1 << (self.width - 1)
        rest = max(0, self.total - self.saturations * top)
        # The mean square of normal values is pi/2 times the square of the mean of |q|.
        unsaturated = math.pi / 2 * rest**2 / max(1, self.count - self.saturations)
        saturated = self.saturations * top**2
        return saturated / (saturated + unsaturated) if saturated else 0.0

    @property
    def mean_fraction(self) -> float:
        """Mean of |q| as a fraction of full scale; of a coded format q is the word."""
        return self.total / self.count / (1 << (self.width - 1))


def _coded_jump(mean: float, allowed: ScaleRange) -> int:
    """Return the coarse move of an exponent: words do not say how far the values are off."""
    if mean > allowed.high:
        beyond = (mean - allowed.high) / (1 - allowed.high)
        return 1 if beyond < 0.25 else 2 if beyond < 0.5 else 4
    if mean < allowed.low:
        return -1 if mean > allowed.low / 2 else -2 if mean else -LOST_JUMP
    return 0


@dataclass
class Scales:
    """The exponent wanted for each tensor, by name; part of the training state."""

    ranges: ScaleRanges = field(default_factory=ScaleRanges)
    exponents: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    """Steps for which exponents do not go down, by name."""

    def copy(self) -> "Scales":
        """Return an independent copy of ranges and exponents, none of which is held."""
        return Scales(self.ranges, dict(self.exponents))

    def jump(self, statistics: Mapping[str, TensorStatistics]) -> int:
        """Move exponents as far as the statistics of one step say; returns how many moved.

        For calibration: a tensor that saturates says only that its mean is larger than counted,
        so this is repeated until nothing moves.
        """
        moved = 0
        for name, s in statistics.items():
            allowed, mean = self.ranges.of_tensor(s), s.mean_fraction
            step = 0
            if s.format.coded:
                step = max(self._by_saturation(_coded_jump(mean, allowed), s), s.floor - s.exponent)
            elif mean > allowed.high:
                step = (
                    4 if 4 * s.saturations > s.count else math.ceil(math.log2(mean / allowed.high))
                )
            elif not mean:  # zeros do not show how far the exponent is off
                step = max(-LOST_JUMP, s.floor - s.exponent)
            elif mean < allowed.low:
                step = max(-math.ceil(math.log2(allowed.low / mean)), s.floor - s.exponent)
            step = self._above_saturation(name, step, s)
            moved += step != 0
            self.exponents[name] = s.exponent + step
        return moved

    def update(self, statistics: Mapping[str, TensorStatistics]) -> int:
        """Move exponents by at most one after a step; returns how many moved."""
        moved = 0
        for name, s in statistics.items():
            limits = sum_limits(self.ranges.of_tensor(s), s.count, s.width)
            most = self._most_saturated(s)
            # Too many saturated values: a limit below every sum raises the exponent.
            high = limits.high if s.saturations <= most else -1
            above = s.exponent > s.floor and 8 * s.saturations <= most
            wanted = followed(s.exponent, s.total, limits.low, high, above=above)
            wanted = s.exponent + self._above_saturation(name, wanted - s.exponent, s)
            moved += wanted != s.exponent
            self.exponents[name] = wanted
        return moved

    def _above_saturation(self, name: str, step: int, s: TensorStatistics) -> int:
        """Return the move of an exponent that lets no more saturate than ``saturated_energy``."""
        if self.ranges.saturated_energy is None or s.format.coded:
            return step
        if self.saturates(s):
            if step < 1:  # the mean would lower the exponent again in the next step
                self.held[name] = HELD_STEPS
            return max(step, 1)
        steps = self.held.pop(name, 0)
        if steps and s.total and not self._is_faint(s):  # faint values no longer saturate
            if steps > 1:
                self.held[name] = steps - 1
            return max(step, 0)
        return step

    def saturates(self, s: TensorStatistics, most_of_fine: float = FINE_ENERGY) -> bool:
        """Return whether saturated values have too large a share of the sum of squares.

        The limit is ``saturated_energy``, and for a tensor of fine words at most ``most_of_fine``.
        """
        most = self.ranges.saturated_energy
        if most is None:
            return False
        if s.total > FINE_WORDS * s.count:
            most = min(most, most_of_fine)
        return s.saturated_energy > most

    def is_astray(self, s: TensorStatistics) -> bool:
        """Return whether an exponent is so far off that the words are no useful result.

        A caller chooses new exponents by the pass of such a tensor, and computes the pass again.
        """
        if s.is_lost:
            # Zeros at the least exponent stay zeros, whatever a second pass chooses.
            return bool(s.total) or s.exponent > s.floor
        allowed = self.ranges.of_tensor(s)
        low = allowed.low
        if s.format.coded:  # words are nearly logarithms: at a mean this high they hardly differ
            if s.mean_fraction > CODED_HIGH or s.mean_fraction < low / FAINT_BELOW:
                return True
            return s.saturations > FAINT_BELOW * self._most_saturated(s)
        if self.ranges.saturated_energy is not None:
            grown = s.mean_fraction > allowed.high
            if allowed == self.ranges.uncounted and s.mean_fraction > 2 * allowed.high:
                return True  # no engine counts its saturated values: only the mean shows growth
            if (grown and s.saturated_energy > GROWN_ENERGY) or self.saturates(s, GROWN_ENERGY):
                return True
        return self._is_faint(s)

    def _is_faint(self, s: TensorStatistics) -> bool:
        """Return whether a lower exponent would show values that now are only a few steps."""
        low, words = self.ranges.of_tensor(s).low, s.total / s.count
        return s.exponent > s.floor and words < FAINT_WORDS and s.mean_fraction < low / FAINT_BELOW

    def _by_saturation(self, step: int, s: TensorStatistics) -> int:
        """Return a jump, raised where more values saturate than the format allows."""
        if s.format.most_saturated is None:
            return step
        if s.saturations > self._most_saturated(s):
            return max(step, 1)
        # Once any value saturates the exponent falls no further: too many values would saturate,
        # and the next step would raise the exponent again.
        return max(step, 0) if s.saturations else step

    def _most_saturated(self, s: TensorStatistics) -> float:
        """Return how many values of a tensor may saturate."""
        part = s.format.most_saturated
        if self.ranges.by_means:
            return math.inf
        if part is None and s.format.coded:
            part = self.ranges.coded_saturated
        return math.inf if part is None else part * s.count


def ranges_of(name: str, *, coded_factors: bool) -> ScaleRanges:
    """Return a preset, for a network whose factors are coded or not.

    Coded factors are sparse far out, gradients come in bursts, and their tensors saturate.
    """
    saturated = MOST_SATURATED if coded_factors else None
    return replace(PRESETS[name], coded_saturated=saturated)
