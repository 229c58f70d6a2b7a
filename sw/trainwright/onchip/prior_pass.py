"""The rank prior as kernels: sums of squares, coefficients of the pull, words of the update.

A *side row* is a row of words about the columns of one side of a bond. For a bond on the left of a
part each column has a side row, with the same word in all lanes; for a bond on the right one side
row has a column in each lane. Memory holds ``FIELDS`` side rows for each: two words of the sum of
squares, coefficient and exponent of the pull, a flag of columns that were cut
(``onchip.cut_pass``), and a constant. Costs are stored once a bond, not here.

* ``squares_kernel``, rows of the state: the squares of each thread's rows are added up;
* ``add_right_kernel``, ``flush_kernel``, ``join_kernel``: from these sums to words of side rows;
* ``renew_kernel``, side rows: coefficients and exponents by the sums, every INTERVAL steps;
* ``words_kernel``, side rows: what the update's passes read, by the gradient's exponent.
"""

import numpy as np

from trainwright.kernels import Body, Register, Value, evaluate, trace, where
from trainwright.kernels.functions import MANTISSA, ROOT_UNIT
from trainwright.kernels.library import any_mantissa, reciprocal
from trainwright.onchip.layout import MOMENT_WIDTH, WeightLayout, Words
from trainwright.onchip.prior import (
    COEFFICIENT_WIDTH,
    EXPONENT_WIDTH,
    MOST_SHIFT,
    TOP_SHIFT,
    WORD_WIDTH,
    Pulls,
    no_pulls,
)
from trainwright.onchip.rates import RATE, RATE_SHIFT, Entry
from trainwright.onchip.update_pass import weight_and_low
from trainwright.program.vector import FACTOR_WIDTH, THREADS

LOW, HIGH, COEFFICIENT = "low word", "high word", "coefficient"
EXPONENT, KEPT, OFFSET = "exponent", "flags", "offset"
STORED = LOW, HIGH, COEFFICIENT, EXPONENT, KEPT, OFFSET
"""Side rows that memory holds for the same columns; streams of kernels have the same names."""
SHIFT, WORD = "shift", "word"
FIELDS = (*STORED, SHIFT, WORD)
"""Side rows in the scratchpad: ``words_kernel`` writes the last two."""
COST = "cost"
"""Stream of the costs of a bond's columns, which ``renew_kernel`` reads."""
LOW_WIDTH = 15
"""Bits of a sum in its first word."""
SUM_WIDTH = 2 * LOW_WIDTH + 1
"""Bits of a sum with its sign: both words hold 30, enough for 2^16 squares of 2^14 at most."""
COST_WIDTH = 15
WEIGHT_RAISE = 7
"""Left shift of the prior's weights in the schedule: times a cost of at least 2, a shifted weight
has as many bits as a mantissa."""
MOST_SUM = (1 << (SUM_WIDTH - 1)) - 1
MOST_WORD = (1 << LOW_WIDTH) - 1

SQUARES = Register(4, 0, MOST_SUM)
"""Sum of squares of a thread's rows."""
RIGHT = Register(5, 0, MOST_SUM)
"""Sum of squares of all rows of a thread so far: each group of rows adds its SQUARES."""
SUMS = SQUARES, RIGHT
WEIGHT = Register(5, 0, (1 << 15) - 1)
"""Weight of the prior in this step, from the schedule."""
WEIGHT_EXPONENT = Register(6, -(1 << 15), (1 << 15) - 1)
"""Exponent of the prior's weight in this step, from the schedule."""


def squares_kernel(k: Body, hidden: int) -> None:
    """Square the highest 8 bits of each weight of a row, and add the squares to SQUARES.

    The streams are STATE and FACTOR, as those of the update.
    """
    k.preserve(RIGHT, RATE, RATE_SHIFT)
    top = weight_and_low(k, hidden)[0] >> (MOMENT_WIDTH + TOP_SHIFT)
    k.keep(SQUARES, (top * top + k.held(SQUARES)).clip(SUM_WIDTH))


def clear_kernel(k: Body, registers: tuple[Register, ...]) -> None:
    """Set registers to 0."""
    k.preserve(*{RATE, RATE_SHIFT}.difference(registers))
    for register in registers:
        k.keep(register, k.constant(0))


def read_sum(k: Body) -> Value:
    """Join both words of a sum."""
    upper = k.read(HIGH, 0, MOST_WORD) * (1 << LOW_WIDTH)
    return k.read(LOW, 0, MOST_WORD) + upper


def add_right_kernel(k: Body) -> None:
    """Add SQUARES to RIGHT, and clear SQUARES."""
    k.preserve(RATE, RATE_SHIFT)
    k.keep(RIGHT, (k.held(RIGHT) + k.held(SQUARES)).clip(SUM_WIDTH))
    k.keep(SQUARES, k.constant(0))


def flush_kernel(k: Body, register: Register, across: bool) -> None:
    """Write the sum of a thread, or with ``across`` that over its lanes, as words."""
    k.preserve(*SUMS, RATE, RATE_SHIFT)
    total = k.held(register).sum_lanes() if across else k.held(register)
    k.write(LOW, total & MOST_WORD)
    k.write(HIGH, total >> LOW_WIDTH)


def join_kernel(k: Body) -> None:
    """Add to SQUARES the sum that a row's words hold."""
    k.preserve(RATE, RATE_SHIFT)
    upper = k.read(HIGH, 0, MOST_WORD)
    total = (k.read(LOW, 0, MOST_WORD) + k.held(SQUARES)).clip(SUM_WIDTH)
    k.keep(SQUARES, (upper * (1 << LOW_WIDTH) + total).clip(SUM_WIDTH))


def renew_kernel(k: Body) -> None:
    """Compute coefficient and exponent of a side row from its sum."""
    total = read_sum(k)
    twice, length = any_mantissa(total)
    inverse = where(total.zero, 0, reciprocal(twice))

    # The product of weight and cost is cut to 16 bits and multiplied by the reciprocal; that
    # product is cut to 8 bits. ``exponent`` adds up the shifts.
    pull = k.read(COST, 0, (1 << COST_WIDTH) - 1) * k.held(WEIGHT)
    pull_length = pull.length() - MANTISSA
    pull = (pull >> pull_length).clip(FACTOR_WIDTH)
    exponent = pull_length - length
    coefficient = inverse * pull
    length = coefficient.length() - COEFFICIENT_WIDTH
    coefficient = coefficient >> length
    exponent = exponent + length + k.held(WEIGHT_EXPONENT)
    exponent = (k.read(OFFSET) + exponent).clip(EXPONENT_WIDTH)
    k.write(COEFFICIENT, coefficient)
    k.write(EXPONENT, where(coefficient.zero, 0, exponent))


def require_cost(cost: int) -> None:
    """Raise ``ValueError`` where a column has more elements than a word can count."""
    if cost.bit_length() > COST_WIDTH:
        raise ValueError(
            f"a column of {cost} elements; the chip's prior takes up to {(1 << COST_WIDTH) - 1}: "
            "train with --no-prior, or with other factors"
        )


def offsets(layout: WeightLayout) -> Words:
    """Return the addend of the exponent of each column's coefficient."""
    below = -(MANTISSA - 1) - ROOT_UNIT  # exponent of the reciprocal's unit
    base = below - WEIGHT_RAISE - 1 - 2 * TOP_SHIFT
    parts = [layout.parts[side.part] for side in layout.sides]
    return layout.per_column([base - (part.exponent - part.hidden) for part in parts])


def make_pulls(layout: WeightLayout, sums: Words, costs: Words, entry: Entry) -> Pulls:
    """Return the coefficients of columns with these ``sums``, by ``renew_kernel`` in numpy.

    Coefficients are within 0.8 % of the true values. A column whose sum is 0 has no direction, and
    no pull: coefficient and exponent are then 0.
    """
    if not entry.weight:
        return no_pulls(layout)
    words = {LOW: sums & MOST_WORD, HIGH: sums >> LOW_WIDTH, OFFSET: offsets(layout)}
    words[COST] = layout.per_column(np.repeat(costs, 2).tolist())
    rows = {name: row[None] for name, row in words.items()}
    held = {WEIGHT: entry.weight << WEIGHT_RAISE, WEIGHT_EXPONENT: entry.weight_exponent}
    registers = {r.number: np.full((THREADS, layout.columns), v) for r, v in held.items()}
    renewed = evaluate(trace(renew_kernel, layout.columns), rows, registers=registers).rows
    return Pulls(renewed[COEFFICIENT][0], renewed[EXPONENT][0])


MINUS_GRADIENT = 0
"""Constant that the exponent file gives ``words_kernel``: minus the gradient's exponent."""


def words_kernel(k: Body, flagged: bool) -> None:
    """Make shift and word of a side row's pulls, as ``prior.pull_words`` does.

    With ``flagged`` the shift of a column that is cut becomes negative.
    """
    k.preserve(RATE, RATE_SHIFT)
    flag = k.read(KEPT) if flagged else None
    exponent = k.read(EXPONENT) + k.given(MINUS_GRADIENT, -128, 128)
    down = exponent * -1
    shift = down.at_least(0).at_most(MOST_SHIFT)
    k.write(SHIFT, shift if flag is None else shift + flag)
    # The word is coefficient * 2^exponent for an exponent above 0, else the coefficient, as
    # ``shift`` then divides. The engine only shifts to the right, so it starts from 2^16 times the
    # coefficient.
    right = (down + WORD_WIDTH).at_least(0).at_most(WORD_WIDTH)
    raised = k.read(COEFFICIENT) * (1 << WORD_WIDTH)
    k.write(WORD, (raised >> right).clip(WORD_WIDTH))
