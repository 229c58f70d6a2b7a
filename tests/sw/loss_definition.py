"""The losses on the chip by their formulas, on arrays: an oracle for the kernels."""

import numpy as np
from table_functions import exp2, log2, reciprocal

from trainwright.formats.rounding import clamp, half_even
from trainwright.kernels.functions import EXP2_UNIT, Words
from trainwright.kernels.tables import FRACTION
from trainwright.onchip.loss import (
    ERROR_UNIT,
    LOG2_E,
    LONGEST,
    UNITS,
    WORD_WIDTH,
    Loss,
    gradient_exponent,
    probability_width,
)


def distances(logits: Words, exponent: int) -> Words:
    """Return (max - z) * log2(e) of logits (batch, classes), half to even, at most LONGEST."""
    products = (logits.max(1, keepdims=True) - logits) * LOG2_E
    left, right = min(max(exponent, 0), 28), min(max(-exponent, 0), 60)
    return np.minimum(half_even(products << left, right), LONGEST)


def probabilities(weights: Words, width: int) -> Words:
    """Return shares of ``weights`` (batch, classes) in their sums, in units of 2 / 2^width."""
    r, exponent = reciprocal(weights.sum(1, keepdims=True))
    shift = -exponent - (width - 1)
    return clamp(half_even(weights * r, shift), width)


def cross_entropy(logits: Words, exponent: int, labels: Words, classes: int) -> Loss:
    """Define softmax, cross-entropy and the gradient, sample by sample."""
    kept, rows = logits[:, :classes], np.arange(len(labels))
    far = distances(kept, exponent)
    weights = exp2(far)
    width = probability_width(classes)
    shares_of_all = probabilities(weights, width)
    shares_of_all[rows, labels] = 0
    shares_of_all[rows, labels] = clamp(-shares_of_all.sum(1), width)
    losses = log2(weights.sum(1)) - (EXP2_UNIT << FRACTION) + far[rows, labels]
    return Loss(
        gradient=_padded(shares_of_all << (WORD_WIDTH - width), logits),
        exponent=gradient_exponent("cross-entropy", len(labels)),
        total=int(losses.sum()),
        unit=UNITS["cross-entropy"],
        correct=_correct(kept, labels),
        samples=len(labels),
    )


def squared_error(logits: Words, exponent: int, labels: Words, classes: int) -> Loss:
    """Define half the squared distance from 1 at the label and 0 elsewhere."""
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
        samples=len(labels),
    )


def _padded(gradient: Words, logits: Words) -> Words:
    whole = np.zeros_like(logits)
    whole[:, : gradient.shape[1]] = gradient
    return whole


def _correct(logits: Words, labels: Words) -> int:
    return int((np.argmax(logits, 1) == labels).sum())


DEFINITIONS = {"cross-entropy": cross_entropy, "squared-error": squared_error}
