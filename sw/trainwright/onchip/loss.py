"""Loss and gradient of the logits in integers: softmax with cross-entropy, and squared error.

Logits are integers z of at most 16 bits with one exponent e: value z * 2^e. A gradient is that of
the mean over the batch, in words of 16 bits at an exponent that never moves. A batch that is no
power of two is divided by the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np

from trainwright.onchip.functions import EXP2_UNIT, Words, exp2, log2, reciprocal
from trainwright.onchip.rounding import clamp, half_even
from trainwright.onchip.tables import FRACTION

LOG2_E = 94548
"""log2(e) in units of 2^-16, 17 bits; relative error 4.9e-6."""
LONGEST = (1 << 31) - 1
"""Where a distance from the largest logit saturates, in units of 2^-16: 32,768."""
PROBABILITY_WIDTH = 8
"""Bits of a gradient of cross-entropy, a sign included: it is in units of 1 / 128."""
WORD_WIDTH = 16
"""Bits of the gradient as the backward program reads it."""
ERROR_UNIT = 12
"""Errors of the squared error are in units of 2^-12, so that they reach from -8 to 8."""

UNITS = {
    "cross-entropy": log(2) / (1 << FRACTION),
    "squared-error": 2.0 ** -(2 * ERROR_UNIT + 1),
}
"""What a unit of a summed loss is."""
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

    @property
    def mean(self) -> float:
        """Mean loss of a sample, for people to read."""
        return self.total * self.unit / len(self.gradient)


def batch_exponent(batch: int) -> int:
    """k of the least 2^k that is at least ``batch``."""
    return (batch - 1).bit_length()


def gradient_exponent(loss: str, batch: int) -> int:
    """Of the gradient's words, for a ``batch`` of samples."""
    return GRADIENT_EXPONENTS[loss] - batch_exponent(batch)


def distances(logits: Words, exponent: int) -> Words:
    """(max - z) * log2(e) of logits (batch, classes), what exp2 is asked for; at least 0.

    A product of 17 and 17 bits, then half to even, or to the left; saturated at LONGEST. Below
    that the error is at most half a unit of 2^-16 and 4.9e-6 of the distance.
    """
    products = (logits.max(1, keepdims=True) - logits) * LOG2_E
    left, right = min(max(exponent, 0), 28), min(max(-exponent, 0), 60)
    return np.minimum(half_even(products << left, right), LONGEST)


def probabilities(weights: Words) -> Words:
    """Shares of ``weights`` (batch, classes) in their sums, in units of 1 / 128, at most 127.

    Weights are results of exp2. With C of them, a share p is found within

        1 / 2 + 128 (1.1 (C + 1) / 2^15 + 2^-13.8)      units,

    0.56 for 10 classes. Each weight is within 1.1 units of 2^-15 of the true power: EXP2_ERROR, and
    0.24 for its argument (v of ``distances`` is within v * 4.9e-6 + 2^-17; v 2^-v ln 2 is at most
    0.37). The largest is 2^15 - 1, so the sum S is at least that, and within 1.1 C units: the
    quotient moves by at most 1.1 (C + 1) / S. The reciprocal adds RECIPROCAL_ERROR and
    TRUNCATION_ERROR, together 2^-13.8 relative, and the last rounding a half. Saturation at 127
    is one unit more, where p is over 127 / 128.
    """
    r, exponent = reciprocal(weights.sum(1, keepdims=True))
    shift = -exponent - (PROBABILITY_WIDTH - 1)
    return clamp(half_even(weights * r, shift), PROBABILITY_WIDTH)


def cross_entropy(logits: Words, exponent: int, labels: Words, classes: int) -> Loss:
    """Softmax and cross-entropy of ``logits`` int64 (batch, outputs); ``labels`` int64 (batch,).

    The label's gradient is exactly minus the sum of the others, saturated at -128: a sample of
    which the network is sure has none. The loss of a sample is log2(sum of weights) + distance of
    the label, within 1.6 C * 2^-15 + LOG2_ERROR + 1.45 * TRUNCATION_ERROR + 2^-17 and 4.9e-6 of
    itself, in units of a bit.
    """
    kept, rows = logits[:, :classes], np.arange(len(labels))
    far = distances(kept, exponent)
    weights = exp2(far)
    found = probabilities(weights)
    found[rows, labels] = 0
    found[rows, labels] = clamp(-found.sum(1), PROBABILITY_WIDTH)
    losses = log2(weights.sum(1)) - (EXP2_UNIT << FRACTION) + far[rows, labels]
    return Loss(
        gradient=_padded(found << (WORD_WIDTH - PROBABILITY_WIDTH), logits),
        exponent=gradient_exponent("cross-entropy", len(labels)),
        total=int(losses.sum()),
        unit=UNITS["cross-entropy"],
        correct=_correct(kept, labels),
    )


def squared_error(logits: Words, exponent: int, labels: Words, classes: int) -> Loss:
    """Half the squared distance of the logits from 1 at the label and 0 elsewhere.

    The gradient is the error itself: one rounding, half to even, and saturation.
    """
    kept, rows = logits[:, :classes], np.arange(len(labels))
    left = min(max(exponent + ERROR_UNIT, 0), 40)
    errors = half_even(kept << left, min(max(-exponent - ERROR_UNIT, 0), 60))
    errors[rows, labels] -= 1 << ERROR_UNIT
    errors = clamp(errors, WORD_WIDTH)
    return Loss(
        gradient=_padded(errors, logits),
        exponent=gradient_exponent("squared-error", len(labels)),
        total=int((errors * errors).sum()),
        unit=UNITS["squared-error"],
        correct=_correct(kept, labels),
    )


def _padded(gradient: Words, logits: Words) -> Words:
    whole = np.zeros_like(logits)
    whole[:, : gradient.shape[1]] = gradient
    return whole


def _correct(logits: Words, labels: Words) -> int:
    return int((np.argmax(logits, 1) == labels).sum())


LOSSES: dict[str, Callable[[Words, int, Words, int], Loss]] = {
    "cross-entropy": cross_entropy,
    "squared-error": squared_error,
}
