"""Pseudo-random bits for stochastic rounding: the one definition of hardware and golden model.

The random bits of a result are a pure function of the *stream* of its descriptor, a *key* and a
*unit*; they do not depend on time (``docs/reference/stochastic-rounding.md``).
"""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

UNITS = 16
"""Results that one key serves at most."""
KEYS_A_ROW = 16
"""A key is KEYS_A_ROW x the address of a row, + the lane where a key serves a column."""
STREAM_STEP = 0x9E3779B9
"""Advance of the stream (modulo 2^32) with every compute descriptor: 2^32 / golden ratio."""
ROUNDS = 8
ROTATIONS = (1, 8, 2)
"""Rotations of a round, in bits: two that are ANDed, one that is added."""
KEY_ROTATIONS = ((0, 11, 21), (5, 14, 26))
"""Rotations of the key, in bits, added to the first and to the second word of the state."""
STREAM_ROTATION = 16
"""Rotation of the stream in the second word, in bits."""
CONSTANT = 0x9E3779B9
"""Added to the second word; otherwise key and stream 0 would always give 0."""
TWIST = 24
"""Rotation of the 64 bits that units 8 to 15 are made with."""


def rotated(word: Words, bits: int) -> Words:
    """Rotate 32-bit words to the left."""
    return word if not bits else (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def mixed(stream: int, key: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Return 64 pseudo-random bits for every key (24 bits): ``ROUNDS`` Feistel rounds.

    A round is ``x, y = y ^ (x<<<1 & x<<<8) ^ x<<<2, x``, the round function of the cipher Simon:
    each new bit depends on four bits. ``x`` ends in the lower word.
    """
    keys = np.asarray(key).astype(np.uint32)
    x = np.full_like(keys, stream & 0xFFFFFFFF)
    y = rotated(x, STREAM_ROTATION) ^ np.uint32(CONSTANT)
    for first, second in zip(*KEY_ROTATIONS, strict=True):
        x, y = x ^ rotated(keys, first), y ^ rotated(keys, second)
    single, eight, two = ROTATIONS
    for _ in range(ROUNDS):
        x, y = y ^ (rotated(x, single) & rotated(x, eight)) ^ rotated(x, two), x
    return x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)


def unit_bytes(state: npt.NDArray[np.uint64], units: int) -> npt.NDArray[np.int64]:
    """Return ``RANDOM_WIDTH`` bits of each of the first ``units`` units: (..., units) of (...).

    Units 0 to 7 are the bytes of the state, unit 8 + j is byte j XOR byte (j + 3) mod 8: where the
    state is uniform any two units are independent.
    """
    twisted = state ^ (state >> np.uint64(TWIST) | state << np.uint64(64 - TWIST))
    places = np.arange(units)
    halves = np.stack([state, twisted], axis=-1)[..., places // 8]
    return (halves >> (8 * (places % 8)).astype(np.uint64) & np.uint64(255)).astype(np.int64)


def derived_seed(seed: int, *parts: int) -> int:
    """Return a seed of 32 bits for a program, from a run's seed and numbers such as its step.

    The numbers are mixed in one after the other (the finaliser of MurmurHash3); different lists
    give different seeds, within the limits of 32 bits.
    """
    state = 0
    for part in (seed, *parts):
        state = (state + 0x9E3779B9 + part) & 0xFFFFFFFF
        for multiplier, down in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            state = (state ^ state >> down) * multiplier & 0xFFFFFFFF
        state ^= state >> 16
    return state


ROUNDINGS = ("nearest", "stochastic-gradients", "stochastic")
"""Results that are rounded by random bits: none; those of backward passes; all."""


def step_seeds(rounding: str, seed: int, step: int) -> tuple[int | None, int | None]:
    """Return seeds of the forward and the backward program of a step of a run with ``seed``.

    None where the program rounds to nearest. A pure function: a run that is interrupted goes on
    with the same bits.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding!r}")
    forward = derived_seed(seed, step, 0) if rounding == "stochastic" else None
    return forward, None if rounding == "nearest" else derived_seed(seed, step, 1)
