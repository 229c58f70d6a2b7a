"""Exponents of a layer's inputs and outputs: buffers that follow what passes through."""

from math import frexp

import torch

from trainwright.fixed.quantise import extremes, input_exponent, quantise
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Format, Posit
from trainwright.nn.straight_through import straight_through
from trainwright.nn.untyped import is_backward

LEAST = -100
"""Least exponent: below it the numbers of float32 end."""
FAR = 8
"""Powers of two above which an input exponent moves to the data in one step: nearer, it moves by
one, so that a batch that is out of line costs at most one bit. Of 8 bits farther away none is
left."""
PASSES = 64
"""Training passes whose exponents are kept for checkpoints; those of a step that has more layers
calls than that, of one layer, are not repeated exactly."""


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
        self._passed: dict[object, tuple[int, bool]] = {}
        """Exponents of the last training passes, and whether the exponent moved after each."""
        self.register_buffer("exponent", torch.zeros((), dtype=torch.int32))
        self.register_buffer("calibrated", torch.zeros((), dtype=torch.bool))

    def restart(self) -> None:
        """Forget the exponent: the next tensor with a value other than 0 chooses one."""
        self.calibrated.fill_(False)

    def set_exponent(self, exponent: int) -> None:
        """Choose the exponent; it is not calibrated any more."""
        self.exponent.fill_(exponent)
        self.calibrated.fill_(True)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Multiples of 2^exponent; the gradient passes straight through."""
        exponent = self.before(values)
        result = straight_through(values, exponent, self.fmt, underflow=self.underflow)
        self.follow(values.detach(), exponent)
        return result

    def before(self, values: torch.Tensor) -> int:
        """Return the exponent for ``values``: that of the first pass where a checkpoint repeats it.

        Only a training pass keeps the exponent that its tensor chooses: what passes in evaluation
        mode or under ``no_grad`` (a shape check, a probe) must not decide what training computes.
        Zeros choose nothing, because they say nothing about the values that come.
        """
        values = values.detach()
        if self.training and is_backward() and (earlier := self._passed.get(_key(values))):
            return earlier[0]
        return int(self.exponent) if bool(self.calibrated) else self.first(values)

    def follow(self, values: torch.Tensor, exponent: int, *, moves: bool | None = None) -> None:
        """Move the exponent after a training pass of ``values`` at ``exponent``.

        Passes are kept for checkpoints: with ``use_reentrant`` the first pass is under ``no_grad``
        and the repetition moves the exponent, else the first pass does. ``moves``: whether
        gradients are enabled, where the caller has disabled them itself.
        """
        if not self.training:
            return
        key, moves = _key(values), torch.is_grad_enabled() if moves is None else moves
        if is_backward() and self._passed.get(key, (0, False))[1]:
            return
        self._passed[key] = exponent, moves
        if len(self._passed) > PASSES:
            del self._passed[next(iter(self._passed))]
        if not moves:
            return
        if not bool(self.calibrated) and bool(values.any()):
            self.set_exponent(exponent)
        if bool(self.calibrated):
            wanted = self.after(values, exponent)
            if wanted != exponent:
                self.set_exponent(wanted)

    def first(self, values: torch.Tensor) -> int:
        """The exponent that suits ``values`` best."""
        raise NotImplementedError

    def after(self, values: torch.Tensor, exponent: int) -> int:
        """The exponent for what comes after ``values``: moved by one, or at once if far away."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.fmt}, exponent={int(self.exponent)}"


def largest(values: torch.Tensor) -> float:
    """Greatest magnitude, 0 of no values, NaN where one is."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-float(low), float(high))


def _key(values: torch.Tensor) -> object:
    """Tell tensors of different passes apart, at the price of two sums."""
    return tuple(values.shape), float(values.sum(dtype=torch.float64)), largest(values)


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

    def moved(self, exponent: int, greatest: float) -> int:
        """An exponent moved towards the one for ``greatest``; zeros move nothing."""
        if not greatest:
            return exponent
        wanted = self.fitting(greatest)
        if abs(wanted - exponent) > FAR:
            return wanted
        return exponent + (wanted > exponent) - (wanted < exponent)


class OutputQuantiser(_Quantiser):
    """Of a layer's outputs: the mean of |q| is held in the scale range of intermediate results."""

    def first(self, values: torch.Tensor) -> int:
        scales, greatest = Scales(exponents={"y": 0}), largest(values)
        # Values that all round to 0 or all saturate do not say how far away they are: their
        # magnitude does.
        counted = self.counted(values, 0)
        if 0 < greatest < float("inf") and (not counted.total or _saturates(counted)):
            exponent = frexp(greatest)[1] + input_exponent(self.fmt)
            scales.exponents["y"] = max(exponent, LEAST)
        for _ in range(64):
            if not scales.jump({"y": self.counted(values, scales.exponents["y"])}):
                break
        return scales.exponents["y"]

    def after(self, values: torch.Tensor, exponent: int) -> int:
        counted = self.counted(values.detach(), exponent)
        if not counted.total or _saturates(counted):
            return self.first(values) if bool(values.any()) else exponent
        scales = Scales()
        scales.update({"y": counted})
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


def _saturates(counted: TensorStatistics) -> bool:
    """Whether so many values saturate that their magnitude says more than their mean."""
    # Words of posits are nearly logarithms: such a mean leaves no room for their differences.
    if counted.posit:
        return counted.mean_fraction > 7 / 8
    return 4 * counted.saturations > counted.count  # the share of ``Scales.jump``
