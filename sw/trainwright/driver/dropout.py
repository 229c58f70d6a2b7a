"""Masks of dropout: values that a step keeps, by the step's seed and the number of each value."""

from collections.abc import Iterator
from math import prod

import torch

from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.network import Dropout, Network
from trainwright.onchip.layout import LANES
from trainwright.onchip.mask_pass import mask_rows, mask_seed
from trainwright.onchip.update import PASSES


def dropped(network: Network) -> Iterator[tuple[int, Dropout]]:
    """Yield each dropout of a network with its number."""
    return enumerate(node for node in network.nodes if isinstance(node, Dropout))


def step_mask_seed(seed: int, step: int) -> int:
    """Return the seed of a step's masks: it follows from the run's ``seed`` and ``step`` alone."""
    # A stream of random bits that an accelerator finds by itself, as it counts its steps.
    return (mask_seed(seed) + PASSES * step * STREAM_STEP) % (1 << 32)


def _shape(network: Network, node: Dropout, batch: int) -> tuple[int, int, int]:
    """Return values of a sample, sequences, and samples or tokens that share rows of a mask."""
    tokens = network.rows_of(node.name)
    groups, along = (batch, tokens) if tokens > 1 else (1, batch)
    return prod(network.shapes[node.name]), groups, along


def _rows(network: Network, node: Dropout, batch: int) -> int:
    count, groups, along = _shape(network, node, batch)
    return count * groups * -(-along // LANES)


def dropout_words(
    network: Network, node: Dropout, number: int, batch: int, seed: int | None
) -> torch.Tensor:
    """Return the mask of a dropout, int64 (rows of the batch, values): 1 keeps a value, 0 drops it.

    ``number`` counts the network's dropouts. Without a ``seed`` the mask is -1, which makes the
    dropout the identity. A value's bits follow from its place in the batch alone: neither layouts
    nor slices change the mask.
    """
    count, groups, along = _shape(network, node, batch)
    if seed is None:
        return torch.full((groups * along, count), -1)
    first = sum(_rows(network, other, batch) for n, other in dropped(network) if n < number)
    rows = range(first, first + _rows(network, node, batch))
    words = mask_rows(node.probability, seed, rows).reshape(count, groups, -1)[..., :along]
    return torch.from_numpy(words.reshape(count, -1).T.copy())
