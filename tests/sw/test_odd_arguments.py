"""Arguments of the number libraries that nobody means give one error that names them."""

import math

import pytest
import torch

from trainwright import ape, mcf, posit
from trainwright.ape import gemm
from trainwright.posit import PositError, PositFormat
from trainwright.precision import PrecisionError, get_format
from trainwright.qr import QRError, block_qr, pivoted_qr, tsqr_over_ranks
from trainwright.tt import Numbers, TensorTrainError, tt_round, tt_svd

P16 = PositFormat(16, 2)
A = torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
X = torch.ones(2, 2)


@pytest.mark.parametrize("share", [math.nan, -1e-9, 1.5, math.inf])
def test_pivoted_rank_of_a_share_that_is_none_raises(share):
    with pytest.raises(ValueError, match="share must be from 0 to 1, not"):
        pivoted_qr(A).rank(share)
    assert [pivoted_qr(A).rank(limit) for limit in (0, 1)] == [4, 0]


@pytest.mark.parametrize("tolerance", [math.nan, -0.5, 1.0])
def test_pivoted_tolerance_outside_of_its_range_raises(tolerance):
    with pytest.raises(ValueError, match="tolerance must be at least 0 and below 1, not"):
        pivoted_qr(A, tolerance=tolerance)


@pytest.mark.parametrize("block", [2.0, "2", 0, math.nan])
def test_pivoted_block_that_is_no_integer_raises(block):
    with pytest.raises(ValueError, match="block must be an integer of at least 1, not"):
        pivoted_qr(A, block=block)


@pytest.mark.parametrize("name", [0, 2.5, None, ["fp16"]])
def test_format_that_is_no_name_raises_one_error(name):
    with pytest.raises(PrecisionError, match="a number format is a name such as fp16, not"):
        get_format(name)
    with pytest.raises(PrecisionError, match="a number format is a name"):
        block_qr(A, high=name)


def test_ranked_qr_of_no_matrix_or_no_leaf_raises_one_error():
    with pytest.raises(TypeError, match="A must be a torch tensor, not list"):
        tsqr_over_ranks([[1.0]], leaf_rows=1)
    with pytest.raises(QRError, match="A must be a matrix"):
        tsqr_over_ranks(A[0], leaf_rows=4)
    for rows in (math.nan, "4", 4.0):
        with pytest.raises(ValueError, match="leaf_rows must be an integer, not"):
            tsqr_over_ranks(A, leaf_rows=rows)


@pytest.mark.parametrize(("name", "least"), [("block", 1), ("levels", 0)])
def test_tensor_train_numbers_that_are_no_counts_raise(name, least):
    for value in (least - 1, 1.5, "2", math.inf):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least {least}, not"):
            Numbers(**{name: value})


def test_tensor_train_levels_beyond_the_rows_end_at_once():
    deep, plain = (Numbers(method="tsqr", levels=n) for n in (10**18, 3))
    first, second = (tt_svd(torch.eye(6), (2, 3), (2, 3), numbers=n) for n in (deep, plain))
    assert all(map(torch.equal, first, second))


def test_tensor_train_that_is_no_list_raises():
    with pytest.raises(TensorTrainError, match="a tensor train is a list of factors, not Tensor"):
        tt_round(torch.ones(1, 2, 2, 1))


@pytest.mark.parametrize("data", [b"5", bytearray(b"5"), [b"1", b"2"]])
def test_mcf_tensor_of_bytes_is_no_list_of_their_codes(data):
    with pytest.raises(ValueError, match="a number or decimal text is needed, not"):
        mcf.tensor(data)


@pytest.mark.parametrize("digits", [0, -3, 1.5, "", False])
def test_mcf_decimals_of_no_digits_raises(digits):
    with pytest.raises(ValueError, match="digits must be an integer of at least 1, not"):
        mcf.tensor(1.0).decimals(digits)


def test_posit_functions_of_no_tensor_raise_one_error():
    for call in (posit.encode, posit.round_to):
        with pytest.raises(TypeError, match="a torch tensor is needed, not list"):
            call([0.5], P16)
    with pytest.raises(TypeError, match="posit codes are a tensor of integers, not int"):
        posit.decode(3, P16)
    with pytest.raises(TypeError, match="posit codes are a tensor of integers, not list"):
        posit.add([1], torch.tensor([1]), P16)
    with pytest.raises(PositError, match="a posit format is written n,es such as 16,2, not 16"):
        PositFormat.parse(16)


def test_ape_arguments_of_other_kinds_raise_one_error():
    for name, call in (
        ("a", lambda: gemm(3, X)), ("b", lambda: gemm(X, [1.0])),
        ("c", lambda: gemm(X, X, c=2.0)), ("x", lambda: ape.split(2.0, "fp32-f")),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"{name} must be a torch tensor, not"):
            call()
    for name, call in (
        ("beta", lambda: gemm(X, X, c=X, beta="")), ("alpha", lambda: gemm(X, X, alpha="2")),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"{name} must be a number, not"):
            call()
    for block in (1.5, "8", 0):
        with pytest.raises(ValueError, match="block must be an integer of at least 1, not"):
            ape.Accumulation(block=block)
