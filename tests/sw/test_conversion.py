"""`from_torch` and `to_torch` keep every option of a model or name why a layer stays dense."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import trainwright
import trainwright.nn as tnn


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


def with_setup(layer, setup):
    setup(layer)
    return layer


def old_weight_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = nn.utils.weight_norm(nn.Linear(64, 64))
    layer(torch.rand(2, 64))  # its weight is no leaf now, which deepcopy refuses
    return layer


def pruned():
    layer = nn.Linear(64, 64)
    prune.l1_unstructured(layer, "weight", 0.5)
    layer(torch.rand(2, 64))
    return layer


class OwnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.zeros(4, 5))
        self.scale = nn.Parameter(torch.zeros(5))


def weight_as_buffer(layer):
    weight = layer._parameters.pop("weight")
    layer.register_buffer("weight", weight.detach())


table = torch.rand(100, 64)

DENSE = {
    "small": (nn.Linear(4, 4), r"ranks 1 has 1,028 bits, not fewer"),
    "subclass": (OwnLinear(64, 64), r"OwnLinear is a class derived from Linear"),
    "own parameter": (Holder(), r"Holder: it holds position itself"),
    "own forward": (
        with_setup(nn.Linear(64, 64), lambda m: setattr(m, "forward", lambda x: x)),
        r"mean something else in TTLinear: forward",
    ),
    "own buffer": (
        with_setup(nn.Linear(64, 64), lambda m: m.register_buffer("mask", torch.ones(64))),
        r"further parts: mask",
    ),
    "buffer": (with_setup(nn.Linear(64, 64), weight_as_buffer), r"its weight is no parameter"),
    "gradient hook": (
        with_setup(nn.Linear(64, 64), lambda m: m.weight.register_hook(lambda g: g)),
        r"hook on the gradient of its weight",
    ),
    "state hook": (
        with_setup(nn.Linear(64, 64), lambda m: m.register_state_dict_pre_hook(lambda *_: None)),
        r"hooks of its state_dict",
    ),
    "weight_norm": (parametrizations.weight_norm(nn.Linear(64, 64)), r"_WeightNorm.*remove_param"),
    "spectral": (parametrizations.spectral_norm(nn.Linear(64, 64)), r"_SpectralNorm"),
    "old weight_norm": (old_weight_norm(), r"computed from weight_g, weight_v by a hook"),
    "pruned": (pruned(), r"computed from weight_orig by a hook"),
    "complex": (nn.Linear(64, 64, dtype=torch.complex64), r"torch\.complex64"),
    "groups": (nn.Conv2d(64, 64, 3, groups=4), r"groups=4"),
    "conv1d": (nn.Conv1d(64, 64, 3), r"no tensor-train layer of Conv1d"),
    "conv3d": (nn.Conv3d(8, 8, 3), r"Conv3d"),
    "transposed": (nn.ConvTranspose2d(8, 8, 3), r"ConvTranspose2d"),
    "lstm": (nn.LSTM(64, 64), r"no tensor-train layer of LSTM"),
    "gru": (nn.GRU(64, 64), r"GRU"),
    "rnn": (nn.RNN(64, 64), r"RNN"),
    "cell": (nn.LSTMCell(64, 64), r"LSTMCell"),
    "attention": (nn.MultiheadAttention(64, 4, kdim=32), r"kdim=32 and vdim=64"),
    "bag": (nn.EmbeddingBag(100, 64), r"EmbeddingBag"),
    "bilinear": (nn.Bilinear(8, 8, 8), r"Bilinear"),
    "lazy": (nn.LazyLinear(10), r"LazyLinear has no weight yet"),
    "max_norm": (nn.Embedding(100, 64, max_norm=1.5, norm_type=1), r"max_norm=1\.5 .norm_type=1"),
    "frequency": (nn.Embedding(100, 64, scale_grad_by_freq=True), r"scale_grad_by_freq"),
    "sparse": (nn.Embedding(100, 64, sparse=True), r"sparse=True"),
    "padding row": (nn.Embedding.from_pretrained(table, padding_idx=3), r"padding_idx=3 is not 0"),
    "tensor train": (tnn.TTLinear(64, 64, rank=4), r"a tensor train already"),
}


@pytest.mark.parametrize("name", DENSE)
def test_layer_that_stays_dense_is_named_with_reason(name):
    layer, reason = DENSE[name]
    model = nn.ModuleDict({name: layer, "other": nn.Linear(64, 64)})
    converted = tnn.from_torch(model, rank=4)
    assert type(converted[name]) is type(layer)
    rows = {row.name: row for row in converted.trainwright_summary.layers}
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(rows[name].reason)
    assert name in str(converted.trainwright_summary)
    assert rows["other"].reason == "" and isinstance(converted["other"], tnn.TTLinear)
    if name != "lazy":
        for own, other in zip(layer.parameters(), converted[name].parameters(), strict=True):
            assert torch.equal(own, other)


def test_summary_has_ranks_error_and_bits_of_each_layer():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4), nn.Linear(4, 4))
    for numbers, width in (("fixed", 4), ("float32", 32)):
        converted = tnn.from_torch(model, rank=3, numbers=numbers)
        summary = converted.trainwright_summary
        assert [row.name for row in summary.layers] == ["0", "2", "3"]
        first = summary.layers[0]
        error = (converted[0].weight - model[0].weight).norm() / model[0].weight.norm()
        assert first.error == pytest.approx(float(error.detach()), rel=1e-4)
        assert first.ranks == (3,) == converted[0].ranks
        elements = sum(factor.numel() for factor in converted[0].factors)
        assert (first.bits, first.dense_bits) == (width * elements, 32 * 64 * 128)
        assert [row.name for row in summary.dense][-1] == "3"
        assert summary.bits == sum(row.bits for row in summary.layers)
        for text in ("0", "Linear", "3", f"{first.error:.1%}", f"{first.bits:,}", "not fewer"):
            assert text in str(summary)
    alone = tnn.from_torch(nn.Linear(64, 64), rank=3)
    assert "(model)" in str(alone.trainwright_summary)


def test_auto_rank_means_up_to_16_in_layers_and_conversion():
    mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 64))
    for numbers in ("fixed", "float32"):
        converted = tnn.from_torch(mlp, rank="auto", numbers=numbers)
        for n in (0, 2):
            own = tnn.TTLinear(mlp[n].in_features, mlp[n].out_features, rank="auto")
            assert converted[n].ranks == own.ranks and max(own.ranks) == 16
    with torch.no_grad():
        mlp[0].weight.copy_(tnn.TTLinear(784, 512, rank=3, numbers="float32").weight)
    reduced = tnn.from_torch(mlp, rank="auto", tolerance=1e-3, numbers="float32")
    assert reduced[0].ranks == (3, 3) and reduced[2].ranks == converted[2].ranks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("numbers", ["fixed", "float32"])
def test_model_of_another_type_accepts_its_own_inputs(dtype, numbers):
    model = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(),
        nn.Linear(64, 64),
    ).to(dtype)  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    x = torch.rand(4, 16, 4, 4, dtype=dtype)
    converted = tnn.from_torch(model, rank=8, numbers=numbers)
    y = converted(x)
    y.float().sum().backward()
    assert len(converted.trainwright_summary.converted) == 3
    assert y.dtype is dtype and {p.dtype for p in converted.parameters()} == {dtype}
    dense = tnn.to_torch(converted)
    assert {p.dtype for p in dense.parameters()} == {dtype}
    difference, wanted = dense(x).detach().double() - y.detach(), y.detach().double().norm()
    assert float(difference.norm()) < 0.05 * float(wanted)


def test_frozen_parameters_hooks_modes_and_attributes_stay_both_ways():
    frozen = nn.Linear(64, 64).requires_grad_(False)
    frozen.bias.requires_grad_(True)
    hooked = nn.Linear(64, 64).eval()
    hooked.register_forward_hook(lambda module, inputs, output: output + 100)
    hooked.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0,))
    hooked.learning_rate_scale = 0.1
    bias_only = nn.Linear(64, 64)
    bias_only.bias.requires_grad_(False)
    model = nn.Sequential(frozen, hooked, bias_only)
    converted = tnn.from_torch(model, rank=4)
    back = tnn.to_torch(converted)
    assert not any(factor.requires_grad for factor in converted[0].factors)
    assert all(factor.requires_grad for factor in converted[2].factors)
    for result in (converted, back):
        assert [layer.bias.requires_grad for layer in result] == [True, True, False]
        assert [layer.training for layer in result] == [True, False, True]
        assert result[1].learning_rate_scale == 0.1
        assert torch.allclose(result[1](torch.rand(2, 64)), hooked.bias + 100, atol=0.2)
    assert [layer.weight.requires_grad for layer in back] == [False, True, True]
    assert not hasattr(back, "trainwright_summary")


def test_gradient_hooks_of_layers_that_stay_dense_go_along():
    layer = nn.Linear(64, 64)
    seen = []
    layer.weight.register_hook(lambda gradient: seen.append(1) or gradient * 0)
    result = tnn.from_torch(nn.Sequential(layer, nn.Linear(64, 64)), rank=4)
    result(torch.rand(2, 64)).sum().backward()
    assert seen and not result[0].weight.grad.any()


class Tied(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(500, 64, **options)
        self.head = nn.Linear(64, 500)
        self.head.weight = self.embedding.weight

    def forward(self, indices):
        return self.head(self.embedding(indices))


@pytest.mark.parametrize("numbers", ["fixed", "float32"])
def test_shared_weights_stay_shared_both_ways(numbers):
    converted = tnn.from_torch(Tied(), rank=8, numbers=numbers)
    names = [name for name, _ in converted.named_parameters()]
    assert len(names) == 1 + len(converted.head.factors)
    assert converted.embedding.factors is converted.head.factors
    converted(torch.arange(9)).sum().backward()
    assert torch.equal(tnn.rank_prior(converted), converted.head.rank_prior())
    assert tnn.cut_ranks(converted, 0.9) and converted.embedding.ranks == converted.head.ranks
    for copied in (copy.deepcopy(converted), tnn.from_torch(Tied(), rank=8, numbers=numbers)):
        copied.load_state_dict(converted.state_dict())
        assert copied.embedding.factors is copied.head.factors
        assert torch.equal(copied.eval()(torch.arange(9)), converted.eval()(torch.arange(9)))
    back = tnn.to_torch(converted)
    assert back.head.weight is back.embedding.weight
    rows = converted.trainwright_summary.layers
    assert rows[1].bits == 0 < rows[0].bits  # counted once


def test_shared_weight_stays_dense_with_a_layer_that_does():
    model = Tied(max_norm=1.0)
    with pytest.warns(UserWarning, match=r"its weight is embedding\.weight too"):
        converted = tnn.from_torch(model, rank=8)
    assert converted.head.weight is converted.embedding.weight
    alike = nn.Linear(64, 64), nn.Linear(64, 64)
    alike[1].bias = alike[0].bias
    converted = tnn.from_torch(nn.Sequential(*alike), rank=4)
    assert converted[0].bias is converted[1].bias
    with pytest.warns(UserWarning, match="its weight is position too"):
        model = nn.Sequential(nn.Linear(64, 64))
        model.register_parameter("position", model[0].weight)
        tnn.from_torch(model, rank=4)


def test_shared_weight_with_padding_row_is_separate_in_torch_with_warning():
    model = Tied(padding_idx=0)
    converted = tnn.from_torch(model, rank=8).eval()
    with torch.no_grad():
        converted.head.factors[0].add_(0.1)
    with pytest.warns(UserWarning, match="'head' shares its factors.*padding_idx"):
        back = tnn.to_torch(converted)
    torch.testing.assert_close(back.head.weight, converted.head.weight.clone())
    torch.testing.assert_close(back.embedding.weight, converted.embedding.weight.clone())


@pytest.mark.parametrize("numbers", ["fixed", "float32"])
def test_transformer_runs_in_both_modes_as_its_dense_model(numbers):
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True), 2
    )
    x = torch.randn(3, 5, 64)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    calls = []
    with torch.no_grad():
        for layer in encoder.layers:
            layer.linear1.weight.mul_(8)
            layer.linear2.weight.mul_(8)
    for skip in ((), ("layers.0",)):  # torch looks at the first layer only
        converted = tnn.from_torch(encoder, rank=24, numbers=numbers, skip=skip)
        names = [row.name for row in converted.trainwright_summary.converted]
        assert ("layers.1.self_attn.query" in names) == (numbers == "fixed")  # else not fewer
        trained = converted(x).detach()
        calls.clear()
        converted.layers[1].linear1.register_forward_hook(lambda *_: calls.append(1))
        converted.eval()
        with torch.no_grad():
            outputs = converted(x)
            masked = converted(x, src_key_padding_mask=mask)
            wanted = tnn.to_torch(converted)(x)
        near = 1e-4 if numbers == "float32" else 0.03
        for other in (trained, wanted):
            assert float((outputs - other).norm()) < near * float(outputs.norm())
        torch.testing.assert_close(masked[1:], outputs[1:], rtol=1e-3, atol=1e-3)
        # torch's kernel for eval mode would call no layer; the third call is the dense model's.
        assert len(calls) == 3
    attention = tnn.from_torch(nn.Sequential(nn.Linear(64, 64), nn.MultiheadAttention(64, 4)))[1]
    for mode in (True, False):
        attention.train(mode)(x, x, x)


def test_name_in_skip_leaves_all_inside_dense():
    model = nn.Sequential(nn.Sequential(nn.Linear(64, 64)), nn.Linear(64, 64))
    converted = tnn.from_torch(model, rank=4, skip=["0"])
    assert type(converted[0][0]) is nn.Linear and isinstance(converted[1], tnn.TTLinear)
    assert converted.trainwright_summary.layers[0].reason == "named in skip"
    with pytest.raises(TypeError, match=r"skip must be a collection of names, such as \['0'\]"):
        tnn.from_torch(model, skip="0")


def test_weights_without_values_are_one_error_naming_the_layer():
    model = nn.Sequential(nn.Linear(64, 64))
    with torch.no_grad():
        model[0].weight[3, 4] = float("nan")
    with pytest.raises(ValueError, match=r"layer '0'.*NaN"):
        tnn.from_torch(model)
    with pytest.raises(ValueError, match="meta device"):
        tnn.from_torch(model.to("meta"))


class OwnTrain(tnn.TTLinear):
    def __init__(self, size):
        super().__init__(size, size, rank=4)
        self.gain = 2


class OwnForward(OwnTrain):
    def forward(self, x):
        return super().forward(x) * self.gain


def test_subclass_of_layer_goes_to_torch_by_its_own_method_only():
    result = tnn.to_torch(nn.Sequential(OwnTrain(32)))
    assert type(result[0]) is nn.Linear and result[0].gain == 2
    with pytest.raises(TypeError, match=r"layer '0' is a OwnForward.*to_dense\(\)"):
        tnn.to_torch(nn.Sequential(OwnForward(32)))


def test_pruned_bias_is_one_error_and_goes_to_torch_once_the_pruning_is_removed():
    model = nn.Sequential(tnn.TTLinear(32, 32, rank=4, numbers="float32"))
    nn.init.ones_(model[0].bias)
    prune.l1_unstructured(model[0], "bias", 0.5)
    with pytest.raises(RuntimeError, match=r"bias of layer '0' .*prune\.remove"):
        tnn.to_torch(model)
    x = torch.rand(3, 32)
    wanted = model(x)
    prune.remove(model[0], "bias")
    torch.testing.assert_close(tnn.to_torch(model)(x), wanted)


def test_from_torch_of_a_single_layer_names_it_as_the_summary_does():
    dense = torch.nn.Linear(64, 64)
    dense.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"layer '\(model\)': .* NaN"):
        trainwright.from_torch(dense, rank=4)


class _Lists(nn.Module):
    """Module whose forward reads its parts from a list, a dictionary and a method."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64)
        self.second = nn.Linear(64, 64)
        self.steps, self.named = [self.first, self.norm], {"second": self.second}
        self.apply_first = self.first.forward

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return self.named["second"](x) + self.apply_first(x)


def test_layers_read_from_lists_and_methods_are_converted_there_too():
    model = _Lists().eval()
    model.norm.running_mean.fill_(1.5)
    x = torch.rand(4, 64)
    folded = tnn.fold_batch_norm(model)
    train = trainwright.from_torch(model, rank=8, numbers="float32")
    train(x).sum().backward()
    assert all(factor.grad.any() for factor in (*train.first.factors, *train.second.factors))
    dense = trainwright.to_torch(train)
    with torch.no_grad():
        dense.first.weight.zero_()
        train.first.load_dense(torch.zeros(64, 64))
    torch.testing.assert_close(dense(x), train(x))
    model.apply_first = folded.apply_first = torch.zeros_like
    torch.testing.assert_close(folded(x), model(x))
