"""Orthogonalisation, TT-SVD and TT rounding, against TensorLy and in every kind of precision."""

import pytest
import tensorly
import torch
from matrices import normal
from tensorly.decomposition import tensor_train, tensor_train_matrix
from tensorly.tt_matrix import tt_matrix_to_tensor

from trainwright.tt import (
    Numbers,
    TensorTrainError,
    balance,
    distance,
    orthogonalise_left,
    orthogonalise_right,
    parameters_of,
    ranks_of,
    to_matrix,
    tt_round,
    tt_svd,
)
from trainwright.tt import speed as tt_speed
from trainwright.tt.trains import to_tensor

OUTPUTS, INPUTS = (4, 3, 2), (3, 2, 5)


@pytest.fixture(autouse=True)
def torch_backend():
    before = tensorly.get_backend()
    tensorly.set_backend("pytorch")
    yield
    tensorly.set_backend(before)


def _dense(decay=0.6):
    """Return a matrix whose tensor's unfoldings have decaying singular values."""
    noise = normal(24, 30, seed=3)
    low = to_matrix(_train((3, 3), seed=4))
    return low / low.norm() + decay * 0.1 * noise / noise.norm()


def _train(ranks, seed=0):
    bonds = (1, *ranks, 1)
    return [
        normal(bonds[n], OUTPUTS[n], INPUTS[n], bonds[n + 1], seed=seed + n)
        for n in range(len(OUTPUTS))
    ]


def _unfold(factor, side):
    return factor.reshape(-1, factor.shape[3]).mT if side == "left" else factor.flatten(1)


@pytest.mark.parametrize("method", ["block", "householder", "tsqr"])
@pytest.mark.parametrize("ranks", [(5, 4), (12, 10), (20, 15)])  # beyond R J I: ranks are cut
def test_orthogonal_from_either_side(method, ranks):
    factors = _train(ranks)
    numbers = Numbers(method=method, **({"block": 4} if method == "block" else {}))
    for side, call in (("left", orthogonalise_left), ("right", orthogonalise_right)):
        result = call(factors, numbers=numbers)
        assert (to_matrix(result) - to_matrix(factors)).norm() < 1e-13 * to_matrix(factors).norm()
        for factor in result[:-1] if side == "left" else result[1:]:
            rows = _unfold(factor, side)
            assert torch.allclose(rows @ rows.mT, torch.eye(len(rows)).double(), atol=1e-13)
        norm = result[-1 if side == "left" else 0].norm()
        assert norm == pytest.approx(float(to_matrix(factors).norm()))


@pytest.mark.parametrize("ranks", [(2, 2), (5, 4), (12, 10)])
def test_tt_svd_is_tensorlys(ranks):
    dense = _dense()
    ours = tt_svd(dense, OUTPUTS, INPUTS, ranks=ranks)
    assert ranks_of(ours) == ranks
    theirs = tensor_train_matrix(dense.reshape(*OUTPUTS, *INPUTS), [1, *ranks, 1])
    assert torch.allclose(to_matrix(ours), tt_matrix_to_tensor(theirs).reshape(24, 30), atol=1e-13)
    assert [tuple(f.shape) for f in ours] == [tuple(f.shape) for f in theirs]


@pytest.mark.parametrize("ranks", [(2, 2), (5, 4)])
def test_rounding_a_train_is_tensorlys_tt_svd_of_its_tensor(ranks):
    factors = tt_svd(_dense(), OUTPUTS, INPUTS)
    rounded = tt_round(factors, ranks=ranks)
    theirs = tensor_train(to_tensor(_dense(), OUTPUTS, INPUTS), [1, *ranks, 1])
    expected = tensorly.tt_to_tensor(theirs)
    assert torch.allclose(to_tensor(to_matrix(rounded), OUTPUTS, INPUTS), expected, atol=1e-12)


@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.05, 0.3, 0.9])
def test_tolerances_are_kept_and_used(tolerance):
    dense = _dense()
    for factors in (
        tt_svd(dense, OUTPUTS, INPUTS, tolerance=tolerance),
        tt_round(tt_svd(dense, OUTPUTS, INPUTS), tolerance=tolerance),
    ):
        error = float((to_matrix(factors) - dense).norm() / dense.norm())
        assert error <= tolerance + 1e-13
        for bond, rank in enumerate(ranks_of(factors)):  # one rank less would be too few
            if rank > 1 and tolerance:
                fewer = [r - (n == bond) for n, r in enumerate(ranks_of(factors))]
                worse = to_matrix(tt_svd(dense, OUTPUTS, INPUTS, ranks=fewer))
                assert (worse - dense).norm() / dense.norm() > tolerance / 2**0.5
    assert ranks_of(tt_svd(dense, OUTPUTS, INPUTS, tolerance=0.9, ranks=1)) == (1, 1)


@pytest.mark.parametrize(
    ("numbers", "least"),
    [
        (Numbers(high="fp32"), 1e-6),
        (Numbers(low="fp16", high="fp32"), 2e-3),
        (Numbers(low="fp16", high="fp32", rounding="block"), 3e-3),
        (Numbers(low="fp16", high="fp32", rounding="inner", method="householder"), 4e-3),
        (Numbers(low="bf16", high="fp32", rounding="inner", method="tsqr"), 3e-2),
        (Numbers(low="posit16", high="fp64", rounding="block"), 3e-3),
        (Numbers(high="fp16", method="tsqr"), 1e-2),
    ],
    ids=str,
)
def test_tt_every_precision(numbers, least):
    dense = _dense()
    full = tt_svd(dense, OUTPUTS, INPUTS, numbers=numbers)
    assert (to_matrix(full) - dense).norm() < least * dense.norm()
    exact = tt_svd(dense, OUTPUTS, INPUTS, ranks=(3, 3))
    cut = tt_svd(dense, OUTPUTS, INPUTS, ranks=(3, 3), numbers=numbers)
    again = tt_round(exact, ranks=(3, 3), numbers=numbers)
    assert distance(exact, cut) < 2 * least and distance(exact, again) < 2 * least
    storage = numbers.precision.storage
    for factor in (*cut, *again):
        assert torch.equal(storage.round(factor), factor)


def test_balanced_gauge_is_the_same_matrix_with_even_factors():
    factors = tt_round(_train((6, 5)), tolerance=0.1)
    even = balance(factors)
    assert distance(factors, even) < 1e-7
    assert ranks_of(even) == ranks_of(factors)
    norms = [float(f.norm()) for f in even]
    assert max(norms) < 1.0001 * min(norms)
    columns = even[0].reshape(-1, even[0].shape[3]).norm(dim=0)
    rows = even[1].flatten(1)
    assert (columns[:-1] >= columns[1:]).all()
    assert (rows.norm(dim=1)[:-1] >= rows.norm(dim=1)[1:] * 0.2).all()
    assert all(torch.isfinite(f).all() for f in balance([torch.zeros_like(f) for f in factors]))


@pytest.mark.parametrize("function", (orthogonalise_left, orthogonalise_right, tt_round))
def test_trains_of_qr_carry_no_part_of_a_gradient(function):
    factors = [x.requires_grad_() for x in tt_svd(normal(6, 6), (2, 3), (3, 2))]
    assert [x.requires_grad for x in function(factors)] == [False, False]


def test_tt_zero_matrix_has_rank_one():
    factors = tt_svd(torch.zeros(24, 30), OUTPUTS, INPUTS, tolerance=0.1)
    assert ranks_of(factors) == (1, 1) and not to_matrix(factors).any()
    assert ranks_of(tt_round(_train((4, 4)), ranks=(2, 9))) == (2, 4)


def test_tt_rejects_cores_that_form_no_train():
    with pytest.raises(TensorTrainError, match="24 x 30"):
        tt_svd(torch.ones(24, 31), OUTPUTS, INPUTS)
    with pytest.raises(TensorTrainError, match="differ in length"):
        tt_svd(torch.ones(24, 30), OUTPUTS, (30,))
    with pytest.raises(TensorTrainError, match="NaN"):
        tt_svd(torch.full((24, 30), float("nan")), OUTPUTS, INPUTS)
    with pytest.raises(TensorTrainError, match="2 numbers of at least 1"):
        tt_svd(_dense(), OUTPUTS, INPUTS, ranks=(1, 0))
    with pytest.raises(TensorTrainError, match="tolerance"):
        tt_round(_train((2, 2)), tolerance=1.0)
    with pytest.raises(TensorTrainError, match="bond 1"):
        tt_round([_train((2, 2))[0], *_train((3, 2))[1:]])
    with pytest.raises(TensorTrainError, match="outer ranks"):
        to_matrix(_train((2, 2))[1:])
    with pytest.raises(ValueError, match="method"):
        Numbers(method="gram")
    with pytest.raises(ValueError, match=r"rounding 'block' .* where results are cast to low"):
        Numbers(rounding="block")
    assert Numbers(low="fp16", high="fp32", rounding="block").uniform() == Numbers(high="fp32")
    assert parameters_of(_train((2, 2))) == 12 * 2 + 2 * 6 * 2 + 2 * 10


MATRIX = torch.ones(6, 8, dtype=torch.float64)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"matrix": MATRIX * 1j}, "a tensor of real numbers, not torch.complex128"),
        ({"matrix": MATRIX.numpy()}, "a tensor of real numbers, not ndarray"),
        ({"matrix": MATRIX[:0], "outputs": [0, 3]}, r"outputs are integers .*, not \[0, 3\]"),
        ({"outputs": [-2, -3]}, r"outputs are integers of at least 1, not \[-2, -3\]"),
        ({"outputs": [2.0, 3]}, r"outputs are integers"),
        ({"outputs": 6, "inputs": 8}, "outputs are integers of at least 1, not 6"),
        ({"inputs": [True, 8]}, "inputs are integers"),
        ({"outputs": [], "inputs": []}, "differ in length"),
        ({"ranks": 1.5}, "ranks must be 1 numbers of at least 1, not 1.5"),
        ({"ranks": True}, "ranks must be 1 numbers of at least 1, not True"),
        ({"ranks": 0}, "ranks must be"),
        ({"ranks": [[1]]}, "ranks must be"),
        ({"tolerance": "a"}, r"tolerance must be in \[0, 1\), not 'a'"),
        ({"tolerance": float("nan")}, "tolerance must be"),
    ],
)
def test_trains_that_cannot_be(given, message):
    with pytest.raises(TensorTrainError, match=message):
        tt_svd(**{"matrix": MATRIX, "outputs": [2, 3], "inputs": [2, 4], **given})


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([torch.ones(1, 2, 2, 1) * 1j], "factor 1 is torch.complex64"),
        ([torch.ones(1, 2, 2, 0), torch.ones(0, 2, 2, 1)], r"\[1, 2, 2, 0\] has no elements"),
        ([MATRIX.numpy()], "factor 1 is no tensor but ndarray"),
    ],
)
def test_factors_that_cannot_be(factors, message):
    with pytest.raises(TensorTrainError, match=message):
        tt_round(factors, ranks=1)


def test_rounding_benchmark_holds_tolerance_and_memory():
    tolerance = 1e-4
    rows = {row.way: row for row in tt_speed.run(12, 20, tolerance)}
    for row in rows.values():
        assert row.rank == 10 and 0 < row.error <= tolerance
        # One copy of the train of 10 large factors, in float64 or float32, and 4 at a time.
        share = 0.5 if "fp32" in row.way else 1
        assert row.mebibytes <= share * row.train_mebibytes * 1.4
    assert rows["tt_round, fp64"].error == pytest.approx(rows["torch.linalg, fp64"].error, rel=1e-6)


def test_rounding_benchmark_draws_a_train_of_two():
    train = tt_speed.drawn(3, 8, 1e-2)
    assert ranks_of(train) == (8, 8) and train[0].shape[0] == train[-1].shape[3] == 1
    large = [f[tuple(slice(0, max(1, n // 2)) for n in (f.shape[0],))] for f in train]
    large = [f[..., : max(1, f.shape[3] // 2)] for f in large]
    assert 1e-6 < distance(train, large) < 1e-3
