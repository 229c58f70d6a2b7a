"""Graphs: their gradients against autograd, and the contraction orders that the search finds."""

import numpy as np
import pytest
import torch
from graph_cases import odd_network

from trainwright.graph.evaluate import evaluate_float
from trainwright.graph.order import Cost, ordered
from trainwright.graph.step import step_graph
from trainwright.network import load_network

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
def test_the_search_finds_the_orders_of_the_prototype(name, ranks, held, macs):
    network = load_network(name)
    step = step_graph(network.with_ranks(ranks) if ranks else network, 64)
    assert sum(order.macs for order in orders(step, held=held)) == macs


def test_what_cannot_be_held_is_used_up_in_slices():
    step = step_graph(load_network("fashion"), 64)
    for held, common in ((0, set()), (HELD, {"l1.i3", "l1.j3"})):
        order = orders(step, held=held)[0]
        made_from = [op.out for op in order.products if "l1.x.dy" in op.operands]
        axes = [set(order.graph.tensors[name].axes) for name in ("l1.x.dy", *made_from)]
        assert set.intersection(*axes) == common


def autograd(network, step, values):
    """Gradients of sum(a * dy) by torch, by the names of the graph."""
    given = {
        name: torch.from_numpy(value).requires_grad_(name not in ("x",))
        for name, value in values.items()
    }
    x = given["x"]
    for number, layer in enumerate(network.layers, 1):
        sizes = step.whole.sizes
        weight = torch.ones(1, 1, 1, dtype=torch.float64)
        for n in range(1, layer.order + 1):
            r, j, i, s = layer.factor_shapes[n - 1]
            factor = given[f"l{number}.G{n}"].reshape(r, j, i, s)
            weight = torch.einsum("abr,rjis->ajbis", weight, factor)
            weight = weight.reshape(weight.shape[0] * j, weight.shape[2] * i, s)
        y = weight[..., 0] @ x.reshape(-1, sizes["s"]) + given[f"l{number}.b"].reshape(-1, 1)
        x = torch.relu(y) if layer.relu else y
    upper = given[f"l{len(network.layers)}.dy"].detach().reshape(x.shape)
    (x * upper).sum().backward()
    return x, given


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_any_order_are_those_of_autograd(seed):
    network, batch = odd_network(seed)
    step = step_graph(network, batch)
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal(step.whole.shape(name)) for name in step.whole.given}
    found = evaluate_float(step.ordered(orders(step)).whole, values)
    result, given = autograd(network, step, values)
    np.testing.assert_allclose(
        found[step.forward.results[0]].reshape(result.shape), result.detach(), rtol=1e-9, atol=1e-9
    )
    for name in step.backward.results:
        leaf = given[name.replace(".d", ".")]
        scale = float(leaf.grad.abs().max()) or 1.0
        np.testing.assert_allclose(
            found[name].reshape(leaf.shape), leaf.grad, rtol=0, atol=1e-11 * scale
        )
