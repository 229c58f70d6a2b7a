"""Block scales: they leave the matrix alone and use the bits of both blocks."""

from itertools import pairwise

import pytest
import torch
from float_driver import ttm_matrix

from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.blocks import UNEVEN, moves
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.host_engine import HostEngine
from trainwright.train.model import initial_model
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

NETWORK = load_network("digits")


def uneven(model, powers):
    """Shift each block of each bond by its own power of two, from -powers to powers."""
    rng = torch.Generator().manual_seed(0)
    for layer in model.factors:
        for left, right in pairwise(layer):
            b = torch.randint(-powers, powers + 1, (left.value.shape[3],), generator=rng)
            left.value = left.value * 2.0**b
            right.value = right.value * 2.0 ** -b[:, None, None, None]
        for factor in layer:
            factor.first = torch.randn(factor.value.shape, generator=rng)
            factor.second = torch.rand(factor.value.shape, generator=rng)


def test_blocks_matrix_does_not_change_and_moments_follow():
    model = initial_model(NETWORK, seed=1)
    uneven(model, 4)
    matrices = [
        ttm_matrix(layer, [f.value.double() for f in factors])
        for layer, factors in zip(NETWORK.layers, model.factors, strict=True)
    ]
    # gradients follow the inverse of the values, and so do what is made of them
    first = [[f.value * f.first for f in layer] for layer in model.factors]
    second = [[f.value * f.value * f.second for f in layer] for layer in model.factors]
    before = [[f.value for f in layer] for layer in model.factors]
    for _ in range(8):
        model.balance()
    assert any(
        not torch.equal(f.value, old)
        for layer, values in zip(model.factors, before, strict=True)
        for f, old in zip(layer, values, strict=True)
    )
    for number, factors in enumerate(model.factors):
        matrix = ttm_matrix(NETWORK.layers[number], [f.value.double() for f in factors])
        assert torch.equal(matrix, matrices[number])  # powers of two: exact
        assert all(
            torch.equal(f.value * f.first, m) for f, m in zip(factors, first[number], strict=True)
        )
        assert all(
            torch.equal(f.value * f.value * f.second, m)
            for f, m in zip(factors, second[number], strict=True)
        )


def test_blocks_come_to_rest_even():
    model = initial_model(NETWORK, seed=2)
    uneven(model, 3)
    for _ in range(20):
        model.balance()
    for layer, exponents in zip(model.factors, model.exponents, strict=True):
        for n, (left, right) in enumerate(pairwise(layer)):
            sizes = [
                left.value.double().square().mean((0, 1, 2)).sqrt() * 2.0 ** -exponents[n],
                right.value.double().square().mean((1, 2, 3)).sqrt() * 2.0 ** -exponents[n + 1],
            ]
            assert (sizes[0] / sizes[1]).log2().abs().max() <= UNEVEN
            assert not moves(left.value, right.value, exponents[n : n + 2]).any()


@pytest.mark.parametrize("side", (0, 1))
def test_block_of_zeros_stays(side):
    left, right = torch.ones(2, 3, 3, 4), torch.ones(4, 3, 3, 2)
    (left[..., 1] if side == 0 else right[1]).zero_()
    left[..., 2] *= 8
    assert moves(left, right, (-3, -3)).tolist() == [0, 0, -1, 0]
    assert moves(left, right, (-3, -5)).tolist() == [1, 0, 0, 1]


def test_quantisation_loses_less():
    model = initial_model(NETWORK, seed=3)
    uneven(model, 3)

    def loss():
        quantised = model.quantised()
        error = 0.0
        for n, layer in enumerate(NETWORK.layers):
            kept = [
                q.double() * 2.0**k
                for q, k in zip(quantised.factors[n], quantised.factor_exponents[n], strict=True)
            ]
            exact = ttm_matrix(layer, [f.value.double() for f in model.factors[n]])
            error += float((ttm_matrix(layer, kept) - exact).norm() / exact.norm())
        return error

    before = loss()
    for _ in range(8):
        model.balance()
    assert loss() < 0.5 * before


def test_training_resumes_to_the_same_bits(tmp_path):
    data = load_data_set("digits")
    settings = TrainSettings(steps=44, factor_scales="blocks")
    p = AcceleratorParameters()

    def driver(network):
        return Driver(GoldenAccelerator(p, memory_bytes=1 << 24), network, settings.batch)

    whole, part = initial_state(NETWORK, settings), initial_state(NETWORK, settings)
    Trainer(whole, data, HostEngine(driver)).run()
    Trainer(part, data, HostEngine(driver), stop=lambda: part.step >= 25).run()
    save_checkpoint(tmp_path / "c.safetensors", part)
    rest = load_checkpoint(tmp_path / "c.safetensors").state
    assert rest.step == 25
    Trainer(rest, data, HostEngine(driver)).run()
    assert rest.model.digest() == whole.model.digest()
