"""The rank prior as passes of the vector engine, bit for bit ``trainwright.onchip.prior``.

A *side row* is a row of one word a lane for the columns of one side of a bond: for a bond on the
left of a part a row a column, the same in all lanes; for one on the right a row, columns along the
lanes. Of each there are ``FIELDS`` in memory: the sum of squares as two words, coefficient and
exponent of the pull, a flag of what was cut (``onchip.cut_pass``) and a constant; costs are of
bonds.

* ``squares_code``, rows of the state: the squares of each thread's rows are added up;
* ``flush_left_code``, ``add_right_code``: from these sums to words of side rows;
* ``renew_code``, side rows: coefficients and exponents by the sums, every INTERVAL steps;
* ``words_code``, side rows: what the update's passes read, by the gradient's exponent.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.onchip.functions import MANTISSA, ROOT_UNIT
from trainwright.onchip.instructions import keep, read, write, zero
from trainwright.onchip.layout import MOMENT_WIDTH
from trainwright.onchip.mantissa import BACK, CONSTANTS, POWER, mantissa_code
from trainwright.onchip.prior import (
    COEFFICIENT_WIDTH,
    EXPONENT_WIDTH,
    INTERVAL,
    MOST_SHIFT,
    TOP_SHIFT,
    WORD_WIDTH,
)
from trainwright.onchip.tables import SLOPE_SHIFT
from trainwright.onchip.tables import WORD_WIDTH as TABLE_WIDTH
from trainwright.onchip.vector_tables import Slot
from trainwright.program.vector import (
    Addend,
    Instruction,
    Kind,
    Rounding,
    ShiftBy,
    When,
)

Words = npt.NDArray[np.int64]

LOW, HIGH, COEFFICIENT, EXPONENT, KEPT, OFFSET = range(6)
"""Fields of a side row, and streams of ``renew_code``, which reads costs in the place of KEPT."""
FIELDS = 6
COST = KEPT
LOW_WIDTH = 15
"""Bits of a sum in its first word; both hold 30, as much as 2^16 squares."""
COST_WIDTH = 15
WEIGHT_RAISE = 7
"""Bits by which weights are shifted to the left in the schedule: times a cost, which is at least 2,
they have then the bits of a mantissa."""

SQUARES, RIGHT = 4, 5
"""Registers: sums of squares of a thread, and those of all its groups of rows."""
WEIGHT, WEIGHT_EXPONENT, PHASE = 5, 6, 7
"""Registers that ``renew_code`` reads: the schedule's entry, and the step within INTERVAL."""

STATE, FACTOR = range(2)
"""Streams of ``squares_code``."""
_SPLIT, _HALF = range(2)


def squares_constants(hidden: int) -> tuple[int, ...]:
    """Constants of ``squares_code``."""
    return 1 << (hidden + MOMENT_WIDTH), 1 << (MOMENT_WIDTH - 1)


def squares_code(hidden: int) -> tuple[Instruction, ...]:
    """SQUARES += the squares of a row's weights, of each the highest 8 bits."""
    return (
        read(STATE, 0, k=_HALF, addend=Addend.CONSTANT, wrap=True, width=hidden + MOMENT_WIDTH),
        read(FACTOR, 0, kind=Kind.PRODUCT, use_k=True, k=_SPLIT, c=0, addend=Addend.PLUS,
              shift=MOMENT_WIDTH + TOP_SHIFT),
        keep(SQUARES, kind=Kind.PRODUCT, a=0, b=0, c=SQUARES, addend=Addend.PLUS),
    )  # fmt: skip


def clear_code(*registers: int) -> tuple[Instruction, ...]:
    """These registers are 0."""
    return tuple(map(zero, registers))


def _words(a: int) -> tuple[Instruction, ...]:
    """A sum in a register to its two words."""
    return (
        write(LOW, kind=Kind.AND, a=a, use_k=True, k=0),
        write(HIGH, a=a, shift=LOW_WIDTH),
    )


WORDS_CONSTANTS = ((1 << LOW_WIDTH) - 1, 1 << LOW_WIDTH)
"""Of ``flush_left_code``, ``flush_code`` and ``join_code``."""


def flush_left_code() -> tuple[Instruction, ...]:
    """The sum over the lanes of SQUARES, as words of a side row of its thread."""
    return (keep(0, kind=Kind.SUM, a=SQUARES), *_words(0))


def add_right_code() -> tuple[Instruction, ...]:
    """RIGHT += SQUARES, which is 0 then."""
    return (keep(RIGHT, a=SQUARES, c=RIGHT, addend=Addend.PLUS), zero(SQUARES))


def flush_code(register: int) -> tuple[Instruction, ...]:
    """A sum of a thread, as words."""
    return _words(register)


def join_code() -> tuple[Instruction, ...]:
    """SQUARES += the sum that the words of a row are."""
    return (
        read(LOW, SQUARES, c=SQUARES, addend=Addend.PLUS),
        read(HIGH, SQUARES, kind=Kind.PRODUCT, use_k=True, k=1, c=SQUARES, addend=Addend.PLUS),
    )


# Renewal: constants, then registers.
_TOP = len(CONSTANTS)
assert CONSTANTS[POWER] == 1 << LOW_WIDTH  # it joins the words of a sum, too
_S, _L, _M, _C, _E = range(5)
RENEW_CONSTANTS = (*CONSTANTS, -COEFFICIENT_WIDTH)


def renew_code() -> tuple[Instruction, ...]:
    """Coefficient and exponent of a side row by its sum, where PHASE is 0."""
    product, constant = Kind.PRODUCT, Addend.CONSTANT
    by_length = {"shift_by": ShiftBy.C, "c": _L}
    return (
        # the sum S, and its reciprocal; 0 for 0
        read(HIGH, _S, kind=product, use_k=True, k=POWER),
        read(LOW, _S, c=_S, addend=Addend.PLUS),
        *mantissa_code(_M, _L, _S),
        keep(_M, kind=Kind.TABLE, a=_M, b=Slot.RECIPROCAL, shift=SLOPE_SHIFT,
              rounding=Rounding.EVEN, width=TABLE_WIDTH),
        zero(_M, c=_S, when=When.ZERO),
        # weight times cost, to 16 bits
        read(COST, _S, kind=product, b=WEIGHT),
        keep(_C, kind=Kind.LENGTH, a=_S, k=BACK, addend=constant),
        keep(_S, a=_S, c=_C, shift_by=ShiftBy.C),
        # exponents so far, and the product to 8 bits
        keep(_E, a=_C, c=_L, addend=Addend.MINUS),
        keep(_M, kind=product, a=_M, b=_S),
        keep(_L, kind=Kind.LENGTH, a=_M, k=_TOP, addend=constant),
        keep(_M, a=_M, **by_length),
        keep(_E, a=_E, c=_L, addend=Addend.PLUS),
        keep(_E, a=_E, c=WEIGHT_EXPONENT, addend=Addend.PLUS),
        read(OFFSET, _E, c=_E, addend=Addend.PLUS, width=EXPONENT_WIDTH),
        zero(_E, c=_M, when=When.ZERO),
        # in other steps they are as they were
        read(COEFFICIENT, _S),
        keep(_S, a=_M, c=PHASE, when=When.ZERO),
        write(COEFFICIENT, a=_S),
        read(EXPONENT, _S),
        keep(_S, a=_E, c=PHASE, when=When.ZERO),
        write(EXPONENT, a=_S),
    )  # fmt: skip


@dataclass(frozen=True)
class BondConstants:
    """What a renewal needs of a bond's side, as words."""

    cost: int
    offset: int
    """What is added to exponents."""

    @classmethod
    def of(cls, cost: int, weight_exponent: int) -> "BondConstants":
        """Of a bond whose columns cost so many elements, and a part's weights of this exponent.

        Raises ``ValueError`` for a cost of more than COST_WIDTH bits.
        """
        if cost.bit_length() > COST_WIDTH:
            raise ValueError(
                f"a column of {cost} elements; the chip's prior takes up to "
                f"{(1 << COST_WIDTH) - 1}: train with --no-prior, or with other factors"
            )
        below = -(MANTISSA - 1) - ROOT_UNIT  # of the reciprocal
        return cls(cost, below - WEIGHT_RAISE - 1 - 2 * TOP_SHIFT - weight_exponent)


READ_COEFFICIENT, READ_EXPONENT, WRITE_SHIFT, WRITE_WORD, READ_FLAG = range(5)
"""Streams of ``words_code``."""
MINUS_GRADIENT = 0
"""Its constant that the exponent file gives: minus the gradient's exponent."""
_MINUS, _NONE, _MOST, _SIXTEEN, _WORD = range(1, 6)
WORDS_OF_PULL = (0, -1, 0, MOST_SHIFT, WORD_WIDTH, 1 << WORD_WIDTH)
"""Constants of ``words_code``."""


def words_code(*, flagged: bool = False) -> tuple[Instruction, ...]:
    """``pull_words`` of a side row; where ``flagged`` shifts are under 0 where a column is cut."""
    limit = {"use_k": True}
    flag = {"c": 2, "addend": Addend.PLUS} if flagged else {}
    return (
        *([read(READ_FLAG, 2)] if flagged else ()),
        read(READ_EXPONENT, 0, k=MINUS_GRADIENT, addend=Addend.CONSTANT),
        keep(0, kind=Kind.PRODUCT, a=0, use_k=True, k=_MINUS),
        keep(1, kind=Kind.MAXIMUM, a=0, **limit, k=_NONE),
        write(WRITE_SHIFT, kind=Kind.MINIMUM, a=1, **limit, k=_MOST, **flag),
        # coefficient * 2^exponent is that of 2^16, to the right
        keep(1, a=0, k=_SIXTEEN, addend=Addend.CONSTANT),
        keep(1, kind=Kind.MAXIMUM, a=1, **limit, k=_NONE),
        keep(1, kind=Kind.MINIMUM, a=1, **limit, k=_SIXTEEN),
        read(READ_COEFFICIENT, 0, kind=Kind.PRODUCT, use_k=True, k=_WORD),
        write(WRITE_WORD, a=0, c=1, shift_by=ShiftBy.C, width=WORD_WIDTH),
    )


def phase_constants() -> tuple[int, ...]:
    """Constants of ``phase_code``."""
    return 1, INTERVAL - 1


def phase_code() -> tuple[Instruction, ...]:
    """PHASE, and that of the next step to memory: streams 0, read, and 1, written."""
    return (
        read(0, PHASE),
        keep(0, a=PHASE, k=0, addend=Addend.CONSTANT),
        write(1, kind=Kind.AND, a=0, use_k=True, k=1),
    )
