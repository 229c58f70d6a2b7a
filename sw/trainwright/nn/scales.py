"""Exponents of a layer's inputs and outputs: buffers that follow the values."""

from math import frexp

import torch

from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Format
from trainwright.nn.straight_through import straight_through

LEAST = -100
"""Least exponent: below it the numbers of float32 end."""
MOST = 2.0**128
"""Bound of float32: every finite number is smaller."""


FAR = 8
"""Distance, in powers of two, above which an input exponent moves to its data in one step. Up to it
the exponent moves by one, so that an unusual batch costs at most one bit; above it, none of 8 bits
would be left."""
MOST_PASSES = 256
"""Forward passes whose exponents a quantiser remembers, for checkpoints that compute them again."""


def in_backward() -> bool:
    """Return whether a backward pass runs; a forward pass in it belongs to a checkpoint."""
    task: int = torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage]
    return task != -1


class _Quantiser(torch.nn.Module):
    """Module that rounds values to ``fmt``; the exponent is a buffer and moves in training mode.

    ``underflow`` says what numbers that are too small become, as in ``Format.encode``.

    The first tensor in training chooses the exponent, unless it is all zeros. A pass in evaluation
    mode or under ``torch.no_grad`` moves nothing; before the first tensor in training it takes the
    exponent that suits its own values. Under DDP all processes take the exponent of the first at
    each forward pass, as of every buffer.
    """

    exponent: torch.Tensor
    calibrated: torch.Tensor

    def __init__(self, fmt: Format, *, underflow: str = "zero") -> None:
        super().__init__()
        self.fmt, self.underflow = fmt, underflow
        self.register_buffer("exponent", torch.zeros((), dtype=torch.int32))
        self.register_buffer("calibrated", torch.zeros((), dtype=torch.bool))
        self._passes: dict[tuple[object, ...], int] = {}

    def set_exponent(self, exponent: int) -> None:
        """Set the exponent; the first batch does not choose it any more."""
        self.exponent.fill_(exponent)
        self.calibrated.fill_(True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Round to multiples of 2^exponent; the gradient passes straight through."""
        follows = self.training and torch.is_grad_enabled()
        key = pass_key(values) if follows else ()
        if follows and in_backward() and key in self._passes:
            # A checkpoint computes a pass again: with the same exponent, which stays.
            exponent = self._passes[key]
            return straight_through(values, exponent, self.fmt, underflow=self.underflow)
        exponent = self.before(values, follows=follows)
        result = straight_through(values, exponent, self.fmt, underflow=self.underflow)
        if follows:
            self._remember(key, exponent)
            if bool(self.calibrated):
                self.exponent.fill_(self.after(values, exponent))
        return result

    def _remember(self, key: tuple[object, ...], exponent: int) -> None:
        self._passes.pop(key, None)
        self._passes[key] = exponent
        if len(self._passes) > MOST_PASSES:
            del self._passes[next(iter(self._passes))]

    def before(self, values: torch.Tensor, *, follows: bool = True) -> int:
        """Return the exponent for ``values``; the first values with ``follows`` set it."""
        if bool(self.calibrated):
            return int(self.exponent)
        exponent = self.first(values.detach())
        if follows and bool(values.any()):
            self.set_exponent(exponent)
        return exponent

    def first(self, values: torch.Tensor) -> int:
        """Return the exponent that suits ``values`` best."""
        raise NotImplementedError

    def after(self, values: torch.Tensor, exponent: int) -> int:
        """Return the exponent for the tensor after ``values``, which had ``exponent``."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.fmt}, exponent={int(self.exponent)}"


def pass_key(values: torch.Tensor) -> tuple[object, ...]:
    """Return a key of values, which a checkpoint computes again with the same bits."""
    v = values.detach()
    return (*v.shape, float(v.sum()), float(v.square().sum()))


def largest(values: torch.Tensor) -> float:
    """Return the greatest magnitude; 0 without values, NaN if a value is NaN."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-float(low), float(high))


class InputQuantiser(_Quantiser):
    """Quantiser of inputs: full scale is the least power of two that the largest value reaches.

    Pixels of 0..1 in 8 bits get exponent -7, and 1 becomes 127/128. The full scale of a posit is 2.
    """

    def first(self, values: torch.Tensor) -> int:
        return self.fitting(largest(values))

    def after(self, values: torch.Tensor, exponent: int) -> int:
        return self.moved(exponent, largest(values.detach()))

    def fitting(self, greatest: float) -> int:
        """Return the exponent for values of at most ``greatest`` in magnitude."""
        if not greatest < float("inf"):
            raise ValueError(
                f"cannot quantise inputs whose largest value is {greatest}: look at the data, "
                "torch.isfinite(x)"
            )
        mantissa, exponent = frexp(greatest)
        if not greatest:
            return 0
        return max(exponent - (mantissa == 0.5) + self.fmt.input_exponent, LEAST)

    def follow(self, exponent: int, greatest: float) -> None:
        """Move the exponent as after a forward pass whose largest value is ``greatest``."""
        if greatest:
            self.set_exponent(self.moved(exponent, greatest))

    def moved(self, exponent: int, greatest: float) -> int:
        """Move an exponent by one towards that for ``greatest``, or all the way.

        It moves all the way from more than FAR powers of two away.
        """
        if not greatest:
            return exponent
        wanted = self.fitting(greatest)
        if abs(wanted - exponent) > FAR:
            return wanted
        return exponent + (wanted > exponent) - (wanted < exponent)


class OutputQuantiser(_Quantiser):
    """Quantiser of outputs: the mean of |q| is held in the scale range of intermediate results."""

    def first(self, values: torch.Tensor) -> int:
        begin = 0
        greatest = largest(values)
        # Words that are all 0, or mostly saturated, do not show how far the exponent is off.
        if greatest and _is_lost(self.counted(values, begin)):
            begin = max(frexp(min(greatest, MOST))[1] + self.fmt.input_exponent, LEAST)
        scales = Scales(exponents={"y": begin})
        for _ in range(64):
            if not scales.jump({"y": self.counted(values, scales.exponents["y"])}):
                break
        return scales.exponents["y"] if greatest else 0

    def after(self, values: torch.Tensor, exponent: int) -> int:
        values = values.detach()
        counted = self.counted(values, exponent)
        if _is_lost(counted):  # a step of one would cost as many training steps as bits
            return self.first(values) if bool(values.any()) else exponent
        scales = Scales()
        scales.update({"y": counted})
        return scales.exponents["y"]

    def counted(self, values: torch.Tensor, exponent: int) -> TensorStatistics:
        """Return the accelerator's counts of a tensor that it rounds."""
        least, greatest = extremes(self.fmt)
        if self.fmt.coded:
            words = quantise(values.cpu(), exponent, self.fmt, underflow=self.underflow)
            outside = (words <= least) | (words >= greatest)
        else:
            words = torch.round(values * 2.0**-exponent)
            outside = (words < least) | (words > greatest)
        return TensorStatistics(
            kind=TensorClass.INTERMEDIATE,
            format=self.fmt,
            exponent=exponent,
            floor=LEAST,
            count=max(1, values.numel()),
            total=int(words.clamp(least, greatest).abs().sum(dtype=torch.float64)),
            saturations=int(outside.sum()),
        )


def _is_lost(counted: TensorStatistics) -> bool:
    """Return whether the words are too damaged to choose the exponent by."""
    # Coded words are nearly logarithms: with a mean this high they hardly differ.
    if counted.format.coded and counted.mean_fraction > 7 / 8:
        return True
    return counted.is_lost
