"""Losses and their gradients as one pass of the vector engine, a row a sample.

The instructions of ``trainwright.onchip.loss``, bit for bit, where the outputs of a sample are one
row. Beside its logits a sample has a *target* row: 1 at its label, 0 at the other classes, -1 where
there is no class. *Counting* passes classify only: they write no gradient, and a row without a
label counts for nothing.
"""

from collections.abc import Callable

from trainwright.onchip.functions import EXP2_UNIT
from trainwright.onchip.instructions import keep, read, write, zero
from trainwright.onchip.loss import ERROR_UNIT, LOG2_E, PROBABILITY_WIDTH, WORD_WIDTH
from trainwright.onchip.tables import SLOPE_SHIFT
from trainwright.onchip.tables import WORD_WIDTH as TABLE_WIDTH
from trainwright.onchip.vector_tables import Slot
from trainwright.program.exponents import MOST_POWER, Scalar, ScalarKind
from trainwright.program.vector import (
    Addend,
    Instruction,
    Kind,
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

_SCALE, _LABEL = 2, 3
"""Constants of the squared error, beside the first two."""

CONSTANTS = {
    "cross-entropy": (1 << 15, 16, LOG2_E, 2, -(1 << 16), 15, -16, 24),
    "squared-error": (1 << 15, 16, 1, -(1 << ERROR_UNIT)),
}
"""The least logit is minus the first; places of a key; log2(e); 2; minus a bit of loss; a key's
largest lane; from the length of twice a sum to its shift; from that to the shift of a share. Of the
squared error a power of two that the exponent gives, and minus what a label's logit is to be."""


def loss_code(
    loss: str, exponent: int | None, *, counting: bool = False
) -> tuple[Instruction, ...]:
    """The pass of a ``loss`` for logits of ``exponent``, or of the exponent file's where it is
    None: then it takes what ``loss_scalars`` gives. One row a sample.

    Lane 0's totals: the sum of the losses in their units (``onchip.loss.UNITS``), and the samples
    whose label has the largest logit. Raises ``ValueError`` where cross-entropy has logits of an
    exponent over 0.
    """
    return (*_correct(), *_LOSSES[loss](exponent, counting))


def loss_constants(loss: str, exponent: int | None) -> tuple[int, ...]:
    """Constants of the pass."""
    constants = list(CONSTANTS[loss])
    if loss == "squared-error" and exponent is not None:
        constants[_SCALE] = 1 << min(max(exponent + ERROR_UNIT, 0), MOST_POWER)
    return tuple(constants)


def loss_scalars(loss: str, logits: int) -> tuple[Scalar, ...]:
    """What the exponent file gives a pass: by the slot of the ``logits``' exponent."""
    if loss == "cross-entropy":
        return (Scalar(ScalarKind.SHIFT, 0, minus=logits, strict=True),)
    return (
        Scalar(ScalarKind.POWER, _SCALE, plus=logits, offset=ERROR_UNIT),
        Scalar(ScalarKind.SHIFT, 0, minus=logits, offset=-ERROR_UNIT),
    )


def _shifted(exponent: int | None, unit: int) -> dict[str, int]:
    """A shift to the right from units of 2^``exponent`` to those of 2^-``unit``."""
    if exponent is None:
        return {"shift": 0, "shift_by": ShiftBy.SCALAR}
    return {"shift": min(max(-exponent - unit, 0), MOST_SHIFT)}


def _correct() -> tuple[Instruction, ...]:
    """Targets, logits, and whether the label has the greatest."""
    product = Kind.PRODUCT
    return (
        read(TARGETS, _T),
        read(LOGITS, _Z),
        keep(_Z, kind=product, a=_T, use_k=True, k=_LEAST, c=_T, when=When.NEGATIVE),
        # the greatest logit, of equal ones the first: keys are 16 z - lane
        keep(_KEY, kind=Kind.LANE),
        keep(_KEY, kind=product, a=_Z, use_k=True, k=_KEYS, c=_KEY, addend=Addend.MINUS),
        keep(_TOP, kind=Kind.GREATEST, a=_KEY),
        keep(_TMP, a=_KEY, c=_TOP, addend=Addend.MINUS, width=1),
        keep(_TMP, kind=product, a=_T, b=_TMP, c=_T, addend=Addend.PLUS),
        Instruction(kind=Kind.SUM, a=_TMP, total=Total.COUNT),
    )


def _labelled(d: int) -> tuple[Instruction, ...]:
    """1 where the row has a label, 0 where it has none."""
    return (zero(d), keep(d, a=_T, c=_T, when=When.POSITIVE), keep(d, kind=Kind.SUM, a=d))


def _cross_entropy(exponent: int | None, counting: bool) -> tuple[Instruction, ...]:
    if exponent is not None and exponent > 0:
        raise ValueError(f"logits have an exponent of at most 0 on the chip, not {exponent}")
    product, even = Kind.PRODUCT, Rounding.EVEN
    nothing = (*_labelled(_E), zero(_TMP, c=_E, when=When.ZERO)) if counting else ()
    return (
        keep(_TOP, a=_TOP, k=_ROUND_UP, addend=Addend.CONSTANT, shift=4),
        # distances, in units of 2^-16 bits, and powers of two
        keep(_KEY, a=_TOP, c=_Z, addend=Addend.MINUS),
        keep(_KEY, kind=product, a=_KEY, use_k=True, k=_LOG2_E, **_shifted(exponent, 0),
              rounding=even, width=32),
        keep(_TMP, a=_KEY, shift=16, width=7),
        keep(_E, kind=Kind.TABLE, a=_KEY, b=Slot.EXP2, c=_TMP, shift_by=ShiftBy.C),
        keep(_E, a=_E, shift=17 + SLOPE_SHIFT - EXP2_UNIT, rounding=even, width=16),
        zero(_E, c=_T, when=When.NEGATIVE),
        # the reciprocal and the logarithm of their sum, a mantissa of 16 bits and a length
        keep(_NORM, kind=Kind.SUM, a=_E),
        keep(_NORM, kind=Kind.SUM, a=_E, c=_NORM, addend=Addend.PLUS),
        keep(_SUM, kind=Kind.LENGTH, a=_NORM, k=_BACK, addend=Addend.CONSTANT),
        keep(_NORM, a=_NORM, c=_SUM, shift_by=ShiftBy.C),
        keep(_NORM, kind=product, a=_NORM, use_k=True, k=_TWO),
        keep(_TMP, kind=Kind.TABLE, a=_NORM, b=Slot.LOG2, shift=SLOPE_SHIFT, rounding=even),
        # the loss: log2(sum) - 15 + the label's distance
        keep(_TMP, kind=product, a=_SUM, use_k=True, k=_BIT, c=_TMP, addend=Addend.MINUS),
        zero(_Z),
        keep(_Z, a=_KEY, k=_BIT, addend=Addend.CONSTANT, c=_T, when=When.POSITIVE),
        *nothing,
        Instruction(kind=Kind.SUM, a=_Z, c=_TMP, addend=Addend.MINUS, total=Total.SUM),
        *(() if counting else _shares()),
    )  # fmt: skip


def _shares() -> tuple[Instruction, ...]:
    """Shares of the others, and at the label minus their sum."""
    product, even = Kind.PRODUCT, Rounding.EVEN
    return (
        keep(_NORM, kind=Kind.TABLE, a=_NORM, b=Slot.RECIPROCAL, shift=SLOPE_SHIFT,
              rounding=even, width=TABLE_WIDTH),
        keep(_SUM, a=_SUM, k=_SHARE, addend=Addend.CONSTANT),
        keep(_E, kind=product, a=_E, b=_NORM, c=_SUM, shift_by=ShiftBy.C, rounding=even,
              width=PROBABILITY_WIDTH),
        zero(_E, c=_T, when=When.POSITIVE),
        keep(_TMP, kind=Kind.SUM, a=_E),
        keep(_E, kind=product, a=_TMP, use_k=True, k=_BIT, shift=16, width=PROBABILITY_WIDTH,
              c=_T, when=When.POSITIVE),
        write(GRADIENT, kind=product, a=_E, use_k=True, k=_LEAST,
              shift=15 - (WORD_WIDTH - PROBABILITY_WIDTH), width=16),
    )  # fmt: skip


def _squared_error(exponent: int | None, counting: bool) -> tuple[Instruction, ...]:
    """Beyond 2^MOST_POWER every logit but 0 saturates, as it does at any greater exponent."""
    product = Kind.PRODUCT
    nothing = (*_labelled(_KEY), zero(_TMP, c=_KEY, when=When.ZERO))
    written = () if counting else (write(GRADIENT, a=_E),)
    return (
        keep(_E, kind=product, a=_Z, use_k=True, k=_SCALE, **_shifted(exponent, ERROR_UNIT),
              rounding=Rounding.EVEN),
        keep(_E, kind=product, a=_T, use_k=True, k=_LABEL, c=_E, addend=Addend.PLUS,
              width=WORD_WIDTH),
        zero(_E, c=_T, when=When.NEGATIVE),
        *written,
        keep(_TMP, kind=product, a=_E, b=_E),
        *(nothing if counting else ()),
        Instruction(kind=Kind.SUM, a=_TMP, total=Total.SUM),
    )  # fmt: skip


_LOSSES: dict[str, Callable[[int | None, bool], tuple[Instruction, ...]]] = {
    "cross-entropy": _cross_entropy,
    "squared-error": _squared_error,
}
