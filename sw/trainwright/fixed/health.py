"""Warn where a tensor carries no information for many steps: all zeros, or mostly saturated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainwright.fixed.scale import TensorStatistics

LOST_STEPS = 16
"""Steps in a row after which a tensor is reported: exponents move by one a step, and 16 bits of a
word are passed in as many."""
SATURATED_SHARE = 0.25
"""Share of saturated values above which a tensor counts as lost."""


class LostTensorWarning(UserWarning):
    """A tensor of a network is all zeros, or saturated, for many steps."""


@dataclass
class TensorHealth:
    """Steps in a row in which each tensor was lost; reports a tensor once."""

    streaks: dict[str, int] = field(default_factory=dict)
    """By tensor: steps all zeros if positive, steps saturated if negative."""
    reported: set[str] = field(default_factory=set)

    def observe(self, statistics: Mapping[str, TensorStatistics]) -> Iterator[str]:
        """Yield a message for each tensor that was lost for LOST_STEPS steps by now."""
        for name, s in statistics.items():
            if not s.total:
                streak = max(self.streaks.get(name, 0), 0) + 1
            elif s.saturations > SATURATED_SHARE * s.count:
                streak = min(self.streaks.get(name, 0), 0) - 1
            else:
                self.streaks.pop(name, None)
                continue
            self.streaks[name] = streak
            if abs(streak) >= LOST_STEPS and name not in self.reported:
                self.reported.add(name)
                yield message_of(name, streak, s)


def message_of(name: str, streak: int, s: TensorStatistics) -> str:
    """Describe a tensor that was lost for ``streak`` steps, and the remedy."""
    if streak > 0:
        return (
            f"{name} was all zeros for {streak} steps (exponent {s.exponent}): nothing is learnt "
            "through it; check the inputs, the initialisation and dead ReLUs"
        )
    return (
        f"{name} was saturated in {s.saturations / s.count:.0%} of its values for {-streak} steps "
        f"(exponent {s.exponent}): check the scale of the inputs and the learning rate"
    )
