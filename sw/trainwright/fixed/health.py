"""Warn where a tensor carries no information for many steps: all zeros, or mostly saturated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import log2

from trainwright.fixed.scale import FAINT_WORDS, ScaleRange, TensorStatistics

LOST_STEPS = 16
"""Steps out of WATCHED in which a tensor is lost until it is reported: exponents move by one a
step, so 16 steps cross all bits of a word."""
WATCHED = 32
"""Latest steps that count: calls of a shared layer may lose every second tensor."""
SATURATED_SHARE = 0.25
"""Share of saturated values above which a tensor counts as lost."""

SATURATED_PART = 0.5
"""Ratio of the saturated values' |q| to the sum of |q| above which a tensor counts as lost: a few
samples are far larger than the rest, and all end at the same limit. `digits` has at most 0.04."""
FROZEN_ENERGY = 1 / 8
"""Share of the sum of squares that saturated values have at least, above which evaluation names a
tensor. Normal values then lose 7 % in clipping, and three layers up to 10 % of their outputs; at a
quarter these lost 24 %."""
CLIPPED_ENERGY = 1 / 2
"""Share of the sum of squares above which values that a pass clips make a tensor lost:
no exponent follows such values, as only the golden model counts these."""
GROWN_BITS = 2
"""Powers of two by which a tensor's mean grows in one step from which the step is a jump."""
GROWN_SHARE = 1 / 10
"""Share of saturated values above which a jump is reported. Normal values reach 11 % if they grow
25-fold, and are lost from 36-fold on. A single large sample of a batch stays below: small losses of
a regression vary by as much from step to step."""
GROWN_VALUES = 64
"""Values of a tensor below which no jump is reported: the gradients of a few biases come close to 0
by chance, and are of their usual size in the next step."""


class LostTensorWarning(UserWarning):
    """A tensor of a network is all zeros, or saturated, for many steps."""


@dataclass(frozen=True)
class LossReason:
    """Reason why a tensor lost its information in a step, and the remedy."""

    what: str
    remedy: str


ZEROS = LossReason(
    "all zeros",
    "nothing is learnt through it; check the inputs, the initialisation and dead ReLUs",
)
FEW = (
    "a few samples, rows or outputs are far larger than the others; check the data and the loss, "
    "and give the last layer as many outputs as there are classes or targets"
)
SCORES = (
    "probabilities and gradients can be far off; bring these scores to a smaller scale, as a "
    "LayerNorm before queries and keys does, or give activations more bits"
)
SCALE = "check the scale of the inputs and the learning rate"


def loss_of(s: TensorStatistics) -> LossReason | None:
    """Return how a tensor was lost in a step; None if it was not."""
    if not s.total:
        return ZEROS
    if (energy := replace(s, saturations=s.clipped).saturated_energy) > CLIPPED_ENERGY:
        share = f"{s.clipped / s.count:.1%} of its values, {energy:.0%} of its squares"
        return LossReason(f"clipped by the vector engine in {share}", FEW)
    if s.saturations > SATURATED_SHARE * s.count:
        return LossReason(f"saturated in {s.saturations / s.count:.0%} of its values", SCALE)
    if not s.format.coded and s.saturated_part > SATURATED_PART:
        return LossReason(f"saturated in values that make {s.saturated_part:.0%} of its sum", FEW)
    if s.coarsest is not None and s.exponent > s.coarsest:
        return LossReason(
            f"{2.0 ** (s.exponent - s.coarsest):g} times too coarse for softmax", SCORES
        )
    return None


def loss_in_evaluation(s: TensorStatistics, allowed: ScaleRange) -> LossReason | None:
    """Describe how evaluation lost a tensor: no exponent will follow it, as in training.

    ``allowed`` is the scale range in which training keeps the tensor's mean.
    """
    loss = loss_of(s)
    if loss is not None or s.format.coded:
        return loss
    if s.saturated_energy > FROZEN_ENERGY:
        return LossReason(f"saturated in {s.saturations / s.count:.1%} of its values", SCALE)
    words = s.total / s.count
    if s.exponent > s.floor and words < FAINT_WORDS and s.mean_fraction < allowed.low / 2:
        return LossReason(f"rounded to a mean of {words:.2f} quantisation steps", SCALE)
    return None


@dataclass
class TensorHealth:
    """Latest steps in which each tensor was lost; reports a tensor once."""

    lost: dict[str, int] = field(default_factory=dict)
    """For each tensor, a bit for each of the latest steps: 1 where the tensor was lost."""
    reported: set[str] = field(default_factory=set)
    sizes: dict[str, float] = field(default_factory=dict)
    """Logarithm to base 2 of each tensor's mean in the latest step that had any."""
    jumped: bool = False
    """Whether a jump was reported: the tensors behind the first one jump with it."""

    def observe(
        self, statistics: Mapping[str, TensorStatistics], *, steps: int = 1
    ) -> Iterator[str]:
        """Yield a message for each tensor that was lost in LOST_STEPS of the latest steps.

        ``statistics`` are those of one step, or means that stand for each of the last ``steps``. A
        tensor that jumped in a single step has a message at once.
        """
        if steps == 1:
            yield from self._jump(statistics)
        for name, s in statistics.items():
            yield from self.record(name, s.exponent, loss_of(s), steps=steps)

    def _jump(self, statistics: Mapping[str, TensorStatistics]) -> Iterator[str]:
        """Yield a message on the tensor that saturates most by growing since the step before."""
        grown = {name: self._growth(name, s) for name, s in statistics.items()}
        if self.jumped or not any(grown.values()):
            return
        name = max(grown, key=lambda name: statistics[name].saturations * bool(grown[name]))
        self.jumped, s = True, statistics[name]
        yield (
            f"{name} grew over {2 ** grown[name]:.0f}-fold in one step, and saturated in "
            f"{s.saturations / s.count:.0%} of its values (exponent {s.exponent}): its exponent "
            "follows by 1 a step; look at the samples of that step, clip gradients, or keep losses "
            "at one scale"
        )

    def _growth(self, name: str, s: TensorStatistics) -> float:
        """Return the powers of two of a tensor's jump, or 0 if it did not saturate by a jump."""
        if not s.total or s.count < GROWN_VALUES or s.format.coded:
            return 0.0  # words of coded formats are nearly logarithms
        size = log2(s.total / s.count) + s.exponent
        growth = size - self.sizes.get(name, size)
        self.sizes[name] = size
        return growth if growth >= GROWN_BITS and s.saturations > GROWN_SHARE * s.count else 0.0

    def record(
        self, name: str, exponent: int, loss: LossReason | None, *, steps: int = 1
    ) -> Iterator[str]:
        """Count the latest steps, lost or not; yield a message if a tensor is lost for long."""
        latest = (1 << steps) - 1 if loss is not None else 0
        history = (self.lost.get(name, 0) << steps | latest) % (1 << WATCHED)
        self.lost[name] = history
        lost, among = history.bit_count(), history.bit_length()
        if loss is None or lost < LOST_STEPS or name in self.reported:
            return
        self.reported.add(name)
        when = f"for {lost} steps" if lost == among else f"in {lost} of {among} steps"
        yield f"{name} was {loss.what} {when} (exponent {exponent}): {loss.remedy}"

    def at_once(self, name: str, exponent: int, loss: LossReason | None) -> Iterator[str]:
        """Yield the message about a tensor that evaluation lost: its exponent will not follow."""
        if loss is None or name in self.reported:
            return
        self.reported.add(name)
        yield (
            f"{name} was {loss.what} in evaluation, where exponents stay as training left them "
            f"(exponent {exponent}): give data of the scale that the model was trained with"
        )
