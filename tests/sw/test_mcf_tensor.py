"""``MCTensor`` as a tensor: making, viewing, printing, converting, storing."""

import copy
import math
import pickle
from decimal import Context, Decimal, Inexact, Rounded, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save

from trainwright import mcf

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
@pytest.mark.parametrize("nc", [1, 2, 3, 5])
def test_numbers_go_in_and_out_exactly(dtype, nc):
    exact = [Fraction(3, 4), Fraction(-7), Fraction(1) + Fraction(1, 128)]
    x = mcf.tensor(exact, nc=nc, dtype=dtype)
    assert x.nc == nc and x.dtype is dtype and x.components.shape == (3, nc)
    assert x.fractions() == exact
    if nc > 1 and dtype is not F16:
        tenth = mcf.tensor("0.1", nc=nc, dtype=dtype).exact_item()
        digits = {BF16: 8, F32: 24, F64: 53}[dtype] * nc
        assert abs(tenth - Fraction(1, 10)) <= Fraction(1, 10) / 2**digits


def test_kinds_of_data():
    assert mcf.tensor([[1, 2], [3, 4]]).shape == (2, 2)
    assert mcf.tensor(Decimal("1e-20")).decimals(5) == Decimal("1.0000e-20")
    big = torch.tensor([2**62 + 1])
    assert mcf.tensor(big, nc=2, dtype=F64).fractions() == [2**62 + 1]
    again = mcf.tensor(mcf.tensor("0.1", nc=3), nc=2)
    assert torch.equal(again.components, mcf.tensor("0.1", nc=2).components)
    for bad, message in (([[1], [2, 3]], "sequence of 1"), (["x"], "decimal text"),
                         (torch.zeros(2, dtype=torch.complex64), "real numbers")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            mcf.tensor(bad)
    with pytest.raises(ValueError, match="nc must be"):
        mcf.tensor(1, nc=0)
    with pytest.raises(ValueError, match="components must be float16"):
        mcf.tensor(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"\(\*shape, nc\)"):
        mcf.MCTensor.from_components(torch.zeros(3, 0))


def test_components_are_brought_into_order():
    x = mcf.MCTensor.from_components(torch.tensor([[2.0**-30, 1.0]]))
    assert x.components.tolist() == [[1.0, 2.0**-30]]
    raw = torch.tensor([[1.0, 0.5]])
    kept = mcf.MCTensor.from_components(raw, normalise=False)
    assert kept.components.data_ptr() == raw.data_ptr()
    assert kept.fc.data_ptr() == raw.data_ptr()


def test_printing_tells_numbers_of_the_last_digit_apart():
    x = mcf.tensor(["0.1", "0.1"], nc=2)
    y = x + torch.tensor([0.0, 2.0**-51])
    first, second = repr(y).split("[")[1].split("]")[0].split(", ")
    assert first != second
    assert torch.equal(mcf.tensor([first, second], nc=2).components, y.components)
    assert "nc=2" in repr(y) and "float64" in repr(mcf.tensor(1, dtype=F64))
    assert "..." in repr(mcf.tensor(torch.zeros(2000)))
    assert f"{mcf.tensor('0.1', nc=3):.20f}" == "0.10000000000000000000"
    assert "requires_grad" in repr(x.requires_grad_()) and "grad_fn" in repr(x * 2)


@pytest.mark.parametrize("context", [getcontext(), Context(prec=5, traps=[Inexact, Rounded])])
def test_printing_shows_all_digits_in_any_decimal_context(context):
    third = mcf.tensor(Fraction(1, 3), nc=3, dtype=F64)
    with localcontext(context):
        printed = repr(third).removeprefix("MCTensor(").split(",")[0]
    assert printed == "0." + "3" * 49, "159 binary digits need 49 decimal ones"


MOVES = {
    "reshape": lambda x: x.reshape(6, 4), "view": lambda x: x.view(4, 6),
    "transpose": lambda x: x.transpose(0, 2), "permute": lambda x: x.permute(2, 0, 1),
    "squeeze": lambda x: x[:1].squeeze(0), "unsqueeze": lambda x: x.unsqueeze(1),
    "expand": lambda x: x[:1].expand(5, 3, 4), "flatten": lambda x: x.flatten(1),
    "stack": lambda x: torch.stack([x, x], -1), "cat": lambda x: torch.cat([x, x], -1),
    "chunk": lambda x: x.chunk(2, -1)[1], "split": lambda x: x.split(2, 1)[1],
    "unbind": lambda x: x.unbind(1)[2], "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 0),
    "slice": lambda x: x[:, 1:, ::2], "mask": lambda x: x[torch.tensor([True, False])],
    "ellipsis": lambda x: x[..., 0], "none": lambda x: x[None, 0], "list": lambda x: x[:, [2, 0]],
    "tensor index": lambda x: x[torch.tensor([1, 0]), torch.tensor([0, 2])], "mT": lambda x: x.mT,
    "index_select": lambda x: x.index_select(2, torch.tensor([3, 1])),
    "repeat": lambda x: x.repeat(2, 1, 1),
    "gather": lambda x: x.gather(2, torch.zeros(2, 3, 1, dtype=torch.int64)),
    "named": lambda x: torch.transpose(input=x.transpose(dim0=0, dim1=1), dim0=1, dim1=2),
    "named shape": lambda x: torch.reshape(input=x, shape=(4, 6)),
    "clone": lambda x: x.clone(memory_format=torch.preserve_format),
    "contiguous": lambda x: x.mT.contiguous(memory_format=torch.contiguous_format),
    "axis": lambda x: torch.cat([x, x], axis=1),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_numbers_move_as_a_whole(name):
    parts = torch.arange(48.0).reshape(2, 3, 4, 2) * torch.tensor([1.0, 2.0**-40])
    x = mcf.MCTensor.from_components(parts, normalise=False)
    moved = MOVES[name](x)
    for k in range(2):
        assert torch.equal(moved.components[..., k], MOVES[name](parts[..., k]))


def test_sums_take_the_argument_names_of_numpy():
    x = mcf.tensor([["0.1", "0.2"], ["0.3", "0.4"]], nc=3)
    assert torch.equal(x.sum(axis=0, keepdims=True).components, x.sum(0, True).components)
    assert torch.equal(x.mean(axis=(0, 1)).components, x.mean().components)


def test_unknown_argument_names_the_function_of_torch():
    x = mcf.tensor(["0.1", "0.2"])
    with pytest.raises(TypeError, match=r"add of MCTensor: .*'out'"):
        torch.add(x, x, out=torch.empty(2))


def test_writing_in_place():
    x = mcf.tensor(torch.zeros(2, 2))
    x[0] = mcf.tensor(["0.1", "0.2"])
    x[1, 1] = 3
    assert x.fractions()[0] == mcf.tensor(["0.1", "0.2"]).fractions() and x[1, 1].item() == 3
    x.add_(1).mul_(2)
    assert x[1, 0].item() == 2
    with pytest.raises(IndexError, match="too many"):
        x[0, 0, 0]
    with pytest.raises(RuntimeError, match="no_grad"):
        mcf.tensor(1.0, requires_grad=True).add_(1)
    with pytest.raises(TypeError, match="plain"):
        torch.zeros(2).copy_(x[0])


def test_mcf_tensor_types_convert():
    x = mcf.tensor("0.1", nc=3)
    assert x.to(F64).nc == 3 and x.double().exact_item() == x.exact_item()
    assert x.to_nc(2).components.tolist() == mcf.tensor("0.1", nc=2).components.tolist()
    assert x.to_nc(5).exact_item() == x.exact_item()
    half = x.to(F16)
    assert half.dtype is F16 and abs(half.item() - 0.1) < 2.0**-25
    assert x.to("cpu") is x and x.item() == pytest.approx(0.1, abs=0)
    assert torch.equal(x.to_float64(), torch.tensor(0.1, dtype=F64))


@pytest.mark.parametrize("nc", [1, 2, 3])
def test_mcf_infinities_convert_to_every_type(nc):
    special = torch.tensor([math.inf, -math.inf, math.nan, 1e300, -1e300, -0.0, 1.5], dtype=F64)
    x = mcf.tensor(special, nc=nc)
    for dtype in (F16, BF16, F32, F64):
        got = x.to(dtype).components
        assert torch.equal(got[..., 0].view(torch.uint8), special.to(dtype).view(torch.uint8))
        assert not got[..., 1:].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_has_the_same_bits():
    draw = torch.Generator().manual_seed(0)
    x, y = (mcf.tensor(torch.randn(100, generator=draw), nc=2) / 3 for _ in range(2))
    for function in (torch.add, torch.mul, torch.div):
        result = function(x.cuda(), y.cuda())
        assert result.is_cuda and torch.equal(result.cpu().components, function(x, y).components)


def test_copies_and_files_keep_every_component(tmp_path):
    x = mcf.tensor(["0.1", "0.7"], nc=3)
    p = torch.nn.Parameter(x)
    assert isinstance(p, mcf.MCTensor) and p.nc == 3
    torch.save(x, tmp_path / "x.pt")
    read = pickle.loads(pickle.dumps(x)), torch.load(tmp_path / "x.pt")
    for again in (copy.deepcopy(x), x.clone(), *read, copy.deepcopy(p)):
        assert torch.equal(again.components, x.components)
    assert copy.deepcopy(p).requires_grad and isinstance(copy.deepcopy(p), torch.nn.Parameter)
    stored = load(save({"x": x.components.contiguous()}))["x"]
    assert mcf.MCTensor.from_components(stored).fractions() == x.fractions()


def test_gradients_are_plain_and_those_of_the_leading_component():
    x = mcf.tensor([1.0, 2.0], nc=2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    assert type(x.grad) is torch.Tensor and x.grad.tolist() == [2.0, 4.0]
    assert x.fc.requires_grad and x.detach().requires_grad is False
    (gradient,) = torch.autograd.grad(torch.exp(x).sum(), x)
    assert torch.allclose(gradient, torch.exp(torch.tensor([1.0, 2.0])))


TENTHS = [[0.1, 0.2, 0.3], [1.1, 1.2, 1.3]]


@pytest.mark.parametrize(
    "function",
    [
        torch.tensor,
        torch.Tensor,
        lambda x: torch.full((2,), x[0, 0], dtype=F64),
        lambda x: torch.add(torch.ones(2), torch.ones(2), alpha=x[0, 0]),
        lambda x: torch.vmap(lambda row: row * 2)(x),
        lambda x: torch.func.grad(lambda row: (row * row).sum())(x),
        lambda x: x.set_(torch.zeros(1)),
        lambda x: setattr(x, "real", torch.zeros(2, 3)),
    ],
    ids=["tensor", "Tensor", "full", "alpha", "vmap", "grad", "set_", "real"],
)
@pytest.mark.filterwarnings("ignore:To copy construct")
def test_mcf_below_torch_functions_raises_instead_of_rounding(function):
    x = mcf.tensor(TENTHS, dtype=F32)
    before = x.fractions()
    with pytest.raises(TypeError):
        function(x)
    assert x.fractions() == before and torch.equal(x.fc, x.components[..., 0])


def test_mcf_recorded_operation_makes_no_guard_object(monkeypatch):
    x = mcf.tensor(TENTHS, dtype=F32, requires_grad=True)
    wanted = (x * x + x).fractions()

    def refused():
        raise AssertionError("a guard object takes as long as a small operation's arithmetic")

    monkeypatch.setattr(torch._C, "_DisableTorchDispatch", refused)
    assert (x * x + x).fractions() == wanted
    assert x.fc.grad_fn is not None


def test_mcf_leading_component_leaves_the_dispatch_as_it_was():
    x = mcf.tensor(TENTHS, dtype=F32)
    python = torch._C.DispatchKey.Python
    excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    assert torch.equal(x.fc, x.components[..., 0]) and not excluded(python)
    with torch._C._DisableTorchDispatch():
        assert torch.equal(x.fc, x.components[..., 0]) and excluded(python)
    with pytest.raises(IndexError):
        x.size(5)
    assert not excluded(python)


def test_mcf_adjoint_properties_keep_all_components():
    x = mcf.tensor(TENTHS, dtype=F32, nc=3)
    transposed = [list(row) for row in zip(*x.fractions(), strict=True)]
    assert x.H.fractions() == x.mH.fractions() == transposed
    assert x.real.fractions() == x.fractions()


KEYS = [
    0, (0, 1), (Ellipsis, 0), (0, Ellipsis), None, [0, 1], [[0], [1]], ([0, 1], [1, 0]), True,
    torch.tensor([[True, False, True], [False, True, False]]), (slice(None), [0, 2]), [None, 0],
    [Ellipsis, 0], np.array([1, 0]), np.int64(1), range(2), (),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=map(str, range(len(KEYS))))
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_mcf_indexing_selects_as_torch_does(key):
    plain = torch.tensor(TENTHS, dtype=F64)
    x = mcf.tensor(plain, dtype=F32, nc=3)  # holds every float64
    chosen = plain[key].clone()
    assert torch.equal(x[key].to_float64(), chosen)
    x[key], plain[key] = -chosen[None].float(), -chosen[None].float().double()
    assert torch.equal(x.to_float64(), plain)


@pytest.mark.parametrize(
    "key", [np.ones((2, 2), bool), ([[True, True], [False, True]],), ([0], [1]), [[0], [1]], (0, 0)]
)
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_mcf_index_of_too_many_dimensions_raises(key):
    x = mcf.tensor(["0.1", "0.2"])
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError):
        x[key] = 1


def test_mcf_tensor_of_unsigned_integers_is_exact():
    values = [2**63 + 1, 2**64 - 1, 5]
    x = mcf.tensor(torch.tensor(values, dtype=torch.uint64), nc=3, dtype=F32)
    assert x.fractions() == values


def test_mcf_text_of_negative_zero_keeps_its_sign():
    x = mcf.tensor(["-0.0", "0.0"])
    assert torch.signbit(x).tolist() == [True, False]


def test_mcf_conversion_to_other_types_raises_by_name():
    x = mcf.tensor("0.1")
    with pytest.raises(ValueError, match="int32"):
        x.to(torch.int32)
    with pytest.raises(TypeError, match="view"):
        x.unsqueeze(0).view(torch.float16)
    assert x.to("cpu", F64, False, True).exact_item() == x.exact_item()


def test_plain_tensors_take_shape_and_type_of_numbers():
    x, plain = mcf.tensor([[1.0, 2.0, 3.0]] * 2, nc=2, dtype=torch.float64), torch.arange(6.0)
    shaped = plain.view_as(other=x), plain.reshape_as(x), plain[:3].expand_as(x)
    assert all(type(y) is torch.Tensor and y.shape == (2, 3) for y in shaped)
    assert torch.equal(shaped[0], plain.view(2, 3)) and torch.equal(shaped[2][1], plain[:3])
    for y in (plain.to(x), plain.type_as(x)):
        assert type(y) is torch.Tensor and torch.equal(y, plain.double())


def test_lbfgs_of_a_plain_parameter_next_to_numbers_takes_steps():
    """Minimise (w - 1/3)^2 of whole numbers; LBFGS views flat updates as each parameter."""
    w = torch.nn.Parameter(mcf.tensor([0.0, 0.0], nc=2, dtype=torch.float64))
    optimiser = torch.optim.LBFGS([w], lr=0.5, max_iter=20)

    def loss():
        optimiser.zero_grad()
        value = ((w - 1 / 3) ** 2).sum()
        value.backward()
        return value.fc

    optimiser.step(loss)
    assert abs(float(w.detach().fc[0]) - 1 / 3) < 1e-4


_VIEWED = {
    "unsqueeze": lambda x: x.unsqueeze(0),
    "view": lambda x: x.view(()),
    "reshape": lambda x: x.reshape(1, 1),
    "expand": lambda x: x.expand(1),
    "squeeze": lambda x: x.squeeze(),
    "permute": lambda x: x.permute(()),
    "flatten": lambda x: x.flatten(),
}
_COPIED = {
    "sum of one": (lambda x: x.sum(1), (3, 1)),
    "sum": (lambda x: x.sum(), ()),
    "amax of one": (lambda x: x.amax(1), (3, 1)),
    "max of one": (lambda x: x.max(1).values, (3, 1)),
    "min": (lambda x: x.min(), ()),
    "power": (lambda x: x**1, (3,)),
    "embedding": (lambda x: F.embedding(torch.tensor(1), x), (3, 2)),
    "contiguous": (lambda x: x.t().contiguous(), (3, 2)),
    "copy": (lambda x: x.to(torch.float32, copy=True), (3,)),
}


@pytest.mark.parametrize("name", _VIEWED)
def test_view_of_a_number_writes_into_the_number(name):
    x = mcf.tensor("0.1", nc=3)
    third = mcf.tensor(Fraction(1, 3), nc=3)
    _VIEWED[name](x).copy_(third)
    assert torch.equal(x, third)


@pytest.mark.parametrize("name", _COPIED)
def test_copying_function_keeps_its_operand_when_written(name):
    function, shape = _COPIED[name]
    x = mcf.tensor(torch.rand(shape), nc=3)
    before = x.clone()
    function(x).zero_()
    assert torch.equal(x, before)


def test_contiguous_of_a_transposed_matrix_can_be_viewed():
    x = mcf.tensor(torch.rand(3, 2), nc=2)
    assert torch.equal(x.t().contiguous().view(-1), x.t().reshape(-1))
    with pytest.raises(TypeError, match="channels_last"):
        mcf.tensor(torch.rand(1, 2, 2, 2)).contiguous(memory_format=torch.channels_last)


def test_moveaxis_of_single_places_moves_them():
    x = mcf.tensor(torch.rand(2, 3, 4), nc=2)
    assert torch.equal(x.moveaxis(0, 2), x.permute(1, 2, 0))


def test_cat_with_an_empty_vector_skips_it():
    x = mcf.tensor(torch.rand(2, 3), nc=2)
    assert torch.equal(torch.cat([torch.empty(0), x], dim=1), x)


def test_lerp_with_a_tensor_of_weights_takes_each():
    x = mcf.tensor(torch.zeros(2, 3), nc=2)
    x.lerp_(mcf.tensor(torch.ones(2, 3), nc=2), torch.tensor([0.0, 0.5, 1.0]))
    assert x.tolist() == [[0.0, 0.5, 1.0]] * 2


def test_numbers_of_numpy_in_a_list_are_taken_exactly():
    x = mcf.tensor([np.int64(2**62 + 1), np.float32(0.1)], nc=3)
    assert x.fractions() == [2**62 + 1, Fraction(float(np.float32(0.1)))]


def test_mcf_new_functions_give_as_many_components_as_their_source():
    x = mcf.tensor("0.1", nc=3, dtype=F64)
    third = Fraction(1, 3)
    for number, wanted in (
        (x.new_zeros(2), [0, 0]),
        (x.new_ones((2,)), [1, 1]),
        (x.new_full((2,), 2**60 + 1), [2**60 + 1] * 2),
        (x.new_tensor([third, 2]), mcf.tensor([third, 2], nc=3, dtype=F64).fractions()),
        (torch.full_like(x, 0.1, requires_grad=True), Fraction(0.1)),
    ):
        assert number.nc == 3 and number.dtype is F64 and number.fractions() == wanted
    assert (
        x.new_empty(2, dtype=F32).dtype is F32 and x.new_full((1,), 1, requires_grad=True).is_leaf
    )
    again = x.new_tensor(x)
    again.zero_()
    assert x.exact_item() != 0


@pytest.mark.parametrize("name", ("zeros_like", "ones_like", "empty_like", "rand_like"))
def test_mcf_like_functions_of_integer_types_are_refused(name):
    with pytest.raises(ValueError, match=r"components must be .*, not torch\.int64"):
        getattr(torch, name)(mcf.tensor("0.1"), dtype=torch.int64)
