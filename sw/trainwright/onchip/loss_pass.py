"""Softmax, cross-entropy and its gradient as one pass of the vector engine, a row a sample.

The instructions of ``cross_entropy`` in ``trainwright.onchip.loss``, bit for bit, where the outputs
of a sample are one row. Beside its logits a sample has a *target* row: 1 at its label, 0 at the
other classes, -1 where there is no class.
"""

from trainwright.onchip.functions import EXP2_UNIT
from trainwright.onchip.loss import LOG2_E, PROBABILITY_WIDTH, WORD_WIDTH
from trainwright.onchip.tables import SLOPE_SHIFT
from trainwright.onchip.tables import WORD_WIDTH as TABLE_WIDTH
from trainwright.onchip.vector_tables import Slot
from trainwright.program.vector import (
    Addend,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    Total,
    When,
)

LOGITS, TARGETS, GRADIENT = 0, 1, 2
"""Streams of the pass."""
MOST_SHIFT = 60
"""By which distances are shifted at most: an exponent further below 0 gives the same."""

# registers: the target stays; the others have several uses
_T, _Z, _KEY, _TOP, _E, _SUM, _NORM, _TMP = range(8)
# constants
_LEAST, _KEYS, _LOG2_E, _TWO, _BIT, _ROUND_UP, _BACK, _SHARE = range(8)

CONSTANTS = (1 << 15, 16, LOG2_E, 2, -(1 << 16), 15, -16, 24)
"""The least logit is minus the first; places of a key; log2(e); 2; minus a bit of loss; a key's
largest lane; from the length of twice a sum to its shift; from that to the shift of a share."""


def _keep(d: int, **fields) -> Instruction:
    return Instruction(keep=True, d=d, **fields)


def loss_code(exponent: int | None) -> tuple[Instruction, ...]:
    """The pass for logits of ``exponent``, at most 0, or of the exponent file's where it is None:
    then it takes shift 0 of the pass. One row a sample.

    Lane 0's totals: the sum of the losses in units of 2^-16 bits, and the samples whose label has
    the largest logit.
    """
    if exponent is not None and exponent > 0:
        raise ValueError(f"logits have an exponent of at most 0 on the chip, not {exponent}")
    by = {"shift": 0, "shift_by": ShiftBy.SCALAR}
    if exponent is not None:
        by = {"shift": min(-exponent, MOST_SHIFT)}
    product, even = Kind.PRODUCT, Rounding.EVEN
    return (
        _keep(_T, memory=Memory.READ, stream=TARGETS),
        _keep(_Z, memory=Memory.READ, stream=LOGITS),
        _keep(_Z, kind=product, a=_T, use_k=True, k=_LEAST, c=_T, when=When.NEGATIVE),
        # the greatest logit, of equal ones the first: keys are 16 z - lane
        _keep(_KEY, kind=Kind.LANE),
        _keep(_KEY, kind=product, a=_Z, use_k=True, k=_KEYS, c=_KEY, addend=Addend.MINUS),
        _keep(_TOP, kind=Kind.GREATEST, a=_KEY),
        _keep(_TMP, a=_KEY, c=_TOP, addend=Addend.MINUS, width=1),
        _keep(_TMP, kind=product, a=_T, b=_TMP, c=_T, addend=Addend.PLUS),
        Instruction(kind=Kind.SUM, a=_TMP, total=Total.COUNT),
        _keep(_TOP, a=_TOP, k=_ROUND_UP, addend=Addend.CONSTANT, shift=4),
        # distances, in units of 2^-16 bits, and powers of two
        _keep(_KEY, a=_TOP, c=_Z, addend=Addend.MINUS),
        _keep(_KEY, kind=product, a=_KEY, use_k=True, k=_LOG2_E, **by, rounding=even,
              width=32),
        _keep(_TMP, a=_KEY, shift=16, width=7),
        _keep(_E, kind=Kind.TABLE, a=_KEY, b=Slot.EXP2, c=_TMP, shift_by=ShiftBy.C),
        _keep(_E, a=_E, shift=17 + SLOPE_SHIFT - EXP2_UNIT, rounding=even, width=16),
        _keep(_E, kind=Kind.LANE, c=_T, when=When.NEGATIVE, shift=63),
        # the reciprocal and the logarithm of their sum, a mantissa of 16 bits and a length
        _keep(_NORM, kind=Kind.SUM, a=_E),
        _keep(_NORM, kind=Kind.SUM, a=_E, c=_NORM, addend=Addend.PLUS),
        _keep(_SUM, kind=Kind.LENGTH, a=_NORM, k=_BACK, addend=Addend.CONSTANT),
        _keep(_NORM, a=_NORM, c=_SUM, shift_by=ShiftBy.C),
        _keep(_NORM, kind=product, a=_NORM, use_k=True, k=_TWO),
        _keep(_TMP, kind=Kind.TABLE, a=_NORM, b=Slot.LOG2, shift=SLOPE_SHIFT, rounding=even),
        # the loss: log2(sum) - 15 + the label's distance
        _keep(_TMP, kind=product, a=_SUM, use_k=True, k=_BIT, c=_TMP, addend=Addend.MINUS),
        _keep(_Z, kind=Kind.LANE, shift=63),
        _keep(_Z, a=_KEY, k=_BIT, addend=Addend.CONSTANT, c=_T, when=When.POSITIVE),
        Instruction(kind=Kind.SUM, a=_Z, c=_TMP, addend=Addend.MINUS, total=Total.SUM),
        # shares of the others, and at the label minus their sum
        _keep(_NORM, kind=Kind.TABLE, a=_NORM, b=Slot.RECIPROCAL, shift=SLOPE_SHIFT,
              rounding=even, width=TABLE_WIDTH),
        _keep(_SUM, a=_SUM, k=_SHARE, addend=Addend.CONSTANT),
        _keep(_E, kind=product, a=_E, b=_NORM, c=_SUM, shift_by=ShiftBy.C, rounding=even,
              width=PROBABILITY_WIDTH),
        _keep(_E, kind=Kind.LANE, c=_T, when=When.POSITIVE, shift=63),
        _keep(_TMP, kind=Kind.SUM, a=_E),
        _keep(_E, kind=product, a=_TMP, use_k=True, k=_BIT, shift=16, width=PROBABILITY_WIDTH,
              c=_T, when=When.POSITIVE),
        Instruction(kind=product, a=_E, use_k=True, k=_LEAST, memory=Memory.WRITE, stream=GRADIENT,
                    shift=15 - (WORD_WIDTH - PROBABILITY_WIDTH), width=16),
    )  # fmt: skip
