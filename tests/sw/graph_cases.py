"""Random networks of any sizes, and operands for their graphs."""

import random
from dataclasses import replace
from math import prod

import numpy as np
from graph_shifts import bind, is_mask
from graph_values import constants, evaluate, evaluate_float

from trainwright.formats.rounding import MAX_SHIFT
from trainwright.graph.ir import Einsum, Graph, Kernel, Unfold, View
from trainwright.network import Layer, Network, Widths, network_from_dict, rank_bounds
from trainwright.program.elementwise import RELU_SUM, SUM

HEADROOM = 0.7
"""Part of a format's range that the largest exact sum takes."""


def odd_network(seed: int) -> tuple[Network, int]:
    """Draw one to three layers of orders 2 to 5, sizes 1 to 7, ranks to 19; a batch of 1 to 64."""
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


def split_size(draw: random.Random, size: int, parts: int) -> list[int]:
    """Split a size into factors, as many as ``parts``."""
    factors = []
    for _ in range(parts - 1):
        factor = draw.choice([n for n in range(1, min(size, 8) + 1) if size % n == 0])
        factors.append(factor)
        size //= factor
    return [*factors, size]


def _train(draw: random.Random, outputs: list[int], inputs: list[int]) -> dict:
    ranks = [draw.randint(1, min(7, most)) for most in rank_bounds(outputs, inputs)]
    return {"outputs": outputs, "inputs": inputs, "ranks": ranks, "bias": draw.random() < 0.8}


def graph_network(seed: int, *, windows: bool) -> tuple[Network, int]:
    """Draw a skip, a shared layer and one or two heads or inputs, for a batch of 1 to 20.

    With ``windows`` one or two convolutions and pools come before.
    """
    draw = random.Random(seed)
    rows, columns = draw.choice(((4, 6), (5, 5), (6, 8)))
    layers: list[dict] = []
    shape = (rows, columns, 1)
    inputs = []
    if windows:
        for _ in range(draw.choice((1, 2))):
            kernel = [draw.choice((1, 2, 3)), draw.choice((2, 3))]
            stride = [draw.choice((1, 2)), draw.choice((1, 2))]
            padding = [draw.randint(0, kernel[0] - 1), draw.randint(0, 1)]
            if prod(kernel) in (1, 2, 4) and draw.random() < 0.6:  # an average that is exact
                layers.append({"pool": kernel, "stride": stride, "padding": padding})
                channels = shape[2]
            else:
                channels = draw.choice((2, 4, 6))
                order = draw.choice((2, 3))
                parts = split_size(draw, shape[2], order - 1)
                train = _train(draw, split_size(draw, channels, order), [prod(kernel), *parts])
                layers.append({**train, "kernel": kernel, "stride": stride, "padding": padding})
            sides = [
                (n + 2 * p - k) // s + 1
                for n, k, s, p in zip(shape, kernel, stride, padding, strict=False)
            ]
            shape = (*sides, channels)
    elif draw.random() < 0.5:
        half = columns // 2
        spans = {"left": [0, half], "right": [half, 2 * half]}
        inputs = [{"name": side, "columns": span} for side, span in spans.items()]
        wide = [draw.choice((2, 3)), 3]
        for side in ("left", "right"):
            train = _train(draw, list(wide), split_size(draw, rows * half, 2))
            layers.append({**train, "name": f"of-{side}", "from": side})
        layers.append({"name": "both", "add": ["of-left", "of-right"]})
        shape = (prod(wide),)
    size = draw.choice((6, 8, 15))
    order = draw.choice((2, 3))
    outer = split_size(draw, size, order)
    stem = _train(draw, outer, split_size(draw, prod(shape), order))
    inner = _train(draw, outer, split_size(draw, size, order)) | {"relu": draw.random() < 0.5}
    layers += [{**stem, "name": "stem"}, {**inner, "name": "inner"}]
    layers.append({"name": "skip", "add": ["inner", "stem"]})
    layers.append({"name": "again", "weights": "inner"})
    layers.append({"name": "skip2", "add": ["again", "skip"], "relu": draw.random() < 0.5})
    heads = ["out", "early"][: draw.choice((1, 2))]
    layers.append({**_train(draw, [1, 3], split_size(draw, size, 2)), "name": "out"})
    if len(heads) > 1:
        early = _train(draw, [2, 1], split_size(draw, size, 2))
        layers.append({**early, "name": "early", "from": draw.choice(("stem", "skip"))})
    network = network_from_dict({
        "name": f"graph {seed}", "classes": 2, "image": [rows, columns], "layers": layers,
        "heads": heads, **({"inputs": inputs, "image": [rows, columns // 2 * 2]} if inputs else {}),
    })  # fmt: skip
    return network, draw.choice((1, 3, 8, 17, 20))


def colour_network(seed: int) -> tuple[Network, int]:
    """Describe a convolution of images of 3 channels, an average, a skip and two heads.

    The heads read images as torch flattens them; the batch is 4 or 17.
    """
    conv = {"kernel": [3, 3], "padding": [1, 1], "outputs": [2, 4], "ranks": [3]}
    image = {"name": "image", "channels": 3}
    layers = [
        {**conv, "inputs": [9, 3], "from": "image"},
        {"name": "mean", "pool": [2, 2]},
        {**conv, "inputs": [9, 8], "name": "inner", "relu": False},
        {"name": "skip", "add": ["inner", "mean"], "relu": True},
        {"name": "out", "leading": 2, "outputs": [1, 3, 1], "inputs": [2, 4, 6], "ranks": [2, 6]},
        {"name": "early", "leading": 1, "outputs": [1, 2], "inputs": [8, 6], "ranks": [2],
         "from": "mean"},
    ]  # fmt: skip
    network = network_from_dict({
        "classes": 2, "image": [4, 18], "inputs": [image], "layers": layers,
        "heads": ["out", "early"],
    })  # fmt: skip
    return network, 17 if seed % 2 else 4


def bounds(
    graph: Graph, values: dict[str, np.ndarray], exponents: dict[str, int]
) -> dict[str, np.ndarray]:
    """Bound how far the words of each tensor can be away from ``values`` in float64, at most.

    Every rounding adds half a unit in the last place; products of two that are off by e and f are
    off by |a| f + |b| e + e f; a mask whose sign is not certain by all of its operand.
    """
    error = {name: np.zeros(graph.shape(name)) for name in graph.given}
    for op in graph.ops:
        if isinstance(op, Einsum):
            near = {n: abs(values[n]) for n in op.operands}
            far = {n: near[n] + error[n] for n in op.operands}
            single = graph.part([op], op.operands, (op.out,))
            error[op.out] = (
                evaluate_float(single, far)[op.out] - evaluate_float(single, near)[op.out]
            )
        elif is_mask(op):
            x, sign = op.operands
            unsure = abs(values[sign]) <= error[sign]
            error[op.out] = error[x] + np.where(unsure, abs(values[x]), 0)
        elif isinstance(op, Kernel):
            total = graph.part([replace(op, body=SUM)], op.operands, (op.out,))
            error[op.out] = evaluate_float(total, {n: error[n] for n in op.operands})[op.out]
        elif isinstance(op, View):
            error[op.out] = error[op.x].reshape(graph.shape(op.out))
        else:
            error[op.out] = op.exact(graph, error)
        if not isinstance(op, View | Unfold) and not is_mask(op):
            error[op.out] = error[op.out] + 2.0 ** (exponents[op.out] - 1)
    return error


def _divided(draw: random.Random, size: int, order: int) -> tuple[int, ...]:
    """Draw ``order`` sizes with this product, all but the last at most 7."""
    factors: list[int] = []
    for _ in range(order - 1):
        factors.append(draw.choice([n for n in range(1, 8) if size % n == 0]))
        size //= factors[-1]
    return (*factors, size)


def deep_network(seed: int) -> tuple[Network, int]:
    """Draw two to four layers of orders 2 to 5, sizes 1 to 7, ranks to 19, and a batch to 64."""
    draw = random.Random(1000 + seed)
    layers: list[Layer] = []
    for _ in range(count := draw.randint(2, 4)):
        order = draw.randint(2, 5)
        if layers:
            inputs = _divided(draw, layers[-1].output_size, order)
        else:
            inputs = tuple(draw.choice((2, 3, 4, 5, 7)) for _ in range(order))
        outputs = [draw.choice((1, 2, 3, 5)) for _ in range(order)]
        outputs[-1] = max(outputs[-1], 2)
        ranks = tuple(draw.randint(1, min(19, most)) for most in rank_bounds(outputs, inputs))
        layers.append(Layer(tuple(outputs), inputs, ranks, relu=len(layers) < count - 1))
    image = (1, layers[0].input_size)
    return Network(f"deep {seed}", tuple(layers), 2, image, image, Widths()), draw.choice(
        (8, 16, 33, 64)
    )


def random_words(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """Draw words over the whole range of the given tensors' formats, and views of the words."""
    rng, words = np.random.default_rng(seed), {}
    for name in graph.given:
        if graph.tensors[name].constant:
            continue
        fmt = graph.tensors[name].format
        words[name] = rng.integers(*fmt.limits, graph.shape(name), endpoint=True)
    for op in graph.ops:
        if isinstance(op, View) and op.x in words:
            words[op.out] = words[op.x].reshape(graph.shape(op.out))
    return words


def mixed_widths(network: Network, seed: int) -> Network:
    """Give the network classes, a few tensors and biases of 3 to 16 bits, on words of 8 bits.

    A tensor then has one to three digits, but no two tensors of three digits meet.
    """
    draw = random.Random(f"widths {seed}")
    widths = (7, 8, 9, 12, 15)
    chosen = {
        "activation": draw.choice(widths),
        "intermediate": draw.choice((*widths, 16)),
        "gradient": draw.choice(widths),
        "factor": draw.choice((3, 4, 8, 9, 12, 15)),
    }
    names = [name for name, kind in network.nameable.items() if kind != "intermediate"]
    chosen |= {name: draw.choice(widths) for name in draw.sample(names, min(3, len(names)))}
    network = network.with_formats({name: f"fixed({width})" for name, width in chosen.items()})
    return replace(network, widths=replace(network.widths, bias=draw.choice((6, 8, 9, 12, 16))))


class _Again(Exception):
    """Exponents from which to begin anew."""


def settled(
    graph: Graph, words: dict[str, np.ndarray], exponents: dict[str, int], most: int = 15
) -> tuple[dict[str, int], dict[str, np.ndarray], dict[str, int]]:
    """Return exponents at which every tensor's largest value is ``HEADROOM`` of its range.

    The result is (chosen exponents, words of all tensors, exponents of all tensors). If two addends
    are more bits apart than ``most``, which the adder can shift, the finer one is made coarser. A
    shared bias moves to an exponent that meets all its addends; addends too far from it become
    coarser.
    """
    least: dict[str, int] = {}
    exponents = dict(exponents)
    while True:
        try:
            return _settled(graph, {**words, **constants(graph)}, exponents, least, most)
        except _Again:
            continue


def _settled(
    graph: Graph,
    words: dict[str, np.ndarray],
    first: dict[str, int],
    least: dict[str, int],
    most: int,
) -> tuple[dict[str, int], dict[str, np.ndarray], dict[str, int]]:
    wanted: dict[str, int] = {}
    exponents, added = dict(first), dict[str, list[str]]()
    for op in graph.ops:
        single = graph.part([op], op.operands, (op.out,))
        given = {name: words[name] for name in op.operands}
        binding = bind(single, {}, exponents, most_alignment=most)
        if isinstance(op, Kernel) and op.body in (SUM, RELU_SUM):
            moved = first, exponents, binding.exponents
            _check_alignment(graph, op, moved, least, added, most)
        if isinstance(op, Einsum) or (isinstance(op, Kernel) and op.body in (SUM, RELU_SUM)):
            limit = 1 << (graph.tensors[op.out].format.width - 1)
            for shift in range(MAX_SHIFT):
                exponent = binding.floors[op.out] + shift
                wanted[op.out] = max(exponent, least.get(op.out, exponent))
                trial = bind(single, wanted, exponents, most_alignment=most)
                outputs, counted = evaluate(single, given, trial.shifts)
                if (
                    not counted[op.out].saturations
                    and abs(outputs[op.out]).max() <= HEADROOM * limit
                ):
                    break
        binding = bind(single, wanted, exponents, most_alignment=most)
        outputs, _ = evaluate(single, given, binding.shifts)
        words[op.out] = outputs[op.out]
        exponents |= binding.exponents
    return wanted, words, exponents


def _check_alignment(
    graph: Graph,
    op: Kernel,
    exponents: tuple[dict[str, int], dict[str, int], dict[str, int]],
    least: dict[str, int],
    added: dict[str, list[str]],
    most: int,
) -> None:
    """Begin anew if the operands of an addition are too far apart.

    ``added`` lists the other addends of each bias.
    """
    first, before, after = exponents
    x, y = op.operands
    if y not in first:
        if before[y] == after[y] and before[x] == after[x]:
            return
        finer, coarser = sorted(op.operands, key=before.__getitem__)
        least[_maker(graph, finer)] = before[coarser] - most
        raise _Again
    addends = added.setdefault(y, [])
    addends.append(x)
    finer, *_, coarser = sorted([*addends, *addends], key=before.__getitem__)
    if before[coarser] - before[finer] > 2 * most:
        least[_maker(graph, finer)] = before[coarser] - 2 * most
        raise _Again
    if before[y] != after[y] and len(addends) > 1:
        first[y] = min(max(first[y], before[coarser] - most), before[finer] + most)
        raise _Again


def _maker(graph: Graph, name: str) -> str:
    """Return the tensor that an exponent belongs to."""
    name = graph.origins[name]
    while is_mask(maker := graph.makers[name]):
        name = graph.origins[maker.operands[0]]
    return name
