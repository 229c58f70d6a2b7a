"""The schedule as passes of the vector engine: the entry of a step, and where the next one is.

Rows of 16 words: a *position* within the present entry and the *number* of that entry, the same in
all lanes, the *phase* of the prior's coefficients, steps since the last *look* at the columns
(``onchip.cut_pass``), position and number of what a step defers to the next one, and
``TABLE_ROWS`` rows of each column of the table, an entry a lane. Two columns at a time come to
registers of every thread:

* ``advance_code``, a row a thread: position and number of the next step; registers are cleared;
* ``choose_code``, each row of the table for every thread: the lane of this step's entry is kept;
* ``spread_code``, a row a thread: from that lane to all of them.
"""

import numpy as np
import numpy.typing as npt

from trainwright.onchip.instructions import keep, read, write, zero
from trainwright.onchip.layout import LANES
from trainwright.onchip.prior import INTERVAL
from trainwright.onchip.prior_pass import WEIGHT_RAISE
from trainwright.onchip.rates import ENTRIES, RateTable
from trainwright.program.vector import Addend, Instruction, Kind, When

TABLE_ROWS = ENTRIES // LANES
POSITION, NUMBER, PHASE, LOOK, DEFERRED_POSITION, DEFERRED_NUMBER = range(6)
"""Rows of the schedule in memory: the counters, then the columns of the table."""
NUMBERS, RATES, SHIFTS, WEIGHTS, WEIGHT_EXPONENTS, ROWS = (6 + n * TABLE_ROWS for n in range(6))
MOST_STEPS = (1 << 15) - 1
"""Steps that an entry may hold for: the position is a word of 16 bits."""

RATE, RATE_SHIFT = 6, 7
"""Registers that passes of the update read."""
_POSITION, _LEFT, _NUMBER, _NEXT = range(4)
_ONE, _STEPS, _LAST = range(3)
READ_POSITION, READ_NUMBER, WRITE_POSITION, WRITE_NUMBER = range(4)
"""Streams of the first pass."""
READ_NUMBERS, READ_FIRST, READ_SECOND, READ_PRESENT = range(4)
"""Streams of the second."""


def schedule_words(table: RateTable, step: int, interval: int = 1) -> npt.NDArray[np.int64]:
    """The schedule in memory before ``step``, (ROWS, LANES), with a look at the columns in every
    ``interval``-th step.

    Raises ``ValueError`` where an entry holds for more steps than a word counts, or an interval.
    """
    if interval > MOST_STEPS:
        raise ValueError(
            f"a look at the ranks every {interval} steps; the chip counts to {MOST_STEPS}: give a "
            "smaller --rank-interval, or --no-prior"
        )
    if table.steps > MOST_STEPS:
        raise ValueError(
            f"a schedule whose {len(table.entries)} entries hold for {table.steps} steps each; the "
            f"chip counts to {MOST_STEPS}: train for fewer steps, or with a larger batch"
        )
    found = np.zeros((ROWS, LANES), np.int64)
    number = min(step // table.steps, len(table.entries) - 1)
    found[POSITION], found[NUMBER], found[PHASE] = step % table.steps, number, step % INTERVAL
    found[DEFERRED_POSITION], found[DEFERRED_NUMBER] = found[POSITION], found[NUMBER]
    found[LOOK] = step % interval
    found[NUMBERS : NUMBERS + TABLE_ROWS].reshape(-1)[:] = range(ENTRIES)
    names = ("rate", "rate_shift", "weight", "weight_exponent")
    firsts = (RATES, SHIFTS, WEIGHTS, WEIGHT_EXPONENTS)
    for first, name in zip(firsts, names, strict=True):
        raised = WEIGHT_RAISE if name == "weight" else 0
        column = [getattr(one, name) << raised for one in table.entries]
        found[first : first + TABLE_ROWS].reshape(-1)[: len(column)] = column
    return found


def advance_constants(table: RateTable) -> tuple[int, ...]:
    """Constants of the first pass."""
    return 1, -table.steps, len(table.entries) - 1


def advance_code() -> tuple[Instruction, ...]:
    """The next step's counters: after the last step of an entry the position is 0, and the number
    one more, but for that of the last entry.
    """
    constant = {"addend": Addend.CONSTANT}
    return (
        read(READ_POSITION, _POSITION, k=_ONE, **constant),
        keep(_LEFT, a=_POSITION, k=_STEPS, **constant),
        zero(_POSITION, c=_LEFT, when=When.ZERO),
        write(WRITE_POSITION, a=_POSITION),
        read(READ_NUMBER, _NUMBER),
        keep(_NEXT, a=_NUMBER, k=_ONE, **constant),
        keep(_NEXT, kind=Kind.MINIMUM, a=_NEXT, use_k=True, k=_LAST),
        keep(_NEXT, a=_NUMBER, c=_LEFT, when=When.NEGATIVE),
        write(WRITE_NUMBER, a=_NEXT),
        zero(RATE),
        zero(RATE_SHIFT),
    )


def choose_code(first: int, second: int) -> tuple[Instruction, ...]:
    """Two columns to two registers that are 0, in the lane of the present entry."""
    chosen = {"c": 0, "when": When.ZERO}
    return (
        read(READ_PRESENT, 1),
        read(READ_NUMBERS, 0, c=1, addend=Addend.MINUS),
        read(READ_FIRST, first, **chosen),
        read(READ_SECOND, second, **chosen),
    )


def spread_code(*registers: int) -> tuple[Instruction, ...]:
    """From one lane to all."""
    return tuple(keep(d, kind=Kind.SUM, a=d) for d in registers)
