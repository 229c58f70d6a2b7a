"""alpha A B + beta C for a C of every type: exact values, one result type, shapes, gradients."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from trainwright import ape
from trainwright.mcf.constants import rounded

FLOAT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INT_TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _integers(dtype, draw):
    if dtype is torch.bool:
        return torch.tensor([[draw.random() < 0.5 for _ in range(3)] for _ in range(2)])
    info = torch.iinfo(dtype)
    ends = (info.min, info.max, 0, 1)
    values = [[draw.choice([*ends, draw.randint(*ends[:2])]) for _ in range(3)] for _ in range(2)]
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("kind", [*FLOAT_TYPES, *INT_TYPES], ids=str)
def test_int16_with_c_of_any_type_is_the_exact_int64(kind):
    draw = random.Random(1)
    for alpha, beta in ((1, 1), (-3, 1), (2, -1), (0, 1), (7.0, 1.0)):
        a = torch.tensor([[draw.randint(-32768, 32767) for _ in range(50)] for _ in range(2)])
        b = torch.tensor([[draw.randint(-32768, 32767) for _ in range(3)] for _ in range(50)])
        if kind in FLOAT_TYPES:
            c = torch.tensor([[draw.randint(-2048, 2048) for _ in range(3)] for _ in range(2)])
            c = c.to(kind)
        else:
            c = _integers(kind, draw)
        product = (a @ b).tolist()
        exact = [
            [int(alpha) * p + int(beta) * int(q) for p, q in zip(*rows, strict=True)]
            for rows in zip(product, c.tolist(), strict=True)
        ]
        operands = a.to(torch.int16), b.to(torch.int16)
        if all(-(2**63) <= x < 2**63 for row in exact for x in row):
            result = ape.gemm(*operands, dtype="int16", c=c, alpha=alpha, beta=beta)
            assert result.dtype is torch.int64 and result.tolist() == exact
        else:
            with pytest.raises(ValueError, match="outside int64"):
                ape.gemm(*operands, dtype="int16", c=c, alpha=alpha, beta=beta)


@pytest.mark.parametrize(
    ("c", "alpha", "beta", "message"),
    [
        (torch.full((1, 1), 0.5), 1, 1, "c of int16 must hold integers of int64, not 0.5"),
        (torch.full((1, 1), math.nan), 1, 1, "not nan"),
        (torch.full((1, 1), 2.0**63), 1, 1, "not 9.2"),
        (torch.ones(1, 1), math.inf, 1, "alpha of int16 must be an integer of int64, not inf"),
        (torch.ones(1, 1), 1, 0.5, "beta of int16 must be an integer of int64, not 0.5"),
        (torch.ones(1, 1), 2**70, 1, "alpha of int16"),
        (torch.ones(1, 1), 2**62, 1, "outside int64"),
    ],
)
def test_int16_sum_outside_int64_is_refused(c, alpha, beta, message):
    a = torch.full((1, 1), 3, dtype=torch.int16)
    with pytest.raises(ValueError, match=message):
        ape.gemm(a, a, dtype="int16", c=c, alpha=alpha, beta=beta)


@pytest.mark.parametrize(
    "factor",
    (2**53 + 1, np.int64(2**53 + 1), torch.tensor(2**53 + 1), Fraction(1, 3), 2**1024),
    ids=("int", "numpy", "tensor", "fraction", "huge"),
)
@pytest.mark.parametrize("name", ("alpha", "beta"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.int64))
def test_gemm_factor_that_float64_would_round_is_refused_with_its_value(name, factor, dtype):
    a, c = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=dtype)
    with pytest.raises(ValueError, match=f"{name} must be a number that float64 holds, not "):
        ape.gemm(a, a, dtype="fp64-i8", c=c, **{name: factor})


def test_gemm_factor_of_any_exact_type_gives_the_exact_sum():
    a = torch.ones(1, 1)
    for half in (0.5, Fraction(1, 2), np.float32(0.5), torch.tensor(0.5)):
        assert ape.gemm(a, a, dtype="fp32-f", alpha=half).item() == 0.5
    assert ape.gemm(a, a, dtype="fp32-f", alpha=2**70).item() == 2.0**70
    whole = a.to(torch.int16)
    for odd in (2**53 + 1, np.int64(2**53 + 1), torch.tensor(2**53 + 1), Fraction(2**53 + 1)):
        assert ape.gemm(whole, whole, dtype="int16", alpha=odd).item() == 2**53 + 1


def test_enabled_integer_factor_beyond_2_to_the_53_is_rounded_as_by_torch():
    a = torch.ones(1, 1)
    with ape.enabled("fp32-f"):
        assert torch.addmm(a, a, a, alpha=2**53 + 1, beta=0).item() == 2.0**53


def _exact_rows(product, c, alpha, beta):
    for p, q in zip(product.flatten().tolist(), c.flatten().tolist(), strict=True):
        yield Fraction(alpha) * Fraction(p) + Fraction(beta) * Fraction(q)


@pytest.mark.parametrize("dtype", ["fp32", "fp32-f", "fp32-b", "auto"])
@pytest.mark.parametrize("kind", [torch.float64, *INT_TYPES], ids=str)
def test_float32_product_with_a_wider_c_is_rounded_once(kind, dtype):
    draw, generator = random.Random(2), torch.Generator().manual_seed(2)
    for alpha, beta in ((1, 1), (1.5, -0.25), (-0.1, 3), (1e-20, 1e10), (0, 1)):
        a, b = torch.randn(2, 5, generator=generator), torch.randn(5, 3, generator=generator)
        product = ape.gemm(a, b, dtype=dtype)
        if kind is torch.float64:  # cancels all but the last bits in half of the elements
            c = -product.double() * float(alpha) / float(beta)
            c[0] *= 1 + 2.0**-40
            c[1, 0] = 1e300
        else:
            c = _integers(kind, draw)
        result = ape.gemm(a, b, dtype=dtype, c=c, alpha=alpha, beta=beta)
        assert result.dtype is torch.float32 and result.shape == (2, 3)
        wanted = [rounded(x, torch.float32) for x in _exact_rows(product, c, alpha, beta)]
        assert result.flatten().tolist() == wanted


@pytest.mark.parametrize("kind", [torch.float64, *INT_TYPES], ids=str)
def test_float64_product_with_a_wider_c_is_rounded_once(kind):
    # The sum 2^53 of -1 and an int64 of 2^53 + 1 was 2^53 - 1.
    draw, generator = random.Random(4), torch.Generator().manual_seed(4)
    for alpha, beta in ((1, 1), (-1, 1), (1.5, -0.25), (-0.1, 3), (1e-20, 1e10), (0, 1)):
        a, b = (
            torch.randint(-9, 9, size, generator=generator).double() for size in ((2, 5), (5, 3))
        )
        product = ape.gemm(a, b, dtype="fp64-i8")
        if kind is torch.float64:
            c = -product * float(alpha) / float(beta)
            c[0] *= 1 + 2.0**-40
            c[1, 0] = 1e270
        else:
            c = _integers(kind, draw)
            if kind is torch.int64:
                c[0] = 2**53 + 1
        result = ape.gemm(a, b, dtype="fp64-i8", c=c, alpha=alpha, beta=beta)
        exact = _exact_rows(product, c, alpha, beta)
        assert result.flatten().tolist() == [rounded(x, torch.float64) for x in exact]


@pytest.mark.parametrize("dtype", ["fp32", "fp64-i8"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("factors", [(1.0, 1.0), (2.0, 0.0), (-0.5, 3.0)])
def test_gradients_of_alpha_and_beta_are_those_of_torch(factors, kind, dtype):
    generator = torch.Generator().manual_seed(5)
    wide = torch.float64 if dtype == "fp64-i8" else torch.float32
    a, b = (torch.randint(-9, 9, (3, 3), generator=generator).to(wide) for _ in range(2))
    c = torch.randint(-9, 9, (3,), generator=generator).to(kind)
    alpha, beta = (torch.tensor(factor, requires_grad=True) for factor in factors)
    ape.gemm(a, b, dtype=dtype, c=c, alpha=alpha, beta=beta).sum().backward()
    assert alpha.grad.item() == (a @ b).sum().item()
    assert beta.grad.item() == 3 * c.sum().item()


@pytest.mark.parametrize("dtype", ["fp32", "fp32-f", "auto"])
@pytest.mark.parametrize("kind", FLOAT_TYPES[:3], ids=str)
def test_float32_product_with_a_narrow_c_is_calculated_in_float32(kind, dtype):
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(4, 5, generator=generator) * 300, torch.randn(5, 6, generator=generator)
    product = ape.gemm(a, b, dtype=dtype)
    c = (torch.randn(6, generator=generator) * 1000).to(kind)
    for alpha, beta in ((1, 1), (0.3, 0.7), (1, 1e30)):
        result = ape.gemm(a, b, dtype=dtype, c=c, alpha=alpha, beta=beta)
        assert result.dtype is torch.float32
        assert torch.equal(result, product * alpha + c.float() * beta)


@pytest.mark.parametrize("dtype", ["fp32-f", "auto", "int16"])
def test_c_is_added_by_default_and_never_enlarges_the_product(dtype):
    kind = torch.int16 if dtype == "int16" else torch.float32
    a = torch.ones(2, 3, dtype=kind)
    product = ape.gemm(a, a.mT, dtype=dtype)
    for c in (
        torch.ones(2, 2),
        torch.ones(2, dtype=torch.float64),
        torch.ones((), dtype=torch.int8),
    ):
        result = ape.gemm(a, a.mT, dtype=dtype, c=c)
        assert torch.equal(result, product + 1) and result.dtype is product.dtype
    for c in (torch.ones(5, 2, 2), torch.ones(1, 2, 2), torch.ones(3), torch.ones(2, 2, 1)):
        with pytest.raises(ValueError, match=r"does not broadcast to the product's \(2, 2\)"):
            ape.gemm(a, a.mT, dtype=dtype, c=c.double())
    with pytest.raises(TypeError, match=r"c must be of real numbers .*, not torch\.complex64"):
        ape.gemm(a, a.mT, dtype=dtype, c=torch.ones(2, 2) * 1j)
    empty = ape.gemm(a[:0], a.mT, dtype=dtype, c=torch.ones(2).double())
    assert empty.shape == (0, 2) and empty.dtype is product.dtype


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64], ids=str)
def test_gradient_of_c_has_its_type_and_shape(kind):
    a, b = torch.rand(4, 5, requires_grad=True), torch.rand(5, 6)
    c = torch.rand(6).to(kind).requires_grad_()
    ape.gemm(a, b, dtype="fp32-f", c=c, alpha=2, beta=3).sum().backward()
    assert c.grad.dtype is kind and torch.equal(c.grad, torch.full((6,), 12.0).to(kind))
    torch.testing.assert_close(a.grad, 2 * b.sum(1).expand(4, 5))


def test_conv2d_bias_of_another_type_is_refused():
    x, weight = torch.rand(1, 2, 4, 4), torch.rand(3, 2, 3, 3)
    with pytest.raises(TypeError, match=r"bias must be a tensor of float32, not torch\.float64"):
        ape.conv2d(x, weight, torch.rand(3).double())


def test_sum_just_above_a_tie_is_not_rounded_twice():
    unit = torch.ones(1, 1)
    above = torch.full((1, 1), 2.0**-24 * (1 + 2.0**-50), dtype=torch.float64)
    assert ape.gemm(unit, unit, dtype="fp32", c=above).item() == 1 + 2.0**-23
    assert ape.gemm(unit, unit, dtype="fp32", c=above - 2.0**-73).item() == 1
