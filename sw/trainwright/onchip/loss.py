"""Loss and gradient of the logits in integers: softmax with cross-entropy, and squared error.

Logits are integers z of at most 16 bits with one exponent e: value z * 2^e. A gradient is that of
the mean over the batch, in words of 16 bits at an exponent that never moves. A batch that is no
power of two is divided by the next one.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from trainwright.kernels import Body, Condition, Value, evaluate, trace, where
from trainwright.kernels.functions import MANTISSA, ROOT_UNIT, Words
from trainwright.kernels.library import EVEN, exp2, log2_fraction, mantissa, reciprocal
from trainwright.kernels.tables import FRACTION
from trainwright.kernels.trace import STORED, trace_groups
from trainwright.onchip.choices import BYTE_CLASSES, LANES, MOST_TARGET, no_label
from trainwright.onchip.samples import TARGET_UNIT, require_labels, target_rows
from trainwright.program.exponents import MOST_POWER, Scalar, ScalarKind
from trainwright.program.vector import FACTOR_WIDTH

LOG2_E = 94548
"""log2(e) in units of 2^-16, 17 bits; relative error 4.9e-6."""
LONGEST = (1 << 31) - 1
"""Greatest distance from the largest logit, in units of 2^-16: 32,768."""
MOST_SHIFT = 60
"""Largest shift of a distance: an exponent further below 0 gives the same."""
LEAST = -(1 << 15)
"""Least logit, which fills lanes without a class."""
LOGITS, TARGETS, NUMBERS, GRADIENT = "x0", "x1", "x2", "z"
"""Streams of a loss. Where a sample is a row, a target is 1 at the label, 0 at other classes and -1
where there is no class. Where the classes of a sample are a group of rows, a target is the number
of the sample's label, below 0 without one, and each row also has the number of its class."""
PROBABILITY_WIDTH = 8
"""Bits of a gradient of cross-entropy of up to BYTE_CLASSES, a sign included: it is in units of
1 / 128."""
WORD_WIDTH = 16
"""Bits of the gradient as the backward program reads it."""
ERROR_UNIT = 12
"""Errors of the squared error are in units of 2^-12, so that they reach from -8 to 8."""

UNITS = {"cross-entropy": log(2) / (1 << FRACTION), "squared-error": 2.0 ** -(2 * ERROR_UNIT + 1)}
"""Value of a unit of a summed loss, by the loss's name."""
GRADIENT_EXPONENTS = {"cross-entropy": 1 - WORD_WIDTH, "squared-error": -ERROR_UNIT}
"""Exponent of a gradient's words, of a batch of 1."""


@dataclass(frozen=True)
class Loss:
    """Loss of a batch. A value of the gradient is ``gradient`` * 2^``exponent``."""

    gradient: Words
    """int64 (batch, outputs) of WORD_WIDTH bits; 0 at outputs beyond the classes."""
    exponent: int
    total: int
    """The summed loss, in units of ``unit``."""
    unit: float
    correct: int
    """Samples whose label has the largest logit, the first of equal ones."""
    samples: int
    """Samples that have a label."""

    @property
    def mean(self) -> float:
        """Mean loss of a sample, for people to read."""
        return self.total * self.unit / max(1, self.samples)


def in_groups(outputs: int, classes: int, lanes: int = LANES, *, of_words: bool) -> bool:
    """Return whether the classes of a sample are a group of rows, not lanes of a row."""
    return of_words or outputs > lanes or classes == 1


def probability_width(classes: int) -> int:
    """Return the bits of a gradient of cross-entropy, a sign included."""
    # Of 256 equal shares each rounds to 0 in units of 1 / 128: flat logits had no gradient.
    return PROBABILITY_WIDTH if classes <= BYTE_CLASSES else WORD_WIDTH


def gradient_exponent(loss: str, batch: int) -> int:
    """Return the exponent of the gradient's words, for a ``batch`` of samples."""
    # The mean divides by the least power of two that is at least the batch.
    return GRADIENT_EXPONENTS[loss] - (batch - 1).bit_length()


def distances(k: Body, top: Value, logits: Value, exponent: int | None) -> Value:
    """Return (top - z) * log2(e) of logits z, the argument of exp2; at least 0.

    A product of 17 and 17 bits, rounded half to even, saturated at LONGEST. Below that the error is
    at most half a unit of 2^-16 and 4.9e-6 of the distance.
    """
    distance = (top - logits).within(0, 1 << WORD_WIDTH)
    if exponent is not None and exponent > 0:
        # A distance that saturates here is beyond LONGEST after the product, too.
        distance = (distance * (1 << min(exponent, FRACTION))).clip(FACTOR_WIDTH)
    shift = k.given_shift(0) if exponent is None else min(max(-exponent, 0), MOST_SHIFT)
    return (distance * LOG2_E).rounded(shift, EVEN).clip(32)


def shares(weights: Value, twice: Value, length: Value, width: int) -> Value:
    """Return shares of ``weights`` in their sum, in units of 2 / 2^``width``, under 1.

    Weights are results of exp2, ``twice`` and ``length`` those of `mantissa` of twice their sum.
    With C weights and 8 bits, a share p is found within

        1 / 2 + 128 (1.1 (C + 1) / 2^15 + 2^-13.8)      units,

    0.56 for 10 classes. Each weight is within 1.1 units of 2^-15 of the true power: EXP2_ERROR, and
    0.24 for its argument (v of `distances` is within v * 4.9e-6 + 2^-17; v 2^-v ln 2 is at most
    0.37). The largest is 2^15 - 1, so the sum S is at least that, and within 1.1 C units: the
    quotient moves by at most 1.1 (C + 1) / S. The reciprocal adds RECIPROCAL_ERROR and
    TRUNCATION_ERROR, together 2^-13.8 relative, and the last rounding a half. Saturation at 127
    is one unit more, where p is over 127 / 128.
    """
    shift = length + (MANTISSA - 1 + ROOT_UNIT - width)
    return (weights * reciprocal(twice)).rounded(shift, EVEN).clip(width)


def sum_classes(k: Body, v: Value) -> Value:
    """Sum a value over the classes of a sample: lanes of a row, or a group of rows."""
    return k.sum(v) if k.reduced else v.sum_lanes()


def _labelled(k: Body, target: Value) -> Value:
    """Return 1 where the row has a label, 0 where it has none."""
    return where(target.positive, target, k.constant(0)).sum_lanes()


def cross_entropy_kernel(k: Body, exponent: int | None, counting: bool, main: bool) -> None:
    """Compute softmax, cross-entropy and the gradient of a row's logits.

    The label's gradient is exactly minus the sum of the others, saturated at -128: a sample of
    which the network is sure has none. The loss of a sample is log2(sum of weights) + distance of
    the label, within 1.6 C * 2^-15 + LOG2_ERROR + 1.45 * TRUNCATION_ERROR + 2^-17 and 4.9e-6 of
    itself, in units of a bit.
    """
    target, at, number, logits = _operands(k)
    top = _greatest_logit(k, target, at, number, logits, main)
    far = distances(k, top, logits, exponent)
    if k.reduced:  # rows keep what a later sweep reads, as registers are few
        weights = k.stored(STORED, exp2(far).clip(WORD_WIDTH))
    else:
        weights = where(target.negative, 0, exp2(far))
    total = sum_classes(k, weights)
    twice, length = mantissa(total + total)
    # log2(sum) - 15 + the label's distance, both with FRACTION bits below the point
    minus_log = length * -(1 << FRACTION) - log2_fraction(twice)
    if k.reduced:  # lanes are samples, and a row adds the losses of those that have its class
        k.total(where(at, far - (1 << FRACTION), k.constant(0)).sum_lanes())
        k.total(where(at, 0 - minus_log, k.constant(0)).sum_lanes())
    else:
        label_loss = where(at, far - (1 << FRACTION), k.constant(0))
        if counting:
            minus_log = where(_labelled(k, target).zero, 0, minus_log)
        k.total(label_loss.sum_lanes() - minus_log)
    if counting:
        return
    width = probability_width(k.group) if k.reduced else PROBABILITY_WIDTH
    wrong = where(at, 0, shares(weights, twice, length, width))
    if k.reduced:  # a sample without a label has no gradient
        wrong = k.stored(STORED, where(target.negative, 0, wrong))
    total_wrong = sum_classes(k, wrong)
    if width == WORD_WIDTH:  # too wide a sum for a factor
        k.write(GRADIENT, where(at, (0 - total_wrong).clip(width), wrong))
        return
    # An engine has eight constants: -1 and the raise by 8 bits use those of other steps.
    share = where(at, (total_wrong * -1).clip(width), wrong)
    k.write(GRADIENT, share * -LEAST >> (WORD_WIDTH - 1) - (WORD_WIDTH - width))


def squared_error_kernel(k: Body, exponent: int | None, counting: bool, main: bool) -> None:
    """Compute half the squared distance of a row's logits from 1 at the label and 0 elsewhere.

    The gradient is the error itself: one rounding, half to even, and saturation. Beyond
    2^MOST_POWER every logit but 0 saturates, as it does at any greater exponent. A group of one row
    is a regression: its distance is that of the output from the target.
    """
    row = None if k.reduced and k.group == 1 else _operands(k)
    if row is None:
        target, logits = k.read(TARGETS, no_label(1), MOST_TARGET), k.read(LOGITS)
    else:
        target, _, _, logits = row
        if main:
            _greatest_logit(k, *row, main)
    if exponent is None:
        scale, shift = k.given(0, 1, 1 << MOST_POWER), k.given_shift(0)
    else:
        scale = 1 << min(max(exponent + ERROR_UNIT, 0), MOST_POWER)
        shift = min(max(-exponent - ERROR_UNIT, 0), MOST_SHIFT)
    output = (logits * scale).rounded(shift, EVEN)
    if row is None:
        error = (target * -((1 << ERROR_UNIT) // TARGET_UNIT) + output).clip(WORD_WIDTH)
        error = where((target - no_label(1)).zero, 0, error)
    elif k.reduced:
        error = where(row[1], output - (1 << ERROR_UNIT), output).clip(WORD_WIDTH)
    else:
        error = (target * -(1 << ERROR_UNIT) + output).clip(WORD_WIDTH)
    if row is not None:
        error = where(target.negative, 0, error)
    if not counting:
        k.write(GRADIENT, error)
    square = error * error
    if counting and not k.reduced:
        square = where(_labelled(k, target).zero, 0, square)
    k.total(square.sum_lanes())


def _operands(k: Body) -> tuple[Value, Condition, Value, Value]:
    """Return a row's target, where its class is the label, the number of its class, and its logits.

    Without groups a row has classes in its lanes; the least logit is where there is no class.
    """
    most = max(BYTE_CLASSES, k.group) - 1 if k.reduced else 1
    target, logits = k.read(TARGETS, -1, most), k.read(LOGITS)
    if k.reduced:
        number = k.read(NUMBERS, 0, k.group - 1)
        return target, (target - number).zero, number, logits
    logits = where(target.negative, target * -LEAST, logits)
    return target, target.positive, k.lane(), logits


def _greatest_logit(
    k: Body, target: Value, at: Condition, number: Value, logits: Value, main: bool
) -> Value:
    """Return the greatest logit; count a row of the ``main`` head whose label is first to have it.

    Keys are 2^n z - lane, so that the greatest key is of the first lane among equal logits.
    """
    places = max(4, (k.lanes - 1).bit_length())
    key = logits * (1 << places) - number
    top = k.greatest(key) if k.reduced else key.greatest_lane()
    if main:
        lost = (key - top).clip(1)  # -1 where another lane wins
        won = where(at, lost + 1, k.constant(0)) if k.reduced else target * lost + target
        k.count(won.sum_lanes())
    return (top + ((1 << places) - 1)) >> places


KERNELS = {"cross-entropy": cross_entropy_kernel, "squared-error": squared_error_kernel}
"""Losses by name, for logits of ``exponent``; where it is None the exponent file gives the pass
``loss_scalars``. Lane 0's totals are the sum of the losses in their units and the samples whose
label has the largest logit; only a pass of the ``main`` head counts samples. A ``counting`` pass
writes no gradient, and leaves out rows without a label."""


def loss_scalars(loss: str, logits: int) -> tuple[Scalar, ...]:
    """Return what the exponent file gives a pass, by the slot of the ``logits``' exponent."""
    if loss == "cross-entropy":
        return (Scalar(ScalarKind.SHIFT, 0, minus=logits, strict=True),)
    return (
        Scalar(ScalarKind.POWER, 0, plus=logits, offset=ERROR_UNIT),
        Scalar(ScalarKind.SHIFT, 0, minus=logits, offset=-ERROR_UNIT),
    )


def batch_loss(loss: str, logits: Words, exponent: int, labels: Words, classes: int) -> Loss:
    """Evaluate a loss on ``logits`` int64 (batch, outputs), ``labels`` int64 (batch,).

    Labels (batch, tokens) are those of words, -1 where a sequence has none; their logits follow one
    another. Raises ``ValueError`` for labels that are no classes.
    """
    require_labels(labels, classes)
    shape, numbers = logits.shape, labels.reshape(-1, 1)
    logits = logits.reshape(len(numbers), -1)
    outputs, options = logits.shape[1], {"exponent": exponent, "counting": False, "main": True}
    if in_groups(outputs, classes, of_words=labels.ndim > 1):
        every = np.arange(classes) * np.ones_like(numbers)
        rows = {LOGITS: logits[:, :classes], TARGETS: numbers + 0 * every, NUMBERS: every}
        body = trace_groups(KERNELS[loss], classes, **options)
    else:
        rows = {LOGITS: logits, TARGETS: target_rows(labels, classes, outputs)}
        body = trace(KERNELS[loss], outputs, **options)
    result = evaluate(body, rows)
    gradient = result.rows[GRADIENT]
    return Loss(
        gradient=np.pad(gradient, ((0, 0), (0, outputs - gradient.shape[1]))).reshape(shape),
        exponent=gradient_exponent(loss, len(numbers)),
        total=result.total,
        unit=UNITS[loss],
        correct=result.count,
        samples=int((numbers > no_label(classes)).sum()),
    )
