"""Random networks, to compare the cycle model with the simulation."""

import random

from trainwright.network import Layer, Network, Widths, rank_bounds


def random_network(seed: int) -> tuple[Network, int]:
    """Return a random network and batch for benchmarks and tests.

    It has one or two layers of 2 to 4 factors with ranks to 16, the batch 8 to 64 samples.
    """
    draw = random.Random(seed)
    layers, inputs = [], None
    count = draw.choice((1, 2))
    for number in range(1, count + 1):
        order = draw.choice((2, 3, 4)) if inputs is None else 2
        outputs = (*(draw.choice((1, 2, 3, 4)) for _ in range(order - 1)), 16)
        if inputs is None:
            sizes = (*(draw.choice((2, 3, 4, 7)) for _ in range(order - 1)), 16)
        else:
            sizes = (inputs // 16, 16)
        bounds = rank_bounds(outputs, sizes)
        ranks = tuple(draw.randint(1, min(16, bound)) for bound in bounds)
        layers.append(Layer(outputs, sizes, ranks, relu=number < count))
        inputs = layers[-1].output_size
    first = layers[0].input_size
    network = Network(f"random {seed}", tuple(layers), 2, (1, first), (1, first), Widths())
    return network, draw.choice((8, 16, 32, 64))
