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

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainwright.kernels import Body, Register, Value, evaluate, trace, where
from trainwright.kernels.functions import MANTISSA, ROOT_UNIT
from trainwright.kernels.library import any_mantissa, reciprocal
from trainwright.onchip.layout import LANES, MOMENT_WIDTH, WEIGHT_WIDTH, WeightLayout, WeightPart
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
from trainwright.program.vector import FACTOR_WIDTH, THREADS

Words = npt.NDArray[np.int64]

LOW, HIGH, COEFFICIENT, EXPONENT, KEPT, OFFSET = range(6)
"""Numbers of the side rows that memory holds for the same columns."""
FIELDS = 6
SHIFT, WORD = FIELDS, FIELDS + 1
"""Numbers of the side rows that ``words_kernel`` writes, which only the scratchpad has."""
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
"""Sum of squares of all groups of a thread's rows."""
SUMS = SQUARES, RIGHT
WEIGHT = Register(5, 0, (1 << 15) - 1)
"""Weight of the prior in this step, from the schedule."""
WEIGHT_EXPONENT = Register(6, -(1 << 15), (1 << 15) - 1)
"""Exponent of the prior's weight in this step, from the schedule."""

STATE, FACTOR = "state", "factor"
"""Streams of ``squares_kernel``."""
LOW_WORD, HIGH_WORD = "low word", "high word"
"""Streams of both words of a sum."""


def squares_kernel(k: Body, hidden: int) -> None:
    """Square the highest 8 bits of each weight of a row, and add the squares to SQUARES."""
    k.preserve(RIGHT, RATE, RATE_SHIFT)
    bits = hidden + MOMENT_WIDTH
    low = (k.read(STATE) + (1 << (MOMENT_WIDTH - 1))).wrap(bits)
    most = 1 << (WEIGHT_WIDTH - 1 - hidden)
    top = (k.read(FACTOR, -most, most - 1) * (1 << bits) + low) >> (MOMENT_WIDTH + TOP_SHIFT)
    k.keep(SQUARES, (top * top + k.held(SQUARES)).clip(SUM_WIDTH))


def clear_kernel(k: Body, registers: tuple[Register, ...]) -> None:
    """Set registers to 0."""
    k.preserve(*{RATE, RATE_SHIFT}.difference(registers))
    for register in registers:
        k.keep(register, k.constant(0))


def _read_sum(k: Body, low: str, high: str) -> Value:
    """Join both words of a sum."""
    upper = k.read(high, 0, MOST_WORD)
    return k.read(low, 0, MOST_WORD) + upper * (1 << LOW_WIDTH)


def add_right_kernel(k: Body) -> None:
    """Add SQUARES to RIGHT, and clear SQUARES."""
    k.preserve(RATE, RATE_SHIFT)
    k.keep(RIGHT, (k.held(RIGHT) + k.held(SQUARES)).clip(SUM_WIDTH))
    k.keep(SQUARES, k.constant(0))


def flush_kernel(k: Body, register: Register, across: bool) -> None:
    """Write the sum of a thread, or with ``across`` that over its lanes, as words."""
    k.preserve(*SUMS, RATE, RATE_SHIFT)
    total = k.held(register).sum_lanes() if across else k.held(register)
    k.write(LOW_WORD, total & MOST_WORD)
    k.write(HIGH_WORD, total >> LOW_WIDTH)


def join_kernel(k: Body) -> None:
    """Add to SQUARES the sum that a row's words hold."""
    k.preserve(RATE, RATE_SHIFT)
    upper = k.read(HIGH_WORD, 0, MOST_WORD)
    total = (k.read(LOW_WORD, 0, MOST_WORD) + k.held(SQUARES)).clip(SUM_WIDTH)
    k.keep(SQUARES, (upper * (1 << LOW_WIDTH) + total).clip(SUM_WIDTH))


COEFFICIENT_ROW, EXPONENT_ROW, COST_ROW, OFFSET_ROW = "coefficient", "exponent", "cost", "offset"
"""Streams of ``renew_kernel`` in addition to both words of a sum."""


def renew_kernel(k: Body) -> None:
    """Compute coefficient and exponent of a side row from its sum."""
    total = _read_sum(k, LOW_WORD, HIGH_WORD)
    twice, length = any_mantissa(total)
    inverse = where(total.zero, 0, reciprocal(twice))

    # The product of weight and cost is cut to 16 bits and multiplied by the reciprocal; that
    # product is cut to 8 bits. ``exponent`` adds up the shifts.
    pull = k.read(COST_ROW, 0, (1 << COST_WIDTH) - 1) * k.held(WEIGHT)
    pull_length = pull.length() - MANTISSA
    pull = (pull >> pull_length).clip(FACTOR_WIDTH)
    exponent = pull_length - length
    coefficient = inverse * pull
    length = coefficient.length() - COEFFICIENT_WIDTH
    coefficient = coefficient >> length
    exponent = exponent + length + k.held(WEIGHT_EXPONENT)
    exponent = (k.read(OFFSET_ROW) + exponent).clip(EXPONENT_WIDTH)
    k.write(COEFFICIENT_ROW, coefficient)
    k.write(EXPONENT_ROW, where(coefficient.zero, 0, exponent))


def require_cost(cost: int) -> None:
    """Raise ``ValueError`` for a column of so many elements that a word does not count them."""
    if cost.bit_length() > COST_WIDTH:
        raise ValueError(
            f"a column of {cost} elements; the chip's prior takes up to {(1 << COST_WIDTH) - 1}: "
            "train with --no-prior, or with other factors"
        )


def offset_of(part: WeightPart) -> int:
    """Return the addend of the exponents of a part's coefficients."""
    below = -(MANTISSA - 1) - ROOT_UNIT  # exponent of the reciprocal's unit
    return below - WEIGHT_RAISE - 1 - 2 * TOP_SHIFT - (part.exponent - part.hidden)


def make_pulls(layout: WeightLayout, sums: Words, costs: Sequence[int], entry: Entry) -> Pulls:
    """Return the coefficients of columns with these ``sums``, by ``renew_kernel`` in numpy.

    Coefficients are within 0.8 % of the true values. A column whose sum is 0 has no direction, and
    no pull: coefficient and exponent are then 0.
    """
    if not entry.weight:
        return no_pulls(layout)
    given = {name: np.zeros(layout.columns, np.int64) for name in (COST_ROW, OFFSET_ROW)}
    for bond, cost in zip(layout.bonds, costs, strict=True):
        for side in (bond.left, bond.right):
            span, part = slice(side.first, side.first + side.columns), layout.parts[side.part]
            given[COST_ROW][span] = cost
            given[OFFSET_ROW][span] = offset_of(part)
    words = {LOW_WORD: sums & MOST_WORD, HIGH_WORD: sums >> LOW_WIDTH, **given}
    filled = (0, -layout.columns % LANES)
    rows = {name: np.pad(row, filled).reshape(-1, LANES) for name, row in words.items()}
    held = {WEIGHT: entry.weight << WEIGHT_RAISE, WEIGHT_EXPONENT: entry.weight_exponent}
    registers = {r.number: np.full((THREADS, LANES), value) for r, value in held.items()}
    renewed = evaluate(trace(renew_kernel), rows, registers=registers).rows
    return Pulls(
        *(renewed[name].ravel()[: layout.columns] for name in (COEFFICIENT_ROW, EXPONENT_ROW))
    )


PULL_COEFFICIENT, PULL_EXPONENT, PULL_FLAG = "coefficient", "exponent", "flag"
PULL_SHIFT, PULL_WORD = "shift", "word"
"""Streams of ``words_kernel``."""
MINUS_GRADIENT = 0
"""Constant that the exponent file gives ``words_kernel``: minus the gradient's exponent."""


def words_kernel(k: Body, flagged: bool) -> None:
    """Make shift and word of a side row's pulls, as ``prior.pull_words`` does.

    With ``flagged`` the shift of a column that is cut becomes negative.
    """
    k.preserve(RATE, RATE_SHIFT)
    flag = k.read(PULL_FLAG) if flagged else None
    exponent = k.read(PULL_EXPONENT) + k.given(MINUS_GRADIENT, -128, 128)
    down = exponent * -1
    shift = down.at_least(0).at_most(MOST_SHIFT)
    k.write(PULL_SHIFT, shift if flag is None else shift + flag)
    # The word is coefficient * 2^exponent for an exponent above 0, else the coefficient, as
    # ``shift`` then divides. The engine only shifts to the right, so it starts from 2^16 times the
    # coefficient.
    right = (down + WORD_WIDTH).at_least(0).at_most(WORD_WIDTH)
    raised = k.read(PULL_COEFFICIENT) * (1 << WORD_WIDTH)
    k.write(PULL_WORD, (raised >> right).clip(WORD_WIDTH))
