"""Products are exactly those of the scheme, by rationals; shapes, factors, integers."""

import ape_reference as reference
import pytest
import torch
from slowly import mostly_slow

from trainwright import ape
from trainwright.ape.accumulate import accumulated
from trainwright.ape.integer import INT32_TERMS
from trainwright.ape.schemes import SCHEMES

FLOATS = tuple(SCHEMES)


def spread(shape, random, low, high):
    """Draw magnitudes of 2^low to 2^high of both signs."""
    exponents = torch.empty(shape).uniform_(low, high, generator=random)
    return torch.exp2(exponents) * (torch.rand(shape, generator=random) - 0.5).sign()


@mostly_slow("block", [1, 4, 16, 100], quick=(1, 4, 100))
@pytest.mark.parametrize("rounding", ["nearest", "zero"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_ape_gemm_scheme_to_the_last_bit(dtype, rounding, block):
    random = torch.Generator().manual_seed(block)
    low, high = (-14, 15) if SCHEMES[dtype].part == torch.float16 else (-60, 60)
    a, b = spread((3, 21), random, low, high), spread((21, 4), random, low, high)
    b[:, 0] = torch.randn(21, generator=random)
    a[0] = torch.rand(21, generator=random)
    how = ape.Accumulation(rounding=rounding, block=block)
    product = ape.gemm(a, b, dtype=dtype, accumulation=how)
    wanted = [
        [
            reference.dot(row.tolist(), column.tolist(), dtype, rounding == "zero", block)
            for column in b.T
        ]
        for row in a
    ]
    assert product.dtype == torch.float32 and product.tolist() == wanted


def chain(a, b, zero, block):
    """Add exact sums one after another, by rationals."""
    acc = reference.Fraction(0)
    terms = [reference.Fraction(x) * reference.Fraction(y) for x, y in zip(a, b, strict=True)]
    for begin in range(0, len(terms), block):
        acc = reference.rounded(acc + sum(terms[begin : begin + block]), reference.SINGLE, zero)
    return float(acc)


@pytest.mark.parametrize("rounding", ["nearest", "zero"])
@pytest.mark.parametrize(
    "terms",
    [
        [1.0, 2.0**-24, 2.0**-80],  # above the tie by less than float64 sees
        [1.0, 2.0**-24, -(2.0**-80)],  # below it
        [1.0, 2.0**-24],  # the tie itself
        [1.0, -(2.0**-60)],  # truncation ends at the float32 below 1
        [2.0**100, 1.0, -(2.0**100), 2.0**-100],  # cancels over three floats
        [2.0**120, 2.0**60, 1.0, 2.0**-60, 2.0**-120, -(2.0**120), -(2.0**60)],  # and over more
        [2.0**-140, 2.0**-149, -(2.0**-150)],  # subnormal results
        [2.0**127, 2.0**127],  # overflow: infinite, or the largest number
    ],
)
@pytest.mark.parametrize("block", [1, 3, 8])
def test_sums_are_rounded_once(terms, rounding, block):
    a = torch.tensor([terms], dtype=torch.float64)
    ones = torch.ones(len(terms), 1, dtype=torch.float64)
    how = ape.Accumulation(rounding=rounding, block=block)
    wanted = chain(terms, [1.0] * len(terms), rounding == "zero", block)
    assert float(accumulated(a, ones, how)) == wanted


def test_infinities_do_not_spoil_their_neighbours():
    a, b = torch.randn(4, 20), torch.randn(20, 3)
    clean = ape.gemm(a, b, dtype="fp32-f")
    a[1, 5], b[7, 2] = torch.inf, torch.nan
    with pytest.warns(UserWarning, match="up to inf is out of the range of 'fp32-f'"):
        product = ape.gemm(a, b, dtype="fp32-f")
    touched = torch.zeros(4, 3, dtype=torch.bool)
    touched[1], touched[:, 2] = True, True
    assert torch.equal(product[~touched], clean[~touched])
    assert not torch.isfinite(product[touched]).any()


@pytest.mark.parametrize("dtype", [*FLOATS, "fp32", "auto"])
def test_shapes_transposes_factors(dtype):
    random = torch.Generator().manual_seed(3)
    a, b = torch.rand(2, 1, 3, 5, generator=random), torch.rand(4, 5, 6, generator=random)
    c = torch.rand(3, 6, generator=random)
    plain = ape.gemm(a, b, dtype=dtype)
    assert plain.shape == (2, 4, 3, 6)
    torch.testing.assert_close(plain, a @ b, rtol=2e-6, atol=0)
    turned = ape.gemm(a.mT, b.mT.contiguous(), dtype=dtype, transpose_a=True, transpose_b=True)
    assert torch.equal(turned, plain)
    scaled = ape.gemm(a, b, dtype=dtype, c=c, alpha=1.5, beta=-0.25)
    assert torch.equal(scaled, plain * 1.5 + c * -0.25)
    untouched = ape.gemm(a, b, dtype=dtype, c=torch.full_like(c, torch.nan), beta=0)
    assert torch.equal(untouched, plain)


@pytest.mark.parametrize("dtype", [*FLOATS, "fp32", "auto", "int16"])
@pytest.mark.parametrize("m,k,n", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0), (1, 1, 1)])
def test_empty_and_least(dtype, m, k, n):
    kind = torch.int16 if dtype == "int16" else torch.float32
    for lead in ((), (2,), (0,)):
        product = ape.gemm(
            torch.ones(*lead, m, k, dtype=kind), torch.ones(*lead, k, n, dtype=kind), dtype=dtype
        )
        assert product.shape == (*lead, m, n) and (product == k).all()


@pytest.mark.parametrize("dtype", ["fp32-f", "fp32-b", "auto"])
def test_gradients_are_products_of_the_type(dtype):
    a = torch.rand(3, 5, requires_grad=True)
    b = torch.rand(2, 5, 4, requires_grad=True)
    ape.gemm(a, b, dtype=dtype, alpha=2).sum().backward()
    ones = torch.ones(2, 3, 4) * 2
    assert a.grad is not None and b.grad is not None
    wanted = ape.gemm(ones, b.detach(), dtype=dtype, transpose_b=True)
    torch.testing.assert_close(a.grad, wanted.sum(0))
    assert torch.equal(b.grad, ape.gemm(a.detach(), ones, dtype=dtype, transpose_a=True))


@pytest.mark.parametrize("m,k,n", [(1, 1, 1), (5, 7, 3), (17, 300, 9), (2, 2 * INT32_TERMS + 1, 3)])
@pytest.mark.parametrize("fill", ["random", -32768, 32767, -1, 255, -256, "mixed"])
def test_int16_is_exact(m, k, n, fill):
    random = torch.Generator().manual_seed(4)

    def matrix(rows, columns):
        if fill == "random":
            return torch.randint(-32768, 32768, (rows, columns), generator=random)
        if fill == "mixed":
            return torch.tensor([-32768, 32767])[
                torch.randint(2, (rows, columns), generator=random)
            ]
        return torch.full((rows, columns), fill)

    a, b = matrix(m, k), matrix(k, n)
    product = ape.gemm(a.to(torch.int16), b.to(torch.int16), dtype="int16")
    assert product.dtype == torch.int64 and torch.equal(product, a @ b)  # int64 all the way


def test_int16_of_a_million_terms():
    k = 1_000_003
    a = torch.full((1, k), -32768, dtype=torch.int16)
    b = torch.full((k, 1), -32768, dtype=torch.int16)
    assert int(ape.gemm(a, b, dtype="int16")) == k * 2**30
    assert int(ape.gemm(a, b * 0 + 32767, dtype="int16")) == k * -32768 * 32767


def test_int16_batches_and_factors():
    random = torch.Generator().manual_seed(5)
    a = torch.randint(-32768, 32768, (2, 1, 3, 5), dtype=torch.int16, generator=random)
    b = torch.randint(-32768, 32768, (4, 6, 5), dtype=torch.int16, generator=random)
    c = torch.randint(-9, 9, (3, 6), generator=random)
    product = ape.gemm(a, b, dtype="int16", transpose_b=True, alpha=-3, c=c, beta=2)
    wanted = -3 * (a.long() @ b.long().mT) + 2 * c
    assert torch.equal(product, wanted)
    with pytest.raises(ValueError, match=r"alpha of int16 must be an integer of int64, not 0\.5"):
        ape.gemm(a, b, dtype="int16", transpose_b=True, alpha=0.5)


def test_ape_gemm_rejects_bad_arguments():
    a = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="not 'fp8'"):
        ape.gemm(a, a.T, dtype="fp8")
    with pytest.raises(TypeError, match=r"b must be torch\.float32"):
        ape.gemm(a, a.T.double())
    with pytest.raises(ValueError, match=r"\(2, 3\) by \(2, 3\)"):
        ape.gemm(a, a)
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        ape.gemm(a, a[0])
    with pytest.raises(ValueError, match="there is no c"):
        ape.gemm(a, a.T, beta=1)
    with pytest.raises(ValueError, match="not 'up'"):
        ape.Accumulation(rounding="up")  # pyright: ignore
    with pytest.raises(ValueError, match="at least 1, not 0"):
        ape.Accumulation(block=0)


@pytest.mark.parametrize(
    ("dtype", "value"),
    (("fp32-f", 6e-5), ("fp32-f", 65505.0), ("fp32-b", 7e-34), ("fp32-t", 4e-35), ("fp32-m", 0.2)),
)
def test_gemm_of_values_out_of_range_warns_and_auto_does_not(dtype, value):
    a, b = torch.full((2, 3), value), torch.eye(3)
    a[0, 0] = torch.inf  # shows itself in the product
    b[0, 1] = 1e-30  # small values beside others lose nothing of a product
    with pytest.warns(UserWarning, match=rf"values up to \S+ is out of the range of '{dtype}'"):
        ape.gemm(a, b, dtype=dtype)
    with pytest.warns(UserWarning, match="out of the range") as warned:
        ape.gemm(a, a.mT, dtype=dtype)
    assert len(warned) == 1
    ape.gemm(a, b, dtype="auto")


def test_gradient_of_values_below_the_range_warns():
    a, b = torch.ones(2, 3, requires_grad=True), torch.eye(3)
    loss = ape.gemm(a, b, dtype="fp32-f").sum() * 1e-6
    with pytest.warns(UserWarning, match="values up to 1e-06 is out of the range of 'fp32-f'"):
        loss.backward()
