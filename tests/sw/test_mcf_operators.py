"""Every operator's accuracy, special operands, gradients, in any mix of kinds and types."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainwright import mcf
from trainwright.mcf.expansion import stacked
from trainwright.mcf.experiments import accuracy, memory

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
CLOSEST = {"exp": 46, "log": 46, "tanh": 46, "sqrt": 46, "sigmoid": 46, "gelu": 46}


@pytest.mark.parametrize(
    "name", [n for n in accuracy.OPERATORS if accuracy.OPERATORS[n].width == 1]
)
@pytest.mark.parametrize("nc", [2, 3])
def test_operator_worst_error_is_within_its_bits(name, nc):
    measured = accuracy.measured(name, nc, 4000 if nc == 2 or name not in CLOSEST else 500)
    assert measured.bits >= ({2: 48.5, 3: 73.0}[nc] if name not in CLOSEST else 24 * (nc - 2) + 46)


@pytest.mark.parametrize("name", ["sum", "mean", "matmul", "matmul plain", "log_softmax"])
@pytest.mark.parametrize("nc, bits", [(2, 48.0), (3, 71.0)])
def test_worst_of_sums(name, nc, bits):
    assert accuracy.measured(name, nc, 200).bits >= bits


def test_softmax_is_as_good_as_its_exponents():
    """Exponents up to 16 apart have absolute errors of 16 units."""
    assert accuracy.measured("softmax", 2, 500).bits >= 48.5 - math.log2(16)


def test_mcf_single_component_is_plain_operation():
    x, y = torch.randn(50), torch.randn(50)
    ours, other = mcf.tensor(x, nc=1), mcf.tensor(y, nc=1)
    for function in (torch.add, torch.sub, torch.mul, torch.div, torch.dot):
        assert torch.equal(function(ours, other).fc, function(x, y))
    for function in (torch.exp, torch.tanh, torch.relu, torch.square, torch.sigmoid):
        assert torch.equal(function(ours).fc, function(x))


PRODUCTS = {
    "dot": ((7,), (7,)), "mv": ((5, 7), (7,)), "mm": ((5, 7), (7, 3)),
    "bmm": ((2, 5, 7), (2, 7, 3)),
}  # fmt: skip
MATMULS = [
    ((7,), (7,)), ((7,), (7, 3)), ((5, 7), (7,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)),
    ((2, 5, 7), (7, 3)), ((5, 7), (2, 7, 3)), ((2, 1, 5, 7), (3, 7, 4)), ((0, 7), (7, 3)),
    ((5, 0), (0, 3)),
]  # fmt: skip


def _random(shape, nc, dtype, draw):
    scale = 2.0 ** (-torch.finfo(dtype).bits / 2.2 * torch.arange(nc))
    parts = torch.randn(*shape, nc, generator=draw, dtype=F64) * scale
    return mcf.MCTensor.from_components(stacked(parts.to(dtype).unbind(-1)))


@pytest.mark.parametrize("dtype, nc", [(F32, 2), (F32, 3), (F64, 2), (F16, 2), (BF16, 2)])
@pytest.mark.parametrize("name, shapes", [*PRODUCTS.items(), *(("matmul", s) for s in MATMULS)])
def test_products_of_every_shape_and_mix(name, shapes, dtype, nc):
    draw = torch.Generator().manual_seed(1)
    x, y = (_random(shape, nc, dtype, draw) for shape in shapes)
    function = getattr(torch, name)
    for a, b in ((x, y), (x, y.fc), (x.fc, y)):
        wide = [t.to_float64() if isinstance(t, mcf.MCTensor) else t.double() for t in (a, b)]
        want, size = function(*wide), function(*map(torch.abs, wide))
        product = function(a, b)
        assert product.shape == want.shape and product.nc == nc and product.dtype is dtype
        digits = min({F16: 22, BF16: 15, F32: 24 * nc, F64: 106}[dtype], 50)
        error = (product.to_float64() - want).abs()
        assert (error <= size * 2.0**-digits * 4 + 2.0**-24 * (dtype is F16)).all()


def test_dot_keeps_its_lower_components():
    x = mcf.MCTensor.from_components(torch.tensor([[1.0, 2.0**-30], [-1.0, 0.0]]))
    assert torch.dot(x, torch.ones(2)).exact_item() == 2.0**-30


def test_batched_products_take_little_memory():
    (peak,) = memory.run()
    assert peak.mebibytes * 2**20 < 200e6


@pytest.mark.parametrize("shape", [(5, 3), (3,), (1, 3), ()])
def test_mcf_addmm_accepts_arguments_of_torch(shape):
    draw = torch.Generator().manual_seed(2)
    y, a, b = (_random(s, 2, F32, draw) for s in (shape, (5, 7), (7, 3)))
    result = torch.addmm(y, a, b.fc, beta=0.5, alpha=-2)
    want = torch.addmm(y.to_float64(), a.to_float64(), b.fc.double(), beta=0.5, alpha=-2)
    assert (result.to_float64() - want).abs().max() <= 2.0**-44


OF_TWO = (torch.add, torch.sub, torch.mul, torch.div)
OF_ONE = {
    "neg": torch.neg, "abs": torch.abs, "square": torch.square, "sqrt": lambda x: x.abs().sqrt(),
    "exp": torch.exp, "log": lambda x: x.abs().log(), "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": F.gelu, "logsigmoid": F.logsigmoid,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, 0),
    "sum": lambda x: x.sum(0), "mean": lambda x: x.mean((0, 1)), "index": lambda x: x[1:, [0, 2]],
    "reshape": lambda x: x.reshape(-1), "transpose": lambda x: x.T,
    "clamp": lambda x: x.clamp(min=0),
    "stack": lambda x: torch.stack([x, x * 2]), "cat": lambda x: torch.cat([x, x], 1),
    "pow": lambda x: x**3, "reciprocal": lambda x: 1 / x, "rsub": lambda x: 1 - x,
    "where": lambda x: torch.where(torch.tensor([True, False, True]), x, -x),
    "permute": lambda x: x.permute(1, 0), "flip": lambda x: x.flip(0), "expm1": torch.expm1,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("dtype, nc", [(F32, 2), (F64, 2), (F32, 3)])
def test_values_and_gradients_of_one_operand(name, dtype, nc):
    draw = torch.Generator().manual_seed(3)
    ours = _random((4, 3), nc, dtype, draw).requires_grad_()
    plain = ours.to_float64().requires_grad_()
    y, want = OF_ONE[name](ours), OF_ONE[name](plain)
    assert isinstance(y, mcf.MCTensor) and y.shape == want.shape
    # float64 itself is the reference here; accuracy.py has the last digits
    assert torch.allclose(y.to_float64(), want, rtol=2.0**-44, atol=2.0**-46)
    weights = torch.randn(want.shape, generator=draw, dtype=F64)
    (y * weights.to(dtype)).sum().backward()
    (want * weights.to(dtype).double()).sum().backward()
    assert type(ours.grad) is torch.Tensor
    close = {F32: 1e-5, F64: 1e-13}[dtype]
    assert torch.allclose(ours.grad.double(), plain.grad, rtol=close, atol=close)


@pytest.mark.parametrize("kinds", ["mm", "mp", "pm"])
@pytest.mark.parametrize("function", [*OF_TWO, torch.matmul, torch.mm])
def test_values_and_gradients_of_two_operands(function, kinds):
    draw = torch.Generator().manual_seed(4)
    ours = [_random((3, 3), 2, F32, draw) for _ in range(2)]
    ours = [x if kind == "m" else x.fc.clone() for x, kind in zip(ours, kinds, strict=True)]
    plain = [
        (x.to_float64() if isinstance(x, mcf.MCTensor) else x.double()).requires_grad_()
        for x in ours
    ]
    ours = [x.requires_grad_() for x in ours]
    y, want = function(*ours), function(*plain)
    assert isinstance(y, mcf.MCTensor)
    assert torch.allclose(y.to_float64(), want, rtol=2.0**-45, atol=2.0**-46)
    y.sum().backward()
    want.sum().backward()
    for x, p in zip(ours, plain, strict=True):
        assert torch.allclose(x.grad.double(), p.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [2, 0.1, torch.tensor(3), torch.tensor(0.1, dtype=F64)])
def test_numbers_beside_components_are_exact_up_to_nc(value):
    x = mcf.tensor([1, 3], nc=2)
    number = value if isinstance(value, int | float) else value.item()
    for function in OF_TWO:
        y, want = function(x, value), function(torch.tensor([1.0, 3.0], dtype=F64), number)
        assert (y.to_float64() - want).abs().max() <= 2.0**-47


def test_comparisons_see_the_lower_components():
    x = mcf.tensor([[1, 1]], nc=2).reshape(2)
    y = x + torch.tensor([2.0**-40, 0.0])
    assert torch.equal(x.fc, y.fc)
    assert (x < y).tolist() == [True, False] and (x == y).tolist() == [False, True]
    assert (y >= x).tolist() == [True, True] and (x != y).tolist() == [True, False]
    assert (x > y).tolist() == [False, False] and (x <= y).tolist() == [True, True]
    nan = mcf.tensor([math.nan, math.inf])
    assert (nan == nan).tolist() == [False, True] and (nan != nan).tolist() == [True, False]


SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 3e38, -3e38, 1e-39, 1.0, -2.0])
SAME_AS_PLAIN = {
    "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "sqrt": torch.sqrt, "relu": torch.relu, "gelu": F.gelu, "square": torch.square,
    "abs": torch.abs, "neg": torch.neg,
}  # fmt: skip


@pytest.mark.parametrize("nc", [2, 3, 4])
@pytest.mark.parametrize("name", SAME_AS_PLAIN)
def test_special_values_are_those_of_plain_floats(name, nc):
    y = SAME_AS_PLAIN[name](mcf.tensor(SPECIAL, nc=nc))
    want = SAME_AS_PLAIN[name](SPECIAL.double()).float()
    if name == "gelu":  # torch's overflows on the way to 3e38, and has NaN beyond
        want = torch.where(SPECIAL.abs() > 100, torch.relu(SPECIAL), want)
    special = ~want.isfinite() | (want == 0)
    assert torch.equal(y.fc.isnan(), want.isnan())
    assert torch.equal(y.fc[special].nan_to_num(7.0), want[special].nan_to_num(7.0))
    usual = want.isfinite() & (want != 0)
    assert torch.allclose(y.fc[usual], want[usual], rtol=1e-6, atol=1e-44)
    assert not y.components[..., 1:].isnan().any()


def test_operands_that_do_not_fit_name_both():
    x, y = mcf.tensor(torch.zeros(2, 3)), mcf.tensor(torch.zeros(4), nc=3)
    with pytest.raises(ValueError, match=r"2 and 3 components, shapes \(2, 3\) and \(\)"):
        x + y[0]
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(4,\) do not broadcast"):
        x * y.to_nc(2)
    with pytest.raises(ValueError, match=r"float32 and torch.float64.*\(2, 3\) and \(3,\)"):
        x / mcf.tensor(torch.ones(3, dtype=F64))
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\) do not fit in matmul"):
        x @ x
    with pytest.raises(ValueError, match=r"\(2, 3\) does not fit weight \(3, 2\)"):
        F.linear(x, x.T)
    with pytest.raises(ValueError, match=r"\(2, 3\), \(2, 2\) do not fit in cat along 0"):
        torch.cat([x, x[:, :2]])
    with pytest.raises(ValueError, match=r"\(4,\).* does not broadcast to the product's \(2, 2\)"):
        torch.addmm(y.to_nc(2), x, x.T)
    for exponent in (x, torch.ones(2, 2), 2.5):
        with pytest.raises(TypeError, match="powers of MCTensor are "):
            torch.pow(x, exponent)
    with pytest.raises(TypeError, match="erfinv is not defined for MCTensor"):
        torch.erfinv(x)


def test_mcf_where_method_selects_self_where_true():
    x = mcf.tensor(["0.1", "0.2"], nc=3)
    chosen = x.where(torch.tensor([True, False]), -x)
    assert chosen.fractions() == [x[0].exact_item(), -x[1].exact_item()]


@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_mcf_extremes_of_ties_share_the_gradient(function):
    ours = [mcf.tensor(v, nc=2, dtype=F64, requires_grad=True) for v in ([1, 2, 3], [1, 2, 4])]
    plain = [x.to_float64().requires_grad_() for x in ours]
    grads = torch.autograd.grad(function(*ours).sum(), ours)
    want = torch.autograd.grad(function(*plain).sum(), plain)
    assert all(map(torch.equal, grads, want))


@pytest.mark.parametrize("weight, bias", [((1, 3), (3,)), ((4, 3), (2,)), ((2, 3, 3), (3,))])
def test_mcf_linear_of_shapes_that_torch_refuses_raises(weight, bias):
    x, w, b = (mcf.tensor(torch.ones(shape), nc=2) for shape in ((2, 3), weight, bias))
    with pytest.raises(RuntimeError):
        torch.nn.functional.linear(x.fc, w.fc, b.fc)
    with pytest.raises(ValueError, match=r"broadcast to the product's|1 or 2 dimensions"):
        torch.nn.functional.linear(x, w, b)


def test_mcf_addmm_with_beta_zero_ignores_its_input():
    y = mcf.tensor([[math.nan, math.inf]])
    a, b = mcf.tensor([["0.1"]]), mcf.tensor([["3", "5"]])
    assert torch.equal(torch.addmm(y, a, b, beta=0), a @ b)


@pytest.mark.parametrize(
    "index", [[-1], [2], [True, False], torch.tensor([1], dtype=torch.uint8)], ids=str
)
def test_mcf_embedding_of_invalid_index_raises(index):
    weight = mcf.tensor([["0.1"], ["0.2"]])
    with pytest.raises((IndexError, RuntimeError)):
        F.embedding(torch.as_tensor(index), weight)
    with pytest.raises(AssertionError):
        F.embedding(torch.tensor([0]), weight, padding_idx=2)


@pytest.mark.parametrize("number", [np.float32(0.1), np.int64(3), np.bool_(True)])
def test_mcf_arithmetic_with_numpy_scalars_is_exact(number):
    x = mcf.tensor(["0.1", "7"], nc=3)
    for other in (x * number, number * x):
        assert torch.equal(other, x * number.item())
    assert torch.equal(x.clamp(max=number), x.clamp(max=number.item()))


def test_gradient_next_to_an_integer_of_71_bits_is_that_of_a_float():
    x = mcf.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = x * (2**70 + 1)
    assert y.fractions() == [2**70 + 1, 2**71 + 2]
    y.sum().backward()
    assert x.grad.tolist() == [2.0**70] * 2


def test_mcf_narrow_and_split_take_tensors_of_places():
    x = mcf.tensor([["0.1", "0.2", "0.3"]])
    assert torch.equal(torch.narrow(x, 1, torch.tensor(1), 2), x[:, 1:])
    assert [part.shape[1] for part in torch.tensor_split(x, torch.tensor([1]), 1)] == [1, 2]


@pytest.mark.parametrize("function", [F.softplus, F.elu, torch.log1p, torch.outer])
def test_undefined_function_is_called_by_its_own_name(function):
    x = mcf.tensor([0.5, 2.0], nc=2)
    operands = (x, x) if function is torch.outer else (x,)
    with pytest.raises(TypeError, match=f"^{function.__name__} is not defined for MCTensor"):
        function(*operands)


@pytest.mark.filterwarnings("ignore:Tensor.(mT|mH|H)")
@pytest.mark.parametrize("name", ["mT", "mH", "H"])
def test_mcf_transposed_has_the_shapes_and_errors_of_torch(name):
    for shape in ((), (2,), (2, 3), (2, 3, 4)):
        plain = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
        try:
            wanted = getattr(plain, name)
        except RuntimeError:
            with pytest.raises(RuntimeError, match=name):
                getattr(mcf.tensor(plain), name)
        else:
            assert torch.equal(getattr(mcf.tensor(plain), name).fc, wanted)
