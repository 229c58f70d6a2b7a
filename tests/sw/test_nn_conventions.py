"""Tensor-train layers keep PyTorch's conventions; plain torch is the oracle."""

import copy
import functools
import inspect
import io
import pickle
import time
import warnings

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations, parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import trainwright
import trainwright.nn as tnn
from trainwright.formats import Fixed
from trainwright.network import NetworkError, network_from_dict
from trainwright.nn.straight_through import gradient_rounded
from trainwright.train.initial import initial_factors

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = ("fixed", "float32", "activation=posit(8,0)")
HALF = (torch.float16, torch.bfloat16)
TYPES = (torch.float64, torch.float32, *HALF)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(2)


def layer_and_input(kind, numbers="fixed", **options):
    if kind == "linear":
        return tnn.TTLinear(32, 48, rank=4, numbers=numbers, **options), torch.rand(3, 32)
    if kind == "convolution":
        return tnn.TTConv2d(4, 8, 3, rank=4, numbers=numbers, **options), torch.rand(2, 4, 6, 6)
    return tnn.TTEmbedding(40, 16, rank=4, numbers=numbers, **options), torch.arange(6)


KINDS = ("linear", "convolution", "embedding")


# -- weight --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_weight_of_float_layer_gives_dense_outputs_and_gradients(kind):
    layer, x = layer_and_input(kind, "float32")
    weight = layer.weight
    dense = {
        "linear": lambda: torch.nn.functional.linear(x, weight, layer.bias),
        "convolution": lambda: torch.nn.functional.conv2d(x, weight, layer.bias),
        "embedding": lambda: torch.nn.functional.embedding(x, weight),
    }[kind]()
    assert isinstance(weight, torch.Tensor) and weight.shape == layer.to_dense().weight.shape
    torch.testing.assert_close(layer(x), dense, rtol=1e-5, atol=1e-5)
    factors = list(layer.factors)
    outputs = torch.autograd.grad(layer(x).square().sum(), factors)
    wanted = torch.autograd.grad(dense.square().sum(), factors)
    torch.testing.assert_close(outputs, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_getmembers_of_every_layer_finds_weight_and_bias(kind, numbers):
    layer, _ = layer_and_input(kind, numbers)
    members = dict(inspect.getmembers(layer))
    assert isinstance(members["weight"], torch.Tensor)
    assert (members["bias"] is None) == (kind == "embedding")


def add_in_place(weight):
    weight += 1


WRITES = {
    "nn.init": lambda layer: torch.nn.init.xavier_uniform_(layer.weight),
    "data": lambda layer: layer.weight.data.normal_(0, 0.02),
    "row of data": lambda layer: layer.weight.data[0].zero_(),
    "transposed": lambda layer: layer.weight.T.mul_(2),
    "chunk": lambda layer: layer.weight.chunk(2)[1].fill_(1),
    "item": lambda layer: layer.weight.detach().__setitem__(0, 1.0),
    "copy": lambda layer: layer.weight.copy_(torch.zeros(48, 32)),
    "operator": lambda layer: add_in_place(layer.weight.detach()),
    "out": lambda layer: torch.add(layer.weight, 1, out=layer.weight.detach()),
    "inplace": lambda layer: torch.nn.functional.relu(layer.weight.detach(), inplace=True),
    "freeze": lambda layer: setattr(layer.weight, "requires_grad", False),
    "requires_grad_": lambda layer: layer.weight.requires_grad_(False),
    "new data": lambda layer: setattr(layer.weight, "data", torch.zeros(48, 32)),
    "parameter": lambda layer: setattr(layer, "weight", torch.nn.Parameter(torch.zeros(48, 32))),
    "tensor": lambda layer: setattr(layer, "weight", torch.zeros(48, 32)),
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "global prune": lambda layer: prune.global_unstructured(
        [(layer, "weight"), (layer, "weight")], prune.L1Unstructured, amount=0.5
    ),
    "list": lambda layer: torch._foreach_mul_([torch.zeros(1), layer.weight.detach()], 0.5),
    "hook": lambda layer: torch.enable_grad()(lambda: layer.weight.register_hook(torch.neg))(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_weight_that_is_written_is_one_error_with_remedy(write):
    layer, _ = layer_and_input("linear")
    before = layer.weight.clone()
    with torch.no_grad(), pytest.raises(
        (RuntimeError, AttributeError), match=r"TTLinear\.weight would be lost.*load_dense"
    ):  # fmt: skip
        write(layer)
    assert torch.equal(layer.weight, before)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm])
def test_weight_that_old_norms_take_is_one_error_with_remedy(kind, norm):
    layer, x = layer_and_input(kind)
    for each in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        names = set(each.state_dict())
        with pytest.raises(
            AttributeError,
            match=rf"^{type(layer).__name__} has no parameter .*LayerNorm.*from_torch$",
        ):
            norm(each)
        assert set(each.state_dict()) == names and torch.equal(each(x), layer(x))
    with pytest.raises(KeyError, match="'offset'"):
        del layer._parameters["offset"]
    del layer._parameters["bias"]
    assert "bias" not in layer._parameters


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "parametrise",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        lambda layer: parametrize.register_parametrization(layer, "weight", torch.nn.Tanh()),
    ],
)
def test_weight_that_is_parametrised_is_one_error_with_remedy(kind, parametrise):
    layer, x = layer_and_input(kind)
    before = layer(x)
    with pytest.raises(ValueError, match=r"no parameter to normalise or replace: .*from_torch$"):
        parametrise(layer)
    assert torch.equal(layer(x), before) and "weight" not in layer._parameters
    assert not parametrize.is_parametrized(layer)


def test_weight_that_is_read_gives_plain_tensors_to_write():
    layer, _ = layer_and_input("linear")
    for result in (layer.weight.clone(), layer.weight + 0, layer.weight.to(torch.float64)):
        assert type(result) is torch.Tensor
        result.detach().zero_()
    torch.zeros(48, 32).add_(layer.weight.detach())
    assert layer.weight.grad is None  # without torch's warning of tensors that are no leaves
    kept = layer.weight
    kept.retain_grad()
    kept.square().sum().backward()
    torch.testing.assert_close(kept.grad, 2 * kept.detach().clone())
    read = layer.weight.detach()
    for same in (copy.deepcopy(read), pickle.loads(pickle.dumps(read))):
        assert torch.equal(same, read) and type(same) is torch.Tensor


@pytest.mark.parametrize("kind", ["linear", "convolution", "embedding"])
def test_weights_in_lists_and_as_rows_read_like_those_of_torch(kind):
    layer, _ = layer_and_input(kind)
    plain = layer.weight.detach().clone()
    rows = layer.weight.view(-1), layer.weight.reshape(-1)
    assert torch.equal(torch.cat(rows), torch.cat([plain.view(-1)] * 2))
    assert torch.equal(torch.stack([layer.weight, layer.weight]), torch.stack([plain, plain]))
    assert torch.equal(torch._foreach_norm([layer.weight])[0], torch._foreach_norm([plain])[0])
    vector = torch.nn.utils.parameters_to_vector([layer.weight, layer.weight])
    assert torch.equal(vector, torch.cat([plain.view(-1)] * 2))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_state_of_a_dense_model_is_refused_with_the_remedy(strict, compiled):
    # With strict=False the biases alone were loaded, and the run went on with fresh factors.
    dense = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=8), torch.nn.ReLU(), tnn.TTLinear(64, 10))
    model = trainwright.compile(model, batch=8) if compiled else model
    with pytest.raises(RuntimeError, match=r"0\.weight is that of a dense.*from_torch.*load_dense"):
        model.load_state_dict(dense.state_dict(), strict=strict)


@pytest.mark.parametrize("kept", ["parameters", "all but quantisers"])
@pytest.mark.parametrize("scale", [2, 16, 1 / 16])
@pytest.mark.parametrize("compiled", [False, True])
def test_partial_state_computes_as_its_weights_say(kept, scale, compiled):
    # Exponents of before, coarser by a bit, took 27 % of the outputs without a word.
    x, layer, other = torch.randn(64, 16), *(tnn.TTLinear(16, 16, rank=4) for _ in range(2))
    exact = x @ torch.einsum("ajib,bklc->jkil", *layer.factors).reshape(16, 16).mT
    other.set_factors([factor * scale for factor in layer.factors])
    model = trainwright.compile(other, batch=64) if compiled else other
    model(x * scale).square().mean().backward()
    state = {
        name: value
        for name, value in layer.state_dict().items()
        if name in dict(layer.named_parameters()) or (kept != "parameters" and "quant" not in name)
    }
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert "quantise_input.exponent" in missing
    assert ("factor_exponents" in missing) == (kept == "parameters")
    error = (model.eval()(x) - exact).norm() / exact.norm()
    assert error < 0.25  # of factors of 4 bits


def test_partial_state_without_a_layer_leaves_its_exponents():
    parts = [tnn.TTLinear(16, 16, rank=2), tnn.TTLinear(16, 4, rank=2)]
    model = trainwright.compile(torch.nn.Sequential(*parts), batch=8)
    model(torch.rand(8, 16)).square().mean().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(parts[1].state_dict(prefix="1."), strict=False)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


# -- Types and devices ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_layer_of_every_type_accepts_and_returns_it(kind, numbers):
    for dtype in TYPES:
        layer, x = layer_and_input(kind, numbers, dtype=dtype, device="cpu")
        x = x.to(dtype) if x.is_floating_point() else x
        y = layer(x)
        (y.sum() + layer.rank_prior()).backward()
        assert {y.dtype, layer.weight.dtype, layer.factors[0].grad.dtype} == {dtype}
        assert layer.bias is None or layer.bias.dtype == dtype
        exact = copy.deepcopy(layer).double().eval()  # the same factors and exponents
        wanted = exact(x.double() if x.is_floating_point() else x)
        near = 2e-2 if dtype in HALF else 1e-3
        torch.testing.assert_close(layer.eval()(x).double(), wanted, rtol=near, atol=near)
        layer.cut_ranks(0.5)
        assert layer.to(torch.float32)(layer_and_input(kind)[1]).dtype is torch.float32


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_around_dense_and_train_layers_returns_its_type(dtype, numbers):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), tnn.TTConv2d(4, 8, 3, rank=8, numbers=numbers),
        torch.nn.Flatten(), torch.nn.Linear(128, 32), tnn.TTLinear(32, 16, numbers=numbers),
    )  # fmt: skip
    x = torch.rand(2, 3, 8, 8)
    exact = model(x)
    model.eval()
    with torch.autocast("cpu", dtype=dtype):
        parts = [x]
        for layer in model:
            parts.append(layer(parts[-1]))
        assert {part.dtype for part in parts[1:]} == {dtype}
        assert model[1](torch.rand(1, 4, 8, 8)).dtype is dtype  # float32 in, as torch's
        parts[-1].float().sum().backward()  # within, as in many loops
        assert model[4].weight.dtype is torch.float32
    assert float((parts[-1] - exact).detach().norm()) < 0.05 * float(exact.detach().norm())
    assert all(p.grad.isfinite().all() and p.grad.dtype is p.dtype for p in model.parameters())
    for place, given in ((1, torch.rand(1, 4, 8, 8)), (4, torch.rand(2, 32))):
        wanted = model[place](given).to(dtype)
        with torch.autocast("cpu", dtype=dtype):  # computed in float32, whatever is asked for
            assert torch.equal(model[place](given), wanted)
    with torch.autocast("cpu", dtype=dtype):  # torch leaves float64 alone
        assert copy.deepcopy(model[4]).double()(torch.rand(2, 32).double()).dtype is torch.float64


@pytest.mark.parametrize("numbers", NUMBERS)
def test_norm_under_autocast_has_the_type_of_torchs(numbers):
    # In bfloat16 the sums of a transformer would lose bits from block to block.
    dense = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0)
    model = tnn.from_torch(dense, rank=2, norms=True, numbers=numbers)
    rounds = numbers != "float32"
    compiled = trainwright.compile(model, batch=32, effort=2000) if rounds else model
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(2, 5, 32, dtype=dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert dense.norm1(x).dtype is model.norm1(x).dtype is dtype
            assert dense(x).dtype is model(x).dtype is compiled(x).dtype is dtype


def test_layer_of_numpy_sizes_has_those_of_python():
    """Sizes come from data: ``labels.max() + 1``, ``np.unique``, shapes of arrays."""
    two, sizes = np.int64(2), np.array([4, 8])
    layers = [
        tnn.TTLinear(np.int64(64), np.int64(32), rank=two, outputs=sizes, inputs=(*sizes * two,)),
        tnn.TTConv2d(np.int64(4), np.int64(16), two, rank=[two], padding=np.array([0, 1])),
        tnn.TTEmbedding(np.int64(64), np.int64(32), rank=two, padding_idx=np.int64(3)),
        tnn.TTLayerNorm(np.int64(16)),
        tnn.TokenAttention(np.int64(2)),
    ]
    plain = [
        tnn.TTLinear(64, 32, rank=2, outputs=[4, 8], inputs=(8, 16)),
        tnn.TTConv2d(4, 16, 2, rank=[2], padding=(0, 1)),
        tnn.TTEmbedding(64, 32, rank=2, padding_idx=3),
        tnn.TTLayerNorm(16),
        tnn.TokenAttention(2),
    ]
    for numpys, pythons in zip(layers, plain, strict=True):
        assert repr(numpys) == repr(pythons)
        assert [p.shape for p in numpys.parameters()] == [p.shape for p in pythons.parameters()]
    dense = torch.nn.Sequential(torch.nn.Linear(64, 32))
    model = trainwright.from_torch(dense, rank=two, tolerance=np.float32(0.99))
    compiled = trainwright.compile(model, batch=np.int64(16), effort=np.int64(9000))
    assert compiled.report().batch == 16 and model[0].ranks == (1,)
    with pytest.raises(NetworkError, match=r"rank must be at least 1.*not 2.5"):
        tnn.TTLinear(64, 32, rank=np.float64(2.5))


def test_input_of_another_type_is_one_error_naming_both():
    linear, x = layer_and_input("linear")
    with pytest.raises(TypeError, match=r"torch\.float32 .*inputs of torch\.float64.*x\.to\("):
        linear(x.double())
    with pytest.raises(TypeError, match=r"inputs of torch\.int64"):
        linear(x.long())
    with pytest.raises(TypeError, match=r"indices of torch\.int64 or torch\.int32"):
        layer_and_input("embedding")[0](torch.rand(2))
    with pytest.raises(NetworkError, match=r"dtype.*torch\.int8"):
        tnn.TTLinear(32, 32, dtype=torch.int8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_layer_on_meta_device_has_shapes_and_is_filled_later(kind, numbers):
    with torch.device("meta"):
        layer, _ = layer_and_input(kind, numbers)
    given, x = layer_and_input(kind, numbers)
    shape = given(x).shape
    assert layer(x.to("meta")).is_meta and layer(x.to("meta")).shape == shape
    assert layer.weight.shape == given.weight.shape
    filled = copy.deepcopy(layer).to_empty(device="cpu")
    for state in filled.buffers():
        state.fill_(1)  # memory is what it happens to be
    torch.manual_seed(5)
    filled.reset_parameters()
    torch.manual_seed(5)
    assert torch.equal(filled(x), layer_and_input(kind, numbers)[0](x))
    layer.load_state_dict(given.state_dict(), assign=True)
    assert torch.equal(layer.eval()(x), given.eval()(x))
    result = torch.nn.utils.skip_init(type(given), *(4, 8, 3)[: 3 if kind == "convolution" else 2])
    result.reset_parameters()


def test_numbers_set_in_eval_mode_leave_it():
    layer, _ = layer_and_input("linear")
    layer.eval().set_numbers("activation=posit(8,0)")
    assert not any(part.training for part in layer.modules())
    embedding, indices = layer_and_input("embedding")
    names = embedding.state_dict().keys()
    embedding.set_numbers("factor=fixed(8)")
    assert embedding(indices).shape == (6, 16) and embedding.state_dict().keys() == names


@pytest.mark.parametrize("shape", [(0, 4, 6, 6), (4, 6, 6)], ids=str)
def test_convolution_without_samples_or_batch_has_torchs_shape(shape):
    layer, _ = layer_and_input("convolution")
    x = torch.rand(shape)
    assert layer(x).shape == torch.nn.Conv2d(4, 8, 3)(x).shape
    assert tnn.TTEmbedding(40, 16)(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3, 16)


@pytest.mark.parametrize("numbers", ["float32", "fixed"])
@pytest.mark.parametrize(
    ("make", "x"),
    [
        (functools.partial(tnn.TTConv2d, 2, 8, 3), torch.rand(4, 2, 6, 6)),
        (functools.partial(tnn.TTLinear, 64, 33, bias=False), torch.rand(4, 3, 64)),
        (functools.partial(tnn.TTEmbedding, 40, 33), torch.arange(12).reshape(4, 3)),
    ],
)
def test_outputs_of_a_layer_are_viewed_as_those_of_torch(make, x, numbers):
    y = make(numbers=numbers)(x)
    assert torch.equal(y.view(y.size(0), -1), y.flatten(1))


# -- Options of torch's layers -------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # of torch's layer
@pytest.mark.parametrize("numbers", ["float32", "fixed"])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": "same"},
        {"padding": "same", "kernel_size": (2, 4)},
        {"padding": "same", "kernel_size": (4, 3), "dilation": (1, 2)},
        {"padding": "valid", "stride": 2},
        {"padding": (1, 2), "padding_mode": "reflect"},
        {"padding": "same", "kernel_size": (2, 3), "padding_mode": "circular"},
        {"padding": 1, "padding_mode": "replicate", "stride": (1, 2), "dilation": 2},
    ],
    ids=str,
)
def test_convolution_with_options_is_torchs_own(options, numbers):
    sizes = {"kernel_size": 3, **options}
    layer = tnn.TTConv2d(4, 8, **sizes, rank=100, numbers=numbers)
    dense = torch.nn.Conv2d(4, 8, **sizes)
    x = torch.randn(2, 4, 9, 8)
    with torch.no_grad():
        dense.weight.copy_(layer.weight)
        dense.bias.copy_(layer.used_bias())
    near = 1e-5 if numbers == "float32" else 0.02
    wanted = dense(x).detach()
    assert float((layer(x).detach() - wanted).norm()) <= near * float(wanted.norm())
    back = tnn.to_torch(layer)
    torch.testing.assert_close(back(x), wanted, rtol=1e-5, atol=1e-5)
    result = tnn.from_torch(dense, rank=4, numbers="factor=fixed(4)")
    assert result(x).shape == wanted.shape and result.padding_mode == dense.padding_mode


@pytest.mark.parametrize(
    "options, message",
    [
        ({"groups": 2}, r"groups=2.*torch\.nn\.Conv2d"),
        ({"padding": "same", "stride": 2}, r'padding="same" needs a stride of 1'),
        ({"padding": "full"}, r'"same" or "valid", not .full.'),
        ({"padding_mode": "mirror"}, r"padding_mode must be one of zeros.*mirror"),
    ],
)
def test_convolution_option_that_cannot_be_is_one_error(options, message):
    with pytest.raises(NetworkError, match=message):
        tnn.TTConv2d(4, 8, 3, **options)


def test_padding_row_of_embedding_is_zero_without_gradient():
    for padding in (0, -1):
        layer = tnn.TTEmbedding(40, 16, rank=4, numbers="float32")
        layer.padding_idx = padding  # counted from the end where negative, like an argument
        dense = torch.nn.Embedding(40, 16, padding)
        assert layer.padding_idx == dense.padding_idx
        assert tnn.TTEmbedding(40, 16, padding, rank=4).padding_idx == dense.padding_idx
        indices = torch.tensor([[0, 39], [5, 0]])
        with torch.no_grad():
            dense.weight.copy_(layer.weight)
        torch.testing.assert_close(layer(indices), dense(indices), rtol=1e-6, atol=1e-6)
        gradients = torch.autograd.grad(layer(torch.tensor([padding % 40])).sum(), layer.factors[0])
        assert not gradients[0].any()
        back = tnn.to_torch(layer)
        assert back.padding_idx == padding % 40 and not back.weight[padding].any()
    with pytest.raises(NetworkError, match=r"padding_idx.*40 rows, not 40"):
        tnn.TTEmbedding(40, 16, 40)


# -- Averages, copies, state ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True}], ids=len
)
def test_averaged_model_goes_on_after_its_columns_were_cut(options):
    model = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=6, numbers="float32"))
    averaged = AveragedModel(model, **options)
    factors = [[f.detach().clone() for f in model[0].factors]]
    averaged.update_parameters(model)
    with torch.no_grad():
        for factor in model[0].factors:
            factor.mul_(3)
        model[0].factors[0][..., [1, 4]] = 0
    factors.append([f.detach().clone() for f in model[0].factors])
    assert tnn.cut_ranks(model, 1e-6, averaged=averaged) and model[0].ranks == (4,)
    averaged.update_parameters(model)
    share = 0.1 if options else 0.5
    kept = [0, 2, 3, 5]
    for n, outputs in enumerate(averaged.module[0].factors):
        wanted = factors[0][n].lerp(factors[1][n], share)
        wanted = wanted[..., kept] if n == 0 else wanted[kept]
        torch.testing.assert_close(outputs, wanted, check_stride=False)
    fresh = AveragedModel(copy.deepcopy(model), **options)
    fresh.load_state_dict(averaged.state_dict())
    x = torch.rand(3, 64)
    assert torch.equal(fresh(x), averaged(x)) and torch.equal(copy.deepcopy(averaged)(x), fresh(x))


def _fewer_ranks(layer, way):
    if way == "cut":
        with torch.no_grad():
            layer.factors[0][..., 2:] *= 1e-6
        assert layer.cut_ranks()
    elif way == "load_dense":
        layer.load_dense(torch.randn_like(layer.weight), rank=2)
    else:
        layer.load_state_dict(type(layer)(32, 48, rank=2, numbers=layer.numbers).state_dict())


@pytest.mark.parametrize("way", ["cut", "load_dense", "load_state_dict"])
@pytest.mark.parametrize("result", ["output", "weight", "prior"])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("kind", [tnn.TTLinear, tnn.TTEmbedding])
def test_ranks_that_change_before_the_backward_pass_are_one_error(kind, numbers, result, way):
    layer = kind(32, 48, rank=4, numbers=numbers)
    x = torch.arange(3) if kind is tnn.TTEmbedding else torch.rand(3, 32)
    results = {
        "output": lambda: layer(x),
        "weight": lambda: layer.weight,
        "prior": layer.rank_prior,
    }
    loss = results[result]().sum()
    _fewer_ranks(layer, way)
    with pytest.raises(RuntimeError, match="ranks were changed in between; call cut_ranks after"):
        loss.backward()
    results[result]().sum().backward()
    assert all(factor.grad.shape == factor.shape for factor in layer.factors)


@pytest.mark.parametrize("way", ["load_dense", "load_state_dict"])
def test_gradient_of_earlier_ranks_is_dropped_by_a_load_of_other_ranks(way):
    layer, x = tnn.TTLinear(32, 48, rank=4), torch.rand(3, 32)
    layer(x).sum().backward()
    _fewer_ranks(layer, way)
    layer(x).sum().backward()
    assert all(factor.grad.shape == factor.shape for factor in layer.factors)


def test_averaged_model_left_out_of_a_cut_is_one_error():
    model = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=6))
    averaged = AveragedModel(model)
    averaged.update_parameters(model)
    with torch.no_grad():
        model[0].factors[0][..., 1:] = 0
    assert tnn.cut_ranks(model, 1e-6)
    assert model[0].ranks == (1,)  # torch would stretch the single column over all six
    with pytest.raises(ValueError, match=r"its average.*cut_ranks\(\.\.\., averaged="):
        averaged.update_parameters(model)
    with pytest.raises(ValueError, match=r"averaged has ranks \(6,\), this layer \(1,\)"):
        tnn.cut_ranks(model, 0.99, averaged=averaged)
    with pytest.raises(ValueError, match="averaged has 0 tensor-train layers"):
        tnn.cut_ranks(model, 0.99, averaged=torch.nn.ReLU())


def test_copies_and_files_of_cut_ranks_compute_the_same():
    model = tnn.from_torch(torch.nn.Sequential(torch.nn.Linear(64, 64)), rank=6)
    x = torch.rand(3, 64)
    model(x)
    assert tnn.cut_ranks(model, 0.9)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    fresh = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=6))
    fresh.load_state_dict(model.state_dict())
    wanted = model.eval()(x)
    pickled = pickle.loads(pickle.dumps(model))
    for other in (copy.deepcopy(model), pickled, torch.load(buffer, weights_only=False), fresh):
        assert torch.equal(other.eval()(x), wanted) and other[0].ranks == model[0].ranks


# -- Transforms, recording, compilation ----------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jacfwd scripts inside torch
@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_transforms_of_settled_layer_are_those_of_autograd(kind, numbers):
    layer, x = layer_and_input(kind, numbers)
    layer(x)
    layer.eval()
    parameters = dict(layer.named_parameters())

    def loss(values, samples):
        return functional_call(layer, values, (samples,)).square().sum()

    def near(outputs, wanted):
        scale = float(wanted.detach().abs().max())
        torch.testing.assert_close(outputs, wanted, rtol=1e-3, atol=1e-4 * scale)

    outputs = grad(loss)(parameters, x)
    loss(parameters, x).backward()
    samples = vmap(grad(lambda p, s: loss(p, s[None])), in_dims=(None, 0))(parameters, x)
    for name, parameter in parameters.items():
        near(outputs[name], parameter.grad)
        single = [grad(loss)(parameters, x[n : n + 1])[name] for n in range(len(x))]
        near(samples[name], torch.stack(single))
    near(vmap(layer)(x), layer(x))
    near(vmap(layer, in_dims=1)(x.transpose(0, 1)), layer(x))
    wanted = torch.autograd.functional.jacobian(lambda s: layer(s[None])[0], x[0])
    near(jacrev(lambda s: layer(s[None])[0])(x[0]), wanted)
    near(jacfwd(lambda s: layer(s[None])[0])(x[0]), wanted)


def test_gradient_of_each_sample_is_rounded_at_its_own_scale():
    values = torch.tensor([[0.75], [2.0**-20]])  # a common scale of 16 bits would lose the second

    def halves(v):
        return gradient_rounded(v, Fixed(16)).square().sum() / 2

    assert torch.equal(vmap(grad(halves))(values), values)
    assert torch.equal(grad(lambda v: vmap(halves)(v).sum())(values), values)
    assert not grad(halves)(values)[1].any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # hessian scripts inside torch
def test_transforms_of_float_layers_go_further():
    layers = [layer_and_input("linear", "float32")[0] for _ in range(3)]
    x = torch.rand(2, 32)
    stacked = stack_module_state(layers)
    outputs = vmap(lambda p, b: functional_call(layers[0], (p, b), (x,)))(*stacked)
    torch.testing.assert_close(outputs, torch.stack([layer(x) for layer in layers]))
    dense = tnn.to_torch(layers[0])
    second = [hessian(lambda s, f=f: f(s).pow(3).sum())(x[0]) for f in (layers[0], dense)]
    torch.testing.assert_close(*second, rtol=1e-4, atol=1e-4)


def test_transform_that_hides_exponents_is_one_error_with_remedy():
    layer, x = layer_and_input("linear")
    with pytest.raises(RuntimeError, match=r"model\.eval\(\) after a batch.*to_torch"):
        vmap(layer)(x)
    layer(x)
    with pytest.raises(RuntimeError, match=r"model\.eval\(\), or.*to_torch"):
        grad(lambda s: layer(s).sum())(x)
    layer.eval()
    with pytest.raises(RuntimeError, match=r"vmap hides.*to_torch"):
        vmap(lambda p, b: functional_call(layer, (p, b), (x,)))(*stack_module_state([layer, layer]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_float_layer_is_traced_exported_and_compiled_whole(kind):
    layer, x = layer_and_input(kind, "float32")
    wanted = layer(x)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(layer, x), buffer)
    buffer.seek(0)
    batch = {0: torch.export.Dim("batch", min=2, max=64)}
    exported = torch.export.export(layer, (x,), dynamic_shapes=(batch,)).module()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    larger = torch.cat([x, x])
    for result in (torch.jit.load(buffer), exported, compiled):
        torch.testing.assert_close(result(x), wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(result(larger), layer(larger), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_layer_is_recorded_as_its_dense_model_only(kind):
    layer, x = layer_and_input(kind)
    layer(x)
    layer.quantise_output.set_exponent(-13)
    model = torch.nn.Sequential(layer).eval()
    for record in (
        lambda: torch.jit.trace(model, x),
        lambda: torch.export.export(model, (x,)),
        lambda: torch.jit.script(model),
        lambda: torch.onnx.export(model, (x,), io.BytesIO(), dynamo=False),
    ):
        with pytest.raises(RuntimeError, match=r"trainwright\.to_torch\(model\)"):
            record()
    dense = tnn.to_torch(model)
    wanted = model(x).detach()
    for result in (torch.jit.trace(dense, x), torch.jit.script(dense)):
        assert float((result(x).detach() - wanted).norm()) < 0.02 * float(wanted.norm())


@pytest.mark.parametrize("numbers", NUMBERS)
def test_compiled_model_around_layers_is_quick_and_without_warnings(numbers):
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 32), tnn.TTLinear(32, 48, rank=4, numbers=numbers), torch.nn.ReLU()
    )
    x = torch.rand(8, 32)
    model(x)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        compiled = torch.compile(model, backend="eager")
        compiled(x).sum().backward()  # training mode: exponents follow
        model.eval()
        model.zero_grad()
        outputs = compiled(x)
        outputs.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    wanted = model(x)
    wanted.sum().backward()
    torch.testing.assert_close(outputs, wanted, rtol=1e-4, atol=1e-4)
    for single, p in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(single, p.grad, rtol=1e-3, atol=1e-3)
    assert not said and time.process_time() - start < 20  # it was 141 s


class ReadsWeight(torch.nn.Module):
    """Module that reads the weight of a layer and never calls the layer."""

    def __init__(self, numbers):
        super().__init__()
        self.layer = layer_and_input("linear", numbers)[0]

    def forward(self, x):
        return torch.nn.functional.linear(x, self.layer.weight, self.layer.bias)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of torch's compiler
@pytest.mark.parametrize("numbers", ["fixed", "float32"])
def test_weight_that_a_module_reads_is_compiled_and_transformed(numbers):
    model = ReadsWeight(numbers).eval()
    x = torch.rand(3, 32)
    wanted = model(x)
    results = [torch.compile(model, backend="eager")(x), vmap(model)(x)]
    if numbers == "float32":
        results.append(torch.export.export(model, (x,)).module()(x))
    else:
        with pytest.raises(RuntimeError, match=r"trainwright\.to_torch\(model\)"):
            torch.export.export(model, (x,))
    for result in results:
        assert type(result) is torch.Tensor
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


def test_compiled_transformer_calls_its_rounding_layers():
    dense = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = tnn.from_torch(dense, rank=24)
    x = torch.randn(2, 5, 64)
    model(x)
    with torch.no_grad():
        wanted = model.eval()(x)
        torch.testing.assert_close(torch.compile(model, backend="eager")(x), wanted)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_symbolic_trace_keeps_layers_whole(numbers):
    inner = torch.nn.Sequential(layer_and_input("linear", numbers)[0], torch.nn.ReLU())
    model = torch.nn.Sequential(inner, torch.nn.Linear(48, 8))
    x = torch.rand(3, 32)
    model(x)
    graph = torch.fx.symbolic_trace(model.eval())
    assert torch.equal(graph(x), model(x))
    targets = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert targets == ["0.0", "0.1", "1"]
    with pytest.raises(RuntimeError, match=r"^[^\n]*Sequential\(layer\)$"):
        torch.fx.symbolic_trace(inner[0])


@pytest.mark.parametrize("rows, columns", ((16, 16), (1, 8), (3, 40)))
def test_fresh_layer_of_few_features_is_never_zero(rows, columns):
    # One normal value in 4 bits is 0 in a sixth of all layers, and with it the whole weight.
    for seed in range(30):
        torch.manual_seed(seed)
        layer = tnn.TTLinear(columns, rows, rank=3)
        wanted = 2 / columns
        assert 0.1 * wanted < layer.weight.square().mean() < 8 * wanted
    table = {"outputs": [1, 16], "inputs": [1, 16], "ranks": [1]}
    network = network_from_dict({"classes": 4, "image": [4, 4], "layers": [table]})
    first = [initial_factors(network, seed)[0][0][0].value for seed in range(30)]
    assert len({abs(float(value)) for value in first}) == 1


def test_strict_export_of_rounding_layers_names_the_dense_model():
    layer = tnn.TTLinear(16, 4, rank=2)
    for module in (layer, trainwright.compile(copy.deepcopy(layer), batch=2)):
        with pytest.raises(Exception, match="have no graph: export the dense model") as caught:
            torch.export.export(module, (torch.zeros(2, 16),), strict=True)
        assert "trainwright.to_torch(model)" in str(caught.value).splitlines()[1]


class _Halved(torch.nn.Module):
    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("compiled", (False, True))
@pytest.mark.parametrize("place", ("0", "1"))
def test_pruned_or_parametrised_factor_is_one_error_and_no_other_weight(place, compiled):
    for change in (
        lambda factors: prune.l1_unstructured(factors, place, 0.5),
        lambda factors: parametrize.register_parametrization(factors, place, _Halved()),
    ):
        layer = tnn.TTLinear(32, 32, rank=2)
        model = trainwright.compile(layer, batch=2) if compiled else layer
        change(layer.factors)
        with pytest.raises(RuntimeError, match=r"were pruned or parametrised .* has no effect"):
            model(torch.rand(2, 32))
    plain = tnn.TTLinear(32, 32, rank=2)
    x, wanted = torch.rand(2, 32), plain.eval()(torch.zeros(2, 32))
    prune.l1_unstructured(plain.factors, place, 0.5)
    prune.remove(plain.factors, place)
    assert plain(x).shape == wanted.shape and (plain.factors[int(place)] == 0).any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # hessian scripts inside torch
def test_hessian_of_rounding_layers_is_that_of_their_rounded_weights():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        tnn.TTLinear(20, 32, rank=6), torch.nn.Tanh(), tnn.TTLinear(32, 3, rank=6)
    )
    x = torch.randn(16, 20)
    model(x).sum().backward()
    dense = tnn.to_torch(model.eval()).double()
    own = torch.func.hessian(lambda v: model(v).square().sum())(x[0])
    wanted = torch.func.hessian(lambda v: dense(v).square().sum())(x[0].double())
    assert (own - wanted).norm() < 0.1 * wanted.norm()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("numbers", ["float32", "fixed"])
def test_forward_mode_gradient_of_a_layer_is_the_product_with_its_weight(numbers):
    layer, x = tnn.TTLinear(20, 32, rank=6, numbers=numbers), torch.randn(16, 20)
    layer(x)
    layer.eval()
    tangent = torch.randn(16, 20)
    with torch.autograd.forward_ad.dual_level():
        dual = layer(torch.autograd.forward_ad.make_dual(x, tangent))
        result = torch.autograd.forward_ad.unpack_dual(dual).tangent
    torch.testing.assert_close(result, tangent @ layer.weight.T, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("compiled", (False, True))
def test_factors_in_memory_that_others_hold_are_changed_there(compiled):
    """Hold a factor as a flat buffer or another process would: a step and a load reach it."""
    layer = tnn.TTLinear(32, 32, rank=4).share_memory()
    model = trainwright.compile(layer, batch=4) if compiled else layer
    held, x = layer.factors[0].data.view(-1), torch.rand(4, 32)
    step = 2.0 ** float(layer.factor_exponents[0])
    held[3] = 100 * step  # beyond the words of 4 bits, -8 to 7
    model(x).sum().backward()
    assert held[3] == 7 * step and (held != 0).sum() > 1
    before = held.clone()
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    model(x)
    assert not torch.equal(held, before)
    model.load_state_dict({k: v * 0 for k, v in model.state_dict().items()})
    assert not held.any()
    layer.set_factors([torch.ones_like(factor) for factor in layer.factors])
    assert bool((held == 1).all()) and all(factor.is_shared() for factor in layer.factors)


def test_shared_factors_whose_rank_changes_stay_shared_with_a_warning():
    layer = tnn.TTLinear(32, 32, rank=4, numbers="float32").share_memory()
    state = tnn.TTLinear(32, 32, rank=2, numbers="float32").state_dict()
    with pytest.warns(UserWarning, match="other processes keep the factors of before"):
        layer.load_state_dict(state)
    assert all(factor.is_shared() for factor in layer.factors) and layer.ranks == (2,)


@pytest.mark.parametrize("training", (False, True))
@pytest.mark.parametrize("kind", ("float32", "fixed", "compiled"))
def test_vectorised_jacobian_of_a_layer_is_its_weight(kind, training):
    layer = tnn.TTLinear(20, 12, rank=4, numbers="float32" if kind == "float32" else "fixed")
    model = trainwright.compile(layer, batch=4) if kind == "compiled" else layer
    x = torch.randn(4, 20)
    model(x).sum().backward()
    model.train(training)
    own = torch.autograd.functional.jacobian(model, x, vectorize=True)
    wanted = torch.zeros(4, 12, 4, 20)
    for sample in range(4):
        wanted[sample, :, sample] = layer.to_dense().weight.detach()
    assert own.shape == wanted.shape and (own - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.parametrize("kind", ("float32", "fixed", "compiled"))
def test_gradients_computed_together_are_those_computed_alone(kind):
    layer = tnn.TTLinear(20, 12, rank=4, numbers="float32" if kind == "float32" else "fixed")
    model = trainwright.compile(layer, batch=4) if kind == "compiled" else layer
    x, given = torch.randn(4, 20, requires_grad=True), torch.randn(5, 4, 12)
    model(x).sum().backward()
    model.eval()
    y, wanted_of = model(x), [x, *model.parameters()]
    together = torch.autograd.grad(y, wanted_of, given, is_grads_batched=True, retain_graph=True)
    alone = [torch.autograd.grad(y, wanted_of, each, retain_graph=True) for each in given]
    for own, wanted in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(own, torch.stack(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch scripts parts of its own
def test_graph_of_a_rounding_layer_is_one_error_and_of_a_float_layer_its_products():
    x = torch.rand(3, 32)
    for record in (lambda m: make_fx(m)(x), lambda m: torch.func.linearize(m, x)):
        layer, _ = layer_and_input("linear")
        layer(x)
        with pytest.raises(RuntimeError, match=r"trainwright\.to_torch\(model\)"):
            record(layer.eval())
    layer, _ = layer_and_input("linear", "float32")
    torch.testing.assert_close(make_fx(layer)(x)(x), layer(x))


@pytest.mark.parametrize("numbers", NUMBERS)
def test_inputs_on_another_device_are_one_error(numbers):
    layers = {
        tnn.TTLinear(32, 16, rank=2, numbers=numbers): torch.rand(3, 32),
        tnn.TTConv2d(2, 16, 3, numbers=numbers): torch.rand(3, 2, 8, 8),
        tnn.TTEmbedding(32, 16, rank=2, numbers=numbers): torch.arange(3),
    }
    for layer, x in layers.items():
        with pytest.raises(ValueError, match=r"parameters on cpu .* inputs on meta: .*x\.to"):
            layer(x.to("meta"))


def test_inputs_of_eight_bits_are_one_error():
    x, layer = torch.rand(3, 32).to(torch.float8_e4m3fn), tnn.TTLinear(32, 16, rank=2)
    with pytest.raises(TypeError, match=r"float8_e4m3fn: convert the inputs, .*float32\)$"):
        layer(x)
    with (
        torch.autocast("cpu"),
        pytest.raises(TypeError, match="float8_e4m3fn: convert the inputs"),
    ):
        layer(x)
    with pytest.raises(TypeError, match=r"must be float16, .* not torch\.float8_e4m3fn: convert"):
        trainwright.compile(layer, batch=4)(x)
