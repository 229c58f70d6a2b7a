"""Automatic scale selection (section 3.3 of the paper): power-of-two exponents that follow means.

A tensor's value is integer x 2^exponent. After each step the accelerator reports sum|q| of every
tensor it wrote; the exponent for the next step moves by one when the mean of |q|, as a fraction of
full scale, leaves the window of the tensor's class.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class TensorClass(StrEnum):
    """Classes of tensors that share a width and a window."""

    ACTIVATION = "activation"
    INTERMEDIATE = "intermediate"
    GRADIENT = "gradient"


@dataclass(frozen=True)
class Window:
    """Where the mean of |q| may lie, as fractions of full scale 2^(width - 1)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high < 1:
            raise ValueError(f"a window needs 0 < low < high < 1, not [{self.low}, {self.high}]")
        if self.high < 2 * self.low:
            raise ValueError(
                f"window [{self.low}, {self.high}] is narrower than a factor of 2: exponents "
                "would move back and forth"
            )


@dataclass(frozen=True)
class Windows:
    """One window a class of tensor."""

    activation: Window = Window(0.02, 0.06)
    intermediate: Window = Window(0.02, 0.08)
    gradient: Window = Window(0.008, 0.03)

    def of(self, kind: TensorClass) -> Window:
        """The window of a class."""
        return getattr(self, kind.value)


_PAPER = Window(0.1, 0.3)
PRESETS: dict[str, Windows] = {
    "default": Windows(),
    "paper": Windows(_PAPER, _PAPER, _PAPER),
}
"""``paper`` is [0.1, 0.3] for every class; ``default`` leaves heavy tails room: activations that
saturate still pass gradients straight through, and factors that grow then saturate more of them."""


@dataclass(frozen=True)
class TensorStatistics:
    """What the accelerator counted of one tensor in one step."""

    kind: TensorClass
    width: int
    exponent: int
    """The exponent it was computed with."""
    floor: int
    """Least exponent it could have: that of the exact products, where no shift is needed."""
    count: int
    """Values written."""
    total: int
    """Sum of |q|."""
    saturations: int

    @property
    def mean_fraction(self) -> float:
        """Mean of |q| as a fraction of full scale."""
        return self.total / self.count / (1 << (self.width - 1))


@dataclass
class Scales:
    """The exponent wanted for each tensor, by name; part of the training state."""

    windows: Windows = field(default_factory=Windows)
    exponents: dict[str, int] = field(default_factory=dict)

    def jump(self, statistics: Mapping[str, TensorStatistics]) -> int:
        """Move exponents as far as the statistics of one step say; returns how many moved.

        For calibration: a tensor that saturates says only that its mean is larger than counted,
        so this is repeated until nothing moves.
        """
        moved = 0
        for name, s in statistics.items():
            window, mean = self.windows.of(s.kind), s.mean_fraction
            step = 0
            if mean > window.high:
                step = (
                    4 if 4 * s.saturations > s.count else math.ceil(math.log2(mean / window.high))
                )
            elif 0 < mean < window.low:
                step = max(-math.ceil(math.log2(window.low / mean)), s.floor - s.exponent)
            moved += step != 0
            self.exponents[name] = s.exponent + step
        return moved

    def update(self, statistics: Mapping[str, TensorStatistics]) -> int:
        """Move exponents by at most one after a step; returns how many moved."""
        moved = 0
        for name, s in statistics.items():
            window = self.windows.of(s.kind)
            wanted = s.exponent
            if s.mean_fraction > window.high:
                wanted += 1
            elif s.mean_fraction < window.low and s.exponent > s.floor and s.total:
                wanted -= 1
            moved += wanted != s.exponent
            self.exponents[name] = wanted
        return moved
