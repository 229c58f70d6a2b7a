"""Figure 2: decimal accuracy of 8-bit numbers: fixed-point, floating-point and posit.

The decimal accuracy of a format at x is -log10 |log10(x' / x)|, where x' is x rounded. The curves
show its minimum, half-way between two neighbours: Gustafson and Yonemoto's worst case.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.posit.rounding import decode


@dataclass(frozen=True)
class Curve:
    """Decimal accuracy of one format between each two neighbouring positive numbers."""

    name: str
    x: tuple[float, ...]
    """Midpoints of neighbours, increasing."""
    decimals: tuple[float, ...]


def fixed(n: int = 8, fraction: int = 4) -> Tensor:
    """Return the positive ``n``-bit numbers with ``fraction`` bits below the point."""
    return torch.arange(1, 1 << (n - 1), dtype=torch.float64) * 2.0**-fraction


def floating(exponent: int = 4, fraction: int = 3) -> Tensor:
    """Return the positive numbers of an IEEE-like float, subnormal ones included, increasing."""
    bias = (1 << (exponent - 1)) - 1
    fields = torch.arange(1, ((1 << exponent) - 1) << fraction, dtype=torch.int64)
    scale, digits = fields >> fraction, (fields & ((1 << fraction) - 1)).to(torch.float64)
    normal = (scale > 0).to(torch.float64)
    power = (scale.clamp(min=1) - bias).to(torch.float64)
    return (normal + digits * 2.0**-fraction) * torch.exp2(power)


def posits(fmt: PositFormat) -> Tensor:
    """Return the positive numbers of a posit format, increasing."""
    return decode(torch.arange(1, fmt.nar), fmt)


def curve(name: str, numbers: Tensor) -> Curve:
    """Compute the accuracy between neighbours of ``numbers``, positive and increasing."""
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    worst = torch.maximum((low / middle).log10().abs(), (high / middle).log10().abs())
    return Curve(name, tuple(middle.tolist()), tuple((-worst.log10()).tolist()))


def run() -> list[Curve]:
    """Compare fixed point with 4 fraction bits, a 4-bit-exponent float, and posits of es 0 to 2."""
    return [
        curve("fixed, 4 bits below the point", fixed()),
        curve("float, 4 exponent bits", floating()),
        *(curve(str(fmt), posits(fmt)) for fmt in (PositFormat(8, es) for es in range(3))),
    ]
