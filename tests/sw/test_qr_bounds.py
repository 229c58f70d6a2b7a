"""Lemmas 2.1 to 2.3 in exact rational arithmetic, the draft's numbers, measured dot products."""

import itertools
from fractions import Fraction

import pytest
import torch
from matrices import normal

from trainwright.precision import dot_mixed, dot_rounded, get_format
from trainwright.qr import BoundError
from trainwright.qr import bounds as b

U16, U32, U64 = (get_format(name).unit for name in ("fp16", "fp32", "fp64"))
COUNTS = (0, 1, 2, 3, 7, 50, 300, 511)


def exact(k, u):
    """Return gamma_k as a fraction."""
    k, u = Fraction(k), Fraction(u)
    return k * u / (1 - k * u)


def over(bound, value):
    return Fraction(bound) * (1 + Fraction(1, 10**12)) >= value


def test_lemma_2_1_holds_for_every_sign_of_every_error():
    for k, u in ((1, 0.1), (3, 0.2), (5, 0.15)):
        for signs in itertools.product((1, -1), repeat=k):
            for powers in itertools.product((1, -1), repeat=k):
                product = Fraction(1)
                for sign, power in zip(signs, powers, strict=True):
                    product *= (1 + sign * Fraction(u)) ** power
                assert over(b.gamma(k, u), abs(product - 1))


@pytest.mark.parametrize(("k", "u"), [(2048, U16), (1 << 24, U32), (1, 1.0), (-1, 0.1), (1, -0.1)])
def test_gamma_is_refused_where_it_means_nothing(k, u):
    with pytest.raises(BoundError):
        b.gamma(k, u)


def test_qr_bounds_gamma_tilde_matches_definition():
    assert b.gamma_tilde(10, U16, c=3) == b.gamma(30, U16)
    with pytest.raises(BoundError, match="c must"):
        b.gamma_tilde(10, U16, c=0)
    with pytest.raises(BoundError, match="k u < 1"):
        b.gamma_tilde(1000, U16)


def test_lemma_2_2():
    for k, j in itertools.product(COUNTS[1:], repeat=2):
        gk, gj = exact(k, U16), exact(j, U16)
        if max(k, j) * U16 <= 0.5:
            assert over(b.product_bound(k, j, U16), gk * gj)
        if k * j * U16 < 1:
            assert over(b.multiple_bound(k, j, U16), k * gj)
        else:
            with pytest.raises(BoundError):
                b.multiple_bound(k, j, U16)
        assert over(b.plus_unit_bound(k, U16), gk + Fraction(U16))
        assert over(b.sum_bound(k, j, U16), gk + gj + gk * gj)
        # (1 + theta_k)/(1 + theta_j) at its extremes
        worst = (1 + gk) / (1 - gj) - 1
        if b.theta_quotient(k, j) * U16 < 1 and j * U16 < 0.5:
            assert over(b.gamma(k + 2 * j, U16), worst)
        assert b.theta_product(k, j) == k + j
        assert b.theta_quotient(k, j) == (k + j if j <= k else k + 2 * j)
    with pytest.raises(BoundError, match="1/2"):
        b.product_bound(1500, 1, U16)


@pytest.mark.parametrize(("ul", "uh"), [(U16, U32), (U32, U64), (U16, 2.0**-14)])
def test_lemma_2_3(ul, uh):
    high = (1, 10, 5000, int(0.3 / uh))
    for kl, kh in itertools.product((1, 5, 300), high):
        gl, gh = exact(kl, ul), exact(kh, uh)
        d = b.low_equivalent(kh, ul, uh)
        assert d * Fraction(ul) <= kh * Fraction(uh) < (d + 1) * Fraction(ul)
        assert over(b.product_bound_mixed(kl, kh, ul, uh), gl * gh)
        assert over(b.high_plus_low_unit_bound(kh, ul, uh), gh + Fraction(ul))
        assert over(b.low_plus_high_unit_bound(kl, ul, uh), gl + Fraction(uh))
        if (kl + d + 1) * ul < 1:
            assert over(b.sum_bound_mixed(kl, kh, ul, uh), gl + gh + gl * gh)
    assert b.theta_product_mixed(3, 4, 5, 6) == (7, 11)
    assert b.theta_quotient_mixed(3, 4, 6, 5) == (11, 11)
    with pytest.raises(BoundError, match="u_h <= u_l"):
        b.low_equivalent(1, uh, ul)
    with pytest.raises(BoundError, match="1/2"):
        b.product_bound_mixed(1, 0.6 / uh, ul, uh)


def test_numbers_the_draft_prints():
    """Table 2 takes u as the machine epsilon 2^(1-t), twice the u of its own Table 1."""
    assert [f"{u:.3e}" for u in (U16, U32, U64)] == ["4.883e-04", "5.960e-08", "1.110e-16"]
    assert b.most_operations(2 * U16) == 512
    assert f"{b.most_operations(2 * U32):.3e}" == "4.194e+06"
    assert f"{b.most_operations(2 * U64):.3e}" == "2.252e+15"
    assert b.gamma(512, 2 * U16) == 1 and b.gamma(1024, U16) == 1
    assert b.most_operations(U16) == 1024
    assert b.dot_bound_probabilistic(512, U16, 0.99) == pytest.approx(5.466e-2, rel=2e-3)


def test_probabilistic_bounds_are_square_roots():
    small = b.gamma_probabilistic(100, 1e-9, 1.0)
    assert small == pytest.approx(10e-9, rel=1e-6)
    assert b.gamma_probabilistic(10**6, U16, 1.0) > 0  # needs no k u < 1
    with pytest.raises(BoundError, match="confidence"):
        b.probability_factor(10, U16, 1.0)


@pytest.mark.parametrize("m", [64, 512])
@pytest.mark.parametrize("uniform", [False, True], ids=["normal", "uniform"])
def test_measured_dot_products_are_under_their_bounds(m, uniform):
    x, y = (normal(2000, m, seed=s).to(torch.float16).double() for s in (1, 2))
    if uniform:
        x, y = ((t.abs() / 4).clamp(max=1).half().double() for t in (x, y))
    exact_sum, size = (x * y).sum(-1), (x.abs() * y.abs()).sum(-1)
    every = ((dot_rounded(x, y).double() - exact_sum).abs() / size).max()
    mixed = ((dot_mixed(x, y).double() - exact_sum).abs() / size).max()
    assert every <= b.dot_bound_probabilistic(m, U16, 1 - 1e-6) < b.dot_bound(m, U16)
    assert mixed <= b.dot_bound_mixed(m, U16, U32) == b.gamma(2, U16)
    # far from vacuous where the uniform bound is past its meaning
    assert b.dot_bound_mixed(100_000, U16, U32) < 0.01
    with pytest.raises(BoundError):
        b.dot_bound(100_000, U16)
