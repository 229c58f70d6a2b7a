"""Exponents of a layer's inputs, outputs and factors: buffers that follow the values."""

import warnings
from math import frexp

import torch

from trainwright.fixed.health import SCALE, LossReason, LostTensorWarning, TensorHealth, loss_of
from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import (
    LOST_SHARE,
    SATURATED_SUM,
    Scales,
    TensorClass,
    TensorStatistics,
)
from trainwright.formats import Format
from trainwright.nn.straight_through import rounded, straight_through
from trainwright.train.connect import clip
from trainwright.train.pretrained import quantisation

LEAST = -100
"""Least exponent: below it the numbers of float32 end."""
MOST = 2.0**128
"""Bound of float32: every finite number is smaller."""


RAISE = 3
"""Powers of two that an input exponent rises at once for data that would saturate: calls of a
shared layer may differ by that. More would let one outlier round all other samples of its batch
to 0."""
FAR = 8
"""Distance, in powers of two, above which an input exponent moves to its data in one step: none of
8 bits would be left. Up to it the exponent falls by one a step."""
ROUNDED_SHARE = 0.5
"""Error of rounding, as a share of a tensor's norm, above which the tensor counts as lost."""
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
    kind = TensorClass.INTERMEDIATE
    slack = 0
    """Words beyond the largest one that count as the largest."""

    def __init__(self, fmt: Format, *, underflow: str = "zero", owner: str = "a layer") -> None:
        super().__init__()
        self.fmt, self.underflow, self.owner = fmt, underflow, owner
        self._health = TensorHealth()
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
            exponent = int(self.exponent)
            return self.raised(exponent, values.detach()) if self.training else exponent
        exponent = self.first(values.detach())
        if follows and bool(values.any()):
            self.set_exponent(exponent)
        return exponent

    def raised(self, exponent: int, values: torch.Tensor) -> int:
        """Return the exponent for ``values``, where that of the tensors before is ``exponent``."""
        return exponent

    def first(self, values: torch.Tensor) -> int:
        """Return the exponent that suits ``values`` best."""
        raise NotImplementedError

    def after(self, values: torch.Tensor, exponent: int) -> int:
        """Return the exponent for the tensor after ``values``, which had ``exponent``."""
        raise NotImplementedError

    def counted(self, values: torch.Tensor, exponent: int) -> TensorStatistics:
        """Return the accelerator's counts of a tensor that it rounds."""
        least, greatest = extremes(self.fmt)
        if self.fmt.coded:
            words = quantise(values.cpu(), exponent, self.fmt, underflow=self.underflow)
            outside = (words <= least) | (words >= greatest)
        else:
            words = torch.round(values * 2.0**-exponent)
            outside = (words < least) | (words > greatest + self.slack)
        return TensorStatistics(
            kind=self.kind,
            format=self.fmt,
            exponent=exponent,
            floor=LEAST,
            count=max(1, values.numel()),
            total=int(words.clamp(least, greatest).abs().sum(dtype=torch.float64)),
            saturations=int(outside.sum()),
        )

    def watch(self, name: str, values: torch.Tensor, counted: TensorStatistics) -> None:
        """Warn where many of the latest passes lost most of ``values``, which are not all 0."""
        loss = loss_of(counted)
        if loss is None:
            rounded = straight_through(values, counted.exponent, self.fmt, underflow=self.underflow)
            error = _length(rounded - values) / _length(values)
            if error > ROUNDED_SHARE:
                loss = LossReason(f"changed by {error:.0%} in rounding", SCALE)
        for message in self._health.record(name, counted.exponent, loss):
            warnings.warn(message, LostTensorWarning, stacklevel=2)

    def extra_repr(self) -> str:
        return f"{self.fmt}, exponent={int(self.exponent)}"


def pass_key(values: torch.Tensor) -> tuple[object, ...]:
    """Return a key of values, which a checkpoint computes again with the same bits."""
    v = values.detach()
    return (*v.shape, float(v.sum()), float(v.square().sum()))


def _length(values: torch.Tensor) -> float:
    return float(values.double().square().sum()) ** 0.5


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

    kind = TensorClass.ACTIVATION
    slack = 1

    def first(self, values: torch.Tensor) -> int:
        return self.fitting(largest(values))

    def after(self, values: torch.Tensor, exponent: int) -> int:
        values = values.detach()
        if bool(values.any()):  # zeros of the user's own are no loss
            self.watch(f"input of {self.owner}", values, self.counted(values, exponent))
        return self.moved(exponent, largest(values))

    def raised(self, exponent: int, values: torch.Tensor) -> int:
        greatest = largest(values)
        return (
            max(exponent, min(self.fitting(greatest), exponent + RAISE)) if greatest else exponent
        )

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
    """Quantiser of outputs: the mean of |q| is held in the scale range of intermediate results.

    Saturated values make at most ``SATURATED_SUM`` of the sum of |q|: a few samples among zeros
    have no say in a mean.
    """

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
        return self._unsaturated(values, scales.exponents["y"]) if greatest else 0

    def _unsaturated(self, values: torch.Tensor, exponent: int) -> int:
        """Return the least exponent from ``exponent`` on that lets few of ``values`` saturate."""
        while self.counted(values, exponent).saturated_part > SATURATED_SUM:
            exponent += 1
        return exponent

    def after(self, values: torch.Tensor, exponent: int) -> int:
        values = values.detach()
        counted = self.counted(values, exponent)
        if bool(values.any()):
            self.watch(f"output of {self.owner}", values, counted)
        if _is_lost(counted):  # a step of one would cost as many training steps as bits
            return self.first(values) if bool(values.any()) else exponent
        scales = Scales()
        if scales.update({"y": counted}) or counted.saturations:
            return self._unsaturated(values, scales.exponents["y"])
        return exponent


def _is_lost(counted: TensorStatistics) -> bool:
    """Return whether the words are too damaged to choose the exponent by."""
    # Coded words are nearly logarithms: with a mean this high they hardly differ.
    if counted.format.coded and counted.mean_fraction > 7 / 8:
        return True
    return counted.is_lost


FAINT_SHARE = 0.25
"""Error of rounding, as a share of a factor's norm, above which its exponent changes.

Normal factors begin with a deviation of 3 steps and an error of 0.11; with 1.1 steps it is 0.25."""
FAINT_STEPS = 4
"""Steps at 4 bits below which the largest value must be for the error to be measured: to save time.
It is 4 where a deviation of 1.1 steps has over a thousand values."""


def factor_exponent(values: torch.Tensor, exponent: int, fmt: Format) -> int:
    """Return the exponent of a factor of ``values``: ``exponent`` unless that loses the factor.

    A factor keeps the exponent it began with, as in the trainer. It is lost where over a quarter
    of its values lie beyond the words, or rounding takes that of its norm: the exponent then
    changes to the one that loses least, and in the first case by at least 1.
    """
    greatest = largest(values)
    if not greatest or not greatest < float("inf"):
        return exponent
    held = clip(values, exponent, fmt)
    if int((held != values).sum()) > LOST_SHARE * values.numel():
        return max(exponent + 1, quantisation(values, fmt))
    if greatest < FAINT_STEPS * fmt.step * 2.0**exponent:
        error = _length(rounded(values, exponent, fmt) - values)
        if error > FAINT_SHARE * _length(values):
            return quantisation(values, fmt)
    return exponent
