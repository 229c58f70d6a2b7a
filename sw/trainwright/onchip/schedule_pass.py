"""The schedule as passes of the vector engine: the entry of a step, and where the next one is.

Rows: a *position* within the present entry and the *number* of that entry, the same in all lanes,
steps since the last *look* at the columns (``onchip.cut_pass``), and rows of each column of the
table, an entry a lane. Two columns at a time come to registers of every thread:

* ``advance_kernel``, a row a thread: position and number of the next step; registers are cleared;
* ``choose_kernel``, each row of the table for every thread: the lane of this step's entry is kept;
* ``spread_kernel``, a row a thread: from that lane to all of them.
"""

import numpy as np

from trainwright.kernels import Body, Register, where
from trainwright.onchip.layout import LANES, Words
from trainwright.onchip.prior_pass import WEIGHT_RAISE
from trainwright.onchip.rates import ENTRIES, RATE, RATE_SHIFT, RateTable
from trainwright.support.text import amount

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
