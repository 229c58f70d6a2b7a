"""Attention of several heads, and torch's transformers around it: converted, compiled, trained."""

import copy
import itertools
import re
from pathlib import Path

import pytest
import torch
from slowly import mostly_slow
from torch import nn

import trainwright
import trainwright.nn as tnn
from trainwright.network import NetworkError

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = "factor=fixed(8),activation=fixed(16)"
PAGE = Path(__file__).parents[2] / "docs/guide/pytorch.md"


def same(mine, other):
    if mine is None or other is None:
        assert mine is other
    else:
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def attention(**options):
    return nn.MultiheadAttention(64, 4, **options)


def inputs(first, batched):
    """Return queries of 5 tokens, keys and values of 7, and masks for them."""
    n = (3,) if batched else ()
    q, k, v = (torch.randn(*n, tokens, 64) for tokens in (5, 7, 7))
    if batched and not first:
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    padding = torch.zeros(*n, 7, dtype=torch.bool)
    padding[..., 5:] = True
    mask = torch.randn(5, 7) > 1
    mask[:, 0] = False
    each = torch.randn(4 * (n or (1,))[0], 5, 7)
    return (q, k, v), (None, padding, torch.randn(*n, 7)), (None, mask, each, each > 1.5)


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@pytest.mark.parametrize("batched", (True, False), ids=("batch", "no batch"))
@pytest.mark.parametrize("first", (True, False), ids=("batch first", "tokens first"))
@pytest.mark.parametrize("bias", (True, False), ids=("bias", "no bias"))
def test_attention_computes_as_torch_with_the_rounded_weights(bias, first, batched):
    torch.manual_seed(0)
    own = attention(batch_first=first, bias=bias)
    if bias:
        nn.init.normal_(own.in_proj_bias)
        nn.init.normal_(own.out_proj.bias)
    converted = tnn.from_torch(own, rank=4, numbers="float32")
    dense = tnn.to_torch(converted)
    assert type(converted) is tnn.TTMultiheadAttention and type(dense) is nn.MultiheadAttention
    given, paddings, masks = inputs(first, batched)
    for padding, mask, weights, averaged in itertools.product(paddings, masks, (0, 1), (0, 1)):
        options = {
            "key_padding_mask": padding, "attn_mask": mask, "need_weights": bool(weights),
            "average_attn_weights": bool(averaged),
        }  # fmt: skip
        for mine, other in zip(converted(*given, **options), dense(*given, **options), strict=True):
            same(mine, other)


@pytest.mark.parametrize("padded", (False, True), ids=("causal", "causal, padding"))
def test_causal_attention_computes_as_torch(padded):
    torch.manual_seed(1)
    converted = tnn.from_torch(attention(batch_first=True), rank=4, numbers="float32").eval()
    dense, x = tnn.to_torch(converted), torch.randn(2, 6, 64)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    padding = torch.zeros(2, 6).masked_fill(torch.arange(6) > 4, float("-inf")) if padded else None
    for weights in (True, False):
        options = {
            "attn_mask": mask, "is_causal": True, "need_weights": weights,
            "key_padding_mask": padding,
        }  # fmt: skip
        for mine, other in zip(
            converted(x, x, x, **options), dense(x, x, x, **options), strict=True
        ):
            same(mine, other)
    y = torch.randn(2, 4, 64)  # queries of their own
    options = {"attn_mask": mask[:4], "is_causal": True, "need_weights": False}
    same(converted(y, x, x, **options)[0], dense(y, x, x, **options)[0])
    with pytest.raises(RuntimeError, match="give attn_mask, too"):
        converted(x, x, x, is_causal=True)


def test_attention_drops_weights_in_training_as_torch():
    torch.manual_seed(2)
    converted = tnn.from_torch(attention(batch_first=True, dropout=0.5), rank=4, numbers="float32")
    dense, x = tnn.to_torch(converted), torch.randn(2, 6, 64)
    for weights in (True, False):
        results = []
        for net in (converted, dense):
            torch.manual_seed(3)
            results.append(net(x, x, x, need_weights=weights)[0])
        same(*results)
        assert not torch.equal(results[0], converted(x, x, x)[0])
    converted.eval()
    assert torch.equal(converted(x, x, x)[0], converted(x, x, x)[0])


def test_attention_of_wrong_inputs_is_one_error():
    own, x = tnn.TTMultiheadAttention(64, 4, rank=2, batch_first=True), torch.zeros(2, 5, 64)
    with pytest.raises(ValueError, match=r"all be batches of such, not \(2, 5, 64\), \(5, 64\)"):
        own(x, x[0], x[0])
    with pytest.raises(ValueError, match=r"key_padding_mask must have shape \(2, 5\), not \(5,\)"):
        own(x, x, x, key_padding_mask=torch.zeros(5))
    with pytest.raises(ValueError, match=r"attn_mask .* \(5, 5\) or \(8, 5, 5\), not \(2, 5, 5\)"):
        own(x, x, x, attn_mask=torch.zeros(2, 5, 5))
    with pytest.raises(ValueError, match=r"one shape .*not \(2, 5, 64\), \(3, 5, 64\)"):
        own(x, torch.zeros(3, 5, 64), torch.zeros(3, 5, 64))
    with pytest.raises(TypeError, match=r"inputs must be a torch\.Tensor, not int"):
        own(1, x, x)
    with pytest.raises(TypeError, match=r"key_padding_mask must be a torch\.Tensor, not list"):
        own(x, x, x, key_padding_mask=[1])
    with pytest.raises(TypeError, match=r"attn_mask must be of torch\.bool.*not torch\.int64"):
        own(x, x, x, attn_mask=torch.zeros(5, 5, dtype=torch.int64))
    for sizes, message in (((64, 0), "num_heads must be"), ((6, 4), "4 heads do not divide 6")):
        with pytest.raises(NetworkError, match=message):
            tnn.TTMultiheadAttention(*sizes)
    with pytest.raises(NetworkError, match="dropout must be a probability, not 2"):
        tnn.TTMultiheadAttention(8, 2, 2)


def test_converted_attention_keeps_hooks_types_and_sharing():
    own = attention(dtype=torch.float64, batch_first=True).eval()
    own.in_proj_weight.requires_grad_(False)
    own.note, calls = "mine", []
    own.register_forward_hook(lambda *_: calls.append(1))
    before = copy.deepcopy(own.state_dict())
    model = nn.ModuleDict({"a": own, "b": own})
    converted = tnn.from_torch(model, rank=4)
    for name, value in own.state_dict().items():
        assert torch.equal(value, before[name])
    train = converted["a"]
    assert converted["b"] is train and train.note == "mine" and not train.training
    assert not train.query.training and train.query.factors[0].dtype is torch.float64
    x = torch.randn(2, 5, 64, dtype=torch.float64)
    y = train(x, x, x)[0]
    assert y.dtype is torch.float64 and len(calls) == 1
    frozen = [train.query, train.key, train.value]
    assert not any(layer.factors[0].requires_grad for layer in frozen)
    assert train.out.factors[0].requires_grad and train.query.bias.requires_grad
    loaded = copy.deepcopy(tnn.from_torch(nn.ModuleDict({"a": attention(), "b": own}), rank=4))
    loaded["b"].load_state_dict(train.state_dict())
    assert torch.equal(loaded["b"](x, x, x)[0], y)
    dense = tnn.to_torch(converted)["a"]
    assert type(dense) is nn.MultiheadAttention and dense.note == "mine" and not dense.training
    assert dense.in_proj_weight.dtype is torch.float64 and not dense.in_proj_weight.requires_grad
    assert dense.in_proj_bias.requires_grad and dense.out_proj.weight.requires_grad
    calls.clear()
    assert (dense(x, x, x)[0] - y).norm() < 0.05 * y.norm() and len(calls) == 1
    rows = converted.trainwright_summary.converted
    assert [row.name for row in rows] == ["a.query", "a.key", "a.value", "a.out"]


class Derived(nn.MultiheadAttention):
    pass


def changed(change):
    own = attention()
    change(own)
    return own


CLOSED = {
    "key size": (lambda: attention(kdim=32), "kdim=32 and vdim=64"),
    "token": (lambda: attention(add_bias_kv=True), "add_bias_kv=True"),
    "zero token": (lambda: attention(add_zero_attn=True), "add_zero_attn=True"),
    "class": (lambda: Derived(64, 4), "Derived is a class derived from MultiheadAttention"),
    "forward": (lambda: changed(lambda m: setattr(m, "forward", abs)), "something else in TTMulti"),
    "name": (lambda: changed(lambda m: setattr(m, "query", 1)), "in TTMultiheadAttention: query"),
    "part": (lambda: changed(lambda m: m.add_module("lora", nn.Linear(4, 4))), "parts: lora"),
    "gradient": (
        lambda: changed(lambda m: m.in_proj_weight.register_hook(lambda g: g)),
        "a hook on the gradient of its in_proj_weight",
    ),
    "inner hook": (
        lambda: changed(lambda m: m.out_proj.register_forward_hook(lambda *_: None)),
        "its out_proj has hooks",
    ),
    "parametrized": (
        lambda: changed(lambda m: nn.utils.parametrizations.weight_norm(m, "in_proj_weight")),
        "parametrized by _WeightNorm",
    ),
    "type": (lambda: attention(dtype=torch.complex64), r"in_proj_weight is of torch\.complex64"),
    "small": (lambda: nn.MultiheadAttention(2, 1), "not fewer"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_attention_that_cannot_be_converted_stays_with_a_reason(name):
    make, reason = CLOSED[name]
    own = make()
    model = tnn.from_torch(nn.ModuleDict({"attention": own, "other": nn.Linear(64, 64)}), rank=4)
    assert type(model["attention"]).__mro__[:2] == type(own).__mro__[:2]
    rows = {row.name: row for row in model.trainwright_summary.layers}
    assert re.search(reason, rows["attention"].reason), rows["attention"].reason
    assert rows["attention"].kind == type(own).__name__ and "attention.query" not in rows
    for mine, other in zip(own.parameters(), model["attention"].parameters(), strict=True):
        assert torch.equal(mine, other)


def test_attention_stays_whose_part_is_skipped_or_weight_is_shared():
    pair = nn.ModuleList([attention(), attention()])
    skipped = tnn.from_torch(pair, rank=4, skip=["0.out_proj"])
    assert type(skipped[0]) is nn.MultiheadAttention
    assert skipped.trainwright_summary.layers[0].reason == "a part of it is named in skip"
    assert type(skipped[1]) is tnn.TTMultiheadAttention
    pair[1].in_proj_weight = pair[0].in_proj_weight
    with pytest.warns(UserWarning, match="converted no layer"):
        tied = tnn.from_torch(pair, rank=4)
    assert tied[0].in_proj_weight is tied[1].in_proj_weight
    assert "in_proj_weight is also that" in tied.trainwright_summary.layers[0].reason


def test_to_torch_keeps_layers_whose_hooks_torch_would_not_call():
    converted, calls = tnn.from_torch(attention(), rank=4), []
    converted.key.register_forward_hook(lambda *_: calls.append(1))
    dense, x = tnn.to_torch(converted), torch.randn(5, 2, 64)
    y = dense(x, x, x)[0]
    assert type(dense.key) is nn.Linear and len(calls) == 1
    assert (converted(x, x, x)[0] - y).norm() < 0.05 * y.norm()


def test_norms_become_layers_of_the_accelerator_if_asked_for():
    norm = nn.LayerNorm(64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    model = nn.Sequential(norm, nn.LayerNorm((2, 64)), nn.LayerNorm(64, elementwise_affine=False))
    with pytest.warns(UserWarning, match="converted no layer"):
        assert type(tnn.from_torch(model)[0]) is nn.LayerNorm
    converted = tnn.from_torch(model, norms=True, numbers=NUMBERS)
    assert [type(m) for m in converted] == [tnn.TTLayerNorm, nn.LayerNorm, nn.LayerNorm]
    rows = converted.trainwright_summary.layers
    assert [row.reason for row in rows] == [
        "", "it is over 2 axes: TTLayerNorm is over the last one",
    ]  # fmt: skip
    x = torch.randn(3, 2, 64)
    assert (converted[0](x) - norm(x)).norm() < 0.02 * norm(x).norm()


def layer(**options):
    return nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("first", (True, False), ids=("batch first", "tokens first"))
@pytest.mark.parametrize("norm_first", (True, False), ids=("norm first", "norm last"))
@pytest.mark.parametrize("activation", ("relu", "gelu"))
def test_converted_encoder_layer_computes_in_both_modes_as_dense(activation, norm_first, first):
    torch.manual_seed(4)
    own = layer(batch_first=first, norm_first=norm_first, activation=activation)
    for norms in (True, False):
        converted = tnn.from_torch(own, rank=8, numbers="float32", norms=norms)
        dense, x = tnn.to_torch(converted), torch.randn(3, 5, 64)
        for train in (True, False):
            converted.train(train)
            with torch.set_grad_enabled(train):
                same(converted(x), dense.train(train)(x))


def test_encoder_of_converted_layers_takes_padding_in_evaluation():
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="enable_nested_tensor is True"):  # at its construction
        model = nn.TransformerEncoder(tnn.from_torch(layer(batch_first=True), rank=8), 2)
    x, padding = torch.randn(2, 6, 64), torch.arange(6).expand(2, 6) > 3
    model.eval()
    with torch.no_grad():
        y, dense = model(x, src_key_padding_mask=padding), tnn.to_torch(model)
        dense.use_nested_tensor = False
        wanted = dense(x, src_key_padding_mask=padding)
    assert (y - wanted)[:, :4].norm() < 0.05 * wanted[:, :4].norm()


def test_skipped_attention_between_converted_norms_runs_in_evaluation():
    """torch's own kernel asks both norms for their epsilon, and is not taken."""
    own = tnn.from_torch(layer(batch_first=True), rank=8, skip=["self_attn", "norm1"], norms=True)
    x = torch.randn(2, 6, 64)
    trained = own(x)
    with torch.no_grad():
        same(own.eval()(x), trained.detach())


# -- Compiled ------------------------------------------------------------------------------------


def results(net, x, weights, **options):
    """Return outputs and gradients of inputs, after steps that settle exponents."""
    for _ in range(3):
        net.zero_grad()
        given = x.clone().requires_grad_()
        y = net(given, **options)
        (y * weights).sum().backward()
    return [y.detach(), given.grad]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("activation", "norm_first"),
    [
        pytest.param("relu", True, marks=pytest.mark.slow),
        pytest.param("relu", False, marks=pytest.mark.slow),
        ("gelu", True),
        pytest.param("gelu", False, marks=pytest.mark.slow),
    ],
)
def test_compiled_encoder_layer_is_one_program_near_float32(activation, norm_first):
    torch.manual_seed(6)
    own = layer(batch_first=True, norm_first=norm_first, activation=activation)
    own = tnn.from_torch(own, rank=8, numbers=NUMBERS, norms=True)
    compiled = trainwright.compile(own, batch=64)
    report = compiled.report()
    assert {row.where for row in report.layers} == {"program 1"} and not report.operators
    x, weights = torch.randn(4, 8, 64), torch.randn(64)
    own_results, dense = results(compiled, x, weights), tnn.to_torch(compiled)
    for mine, other in zip(own_results, results(dense, x, weights), strict=True):
        assert (mine - other).norm() < 0.01 * other.norm()
    gradient = torch.cat([own.self_attn.query.bias.grad, own.self_attn.value.bias.grad])
    wanted = dense.self_attn.in_proj_bias.grad.reshape(3, 64)[[0, 2]].flatten()
    assert (gradient - wanted).norm() < 0.01 * wanted.norm()
    assert len(compiled.chains) == 1
    with torch.no_grad():
        assert (compiled.eval()(x) - dense.eval()(x)).norm() < 0.01 * own_results[0].norm()


MASK = nn.Transformer.generate_square_subsequent_mask(8)
CALLS = {
    "causal": ({"mask": MASK, "is_causal": True}, 2, 1),
    "causal unsaid": ({"mask": MASK}, 1, 1),
    "mask": ({"mask": torch.tril(torch.ones(8, 8), 3) < 1}, 1, None),
    "mask, two layers": ({"mask": torch.tril(torch.ones(8, 8), 3) < 1}, 2, None),
    "padding": ({"src_key_padding_mask": torch.arange(8).expand(4, 8) > 5}, 1, None),
}
"""Arguments, layers, and programs of all layers."""


@mostly_slow("name", CALLS, quick=CALLS.keys() - {"mask, two layers", "causal"})
def test_compiled_encoder_follows_its_masks(name):
    torch.manual_seed(7)
    options, layers, programs = CALLS[name]
    own = nn.TransformerEncoder(layer(batch_first=True), layers, nn.LayerNorm(64))
    compiled = trainwright.compile(
        tnn.from_torch(own, rank=8, numbers=NUMBERS, norms=True), batch=64
    )
    x, weights = torch.randn(4, 8, 64), torch.randn(64)
    own_results = results(compiled, x, weights, **options)
    for mine, other in zip(
        own_results, results(tnn.to_torch(compiled), x, weights, **options), strict=True
    ):
        assert (mine - other).norm() < 0.01 * other.norm()
    report = compiled.report()
    assert not report.alone and not report.why_alone
    if programs:
        assert not report.operators and len({row.where for row in report.layers}) == programs


def test_compiled_encoder_is_planned_with_masks_after_one_that_is_not_causal():
    """An evaluation plans anew, and changes neither exponents nor bits; steps go on counting."""
    torch.manual_seed(12)
    own = nn.TransformerEncoder(layer(batch_first=True), 1)
    compiled = trainwright.compile(
        tnn.from_torch(own, rank=8, numbers=NUMBERS, norms=True), batch=64
    )
    x, weights = torch.randn(4, 8, 64), torch.randn(64)
    results(compiled, x, weights, mask=MASK)
    dense, mask = tnn.to_torch(compiled), torch.tril(torch.ones(8, 8), 3) < 1
    before = {name: value.clone() for name, value in compiled.eval().state_dict().items()}
    causal = compiled(x, mask=MASK)
    for form in (mask, mask, torch.zeros(8, 8).masked_fill(mask, -torch.inf)):
        y, wanted = compiled(x, mask=form), dense(x, mask=form)
        assert (y - wanted).norm() < 0.01 * wanted.norm()
    assert torch.equal(compiled(x, mask=MASK), causal)
    assert all(torch.equal(v, before[name]) for name, v in compiled.state_dict().items())
    compiled.train()
    for options in ({"mask": mask}, {"mask": MASK}):
        own_results, wanted = (results(net, x, weights, **options) for net in (compiled, dense))
        for mine, other in zip(own_results, wanted, strict=True):
            assert (mine - other).norm() < 0.01 * other.norm()
        assert len({row.where for row in compiled.report().layers}) == 1
    assert compiled.report().steps == 9


def test_compiled_transformer_of_torch_follows_its_dense_model():
    torch.manual_seed(8)
    own = nn.Transformer(64, 4, 1, 1, 128, dropout=0.0, batch_first=True)
    compiled = trainwright.compile(
        tnn.from_torch(own, rank=8, numbers=NUMBERS, norms=True), batch=64
    )
    x, y = torch.randn(4, 8, 64), torch.randn(4, 6, 64)
    weights = torch.randn(64)  # the sum of a norm's outputs has no gradient
    for _ in range(3):
        outputs = compiled(x, y, tgt_mask=MASK[:6, :6])
        (outputs * weights).sum().backward()
    wanted = tnn.to_torch(compiled)(x, y, tgt_mask=MASK[:6, :6])
    assert (outputs - wanted).norm() < 0.01 * wanted.norm()
    report = compiled.report()
    assert not report.alone and not report.why_alone
    with pytest.raises(RuntimeError, match="batch number of src and tgt must be equal"):
        compiled(x, y[:2])


def test_compiled_encoder_layer_of_the_guide_learns_as_float32():
    torch.manual_seed(9)
    (code,) = re.findall(r"```python\n(encoder = .*?)```", PAGE.read_text(), re.DOTALL)
    names = {"torch": torch, "trainwright": trainwright}
    exec(code, names)
    encoder = names["encoder"]
    assert len(encoder.chains) == 1 and not encoder.report().operators
    losses = []
    for body in (encoder, layer(batch_first=True)):
        torch.manual_seed(10)
        head = nn.Linear(64, 2)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-3)
        for _ in range(60):
            x = torch.randn(32, 4, 64)
            labels = (x[:, :, :4].sum((1, 2)) > 0).long()
            loss = nn.functional.cross_entropy(head(body(x).mean(1)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[:5]) > 3 and sum(losses[60:65]) > 3
    assert sum(losses[50:60]) < 4.5 and sum(losses[110:]) < 4.5, losses


def test_compiled_transformer_leaves_functions_of_torch_unchanged():
    blocks = nn.modules.transformer
    names = ((nn.functional, "_canonical_mask"), (blocks, "_get_seq_len"),
             (blocks, "_detect_is_causal_mask"))  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    own = tnn.from_torch(layer(batch_first=True), rank=4, norms=True)
    for enabled in (False, True):
        torch.backends.mha.set_fastpath_enabled(enabled)
        trainwright.compile(own, batch=16)
        assert torch.backends.mha.get_fastpath_enabled() == enabled
    assert [getattr(owner, name) for owner, name in names] == before


class Checked(nn.Module):
    """Two layers around a comparison of sizes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (tnn.TTLinear(16, 16, rank=4, numbers=NUMBERS) for _ in range(2))

    def forward(self, x):
        y = self.first(x)
        if x.shape[0] != 4:
            y = y * 3
        return self.second(y)


def test_compiled_comparison_of_sizes_follows_both_ways():
    torch.manual_seed(11)
    compiled = trainwright.compile(Checked(), batch=8)
    assert len(compiled.chains) == 1 and not compiled.report().why_alone
    for samples in (4, 6, 4):
        x = torch.randn(samples, 16)
        for _ in range(3):
            y = compiled(x)
            y.sum().backward()
        wanted = tnn.to_torch(compiled)(x)
        assert (y - wanted).norm() < 0.02 * wanted.norm()
