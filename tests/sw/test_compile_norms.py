"""LayerNorm and softmax in PyTorch, and in the programs of compiled models."""

import re
import warnings
from copy import deepcopy
from pathlib import Path

import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright.compiler import CompileError
from trainwright.fixed.health import LostTensorWarning
from trainwright.network import NetworkError

pytestmark = pytest.mark.usefixtures("first_programs")

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "pytorch.md"
NUMBERS = "factor=fixed(8),activation=fixed(16)"


class Block(torch.nn.Module):
    """Feed-forward half of a transformer's block, with a norm on both sides."""

    def __init__(self):
        super().__init__()
        self.before, self.after = (tnn.TTLayerNorm(32, numbers=NUMBERS) for _ in range(2))
        self.wide = tnn.TTLinear(32, 48, rank=8, numbers=NUMBERS)
        self.narrow = tnn.TTLinear(48, 32, rank=8, numbers=NUMBERS)
        self.gelu = torch.nn.GELU()

    def forward(self, x):
        return self.after(x + self.narrow(self.gelu(self.wide(self.before(x)))))


def gradients(model, x, weights):
    """Return outputs and all gradients of a step, after steps in which exponents settle."""
    for _ in range(4):
        model.zero_grad()
        given = x.clone().requires_grad_()
        y = model(given)
        (y * weights).sum().backward()
    return [y.detach(), given.grad, *(p.grad.clone() for p in model.parameters())]


def real_gradients(model, x, weights):
    """Return the same in float64, of torch's own layers with the rounded weights."""
    dense = tnn.to_torch(model).double()
    return gradients(dense, x.double(), weights.double())[:2]


def test_compiled_block_with_norms_is_one_program_near_float64():
    torch.manual_seed(0)
    model, x, weights = Block(), 3 * torch.randn(2, 8, 32) + 1, torch.randn(32)
    with torch.no_grad():
        for norm in (model.before, model.after):
            norm.load_dense(torch.rand(32) + 0.5, torch.randn(32))
    compiled = trainwright.compile(model, batch=16)
    assert len(compiled.chains) == 1 and not compiled.report().operators
    own, plain = gradients(compiled, x, weights), gradients(model, x, weights)
    for mine, torchs in zip(own, plain, strict=True):
        assert (mine - torchs).norm() < 0.005 * torchs.norm()
    for mine, real in zip(own, real_gradients(model, x, weights), strict=False):
        assert (mine - real).norm() < 0.005 * real.norm()


class SharedNorm(torch.nn.Module):
    """A norm applied before and after a layer."""

    def __init__(self):
        super().__init__()
        self.norm = tnn.TTLayerNorm(32, numbers=NUMBERS)
        self.layer = tnn.TTLinear(32, 32, rank=8, numbers=NUMBERS)

    def forward(self, x):
        return self.layer(self.norm(self.layer(self.norm(x))))


def test_norm_applied_twice_is_one_program_near_float64():
    torch.manual_seed(2)
    model, x, weights = SharedNorm(), torch.randn(16, 32), torch.randn(32)
    compiled = trainwright.compile(model, batch=16)
    assert len(compiled.chains) == 1
    own, plain = gradients(compiled, x, weights), gradients(model, x, weights)
    for mine, torchs in zip(own, plain, strict=True):
        assert (mine - torchs).norm() < 0.01 * torchs.norm()


class NormedAttention(torch.nn.Module):
    """Attention over normalised inputs, whose gradient has a few large values."""

    def __init__(self):
        super().__init__()
        self.norm = tnn.TTLayerNorm(16, numbers=NUMBERS)
        self.layer = tnn.TTLinear(16, 16, rank=4, relu=False, numbers=NUMBERS)
        self.attention = tnn.TokenAttention(1)

    def forward(self, x):
        y = self.norm(x)
        z = self.layer(y)
        return self.attention(z, y, z)


def test_scale_of_a_norm_has_its_gradient_where_few_products_are_large():
    torch.manual_seed(0)
    model, x = NormedAttention(), torch.randn(65, 2, 16)
    weights = torch.randn(65, 2, 16)
    weights[3] *= 60
    compiled = trainwright.compile(model, batch=128)
    own, plain = gradients(compiled, x, weights), gradients(model, x, weights)
    for mine, torchs in zip(own, plain, strict=True):
        assert (mine - torchs).norm() < 0.02 * torchs.norm()


def test_scale_of_a_norm_has_its_gradient_where_the_loss_grows():
    torch.manual_seed(0)
    model, x, weights = NormedAttention(), torch.randn(32, 2, 16), torch.randn(32, 2, 16)
    compiled = trainwright.compile(model, batch=64)
    gradients(compiled, x, weights)
    for factor in (30, 3, 400, 1):
        compiled.zero_grad()
        (compiled(x) * factor * weights).sum().backward()
        own = [p.grad.clone() for p in compiled.parameters()]
        for mine, torchs in zip(own, gradients(model, x, weights)[2:], strict=True):
            assert (mine - factor * torchs).norm() < 0.05 * factor * torchs.norm()


def test_tt_layer_norm_in_float32_equals_that_of_torch():
    torch.manual_seed(1)
    theirs = torch.nn.LayerNorm(24, eps=0)
    torch.nn.init.normal_(theirs.weight)
    torch.nn.init.normal_(theirs.bias)
    ours = tnn.TTLayerNorm(24, numbers="float32").load_dense(theirs.weight, theirs.bias)
    assert torch.equal(ours.weight, theirs.weight)
    x = torch.randn(5, 3, 24)
    for module in (ours, deepcopy(ours), tnn.to_torch(ours), torch.nn.Sequential(ours)):
        assert torch.allclose(module(x), theirs(x), rtol=0, atol=1e-6)
    assert isinstance(tnn.to_torch(ours), torch.nn.LayerNorm)
    other = tnn.TTLayerNorm(24, numbers="float32")
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other(x), ours(x))


def test_tt_layer_norm_starts_with_scale_one_and_rounds_as_the_accelerator():
    norm = tnn.TTLayerNorm(16)
    assert torch.equal(norm.weight, torch.ones(16)) and not norm.bias.any()
    x = torch.randn(4, 16)
    y = norm(x).detach()
    real = torch.nn.functional.layer_norm(norm.quantise_input(x), (16,), eps=0)
    step = 2.0**-5  # words of 8 bits, of which two lie above the point: sqrt(15) < 4
    assert torch.equal(y, (real / step).round() * step)


def test_tt_layer_norm_of_equal_features_gives_bias_and_no_gradient():
    norm = tnn.TTLayerNorm(8, numbers="float32")
    norm.load_dense(torch.full((8,), 2.0), torch.arange(8.0))
    x = torch.full((3, 8), 5.0, requires_grad=True)
    y = norm(x)
    y.square().sum().backward()
    assert torch.equal(y, torch.arange(8.0).expand(3, 8)) and not x.grad.any()


@pytest.mark.parametrize("given", [torch.ones(4), torch.ones(16, 1)], ids=["size", "matrix"])
def test_tt_layer_norm_of_another_shape_is_one_error(given):
    with pytest.raises(NetworkError, match=r"the weight has shape \(.*\), not \(16,\)"):
        tnn.TTLayerNorm(16).load_dense(given)
    with pytest.raises(ValueError, match="16"):
        tnn.TTLayerNorm(16)(torch.ones(2, 4))
    with pytest.raises(NetworkError, match="no bias"):
        tnn.TTLayerNorm(16, bias=False).load_dense(torch.ones(16), torch.ones(16))


def test_tt_layer_norm_of_a_bias_that_is_lost_warns_as_other_layers():
    bias = torch.full((16,), 1e-4)
    bias[0] = 1.0
    with pytest.warns(LostTensorWarning, match=r"TTLayerNorm\(16\): .*bias"):
        tnn.TTLayerNorm(16).load_dense(torch.full((16,), 1e-4), bias)


def test_compiled_norm_without_vector_engine_is_one_error():
    model = torch.nn.Sequential(tnn.TTLinear(16, 16, rank=2), tnn.TTLayerNorm(16))
    match = r"1: layer_norm\(16\) is computed by .* lacks; use one with vector_engine=1"
    with pytest.raises(CompileError, match=f"^{match}"):
        trainwright.compile(model, batch=8, accelerator=trainwright.AcceleratorParameters())


def test_compiled_norm_in_posits_stays_in_torch():
    numbers = "activation=posit(8,0)"
    layers = tnn.TTLinear(16, 16, rank=2, numbers=numbers), tnn.TTLayerNorm(16, numbers=numbers)
    report = trainwright.compile(torch.nn.Sequential(*layers), batch=8).report()
    assert "posit(8,0), and LayerNorm takes fixed point alone" in report.layers[1].where


def test_compiled_norm_alone_runs_on_the_accelerator():
    torch.manual_seed(2)
    norm = tnn.TTLayerNorm(16, numbers=NUMBERS)
    compiled, x = trainwright.compile(norm, batch=8), torch.randn(8, 16)
    compiled(x).sum().backward()
    real = torch.nn.functional.layer_norm(x, (16,), eps=0)
    assert (compiled(x) - real).norm() < 1e-3 * real.norm()
    assert compiled.report().layers[0].where == "program 1"


def test_from_torch_keeps_layer_norm_and_report_names_the_layer():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64))
    compiled = trainwright.compile(trainwright.from_torch(model, rank=4), batch=8)
    where = compiled.report().layers[1].where
    assert "from_torch(..., norms=True) makes a TTLayerNorm of it" in where


class Between(torch.nn.Module):
    """A function between two layers."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = (tnn.TTLinear(32, 32, rank=8, numbers=NUMBERS) for _ in range(2))
        self.function = function

    def forward(self, x):
        return self.second(self.function(self.first(x)))


ENGINE = trainwright.AcceleratorParameters(vector_engine=1)
FUNCTIONS = {
    "softmax": (lambda x: torch.softmax(x, -1), 1),
    "softmax of two axes": (lambda x: x.softmax(dim=1), 1),
    "functional": (lambda x: torch.nn.functional.softmax(x, dim=-1), 1),
    "module": (torch.nn.Softmax(-1), 1),
    "layer norm": (torch.nn.LayerNorm(32, elementwise_affine=False), 1),
    "functional norm": (lambda x: torch.nn.functional.layer_norm(x, (32,)), 1),
    "over samples": (lambda x: torch.softmax(x, 0), 2),
    "in float64": (lambda x: torch.softmax(x, -1, dtype=torch.float64).to(x), 2),
    "scaled norm": (torch.nn.LayerNorm(32), 2),
    "two axes": (lambda x: torch.nn.functional.layer_norm(x, x.shape), 2),
    "large epsilon": (torch.nn.LayerNorm(32, eps=0.5, elementwise_affine=False), 2),
    "functional epsilon": (lambda x: torch.nn.functional.layer_norm(x, (32,), eps=0.5), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_function_over_features_follows_torch(name):
    torch.manual_seed(3)
    function, programs = FUNCTIONS[name]
    model, x = Between(function), 2 * torch.randn(16, 32)
    compiled = trainwright.compile(model, batch=16, accelerator=ENGINE)
    assert len(compiled.chains) == programs
    weights = torch.randn(16, 32)
    own, real = gradients(compiled, x, weights), real_gradients(model, x, weights)
    for mine, other in zip(own, real, strict=False):
        assert (mine - other).norm() < 0.01 * other.norm()


def test_compiled_layer_norm_of_values_near_its_epsilon_warns():
    torch.manual_seed(3)
    norm = torch.nn.LayerNorm(32, elementwise_affine=False)
    compiled, x = (
        trainwright.compile(Between(norm), batch=16, accelerator=ENGINE),
        torch.randn(16, 32),
    )
    real = compiled.to_torch()
    with pytest.warns(UserWarning, match="first, second: a LayerNorm of a program adds no epsilon"):
        y = compiled(0.004 * x)
    assert (y - real(0.004 * x)).norm() > 0.2 * y.norm()
    compiled = trainwright.compile(Between(norm), batch=16, accelerator=ENGINE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)


def test_from_torch_leaves_layer_norm_with_a_large_epsilon_dense():
    norms = torch.nn.Sequential(torch.nn.LayerNorm(64, eps=0.1), torch.nn.LayerNorm(64, eps=1e-5))
    tt = trainwright.from_torch(norms, norms=True)
    assert isinstance(tt[0], torch.nn.LayerNorm) and isinstance(tt[1], tnn.TTLayerNorm)
    assert "eps=0.1 changes results" in str(tt.trainwright_summary)


def test_compiled_softmax_over_tokens_leaves_the_program():
    """Follow torch where axis 1 of three is that of tokens, which a trace cannot know."""
    torch.manual_seed(4)
    model, x = Between(lambda x: torch.softmax(x, 1)), torch.randn(2, 8, 32)
    compiled = trainwright.compile(model, batch=16, accelerator=ENGINE)
    weights = torch.randn(2, 8, 32)
    own, real = gradients(compiled, x, weights), real_gradients(model, x, weights)
    for mine, other in zip(own, real, strict=False):
        assert (mine - other).norm() < 0.01 * other.norm()
    assert "softmax" in compiled.report().operators


def test_compiled_softmax_of_columns_of_an_image_stays_in_torch():
    torch.manual_seed(5)
    convolutions = [tnn.TTConv2d(4, 4, 3, padding=1, rank=4, numbers=NUMBERS) for _ in range(2)]
    model = torch.nn.Sequential(convolutions[0], torch.nn.Softmax(-1), convolutions[1])
    compiled, x = trainwright.compile(model, batch=4), torch.randn(4, 4, 6, 6)
    for _ in range(3):
        compiled(x).sum().backward()
    real = tnn.to_torch(model)(x)
    assert (compiled(x) - real).norm() < 0.01 * real.norm()
    assert compiled.report().operators == ("Softmax",)


class Transformer(torch.nn.Module):
    """A block of attention and feed-forward layers, each behind a norm, with residual sums."""

    def __init__(self, causal=False, numbers=NUMBERS):
        super().__init__()
        self.norm1, self.norm2 = (tnn.TTLayerNorm(32, numbers=numbers) for _ in range(2))
        sizes = {"q": (32, 32), "k": (32, 32), "v": (32, 32), "out": (32, 32)}
        for name, (columns, rows) in {**sizes, "wide": (32, 48), "narrow": (48, 32)}.items():
            setattr(self, name, tnn.TTLinear(columns, rows, rank=8, numbers=numbers))
        self.attention, self.gelu = tnn.TokenAttention(2, causal=causal), torch.nn.GELU()

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.out(self.attention(self.q(y), self.k(y), self.v(y)))
        return x + self.narrow(self.gelu(self.wide(self.norm2(x))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("causal", (pytest.param(False, marks=pytest.mark.slow), True))
def test_compiled_transformer_block_is_one_program_near_float64(causal):
    """Sequences of two lengths, of which the last batch is not full."""
    torch.manual_seed(6)
    model, weights = Transformer(causal), torch.randn(32)
    compiled = trainwright.compile(model, batch=32)
    assert len(compiled.chains) == 1 and not compiled.report().operators
    for shape in ((5, 8, 32), (2, 3, 5, 32)):
        x = torch.randn(shape)
        own, plain = gradients(compiled, x, weights), gradients(model, x, weights)
        for name, mine, other in zip(
            ["y", "x", *dict(model.named_parameters())], own, plain, strict=True
        ):
            if name != "k.bias":  # attention does not depend on it
                assert (mine - other).norm() < 0.005 * other.norm(), name
        for mine, real in zip(own, real_gradients(model, x, weights), strict=False):
            assert (mine - real).norm() < 0.01 * real.norm()


def test_compiled_causal_attention_does_not_look_ahead():
    torch.manual_seed(7)
    compiled = trainwright.compile(Transformer(causal=True), batch=32)
    x = torch.randn(4, 8, 32)
    compiled(x).sum().backward()
    compiled.eval()
    changed = torch.cat([x[:, :5], torch.randn(4, 3, 32)], 1)
    same = (compiled(x) == compiled(changed)).all(2)
    assert same[:, :5].all() and not same[:, 5:].any()


@pytest.mark.parametrize("shape", ((8, 32), (3, 1, 32)), ids=("no axis of samples", "one token"))
def test_compiled_attention_without_tokens_runs_layer_by_layer(shape):
    torch.manual_seed(8)
    model = Transformer()
    compiled, x = trainwright.compile(model, batch=32), torch.randn(shape)
    for _ in range(3):
        compiled(x).sum().backward()
    real = tnn.to_torch(model)(x)
    assert (compiled(x) - real).norm() < 0.01 * real.norm()


def test_compiled_attention_of_other_operands_follows_python():
    """A trace has queries, keys and values in one order, a later call in another."""

    class Swapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (tnn.TTLinear(16, 16, rank=8, numbers=NUMBERS)
                                      for _ in range(3))  # fmt: skip
            self.attention, self.swaps = tnn.TokenAttention(2), [False]

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            return self.attention(v, q, k) if self.swaps[0] else self.attention(q, k, v)

    torch.manual_seed(9)
    model = Swapped()
    compiled, x = trainwright.compile(model, batch=16), torch.randn(2, 8, 16)
    for swapped in (False, True):
        model.swaps[0] = swapped
        for _ in range(3):
            compiled(x).sum().backward()
        real = tnn.to_torch(model)(x)
        assert (compiled(x) - real).norm() < 0.01 * real.norm()


@pytest.mark.parametrize("shape", ((0, 4, 32), (3, 0, 32)), ids=("samples", "tokens"))
def test_compiled_attention_of_nothing_gives_nothing(shape):
    model = Transformer()
    compiled, x = trainwright.compile(model, batch=32), torch.randn(shape, requires_grad=True)
    for each in (compiled, model, tnn.to_torch(model)):
        y = each(x)
        y.sum().backward()
        assert y.shape == x.shape and x.grad.shape == x.shape


def test_attention_of_wrong_shapes_is_one_error():
    attention, x = tnn.TokenAttention(3), torch.zeros(2, 4, 6)
    assert attention(x, x, x).shape == x.shape
    with pytest.raises(ValueError, match=r"one shape .* not \(2, 4, 6\), \(2, 3, 6\)"):
        attention(x, x[:, :3], x)
    with pytest.raises(ValueError, match=r"tokens of their own, not \(2, 4, 6\), \(2, 3, 6\)"):
        tnn.TokenAttention(3, causal=True)(x, x[:, :3], x[:, :3])
    assert attention(x, x[:, :3], x[:, :3]).shape == x.shape
    with pytest.raises(TypeError, match="int"):
        attention(1, x, x)
    with pytest.raises(ValueError, match="3 heads do not divide 4 features"):
        attention(x[..., :4], x[..., :4], x[..., :4])
    with pytest.raises(NetworkError, match="heads must be an integer of at least 1, not 0"):
        tnn.TokenAttention(0)


def test_block_of_the_guide_is_one_program():
    (code,) = re.findall(r"```python\n(class Block.*?)```", PAGE.read_text(), re.DOTALL)
    names = {"torch": torch, "tnn": tnn, "trainwright": trainwright}
    exec(code, names)
    block = names["block"]
    block(torch.randn(2, 8, 64)).sum().backward()
    assert len(block.chains) == 1 and not block.report().operators
