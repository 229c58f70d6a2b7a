"""Warn where a tensor carries no information for many steps: all zeros, or mostly saturated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainwright.fixed.scale import TensorStatistics

LOST_STEPS = 16
"""Steps out of WATCHED after which a tensor is reported: exponents move by one a step, and 16 bits
of a word are passed in as many."""
WATCHED = 32
"""Latest steps that count: calls of a shared layer may lose every second tensor."""
SATURATED_SHARE = 0.25
"""Share of saturated values above which a tensor counts as lost."""

SATURATED_PART = 0.5
"""Part of the sum of |q| that saturated values make above which a tensor counts as lost: a few
samples have all of its size, and their values end alike. In `digits` at most 0.04 of a sum does."""


class LostTensorWarning(UserWarning):
    """A tensor of a network is all zeros, or saturated, for many steps."""


@dataclass(frozen=True)
class LossReason:
    """Says how a tensor lost what it should say, in one step, and the remedy."""

    what: str
    remedy: str


ZEROS = LossReason(
    "all zeros",
    "nothing is learnt through it; check the inputs, the initialisation and dead ReLUs",
)
FEW = "a few samples or rows are far larger than the others; check the data and the loss"
SCALE = "check the scale of the inputs and the learning rate"


def loss_of(s: TensorStatistics) -> LossReason | None:
    """Return how a tensor was lost in a step; None if it was not."""
    if not s.total:
        return ZEROS
    if s.saturations > SATURATED_SHARE * s.count:
        return LossReason(f"saturated in {s.saturations / s.count:.0%} of its values", SCALE)
    if not s.format.coded and s.saturated_part > SATURATED_PART:
        return LossReason(f"saturated in values that make {s.saturated_part:.0%} of its sum", FEW)
    return None


@dataclass
class TensorHealth:
    """Latest steps in which each tensor was lost; reports a tensor once."""

    lost: dict[str, int] = field(default_factory=dict)
    """By tensor: a bit for each of the latest steps, 1 where it was lost."""
    reported: set[str] = field(default_factory=set)

    def observe(self, statistics: Mapping[str, TensorStatistics]) -> Iterator[str]:
        """Yield a message for each tensor that was lost in LOST_STEPS of the latest steps."""
        for name, s in statistics.items():
            yield from self.record(name, s.exponent, loss_of(s))

    def record(self, name: str, exponent: int, loss: LossReason | None) -> Iterator[str]:
        """Count a step in which a tensor was lost, or not; yield the message that is due."""
        history = (self.lost.get(name, 0) << 1 | (loss is not None)) % (1 << WATCHED)
        self.lost[name] = history
        steps, among = history.bit_count(), history.bit_length()
        if loss is None or steps < LOST_STEPS or name in self.reported:
            return
        self.reported.add(name)
        when = f"for {steps} steps" if steps == among else f"in {steps} of {among} steps"
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
