"""The settings of a training run, frozen. All of them decide the bits of the result."""

from dataclasses import asdict, field, replace
from math import cos, pi
from typing import Annotated, Any

from msgspec import Meta

from trainwright.fixed.random_bits import ROUNDINGS
from trainwright.fixed.scale import PRESETS
from trainwright.onchip.choices import LOSS_NAMES, OPTIMISERS
from trainwright.program.samples import PIXEL_WIDTHS
from trainwright.support.plain import of_plain
from trainwright.support.settings import OneOf, Option, Positive, SettingsModel, check
from trainwright.support.text import amount
from trainwright.train.choices import (
    CUT_PROGRAMS,
    FACTOR_SCALES,
    MASTER_WEIGHTS,
    MOMENTS,
    PRIOR_FORMS,
    SCALES,
    SCHEDULES,
    SPREAD,
)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


class PriorSettings(SettingsModel):
    """The rank prior and when a column counts as gone."""

    form: Annotated[str, OneOf(PRIOR_FORMS), Option("prior-form")] = "storage"
    """storage: weigh a column by what it costs to store (``train.storage_prior``); paper: equations
    1, 2 and 4"""
    weight: Annotated[float, Meta(gt=0), Option("prior-weight", "W")] = 0.25
    """prior weight w in units of 1/|D|; |D| is the number of samples in the train split"""
    warmup: Annotated[float, Meta(ge=0, lt=1), Option("prior-warmup", "PART")] = 0.1
    """part of the run over which the weight rises linearly from 0"""
    threshold: Annotated[float, Meta(gt=0, lt=1), Option("rank-threshold", "PART")] = 0.02
    """cut a column whose strength (paper: lambda) is below this part of the largest of its bond"""
    interval: Annotated[Positive, Option("rank-interval")] = 10
    """steps between two checks of the columns; with --update host each cut compiles new programs"""

    __post_init__ = check


FEW_STEPS, ENOUGH_STEPS = 100, 300
"""Steps below which a run of the default length gets a note, and steps that the note proposes: on
tables of 150 to 570 rows 10 to 70 steps end with 37 to 86 %, 300 and more with 90 to 98 %."""


class ChipSettings(SettingsModel):
    """Loss and update as the accelerator does them (``trainwright.onchip``)."""

    optimiser: Annotated[str, OneOf(OPTIMISERS)] = "esgd"
    """optimiser on the chip; esgd: a change is proportional to the gradient's integer; momentum: to
    the gradient's value"""
    loss: Annotated[str, OneOf(LOSS_NAMES)] = "cross-entropy"
    """loss on the chip"""
    pixels: Annotated[int, OneOf(PIXEL_WIDTHS)] = 8
    """bits in which the chip stores a pixel of the data set"""
    cut_programs: Annotated[str, OneOf(CUT_PROGRAMS)] = "kept"
    """programs after a cut on the chip; kept: those of the initial ranks, so that the accelerator
    cuts alone; fitted: new ones for the remaining ranks, which are shorter and round differently"""

    __post_init__ = check


class TrainSettings(SettingsModel):
    """Settings of one training run.

    Two runs with equal settings and data give equal bits on every back end.
    """

    epochs: Positive = 20
    """passes over the training samples"""
    batch: Positive = 64
    """samples a step; samples after the last full batch of an epoch are not used in it"""
    micro_batches: Annotated[Positive, Option(metavar="M")] = 1
    """equal parts of a batch, which workers under torchrun share; sums of integers make the bits
    independent of which worker runs which part"""
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    """seed of initial factors, order of samples and random rounding"""
    learning_rate: Annotated[float, Meta(gt=0, lt=1), Option("lr", "RATE")] = 1e-2
    """learning rate of Adam, or of the update on the chip (``trainwright.onchip.update``)"""
    schedule: Annotated[str, OneOf(SCHEDULES)] = "cosine"
    """course of the learning rate"""
    steps: Positive | None = None
    """steps after which the run and its schedules end (default: all epochs)"""
    scale_range: Annotated[str, OneOf(tuple(PRESETS))] = "default"
    """range of full scale in which means of tensors are held"""
    scales: Annotated[str, OneOf(SCALES)] = "automatic"
    """exponents of the tensors; automatic: they follow the tensors' means; frozen: they stay after
    the first batch; all-frozen: those of biases (2^``BIAS_RANGE`` at most) and of the gradient of
    the logits stay, too"""
    spread: Annotated[float, Meta(ge=0.25, le=8), Option(metavar="STEPS")] = SPREAD
    """standard deviation of the initial factors in quantisation steps at 4 bits, up to the rounding
    to a power of two"""
    factor_scales: Annotated[str, OneOf(FACTOR_SCALES)] = "fixed"
    """exponents of the factors; fixed: as at the start; automatic: they follow the factors' size;
    blocks: a scale for each column of a bond (``train.blocks``)"""
    master_weights: Annotated[str, OneOf(MASTER_WEIGHTS)] = "float32"
    """type of the master weights between steps (``train.storage``)"""
    moments: Annotated[str, OneOf(MOMENTS)] = "float32"
    """type of Adam's moments between steps (``train.storage``)"""
    rounding: Annotated[str, OneOf(ROUNDINGS), Option("rounding-mode")] = "nearest"
    """rounding on the accelerator; nearest: no result at random; stochastic-gradients: results of
    backward passes at random; stochastic: all"""
    prior: PriorSettings | None = field(default_factory=PriorSettings)
    """rank prior; None for none"""
    chip: ChipSettings | None = None
    """update on the chip; None for one on the host"""

    def __post_init__(self) -> None:
        check(self)
        _require(
            self.batch % self.micro_batches == 0,
            f"micro-batches must divide the batch {self.batch}, not be {self.micro_batches!r}",
        )
        # After the ranges, so that a misspelt choice is called unknown rather than unsuitable for
        # the chip.
        if self.chip is not None:
            self._check_chip()

    def _check_chip(self) -> None:
        """Reject choices that an update on the chip does not have."""
        fixed = {"master_weights": "float32", "moments": "float32", "factor_scales": "fixed"}
        for name, only in fixed.items():
            value = getattr(self, name)
            _require(
                value == only,
                f"{name.replace('_', ' ')} {value!r} is for an update on the host: omit it, or use "
                "--update host",
            )
        _require(
            self.scales != "all-frozen",
            "scales 'all-frozen' is for an update on the host: use --scales frozen, or --update "
            "host",
        )
        _require(
            self.prior is None or self.prior.form == "storage",
            "an update on the chip has prior form storage only: use it, or --update host",
        )

    @property
    def micro_batch(self) -> int:
        """Samples of a step of one accelerator."""
        return self.batch // self.micro_batches

    def total_steps(self, samples: int) -> int:
        """Return the steps of the whole run on ``samples`` training samples."""
        # Samples after the last full batch are dropped: programs have one batch size.
        steps = self.epochs * (samples // self.batch)
        return steps if self.steps is None else min(steps, self.steps)

    def length_notes(self, samples: int, *, asked: bool = True) -> list[str]:
        """Return a note on which of ``steps`` and ``epochs`` ends a run that was given both.

        Epochs that are a default and not ``asked`` for get a note where they are few steps.
        """
        whole = replace(self, steps=None).total_steps(samples)
        if not asked and self.steps is None and 0 < whole < FEW_STEPS:
            epochs = -(-ENOUGH_STEPS * self.epochs // whole)
            return [
                f"{amount(self.epochs, 'epoch')} of so little data are {amount(whole, 'step')}, "
                f"too few to learn much: --epochs {epochs} makes {ENOUGH_STEPS} or more"
            ]
        if not asked or self.steps is None or self.steps == whole:
            return []
        ends, longer = f"--steps {self.steps}", f"--epochs {self.epochs}"
        if whole < self.steps:
            ends, longer = longer, ends
        return [
            f"{ends} ends the run, after {amount(self.total_steps(samples), 'step')}, and "
            f"{longer} would be {amount(max(whole, self.steps), 'step')}: omit one of them"
        ]

    def rate_at(self, step: float, total: int) -> float:
        """Return the learning rate of ``step`` (from 0) of ``total``."""
        # A fractional step is the middle of an entry of the chip's table (`onchip.schedule`).
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * 0.5 * (1 + cos(pi * step / total))

    def prior_weight_at(self, step: float, total: int, samples: int) -> float:
        """Return the weight w of the prior at ``step``; 0 without a prior."""
        if self.prior is None:
            return 0.0
        warmup = self.prior.warmup * total
        rise = min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0
        return self.prior.weight / samples * rise

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``settings_from_dict`` reads back."""
        return asdict(self)


def settings_from_dict(values: dict[str, Any]) -> TrainSettings:
    """Return the settings that ``TrainSettings.to_dict`` wrote.

    Raises ``ValueError`` or ``TypeError``. Runs on the chip from before there was ``cut_programs``
    continue as they began: fitted.
    """
    parts = {"prior": PriorSettings, "chip": ChipSettings}
    if isinstance(values, dict):
        if isinstance(chip := values.get("chip"), dict):
            values = {**values, "chip": {"cut_programs": "fitted", **chip}}
        read = {n: of_plain(kind, values[n]) for n, kind in parts.items() if values.get(n)}
        values = {**values, **read}
    return of_plain(TrainSettings, values)
