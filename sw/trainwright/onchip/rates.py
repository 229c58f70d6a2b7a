"""Learning rate and prior weight as a table: an entry holds for equally many steps each.

A rate is mantissa * 2^-shift with 4 bits, a weight mantissa * 2^exponent with 8. The sequencer
goes to the next entry every ``steps`` steps and stays at the last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp

from trainwright.kernels import Register

ENTRIES = 64
"""Entries that the table has."""
RATE_WIDTH = 4
WEIGHT_WIDTH = 8
SHIFT_WIDTH = 5
GREATEST_SHIFT = (1 << SHIFT_WIDTH) - 1
RATE, RATE_SHIFT = Register(6, 0, (1 << RATE_WIDTH) - 1), Register(7, 0, GREATEST_SHIFT)
"""Registers in which kernels of the update hold this step's entry."""


@dataclass(frozen=True)
class Entry:
    """Rate ``rate`` * 2^-``rate_shift`` and prior weight ``weight`` * 2^``weight_exponent``."""

    rate: int
    rate_shift: int
    weight: int = 0
    weight_exponent: int = 0


@dataclass(frozen=True)
class RateTable:
    """A schedule as the accelerator holds it."""

    entries: tuple[Entry, ...]
    """At most ENTRIES."""
    steps: int
    """Steps that each entry holds for, at least 1."""

    def at(self, step: int) -> Entry:
        """Return the entry of ``step``, from 0."""
        return self.entries[min(step // self.steps, len(self.entries) - 1)]


def digits(value: float, width: int) -> tuple[int, int]:
    """Return (mantissa of ``width`` bits, exponent) nearest to ``value`` >= 0; (0, 0) for 0."""
    if value == 0:
        return 0, 0
    fraction, exponent = frexp(value)
    mantissa = round(fraction * (1 << width))
    if mantissa == 1 << width:
        mantissa, exponent = mantissa // 2, exponent + 1
    return mantissa, exponent - width


def make_rates(
    total: int, rate_at: Callable[[float], float], weight_at: Callable[[float], float]
) -> RateTable:
    """Return the table of a run of ``total`` steps, with the values at the middle of each entry.

    Rates under 2^-GREATEST_SHIFT are 0. Raises ``ValueError`` for a rate of 8 or more, which no
    shift to the right gives.
    """
    steps = -(-total // ENTRIES)
    entries = []
    for start in range(0, total, steps):
        middle = start + (min(steps, total - start) - 1) / 2
        rate, exponent = digits(rate_at(middle), RATE_WIDTH)
        if exponent > 0:
            raise ValueError(f"a learning rate of {rate_at(middle)} is too large: use less than 8")
        if exponent < -GREATEST_SHIFT:
            rate, exponent = 0, 0
        entries.append(Entry(rate, -exponent, *digits(weight_at(middle), WEIGHT_WIDTH)))
    return RateTable(tuple(entries), steps)
