"""Cuts as passes of the vector engine: the columns that ``trainwright.onchip.prior`` keeps.

A bond has a thread. Its columns lie along the lanes of one *flag* row, a side row's KEPT field: 0
where the column is left, CUT where it is not, or never was. Passes, of THREADS bonds; where there
are fewer, threads without one read other rows, and what they write is nobody's:

* ``look_code``, a row a bond: whether this step is one that looks at the columns;
* ``gather_code``, a row a column of the bond's right side: its sum of squares to the column's lane;
* ``decide_code``, a row a bond: strengths of the columns, flags and number of those left;
* ``spread_code``, a row a column: its flag to all lanes, as rows of the right side have it;
* ``cost_code``, a row a bond: elements that a column takes at the ranks left.
"""

from trainwright.onchip.functions import MANTISSA
from trainwright.onchip.instructions import keep, read, write, zero
from trainwright.onchip.layout import LANES
from trainwright.onchip.mantissa import BACK, CONSTANTS, POWER, UP, mantissa_code
from trainwright.onchip.tables import FRACTION, SLOPE_SHIFT
from trainwright.onchip.vector_tables import Slot
from trainwright.program.vector import (
    FACTOR_WIDTH,
    Addend,
    Instruction,
    Kind,
    Rounding,
    When,
)

CUT_SHIFT = 6
CUT = -(1 << CUT_SHIFT)
"""Flag of a column that is not there: it leaves the lowest bits of a shift as they are."""
MOST_DISTANCE = (1 << (FACTOR_WIDTH - 1)) - 1
"""Distances beyond cut nothing, as strengths are at most 60."""

READ_COUNTER, WRITE_COUNTER = range(2)
"""Streams of ``look_code``."""
IDENTITY, LOW, HIGH = range(3)
"""Of ``gather_code``; rows of the identity say whose lane is a column's."""
RIGHT_LOW, RIGHT_HIGH, FLAGS, NEW_FLAGS, LEFT = range(5)
"""Of ``decide_code``; the number of columns left is written, too."""
SPREAD = 1
"""Of ``spread_code``, beside IDENTITY."""
BEFORE, AFTER, BEFORE_COST, AFTER_COST, OWN_COST, COST = range(6)
"""Of ``cost_code``."""

_COUNTER, _LOW, _HIGH = range(3)
_FLAGS = 7
"""Registers that pass something on to another pass."""


def look_constants(interval: int) -> tuple[int, ...]:
    """Constants of ``look_code``."""
    return 1, -interval


def look_code() -> tuple[Instruction, ...]:
    """The counter, 0 in steps that look, and the next step's; no sums are gathered yet."""
    constant = {"addend": Addend.CONSTANT}
    return (
        read(READ_COUNTER, _COUNTER),
        keep(3, a=_COUNTER, k=0, **constant),
        keep(4, a=3, k=1, **constant),
        zero(3, c=4, when=When.ZERO),
        write(WRITE_COUNTER, a=3),
        zero(_LOW),
        zero(_HIGH),
    )


def gather_code() -> tuple[Instruction, ...]:
    """Both words of a column's sum to its lane; lanes without a column may keep those of another
    bond, as their sums of the left side are 0.
    """
    chosen = {"c": 3, "when": When.POSITIVE}
    return (read(IDENTITY, 3), read(LOW, _LOW, **chosen), read(HIGH, _HIGH, **chosen))


# Decision: constants, then registers.
_NEVER, _DISTANCE, _GONE = range(len(CONSTANTS), len(CONSTANTS) + 3)
_LEFT_SUM, _RIGHT_SUM, _LOG, _LENGTH, _MANTISSA = 1, 2, 3, 4, 5


def decide_constants(distance: int) -> tuple[int, ...]:
    """Constants of ``decide_code``."""
    return (*CONSTANTS, -1, min(distance, MOST_DISTANCE) - 1, CUT)


def _log(d: int, a: int) -> tuple[Instruction, ...]:
    """log2 of a sum a > 0 by the table; -1 or so of 0."""
    return (
        *mantissa_code(_MANTISSA, _LENGTH, a),
        keep(d, kind=Kind.TABLE, a=_MANTISSA, b=Slot.LOG2, shift=SLOPE_SHIFT,
              rounding=Rounding.EVEN),
        keep(_LENGTH, a=_LENGTH, k=UP, addend=Addend.CONSTANT),
    )  # fmt: skip


def decide_code() -> tuple[Instruction, ...]:
    """Flags of a bond's columns, changed in a step that looks, and how many are left."""
    product, constant = Kind.PRODUCT, Addend.CONSTANT
    limit = {"use_k": True, "k": _NEVER}
    return (
        keep(_LEFT_SUM, kind=product, a=_HIGH, use_k=True, k=POWER, c=_LOW, addend=Addend.PLUS),
        read(RIGHT_HIGH, _RIGHT_SUM, kind=product, use_k=True, k=POWER),
        read(RIGHT_LOW, _RIGHT_SUM, c=_RIGHT_SUM, addend=Addend.PLUS),
        # whole parts and fractions of both logarithms; the sum of them, halves up
        *_log(6, _LEFT_SUM),
        keep(7, a=_LENGTH),
        *_log(_LOG, _RIGHT_SUM),
        keep(_LOG, a=_LOG, c=6, addend=Addend.PLUS, shift=FRACTION, rounding=Rounding.UP),
        keep(_LENGTH, a=_LENGTH, c=7, addend=Addend.PLUS),
        keep(_LOG, a=_LOG, c=_LENGTH, addend=Addend.PLUS),
        # -1 where a sum is 0
        keep(_LOG, kind=Kind.MAXIMUM, a=_LOG, **limit),
        keep(_LOG, kind=Kind.MINIMUM, a=_LOG, **limit, c=_LEFT_SUM, when=When.ZERO),
        keep(_LOG, kind=Kind.MINIMUM, a=_LOG, **limit, c=_RIGHT_SUM, when=When.ZERO),
        # how far above the least that stays
        keep(_LENGTH, kind=Kind.GREATEST, a=_LOG),
        keep(_LOG, a=_LOG, c=_LENGTH, addend=Addend.MINUS),
        keep(_LOG, a=_LOG, k=_DISTANCE, addend=constant),
        # where all are 0 the first that is left stays alone
        read(FLAGS, _FLAGS),
        keep(5, kind=Kind.LANE),
        keep(5, a=_FLAGS, c=5, addend=Addend.MINUS),
        keep(6, kind=Kind.GREATEST, a=5),
        keep(5, a=5, c=6, addend=Addend.MINUS),
        keep(_LOG, a=5, c=_LENGTH, when=When.NEGATIVE),
        zero(_LOG, c=_COUNTER, when=When.POSITIVE),
        keep(_FLAGS, kind=Kind.MINIMUM, a=_FLAGS, use_k=True, k=_GONE, c=_LOG,
              when=When.NEGATIVE),
        write(NEW_FLAGS, a=_FLAGS),
        # all lanes less those that are cut
        keep(5, a=_FLAGS, shift=CUT_SHIFT),
        zero(6),
        keep(6, a=6, k=BACK, addend=constant),
        write(LEFT, kind=Kind.SUM, a=5, c=6, addend=Addend.MINUS),
    )  # fmt: skip


def spread_code() -> tuple[Instruction, ...]:
    """A column's flag from its lane to all of them."""
    return (
        read(IDENTITY, 3, kind=Kind.PRODUCT, b=_FLAGS),
        write(SPREAD, kind=Kind.SUM, a=3),
    )


def cost_code() -> tuple[Instruction, ...]:
    """Columns left before and behind a bond, each times the elements that it meets, and those of
    the ends of a layer.
    """
    product = Kind.PRODUCT
    return (
        read(BEFORE, 3),
        read(BEFORE_COST, 3, kind=product, b=3),
        read(AFTER, 4),
        read(AFTER_COST, 3, kind=product, b=4, c=3, addend=Addend.PLUS),
        read(OWN_COST, 3, c=3, addend=Addend.PLUS),
        write(COST, a=3),
    )


assert LANES == MANTISSA
