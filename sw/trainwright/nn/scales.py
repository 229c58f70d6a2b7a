"""Exponents of a layer's inputs and outputs: buffers that follow what passes through."""

from math import frexp

import torch

from trainwright.fixed.quantise import extremes, input_exponent, quantise
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Format, Posit
from trainwright.nn.straight_through import straight_through

LEAST = -100
"""Least exponent: below it the numbers of float32 end."""


class _Quantiser(torch.nn.Module):
    """Rounds what passes to ``fmt``; the exponent is a buffer and moves in training mode.

    ``underflow`` is what becomes of posits that are too small, as in ``Format.encode``.

    The first tensor that passes chooses the exponent. Under DDP all processes take that of the
    first at each forward pass, as of every buffer.
    """

    exponent: torch.Tensor
    calibrated: torch.Tensor

    def __init__(self, fmt: Format, *, underflow: str = "zero") -> None:
        super().__init__()
        self.fmt, self.underflow = fmt, underflow
        self.register_buffer("exponent", torch.zeros((), dtype=torch.int32))
        self.register_buffer("calibrated", torch.zeros((), dtype=torch.bool))

    def set_exponent(self, exponent: int) -> None:
        """Choose the exponent; it is not calibrated any more."""
        self.exponent.fill_(exponent)
        self.calibrated.fill_(True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Multiples of 2^exponent; the gradient passes straight through."""
        exponent = self.before(values)
        result = straight_through(values, exponent, self.fmt, underflow=self.underflow)
        if self.training:
            self.set_exponent(self.after(values, exponent))
        return result

    def before(self, values: torch.Tensor) -> int:
        """The exponent for ``values``."""
        if not bool(self.calibrated):
            self.set_exponent(self.first(values.detach()))
        return int(self.exponent)

    def first(self, values: torch.Tensor) -> int:
        """The exponent that suits ``values`` best."""
        raise NotImplementedError

    def after(self, values: torch.Tensor, exponent: int) -> int:
        """The exponent for what comes after ``values``: moved by one at most."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.fmt}, exponent={int(self.exponent)}"


def largest(values: torch.Tensor) -> float:
    """Greatest magnitude, 0 of no values, NaN where one is."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-float(low), float(high))


class InputQuantiser(_Quantiser):
    """Of a layer's inputs: full scale is the least power of two that the largest value reaches.

    Pixels of 0..1 in 8 bits get exponent -7, and 1 becomes 127/128. Of a posit full scale is 2.
    """

    def first(self, values: torch.Tensor) -> int:
        return self.fitting(largest(values))

    def after(self, values: torch.Tensor, exponent: int) -> int:
        return self.moved(exponent, largest(values.detach()))

    def fitting(self, greatest: float) -> int:
        """The exponent for values of at most ``greatest`` in magnitude."""
        if not greatest < float("inf"):
            raise ValueError(f"cannot quantise inputs whose largest value is {greatest}")
        mantissa, exponent = frexp(greatest)
        if not greatest:
            return 0
        return max(exponent - (mantissa == 0.5) + input_exponent(self.fmt), LEAST)

    def follow(self, exponent: int, greatest: float) -> None:
        """As after a forward pass at ``exponent`` whose largest value is ``greatest``."""
        wanted = self.moved(exponent, greatest)
        if wanted != exponent:
            self.set_exponent(wanted)

    def moved(self, exponent: int, greatest: float) -> int:
        """An exponent moved towards that for ``greatest``, by one at most."""
        wanted = self.fitting(greatest)
        return exponent + (wanted > exponent) - (wanted < exponent)


class OutputQuantiser(_Quantiser):
    """Of a layer's outputs: the mean of |q| is held in the scale range of intermediate results."""

    def first(self, values: torch.Tensor) -> int:
        scales = Scales(exponents={"y": 0})
        for _ in range(64):
            if not scales.jump({"y": self.counted(values, scales.exponents["y"])}):
                break
        return scales.exponents["y"]

    def after(self, values: torch.Tensor, exponent: int) -> int:
        scales = Scales()
        scales.update({"y": self.counted(values.detach(), exponent)})
        return scales.exponents["y"]

    def counted(self, values: torch.Tensor, exponent: int) -> TensorStatistics:
        """What the accelerator counts of a tensor it rounds."""
        least, greatest = extremes(self.fmt)
        if posit := isinstance(self.fmt, Posit):
            words = quantise(values.cpu(), exponent, self.fmt, underflow=self.underflow)
            outside = (words <= least) | (words >= greatest)
        else:
            words = torch.round(values * 2.0**-exponent)
            outside = (words < least) | (words > greatest)
        return TensorStatistics(
            kind=TensorClass.INTERMEDIATE,
            width=self.fmt.width,
            exponent=exponent,
            floor=LEAST,
            count=max(1, values.numel()),
            total=int(words.clamp(least, greatest).abs().sum(dtype=torch.float64)),
            saturations=int(outside.sum()),
            posit=posit,
        )
