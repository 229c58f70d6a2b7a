"""Random networks of any sizes, and operands for their graphs."""

import random

import numpy as np

from trainwright.fixed.requantise import MAX_SHIFT
from trainwright.formats import Fixed
from trainwright.graph.bind import bind
from trainwright.graph.evaluate import evaluate
from trainwright.graph.ir import Graph, Mask, View
from trainwright.network import Layer, Network, Widths, rank_bounds

HEADROOM = 0.7
"""Of a format's range, what the largest exact sum is brought to."""


def odd_network(seed: int) -> tuple[Network, int]:
    """One to three layers of orders 2 to 5, sizes 1 to 7, ranks to 19; a batch of 1 to 64."""
    draw = random.Random(seed)
    count = draw.choice((1, 2, 3))
    layers: list[Layer] = []
    for number in range(1, count + 1):
        order = draw.choice((2, 3, 4, 5)) if not layers else 2
        outputs = [draw.choice((1, 2, 3, 5, 7)) for _ in range(order)]
        if number == count:
            outputs[-1] = max(outputs[-1], 2)
        if layers:
            below = layers[-1].output_size
            first = draw.choice([n for n in range(1, below + 1) if below % n == 0])
            inputs = (first, below // first)
        else:
            inputs = tuple(draw.choice((2, 3, 4, 7)) for _ in range(order))
        ranks = tuple(draw.randint(1, min(19, most)) for most in rank_bounds(outputs, inputs))
        bias = draw.random() < 0.8
        layers.append(Layer(tuple(outputs), inputs, ranks, relu=number < count, bias=bias))
    image = (1, layers[0].input_size)
    network = Network(f"odd {seed}", tuple(layers), 2, image, image, Widths())
    return network, draw.choice((1, 3, 8, 17, 33, 64))


def random_words(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Words over the whole range of the formats of what is given, and their views."""
    rng, words = np.random.default_rng(seed), {}
    for name in graph.given:
        fmt = graph.tensors[name].format
        least = -fmt.largest - isinstance(fmt, Fixed)
        words[name] = rng.integers(least, fmt.largest + 1, graph.shape(name))
    for op in graph.ops:
        if isinstance(op, View) and op.x in words:
            words[op.out] = words[op.x].reshape(graph.shape(op.out))
    return words


def settled(
    graph: Graph, words: dict[str, np.ndarray], exponents: dict[str, int]
) -> tuple[dict[str, int], dict[str, np.ndarray], dict[str, int]]:
    """Exponents that bring every tensor's largest value to ``HEADROOM`` of its format's range.

    They, the words of all tensors, and the exponents of all.
    """
    wanted: dict[str, int] = {}
    words, exponents = dict(words), dict(exponents)
    for name in graph.given:
        if name.startswith("ones "):
            words[name], exponents[name] = np.ones(graph.shape(name), np.int64), 0
    for op in graph.ops:
        one = graph.part([op], op.operands, (op.out,))
        given = {name: words[name] for name in op.operands}
        binding = bind(one, {}, exponents, most_alignment=15)
        if not isinstance(op, View | Mask):
            limit = 1 << (graph.tensors[op.out].format.width - 1)
            for shift in range(MAX_SHIFT):
                wanted[op.out] = binding.floors[op.out] + shift
                trial = bind(one, wanted, exponents, most_alignment=15)
                found, counted = evaluate(one, given, trial.shifts)
                if not counted[op.out].saturations and abs(found[op.out]).max() <= HEADROOM * limit:
                    break
        binding = bind(one, wanted, exponents, most_alignment=15)
        found, _ = evaluate(one, given, binding.shifts)
        words[op.out] = found[op.out]
        exponents |= binding.exponents
    return wanted, words, exponents
