"""QR and tensor trains of numbers of any magnitude: bounds, equivariance, what is refused."""

import math
import random
from fractions import Fraction

import pytest
import torch
from matrices import normal

from trainwright.precision import get_format
from trainwright.precision.rounding import scale_by_power
from trainwright.qr import QRError, block_qr, householder_qr, tsqr

METHODS = {
    "householder": householder_qr,
    "block": lambda a, **options: block_qr(a, block=3, **options),
    "tsqr": lambda a, **options: tsqr(a, levels=1, **options),
}
OPTIONS = [
    *({"high": high} for high in ("fp64", "fp32", "tf32", "bf16", "fp16")),
    *(
        {"low": low, "high": "fp32", "rounding": rounding}
        for low in ("fp16", "bf16", "tf32")
        for rounding in ("end", "block", "inner")
    ),
]


def _powers(a, exponents):
    return scale_by_power(a, torch.as_tensor(exponents))


def test_scale_by_power_of_any_exponent_rounds_as_ldexp():
    draw = random.Random(0)
    for dtype, bits in ((torch.float64, 1100), (torch.float32, 160)):
        for _ in range(300):
            x = torch.tensor(math.ldexp(draw.uniform(1, 2), draw.randint(-bits, bits - 80))).to(
                dtype
            )
            exponent = draw.randint(-3 * bits, 3 * bits)
            try:
                expected = math.ldexp(float(x), exponent)
            except OverflowError:
                expected = math.inf
            assert _powers(x, exponent) == torch.tensor(expected, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_columns_and_rows_of_any_magnitude_hold_the_printed_bound(method, options):
    storage = get_format(options.get("low") or options["high"])
    least, greatest = storage.least - storage.digits + 1, int(math.log2(storage.greatest)) - 7
    generator = torch.Generator().manual_seed(7)
    for trial in range(12):
        m, n = ((6, 3), (40, 7), (16, 8))[trial % 3]
        shape = ((n,), (m, 1), (1,), (2, 1, n))[trial % 4]
        exponents = torch.randint(least - 2, greatest, shape, generator=generator)
        a = _powers(torch.randn(m, n, generator=generator, dtype=torch.float64), exponents)
        errors = METHODS[method](a, **options).errors
        for bound in (errors.bound, errors.probable):
            assert errors.residual <= bound.residual, trial
            assert errors.orthogonality <= bound.orthogonality, trial


@pytest.mark.parametrize("high", ["fp32", "fp64"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_scaling_columns_by_powers_of_two_scales_r_bit_by_bit(method, high, batch):
    reach = 120 if high == "fp32" else 1000
    dtype = torch.float32 if high == "fp32" else torch.float64
    a = normal(*batch, 30, 7, dtype=dtype)
    exponents = torch.tensor([0, -reach, reach, 3, -7, -reach // 2, reach])
    plain = METHODS[method](a, high=high)
    scaled = METHODS[method](_powers(a, exponents), high=high)
    assert torch.equal(scaled.Q, plain.Q)
    assert torch.equal(scaled.R, _powers(plain.R, exponents))


@pytest.mark.parametrize(("high", "tiny"), [("fp32", 3e-23), ("fp64", 1e-200), ("fp64", 1e-320)])
@pytest.mark.parametrize("method", METHODS)
def test_tiny_column_keeps_its_r_and_orthogonality(method, high, tiny):
    a = normal(8, 3).to(torch.float32 if high == "fp32" else torch.float64)
    a[:, 1] *= tiny
    result = METHODS[method](a, high=high)
    assert result.errors.orthogonality < (1e-6 if high == "fp32" else 1e-14)
    for j in range(3):  # exact residual of each column, relative to the column
        column = [Fraction(float(x)) for x in a[:, j]]
        product = [
            sum(Fraction(float(result.Q[i, k])) * Fraction(float(result.R[k, j])) for k in range(3))
            for i in range(8)
        ]
        off = max(abs(x - y) for x, y in zip(column, product, strict=True))
        place = Fraction(5, 10**324) if high == "fp64" else Fraction(2, 10**45)
        unit = Fraction(1, 10**6) if high == "fp32" else Fraction(1, 10**14)
        assert off <= unit * max(map(abs, column)) + 4 * place


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{"high": "fp32"}, {"high": "fp64"}, {"high": "bf16"}], ids=str)
def test_tiny_rest_of_a_column_keeps_the_reflectors_orthogonal(method, options):
    a = torch.zeros(12, 3, dtype=torch.float64)
    a[0] = torch.tensor([1.0, 1.0, 2.0])
    a[1:, 1:] = normal(11, 2) * 1e-23  # squares of what lies under the first row underflow
    if options["high"] == "fp64":
        a[1:] *= 3e-138  # squares are subnormal, so that norms lose digits
    errors = METHODS[method](a, **options).errors
    assert errors.orthogonality <= 60 * get_format(options["high"]).unit
    assert errors.residual <= 60 * get_format(options["high"]).unit


@pytest.mark.parametrize("method", METHODS)
def test_elements_near_the_greatest_number_factor_or_are_refused_by_name(method):
    for high in ("fp32", "fp64", "bf16"):
        greatest = get_format(high).greatest
        a = normal(9, 3).clamp(-1, 1) * greatest
        a[:, 1] = normal(9) * 1e-10
        fits = METHODS[method](a / 4, high=high)
        assert fits.errors.residual <= fits.bound.residual
        full = torch.full((9, 2), greatest, dtype=torch.float64)  # norm 3 times the greatest
        with pytest.raises(QRError, match=f"R overflows {high}"):
            METHODS[method](full, high=high)
        for value in (math.inf, -math.inf, math.nan):
            a[3, 1] = value
            with pytest.raises(QRError, match="NaN or infinite"):
                METHODS[method](a, high=high)


@pytest.mark.parametrize("method", METHODS)
def test_products_with_q_take_columns_of_any_magnitude(method):
    result = METHODS[method](normal(9, 3))
    x = normal(9, 4, seed=5)
    exponents = torch.tensor([1020, -1000, 0, -500])
    for transposed in (False, True):
        plain = result.apply(x, transposed=transposed)
        scaled = result.apply(_powers(x, exponents), transposed=transposed)
        assert torch.equal(scaled, _powers(plain, exponents))
    assert torch.equal(
        result.apply(torch.ones(9, 1, dtype=torch.int64)), result.apply(torch.ones(9, 1))
    )
    with pytest.raises(QRError, match="X has NaN or infinite elements"):
        result.apply(torch.full((9, 1), math.nan))
    with pytest.raises(QRError, match=r"real matrices of 9 rows, not torch.complex64"):
        result.apply(torch.ones(9, 1, dtype=torch.complex64))


def test_empty_batch_has_an_empty_factorisation():
    for method in METHODS.values():
        result = method(torch.ones(0, 6, 3))
        assert result.Q.shape == (0, 6, 3) and result.R.shape == (0, 3, 3)
        assert result.errors.residual == 0
    assert householder_qr(normal(6, 3)).apply(torch.ones(6, 0)).shape == (6, 0)


def test_bound_of_a_matrix_that_underflows_its_format_says_so():
    result = householder_qr(normal(6, 3) * 1e-12, high="fp16")
    assert not result.R.any() and result.errors.residual == 1 <= result.errors.bound.residual
    small = householder_qr(normal(6, 3) * 1e-6, high="fp16").errors  # subnormal in fp16
    assert 1e-3 < small.residual <= small.bound.residual < 1
