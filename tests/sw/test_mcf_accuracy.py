"""Multi-component arithmetic against exact rational numbers: the worst of 10,000."""

import math
import operator

import mcf_cases as cases
import pytest
import torch

from trainwright.mcf import arithmetic, products, reference
from trainwright.mcf.errorfree import PRECISION, split, two_prod, two_prod_fma, two_sum
from trainwright.support.native import without

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
OPERATIONS = {"add": operator.add, "mul": operator.mul, "div": operator.truediv}
CASES = [
    (F32, 2, 10_000, 48.5),
    (F32, 3, 10_000, 73.0),
    (F32, 4, 800, 96.0),
    (F64, 2, 2000, 106.0),
    (F64, 3, 800, 159.0),
    (BF16, 2, 2000, 16.0),
    (BF16, 3, 2000, 24.0),
]


@pytest.fixture(scope="module")
def drawn():
    operands = {}

    def draw(dtype, nc, count):
        if (dtype, nc) not in operands:
            x, y = cases.pairs(count, nc, dtype, seed=nc)
            y[y[..., 0] == 0] = 1.0
            operands[dtype, nc] = x, y, cases.exact(x), cases.exact(y)
        return operands[dtype, nc]

    return draw


@pytest.mark.parametrize("dtype, nc, count, bits", CASES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_worst_of_many_is_within_the_last_component(drawn, name, dtype, nc, count, bits):
    x, y, exact_x, exact_y = drawn(dtype, nc, count)
    if nc == 4 and name == "mul":  # products of the last ranks are subnormal otherwise
        keep = (x[..., 0].abs() > 1) & (y[..., 0].abs() > 1)
        x, y = x[keep], y[keep]
        exact_x, exact_y = cases.exact(x), cases.exact(y)
    plain_x, plain_y = cases.exact(x[..., :1]), cases.exact(y[..., :1])
    for a, b, exact_a, exact_b in (
        (x, y, exact_x, exact_y),
        (x, y[..., :1], exact_x, plain_y),
        (x[..., :1], y, plain_x, exact_y),
    ):
        results = cases.exact(arithmetic.binary(name, a, b))
        assert cases.worst_bits(cases.errors(name, results, exact_a, exact_b)) >= bits


def test_mcf_float16_keeps_representable_digits():
    """Sums are exact to float16's unit of 2^-24 and to 22 digits."""
    x, y = cases.pairs(3000, 2, F16)
    a, b = cases.exact(x), cases.exact(y)
    for name in ("add", "mul"):
        results = cases.exact(arithmetic.binary(name, x, y))
        unit = cases.UNIT * (2 if name == "mul" else 1) - 25
        for error, want in cases.errors(name, results, a, b):
            assert abs(error) <= max(abs(want) >> 22, 1 << unit)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_error_free_transformations_are_exact(dtype):
    x, y = (t[..., 0] for t in cases.pairs(2000, 1, dtype))
    sums = cases.exact(torch.stack(two_sum(x, y), -1))
    a, b = (cases.exact(t.unsqueeze(-1)) for t in (x, y))
    assert not any(error for error, _ in cases.errors("add", sums, a, b))
    normal = (x * y).abs() > torch.finfo(dtype).smallest_normal * 2.0 ** PRECISION[dtype]
    for function in (two_prod, two_prod_fma):
        product = cases.exact(torch.stack(function(x[normal], y[normal]), -1))
        a, b = (cases.exact(t[normal].unsqueeze(-1)) for t in (x, y))
        assert not any(error for error, _ in cases.errors("mul", product, a, b))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_split_halves_the_digits_up_to_the_top_of_the_range(dtype):
    top = torch.finfo(dtype).max
    x = torch.cat(
        [torch.linspace(-top, top, 1001, dtype=F64).to(dtype), cases.special(dtype, 1)[:, 0]]
    )
    high, low = split(x)
    finite = x.isfinite()
    assert torch.equal((high + low)[finite], x[finite])
    assert not high[~x.isnan()].isnan().any() and not low[~x.isnan()].isnan().any()
    half = -(-PRECISION[dtype] // 2)
    inside = finite & (x.abs() < top / 2)
    for part, digits in ((high, PRECISION[dtype] - half), (low, half)):
        scaled = torch.frexp(part[inside].to(F64))[0] * 2.0**digits
        assert torch.equal(scaled, scaled.round())


@pytest.mark.parametrize("dtype, nc", [(F32, 2), (F32, 3), (F32, 4), (F64, 2), (F64, 3)])
def test_kernels_and_torch_have_the_same_bits(dtype, nc):
    x, y = cases.pairs(1500, nc, dtype, seed=5)
    ends = cases.special(dtype, nc)
    x = torch.cat([x, ends.repeat_interleave(len(ends), 0)])
    y = torch.cat([y, ends.repeat(len(ends), 1)])
    for name in OPERATIONS:
        for a, b in ((x, y), (x, y[..., :1]), (x[..., :1], y), (x, y[0]), (x[3, :1], y)):
            result = arithmetic.binary(name, a, b)
            with without():
                assert cases.same(result, arithmetic.binary(name, a, b))
            a, b = a.expand(result.shape[0], a.shape[-1]), b.expand(result.shape[0], b.shape[-1])
            assert cases.same(result, getattr(reference, name)(a, b))


@pytest.mark.parametrize("rows, columns", [(1, 1), (7, 15), (8, 16), (9, 17), (21, 50), (3, 0)])
@pytest.mark.parametrize("nc", [2, 3])
def test_products_with_a_vector_have_the_same_bits(rows, columns, nc):
    x, v = cases.pairs(max(rows * columns, 1), nc, F32, seed=6)
    x, v = x[: rows * columns].reshape(rows, columns, nc), v[:columns]
    for factor in (v[:, :1], v):
        product = products.carried_mv(x, factor)
        with without():
            assert torch.equal(product, products.carried_mv(x, factor))


@pytest.mark.parametrize("at", [0, 3, 4, 15, 16, 19])
def test_mcf_accuracy_column_counts_once_in_products_with_a_vector(at):
    """Rows end with a vector of columns, some of which were summed before."""
    x, v = cases.pairs(5 * 20, 2, F32, seed=7)
    x, v = x.reshape(5, 20, 2), v[:20]
    x[2, at] = torch.tensor([math.inf, 0.0])
    v[:, 0] = v[:, 0].abs() + 1
    for factor in (v[:, :1], v):
        product = products.carried_mv(x, factor)
        assert product[2].tolist() == [math.inf, 0]
        assert product[[0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize("n", [1, 2])
def test_mcf_special_terms_of_vector_products_match_floats(n):
    ends = cases.special(F32, 2)
    x = ends.repeat_interleave(len(ends), 0).unsqueeze(1)
    v = ends.repeat(len(ends), 1)[:, :n]
    results = torch.cat([products.carried_mv(a[None], b[None]) for a, b in zip(x, v, strict=True)])
    with without():
        again = [products.carried_mv(a[None], b[None]) for a, b in zip(x, v, strict=True)]
    assert cases.same(results, torch.cat(again))
    total = 0.0 + x[:, 0, 0].double() * v[:, 0].double()  # a sum that starts with 0 is never -0
    assert cases.same(results[:, 0], total.float())
    assert not results[:, 1:].isnan().any()


def test_scaled_numbers_are_normalised():
    """Also where both products round to the far side."""
    x, y = cases.pairs(3000, 2, F32, seed=7)
    product = arithmetic.binary("mul", x, y[..., :1])
    assert torch.equal(product[..., 0] + product[..., 1], product[..., 0])


@pytest.mark.parametrize("dtype, nc", [(F16, 2), (BF16, 3), (F32, 2), (F32, 3), (F64, 2)])
def test_mcf_special_operands_match_floats(dtype, nc):
    ends = cases.special(dtype, nc)
    x, y = ends.repeat_interleave(len(ends), 0), ends.repeat(len(ends), 1)
    for name, plain in OPERATIONS.items():
        result = arithmetic.binary(name, x, y)
        assert cases.same(result[..., 0], plain(x[..., 0], y[..., 0]))
        assert not result[..., 1:].isnan().any()
        assert (result[..., 1:][~result[..., 0].isfinite()] == 0).all()


def test_small_divisors_and_zeros_make_no_nan():
    x = torch.tensor([[1.0, 2.0**-30]])
    small = arithmetic.binary("div", x, torch.tensor([[1e-39]]))
    assert small[0, 0] == torch.inf and small[0, 1] == 0
    assert torch.equal(arithmetic.binary("mul", x, torch.zeros(1, 1)), torch.zeros(1, 2))
    near_top = torch.tensor([[3.4e38, 1e30]])
    assert arithmetic.binary("mul", near_top, torch.tensor([[0.5]])).isfinite().all()


@pytest.mark.parametrize("dtype, nc, bits", [(F32, 2, 48.0), (F32, 3, 72.0), (F64, 2, 104.0)])
def test_roots_and_sums(dtype, nc, bits):
    x, _ = cases.pairs(1000, nc, dtype, seed=9)
    x = arithmetic.absolute(x)
    root, wanted = cases.exact(arithmetic.sqrt(x)), cases.exact(x)
    # the root's relative error is half of its square's
    squares = (
        (r * r - (w << cases.UNIT), w << cases.UNIT) for r, w in zip(root, wanted, strict=True)
    )
    assert cases.worst_bits(squares) >= bits - 1
    signed, _ = cases.pairs(1000, nc, dtype, seed=10)
    terms = cases.exact(signed)
    (value,) = cases.exact(arithmetic.total(signed, 0).unsqueeze(0))
    assert cases.worst_bits([(value - sum(terms), sum(map(abs, terms)))]) >= bits
