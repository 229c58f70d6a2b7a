"""The settings of a training run, frozen. All of them decide the bits of the result."""

from dataclasses import asdict, dataclass, field
from math import cos, pi
from typing import Any

from trainwright.fixed.random_bits import ROUNDINGS
from trainwright.fixed.scale import PRESETS
from trainwright.onchip.choices import LOSS_NAMES, OPTIMISERS
from trainwright.program.samples import PIXEL_WIDTHS
from trainwright.support.plain import of_plain
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

_CHOICES = {
    "schedule": SCHEDULES,
    "scale_range": tuple(PRESETS),
    "scales": SCALES,
    "factor_scales": FACTOR_SCALES,
    "master_weights": MASTER_WEIGHTS,
    "moments": MOMENTS,
    "rounding": ROUNDINGS,
}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class PriorSettings:
    """The rank prior and when a column counts as gone."""

    form: str = "storage"
    """``paper``: equations 1, 2 and 4; ``storage``: weighs a column by what it costs to store
    (``train.storage_prior``)."""

    weight: float = 0.25
    """Prior weight w in units of 1/|D|, |D| being the samples of the train split."""
    warmup: float = 0.1
    """Part of the run over which the weight rises linearly from 0."""
    threshold: float = 0.02
    """A column is cut where its strength (``paper``: lambda) is below this fraction of the largest
    of its bond."""
    interval: int = 10
    """Steps between two checks of the columns; each cut needs a newly compiled program."""

    def __post_init__(self) -> None:
        _require(
            self.form in PRIOR_FORMS,
            f"prior form must be one of {', '.join(PRIOR_FORMS)}, not {self.form!r}",
        )
        _require(self.weight > 0, f"prior weight must be over 0, not {self.weight!r}")
        _require(0 <= self.warmup < 1, f"prior warm-up must be in [0, 1), not {self.warmup!r}")
        _require(
            0 < self.threshold < 1, f"rank threshold must be in (0, 1), not {self.threshold!r}"
        )
        _require(self.interval >= 1, f"rank interval must be at least 1, not {self.interval!r}")


@dataclass(frozen=True, kw_only=True)
class ChipSettings:
    """Loss and update as the accelerator does them (``trainwright.onchip``)."""

    optimiser: str = "esgd"
    """``esgd``: the step is that of the gradient's integer; ``momentum``: that of its value."""
    loss: str = "cross-entropy"
    pixels: int = 8
    """Bits in which a pixel of the data set is stored."""
    cut_programs: str = "kept"
    """Programs that compute the steps after a cut.

    ``kept``: the programs of the initial ranks, so that the accelerator cuts alone. ``fitted``:
    programs compiled at once for the remaining ranks; they are shorter and round differently.
    """

    def __post_init__(self) -> None:
        known = {
            "optimiser": OPTIMISERS, "loss": LOSS_NAMES, "pixels": PIXEL_WIDTHS,
            "cut_programs": CUT_PROGRAMS,
        }  # fmt: skip
        for name, choices in known.items():
            value = getattr(self, name)
            shown = ", ".join(map(str, choices))
            what = name.replace("_", " ")
            _require(value in choices, f"{what} must be one of {shown}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of one training run.

    Two runs with equal settings and data give equal bits on every back end.
    """

    epochs: int = 20
    batch: int = 64
    """Samples a step. Samples after the last full batch of an epoch are not used in it; each epoch
    has an order of its own."""
    micro_batches: int = 1
    """Parts of equal size that a batch is cut into, each a step of an accelerator with the same
    exponents. Their integers are summed, so that the bits do not depend on which worker runs which.
    """
    seed: int = 0
    learning_rate: float = 1e-2
    schedule: str = "cosine"
    steps: int | None = None
    """Most steps to train; the schedules end there too."""
    scale_range: str = "default"
    """Preset of the scale selection: ranges that means of |q| are held in."""
    scales: str = "automatic"
    """Exponents of what the accelerator computes: ``automatic`` ones follow the means, ``frozen``
    ones stay as the first batch has them. What the host quantises follows its largest value
    in both; ``all-frozen`` fixes that, too: biases reach from -2^``BIAS_RANGE`` to
    2^``BIAS_RANGE``, the gradient of the logits to 1 / batch, which it cannot pass."""
    spread: float = SPREAD
    """Standard deviation of the initial factors in quantisation steps, at 4 bits
    (``train.initial``)."""
    factor_scales: str = "fixed"
    """``fixed``: the exponents of the start; ``automatic``: a factor's follows its
    weights' size; ``blocks``: those of the start, and a scale for each column of a bond
    (``train.blocks``)."""
    master_weights: str = "float32"
    """Type in which the master weights are kept between steps (``train.storage``)."""
    moments: str = "float32"
    """Type in which Adam's moments are kept between steps (``train.storage``)."""
    rounding: str = "nearest"
    """Passes rounded stochastically: one of ``trainwright.fixed.random_bits.ROUNDINGS``."""
    prior: PriorSettings | None = field(default_factory=PriorSettings)
    chip: ChipSettings | None = None
    """How the chip updates; None for an update on the host. Then ``learning_rate`` is that of
    ``trainwright.onchip.update``, and master weights and moments have one storage."""

    def __post_init__(self) -> None:
        _require(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs!r}")
        _require(self.batch >= 1, f"batch must be at least 1, not {self.batch!r}")
        _require(
            self.micro_batches >= 1 and self.batch % self.micro_batches == 0,
            f"micro-batches must divide the batch {self.batch}, not be {self.micro_batches!r}",
        )
        _require(0 <= self.seed < 1 << 32, f"seed must be from 0 to 2^32 - 1, not {self.seed!r}")
        _require(
            0 < self.learning_rate < 1,
            f"learning rate must be between 0 and 1, not {self.learning_rate!r}",
        )
        _require(
            self.steps is None or self.steps >= 1, f"steps must be at least 1, not {self.steps!r}"
        )
        _require(
            0.25 <= self.spread <= 8, f"spread must be from 0.25 to 8 steps, not {self.spread!r}"
        )
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            _require(
                value in known,
                f"{name.replace('_', ' ')} must be one of {', '.join(known)}, not {value!r}",
            )

        # After the ranges, so that a misspelt choice is called unknown rather than unsuitable for
        # the chip.
        if self.chip is not None:
            self._check_chip()

    def _check_chip(self) -> None:
        """Raise ``ValueError`` for choices that an update on the chip does not have."""
        fixed = {"master_weights": "float32", "moments": "float32", "factor_scales": "fixed"}
        for name, only in fixed.items():
            value = getattr(self, name)
            _require(
                value == only,
                f"{name.replace('_', ' ')} {value!r} is of an update on the host: leave it away, "
                "or use --update host",
            )
        _require(
            self.prior is None or self.prior.form == "storage",
            "an update on the chip has prior form storage alone: use it, or --update host",
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

    def rate_at(self, step: float, total: int) -> float:
        """Return the learning rate of ``step`` (from 0) of ``total``."""
        # A fractional step is the middle of an entry of the chip's table (`onchip.rates`).
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
