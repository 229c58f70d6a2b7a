"""Arguments of the number libraries that nobody means give one error that names them."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from trainwright import ape, mcf, posit, tt
from trainwright.ape import gemm
from trainwright.formats import FormatError, Posit
from trainwright.mcf.nn import MCSGD, MCAdam, MCEmbedding, MCLinear
from trainwright.posit import PositError, PositFormat
from trainwright.precision import PrecisionError, get_format
from trainwright.qr import (
    QRError,
    block_qr,
    householder_qr,
    lstsq,
    pivoted_qr,
    sketched_qr,
    tsqr,
    tsqr_over_ranks,
)
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


PAIRS = torch.ones(2, 2, 2, dtype=torch.float64)
COMPETING = ape.Adapter(compete=True)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("transposed", lambda v: block_qr(A).apply(torch.ones(12, 2), transposed=v)),
        ("transposed", lambda v: pivoted_qr(A).apply(torch.ones(12, 2), transposed=v)),
        ("basic", lambda v: lstsq(A, A[:, 0], basic=v)),
        ("transpose_a", lambda v: gemm(X, X, transpose_a=v)),
        ("transpose_b", lambda v: gemm(PAIRS, PAIRS, dtype="fp128-i8", transpose_b=v)),
        ("strict", lambda v: ape.Adapter(strict=v)),
        ("compete", lambda v: ape.Adapter(compete=v)),
        ("requires_grad", lambda v: mcf.tensor(1.0, requires_grad=v)),
        ("normalise", lambda v: mcf.MCTensor.from_components(X, normalise=v)),
        ("bias", lambda v: MCLinear(2, 2, v)),
        ("sparse", lambda v: MCEmbedding(2, 2, sparse=v)),
        ("scale_grad_by_freq", lambda v: MCEmbedding(2, 2, scale_grad_by_freq=v)),
        ("nesterov", lambda v: MCSGD(MCLinear(2, 2).parameters(), momentum=0.5, nesterov=v)),
        ("maximize", lambda v: MCSGD(MCLinear(2, 2).parameters(), maximize=v)),
        ("maximize", lambda v: MCAdam(MCLinear(2, 2).parameters(), maximize=v)),
        ("amsgrad", lambda v: MCAdam(MCLinear(2, 2).parameters(), amsgrad=v)),
    ],
)
@pytest.mark.parametrize("value", ["False", 2, None])
def test_library_flag_that_is_none_raises(name, call, value):
    with pytest.raises(TypeError, match=f"{name} must be True or False, not"):
        call(value)
    call(True)


@pytest.mark.parametrize("seed", [True, 1.5, "1", None, torch.tensor(1)])
@pytest.mark.parametrize("factor", [pivoted_qr, sketched_qr])
def test_qr_seed_that_is_no_integer_raises_also_where_nothing_is_drawn(factor, seed):
    with pytest.raises(TypeError, match="seed must be an integer, not"):
        factor(A, seed=seed)
    with pytest.raises(ValueError, match="seed must be from 0 to"):
        factor(A, seed=-1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: block_qr(A, block=True),
        lambda: pivoted_qr(A, block=True),
        lambda: tsqr(A, levels=True),
        lambda: tsqr_over_ranks(A, leaf_rows=True),
        lambda: Numbers(block=True),
        lambda: Numbers(method="tsqr", levels=True),
        lambda: ape.Accumulation(block=True),
        lambda: ape.Adapter(blocks=(True, 128, 128)),
        lambda: ape.Adapter(blocks=(64.5, 128, 128)),
    ],
)
def test_library_size_that_is_no_integer_raises(call):
    with pytest.raises(ValueError, match=r"must be (an integer|three sizes)"):
        call()


@pytest.mark.parametrize(
    ("name", "value", "methods"),
    [("block", 8, ("householder", "tsqr")), ("levels", 3, ("block", "householder"))],
)
def test_tensor_train_numbers_refuse_the_option_of_another_method(name, value, methods):
    for method in methods:
        with pytest.raises(ValueError, match=f"{name} is for method '\\w+', and the method is"):
            Numbers(method=method, **{name: value})


def test_tensor_train_numbers_of_text_raise_one_error():
    train = tt_svd(torch.eye(6), (2, 3), (2, 3))
    for call in (
        lambda: tt_svd(torch.eye(6), (2, 3), (2, 3), numbers="float32"),
        lambda: tt_round(train, numbers="float32"),
        lambda: tt.orthogonalise_left(train, numbers=None),
        lambda: tt.orthogonalise_right(train, numbers="fixed"),
    ):
        with pytest.raises(TypeError, match="numbers must be a Numbers, not"):
            call()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, True, 2.0, None, torch.complex64])
def test_matrix_of_a_train_in_no_floats_raises(dtype):
    with pytest.raises(TensorTrainError, match="dtype must be a real floating-point type, not"):
        tt.to_matrix(tt_svd(torch.eye(6), (2, 3), (2, 3)), dtype)


def test_pivoted_apply_takes_other_types_and_refuses_other_rows():
    f, x = pivoted_qr(A), torch.arange(24).reshape(12, 2)
    expected = f.apply(x.double())
    for given in (x, x.float(), x.half()):
        assert torch.equal(f.apply(given), expected)
        assert given.dtype is not torch.float64 and torch.equal(given, x.to(given.dtype))
    assert torch.equal(
        pivoted_qr(A.float()).apply(x.double()), pivoted_qr(A.float()).apply(x * 1.0)
    )
    for wrong in (torch.ones(11, 2), torch.ones(1, 2), torch.ones(()), torch.ones(12, 2) * 1j):
        with pytest.raises(QRError, match="Q applies to real matrices of 12 rows, not"):
            f.apply(wrong)


@pytest.mark.parametrize("dtype", ["fp32", "fp32-i8", "fp64-i8", "fp128-i8", "int16"])
def test_ape_accumulation_that_the_type_ignores_raises(dtype):
    a = PAIRS if dtype == "fp128-i8" else X.to(ape.schemes.element_type(dtype))
    gemm(a, a, dtype=dtype)
    with pytest.raises(ValueError, match=f"accumulation is for .* and dtype '{dtype}' sums in its"):
        gemm(a, a, dtype=dtype, accumulation=ape.TENSOR_CORE)


@pytest.mark.parametrize("dtype", ["fp32-b", "fp32", "fp32-i8"])
def test_ape_options_without_an_effect_raise_in_every_entry(dtype):
    images = torch.ones(0, 1, 4, 4)  # without samples there is no product to refuse them
    kernel = torch.ones(1, 1, 2, 2)
    with pytest.raises(ValueError, match=f"adapter is for dtype 'auto', not '{dtype}': omit it"):
        gemm(X, X, dtype=dtype, adapter=COMPETING)
    with pytest.raises(ValueError, match=f"adapter is for dtype 'auto', not '{dtype}': omit it"):
        ape.conv2d(images, kernel, dtype=dtype, adapter=COMPETING)
    with (
        pytest.raises(ValueError, match=f"adapter is for dtype 'auto', not '{dtype}': omit it"),
        ape.enabled(dtype, adapter=COMPETING),
    ):
        pass
    with pytest.raises(ValueError, match="dtype must be one of"):
        ape.conv2d(images, kernel, dtype="half")


@pytest.mark.parametrize("name", ["accumulation", "adapter"])
def test_ape_options_of_another_type_raise_one_error(name):
    for value in (0, False, "nearest"):
        with pytest.raises(TypeError, match=f"{name} must be a "):
            gemm(X, X, dtype="fp32-b", **{name: value})
    with pytest.raises(TypeError, match="model must be a PerformanceModel, not 'cpu'"):
        ape.Adapter(model="cpu")


def test_ape_beta_without_c_raises_for_pairs_too():
    with pytest.raises(ValueError, match="beta is 2 but there is no c"):
        gemm(PAIRS, PAIRS, dtype="fp128-i8", beta=2)


@pytest.mark.parametrize("device", [0.5, 2.0, True, False, "", torch.float64])
def test_mcf_device_that_is_none_raises(device):
    for data in ([1.0], torch.ones(1), mcf.tensor(1.0)):
        with pytest.raises((TypeError, RuntimeError)):
            mcf.tensor(data, device=device)


@pytest.mark.parametrize("dtype", [0, False, "", torch.int32])
def test_mcf_type_that_is_none_raises(dtype):
    for data in ([1.0], torch.ones(1), mcf.tensor(1.0)):
        with pytest.raises(ValueError, match="components"):
            mcf.tensor(data, dtype=dtype)


@pytest.mark.parametrize("nc", [1, 2])
def test_mcf_conversions_share_no_memory_with_their_argument(nc):
    components = torch.ones(3, nc) * torch.tensor([1.0, 2.0**-30])[:nc]
    number = mcf.MCTensor.from_components(components)
    copy, again = number.to_nc(nc), mcf.tensor(number, nc=nc)
    before = number.components.clone()
    components.zero_()
    assert torch.equal(number.components, before)
    number.components.zero_()
    assert torch.equal(copy.components, before)
    assert torch.equal(again.components, before)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_mcf_optimiser_numbers_that_are_not_finite_raise(value):
    parameters = [*MCLinear(2, 2).parameters()]
    for kind, names in (
        (MCSGD, ("lr", "momentum", "weight_decay", "dampening")),
        (MCAdam, ("lr", "eps", "weight_decay")),
    ):
        for name in names:
            with pytest.raises(ValueError, match=f"{name} must be"):
                kind(parameters, **{name: value})
    with pytest.raises(ValueError, match="betas must be two numbers, not"):
        MCAdam(parameters, betas=(0.9,))


def test_posit_options_of_text_raise_at_once():
    for formats in (("16,2", P16), (P16, "8,1")):
        with pytest.raises(TypeError, match="a format is PositFormat"):
            posit.Mixed(*formats)
    with pytest.raises(FormatError, match="clamped must be True or False, not 'False'"):
        Posit(8, 1, clamped="False")


N = np.int64
TRAIN = tt_svd(torch.randn(6, 6, generator=torch.Generator().manual_seed(2)), (2, 3), (2, 3))


@pytest.mark.parametrize(
    ("of_numpy", "of_python"),
    [
        (lambda: block_qr(A, block=N(2)).R, lambda: block_qr(A, block=2).R),
        (lambda: tsqr(A, levels=N(1)).R, lambda: tsqr(A, levels=1).R),
        (lambda: tsqr_over_ranks(A, leaf_rows=N(4)).R, lambda: tsqr_over_ranks(A, leaf_rows=4).R),
        (lambda: pivoted_qr(A, block=N(2)).R, lambda: pivoted_qr(A, block=2).R),
        (lambda: tt_svd(A, np.array([3, 4]), (N(2), 2))[0], lambda: tt_svd(A, (3, 4), (2, 2))[0]),
        (lambda: tt_svd(A, (3, 4), (2, 2), ranks=N(2))[0],
         lambda: tt_svd(A, (3, 4), (2, 2), ranks=2)[0]),
        (lambda: tt_round(TRAIN, ranks=np.array([2]))[0], lambda: tt_round(TRAIN, ranks=[2])[0]),
        (lambda: tt_round(TRAIN, tolerance=np.float32(0.5))[0],
         lambda: tt_round(TRAIN, tolerance=0.5)[0]),
        (lambda: ape.conv2d(X[None, None], X[None, None], stride=N(2), padding=np.array([1, 1])),
         lambda: ape.conv2d(X[None, None], X[None, None], stride=2, padding=1)),
    ],
)  # fmt: skip
def test_library_sizes_of_numpy_are_those_of_python(of_numpy, of_python):
    assert torch.equal(of_numpy(), of_python())


def test_library_settings_of_numpy_sizes_have_the_text_of_pythons():
    for kind, of_numpy, of_python in (
        (Numbers, {"block": N(8)}, {"block": 8}),
        (Numbers, {"method": "tsqr", "levels": np.uint8(1)}, {"method": "tsqr", "levels": 1}),
        (ape.Accumulation, {"block": N(8)}, {"block": 8}),
        (ape.Adapter, {"blocks": (N(8), 4, N(2))}, {"blocks": (8, 4, 2)}),
    ):
        assert repr(kind(**of_numpy)) == repr(kind(**of_python))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *(("A", factor) for factor in (householder_qr, block_qr, tsqr, pivoted_qr, sketched_qr)),
        ("A", lambda x: lstsq(x, A[:2, 0])),
        ("b", lambda x: lstsq(A[:2, :2], x[0])),
        ("a", lambda x: gemm(x.float(), X)),
        ("b", lambda x: gemm(X.short(), x.short(), dtype="int16")),
        ("c", lambda x: gemm(X, X, c=x.float())),
        ("x", lambda x: ape.split(x.float(), "fp32-f")),
        ("weight", lambda x: ape.conv2d(X[None, None], x[None, None].float())),
        ("matrix", lambda x: tt_svd(x, (1, 2), (2, 1))),
        ("factor 1", lambda x: tt_round([x[None, ..., None]])),
        ("data", mcf.tensor),
        ("components", mcf.MCTensor.from_components),
        ("x", lambda x: posit.encode(x, P16)),
        ("x", lambda x: posit.round_to(x, P16)),
        ("x", lambda x: posit.PositTensor(x, P16)),
    ],
)
def test_library_operand_that_is_sparse_is_told_to_be_dense(name, call):
    sparse = torch.eye(2, dtype=torch.float64).to_sparse()
    with pytest.raises(TypeError, match=f"{name} must be dense, not torch.sparse_coo"):
        call(sparse)


def test_least_squares_threshold_of_numpy_is_a_number():
    assert lstsq(A, A[:, 0], threshold=np.float32(0.25)).threshold == 0.25


def test_least_squares_threshold_of_text_and_ape_factors_of_many_numbers_raise():
    for value in ("1", torch.tensor(0.5), True):
        with pytest.raises(ValueError, match="threshold must be at least 0 and below 1, not"):
            lstsq(A, A[:, 0], threshold=value)
    for value in (torch.ones(2), torch.tensor(1j)):
        with pytest.raises(TypeError, match="alpha must be a number, not"):
            gemm(X, X, alpha=value)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: posit.decode(posit.encode(x, P16), P16),
        lambda x: posit.PositTensor(x, P16).decode(),
        lambda x: (mcf.tensor(x, nc=2) * 3).to_float64(),
        lambda x: gemm(x, x.mT, dtype="fp32-f"),
        lambda x: gemm(x, x.mT, dtype="fp32-i8"),
        lambda x: householder_qr(x, high="fp32").R,
        lambda x: lstsq(x, x[:, 0]).x,
    ],
)
def test_libraries_refuse_to_be_recorded(function):
    """Sizes of a trace are tensors, which C would take for pointers; results become constants."""
    for record in (torch.jit.trace, lambda f, x: make_fx(f)(x)):
        with pytest.raises(RuntimeError, match=r"records operations \(jit.trace, .*outside of it"):
            record(function, torch.ones(4, 3))


def test_posit_tensors_are_recorded_as_the_operations_that_they_round():
    def tripled(x):
        return x * 3 / 7

    first, second = (posit.PositTensor(torch.tensor([v]), P16) for v in (1.0, 0.3))
    assert torch.equal(make_fx(tripled)(first)(second), tripled(second))


MAKERS = {
    "components": lambda data: mcf.tensor(data, nc=2, dtype=torch.float64),
    "posits": lambda data: posit.PositTensor(data, PositFormat(32, 2)),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    "array",
    [
        np.arange(3.0)[::-1],
        np.array([2.0, 1.0, 0.0], ">f8"),
        np.array([2, 1, 0], ">i4"),
        np.array([2, 1.0, False], object),
        np.array([2, 1, 0], np.longdouble),
        np.ma.array([2.0, 1.0, 0.0]),
        np.broadcast_to(np.float32(2), 3) - np.arange(3, dtype=np.float32),
    ],
)
def test_numbers_made_of_any_real_array_have_its_values(maker, array):
    assert MAKERS[maker](array).tolist() == [2.0, 1.0, 0.0]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    "array, error",
    [
        (np.ma.array([1.0, 2.0], mask=[False, True]), "masked elements: .*filled"),
        (np.array([1j]), "real numbers are needed, not an array of complex128"),
        (np.array(["2020-01-01"], "M8[D]"), "not an array of datetime64"),
    ],
)
def test_numbers_made_of_masked_or_unreal_arrays_raise_one_error(maker, array, error):
    with pytest.raises(ValueError, match=error):
        MAKERS[maker](array)


def test_components_of_long_doubles_have_all_their_digits():
    third = np.longdouble(1) / 3
    exact = Fraction(*third.as_integer_ratio())
    for data in (third, [third], np.array([third])):
        number = mcf.tensor(data, nc=2, dtype=torch.float64).reshape(1)
        assert number.fractions() == [exact] and exact != Fraction(float(third))
