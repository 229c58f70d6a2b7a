"""Least squares and pivoted QR: against exact rational solutions and mpmath."""

from fractions import Fraction

import mpmath
import pytest
import torch

from trainwright.qr import QRError, lstsq, pivoted_qr, sketched_qr

F64 = torch.float64


def _matrix(x):
    rows = x.unsqueeze(-1) if x.dim() == 1 else x
    return mpmath.matrix([[mpmath.mpf(v) for v in row] for row in rows.double().tolist()])


def _apart(x, exact):
    return float(mpmath.mnorm(_matrix(x) - exact, "f") / (mpmath.mnorm(exact, "f") or 1))


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workprec(2000):
        yield


def _integers(shape, seed):
    random = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=random).to(F64)


def _shortest(c, f, b):
    """Return the shortest least-squares solution for the matrix c f, both of full rank."""
    c, f, b = (_matrix(t) for t in (c, f, b))
    return f.T * (f * f.T) ** -1 * ((c.T * c) ** -1 * (c.T * b))


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 2e-6), (F64, 1e-13)])
@pytest.mark.parametrize("m, n, rank", [(12, 7, 3), (7, 12, 3), (6, 6, 5), (9, 4, 4), (4, 9, 4)])
def test_lstsq_of_any_rank_is_the_shortest_solution(dtype, limit, m, n, rank):
    c, f, b = _integers((m, rank), 1), _integers((rank, n), 2), _integers((m, 2), 3)
    solution = lstsq((c @ f).to(dtype), b.to(dtype))
    exact = _shortest(c, f, b)
    assert int(solution.rank) == rank and _apart(solution.x, exact) <= limit
    assert solution.x.dtype is dtype and solution.iterations == 0
    rest = _matrix(c @ f) * exact - _matrix(b)
    for j in range(2):
        norm = float(mpmath.norm(rest[:, j]))
        assert abs(float(solution.residual[j]) - norm) <= limit * float(b.norm())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("m, n", [(6, 40), (40, 6)])
def test_lstsq_of_many_columns_in_a_narrow_type_solves_the_equations(dtype, m, n):
    """A share of max(m, n) epsilons, 0.3 of bfloat16, is no rounding error of A."""
    a, b = _integers((m, n), 7), _integers((m, 1), 8)
    solution, exact = lstsq(a.to(dtype), b.to(dtype)), _matrix(torch.linalg.pinv(a) @ b)
    assert int(solution.rank) == 6
    assert _apart(solution.x, exact) <= torch.finfo(dtype).eps
    rest = float((a @ torch.linalg.pinv(a) @ b - b).norm())
    assert abs(float(solution.residual) - rest) <= max(torch.finfo(dtype).eps * rest, 1e-13)
    assert lstsq(torch.ones(200, 2, dtype=dtype), torch.ones(200, dtype=dtype)).rank == 1


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("far", [3, 60, 300])
def test_lstsq_of_badly_scaled_columns_keeps_their_rank(rank, far):
    """LAPACK's drivers count columns of size 1e-20 as dependent, and lose their unknowns."""
    c, f, b = _integers((9, rank), 4), _integers((rank, 6), 5), _integers((9, 1), 6)
    scale = torch.exp2(torch.linspace(far, -far, 6, dtype=F64).round())
    solution = lstsq((c @ f) * scale, b[:, 0])
    exact = _shortest(c, f * scale, b)
    assert int(solution.rank) == rank and _apart(solution.x, exact) <= 1e-12
    basic = lstsq((c @ f) * scale, b[:, 0], basic=True)
    assert int((basic.x == 0).sum()) == 6 - rank
    moved = _matrix((c @ f) * scale) * (_matrix(basic.x) - exact)
    assert float(mpmath.norm(moved)) <= 1e-12 * float(b.norm())


@pytest.mark.parametrize("seed", [11, 15, 30, 34, 39, 54, 67, 82, 123, 125, 132, 143])
def test_lstsq_of_tiny_columns_beside_dependent_ones_is_the_shortest(seed):
    """Rounding of a dependent column, 2^-53, may exceed a tiny column, and must not serve for it.

    Unknowns are compared in units of their columns: data of 53 digits determine no more of them.
    """
    random = torch.Generator().manual_seed(seed)
    c, f = _integers((5, 3), seed), _integers((3, 8), seed + 500)
    f *= torch.rand((3, 8), generator=random) < 0.5  # some columns depend on few others
    scale = torch.exp2(torch.randint(-70, 71, (8,), generator=random).to(F64))
    b = (c @ f).sum(1, keepdim=True)
    solution, exact = lstsq((c @ f) * scale, b[:, 0]), _shortest(c, f * scale, b)
    assert int(solution.rank) == 3
    units = mpmath.diag([mpmath.mpf(size) for size in scale.tolist()])
    assert _apart(solution.x * scale, units * exact) <= 1e-12


def test_lstsq_of_heavy_rows_keeps_the_light_ones():
    """Weights of 2^40: QR without sorted rows and pivots loses the rows of size 1."""
    a, b = _integers((8, 4), 7), _integers((8, 1), 8)
    weight = torch.ones(8, 1, dtype=F64)
    weight[[2, 5, 6]] = 2.0**40
    solution = lstsq(a * weight, b * weight)
    x, y = _matrix(a * weight), _matrix(b * weight)
    exact = (x.T * x) ** -1 * (x.T * y)
    assert int(solution.rank) == 4 and _apart(solution.x, exact) <= 1e-12


def test_lstsq_threshold_decides_the_rank():
    a = torch.diag(torch.tensor([1.0, 1.0, 1.0], dtype=F64))
    a[0, 2] = 1
    a[2, 2] = 1e-7  # nearly the first column
    b = torch.tensor([1.0, 2.0, 3.0], dtype=F64)
    fine, coarse = lstsq(a, b), lstsq(a, b, threshold=1e-6)
    assert (int(fine.rank), int(coarse.rank)) == (3, 2)
    assert fine.threshold == 3 * 2.0**-52 and coarse.threshold == 1e-6
    assert torch.allclose(coarse.x, torch.tensor([0.5, 2.0, 0.5], dtype=F64), atol=1e-6)
    assert torch.allclose(fine.x, torch.tensor([1 - 3e7, 2.0, 3e7], dtype=F64), rtol=1e-8)


def test_lstsq_of_batches_zeros_and_empty_matrices_has_their_shapes():
    a, b = _integers((2, 3, 5, 4), 9), _integers((2, 3, 5), 10)
    solution = lstsq(a, b)
    assert (solution.x.shape, solution.rank.shape, solution.residual.shape) == (
        (2, 3, 4),
        (2, 3),
        (2, 3),
    )
    assert torch.equal(solution.x[1, 2], lstsq(a[1, 2], b[1, 2]).x)
    nothing = lstsq(torch.zeros(4, 3), torch.ones(4, 2))
    assert not nothing.x.any() and int(nothing.rank) == 0
    assert nothing.residual.tolist() == [2, 2]
    assert lstsq(torch.zeros(0, 3), torch.zeros(0)).x.tolist() == [0, 0, 0]
    assert lstsq(torch.ones(3, 0), torch.ones(3)).residual == pytest.approx(3**0.5)
    assert lstsq(torch.zeros(0, 4, 3), torch.zeros(0, 4, 1)).x.shape == (0, 3, 1)


@pytest.mark.parametrize("low", ["fp16", "bf16", "posit16", "fp32"])
def test_lstsq_from_a_low_precision_factor_has_float64_accuracy(low):
    a, b = _integers((60, 12), 11), _integers((60, 2), 12)
    scale = torch.exp2(torch.linspace(40, -40, 12, dtype=F64).round())
    solution = lstsq(a * scale, b, low=low)
    x, y = _matrix(a * scale), _matrix(b)
    exact = (x.T * x) ** -1 * (x.T * y)
    assert 0 < solution.iterations < 40 and int(solution.rank) == 12
    for j in range(12):  # each unknown, whatever its size
        assert abs(mpmath.mpf(float(solution.x[j, 0])) - exact[j, 0]) <= 1e-13 * abs(exact[j, 0])


def test_lstsq_falls_back_where_low_precision_cannot_tell_the_rank():
    c, f, b = _integers((30, 5), 13), _integers((5, 8), 14), _integers((30, 1), 15)
    solution = lstsq(c @ f, b, low="fp16")
    assert solution.iterations == 0 and int(solution.rank) == 5
    both = torch.stack([c @ f, _integers((30, 8), 16)])
    assert lstsq(both[1:], b[None], low="fp16").iterations > 0
    assert lstsq(both, b.expand(2, 30, 1), low="fp16").iterations == 0
    assert _apart(solution.x, _shortest(c, f, b)) <= 1e-13


@pytest.mark.parametrize("low", [None, "fp16"])
@pytest.mark.parametrize("rank", [3, 2])
def test_lstsq_of_subnormal_operands_has_the_solution_of_usual_ones(low, rank):
    c, f, b = _integers((6, rank), 16), _integers((rank, 3), 17), _integers((6, 2), 18)
    tiny = 2.0**-1074
    solution, usual = lstsq(c @ f * tiny, b * tiny, low=low), lstsq(c @ f, b, low=low)
    assert torch.equal(solution.x, usual.x) and int(solution.rank) == rank
    assert torch.equal(lstsq(c @ f * 2.0**900, b * tiny, basic=True).x, 0 * usual.x)


def test_lstsq_of_misfitting_operands_names_the_fault():
    a, b = torch.ones(4, 2), torch.ones(4)
    with pytest.raises(QRError, match=r"b \[3\] does not fit A \[4, 2\]"):
        lstsq(a, torch.ones(3))
    with pytest.raises(QRError, match="b has NaN or infinite elements"):
        lstsq(a, b * torch.inf)
    with pytest.raises(ValueError, match=r"below 1, not 2"):
        lstsq(a, b, threshold=2)
    with pytest.raises(QRError, match=r"x overflows torch\.float32"):
        lstsq(torch.eye(2) * 1e-30, torch.ones(2) * 1e30)
    with pytest.raises(TypeError, match="b must be a torch tensor, not list"):
        lstsq(torch.eye(2), [1.0, 2.0])
    with pytest.raises(QRError, match=r"real floats, not torch\.int64"):
        lstsq(a.long(), b)


@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("shape", [(40, 23), (23, 40), (30, 30), (5, 1), (1, 5)])
def test_pivoted_qr_factors_with_falling_pivots(block, shape):
    random = torch.Generator().manual_seed(16)
    a = torch.randn(shape, generator=random, dtype=F64)
    f = pivoted_qr(a, block=block)
    k = min(shape)
    assert (f.Q @ f.R - a[:, f.order]).norm() <= 1e-14 * a.norm() * k
    assert (f.Q.mT @ f.Q - torch.eye(k, dtype=F64)).norm() <= 1e-14 * k
    assert sorted(f.order.tolist()) == list(range(shape[1]))
    assert torch.equal(f.R, f.R.triu()) and f.rank(1e-13) == k
    if block == 1:
        remaining = [f.R[j:, j:].norm(dim=0) for j in range(k)]
        assert all(norms[0] >= norms.max() * (1 - 1e-12) for norms in remaining)


def test_pivoted_qr_pivots_are_those_of_lapack():
    scipy = pytest.importorskip("scipy.linalg")
    random = torch.Generator().manual_seed(17)
    a = torch.randn(50, 30, generator=random, dtype=F64) * torch.logspace(-6, 6, 30, dtype=F64)
    f = pivoted_qr(a, block=1)
    r, order = scipy.qr(a.numpy(), mode="r", pivoting=True)
    assert f.order.tolist() == order.tolist()
    assert torch.allclose(f.R, torch.from_numpy(r[:30]), rtol=1e-9, atol=1e-9 * float(a.norm()))


@pytest.mark.parametrize("block", [1, 32])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_pivoted_qr_reveals_the_rank_of_decaying_spectra(block, dtype):
    random = torch.Generator().manual_seed(18)
    left, right = (torch.linalg.qr(torch.randn(200, 160, generator=random, dtype=F64)).Q[:, :160]
                   for _ in range(2))  # fmt: skip
    values = torch.exp2(-torch.arange(160, dtype=F64) / 2)
    values[70:] = 0
    a = ((left * values) @ right[:160].mT).to(dtype)
    f = pivoted_qr(a, block=block)
    exact = torch.linalg.svdvals(a.double())
    for k in (10, 30) if dtype is torch.float32 else (10, 40, 60):
        ratio = float(f.R[k, k].abs()) / float(exact[k])
        assert 0.1 < ratio < 10
        rest = torch.linalg.svdvals(f.R[k:, k:].double())[0]
        assert rest <= 8 * exact[k]


def test_pivoted_qr_of_zero_tiny_and_cancelling_columns_stays_orthogonal():
    a = torch.zeros(6, 4, dtype=F64)
    a[:, 0] = torch.arange(6, dtype=F64) ** 2 * 1e-300
    a[:, 2] = 1
    a[:, 3] = 1 + torch.arange(6, dtype=F64) * 1e-9
    f = pivoted_qr(a)
    assert torch.allclose(f.Q.mT @ f.Q, torch.eye(4, dtype=F64), atol=1e-14)
    assert torch.allclose(f.Q @ f.R, a[:, f.order], atol=1e-15)
    assert f.R[2, 2].abs() > 1e-301 and f.rank(1e-12) == 2
    assert pivoted_qr(torch.zeros(3, 2)).rank(0.5) == 0
    assert pivoted_qr(torch.zeros(0, 2)).R.shape == (0, 2)
    with pytest.raises(QRError, match="NaN or infinite"):
        pivoted_qr(torch.full((2, 2), torch.nan))
    with pytest.raises(ValueError, match="block must be an integer of at least 1, not 0"):
        pivoted_qr(torch.ones(2, 2), block=0)


MAGNITUDES = {
    torch.float64: ([1, 1e-300, 1e300, 1, 1e200, 1e-310, 1e100, 0], 1e307, 1e-310),
    torch.float32: ([1, 1e-30, 1e30, 1, 1e20, 1e-37, 1e10, 0], 1e37, 1e-39),
}


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("dtype", MAGNITUDES)
def test_pivoted_qr_of_columns_of_any_magnitude_has_their_digits(dtype, block):
    generator = torch.Generator().manual_seed(2)
    for scale in MAGNITUDES[dtype]:
        a = torch.randn(30, 8, generator=generator, dtype=dtype)
        a *= torch.as_tensor(scale, dtype=torch.float64).to(dtype)
        f = pivoted_qr(a, block=block)
        eps = torch.finfo(dtype).eps
        q, r = f.Q.double(), f.R.double()
        assert (q.mT @ q - torch.eye(8)).abs().max() < 20 * eps
        for j, column in enumerate(f.order.tolist()):
            expected = [Fraction(x) for x in a[:, column].tolist()]
            product = [
                sum(Fraction(x) * Fraction(y) for x, y in zip(row, r[:, j].tolist(), strict=True))
                for row in q.tolist()
            ]
            worst = max(abs(x - y) for x, y in zip(expected, product, strict=True))
            spacing = Fraction(torch.finfo(dtype).smallest_normal) * Fraction(eps)
            assert worst <= 40 * Fraction(eps) * max(map(abs, expected)) + 8 * spacing
        sizes = f.R.diagonal().abs().double()
        kept = sizes > 2.0**-800 * sizes[0]  # sketched pivots fall within small factors
        assert bool((sizes[1:] <= (1.001 if block is None else 10) * sizes[:-1])[kept[1:]].all())


@pytest.mark.parametrize("factor", [pivoted_qr, sketched_qr])
def test_qr_of_complex_integers_and_arrays_is_refused_by_name(factor):
    for wrong in (torch.ones(3, 2, dtype=torch.complex128), torch.ones(3, 2, dtype=torch.int64)):
        with pytest.raises(QRError, match=f"must be a matrix of real floats, not {wrong.dtype}"):
            factor(wrong)
    with pytest.raises(TypeError, match="A must be a torch tensor, not ndarray"):
        factor(torch.ones(3, 2).numpy())


def test_pivoted_qr_exact_fractions_agree_on_a_small_matrix():
    a = torch.tensor([[3.0, 0.0], [4.0, 5.0]], dtype=F64)
    f = pivoted_qr(a)
    assert f.order.tolist() == [0, 1] and f.R.tolist() == [[-5.0, -4.0], [0.0, float(Fraction(-3))]]
