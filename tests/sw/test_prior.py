"""The rank priors, and real cutting of ranks."""

import itertools

import pytest
import torch
from float_driver import FloatDriver, ttm_matrix

from trainwright.network import Layer, Network, network_from_dict
from trainwright.train.choices import PRIOR_FORMS
from trainwright.train.model import initial_model
from trainwright.train.prior import prior_gradient, prior_loss, rank_parameters
from trainwright.train.ranks import cut_ranks, kept_columns, prior_gradients, strengths
from trainwright.train.storage_prior import column_cost, storage_loss

NETWORK = network_from_dict(
    {
        "name": "three",
        "classes": 4,
        "image": [4, 6],
        "layers": [
            {"outputs": [2, 3, 2], "inputs": [2, 3, 4], "ranks": [4, 5]},
            {"outputs": [2, 2], "inputs": [3, 4], "ranks": [3]},
        ],
    }
)


@pytest.fixture
def model():
    model = initial_model(NETWORK, seed=2)
    generator = torch.Generator().manual_seed(0)
    for _, parameter in model.parameters():
        parameter.first = torch.randn(parameter.value.shape, generator=generator)
        parameter.second = torch.rand(parameter.value.shape, generator=generator)
    return model


def matrix(model, number):
    layer = model.network.layers[number]
    return ttm_matrix(layer, [f.value.double() for f in model.factors[number]])


def test_lambda_is_equation_4():
    g = torch.arange(24, dtype=torch.float32).reshape(2, 3, 2, 2)
    for r in range(2):
        by_hand = 2 / (1 + 2 * 3 * 2) * (g[..., r].double() ** 2).sum()
        assert rank_parameters(g)[r].item() == pytest.approx(by_hand.item(), rel=1e-15)


def test_prior_gradient_is_that_of_equation_2_with_lambda_held(model):
    for factors in model.factors:
        for factor in factors[:-1]:
            g = factor.value.double().requires_grad_()
            held = rank_parameters(factor.value)
            left, j, i, _ = g.shape
            norms = g.square().sum((0, 1, 2))
            loss = (norms / held + (1 + left * i * j) / 2 * held.log()).sum()
            (wanted,) = torch.autograd.grad(0.125 * loss, g)
            assert torch.allclose(prior_gradient(factor.value, 0.125), wanted, rtol=1e-12)


def test_prior_loss_is_equation_2(model):
    factors = [f.value for f in model.factors[0]]
    wanted = 0.0
    for g in factors[:-1]:
        left, j, i, right = g.shape
        for r in range(right):
            held = rank_parameters(g)[r]
            norm = g[..., r].double().square().sum()
            wanted += (norm / held + (1 + left * i * j) / 2 * held.log()).item()
    assert prior_loss(factors) == pytest.approx(wanted, rel=1e-9)


def test_prior_column_of_zeros_has_no_gradient_and_no_infinity():
    g = torch.ones(2, 2, 2, 3)
    g[..., 1] = 0
    gradient = prior_gradient(g, 1.0)
    assert torch.isfinite(gradient).all() and (gradient[..., 1] == 0).all()
    assert prior_loss([g, g]) > float("-inf")


def test_prior_alone_shrinks_the_smallest_column_first():
    g = torch.tensor([1.0, 0.1]).repeat(1, 2, 2, 1)
    pull = prior_gradient(g, 1.0)[0, 0, 0] / g[0, 0, 0]
    assert pull[1] > 50 * pull[0]


def test_storage_prior_counts_bits_of_a_column(model):
    for layer, factors in zip(model.network.layers, model.factors, strict=True):
        for n in range(layer.order - 1):
            if layer.ranks[n] == 1:
                continue
            ranks = list(layer.ranks)
            ranks[n] -= 1
            smaller = Layer(layer.outputs, layer.inputs, tuple(ranks))
            cost = column_cost(factors[n].value, factors[n + 1].value)
            assert layer.factor_parameters - smaller.factor_parameters == cost


def test_prior_storage_gradient_is_that_of_its_loss(model):
    for factors in model.factors:
        leaves = [f.value.double().requires_grad_() for f in factors]
        loss = torch.zeros((), dtype=torch.float64)
        for left, right in itertools.pairwise(leaves):
            squares = left.square().sum((0, 1, 2)) * right.square().sum((1, 2, 3))
            loss = loss + column_cost(left, right) / 4 * squares.log().sum()
        pulls = prior_gradients([f.value for f in factors], 0.125, "storage")
        for pull, wanted in zip(pulls, torch.autograd.grad(0.125 * loss, leaves), strict=True):
            assert pull is not None and torch.allclose(pull, wanted, rtol=1e-12)
        assert storage_loss([f.value for f in factors]) == pytest.approx(loss.item(), rel=1e-9)


def test_storage_prior_does_not_see_the_gauge(model):
    left, right = (f.value.double() for f in model.factors[1])
    scale = torch.tensor([4.0, 0.5, 8.0], dtype=torch.float64)
    moved = [left * scale, right / scale[:, None, None, None]]
    assert storage_loss(moved) == pytest.approx(storage_loss([left, right]), rel=1e-12)
    assert torch.allclose(strengths(*moved, "storage"), strengths(left, right, "storage"))


def test_papers_prior_pulls_all_but_the_last_factor(model):
    factors = [f.value for f in model.factors[0]]
    pulls = prior_gradients(factors, 0.5, "paper")
    assert pulls[-1] is None
    for factor, pull in zip(factors[:-1], pulls[:-1], strict=True):
        assert pull is not None and torch.equal(pull, prior_gradient(factor, 0.5))


@pytest.mark.parametrize("form", PRIOR_FORMS)
def test_prior_cut_of_zeros_changes_only_ranks(model, form):
    with torch.no_grad():
        model.factors[0][0].value[..., 2] = 0
        model.factors[0][1].value[..., [0, 4]] = 0
    before = [matrix(model, 0), matrix(model, 1)]
    moments = model.factors[0][1].first.clone()
    network = cut_ranks(model, 0.01, form)
    assert network is model.network and network.ranks == ((3, 3), (3,))
    for number, w in enumerate(before):
        assert torch.equal(matrix(model, number), w)
    kept = moments[[0, 1, 3]][..., [1, 2, 3]]  # rows of bond 1, columns of bond 2
    assert torch.equal(model.factors[0][1].first, kept)
    for layer, factors in zip(network.layers, model.factors, strict=True):
        for shape, factor in zip(layer.factor_shapes, factors, strict=True):
            for part in (factor.value, factor.first, factor.second):
                assert tuple(part.shape) == shape and part.is_contiguous()


@pytest.mark.parametrize("form", PRIOR_FORMS)
def test_nothing_to_cut(model, form):
    assert cut_ranks(model, 1e-6, form) is None
    assert model.network is NETWORK


def test_prior_threshold_is_relative_to_the_largest_of_the_bond():
    g = torch.zeros(1, 2, 2, 4)
    g[:] = torch.tensor([10.0, 2.0, 1.0, 0.5])
    right = torch.ones(4, 2, 2, 1)
    for form, power in (("paper", 1), ("storage", 0.5)):
        strength = strengths(g, right, form)
        assert kept_columns(strength, 0.05**power).tolist() == [0]
        assert kept_columns(strength, 0.03**power).tolist() == [0, 1]
        assert kept_columns(strength / 1000, 0.005**power).tolist() == [0, 1, 2]


@pytest.mark.parametrize("form", PRIOR_FORMS)
@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_never_below_rank_1(model, fill, form):
    for factors in model.factors:
        for factor in factors:
            factor.value.fill_(0.0)
            factor.value[..., 0] = fill
    cut_ranks(model, 0.999, form)
    assert all(rank >= 1 for layer in model.network.ranks for rank in layer)
    if fill:
        assert model.network.ranks == ((1, 1), (1,))


def test_prior_cut_network_runs(model):
    model.factors[0][0].value[..., 1] = 0
    cut_ranks(model, 0.01, "storage")
    from trainwright.fixed.scale import Scales

    driver = FloatDriver(None, model.network, 2)
    x = torch.ones(2, 24, dtype=torch.int64)
    assert driver.forward(x, model.quantised(), Scales()).logits.shape == (2, 4)


def test_ranks_over_their_bound_are_refused_by_the_network():
    with pytest.raises(ValueError, match="over its bound"):
        Network("n", (Layer((2, 2), (2, 2), (5,)),), 2, (2, 2), (2, 2))
