"""Transformers in PyTorch: attention and positions stay in torch, layers run on the accelerator."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import trainwright
import trainwright.nn as tnn
from trainwright.compiler import CompileError

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = "factor=fixed(8),activation=fixed(16)"


class Decoder(torch.nn.Module):
    """Decoder block of one's own: words, learned positions, causal attention of two heads."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 16), torch.nn.Embedding(8, 16)
        self.norm1, self.norm2 = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        sizes = {"q": (16, 16), "k": (16, 16), "v": (16, 16), "out": (16, 16), "wide": (16, 32)}
        for name, (columns, rows) in {**sizes, "narrow": (32, 16)}.items():
            layer = tnn.TTLinear(columns, rows, rank=8, numbers=NUMBERS)
            setattr(self, name, layer)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        y = self.norm1(x)
        q, k, v = (
            layer(y).unflatten(-1, (2, 8)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm2(x))))


def test_compiled_decoder_is_causal_and_near_its_torch_model():
    torch.manual_seed(0)
    model, words = Decoder(), torch.randint(20, (4, 8))
    engine = trainwright.AcceleratorParameters(vector_engine=1)
    compiled = trainwright.compile(model, batch=32, accelerator=engine)
    gradients = []
    for net in (compiled, model):
        for _ in range(3):  # exponents settle
            model.zero_grad()
            y = net(words)
            y.square().sum().backward()
        gradients.append(model.places.weight.grad.clone())
    assert len(compiled.chains) == 2  # attention with its four layers; both feed-forward layers
    compiled.eval()
    real = tnn.to_torch(model)(words)
    assert (compiled(words) - real).norm() < 0.02 * real.norm()
    assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()
    changed = words.clone()
    changed[:, 5:] = (words[:, 5:] + 1) % 20
    same = (compiled(words) == compiled(changed)).all(2)
    assert same[:, :5].all() and not same[:, 5:].any()


@pytest.mark.parametrize("norm_first", (False, True))
def test_compiled_encoder_layer_of_torch_keeps_its_causal_mask(norm_first):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 32, 0.0, batch_first=True, norm_first=norm_first
    )
    compiled = trainwright.compile(tnn.from_torch(layer, rank=8, numbers=NUMBERS), batch=32)
    x, mask = torch.randn(2, 8, 16), torch.nn.Transformer.generate_square_subsequent_mask(8)
    compiled(x, src_mask=mask, is_causal=True).sum().backward()
    compiled.eval()
    changed = torch.cat([x[:, :5], torch.randn(2, 3, 16)], 1)
    y, other = (compiled(v, src_mask=mask, is_causal=True) for v in (x, changed))
    assert torch.equal(y[:, :5], other[:, :5]) and not torch.equal(y[:, 5:], other[:, 5:])
    real = layer.eval()(x, src_mask=mask, is_causal=True)
    assert (y - real).norm() < 0.5 * real.norm()
    where = {row.name: row.where for row in compiled.report().layers}
    assert where["linear1"].startswith("program") and "norms=True" in where["norm1"]


def test_compile_of_dense_attention_names_the_remedy():
    attention = torch.nn.MultiheadAttention(16, 2)
    with pytest.raises(CompileError, match=r"of a dense one with trainwright\.from_torch"):
        trainwright.compile(attention, batch=8)


class Placed(torch.nn.Module):
    """Two layers around what adds positions to their values."""

    def __init__(self, place):
        super().__init__()
        self.first, self.second = (tnn.TTLinear(16, 16, rank=8, numbers=NUMBERS) for _ in range(2))
        self.register_buffer("waves", torch.randn(1, 12, 16))
        self.learned, self.place = torch.nn.Parameter(torch.randn(12, 16)), place

    def forward(self, x):
        return self.second(self.place(self, self.first(x)))


@pytest.mark.parametrize(
    "place",
    (
        lambda m, x: x + m.waves[:, : x.size(1)],
        lambda m, x: x + m.learned[: x.shape[1]],
        lambda m, x: x + m.learned[torch.arange(x.shape[1], device=x.device)],
        lambda m, x: x + m.waves.narrow(1, 0, x.shape[-2]),
        lambda m, x: x + m.waves.expand(x.shape[0], -1, -1)[:, : x.shape[1]],
        lambda m, x: x + torch.ones(x.shape[0], x.shape[1], 16),
        lambda m, x: x + torch.zeros(x.shape),
        lambda m, x: x + torch.linspace(0, 1, x.size(1))[:, None],
        lambda m, x: x + torch.arange(2 * x.shape[1] // 2)[None, :, None],
        lambda m, x: x + torch.eye(x.shape[1], 16).to(x),
    ),
    ids=("buffer", "parameter", "index", "narrow", "expand", "ones", "zeros", "linspace",
         "computed", "eye"),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*program of its own.*")
def test_compiled_model_adds_positions_of_any_length(place):
    """Follow plain torch at two lengths: a size in a trace is no number."""
    torch.manual_seed(2)
    model = Placed(place)
    compiled = trainwright.compile(model, batch=16).eval()
    for length in (8, 5):
        x = torch.randn(2, length, 16)
        real = tnn.to_torch(model)(x)
        assert (compiled(x) - real).norm() < 0.03 * real.norm()
