"""The data set in the accelerator's memory: pixels of 4 or 8 bits, and the order of the samples."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import derived_seed

PIXEL_WIDTHS = (4, 8)
MULTIPLIER = 1664525
"""Of the order's generator: 1 more than a multiple of 4, as a full period needs."""
EPOCH_STEP = 0x9E3779B8
"""What the increment grows by with every epoch; even, so that it stays odd."""


def stored_pixels(images: npt.NDArray, full_scale: int, width: int) -> npt.NDArray[np.uint8]:
    """Pixels (uint8) of ``width`` bits, as the data set is sent: byte / full_scale of the greatest.

    Halves go up. The host does this once, before it sends the data set.
    """
    greatest = (1 << width) - 1
    return ((2 * greatest * images.astype(np.int64) + full_scale) // (2 * full_scale)).astype(
        np.uint8
    )


def expanded(pixels: npt.NDArray[np.uint8], width: int, activation: int) -> npt.NDArray[np.int64]:
    """Inputs of ``activation`` bits, their sign 0, of stored pixels, as the load engine makes them.

    The pixel's bits, repeated from the top: the greatest pixel is the greatest input.
    """
    bits = activation - 1
    value = pixels.astype(np.int64)
    repeated, have = value, width
    while have < bits:
        repeated, have = repeated << width | value, have + width
    return repeated >> (have - bits)


def sample_bytes(pixels: int, width: int) -> int:
    """Bytes of a sample in external memory: its pixels, filled up to beats of 16 bytes, a label."""
    return -(-pixels * width // 128) * 16 + 1


@lru_cache(maxsize=2)
def epoch_order(samples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Every index below ``samples`` once, in the order of ``epoch``.

    x <- (MULTIPLIER x + c) mod 2^k visits all of 0 .. 2^k - 1; values of ``samples`` and more are
    skipped, half of them at most. c is odd and another in each epoch; both c and the first x come
    from ``seed``.
    """
    width = max(2, (samples - 1).bit_length())
    mask = (1 << width) - 1
    increment = (derived_seed(seed, 1) + EPOCH_STEP * epoch | 1) & mask
    values = np.array([derived_seed(seed, 2) & mask], np.uint64)
    multiplier, addend = MULTIPLIER & mask, increment
    while len(values) <= mask:  # twice as many values by one jump of the generator
        values = np.concatenate([values, (values * multiplier + addend) & np.uint64(mask)])
        multiplier, addend = (
            multiplier * multiplier & mask,
            (multiplier + 1) * addend & mask,
        )
    return values[values < samples].astype(np.int64)
