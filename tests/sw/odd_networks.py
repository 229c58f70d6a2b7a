"""Random networks of odd sizes, most of which some accelerator cannot run."""

import random

from cases import factorised

from trainwright.network import Layer, Network, Widths, rank_bounds
from trainwright.parameters import PRESETS, AcceleratorParameters, preset

NOT_DRAWN = ("ecp5-85f-sdram", "ecp5-85f-alone", "lfe5u-45f-alone")
"""Presets."""
MULTIPLES = (1, 2, 3, 5, 6, 7, 10, 25, 49)
"""Multiples of the lanes that a layer has as inputs or outputs."""


def odd_network(seed: int) -> tuple[Network, int, AcceleratorParameters]:
    """Draw layers of order 2 to 5, a batch from 1 to 256, and a preset's accelerator.

    Every fifth network has sizes that are no multiples of the lanes.
    """
    rng = random.Random(seed)
    p = preset(rng.choice([name for name in PRESETS if name not in NOT_DRAWN]))
    count = rng.choice((1, 1, 2, 2, 3, 4))
    if seed % 5:
        sizes = [p.lanes * rng.choice(MULTIPLES) for _ in range(count + 1)]
    else:
        sizes = [2 * rng.choice(MULTIPLES) for _ in range(count + 1)]
    layers = []
    for n in range(count):
        order = rng.choice((2, 2, 3, 4, 5))
        outputs, inputs = (_split(rng, sizes[at], order, p.lanes) for at in (n + 1, n))
        ranks = [
            rng.randint(1, min(bound, rng.choice((1, 4, 16, 40))))
            for bound in rank_bounds(outputs, inputs)
        ]
        relu = n + 1 < count and rng.random() < 0.7
        layers.append(Layer(outputs, inputs, tuple(ranks), relu=relu, bias=rng.random() < 0.8))
    widths = Widths(gradient=p.word_width, intermediate=p.word_width)
    network = Network(f"odd {seed}", tuple(layers), 2, (1, sizes[0]), (1, sizes[0]), widths)
    return network, rng.choice((1, 2, 7, 16, 33, 64, 256)), p


def _split(rng: random.Random, size: int, order: int, lanes: int) -> tuple[int, ...]:
    """Draw ``order`` numbers that multiply to ``size``; the last a multiple of the lanes."""
    if size % lanes:
        return tuple(factorised(size, order, rng))
    first = factorised(size // lanes, order, rng)
    return (*first[:-1], first[-1] * lanes)
