"""The rank prior in integers: sums of squares, coefficients of the pull, columns to cut.

The prior is that of ``trainwright.train.storage_prior``. It pulls an element W of column r of a
bond by c W / S: S is the sum of the squares of the column on W's side of the bond, c = weight *
cost / 2, and cost is the number of elements that a column takes on both sides. With W = w * 2^e, S
= s * 4^(e + TOP_SHIFT) from the 8 highest bits of w, and the pull in units of the gradient's 2^g:

    pull = w * c / s * 2^(-e - 2 TOP_SHIFT - g) = (w * coefficient) >> shift, halves up

with a coefficient of 8 bits. A column is cut where the product of the sums on its two sides is at
most 2^-distance of the bond's largest.

A *side row* is a row of words about the columns of one side of a bond. For a bond on the left of a
part each column has a side row, with the same word in all lanes; for a bond on the right one side
row has a column in each lane. Memory holds ``FIELDS`` side rows for each: two words of the sum of
squares, coefficient and exponent of the pull, a flag of columns that were cut
(``CUT``), and a constant. Costs are stored once a bond, not here.

* ``squares_kernel``, rows of the state: the squares of each thread's rows are added up;
* ``add_right_kernel``, ``flush_kernel``, ``join_kernel``: from these sums to words of side rows;
* ``renew_kernel``, side rows: coefficients and exponents by the sums, every INTERVAL steps;
* ``words_kernel``, side rows: what the update's passes read, by the gradient's exponent.

A thread cuts a bond. Its columns lie along the lanes of *flag* rows, a side row's KEPT field: 0
where the column is left, CUT where it is not, or never was. Passes take THREADS bonds; where there
are fewer, threads without one read rows of no bond, and nothing reads the rows that they write:

* ``look_kernel``, a row a bond: whether this step is one that looks at the columns;
* ``gather_kernel``, a row a column of the bond's right side: its sum of squares to its lane;
* ``decide_kernel``, a row or several a bond: strengths of columns, flags, number of those left;
* ``spread_kernel``, a row a column: its flag to all lanes, as rows of the right side have it;
* ``cost_kernel``, a row a bond: elements that a column takes at the ranks left.
"""

from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from trainwright.formats.rounding import clamp
from trainwright.kernels import Body, Register, Value, evaluate, trace, where
from trainwright.kernels.functions import MANTISSA, ROOT_UNIT
from trainwright.kernels.library import any_mantissa, log2_fraction, reciprocal
from trainwright.kernels.tables import FRACTION
from trainwright.onchip.layout import LANES, MOMENT_WIDTH, WEIGHT_WIDTH, Kept, WeightLayout, Words
from trainwright.onchip.schedule import RATE, RATE_SHIFT, WEIGHT_RAISE, Entry
from trainwright.onchip.update import SIDES, weight_and_low
from trainwright.program.vector import FACTOR_WIDTH, Rounding

TOP_SHIFT = WEIGHT_WIDTH - 8
"""Bits of w below the 8 highest: sums are over squares of w / 2^TOP_SHIFT, rounded down."""
COEFFICIENT_WIDTH = 8
EXPONENT_WIDTH = 8
"""Bits in which the exponents of coefficients and prior weights are kept."""
WORD_WIDTH = 16
"""Bits of a coefficient that is shifted to the left."""
MOST_SHIFT = 40
"""Greatest right shift of a pull."""
INTERVAL = 8
"""Steps from one computation of the coefficients to the next."""


def sums_of_squares(layout: WeightLayout, weights: Words) -> Words:
    """Return s, the sum of squares, of every column of every side, (columns,)."""
    top = weights.ravel() >> TOP_SHIFT
    sums = np.zeros(layout.columns, np.int64)
    for numbers in layout.column_of:
        np.add.at(sums, numbers, top * top)
    sums[0] = 0  # number 0 stands for elements that belong to no column
    return sums


def elements_per_column(layout: WeightLayout) -> Words:
    """Return the numbers that ``column_costs`` adds up for each bond, (3, bonds).

    The three rows are the elements that a column of a bond has for each column of the bond before,
    for each column of the bond behind, and, in a layer's first and last factor, whatever the ranks.
    """
    elements = [(0, 0, 0)] * len(layout.bonds)
    for number, bond in enumerate(layout.bonds):
        before, after = (
            prod(layout.parts[side.part].shape[1:3]) for side in (bond.left, bond.right)
        )
        first, last = not bond.index, bond.index + 1 == len(layout.network.ranks[bond.layer])
        own = before * first + after * last
        elements[number] = before * (not first), after * (not last), own
    return np.array(elements, np.int64).reshape(-1, 3).T


def column_costs(layout: WeightLayout, kept: Kept) -> Words:
    """Return the elements of a column of each bond in both factors, at the ranks that are left."""
    before, after, own = elements_per_column(layout)
    ranks = np.array([0, *map(len, kept), 0])
    return before * ranks[:-2] + after * ranks[2:] + own


@dataclass(frozen=True)
class Pulls:
    """Coefficients of every column: pull = w * coefficient * 2^(exponent - g)."""

    coefficients: Words
    """(columns,): 0, or 8 bits of which the highest is 1."""
    exponents: Words
    """(columns,), with the exponent of the column's weights included."""


def no_pulls(layout: WeightLayout) -> Pulls:
    """Return the pulls of a run without a prior."""
    return Pulls(*np.zeros((2, layout.columns), np.int64))


def pull_words(
    layout: WeightLayout, pulls: Pulls, gradient_exponents: Words
) -> tuple[Words, Words]:
    """Return (coefficient, right shift) of every column (columns,), as words of the scratchpad."""
    gradients = [gradient_exponents[side.part] for side in layout.sides]
    exponents = pulls.exponents - layout.per_column(gradients)
    shifts = np.clip(-exponents, 0, MOST_SHIFT)
    return clamp(pulls.coefficients << np.clip(exponents, 0, WORD_WIDTH), WORD_WIDTH), shifts


def pull_rows(layout: WeightLayout, pulls: Pulls, gradient_exponents: Words) -> dict[str, Words]:
    """Return the streams of ``SIDES``, a word for each element, (rows, LANES).

    Two columns pull an element: one along axis 0 of its factor, one along axis 3.
    """
    raised, shifts = pull_words(layout, pulls, gradient_exponents)
    sides = zip(SIDES, layout.column_of.reshape(2, -1, LANES), strict=True)
    return {
        name: words[numbers]
        for names, numbers in sides
        for name, words in zip(names, (shifts, raised), strict=True)
    }


def cut_distance(threshold: float) -> int:
    """Return the distance d for a ``threshold``: a column is cut 2^d below the largest of its bond.

    Distances compare products of a column's two sums, thresholds compare roots of these products.
    """
    return ceil(-2 * log2(threshold))


# -- kernels
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
    registers = {WEIGHT.number: entry.weight << WEIGHT_RAISE}
    registers[WEIGHT_EXPONENT.number] = entry.weight_exponent
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


# -- cuts
CUT_SHIFT = 6
CUT = -(1 << CUT_SHIFT)
"""Flag of a column that is not there: it leaves the lowest bits of a shift as they are."""
MOST_DISTANCE = (1 << (FACTOR_WIDTH - 1)) - 1
"""Distances beyond cut nothing, as strengths are at most 60."""

COUNTER = Register(0, 0, (1 << 15) - 1)
"""Steps since the last look; 0 in a step that looks."""
GATHERED_LOW, GATHERED_HIGH = Register(1, 0, MOST_WORD), Register(2, 0, MOST_WORD)
"""Words of the right side's sums, each in its column's lane."""
FLAGS = Register(7, CUT, 0)
"""Flags of a bond's columns."""

COUNTER_IN, COUNTER_OUT = "counter", "next counter"
"""Streams of ``look_kernel``."""
IDENTITY = "identity"
"""Stream of an identity matrix: row n marks the lane of column n."""
FLAGS_OUT, LEFT = "new flags", "columns left"
"""Streams that ``decide_kernel`` writes."""
SPREAD = "spread flag"
"""Stream of ``spread_kernel`` in addition to IDENTITY."""
BEFORE, AFTER = "columns before", "columns after"
BEFORE_COST, AFTER_COST, OWN_COST = "cost before", "cost after", "own cost"
"""Streams of ``cost_kernel`` in addition to COST."""
BOND_FIELDS = LEFT, BEFORE_COST, AFTER_COST, OWN_COST, COST
"""Rows of a bond in memory: columns, elements that a column meets, and the cost of a column."""


def look_kernel(k: Body, interval: int) -> None:
    """Put the steps since the last look into COUNTER, and write the count for the next step.

    No sums are gathered yet.
    """
    counter = k.read(COUNTER_IN, 0, COUNTER.high)
    k.keep(COUNTER, counter)
    following = counter + 1
    k.write(COUNTER_OUT, where((following - interval).zero, 0, following))
    for register in (GATHERED_LOW, GATHERED_HIGH):
        k.keep(register, k.constant(0))


def gather_kernel(k: Body) -> None:
    """Put both words of a column's sum into its lane.

    A lane without a column may keep the words of another bond: its sum of the left side is 0.
    """
    k.preserve(COUNTER)
    marked = k.read(IDENTITY, 0, 1)
    for name, register in ((LOW, GATHERED_LOW), (HIGH, GATHERED_HIGH)):
        word = k.read(name, register.low, register.high)
        k.keep(register, where(marked.positive, word, k.held(register)))


def _logarithm(total: Value) -> tuple[Value, Value]:
    """Return the fraction of log2 of a sum > 0 and its whole part; -1 or so of 0."""
    twice, length = any_mantissa(total)
    return log2_fraction(twice), length + (MANTISSA - 1)


def _strength(left: Value, right: Value) -> Value:
    """Return log2 of the product of both sums, halves up; -1 where a sum is 0."""
    fraction, whole = _logarithm(left)
    right_fraction, right_whole = _logarithm(right)
    strength = (right_fraction + fraction).rounded(FRACTION, Rounding.UP)
    strength = (strength + (right_whole + whole)).at_least(-1)
    for total in (left, right):
        strength = where(total.zero, strength.at_most(-1), strength)
    return strength


MOST, FIRST = "most", "first"
"""Streams of ``decide_kernel`` for bonds of several rows: greatest strength, greatest place."""


def decide_kernel(
    k: Body, distance: int, row: int = 0, rows: int = 1, *, second_sweep: bool = False
) -> None:
    """Change the flags of a bond's columns in a step that looks, and count the columns left.

    A bond may have several ``rows`` of a column a lane, a pass for each. Two sweeps take all of
    them: only the second one knows what all rows have in common.
    """

    def joint(name: str, value: Value) -> Value:
        """Return the greatest value of all rows so far."""
        if rows > 1:
            value = value.at_least(k.read(name)) if row or second_sweep else value
            k.write(name, value)
        return value

    left = k.take(GATHERED_HIGH) * (1 << LOW_WIDTH) + k.take(GATHERED_LOW)
    strength = _strength(left, read_sum(k))

    # How far above the least strength that stays.
    most = joint(MOST, strength.greatest_lane())
    above = strength - most + (min(distance, MOST_DISTANCE) - 1)

    # Where every sum is 0, the first column that is left stays alone.
    flags = k.read(KEPT, CUT, 0)
    place = flags - k.lane()
    place = place - row * k.lanes if row else place
    first = joint(FIRST, place.greatest_lane())
    above = where(most.negative, place - first, above)
    above = where(k.held(COUNTER).positive, 0, above)
    flags = where(above.negative, flags.at_most(CUT), flags)
    k.write(FLAGS_OUT, flags)
    k.keep(FLAGS, flags)

    # All lanes less those that are cut: a flag shifted by CUT_SHIFT is -1.
    left = (flags >> CUT_SHIFT).sum_lanes() + k.lanes
    k.write(LEFT, left + k.read(LEFT) if row else left)


def spread_kernel(k: Body) -> None:
    """Copy a column's flag from its lane to all of them."""
    k.preserve(COUNTER)
    k.write(SPREAD, (k.read(IDENTITY, 0, 1) * k.held(FLAGS)).sum_lanes())


def cost_kernel(k: Body) -> None:
    """Add up the elements that a column of a bond takes.

    Columns left before and behind the bond, each times the elements that it meets, and those of the
    ends of a layer.
    """
    before = k.read(BEFORE) * k.read(BEFORE_COST)
    both = k.read(AFTER) * k.read(AFTER_COST) + before
    k.write(COST, k.read(OWN_COST) + both)


def kept_columns(layout: WeightLayout, sums: Words, kept: Kept, distance: int) -> list[Words]:
    """Return the remaining columns of each bond, never none, by ``decide_kernel`` in numpy."""
    remaining = []
    marks = layout.marks(kept)
    sums, every = np.where(marks, sums, 0), np.where(marks, 0, CUT)
    for bond in layout.bonds:
        columns = bond.left.columns
        left, right = (sums[side.first :][None, :columns] for side in (bond.left, bond.right))
        flags = every[bond.left.first :][None, :columns]
        rows = {LOW: left & MOST_WORD, HIGH: left >> LOW_WIDTH, KEPT: flags}
        held = {GATHERED_LOW: right & MOST_WORD, GATHERED_HIGH: right >> LOW_WIDTH, COUNTER: 0}
        registers = {register.number: words for register, words in held.items()}
        body = trace(decide_kernel, columns, distance=distance)
        new = evaluate(body, rows, registers=registers).rows[FLAGS_OUT]
        remaining.append(np.flatnonzero(new[0] == 0))
    return remaining
