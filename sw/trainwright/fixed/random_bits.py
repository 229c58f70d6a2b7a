"""Pseudo-random bits for stochastic rounding: the one definition of hardware and golden model.

The random bits of a result are a pure function of the *stream* of its descriptor, a *key* and a
*unit*; they do not depend on time (``docs/reference/stochastic-rounding.md``).
"""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

UNITS = 16
"""Results (units) that one key serves, at most."""
KEYS_A_ROW = 16
"""Keys of a row: key = KEYS_A_ROW x address of the row, plus the lane if a key serves a column."""
STREAM_STEP = 0x9E3779B9
"""Advance of the stream (modulo 2^32) with every compute descriptor: 2^32 / golden ratio."""
ROUNDS = 8
"""Feistel rounds that mix stream and key."""
ROTATIONS = (1, 8, 2)
"""Rotations in a round, in bits: the first two are ANDed, the third is XORed to the AND."""
KEY_ROTATIONS = ((0, 11, 21), (5, 14, 26))
"""Rotations of the key, in bits, that are XORed into the first and the second word of the state."""
STREAM_ROTATION = 16
"""Rotation of the stream in the second word, in bits."""
CONSTANT = 0x9E3779B9
"""Word that is XORed into the second word: without, key 0 and stream 0 would give 0."""
TWIST = 24
"""Rotation, in bits, of the 64 bits that are XORed with the state for units 8 to 15."""


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
    """Return a random byte for each of the first ``units`` units: (..., units) from (...).

    Units 0 to 7 get the bytes of the state, unit 8 + j gets byte j XOR byte (j + 3) mod 8. If the
    state is uniform, the bytes of any two units are independent.
    """
    twisted = state ^ (state >> np.uint64(TWIST) | state << np.uint64(64 - TWIST))
    places = np.arange(units)
    halves = np.stack([state, twisted], axis=-1)[..., places // 8]
    return (halves >> (8 * (places % 8)).astype(np.uint64) & np.uint64(255)).astype(np.int64)


def derived_seed(seed: int, *parts: int) -> int:
    """Return a 32-bit seed for a program from the seed of a run and numbers such as the step.

    The numbers are mixed in one after the other by the finaliser of MurmurHash3. Different lists of
    numbers almost always give different seeds: there are 2^32 of them.
    """
    state = 0
    for part in (seed, *parts):
        state = (state + 0x9E3779B9 + part) & 0xFFFFFFFF
        for multiplier, down in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            state = (state ^ state >> down) * multiplier & 0xFFFFFFFF
        state ^= state >> 16
    return state


ROUNDINGS = ("nearest", "stochastic-gradients", "stochastic")
"""Values of ``--rounding-mode``: random bits round no result, results of backward passes, all."""


def step_seeds(rounding: str, seed: int, step: int) -> tuple[int | None, int | None]:
    """Return the seeds of the forward and of the backward program of a step.

    None stands for a program that rounds to nearest. The seeds depend on the arguments only, so a
    resumed run continues with the same bits.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding!r}")
    forward = derived_seed(seed, step, 0) if rounding == "stochastic" else None
    return forward, None if rounding == "nearest" else derived_seed(seed, step, 1)
