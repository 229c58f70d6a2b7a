"""Tensor trains of numbers of any magnitude, and distances below float64's resolution."""

import math
from fractions import Fraction

import pytest
import torch
from matrices import normal

from trainwright.network import load_network
from trainwright.precision import get_format
from trainwright.precision.rounding import scale_by_power
from trainwright.tt import (
    Numbers,
    TensorTrainError,
    balance,
    distance,
    orthogonalise_left,
    orthogonalise_right,
    ranks_of,
    to_matrix,
    tt_round,
    tt_svd,
)
from trainwright.tt.scaling import relative_difference

OUTPUTS, INPUTS = (4, 3, 2), (3, 2, 5)


def _times(x, exponent):
    return scale_by_power(x, torch.tensor(exponent))


def _train(ranks=(5, 4), seed=0):
    bonds = (1, *ranks, 1)
    return [normal(bonds[n], OUTPUTS[n], INPUTS[n], bonds[n + 1], seed=seed + n) for n in range(3)]


def _gauged(factors, exponents):
    return [_times(factor, e) for factor, e in zip(factors, exponents, strict=True)]


@pytest.mark.parametrize("exponent", [-1000, -700, -520, 510, 700, 1000])
def test_tt_svd_of_a_scaled_matrix_scales_the_last_factor_bit_by_bit(exponent):
    dense = normal(24, 30)
    for options in ({}, {"tolerance": 0.3}, {"ranks": 3}):
        plain = tt_svd(dense, OUTPUTS, INPUTS, **options)
        scaled = tt_svd(_times(dense, exponent), OUTPUTS, INPUTS, **options)
        assert all(torch.equal(a, b) for a, b in zip(plain[:-1], scaled[:-1], strict=True))
        assert torch.equal(_times(plain[-1], exponent), scaled[-1])


@pytest.mark.parametrize("exponents", [(900, 900, -1000), (-600, -600, 1000), (400, 300, 200)])
def test_trains_of_factors_of_any_magnitude_round_and_orthogonalise(exponents):
    factors, total = _train(), sum(exponents)
    odd = _gauged(factors, exponents)
    for call in (orthogonalise_left, lambda f: tt_round(f, tolerance=0.2)):
        plain, scaled = call(factors), call(odd)
        assert ranks_of(plain) == ranks_of(scaled)
        assert all(torch.equal(a, b) for a, b in zip(plain[:-1], scaled[:-1], strict=True))
        assert torch.equal(_times(plain[-1], total), scaled[-1])
    assert torch.equal(to_matrix(odd), _times(to_matrix(factors), total))
    assert relative_difference(to_matrix(odd), to_matrix(balance(odd))) < 1e-13
    assert distance(odd, orthogonalise_right(odd)) < 1e-14


@pytest.mark.parametrize("call", [orthogonalise_left, orthogonalise_right, tt_round, to_matrix])
def test_train_beyond_float64_is_refused_and_names_its_exponent(call):
    with pytest.raises(TensorTrainError, match=r"overflows .*2\^12\d\d"):
        call(_gauged(_train(), (400, 400, 400)))
    if call is not to_matrix:
        with pytest.raises(TensorTrainError, match=r"underflows fp64: its elements are below 2\^-"):
            call(_gauged(_train(), (-400, -400, -400)))
    # Balanced factors hold what no single factor does.
    even = balance(_gauged(_train(), (700, 700, 700)))
    assert all(factor.isfinite().all() for factor in even)
    assert distance(_gauged(_train(), (700, 700, 700)), even) < 1e-13
    with pytest.raises(TensorTrainError, match="outside float64's range"):
        balance(_gauged(_train(), (1015, 1015, 1015)))


@pytest.mark.parametrize("high", ["fp32", "bf16"])
@pytest.mark.parametrize("method", ["block", "householder", "tsqr"])
def test_columns_of_very_different_magnitude_compress_to_the_precision(high, method):
    dense = _times(normal(24, 30), torch.randint(-60, 1, (30,)).tolist())
    numbers = Numbers(high=high, method=method)
    for factor in (1.0, 2.0**60, 2.0**-60):
        result = tt_svd(dense * factor, OUTPUTS, INPUTS, numbers=numbers)
        error = relative_difference(dense * factor, to_matrix(result))
        assert error < 100 * get_format(high).unit


def test_singular_values_whose_squares_underflow_are_kept():
    dense = torch.zeros(4, 4, dtype=torch.float64)
    dense[0, 0], dense[3, 3] = 1.0, 1e-200  # in different blocks: rank 2
    result = tt_svd(dense, (2, 2), (2, 2))
    assert ranks_of(result) == (2,) and torch.equal(to_matrix(result).abs(), dense)
    assert ranks_of(tt_round(result)) == (2,)
    assert ranks_of(tt_svd(dense, (2, 2), (2, 2), tolerance=1e-199)) == (1,)


def test_integer_matrices_and_factors_do_not_pass_through_float32():
    dense = torch.randint(-(2**40), 2**40, (24, 30), generator=torch.Generator().manual_seed(1))
    assert relative_difference(dense.double(), to_matrix(tt_svd(dense, OUTPUTS, INPUTS))) < 1e-14
    train = [torch.full((1, 2, 2, 1), 2**30 + 1), torch.full((1, 2, 2, 1), 3)]
    assert (to_matrix(train) == 3 * (2**30 + 1)).all()
    assert (to_matrix(orthogonalise_left(train)) / (3 * 2.0**30 + 3) - 1).abs().max() < 1e-15


def test_distance_is_exact_far_below_the_root_of_the_round_off():
    factors = _train()
    assert distance(factors, factors) == 0.0
    for step in (1e-3, 1e-9, 1e-15):
        moved = [factors[0], factors[1].clone(), factors[2]]
        moved[1][2, 1, 0, 3] += step
        change = [factors[0], moved[1] - factors[1], factors[2]]
        wanted = float(to_matrix(change).norm() / to_matrix(factors).norm())
        assert distance(factors, moved) == pytest.approx(wanted, rel=1e-12)
    tiny = [factor.clone() for factor in factors]
    tiny[2] = tiny[2] * (1 + 2.0**-52)
    assert distance(factors, tiny) == pytest.approx(2.0**-52, rel=0.5)


def test_distance_of_other_ranks_and_magnitudes():
    factors = _train()
    assert distance(factors, tt_round(factors)) < 1e-14
    more = _train((7, 6), seed=9)
    wanted = float((to_matrix(factors) - to_matrix(more)).norm() / to_matrix(factors).norm())
    assert distance(factors, more) == pytest.approx(wanted, rel=1e-13)
    for exponents in ((664, 0, 0), (-664, 0, 0), (0, 900, 900), (-500, -500, -500)):
        odd = _gauged(factors, exponents)
        doubled = [odd[0] * 2, *odd[1:]]
        assert distance(odd, doubled) == pytest.approx(1.0, rel=1e-14)
        assert distance(doubled, odd) == pytest.approx(0.5, rel=1e-14)
        assert distance(odd, odd) == 0.0
    assert distance(factors, _gauged(factors, (664, -900, 236))) < 1e-14
    assert distance(factors, _gauged(factors, (0, 0, 40))) == pytest.approx(2.0**40, rel=1e-11)
    zero = [torch.zeros_like(f) for f in factors]
    assert distance(zero, zero) == 0.0 and distance(zero, factors) == math.inf
    assert distance(factors, zero) == pytest.approx(1.0)
    big = [torch.full((1, 2, 2, 1), 1.5e308, dtype=torch.float64)]
    assert distance(big, [-big[0]]) == pytest.approx(2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_distance_refuses_nan_infinity_and_different_shapes(value):
    broken = _train()
    broken[1][0, 0, 0, 0] = value
    for pair in ((broken, _train()), (_train(), broken)):
        with pytest.raises(TensorTrainError, match="factor 2 has NaN or infinite elements"):
            distance(*pair)
    with pytest.raises(TensorTrainError, match="have no difference"):
        distance(_train(), [torch.ones(1, 24, 30, 1)])


def test_to_matrix_is_the_exact_product_of_factors_whose_prefixes_overflow():
    factors = [torch.full((1, 1, 1, 1), value) for value in (3e30, 5e30, 7e-40)]
    exact = math.prod(Fraction(float(f)) for f in factors)
    assert float(to_matrix(factors, torch.float32)) == pytest.approx(float(exact), rel=1e-6)
    assert to_matrix(factors[2:], torch.float16).dtype is torch.float16
    leaf = torch.full((1, 1, 1, 1), 3e30, requires_grad=True)
    to_matrix([leaf, *factors[1:]], torch.float32).sum().backward()
    assert float(leaf.grad) == pytest.approx(float(exact / Fraction(leaf.item())), rel=1e-6)


def test_compress_reports_the_error_of_a_matrix_of_any_magnitude():
    from trainwright.train.dense import Dense, describe

    network = load_network("digits")
    sizes = [(layer.output_size, layer.input_size) for layer in network.layers]
    for exponent in (-60, 0, 60):
        dense = [
            Dense(f"l{n}", _times(normal(*size, seed=n), exponent), None)
            for n, size in enumerate(sizes)
        ]
        _, rows = describe(dense, network, rank=None, tolerance=1e-6, numbers=Numbers(high="fp32"))
        assert all(row.error < 2e-5 for row in rows), exponent
    huge = [Dense(d.name, _times(d.weight, 900), None) for d in dense]
    with pytest.raises(TensorTrainError, match=r"l0: .*float32's range"):
        describe(huge, network, rank=None, tolerance=0.1, numbers=Numbers())
