"""Graphs: their gradients against autograd, and the contraction orders that the search finds."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from folded import each
from graph_cases import bounds, colour_network, graph_network, odd_network, random_words, settled
from graph_values import evaluate_float

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.fill import Arrays, filled
from trainwright.graph.ir import Einsum, Graph, Tensor
from trainwright.graph.network import average, upper_names
from trainwright.graph.order import Cost, ordered
from trainwright.graph.step import step_graph
from trainwright.network import Widths, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.functional import outputs
from trainwright.tt import to_matrix

HELD = 16384 * 16 // 2


def orders(step, **cost):
    return [ordered(step.whole, site, cost=Cost(**cost))[0] for site in step.sites.values()]


@pytest.mark.parametrize(
    ("name", "ranks", "held", "macs"),
    [
        ("fashion", None, 0, 78_594_048),
        ("fashion", None, HELD, 79_052_800),
        ("fashion", ((12, 5, 13), (16,)), HELD, 27_150_080),
        ("digits", None, HELD, 1_884_160),
    ],
)
def test_graph_search_finds_the_orders_of_the_prototype(name, ranks, held, macs):
    network = load_network(name)
    step = step_graph(network.with_ranks(ranks) if ranks else network, 64)
    assert sum(order.macs for order in orders(step, held=held)) == macs


def test_graph_tensor_beyond_memory_is_used_in_slices():
    step = step_graph(load_network("fashion"), 64)
    for held, common in ((0, set()), (HELD, {"l1.i3", "l1.j3"})):
        order = orders(step, held=held)[0]
        made_from = [op.out for op in order.products if "l1.x.dy" in op.operands]
        axes = [set(order.graph.tensors[name].axes) for name in ("l1.x.dy", *made_from)]
        assert set.intersection(*axes) == common


def test_arrays_are_filled_by_axes_side_by_side():
    """4 x 4 fill 16 lanes, 10 values fill 10, and 7 x 9 = 63 all but one of 64."""
    arrays = Arrays(AcceleratorParameters(pe1_rows=8, pe2_rows=4))
    assert filled((4, 4), 16) == 1 and filled((10,), 16) == 10 / 16
    assert filled((7, 9), 16) == 63 / 64 and filled((), 8) == 1 / 8
    assert arrays.fill((16,), (16,), (16,)) == 1
    assert arrays.fill((16,), (4,), (10,)) == 1  # by the outer product alone
    assert arrays.fill((16,), (4,), (3,)) == 3 / 4  # which takes four cycles a tile at least
    assert arrays.fill((8,), (16,), (16,)) == arrays.fill((16,), (8,), (16,)) == 1
    assert arrays.fill((2,), (2,), (2,)) == 2 / 16 * 2 / 4 * 2 / 4


def test_graph_order_that_fills_the_arrays_is_better_than_one_of_fewer_products():
    """Layer 2 at rank 12: W is rebuilt, whose products fill 16 lanes; without it, few do."""
    step = step_graph(load_network("fashion").with_ranks(((14, 10, 15), (12,))), 64)
    few, full = (
        orders(step, held=HELD, arrays=a)
        for a in (None, Arrays(AcceleratorParameters(pe1_rows=16, pe2_rows=16)))
    )
    assert [order.macs for order in few] == [50_456_320, 1_769_472]
    assert [order.macs for order in full] == [50_456_320, 1_867_776]


def test_graph_stored_tensor_is_not_recomputed():
    step = step_graph(load_network("fashion").with_ranks(((14, 10, 15), (12,))), 64)
    order = orders(step, held=HELD)[0]
    assert order.recomputed == 0 and order.cost == order.macs
    tensors = {op.out: op.operands for op in order.products}
    assert "l1.G1.G2.x" in tensors["l1.y"] and "l1.G1.G2.x" in tensors["l1.G1.G2.x.dy"]
    assert order.graph.count("l1.G1.G2.x") > HELD


def autograd(network, step, values):
    """Return logits, and gradients of their sum with the upper gradients, by torch."""
    whole, leaves = step.whole, {}
    images = torch.zeros(whole.sizes["s"], *network.padded, dtype=torch.float64)
    for node in network.nodes:
        if not node.sources:
            part = torch.from_numpy(values[node.name]).T
            rows, columns = slice(*node.rows), slice(*node.columns)
            images[:, rows, columns] = part.reshape(images[:, rows, columns].shape)
    images.requires_grad_()
    weights, biases = [], []
    for number, layer in enumerate(network.layers, 1):
        names = [f"l{number}.G{n}" for n in range(1, layer.order + 1)]
        leaves |= {name: torch.from_numpy(values[name]).requires_grad_() for name in names}
        factors = zip(names, layer.factor_shapes, strict=True)
        weights.append(to_matrix([leaves[name].reshape(shape) for name, shape in factors]))
        leaves[f"l{number}.b"] = torch.from_numpy(values[f"l{number}.b"]).requires_grad_()
        biases.append(leaves[f"l{number}.b"].flatten())
    logits = outputs(network, weights, biases, images)
    uppers = [torch.from_numpy(values[name]).reshape(-1, len(images)).T
              for name in upper_names(network)]  # fmt: skip
    (logits * torch.cat(uppers, 1)).sum().backward()
    gradients = {name: leaf.grad for name, leaf in leaves.items()}
    for node in network.nodes:
        if not node.sources:
            part = images.grad[:, slice(*node.rows), slice(*node.columns)]
            gradients[node.name] = part.flatten(1).T
    return logits.detach(), gradients


def cases():
    for seed in range(2):
        yield pytest.param(colour_network, seed, id=f"colour-{seed}")
    for seed in range(8):
        yield pytest.param(odd_network, seed, id=f"line-{seed}")
        for windows in (False, True):
            kind = partial(graph_network, windows=windows)
            yield pytest.param(kind, seed, id=f"{'windows' if windows else 'skips'}-{seed}")


def compared(step, network, results, values, bound=None):
    """Compare results and gradients of a graph with autograd, to rounding or within a bound."""
    logits, gradients = autograd(network, step, values)
    parts = logits.split(list(network.head_sizes), 1)
    wanted = dict(zip(step.forward.results, (part.T for part in parts), strict=True))
    for name in step.backward.results:
        head, _, tail = name.rpartition(".")
        wanted[name] = gradients[f"{head}.{tail[1:]}" if head else tail[1:]]
    assert wanted.keys() == {*step.forward.results, *step.backward.results}
    for name, value in wanted.items():
        expected = value.numpy().reshape(results[name].shape)
        most = 1e-11 * (abs(expected).max() or 1.0) if bound is None else bound[name] * (1 + 1e-9)
        assert (abs(results[name] - expected) <= most).all(), name


@pytest.mark.parametrize(("kind", "seed"), list(cases()))
def test_gradients_of_any_order_are_those_of_autograd(kind, seed):
    network, batch = kind(seed)
    step = step_graph(network, batch, inputs=True)
    rng = np.random.default_rng(seed)
    free = [name for name in step.whole.given if not step.whole.tensors[name].constant]
    values = {name: rng.standard_normal(step.whole.shape(name)) for name in free}
    results = evaluate_float(step.ordered(orders(step)).whole, values)
    compared(step, network, results, values)


@pytest.mark.parametrize(("kind", "seed"), list(cases()))
def test_words_are_as_near_to_autograd_as_their_formats_say(kind, seed):
    network, batch = kind(seed)
    if seed % 2:
        network = replace(network, widths=Widths(8, 16, 16, 16, 16))
    step = step_graph(network, batch, inputs=True)
    whole = step.ordered(orders(step)).whole
    words = random_words(whole, seed)
    _, words, exponents = settled(whole, words, dict.fromkeys(words, -3))
    values = {name: words[name] * 2.0 ** exponents[name] for name in whole.given}
    exact = evaluate_float(whole, values)
    bound = bounds(whole, exact, exponents)
    results = {name: words[name] * 2.0 ** exponents[name] for name in words}
    compared(step, network, results, values, bound)
    for name in bound:
        assert (abs(results[name] - exact[name]) <= bound[name] * (1 + 1e-9)).all(), name
    if seed % 2:  # tight enough to say something
        parts = [bound[op.out].mean() / abs(exact[op.out]).mean() for op in whole.ops]
        assert sorted(parts)[len(parts) // 4] < 0.1


@each("size", range(1, 65))
def test_graph_share_of_an_average_is_as_near_as_its_bits(size):
    word, exponent = average(size)
    most = 0 if size.bit_count() == 1 else 2.0 ** (exponent - 1)
    assert abs(word * 2.0**exponent - 1 / size) <= most
    assert word == 1 or 1 << 14 <= word < 1 << 15


def test_einsum_exact_sums_integers_over_axes_that_the_result_lacks():
    sizes, kind, fmt = {"i": 3, "j": 2, "k": 4}, TensorClass.INTERMEDIATE, Fixed(16)
    axes = {"x": ("i", "k"), "g": ("k", "j"), "z": ("j", "i")}
    tensors = {name: Tensor(name, own, kind, fmt) for name, own in axes.items()}
    op = Einsum("z", ("x", "g"))
    graph = Graph(sizes, tensors, (op,), ("x", "g"), ("z",))
    random = np.random.default_rng(0)
    x, g = (random.integers(-(1 << 15), 1 << 15, graph.shape(name)) for name in "xg")
    assert np.array_equal(op.exact(graph, {"x": x, "g": g}), (x @ g).T)
    doubled = Einsum("z", ("x", "g", "x"))
    assert np.array_equal(doubled.exact(graph, {"x": x, "g": g}), (x**2 @ g).T)
