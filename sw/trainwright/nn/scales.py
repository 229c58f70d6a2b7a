"""Exponents of a layer's inputs, outputs and factors: buffers that follow the values."""

from math import frexp, prod
from typing import Generic, TypeVar

import torch

from trainwright.fixed.health import (
    FEW,
    SCALE,
    WATCHED,
    ZEROS,
    LossReason,
    LostTensorWarning,
    TensorHealth,
    loss_of,
)
from trainwright.fixed.quantise import extremes, quantise
from trainwright.fixed.scale import (
    HELD_STEPS,
    LOST_SHARE,
    SATURATED_ENERGY,
    ScaleRanges,
    Scales,
    TensorClass,
    TensorStatistics,
)
from trainwright.formats import Format
from trainwright.nn.straight_through import LEAST, rounded, scaled, straight_through
from trainwright.nn.untyped import transforming
from trainwright.support.caution import warn_user
from trainwright.support.text import amount
from trainwright.train.connect import clip
from trainwright.train.pretrained import quantisation

RAISE = 3
"""Powers of two by which an input exponent rises at once for data that would saturate: the calls of
a shared layer may differ by as much. A larger rise would let one outlier round all other samples of
its batch to 0, so the exponent rises further only while over OUTLIERS of the values saturate."""
OUTLIERS = 1 / 64
"""Share of inputs that may be outliers: one sample in a batch of 64."""
MEDIAN_STEPS = 4
"""Quantisation steps that the median of the values other than 0 keeps when an exponent rises to
outliers. Rounding changes normal values with such a median by 5 %."""
LEAST_BITS = 4
"""Bits left for the largest input, below which a pass takes the exponent of its own inputs."""
FAR = 8
"""Distance, in powers of two, above which an input exponent moves to its data in one step: none of
8 bits would be left. Up to it the exponent rises by one a step, or falls after HELD_STEPS steps."""
ROUNDED_SHARE = 0.5
"""Error of rounding, as a share of a tensor's norm, above which the tensor counts as lost."""
FROZEN_SHARE = 0.2
"""Error of rounding and clipping, as a share of a tensor's norm, above which evaluation names the
tensor: its exponent will not follow."""
FROZEN_CLIPPED = 1 / 16
"""Error of clipping alone, as a share of a tensor's norm, above which evaluation names the tensor:
clipping falls on the largest samples and adds up over layers. New data of the training's kind are
below, unless one value is as large as all others, as in Student's t with 3 degrees of freedom."""
LEAST_NONZERO = 8
"""Samples in which a column of inputs must not be 0 before its loss in rounding is reported: at 8
bits the chance that 8 numbers of a normal distribution all round to 0 is 10^-16."""
SPARSE_SHARE = 1 / 16
"""Share of samples other than 0 below which a column is sparse, and its loss is not reported:
weights of rare words and dim edges of pictures are small, and say little."""
ROUNDING_ERROR = 1e-6
"""Deviation of a column, as a share of its largest value, up to which the column is constant."""
SOFTMAX_ERROR = 1e-4
"""Sum of a sample's gradient, as a share of its magnitudes, up to which it counts as 0."""
LOST_SAMPLES = 1 / 8
"""Share of samples that rounding may change by over half without a warning, as some are faint."""
WATCHED_BITS = 8
"""Bits below which columns are not watched: narrower words lose small columns by design."""
MOST_PASSES = 256
"""Forward passes whose exponents a quantiser remembers, for checkpoints that compute them again."""


def in_backward() -> bool:
    """Return whether a backward pass runs; a forward pass in it belongs to a checkpoint."""
    task: int = torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage]
    return task != -1


Used = TypeVar("Used")


class RecentPasses(Generic[Used]):
    """Exponents of the latest forward passes, for checkpoints that compute these again."""

    def __init__(self) -> None:
        self._used: dict[tuple[object, ...], Used] = {}

    def remembered(self, values: torch.Tensor) -> Used | None:
        """Return the exponents of this pass, if a checkpoint computes the pass again."""
        return self._used.get(_pass_key(values)) if in_backward() else None

    def remember(self, values: torch.Tensor, used: Used) -> None:
        """Note the exponents that the pass of ``values`` used."""
        key = _pass_key(values)
        self._used.pop(key, None)
        self._used[key] = used
        if len(self._used) > MOST_PASSES:
            del self._used[next(iter(self._used))]


def _pass_key(values: torch.Tensor) -> tuple[object, ...]:
    """Return a key of values, which a checkpoint computes again with the same bits."""
    v = values.detach()
    return (*v.shape, float(v.sum()), float(v.square().sum()))


_SCALES = Scales(ScaleRanges(saturated_energy=SATURATED_ENERGY))
"""Rule that says when the exponent of a tensor in torch is too far off (``Scales.is_astray``)."""


def _is_hidden(values: torch.Tensor) -> bool:
    """Return whether values cannot be read: in ``torch.func``, on the meta device, for size 0."""
    return transforming() or values.is_meta or not values.numel()


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
    place = "output"
    slack = 0
    """Quantisation steps by which values beyond the largest word do not count as saturated yet."""

    def __init__(self, fmt: Format, *, underflow: str = "zero", owner: str = "a layer") -> None:
        super().__init__()
        self.fmt, self.underflow, self.owner = fmt, underflow, owner
        self._health = TensorHealth()
        self._zero_passes = 0
        # Floats, because AveragedModel averages buffers, and torch truncates means of integers.
        self.register_buffer("exponent", torch.zeros(()))
        self.register_buffer("calibrated", torch.zeros(()))
        self._passes = RecentPasses[int]()

    def set_exponent(self, exponent: int) -> None:
        """Set the exponent; the first batch does not choose it any more."""
        self.exponent.fill_(exponent)
        self.calibrated.fill_(True)

    @property
    def present(self) -> int:
        """Exponent that was chosen; 0 before calibration.

        A model averaged with states from before its calibration has averaged ``calibrated`` and
        ``exponent`` alike; their quotient is the chosen exponent still.
        """
        chosen = float(self.calibrated)
        return round(float(self.exponent) / chosen) if chosen else 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Round to multiples of 2^exponent; the gradient passes straight through."""
        follows = self.training and torch.is_grad_enabled()
        exponent = self._passes.remembered(values) if follows else None
        if exponent is not None:
            # A checkpoint computes a pass again: with the same exponent, which stays.
            return straight_through(values, exponent, self.fmt, underflow=self.underflow)
        exponent = self.before(values, follows=follows)
        if not self.training and bool(self.calibrated) and not _is_hidden(values):
            self.watch_frozen(values.detach(), exponent)
        result = straight_through(values, exponent, self.fmt, underflow=self.underflow)
        if follows:
            self._passes.remember(values, exponent)
            following = self.after(values, exponent)  # it counts zeros before calibration, too
            if bool(self.calibrated):
                self.set_exponent(following)
        return result

    def before(self, values: torch.Tensor, *, follows: bool = True) -> int:
        """Return the exponent for ``values``; the first values with ``follows`` set it."""
        if bool(self.calibrated):
            exponent = self.present
            return self.suited(exponent, values.detach()) if self.training else exponent
        exponent = self.first(values.detach())
        if follows and bool(values.any()):
            self.set_exponent(exponent)
        return exponent

    def suited(self, exponent: int, values: torch.Tensor) -> int:
        """Return ``exponent``, or another one for ``values`` that would be lost with it."""
        raise NotImplementedError

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
            words = torch.round(scaled(values, exponent))
            outside = (words < least) | (words > greatest + self.slack)
        return TensorStatistics(
            kind=self.kind,
            format=self.fmt,
            exponent=exponent,
            floor=LEAST,
            # Coded words grow slowly with values, so many zeros would hide that the rest saturate.
            count=max(1, int(values.count_nonzero()) if self.fmt.coded else values.numel()),
            total=int(words.clamp(least, greatest).abs().sum(dtype=torch.float64)),
            saturations=int(outside.sum()),
        )

    def watch(self, name: str, values: torch.Tensor, counted: TensorStatistics) -> None:
        """Warn where many of the latest passes lost most of ``values``, which are not all 0."""
        loss = self._loss(values, counted)
        for message in self._health.record(name, counted.exponent, loss):
            warn_user(message, LostTensorWarning)

    def _are_zeros(self, name: str, values: torch.Tensor, exponent: int) -> bool:
        """Return whether all ``values`` are 0; warn if they were in each of the latest passes.

        Zeros before rounding can be right: the first state of a recurrent layer is 0.
        """
        if bool(values.any()):
            self._zero_passes = 0
            return False
        self._zero_passes += values.numel() > 0
        if self._zero_passes == WATCHED and values.numel():
            for message in self._health.record(name, exponent, ZEROS, steps=WATCHED):
                warn_user(message, LostTensorWarning)
        return True

    def watch_frozen(self, values: torch.Tensor, exponent: int, name: str = "") -> None:
        """Warn at once where evaluation loses most of ``values``: its exponents do not follow."""
        loss, greatest, limit = None, largest(values), self.fmt.most * 2.0**exponent
        if greatest and (greatest < limit / 4 or exponent != self.suited(exponent, values)):
            loss = self._loss(values, self.counted(values, exponent), FROZEN_SHARE)
        if loss is None and limit < greatest < float("inf"):
            clipped = self._clipped(values, exponent)
            is_large = _share(values.clamp(-limit, limit) - values, values) > FROZEN_CLIPPED
            loss = clipped if is_large else None
        name = name or f"{self.place} of {self.owner}"
        for message in self._health.at_once(name, exponent, loss):
            warn_user(message, LostTensorWarning)

    def _clipped(self, values: torch.Tensor, exponent: int, *, times: int = 1) -> LossReason | None:
        """Describe the values beyond ``times`` times the greatest word; None without any."""
        limit, greatest = self.fmt.most * 2.0**exponent, largest(values)
        if greatest <= times * limit:
            return None
        count = amount(int((values.abs() > times * limit).sum()), "value")
        return LossReason(f"clipped at {limit:.3g} in {count} (the largest is {greatest:.3g})", FEW)

    def _loss(
        self, values: torch.Tensor, counted: TensorStatistics, most: float = ROUNDED_SHARE
    ) -> LossReason | None:
        loss = loss_of(counted)
        if loss is None:
            rounded = straight_through(values, counted.exponent, self.fmt, underflow=self.underflow)
            error = _share(rounded - values, values)
            if error > most:
                loss = LossReason(f"changed by {error:.0%} in rounding", SCALE)
        return loss

    def is_astray(self, values: torch.Tensor, exponent: int) -> bool:
        """Return whether ``values`` would be lost with ``exponent``."""
        return _SCALES.is_astray(self.counted(values, exponent))

    def extra_repr(self) -> str:
        return f"{self.fmt}, exponent={self.present}"


def _share(part: torch.Tensor, values: torch.Tensor) -> float:
    """Return the norm of ``part`` as a share of that of ``values``, which are not all 0."""
    greatest = largest(values)  # without it squares of numbers such as 1e-300 would be 0
    squares = [float((v.double() / greatest).square().sum()) for v in (part, values)]
    return (squares[0] / squares[1]) ** 0.5


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
    place = "input"
    slack = 1
    feature_axis = -1
    """Axis of the features: -1 for columns, -3 for the channels of images."""
    quiet: torch.Tensor

    def __init__(self, fmt: Format, *, underflow: str = "zero", owner: str = "a layer") -> None:
        super().__init__(fmt, underflow=underflow, owner=owner)
        self.register_buffer("quiet", torch.zeros(()))
        self._first_columns: list[torch.Tensor] | None = []
        """Columns of the first samples, None once they were judged."""
        self._reported: set[str] = set()

    def first(self, values: torch.Tensor) -> int:
        return self.fitting(largest(values))

    def after(self, values: torch.Tensor, exponent: int) -> int:
        own, hidden = values.detach(), values.requires_grad
        self.watch_inputs(f"input of {self.owner}", own, exponent, hidden=hidden)
        return self.moved(exponent, largest(own))

    def watch_inputs(self, name: str, values: torch.Tensor, exponent: int, *, hidden: bool) -> None:
        """Warn where training loses inputs; ``hidden`` inputs are the outputs of other layers.

        Columns and samples of hidden inputs are not watched: those of activations may be small for
        a while.
        """
        if self._are_zeros(name, values, exponent):
            return
        if clipped := self._clipped(values, exponent, times=2 if hidden else 1):
            self._warn_once("clipped", f"{name} was {clipped.what}: {clipped.remedy}")
        elif not hidden and self.fmt.width >= WATCHED_BITS:
            self._watch_columns(name, values, exponent)
            self._watch_samples(name, values, exponent)
        self.watch(name, values, self.counted(values, exponent))

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            warn_user(message, LostTensorWarning)

    def _held(self, values: torch.Tensor, exponent: int) -> torch.Tensor:
        return rounded(values, exponent, self.fmt, underflow=self.underflow)

    def unrounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values``, rounded if a warning named their loss.

        A layer that measures what rounding its outputs loses then does not count this loss again.
        """
        named = self._reported or self._health.reported
        return self._held(values, self.present) if named else values

    def _watch_columns(self, name: str, values: torch.Tensor, exponent: int) -> None:
        """Warn where columns of the first samples become constants next to far larger columns."""
        axis = self.feature_axis
        if self._first_columns is None:
            return
        own = values.movedim(axis, -1).reshape(-1, values.shape[axis])
        columns = torch.cat([*(c for c in self._first_columns if c.shape[1] == own.shape[1]), own])
        self._first_columns = [columns]
        if len(columns) < LEAST_NONZERO:
            return
        self._first_columns = None
        held, least = self._held(columns, exponent), max(LEAST_NONZERO, SPARSE_SHARE * len(columns))
        lost = (columns.count_nonzero(0) >= least) & ~held.any(0)
        # A column far from 0, such as one of years, keeps its mean but may lose its differences.
        differs = (columns != columns.median(0).values).sum(0) >= least
        spread = columns.double().std(0)
        differs &= spread > ROUNDING_ERROR * columns.abs().amax(0)
        lost |= differs & ((held - columns).double().std(0) > ROUNDED_SHARE * spread)
        if not (count := int(lost.sum())):
            return
        what = "columns" if axis == -1 else "channels"
        number = int(lost.nonzero()[0])
        least, most = map(float, torch.aminmax(columns[:, number]))
        self._warn_once(
            "columns",
            f"{name}: {count} of {len(lost)} {what} ({count / len(lost):.0%}) round to 0 or to "
            f"constants, such as number {number} of values from {least:.4g} to {most:.4g} next to "
            f"{largest(columns):.3g}: standardise the "
            f"{what}, such as by (x - mean) / deviation of each",
        )

    def _changed(self, values: torch.Tensor, exponent: int) -> torch.Tensor:
        """Return for each sample whether rounding changes it by more than half."""
        rows = values.reshape(-1, prod(values.shape[self.feature_axis :])).double()
        error, size = (self._held(rows, exponent) - rows).square().sum(1), rows.square().sum(1)
        return error > ROUNDED_SHARE**2 * size

    def _watch_samples(self, name: str, values: torch.Tensor, exponent: int) -> None:
        """Warn where many samples are lost next to far larger ones."""
        changed = self._changed(values, exponent)
        count = int(changed.sum())
        if count > LOST_SAMPLES * len(changed):
            self._warn_once(
                "samples",
                f"{name}: {count} of {amount(len(changed), 'sample')} "
                f"({count / len(changed):.0%}) change by over half in rounding, next to values "
                f"up to {largest(values):.3g}: scale samples alike, such as each "
                "by its norm, or take logarithms",
            )

    def _loss(
        self, values: torch.Tensor, counted: TensorStatistics, most: float = ROUNDED_SHARE
    ) -> LossReason | None:
        loss = super()._loss(values, counted)
        if loss is not None or self.training:
            return loss
        clipped = self._clipped(values, counted.exponent, times=2)
        if clipped and self._changed(values, counted.exponent).any():
            return clipped
        return super()._loss(values, counted, most)

    def suited(self, exponent: int, values: torch.Tensor) -> int:
        greatest = largest(values)
        wanted = self.fitting(greatest) if greatest else exponent
        if self.fmt.width - 1 - (exponent - wanted) < LEAST_BITS:
            return wanted
        raised = max(exponent, min(wanted, exponent + RAISE))
        if raised < wanted and not self.fmt.coded:
            # A rise up to this exponent leaves the median value MEDIAN_STEPS steps.
            median = float(values[values != 0].abs().median())
            raised = max(raised, min(wanted, frexp(median / MEDIAN_STEPS)[1] - 1))
        while raised < wanted and self._saturates(values, raised):
            raised += 1
        return raised

    def _saturates(self, values: torch.Tensor, exponent: int) -> bool:
        counted = self.counted(values, exponent)
        return counted.saturations > OUTLIERS * counted.count

    def fitting(self, greatest: float) -> int:
        """Return the exponent for values of at most ``greatest`` in magnitude."""
        if not greatest < float("inf"):
            raise ValueError(
                f"cannot quantise inputs whose largest value is {greatest}: check the data with "
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

        It moves all the way from more than FAR powers of two away, and down by one only after
        HELD_STEPS passes that want it: ``quiet`` counts them. The few samples of an epoch's last
        batch have a smaller largest value, and evaluation would clip all data at that.
        """
        if not greatest:
            return exponent
        wanted = self.fitting(greatest)
        self.quiet.copy_(self.quiet + 1 if wanted < exponent else self.quiet.new_zeros(()))
        if abs(wanted - exponent) > FAR:
            return wanted
        return exponent + (wanted > exponent) - (float(self.quiet) > HELD_STEPS)


class OutputQuantiser(_Quantiser):
    """Quantiser of outputs: the mean of |q| is held in the scale range of intermediate results.

    Few values saturate, as ``Scales.saturates`` counts them: a few samples
    among zeros have no say in a mean.
    """

    def first(self, values: torch.Tensor) -> int:
        begin = 0
        greatest = self._greatest(values)
        # Words that are all 0, or mostly saturated, do not show how far the exponent is off.
        if greatest and self.is_astray(values, begin):
            begin = max(frexp(greatest)[1] + self.fmt.input_exponent, LEAST)
        scales = Scales(exponents={"y": begin})
        for _ in range(64):
            if not scales.jump({"y": self.counted(values, scales.exponents["y"])}):
                break
        return self._unsaturated(values, scales.exponents["y"]) if greatest else 0

    def _greatest(self, values: torch.Tensor) -> float:
        greatest = largest(values)
        if not greatest < float("inf"):
            raise ValueError(
                f"outputs of {self.owner} overflow {values.dtype} (the largest is {greatest}): "
                "lower the learning rate, or check the scale of inputs and weights"
            )
        return greatest

    def _unsaturated(self, values: torch.Tensor, exponent: int) -> int:
        """Return the least exponent from ``exponent`` on that lets few of ``values`` saturate."""
        while _SCALES.saturates(self.counted(values, exponent)):
            exponent += 1
        return exponent

    def suited(self, exponent: int, values: torch.Tensor) -> int:
        if not self._greatest(values) or not self.is_astray(values, exponent):
            return exponent
        # A step of one after each pass would lose as many passes as bits.
        return self.first(values)

    def after(self, values: torch.Tensor, exponent: int) -> int:
        values = values.detach()
        name = f"output of {self.owner}"
        if self._are_zeros(name, values, exponent):
            return exponent
        counted = self.counted(values, exponent)
        self.watch(name, values, counted)
        scales = Scales()
        if scales.update({"y": counted}) or counted.saturations:
            return self._unsaturated(values, scales.exponents["y"])
        return exponent


class GradientColumns:
    """Warns once where a loss gives some outputs far smaller gradients than others."""

    def __init__(self, fmt: Format) -> None:
        self._fmt = fmt
        self.ended = fmt.width < WATCHED_BITS
        """Whether nothing is to be judged any more."""

    def watch(self, name: str, gradient: torch.Tensor, axis: int = -1) -> None:
        """Judge the first gradient of outputs that has at least LEAST_NONZERO samples."""
        if self.ended or gradient.numel() < LEAST_NONZERO * gradient.shape[axis]:
            return
        columns = gradient.detach().movedim(axis, -1).reshape(-1, gradient.shape[axis])
        greatest = largest(columns)
        if not 0 < greatest < float("inf"):
            return
        self.ended = True
        held = rounded(columns, self._fmt.fitting_exponent(greatest), self._fmt)
        lost = (columns.count_nonzero(0) >= LEAST_NONZERO) & ~held.any(0)
        # Softmax makes gradients whose samples sum to 0, and small positive ones of improbable
        # classes, which are no loss.
        lost &= (columns < 0).any(0)
        total, size = columns.double().sum(1).abs(), columns.double().abs().sum(1)
        if (count := int(lost.sum())) and bool((total > SOFTMAX_ERROR * size).any()):
            number = int(lost.nonzero()[0])
            message = (
                f"gradients of the outputs of {name}: {count} of "
                f"{amount(len(lost), 'column')} round to 0, such as number {number} of gradients "
                f"up to {largest(columns[:, number]):.3g} next to {greatest:.3g}: "
                "bring targets to one scale, such as by (y - mean) / deviation of each column, or "
                "give them layers of their own"
            )
            warn_user(message, LostTensorWarning)


BIAS_SHARE = 0.25
"""Bias, as a share of the norm of its output's weights, above which its loss in rounding is named.

The norm is the output's deviation for inputs of deviation 1. A trained layer has values of any size
down to 0, and those below the step are mostly below this share."""


def lost_bias(bias: torch.Tensor, weight: torch.Tensor, fmt: Format) -> str:
    """Describe values of a bias (J,) that round to 0 and matter; empty without any.

    ``weight`` (J, ...) has the weights of each output.
    """
    own, greatest = bias.detach().cpu().double(), largest(bias.detach())
    if fmt.width < WATCHED_BITS or not 0 < greatest < float("inf"):
        return ""
    held = rounded(own, fmt.fitting_exponent(greatest), fmt)
    size = weight.detach().cpu().double().flatten(1).square().sum(1).sqrt()
    lost = (held == 0) & (own.abs() > BIAS_SHARE * size)
    if not bool(lost.any()):
        return ""
    number = int(lost.nonzero()[0])
    return (
        f"{int(lost.sum())} of {amount(len(own), 'value')} of its bias round to 0, such as number "
        f"{number} of {float(own[number]):.3g} next to {greatest:.3g} ({fmt.width} bits, one "
        "exponent): bring outputs to one scale, or give them layers of their own"
    )


FAINT_SHARE = 0.25
"""Error of rounding, as a share of a factor's norm, above which its exponent changes.

Normal factors begin with a deviation of 3 steps and an error of 0.11; with 1.1 steps it is 0.25."""
CLIPPED_SHARE = 1 / 16
"""Share of a factor's values that are clipped at once, and of its norm that clipping takes, above
which the factor gets the exponent that loses least. Steps of optimisers clip less; weights that
were doubled from outside lost 69 % of the outputs of two layers."""
FAINT_STEPS = 4
"""Quantisation steps below which the largest value of a factor must be for its error to be
measured: to save time. A faint factor has a deviation of at most 1.1 steps, and the largest of a
thousand such values is about 4 steps."""


def factor_exponent(values: torch.Tensor, exponent: int, fmt: Format) -> int:
    """Return the exponent of a factor of ``values``: ``exponent`` unless that loses the factor.

    A factor keeps the exponent that it began with, as in the trainer, unless the factor is lost:
    over a quarter of its values are clipped, or clipping takes over a sixteenth of its norm, or
    rounding takes over a quarter of its norm. The exponent then changes to the one that loses
    least, and in the first case rises by at least 1.
    """
    greatest = largest(values)
    if not greatest or not greatest < float("inf"):
        return exponent
    held = clip(values, exponent, fmt)
    clipped = int((held != values).sum()) / values.numel()
    if clipped > LOST_SHARE:
        return max(exponent + 1, quantisation(values, fmt))
    if clipped > CLIPPED_SHARE and _share(held - values, values) > CLIPPED_SHARE:
        return max(exponent, quantisation(values, fmt))
    is_faint = (
        greatest < FAINT_STEPS * fmt.step * 2.0**exponent
        and _share(rounded(values, exponent, fmt) - values, values) > FAINT_SHARE
    )
    return quantisation(values, fmt) if is_faint else exponent
