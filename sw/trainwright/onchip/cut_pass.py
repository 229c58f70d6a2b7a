"""Cuts as kernels: the columns of each bond that are left, which numpy finds by them, too.

A bond has a thread. Its columns lie along the lanes of *flag* rows, a side row's KEPT field: 0
where the column is left, CUT where it is not, or never was. Passes take THREADS bonds; where there
are fewer, threads without one read rows of no bond, and nothing reads the rows that they write:

* ``look_kernel``, a row a bond: whether this step is one that looks at the columns;
* ``gather_kernel``, a row a column of the bond's right side: its sum of squares to its lane;
* ``decide_kernel``, a row or several a bond: strengths of columns, flags, number of those left;
* ``spread_kernel``, a row a column: its flag to all lanes, as rows of the right side have it;
* ``cost_kernel``, a row a bond: elements that a column takes at the ranks left.
"""

import numpy as np

from trainwright.kernels import Body, Register, Value, evaluate, trace, where
from trainwright.kernels.functions import MANTISSA
from trainwright.kernels.library import any_mantissa, log2_fraction
from trainwright.kernels.tables import FRACTION
from trainwright.onchip.layout import Kept, WeightLayout, Words
from trainwright.onchip.prior import COST, HIGH, KEPT, LOW, LOW_WIDTH, MOST_WORD, read_sum
from trainwright.program.vector import FACTOR_WIDTH, THREADS, Rounding

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
        registers = {
            register.number: np.broadcast_to(value, (THREADS, columns))
            for register, value in held.items()
        }
        body = trace(decide_kernel, columns, distance=distance)
        new = evaluate(body, rows, registers=registers).rows[FLAGS_OUT]
        remaining.append(np.flatnonzero(new[0] == 0))
    return remaining
