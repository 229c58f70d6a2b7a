"""Learning rate and prior weight as a table: an entry holds for equally many steps each.

A rate is mantissa * 2^-shift with 4 bits, a weight mantissa * 2^exponent with 8. The sequencer
goes to the next entry every ``steps`` steps and stays at the last.

Passes of the vector engine find the entry of a step, and where the next one is. Rows: a *position*
within the present entry and the *number* of that entry, the same in all lanes, steps since the last
*look* at the columns (``onchip.prior``), and rows of each column of the table, an entry a lane.
Two columns at a time come to registers of every thread:

* ``advance_kernel``, a row a thread: position and number of the next step; registers are cleared;
* ``choose_kernel``, each row of the table for every thread: the lane of this step's entry is kept;
* ``spread_kernel``, a row a thread: from that lane to all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import frexp

import numpy as np

from trainwright.kernels import Body, Register, where
from trainwright.onchip.layout import LANES, Words
from trainwright.support.text import amount

ENTRIES = 64
"""Entries that the table has."""
RATE_WIDTH = 4
WEIGHT_WIDTH = 8
SHIFT_WIDTH = 5
GREATEST_SHIFT = (1 << SHIFT_WIDTH) - 1
WEIGHT_RAISE = 7
"""Left shift of the prior's weights in the schedule: times a cost of at least 2, a shifted weight
has as many bits as a mantissa."""
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
    """A schedule as the accelerator holds it. Raises ``ValueError`` where it does not fit."""

    entries: tuple[Entry, ...]
    steps: int
    """Steps that each entry holds for."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= ENTRIES:
            raise ValueError(
                f"a schedule of {len(self.entries)} entries; the table has {ENTRIES}: let each "
                "entry hold for more steps"
            )
        if self.steps < 1:
            raise ValueError(f"an entry of a schedule holds for 1 step or more, not {self.steps}")

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


# -- the table in memory, and its passes
POSITION, NUMBER, LOOK = range(3)
"""Rows of the counters, before those of the table."""
NUMBERS, RATES, SHIFTS, WEIGHTS, WEIGHT_EXPONENTS, COLUMNS = range(6)
"""Columns of the table, and their number."""
MOST_STEPS = (1 << 15) - 1
"""Steps that an entry may hold for: the position is a word of 16 bits."""

POSITION_IN, POSITION_OUT = "position", "next position"
NUMBER_IN, NUMBER_OUT = "number", "next number"
"""Streams of ``advance_kernel``."""
NUMBERS_IN, FIRST, SECOND, PRESENT = "numbers", "first column", "second column", "present number"
"""Streams of ``choose_kernel``."""


def row_of(column: int, lanes: int) -> int:
    """Return the first row of a column of the table; of COLUMNS, how many rows there are."""
    return LOOK + 1 + column * (ENTRIES // lanes)


def schedule_words(table: RateTable, step: int, interval: int = 1, lanes: int = LANES) -> Words:
    """Return the schedule in memory before ``step``, in rows of ``lanes`` words.

    Every ``interval``-th step looks at the columns. Raises ``ValueError`` where an entry, or an
    interval, holds for more steps than a word counts.
    """
    if interval > MOST_STEPS:
        raise ValueError(
            f"a look at the ranks every {interval} steps; the chip counts to {MOST_STEPS}: give a "
            "smaller --rank-interval, or --no-prior"
        )
    if table.steps > MOST_STEPS:
        raise ValueError(
            f"a schedule of {amount(len(table.entries), 'entry')} of {table.steps} steps; the "
            f"chip counts to {MOST_STEPS}: train for fewer steps, or with a larger batch"
        )
    words = np.zeros((row_of(COLUMNS, lanes), lanes), np.int64)
    number = min(step // table.steps, len(table.entries) - 1)
    words[POSITION], words[NUMBER], words[LOOK] = step % table.steps, number, step % interval
    columns = words[row_of(NUMBERS, lanes) :].reshape(-1, ENTRIES)
    columns[0] = range(ENTRIES)
    for n, e in enumerate(table.entries):
        columns[1:, n] = e.rate, e.rate_shift, e.weight << WEIGHT_RAISE, e.weight_exponent
    return words


def advance_kernel(k: Body, steps: int, entries: int) -> None:
    """Count a step: after the last of an entry the position is 0, and the number one more.

    The last entry has no next one. RATE and RATE_SHIFT are 0 for ``choose_kernel``.
    """
    position = k.read(POSITION_IN) + 1
    left = position - steps
    k.write(POSITION_OUT, where(left.zero, 0, position))
    number = k.read(NUMBER_IN)
    following = (number + 1).at_most(entries - 1)
    k.write(NUMBER_OUT, where(left.negative, number, following))
    for register in (RATE, RATE_SHIFT):
        k.keep(register, k.constant(0))


def choose_kernel(k: Body, registers: tuple[Register, Register]) -> None:
    """Put two columns into registers that are 0, in the lane of the present entry."""
    elsewhere = k.read(NUMBERS_IN) - k.read(PRESENT)
    for name, register in zip((FIRST, SECOND), registers, strict=True):
        column = k.read(name, register.low, register.high)
        k.keep(register, where(elsewhere.zero, column, k.held(register)))


def spread_kernel(k: Body, registers: tuple[Register, Register]) -> None:
    """Copy registers from the lane that has a value to all lanes; the others are 0."""
    for register in registers:
        k.keep(register, k.held(register).sum_lanes().clip(register.width))
