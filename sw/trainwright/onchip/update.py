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

import numpy as np

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, mixed, unit_bytes
from trainwright.onchip.layout import LANES, Words

DECAY_SHIFT = 4
"""A moment moves by 2^-4 of its distance to gt / 2^4."""
PASSES = 2
"""Random streams of a step: one for the moments, one for the weights."""


def random_rows(seed: int, step: int, rows: range) -> list[Words]:
    """Return the random bytes of one update, or of the masks of one step, by the number of a row.

    There are bytes (rows, LANES) of each of the ``PASSES`` streams of a run of ``seed``, 32 bits. A
    stream is a register that grows by STREAM_STEP with each pass; the key is the row's, the unit
    its lane.
    """
    keys = KEYS_A_ROW * np.array(rows)
    streams = (seed + (PASSES * step + number) * STREAM_STEP for number in range(PASSES))
    return [unit_bytes(mixed(stream, keys), LANES) for stream in streams]
