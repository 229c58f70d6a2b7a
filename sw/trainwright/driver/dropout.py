"""Masks of dropout: values that a step keeps, by the step's seed and the number of each value."""

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from trainwright.fixed.random_bits import derived_seed, mixed
from trainwright.network import Dropout, Network

_FIRST = 2
"""Number of the first dropout's seed: seeds 0 and 1 are those of rounding (`step_seeds`)."""
_VALUES = 4
"""Values for each key of 24 bits: 16 of the key's 64 random bits decide about a value."""
_KEYS = 1 << 24


def dropped(network: Network) -> Iterator[tuple[int, Dropout]]:
    """Yield each dropout of a network with its number."""
    return enumerate(node for node in network.nodes if isinstance(node, Dropout))


def step_mask_seed(seed: int, step: int) -> int:
    """Return the seed of a step's masks: it follows from the run's ``seed`` and ``step`` alone."""
    return derived_seed(seed, step, _FIRST)


def dropout_words(
    network: Network, node: Dropout, number: int, batch: int, seed: int | None
) -> torch.Tensor:
    """Return the mask of a dropout, int64 (rows of the batch, values): 1 keeps a value, 0 drops it.

    ``number`` counts the network's dropouts. Without a ``seed`` the mask is -1, which makes the
    dropout the identity. A value's bits follow from its place among the values of the batch alone:
    neither layouts nor slices change the mask.
    """
    rows, count = batch * network.rows_of(node.name), prod(network.shapes[node.name])
    if seed is None:
        return torch.full((rows, count), -1)
    bits = _sixteen_bits(derived_seed(seed, number), rows * count)
    kept = bits >= round(node.probability * 65536)
    return torch.from_numpy(kept.astype(np.int64).reshape(rows, count))


def _sixteen_bits(seed: int, count: int) -> npt.NDArray[np.uint16]:
    keys = np.arange(-(-count // _VALUES))
    # A stream has 2^24 keys; more values take further streams.
    parts = [
        mixed(derived_seed(seed, int(first)), keys[first : first + _KEYS] - first)
        for first in range(0, len(keys), _KEYS)
    ]
    return np.concatenate(parts).astype("<u8").view("<u2")[:count]
