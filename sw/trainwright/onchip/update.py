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
from trainwright.formats.rounding import half_up
from trainwright.onchip.layout import LANES

Words = npt.NDArray[np.int64]

DECAY_SHIFT = 4
"""A moment moves by 2^-4 of its distance to gt / 2^4."""
PASSES = 2
"""Random streams of a step: one for the moments, one for the weights."""


@dataclass(frozen=True)
class RandomRows:
    """The random bits of one update, or of the masks of one step, by the number of a row."""

    seed: int
    """Seed of the run, 32 bits."""
    step: int
    rows: range

    def of(self, number: int) -> Words:
        """Return random bytes (rows, LANES) of pass ``number``.

        The stream is a register that grows by STREAM_STEP with each pass; the key is the row's, the
        unit its lane.
        """
        stream = self.seed + (PASSES * self.step + number) * STREAM_STEP
        state = mixed(stream, KEYS_A_ROW * np.array(self.rows))
        return unit_bytes(state, LANES)


def quantised(weights: Words, hidden: int | Words) -> Words:
    """Return factors and biases of weights: the nearest integers, halves up."""
    return half_up(weights, hidden)
