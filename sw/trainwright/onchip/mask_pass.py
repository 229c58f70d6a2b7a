"""Masks of dropout as a pass of the vector engine: 1 keeps a value, 0 drops it.

A mask has rows of 16 words: samples, or the tokens of a sequence, lie along the lanes, from a new
row for each value of a sample and each sequence. An accelerator of fewer lanes has several rows for
each. The masks of a network follow one another. Random bits follow from the step and from the
number of the row, so that host and accelerator draw equal masks, whatever the order and the place
of the rows.
"""

from functools import lru_cache

from trainwright.fixed.random_bits import derived_seed
from trainwright.kernels import Body, evaluate, trace
from trainwright.onchip.layout import Words
from trainwright.onchip.update import random_rows
from trainwright.program.vector import Rounding

MASK = "mask"
"""Stream that both kernels write."""
_SEED = 3
"""Number of the seed of masks: seeds 0 to 2 are those of rounding and of the samples' order."""
_BYTE = 8
"""Bits of each of the two random numbers that decide about a value."""


def mask_seed(seed: int) -> int:
    """Return the stream of the masks of step 0 of a run with ``seed``.

    Each step takes ``PASSES`` streams, as the update does.
    """
    return derived_seed(seed, _SEED)


def draw_kernel(k: Body, probability: float) -> None:
    """Draw a row of a mask whose values are dropped with ``probability``, in units of 2^-16.

    Two random bytes u and v keep a value where 256 u + v is at least the probability.
    """
    high, low = divmod(round(probability * (1 << 2 * _BYTE)), 1 << _BYTE)
    # Rounding by a byte v carries where v and the addend reach 256: the lower byte decides whether
    # u has to reach ``high`` or to exceed it.
    carry = k.constant((1 << _BYTE) - low).rounded(_BYTE, Rounding.RANDOM_NEXT)
    k.write(MASK, (carry + ((1 << _BYTE) - 1 - high)).rounded(_BYTE, Rounding.RANDOM))


def identity_kernel(k: Body) -> None:
    """Write a row that makes a dropout the identity."""
    k.write(MASK, k.constant(-1))


_traced = lru_cache(maxsize=64)(trace)


def mask_rows(probability: float, stream: int, rows: range) -> Words:
    """Return ``rows`` of the masks of a step, int64 (rows, LANES), in numpy."""
    random = random_rows(stream, 0, rows)
    body = _traced(draw_kernel, probability=probability)
    return evaluate(body, count=len(rows), random=random).rows[MASK]
