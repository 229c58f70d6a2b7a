"""The update of weights in integers: 20 bits of state a parameter, and no second moment.

A gradient's integer g is normalised within its tensor by the automatic scale, so that the step is
that of the integer and not of the value (``esgd``):

    gt = clamp18(g + pull)                                  the pull of the rank prior
    m  = clamp8(m + SR((gt - 16 m) / 2^8))                  the mean over about 16 steps, / 16
    W  = clamp(W - SR(m * rate / 2^shift))                  the factor is W / 2^hidden, halves up

SR is stochastic rounding by the accelerator's generator, of the row's address: a pure function of
seed, step and row. W stays where the factor has all its bits: from -2^(width - 1) to
2^(width - 1) - 1, times 2^hidden. A moment is at its gradient's exponent and is shifted when that
moves. ``momentum`` is plain SGD: its shift follows the gradient's exponent, so that the
step is that of the value.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, mixed, unit_bytes
from trainwright.formats.rounding import clamp, half_even, half_up, stochastic_shift
from trainwright.onchip.layout import LANES, MOMENT_WIDTH

Words = npt.NDArray[np.int64]

GRADIENT_WIDTH = 18
"""Bits of a gradient with the prior's pull, one operand of a multiplier."""
GREATEST_SHIFT = 31
DECAY_SHIFT = 4
"""A moment moves by 2^-4 of its distance to gt / 2^4."""
PASSES = 2
"""Random streams of a step: one for the moments, one for the weights."""


@dataclass(frozen=True)
class RandomRows:
    """The random bits of one update: those of rows, whatever the order they are taken in."""

    seed: int
    """Seed of the run, 32 bits."""
    step: int
    rows: int

    def of(self, number: int) -> Words:
        """Return random bytes (rows, LANES) of pass ``number``.

        The stream is a register that grows by STREAM_STEP with each pass; the key is the row's, the
        unit its lane.
        """
        stream = self.seed + (PASSES * self.step + number) * STREAM_STEP
        state = mixed(stream, KEYS_A_ROW * np.arange(self.rows))
        return unit_bytes(state, LANES)


def next_moments(moments: Words, gradients: Words, random: Words) -> Words:
    """Return the first moments after gradients with the prior's pull; all (rows, LANES).

    Hardware may saturate gradients to GRADIENT_WIDTH bits: beyond, m is at its limit anyway.
    """
    ahead = gradients - (moments << DECAY_SHIFT)
    moved = stochastic_shift(ahead, 2 * DECAY_SHIFT, random)
    return clamp(moments + moved, MOMENT_WIDTH)


def next_weights(
    weights: Words,
    moments: Words,
    rates: npt.ArrayLike,
    shifts: npt.ArrayLike,
    limits: Words,
    random: Words,
) -> Words:
    """Return the weights (rows, LANES) after a step of ``moments`` * ``rates`` / 2^``shifts``.

    ``rates`` (RATE_WIDTH bits) and ``shifts`` (0 to GREATEST_SHIFT) are numbers or (rows, 1),
    ``limits`` (2, rows, 1) the least and the greatest weight.
    """
    step = stochastic_shift(moments * np.asarray(rates), shifts, random)
    return np.clip(weights - step, *limits)


def moved_moments(moments: Words, by: int) -> Words:
    """Return the moments at an exponent that is ``by`` higher: half to even, or saturated."""
    if by >= 0:
        return half_even(moments, min(by, 30))
    return clamp(moments << min(-by, MOMENT_WIDTH), MOMENT_WIDTH)


def quantised(weights: Words, hidden: int | Words) -> Words:
    """Return factors and biases of weights: the nearest integers, halves up."""
    return half_up(weights, hidden)
