"""Settings of an ECP5's EHXPLLL for one output clock."""

from dataclasses import dataclass
from functools import cache

INPUT_DIVIDERS = range(1, 129)
FEEDBACK_DIVIDERS = range(1, 81)
OUTPUT_DIVIDERS = range(1, 129)
DETECTOR_HZ = (3.125e6, 400e6)
"""Input clock after its divider."""
OSCILLATOR_HZ = (400e6, 800e6)
MOST_OUTPUT_HZ = 400e6
"""Fastest output of an ECP5's data sheet, which place and route does not check."""
MOST_ERROR = 0.01


@dataclass(frozen=True)
class PllSettings:
    """Dividers; the output is ``input * feedback / input_divider``."""

    input_divider: int
    feedback: int
    output_divider: int
    output_hz: float


@cache
def pll_settings(input_hz: float, output_hz: float) -> PllSettings:
    """Return the settings with the closest clock; of those, with the fastest oscillator.

    Raises ``ValueError`` where none comes within ``MOST_ERROR``.
    """
    candidates = []
    for divider in INPUT_DIVIDERS:
        detector = input_hz / divider
        if not DETECTOR_HZ[0] <= detector <= DETECTOR_HZ[1]:
            continue
        for feedback in FEEDBACK_DIVIDERS:
            reached = detector * feedback
            least = -(-OSCILLATOR_HZ[0] // reached)
            most = OSCILLATOR_HZ[1] // reached
            dividers = [d for d in (int(least), int(most)) if d in OUTPUT_DIVIDERS]
            dividers = [d for d in dividers if least <= d <= most]
            if dividers and reached <= MOST_OUTPUT_HZ:
                candidates.append(PllSettings(divider, feedback, max(dividers), reached))
    best = min(
        candidates,
        key=lambda s: (abs(s.output_hz - output_hz), s.input_divider),
        default=None,
    )
    if best is None or abs(best.output_hz / output_hz - 1) > MOST_ERROR:
        raise ValueError(
            f"no PLL setting gives {output_hz / 1e6:g} MHz from {input_hz / 1e6:g} MHz within "
            f"{MOST_ERROR:.0%}"
        )
    return best
