"""Settings of an ECP5's EHXPLLL for one output clock."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

INPUT_DIVIDERS = range(1, 129)
FEEDBACK_DIVIDERS = range(1, 81)
OUTPUT_DIVIDERS = range(1, 129)
DETECTOR_HZ = (10e6, 400e6)
"""Input clock after its divider, by the data sheet: below it the PLL need not lock."""
OSCILLATOR_HZ = (400e6, 800e6)
MOST_OUTPUT_HZ = 400e6
"""Fastest output of an ECP5's data sheet, which place and route does not check."""
MOST_ERROR = 0.01


@dataclass(frozen=True)
class PllSettings:
    """Dividers; the oscillator divided by ``output_divider`` is the output.

    The output is fed back, and is ``input * feedback / input_divider``; or the oscillator divided
    by ``inner_divider`` is, which gives clocks that no ``feedback`` of the output gives.
    """

    input_divider: int
    feedback: int
    output_divider: int
    output_hz: float
    inner_divider: int | None = None


@cache
def pll_settings(input_hz: float, output_hz: float) -> PllSettings:
    """Return the settings with the closest clock; of those, with the fastest oscillator.

    The output is fed back where that gives the clock asked for, or one within ``MOST_ERROR`` and no
    inner feedback gives the clock itself. Raises ``ValueError`` where neither feedback does.
    """
    detectors = [(divider, input_hz / divider) for divider in INPUT_DIVIDERS]
    detectors = [d for d in detectors if DETECTOR_HZ[0] <= d[1] <= DETECTOR_HZ[1]]
    nearest = [
        min(
            kind(detectors, output_hz),
            key=lambda s: (abs(s.output_hz - output_hz), s.input_divider),
            default=None,
        )
        for kind in (_outer, _inner)
    ]
    # The clock itself first: a build asks for the clock that an earlier call has returned.
    for most_hz in (1.0, MOST_ERROR * output_hz):
        for best in nearest:
            if best is not None and abs(best.output_hz - output_hz) <= most_hz:
                return best
    raise ValueError(
        f"no PLL setting gives {output_hz / 1e6:g} MHz from {input_hz / 1e6:g} MHz within "
        f"{MOST_ERROR:.0%}"
    )


def _outer(detectors: Iterable[tuple[int, float]], _: float) -> Iterator[PllSettings]:
    """Yield the settings that feed the output back."""
    for divider, detector in detectors:
        for feedback in FEEDBACK_DIVIDERS:
            reached = detector * feedback
            least = -(-OSCILLATOR_HZ[0] // reached)
            most = OSCILLATOR_HZ[1] // reached
            dividers = [d for d in (int(least), int(most)) if d in OUTPUT_DIVIDERS]
            dividers = [d for d in dividers if least <= d <= most]
            if dividers and reached <= MOST_OUTPUT_HZ:
                yield PllSettings(divider, feedback, max(dividers), reached)


def _inner(detectors: Iterable[tuple[int, float]], output_hz: float) -> Iterator[PllSettings]:
    """Yield the settings near a clock that feed a second output back, fast oscillators first."""
    for divider, detector in detectors:
        least, most = (bound / detector for bound in OSCILLATOR_HZ)
        for inner in range(int(most), math.ceil(least) - 1, -1):
            output_divider = round(detector * inner / output_hz)
            if output_divider in OUTPUT_DIVIDERS:
                reached = detector * inner / output_divider
                if reached <= MOST_OUTPUT_HZ:
                    yield PllSettings(divider, 1, output_divider, reached, inner)
