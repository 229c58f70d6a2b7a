"""Linear algebra of multi-component tensors: against mpmath and exact rational numbers."""

import math
from fractions import Fraction

import mpmath
import pytest
import torch

from trainwright import mcf

F32, F64 = torch.float32, torch.float64
KINDS = [(F32, 2, 48), (F32, 3, 72), (F64, 2, 106)]
LinAlgError = torch.linalg.LinAlgError


def _drawn(shape, dtype, nc, seed):
    random = torch.Generator().manual_seed(seed)
    step = 25 if dtype is F32 else 54
    parts = torch.randn(*shape, nc, generator=random, dtype=F64)
    return mcf.MCTensor.from_components((parts * 2.0 ** (-step * torch.arange(nc))).to(dtype))


def _matrix(x):
    rows = x.fractions() if isinstance(x, mcf.MCTensor) else x
    rows = [[value] for value in rows] if not isinstance(rows[0], list) else rows
    return mpmath.matrix([[mpmath.mpf(e.numerator) / e.denominator for e in row] for row in rows])


def _apart(x, y):
    """Return the difference of matrices relative to the second, in the Frobenius norm."""
    return float(mpmath.mnorm(x - y, "f") / (mpmath.mnorm(y, "f") or 1))


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workprec(500):
        yield


def _hilbert(n, factor=1):
    return [[Fraction(factor, i + j + 1) for j in range(n)] for i in range(n)]


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_solve_of_hilbert_12_has_all_digits(dtype, nc, bits):
    """The condition number is 1.7e16: the float64 factorisation alone does not converge."""
    whole = math.lcm(*range(1, 24))  # the entries become integers, which are stored exactly
    h = mcf.tensor(_hilbert(12, whole), nc=nc, dtype=dtype)
    x = torch.linalg.solve(h, mcf.tensor([whole] * 12, nc=nc, dtype=dtype))
    exact = mpmath.lu_solve(_matrix(_hilbert(12)), mpmath.matrix([1] * 12))
    assert [round(value) for value in exact] == [int(e) for e in map(round, x.fractions())]
    assert _apart(_matrix(x), exact) <= min(1e-12, 4 * 2.0**-bits)


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_factors_of_hilbert_12_have_all_digits(dtype, nc, bits):
    whole = math.lcm(*range(1, 24))
    h, exact = mcf.tensor(_hilbert(12, whole), nc=nc, dtype=dtype), _matrix(_hilbert(12, whole))
    slack = 4 * 2.0**-bits
    assert _apart(_matrix(torch.linalg.inv(h)), exact**-1) <= slack
    assert _apart(_matrix(torch.linalg.cholesky(h)), mpmath.cholesky(exact)) <= slack
    q, r = map(_matrix, torch.linalg.qr(h))
    assert _apart(q * r, exact) <= slack and _apart(q.T * q, mpmath.eye(12)) <= slack
    values = mpmath.eigsy(exact, eigvals_only=True)
    for got in (torch.linalg.eigh(h)[0], torch.linalg.svd(h)[1].flip(0)):
        assert mpmath.norm(_matrix(got) - values) <= slack * max(values)
    if bits > 55:  # the condition number has 54 bits: with fewer, the rank is less than 12
        x = torch.linalg.lstsq(h, mcf.tensor([[whole]] * 12, nc=nc, dtype=dtype))[0]
        want = mpmath.lu_solve(exact, mpmath.matrix([whole] * 12))
        assert _apart(_matrix(x), want) <= 2.0 ** (54 - bits)


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_solve_of_batches_broadcasts_like_torch(dtype, nc, bits):
    a, b = _drawn((2, 1, 5, 5), dtype, nc, 1), _drawn((3, 5, 2), dtype, nc, 2)
    x = torch.linalg.solve(a, b)
    assert x.shape == torch.linalg.solve(a.fc, b.fc).shape == (2, 3, 5, 2)
    for i, j in ((0, 2), (1, 0)):
        exact = _matrix(a[i, 0]) ** -1 * _matrix(b[j])
        assert _apart(_matrix(x[i, j]), exact) <= 8 * 2.0**-bits
    left = torch.linalg.solve(a[0, 0], b[0].mT, left=False)
    assert torch.equal(left, torch.linalg.solve(a[0, 0].mT, b[0]).mT)
    vectors = torch.linalg.solve(_drawn((4, 3, 3), dtype, nc, 3), _drawn((4, 3), dtype, nc, 4))
    assert vectors.shape == (4, 3)


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_solve_of_badly_scaled_rows_and_columns_keeps_every_digit(dtype, nc, bits):
    far = 20 if dtype is F32 else 400
    up = torch.exp2(torch.linspace(-far, far, 6, dtype=F64).round()).to(dtype)
    a, b = _drawn((6, 6), dtype, nc, 5), _drawn((6, 1), dtype, nc, 6)
    x = torch.linalg.solve(a, b)
    scaled = torch.linalg.solve(a * up[:, None] * up.flip(0), b * up[:, None])
    assert torch.equal(scaled * up.flip(0)[:, None], x)


def test_solve_refines_from_a_double_where_that_converges(monkeypatch):
    from trainwright.mcf import factorisations

    monkeypatch.setattr(factorisations, "lu", None)
    a, b = _drawn((30, 30), F32, 3, 7), _drawn((30, 1), F32, 3, 8)
    exact = mpmath.lu_solve(_matrix(a), _matrix(b))
    assert _apart(_matrix(torch.linalg.solve(a, b)), exact) <= 4 * 2.0**-72


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_inverse_and_determinant_match_exact_ones(dtype, nc, bits):
    a = _drawn((2, 4, 4), dtype, nc, 9)
    inverse, det = torch.linalg.inv(a), torch.det(a)
    for i in range(2):
        assert _apart(_matrix(inverse[i]), _matrix(a[i]) ** -1) <= 8 * 2.0**-bits
        exact = mpmath.det(_matrix(a[i]))
        assert abs(_matrix([[det[i].exact_item()]])[0] - exact) <= abs(exact) * 2.0 ** (1 - bits)
    assert torch.equal(torch.inverse(a), a.inverse())


def test_determinant_of_any_size_follows_torch():
    whole = [[2, 1, 0], [4, 2, 1], [1, 1, 1]]  # a row swap, and a pivot that vanishes
    assert torch.linalg.det(mcf.tensor(whole, nc=3, dtype=F32)).exact_item() == -1
    assert torch.linalg.det(mcf.tensor([[1, 2], [2, 4]], nc=2, dtype=F64)).exact_item() == 0
    assert torch.linalg.det(mcf.tensor([[7.0]], nc=2)).exact_item() == 7
    assert torch.linalg.det(mcf.tensor(torch.zeros(2, 0, 0), nc=2)).tolist() == [1, 1]
    assert torch.linalg.det(mcf.tensor(torch.zeros(0, 3, 3), nc=2)).shape == (0,)
    far = mcf.tensor(torch.diag(torch.tensor([1e30, 1e30, 1e-30, 1e-30])), nc=2)
    exact = math.prod(far.fractions()[i][i] for i in range(4))
    assert abs(torch.linalg.det(far).exact_item() - exact) < 2.0**-48
    assert torch.linalg.det(mcf.tensor(torch.eye(3) * 1e38, nc=2)).item() == math.inf


def test_slogdet_of_singular_matrices_is_torchs():
    for matrix in (torch.zeros(3, 3), torch.ones(2, 2)):
        sign, logarithm = torch.linalg.slogdet(mcf.tensor(matrix, nc=2))
        assert float(sign) == 0 and float(logarithm) == -math.inf


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_cholesky_factors_positive_definite_matrices(dtype, nc, bits):
    x = _drawn((2, 6, 6), dtype, nc, 10)
    a = x @ x.mT
    low = torch.linalg.cholesky(a)
    exact = mpmath.cholesky(_matrix(torch.tril(a[1]) + torch.tril(a[1], -1).mT))
    assert _apart(_matrix(low[1]), exact) <= 2.0 ** (4 - bits)
    assert torch.equal(torch.linalg.cholesky(a.mT, upper=True), low.mT)
    with pytest.raises(LinAlgError, match="leading minor of order 2 is not positive"):
        torch.linalg.cholesky(mcf.tensor([[1.0, 2.0], [2.0, 3.0]], nc=nc, dtype=dtype))


def test_cholesky_of_rows_of_any_size_has_all_digits():
    b = _drawn((4, 4), F64, 2, 5)
    rows = 2.0 ** torch.tensor([510.0, 0, -500, -510], dtype=F64)
    a = (torch.matmul(b, b.mT) + torch.eye(4, dtype=F64)) * rows * rows[:, None]
    with mpmath.workprec(3000):
        exact = mpmath.cholesky(_matrix(a))
    for factor in (torch.linalg.cholesky(a), torch.linalg.cholesky(a, upper=True).mT):
        got = _matrix(factor)
        assert all(abs(got[i, i] / exact[i, i] - 1) <= 4 * 2.0**-106 for i in range(4))


@pytest.mark.parametrize("shape", [(2, 7, 4), (4, 7), (5, 5), (1, 1)])
@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_qr_is_that_of_torch_with_all_digits(dtype, nc, bits, shape):
    a = _drawn(shape, dtype, nc, 11)
    for mode in ("reduced", "complete"):
        q, r = torch.linalg.qr(a, mode)
        plain = torch.linalg.qr(a.to_float64(), mode)
        assert torch.allclose(q.to_float64(), plain[0]) and torch.allclose(r.to_float64(), plain[1])
        q, r, unit = (x[-1] if len(shape) > 2 else x for x in (q, r, a))
        q, r = _matrix(q), _matrix(r)
        assert _apart(q * r, _matrix(unit)) <= 8 * 2.0**-bits
        assert _apart(q.T * q, mpmath.eye(q.cols)) <= 8 * 2.0**-bits
    only = torch.linalg.qr(a, "r")
    assert only.Q.shape == (0,) and torch.equal(only.R, torch.linalg.qr(a).R)


def test_qr_of_zero_and_tiny_columns_stays_orthogonal():
    a = torch.zeros(5, 3, dtype=F64)
    a[:, 1] = torch.arange(5, dtype=F64) * 1e-300
    a[:, 2] = torch.arange(5, dtype=F64) ** 2 * 1e-300
    q, r = torch.linalg.qr(mcf.tensor(a, nc=2))
    assert _apart(_matrix(q).T * _matrix(q), mpmath.eye(3)) < 2.0**-100
    assert _apart(_matrix(q) * _matrix(r), _matrix(mcf.tensor(a, nc=2))) < 2.0**-70  # subnormal


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_eigh_of_close_and_repeated_values_has_all_digits(dtype, nc, bits):
    vectors = torch.linalg.qr(_drawn((6, 6), dtype, nc, 12)).Q
    values = mcf.tensor([-2, -2, 0, 1, Fraction(1) + Fraction(1, 2**40), 3], nc=nc, dtype=dtype)
    a = (vectors * values) @ vectors.mT
    a = torch.tril(a) + torch.tril(a, -1).mT
    w, v = torch.linalg.eigh(a)
    exact = sorted(mpmath.eigsy(_matrix(a), eigvals_only=True))
    for value, wanted in zip(_matrix(w), exact, strict=True):
        assert abs(value - wanted) <= 8 * 2.0**-bits
    v = _matrix(v)
    assert _apart(v * mpmath.diag(list(_matrix(w))) * v.T, _matrix(a)) <= 16 * 2.0**-bits
    assert _apart(v.T * v, mpmath.eye(6)) <= 8 * 2.0**-bits
    assert torch.equal(torch.linalg.eigvalsh(torch.triu(a), "U"), w)
    batch = torch.linalg.eigh(torch.stack([a, mcf.tensor(torch.zeros(6, 6, dtype=dtype), nc=nc)]))
    assert torch.equal(batch.eigenvalues[0], w) and not batch.eigenvalues[1].components.any()


def _graded(dtype, nc, seed):
    far = 30 if dtype is F32 else 250
    up = torch.exp2(torch.linspace(far, -far, 5, dtype=F64).round()).to(dtype)
    x = _drawn((5, 5), dtype, nc, seed) + torch.eye(5, dtype=dtype) * 4
    return x, up


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
@pytest.mark.parametrize("side", ["rows", "columns", "both", "rising"])
def test_svd_of_graded_matrices_has_all_digits_of_every_value(dtype, nc, bits, side):
    x, up = _graded(dtype, nc, 13)
    if side == "both":
        a = x * (up**0.5)[:, None] * (up**0.5)  # roots of even powers
        up = (up**0.5).log2().round().exp2()
        a = x * up[:, None] * up
    else:
        up = up.flip(0) if side == "rising" else up
        a = x * up[:, None] if side != "columns" else x * up
    u, s, vh = torch.linalg.svd(a)
    with mpmath.workprec(3000):
        exact = sorted(mpmath.svd_r(_matrix(a), compute_uv=False), reverse=True)
        for value, wanted in zip(_matrix(s), exact, strict=True):
            assert abs(value - wanted) <= wanted * 2.0 ** (5 - bits)
    u, v = _matrix(u), _matrix(vh)
    assert _apart(u.T * u, mpmath.eye(5)) <= 16 * 2.0**-bits
    assert _apart(v * v.T, mpmath.eye(5)) <= 16 * 2.0**-bits
    assert _apart(u * mpmath.diag(list(_matrix(s))) * v, _matrix(a)) <= 16 * 2.0**-bits


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (1, 4), (4, 4)])
def test_svd_of_any_shape_and_rank_completes_both_bases(shape):
    m, n = shape
    x = _drawn((m, 2), F32, 3, 14) @ _drawn((2, n), F32, 3, 15)
    x[:, -1] = 0
    for a in (x, mcf.tensor(torch.zeros(m, n), nc=3)):
        u, s, vh = torch.linalg.svd(a)
        assert (u.shape, s.shape, vh.shape) == ((m, m), (min(m, n),), (n, n))
        for basis in (_matrix(u), _matrix(vh)):
            assert _apart(basis.T * basis, mpmath.eye(basis.cols)) <= 2.0**-66
        thin = torch.linalg.svd(a, full_matrices=False)
        assert thin.U.shape == (m, min(m, n)) and torch.equal(thin.S, torch.linalg.svdvals(a))
        back = _matrix(thin.U) * mpmath.diag(list(_matrix(thin.S))) * _matrix(thin.Vh)
        assert _apart(back, _matrix(a)) <= 2.0**-66


def _shortest(c, f, b):
    """Return the least-squares solution of least norm for the matrix c f, both of full rank."""
    return f.T * (f * f.T) ** -1 * ((c.T * c) ** -1 * (c.T * b))


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
@pytest.mark.parametrize("m, n", [(7, 4), (4, 7), (5, 5)])
def test_lstsq_of_deficient_rank_is_the_shortest(dtype, nc, bits, m, n):
    random = torch.Generator().manual_seed(16)
    c, f = (torch.randint(-9, 10, s, generator=random) for s in ((2, m, 2), (2, 2, n)))
    b = torch.randint(-9, 10, (2, m, 3), generator=random)
    a = mcf.tensor(c @ f, nc=nc, dtype=dtype)
    value = torch.linalg.lstsq(a, mcf.tensor(b, nc=nc, dtype=dtype))
    assert value.rank.tolist() == [2, 2] and value.residuals.numel() == 0
    exact = _shortest(*(mpmath.matrix(t[1].tolist()) for t in (c, f, b)))
    assert _apart(_matrix(value.solution[1]), exact) <= 8 * 2.0**-bits


@pytest.mark.parametrize("dtype, nc, bits", KINDS)
def test_lstsq_of_full_rank_solves_the_normal_equations(dtype, nc, bits):
    a, b = _drawn((8, 3), dtype, nc, 17), _drawn((8, 2), dtype, nc, 18)
    value = torch.linalg.lstsq(a, b)
    x, y = _matrix(a), _matrix(b)
    exact = (x.T * x) ** -1 * (x.T * y)
    assert _apart(_matrix(value.solution), exact) <= 8 * 2.0**-bits and int(value.rank) == 3
    rest = x * exact - y
    for j in range(2):
        wanted = mpmath.fsum(v**2 for v in rest[:, j])
        assert abs(_matrix([value.residuals.fractions()])[j] - wanted) <= wanted * 2.0 ** (1 - bits)
    assert torch.linalg.lstsq(a, b, rcond=0.99).rank < 3


@pytest.mark.parametrize("driver", ["gelsy", "gelsd"])
@pytest.mark.parametrize("power, power_b", [(-1000, -1000), (1015, 400), (-500, -1000)])
def test_lstsq_near_the_ends_of_the_range_has_all_digits(driver, power, power_b):
    a, b = _drawn((6, 3), F64, 2, 6) * 2.0**power, _drawn((6, 1), F64, 2, 7) * 2.0**power_b
    solution, _, rank, values = torch.linalg.lstsq(a, b, driver=driver)
    exact, right = _matrix(a), _matrix(b)
    want = mpmath.lu_solve(exact.T * exact, exact.T * right)
    assert _apart(_matrix(solution), want) <= 4 * 2.0**-106 and int(rank) == 3
    if driver == "gelsd":
        assert torch.allclose(values.fc / torch.linalg.svdvals(a.fc), torch.ones(3, dtype=F64))


@pytest.mark.parametrize("driver", ["gelsd", "gelss"])
def test_lstsq_drivers_of_singular_values_return_them_and_their_rank(driver):
    a, b = ([[x, 2 * x] for x in (1, 2, 3)], [[1.0]] * 3)
    value = torch.linalg.lstsq(mcf.tensor(a, nc=2), mcf.tensor(b, nc=2), driver=driver)
    assert int(value.rank) == 1 and value.residuals.numel() == 0
    with mpmath.workprec(200):
        assert abs(_matrix([value.singular_values.fractions()])[0] - mpmath.sqrt(70)) < 2.0**-43
    exact = mpmath.matrix([6, 12]) / 70
    assert _apart(_matrix(value.solution), exact) <= 8 * 2.0**-48
    share = torch.linalg.lstsq(mcf.tensor([[1.0, 0], [0, 0.5]], nc=2), mcf.tensor(b[:2], nc=2),
                               rcond=0.6, driver=driver)  # fmt: skip
    assert int(share.rank) == 1 and share.solution.fc.flatten().tolist() == [1, 0]


def test_lstsq_and_svd_refuse_unsuitable_drivers():
    deficient, b = mcf.tensor([[1.0, 2], [2, 4], [3, 6]], nc=2), mcf.tensor([[1.0]] * 3, nc=2)
    with pytest.raises(LinAlgError, match=r"'gels' .* 1 of 2 pivots .*, or use .*'gelsy'"):
        torch.linalg.lstsq(deficient, b, driver="gels")
    full = torch.linalg.lstsq(_drawn((4, 2), torch.float32, 2, 3), torch.ones(4, 1), driver="gels")
    assert full.rank.numel() == 0 and full.solution.shape == (2, 1)
    with pytest.raises(ValueError, match=r"driver of lstsq must be gels, .* not 'gelsz'"):
        torch.linalg.lstsq(deficient, b, driver="gelsz")
    with pytest.raises(ValueError, match=r"driver of svd must be gesvd, .* not 'gelsd'"):
        torch.linalg.svdvals(deficient, driver="gelsd")


def test_lstsq_and_pinv_of_many_columns_of_eight_digits_keep_the_rank():
    a = mcf.tensor(torch.eye(4).repeat(1, 100), nc=1, dtype=torch.bfloat16)
    value = torch.linalg.lstsq(a, torch.full((4, 1), 100.0, dtype=torch.bfloat16))
    assert int(value.rank) == 4 and value.solution.eq(1).all()
    assert torch.allclose(torch.linalg.pinv(a).fc, a.fc.mT / 100)


@pytest.mark.parametrize("name", ["solve", "inv", "det", "cholesky", "qr", "eigh", "svd", "lstsq"])
def test_linalg_gradients_are_those_of_floats(name):
    """Signs of vectors need not be those of torch: derivatives are of what is returned."""
    x = _drawn((4, 4), F64, 2, 19)
    a = x @ x.mT + torch.eye(4, dtype=F64) * 2
    plain = a.fc.clone().requires_grad_()
    a = a.detach().requires_grad_()
    b = torch.arange(8, dtype=F64).reshape(4, 2)
    call = getattr(torch.linalg, name)
    two = name in ("solve", "lstsq")
    ours, theirs = (call(t, other) if two else call(t) for t, other in
                    ((a, mcf.tensor(b, nc=2)), (plain, b)))  # fmt: skip
    ours, theirs = (t.solution if name == "lstsq" else t for t in (ours, theirs))
    if name in ("qr", "eigh", "svd"):
        weight = torch.arange(1.0, 5, dtype=F64)
        sums = []
        for parts in (ours, theirs):
            first, second = (parts[1], parts[0]) if name == "eigh" else parts[:2]
            projector = (first * weight) @ first.mT  # the same for either sign
            sums.append(projector.square().sum() + (projector[0] * weight).sum() + second.sum())
        ours, theirs = sums
    (ours * ours).sum().backward()
    (theirs * theirs).sum().backward()
    assert torch.allclose(a.grad, plain.grad, rtol=1e-8, atol=1e-8)


def test_linalg_of_singular_or_misshapen_matrices_names_the_fault():
    singular = mcf.tensor([[1.0, 2.0], [2.0, 4.0]], nc=3)
    with pytest.raises(LinAlgError, match="singular: a pivot is 0"):
        torch.linalg.inv(singular)
    with pytest.raises(LinAlgError, match=r"solve needs square matrices, not shape \(2, 3\)"):
        torch.linalg.solve(mcf.tensor(torch.ones(2, 3)), mcf.tensor(torch.ones(2)))
    with pytest.raises(LinAlgError, match=r"shapes \(2, 2\) and \(3, 1\) do not fit in solve"):
        torch.linalg.solve(singular, mcf.tensor(torch.ones(3, 1), nc=3))
    for name in ("inv", "det", "cholesky", "qr", "eigh", "svd"):
        with pytest.raises(LinAlgError, match=f"{name} needs finite numbers"):
            getattr(torch.linalg, name)(mcf.tensor(torch.full((2, 2), math.nan)))
    with pytest.raises(LinAlgError, match="eigh needs square"):
        torch.linalg.eigh(mcf.tensor(torch.ones(2, 3)))
    for a, b in (((3, 3), (4,)), ((3,), (3,)), ((2, 3), (3,)), ((3, 3), ()), ((), (3, 3))):
        with pytest.raises(LinAlgError, match="do not fit in lstsq"):
            torch.linalg.lstsq(mcf.tensor(torch.ones(a)), mcf.tensor(torch.ones(b)))
    for rcond in (-1.0, math.nan):
        with pytest.raises(ValueError, match="rcond of lstsq must be at least 0"):
            torch.linalg.lstsq(singular, singular, rcond=rcond)


def test_linalg_of_empty_matrices_has_their_shapes():
    a = mcf.tensor(torch.zeros(2, 0, 3), nc=2)
    assert [x.shape for x in torch.linalg.svd(a)] == [(2, 0, 0), (2, 0), (2, 3, 3)]
    assert torch.equal(torch.linalg.svd(a).Vh[0], mcf.tensor(torch.eye(3), nc=2))
    assert [x.shape for x in torch.linalg.qr(a)] == [(2, 0, 0), (2, 0, 3)]
    none = mcf.tensor(torch.zeros(0, 0), nc=2)
    assert torch.linalg.inv(none).shape == torch.linalg.cholesky(none).shape == (0, 0)
    assert torch.linalg.solve(none, mcf.tensor(torch.zeros(0, 2), nc=2)).shape == (0, 2)
    assert [x.shape for x in torch.linalg.eigh(none)] == [(0,), (0, 0)]
    assert torch.linalg.lstsq(a.mT, mcf.tensor(torch.ones(2, 3, 1), nc=2)).solution.shape == (
        2,
        0,
        1,
    )


@pytest.mark.parametrize("dtype, step", [(F32, 40), (F64, 70)])
def test_mcf_values_of_equal_leading_components_are_ordered(dtype, step):
    exact = [Fraction(1), 1 + Fraction(3, 2**step), 1 + Fraction(1, 2**step), Fraction(2)]
    diagonal = mcf.tensor([[v if i == j else 0 for j in range(4)] for i, v in enumerate(exact)],
                          nc=2, dtype=dtype)  # fmt: skip
    assert torch.linalg.eigvalsh(diagonal).fractions() == sorted(exact)
    assert torch.linalg.svdvals(diagonal).fractions() == sorted(exact, reverse=True)


def test_mcf_hermitian_pinv_reads_the_lower_triangle():
    lower = mcf.tensor([["2", "9"], ["1", "3"]], dtype=F64)
    inverse = torch.linalg.pinv(lower, hermitian=True)
    want = [[Fraction(3, 5), Fraction(-1, 5)], [Fraction(-1, 5), Fraction(2, 5)]]
    errors = [abs(a - b) for row, other in zip(inverse.fractions(), want, strict=True)
              for a, b in zip(row, other, strict=True)]  # fmt: skip
    assert max(errors) < Fraction(1, 2**100)


@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_pinv_with_tolerances_of_each_matrix_cuts_each_by_its_own(name):
    x = _drawn((3, 4, 3), F32, 2, 0)
    values = torch.linalg.svdvals(x.to_float64())
    least = torch.stack([values[0, 1:].mean(), values[1].min() / 2, values[2, :2].mean()])
    share = (least / values[:, 0] if name == "rtol" else least).float()
    inverse = torch.linalg.pinv(x, **{name: share})
    expected = torch.linalg.pinv(x.to_float64(), **{name: share.double()})
    assert torch.allclose(inverse.to_float64(), expected, rtol=0, atol=1e-12)
