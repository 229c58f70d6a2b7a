"""Products of any width from int8 ones: against rationals, within the bound that is stated."""

import math
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from pretend_gpu import pretended

from trainwright import ape
from trainwright.ape.residues import TYPES
from trainwright.precision.residues import coprime_moduli


def drawn(rows, columns, seed, spread=0.0):
    random = torch.Generator().manual_seed(seed)
    shape = (rows, columns)
    x = torch.randn(shape, generator=random, dtype=torch.float64)
    exponents = torch.rand(shape, generator=random, dtype=torch.float64) * 2 - 1
    return x * torch.exp2((exponents * spread).round())


def rational(a, b):
    rows, columns = a.tolist(), b.T.tolist()
    return [
        [
            sum(Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True))
            for column in columns
        ]
        for row in rows
    ]


@pytest.mark.parametrize(
    "m,k,n,spread", [(3, 7, 4, 0), (5, 40, 3, 30), (2, 1500, 2, 5), (4, 3, 4, 300), (1, 1, 1, 0)]
)
def test_fp64_i8_of_any_range_stays_within_its_bound(m, k, n, spread):
    a, b = drawn(m, k, 1, spread), drawn(k, n, 2, spread)
    product, bound = ape.gemm(a, b, dtype="fp64-i8"), TYPES["fp64-i8"].error_bound(a, b)
    for i, row in enumerate(rational(a, b)):
        for j, wanted in enumerate(row):
            apart = abs(Fraction(product[i, j].item()) - wanted)
            assert apart <= Fraction(bound[i, j].item()) + abs(wanted) * Fraction(1, 1 << 53)


@pytest.mark.parametrize("k", [1, 50, 2100])
def test_fp64_i8_of_whole_numbers_is_rounded_once(k):
    random = torch.Generator().manual_seed(k)
    a, b = (
        torch.randint(-(2**53), 2**53 + 1, shape, generator=random).to(torch.float64)
        for shape in ((3, k), (k, 2))
    )
    a[0], b[:, 0] = 2.0**53, -(2.0**53)  # the largest sum
    product = ape.gemm(a, b, dtype="fp64-i8").tolist()
    assert product == [[float(wanted) for wanted in row] for row in rational(a, b)]


def test_fp64_i8_of_cancelling_sums_keeps_the_remainder():
    a = torch.tensor([[2.0**52 + 1, -(2.0**52), 1.0]], dtype=torch.float64)
    b = torch.tensor([[2.0**52 - 1], [2.0**52], [2.0]], dtype=torch.float64)
    assert ape.gemm(a, b, dtype="fp64-i8").item() == 1.0  # float64 rounds the first product


def test_fp64_i8_takes_batches_transposes_factors_and_gradients():
    a, b = drawn(6, 5, 3).reshape(2, 1, 3, 5), drawn(24, 5, 4).reshape(4, 6, 5)
    a.requires_grad_()
    c = drawn(3, 6, 5)
    product = ape.gemm(a, b, dtype="fp64-i8", transpose_b=True, alpha=1.5, c=c, beta=-2)
    torch.testing.assert_close(product, 1.5 * (a @ b.mT) - 2 * c, rtol=1e-14, atol=1e-14)
    assert product.dtype is torch.float64 and product.shape == (2, 4, 3, 6)
    product.sum().backward()
    wanted = (1.5 * b.sum((0, 1))).expand_as(a)
    torch.testing.assert_close(a.grad, wanted, rtol=1e-13, atol=1e-13)
    for m, k, n in ((0, 3, 2), (3, 0, 2), (3, 2, 0)):
        empty = ape.gemm(torch.ones(m, k).double(), torch.ones(k, n).double(), dtype="fp64-i8")
        assert empty.shape == (m, n) and not empty.any()
    with pytest.raises(TypeError, match=r"torch\.float64 for dtype 'fp64-i8'"):
        ape.gemm(c.float(), c.T.float(), dtype="fp64-i8")
    with pytest.raises(ValueError, match="a type for float32, not 'fp64-i8'"):
        ape.enabled("fp64-i8").__enter__()


def test_fp64_i8_gives_infinities_to_their_own_elements_only():
    a, b = drawn(4, 9, 6), drawn(9, 3, 7)
    clean = ape.gemm(a, b, dtype="fp64-i8")
    a[1, 5], b[7, 2] = torch.inf, torch.nan
    product = ape.gemm(a, b, dtype="fp64-i8")
    touched = torch.zeros(4, 3, dtype=torch.bool)
    touched[1], touched[:, 2] = True, True
    assert torch.equal(product[~touched], clean[~touched])
    assert not torch.isfinite(product[touched]).any()


def test_fp64_i8_on_pretended_gpu_gives_the_bits_of_the_cpu():
    a, b = drawn(9, 1100, 8, 20), drawn(1100, 5, 9, 20)
    wanted = ape.gemm(a, b, dtype="fp64-i8")
    with pretended() as gpu:
        product = ape.gemm(a.to(gpu), b.to(gpu), dtype="fp64-i8").cpu()
    assert torch.equal(product, wanted)


def test_moduli_are_coprime_bytes_that_hold_every_sum():
    for largest in (256, 62, 181):
        moduli = coprime_moduli(largest)
        assert all(math.gcd(p, q) == 1 for p, q in combinations(moduli, 2))
        assert max(moduli) == largest
    for form in TYPES.values():
        for terms in (1, 4096, 1 << 20):
            moduli = form.moduli(terms)
            largest = terms << (2 * form.bits)
            assert math.prod(moduli) > 2 * largest >= math.prod(moduli[:-1])


@pytest.mark.parametrize("spread", [0, 20])
def test_fp32_i8_of_any_range_stays_within_its_bound(spread):
    a, b = drawn(5, 70, 1, spread).float(), drawn(70, 4, 2, spread).float()
    product, bound = ape.gemm(a, b, dtype="fp32-i8"), TYPES["fp32-i8"].error_bound(a, b)
    assert product.dtype is torch.float32
    for i, row in enumerate(rational(a, b)):
        for j, wanted in enumerate(row):
            apart = abs(Fraction(product[i, j].item()) - wanted)
            assert apart <= Fraction(bound[i, j].item()) + abs(wanted) * Fraction(1, 1 << 24)


def test_error_bound_of_sums_without_terms_is_zero():
    a, b = torch.zeros(2, 0), torch.zeros(0, 3)
    assert torch.equal(TYPES["fp32-i8"].error_bound(a, b), torch.zeros(2, 3, dtype=torch.float64))


def test_fp32_i8_replaces_products_of_torch_code():
    a, b = drawn(4, 6, 1).float(), drawn(6, 3, 2).float()
    with ape.enabled("fp32-i8") as calls:
        product = a @ b
    assert torch.equal(product, ape.gemm(a, b, dtype="fp32-i8")) and sum(calls.values()) == 1


@pytest.mark.parametrize("spread", [0, 60])
def test_fp128_i8_of_any_range_stays_within_its_bound(spread):
    a, b = drawn(3, 80, 1, spread).reshape(3, 40, 2), drawn(40, 8, 2, spread).reshape(40, 4, 2)
    a[..., 1] = a[..., 0] * 2.0**-54 * torch.tanh(a[..., 1])
    b[..., 1] = b[..., 0] * 2.0**-54 * torch.tanh(b[..., 1])
    product, bound = ape.gemm(a, b, dtype="fp128-i8"), TYPES["fp128-i8"].error_bound(a, b)
    assert float(bound.max()) < 2.0**-90 * float((a[..., 0].abs() @ b[..., 0].abs()).max())
    rows = [[sum(map(Fraction, pair)) for pair in row] for row in a.tolist()]
    columns = [[sum(map(Fraction, pair)) for pair in row] for row in b.transpose(0, 1).tolist()]
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            wanted = sum(x * y for x, y in zip(row, column, strict=True))
            apart = abs(sum(map(Fraction, product[i, j].tolist())) - wanted)
            assert apart <= Fraction(bound[i, j].item()) + abs(wanted) * Fraction(1, 1 << 106)


def test_fp128_i8_takes_batches_and_transposes_and_refuses_the_rest():
    a, b = drawn(6, 10, 3).reshape(3, 1, 2, 5, 2), drawn(8, 10, 4).reshape(2, 4, 5, 2)
    product = ape.gemm(a, b, dtype="fp128-i8", transpose_b=True)
    whole = ape.gemm(a[2, 0].transpose(0, 1), b[1].transpose(0, 1), dtype="fp128-i8",
                     transpose_a=True)  # fmt: skip
    assert product.shape == (3, 2, 2, 4, 2) and torch.equal(product[2, 1], whole)
    assert ape.gemm(a[:0], b, dtype="fp128-i8", transpose_b=True).shape == (0, 2, 2, 4, 2)
    nothing = ape.gemm(a[..., :0, :], b[..., :0, :], dtype="fp128-i8", transpose_b=True)
    assert nothing.shape == product.shape and not nothing.any()
    for wrong, options, message in (
        (a.float(), {}, "torch.float64 for dtype 'fp128-i8'"),
        (a[..., :1], {}, r"columns, 2\) for dtype 'fp128-i8'"),
        (a[..., :3, :], {}, "cannot multiply"),
        (a, {"alpha": 2}, "no c and no alpha"),
        (a.clone().requires_grad_(), {}, r"no gradient: give a\.detach"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            ape.gemm(wrong, b, dtype="fp128-i8", transpose_b=True, **options)


def test_fp128_i8_gives_infinities_to_their_own_elements_only():
    a, b = drawn(4, 18, 6).reshape(4, 9, 2), drawn(9, 6, 7).reshape(9, 3, 2)
    clean = ape.gemm(a, b, dtype="fp128-i8")
    a[1, 5, 0], b[7, 2, 1] = torch.inf, torch.nan
    product = ape.gemm(a, b, dtype="fp128-i8")
    assert torch.equal(product[::2, :2], clean[::2, :2])
    assert not torch.isfinite(product[1, :, 0]).any() and not product[1, :, 1].any()
