"""Householder QR in every variant: reference values, LAPACK, shapes, what cannot be factored."""

import time

import pytest
import torch
from matrices import conditioned, normal
from slowly import mostly_slow

from trainwright.precision import PrecisionError, get_format
from trainwright.qr import BoundError, QRError, block_qr, bounds, householder_qr, tsqr

HALF = {"low": "fp16", "high": "fp32"}
METHODS = {
    "householder": householder_qr,
    "block": lambda a, **options: block_qr(a, block=8, **options),
    "tsqr": lambda a, **options: tsqr(a, levels=2, **options),
}

# (factorisation, m, n, least and greatest residual, least and greatest ||Q^T Q - I||)
REFERENCE = {
    "fp64 HQR": (lambda a: householder_qr(a), 1024, 64, 5e-16, 7e-16, 0.8e-15, 1.2e-15),
    "fp64 TSQR": (lambda a: tsqr(a), 1024, 64, 5e-16, 7e-16, 0.8e-15, 1.2e-15),
    "end": (lambda a: householder_qr(a, **HALF), 1024, 64, 2.2e-4, 2.5e-4, 1.4e-4, 1.5e-4),
    "end TSQR": (lambda a: tsqr(a, **HALF), 1024, 64, 2.2e-4, 2.5e-4, 1.4e-4, 1.5e-4),
    "BLAS-3": (
        lambda a: block_qr(a, block=16, rounding="block", **HALF),
        *(1024, 64, 4.1e-4, 5.5e-4, 3.2e-4, 3.4e-4),
    ),
    "BLAS-2 HQR": (
        lambda a: householder_qr(a, rounding="inner", **HALF),
        *(4000, 100, 0.7e-3, 2.1e-3, 1.7e-3, 1.8e-3),
    ),
    "BLAS-2 TSQR 2": (
        lambda a: tsqr(a, levels=2, rounding="inner", **HALF),
        *(4000, 100, 2.3e-3, 3.7e-3, 3.5e-3, 3.9e-3),
    ),
    "BLAS-2 TSQR 4": (
        lambda a: tsqr(a, levels=4, rounding="inner", **HALF),
        *(4000, 100, 2.3e-3, 3.7e-3, 3.5e-3, 3.9e-3),
    ),
}


@pytest.mark.parametrize("name", REFERENCE)
@mostly_slow("alpha", [1e-4, 1e-2, 1.0], quick=(1e-4, 1.0))
def test_reference_values_within_a_factor_2(name, alpha):
    factor, m, n, *expected = REFERENCE[name]
    errors = factor(conditioned(m, n, alpha)).errors
    for measured, least, greatest in (
        (errors.residual, *expected[:2]),
        (errors.orthogonality, *expected[2:]),
    ):
        assert least / 2 <= measured <= 2 * greatest


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(200, 30), (31, 7), (32, 8), (4, 1), (3, 40, 5), (2, 3, 50, 12)])
def test_fp64_has_lapacks_r_up_to_signs(method, shape):
    a = normal(*shape)
    result = METHODS[method](a)
    expected = torch.linalg.qr(a).R
    signs = torch.sign(expected.diagonal(dim1=-2, dim2=-1) * result.R.diagonal(dim1=-2, dim2=-1))
    difference = torch.linalg.matrix_norm(result.R * signs.unsqueeze(-1) - expected)
    assert (difference <= 1e-13 * torch.linalg.matrix_norm(expected)).all()
    assert result.errors.residual < 1e-14 and result.errors.orthogonality < 1e-14
    assert torch.equal(result.R, result.R.triu())


VARIANTS = [
    ({"high": "fp32"}, 5e-6),
    ({"high": "fp16"}, 5e-2),
    ({"high": "bf16"}, 4e-1),
    ({"high": "tf32"}, 5e-2),
    ({"high": "posit16"}, 2e-2),
    ({"high": "fp8_e4m3"}, 8.0),
    ({"low": "fp32", "high": "fp64"}, 1e-6),
    *(
        ({"low": low, "high": "fp32", "rounding": rounding}, tolerance)
        for rounding in ("end", "block", "inner")
        for low, tolerance in (("fp16", 5e-3), ("bf16", 5e-2), ("tf32", 5e-3), ("fp8_e5m2", 3.0))
    ),
    *(({"low": "posit16", "high": "fp64", "rounding": r}, 5e-3) for r in ("end", "block", "inner")),
    ({"low": "posit(8,1)", "high": "fp16", "rounding": "inner"}, 3.0),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("options", "tolerance"), VARIANTS, ids=str)
def test_every_variant_factors_and_stays_under_its_bounds(method, options, tolerance):
    a = conditioned(80, 12, 0.1) * 3
    result = METHODS[method](a, **options)
    errors = result.errors
    assert errors.residual < tolerance and errors.orthogonality < tolerance
    for bound in (errors.bound, errors.probable):
        assert errors.residual <= bound.residual
        assert errors.orthogonality <= bound.orthogonality
    f = get_format(options.get("low") or options["high"])
    for t in (result.Q, result.R):
        assert torch.equal(f.round(t), t)
    q = result.Q_full
    assert q.shape == (80, 80) and torch.equal(f.round(q), q)
    assert torch.linalg.matrix_norm(q.mT @ q - torch.eye(80, dtype=q.dtype), ord=2) < 2 * tolerance
    x = normal(80, 3) / 10
    reference = q.double().mT @ x
    size = max(1.0, float(x.norm()))
    assert (result.apply(x, transposed=True) - reference).norm() < 2 * tolerance * size
    assert (result.apply(x) - q.double() @ x).norm() < 2 * tolerance * size


def test_reflectors_are_those_of_algorithm_3():
    a = normal(9, 4)
    result = householder_qr(a)
    assert torch.equal(result.V, result.V.tril())
    assert torch.equal(result.V.diagonal(), torch.ones(4, dtype=torch.float64))
    q = torch.eye(9, dtype=torch.float64)
    for j in range(4):
        v = result.V[:, j : j + 1]
        q = q @ (torch.eye(9, dtype=torch.float64) - result.beta[j] * v @ v.mT)
    assert torch.allclose(q, result.Q_full, atol=1e-14)
    assert torch.allclose(q @ result.R_full, a, atol=1e-14)
    assert (result.R.diagonal() * a[0, 0].sign())[0] < 0  # sigma = -sign(x_1) ||x||
    blocked = block_qr(a, block=3)
    assert torch.allclose(blocked.V, result.V) and torch.allclose(blocked.beta, result.beta)
    p = torch.eye(9, dtype=torch.float64) - blocked.W[:, :3] @ blocked.V[:, :3].mT
    assert torch.allclose(p.mT @ p, torch.eye(9, dtype=torch.float64), atol=1e-14)


def test_tree_of_tsqr():
    result = tsqr(normal(50, 5), levels=3)
    assert [tuple(v.shape) for v in result.V] == [(8, 7, 5), (4, 10, 5), (2, 10, 5), (1, 10, 5)]
    assert [tuple(b.shape) for b in result.beta] == [(8, 5), (4, 5), (2, 5), (1, 5)]
    with pytest.raises(QRError, match=r"50 rows in 2\^4 blocks leave 3 rows for 5 columns"):
        tsqr(normal(50, 5), levels=4)
    with pytest.raises(ValueError, match="levels"):
        tsqr(normal(50, 5), levels=-1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options",
    [{}, HALF, {**HALF, "rounding": "inner"}, {**HALF, "rounding": "block"}, {"high": "fp16"}],
    ids=str,
)
def test_batches_are_their_matrices(method, options):
    a = normal(2, 3, 40, 6)
    a[1, 2] = 0
    whole = METHODS[method](a, **options)
    for i, j in ((0, 0), (0, 2), (1, 2)):
        single = METHODS[method](a[i, j], **options)
        tolerance = 1e-13 if not options else 3e-2
        assert (whole.R[i, j] - single.R).norm() <= tolerance * 10
        assert (whole.Q[i, j] - single.Q).norm() <= tolerance * 10
    assert torch.equal(whole.R[1, 2], torch.zeros_like(whole.R[1, 2]))
    assert whole.errors.orthogonality < 0.05


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"high": "fp32"},
        HALF,
        {**HALF, "rounding": "block"},
        {**HALF, "rounding": "inner"},
        {"high": "fp16"},
    ],
    ids=str,
)
def test_qr_factors_degenerate_matrices(method, options):
    factor = METHODS[method]
    mixed = bool(options.get("low")) or options.get("high") == "fp16"
    tolerance = 2e-2 if mixed else 1e-5
    zero = factor(torch.zeros(40, 6), **options)
    assert torch.equal(zero.R, torch.zeros_like(zero.R))
    assert zero.errors.residual == 0 and zero.errors.orthogonality == 0
    low_rank = normal(40, 2) @ normal(2, 6, seed=1)
    low_rank[:, 3] = 0
    ill = conditioned(40, 6, 0.1).clone()
    ill[:, 5] = ill[:, 4] * (1 + 1e-9)
    for a in (low_rank, ill, normal(40, 1), -torch.ones(40, 1), torch.eye(40, 6)):
        errors = factor(a, **options).errors
        assert errors.residual < tolerance and errors.orthogonality < tolerance
    assert torch.equal(factor(torch.zeros(40, 1), **options).R, zero.R[:1, :1])


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e160, 1e300])
def test_norms_neither_overflow_nor_underflow(scale):
    for method in METHODS.values():
        errors = method(conditioned(40, 6, 0.1) * scale).errors
        assert errors.residual < 1e-14 and errors.orthogonality < 1e-14


def test_qr_fp16_rejects_values_beyond_range():
    a = conditioned(200, 4, 0.1) * 20_000  # squares of norms are far over 65,504
    for rounding in ("end", "block", "inner"):
        errors = householder_qr(a, rounding=rounding, **HALF).errors
        assert errors.residual < 3e-3
        with pytest.raises(QRError, match="overflows fp16"):
            householder_qr(a * 1000, rounding=rounding, **HALF)
    wide = torch.full((200, 1), 60_000.0)  # elements fit, their norm does not
    with pytest.raises(QRError, match="R overflows fp16, whose largest number is 65504"):
        householder_qr(wide, **HALF)
    with pytest.raises(QRError, match="overflows fp8_e4m3"):
        householder_qr(torch.full((200, 1), 440.0), high="fp8_e4m3")


@pytest.mark.parametrize("method", METHODS)
def test_qr_rejects_unsuitable_matrix(method):
    factor = METHODS[method]
    for bad, message in (
        (torch.tensor([[1.0], [float("nan")], [1.0], [1.0]]), "NaN or infinite"),
        (torch.tensor([[1.0], [float("inf")], [1.0], [1.0]]), "NaN or infinite"),
        (torch.ones(3, 4), r"as many rows as columns, not 3 x 4"),
        (torch.ones(4), "matrix of real floats"),
        (torch.ones(4, 2, dtype=torch.int64), "matrix of real floats"),
        (torch.ones(4, 0), "no columns"),
    ):
        with pytest.raises(QRError, match=message):
            factor(bad)
    with pytest.raises(TypeError, match="torch tensor"):
        factor([[1.0]])
    with pytest.raises(ValueError, match="rounding must be one of end, block, inner"):
        factor(torch.ones(8, 1), low="fp16", rounding="late")
    with pytest.raises(PrecisionError, match="more precise than high"):
        factor(torch.ones(8, 1), low="fp32", high="fp16")
    with pytest.raises(PrecisionError, match="unknown number format 'half'"):
        factor(torch.ones(8, 1), low="half")
    with pytest.raises(PrecisionError, match="rounding twice"):
        factor(torch.ones(8, 1), high="posit32")


def test_input_is_left_alone_and_may_be_of_any_float_type():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        a = normal(20, 4, dtype=dtype)
        before = a.clone()
        assert householder_qr(a).errors.residual < 1e-14
        block_qr(a.T.contiguous().T, high="fp32")
        assert torch.equal(a, before)
    tracked = normal(20, 4).requires_grad_()
    assert not householder_qr(tracked).R.requires_grad
    with pytest.raises(QRError, match="20 rows"):
        householder_qr(a).apply(torch.ones(19, 1))


def test_low_precision_level_2_is_vectorised():
    """4,000 x 100 at the BLAS-2 level in under 30 s on one core."""
    a = conditioned(4000, 100, 0.01)
    begin = time.process_time()
    q = householder_qr(a, rounding="inner", **HALF).Q
    assert q.shape == (4000, 100) and time.process_time() - begin < 30


def test_block_qr_takes_at_most_5_times_torchs_time():
    a = normal(2000, 200, dtype=torch.float32)

    def least(call):
        times = []
        for _ in range(15):
            begin = time.process_time()
            call()
            times.append(time.process_time() - begin)
        return min(times)

    ours = least(lambda: block_qr(a, high="fp32").Q)
    theirs = least(lambda: torch.linalg.qr(a))
    assert ours <= 5 * theirs


def test_bounds_say_nothing_where_the_analysis_does_not():
    result = householder_qr(conditioned(1024, 4, 0.1), high="fp16")
    assert result.bound.residual == float("inf")  # gamma_1024 in fp16 is 1
    with pytest.raises(BoundError):
        bounds.gamma(2048, 2.0**-11)
    assert result.errors.probable.residual < 1  # the square-root bound still speaks


@pytest.mark.parametrize("n", [1, 2, 17])
@pytest.mark.parametrize(
    "options", [{}, {**HALF, "rounding": "inner"}, {**HALF, "rounding": "block"}], ids=str
)
def test_qr_factors_square_matrices(n, options):
    limit = 2e-2 if options else 1e-14
    for factor in (householder_qr, block_qr, lambda a, **o: tsqr(a, levels=0, **o)):
        result = factor(normal(n, n), **options)
        assert result.errors.residual < limit and result.errors.orthogonality < limit
        assert torch.equal(result.Q, result.Q_full) and torch.equal(result.R, result.R_full)
