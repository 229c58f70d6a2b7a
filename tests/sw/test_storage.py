"""Storage of master weights and moments between steps."""

from math import prod

import numpy as np
import pytest
import torch

from trainwright.train.adam import Parameter
from trainwright.train.choices import MASTER_WEIGHTS, MOMENTS
from trainwright.train.storage import (
    factored,
    master_bits,
    moment_bits,
    round_8bit,
    store_master,
    store_moments,
)

SHAPE = (3, 4, 5, 2)


def parameter(seed=0, shape=SHAPE):
    random = np.random.RandomState(seed)
    draw = [torch.from_numpy(random.standard_normal(shape)).float() for _ in range(3)]
    return Parameter(draw[0] * 0.1, draw[1] * 1e-3, draw[2].square() * 1e-6)


def test_8_bit_moments_take_few_values_and_never_err_by_more_than_a_step():
    values = parameter().first
    kept = round_8bit(values, np.random.RandomState(1))
    _, exponents = torch.frexp(values)
    _, top = torch.frexp(values.abs().max())
    spacing = torch.ldexp(torch.ones_like(values), exponents.clamp_min(int(top) - 15) - 4)
    assert bool(((kept - values).abs() < spacing).all())
    steps = kept / spacing
    assert bool((steps == steps.round()).all()) and int(steps.abs().max()) <= 16


def test_8_bit_moments_are_unbiased():
    value = torch.full((20_000,), 0.77)
    value[0] = 1.0
    kept = round_8bit(value, np.random.RandomState(2))[1:]
    low, high = kept.min(), kept.max()
    assert low < 0.77 < high and set(kept.tolist()) == {float(low), float(high)}
    # A mean of N draws with two values a step apart deviates by half a step / sqrt(N) at most;
    # six deviations are met once in 10^9 seeds.
    assert abs(float(kept.double().mean()) - 0.77) < 6 * float(high - low) / 2 / 20_000**0.5


def test_small_second_moments_never_become_zero():
    roots = torch.tensor([1.0, 1e-9, 1e-30])
    kept = round_8bit(roots, np.random.RandomState(3), floor=True)
    assert float(kept.min()) == 2.0 ** (1 - 15 - 4)
    assert float(round_8bit(roots, np.random.RandomState(3))[2]) == 0


def test_storage_zeros_stay():
    zeros = torch.zeros(4)
    assert torch.equal(round_8bit(zeros, np.random.RandomState(0)), zeros)
    assert torch.equal(factored(torch.zeros(SHAPE)), torch.zeros(SHAPE))


def test_factored_keeps_the_means_and_products():
    second = parameter().second
    kept = factored(second)
    matrix, low_rank = (t.double().reshape(12, 10) for t in (second, kept))
    # Each element is rounded to float32 once.
    for dimension in (0, 1):
        assert torch.allclose(low_rank.mean(dimension), matrix.mean(dimension), rtol=2**-23, atol=0)
    again = factored(kept)
    assert torch.allclose(again, kept, rtol=2**-21, atol=0)


@pytest.mark.parametrize("kind", MOMENTS)
def test_equal_generators_give_equal_moments(kind):
    results = []
    for _ in range(2):
        p = parameter()
        store_moments(p, kind, np.random.RandomState([0, 2, 7]))
        results.append(p)
    assert torch.equal(results[0].first, results[1].first)
    assert torch.equal(results[0].second, results[1].second)
    assert torch.equal(results[0].first, parameter().first) == (kind == "float32")


@pytest.mark.parametrize("kind", MASTER_WEIGHTS)
def test_storage_master_weights(kind):
    p = parameter()
    before = p.value.clone()
    store_master(p, kind)
    # Half a unit in the last place of float16 (11 bits) relative, or of its subnormals; a second
    # component halves the spacing eleven times more.
    bits = {"float32": 24, "float16x2": 22, "float16": 11}[kind]
    bound = (before.abs() * 2.0**-bits).clamp_min(2.0**-25)
    assert bool(((p.value - before).abs() <= bound).all())
    assert torch.equal(p.value, before) == (kind == "float32")
    again = p.value.clone()
    store_master(p, kind)
    assert torch.equal(p.value, again)


def test_storage_bits_follow_formats():
    assert [master_bits(kind) for kind in MASTER_WEIGHTS] == [32, 32, 16]
    n = prod(SHAPE)
    assert moment_bits("float32", SHAPE) == 64 * n
    assert moment_bits("8bit", SHAPE) == 16 * n + 16
    assert moment_bits("factored", SHAPE) == 8 * n + 8 + 32 * (12 + 10)
    assert moment_bits("factored", (512,)) == moment_bits("8bit", (512,)) == 16 * 512 + 16
