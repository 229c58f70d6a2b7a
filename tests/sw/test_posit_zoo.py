"""Small models in the ways that libraries write them train in posits as in float32."""

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from trainwright import posit
from trainwright.posit import Mixed, PositError, PositFormat, PositTensor

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)


class InvertedResidual(nn.Module):
    """Block of MobileNetV2, or of EfficientNet with ``squeeze``: expand, depthwise, project."""

    def __init__(self, channels, squeeze=False):
        super().__init__()
        wide = 2 * channels
        act = nn.SiLU if squeeze else nn.ReLU6
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide),
                                    act(inplace=True))  # fmt: skip
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False),
                                       nn.BatchNorm2d(wide), act(inplace=True))  # fmt: skip
        self.squeeze = squeeze
        if squeeze:
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 2, 1), nn.SiLU(), nn.Conv2d(2, wide, 1),
                nn.Sigmoid(),
            )  # fmt: skip
        self.project = nn.Sequential(
            nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        if self.squeeze:
            y = y * self.gate(y)
        return x + self.project(y)


def mobile(squeeze):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.Hardswish(),
        InvertedResidual(4, squeeze), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
    )  # fmt: skip


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class UNet(nn.Module):
    """Down and up again, bilinearly, with a skip connection; a class for each image."""

    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        skip = F.relu(self.down(x))
        low = F.relu(self.middle(F.max_pool2d(skip, 2)))
        return self.out(torch.cat([skip, self.up(low)], dim=1)).mean((2, 3))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.cls, self.pos = (
            nn.Parameter(torch.zeros(1, 1, 8)),
            nn.Parameter(torch.randn(1, 5, 8) * 0.1),
        )
        self.block = nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.block(x)[:, 0])


class GPT2(nn.Module):
    """Language model with tied weights, as nanoGPT and the original write attention."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(12, 8), nn.Embedding(8, 8)
        self.ln_1, self.ln_2, self.ln_f = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.c_attn, self.c_proj = nn.Linear(8, 24), nn.Linear(8, 8)
        self.fc, self.proj = nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("bias", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))
        self.lm_head = nn.Linear(8, 12, bias=False)
        self.lm_head.weight = self.wte.weight

    def gelu(self, x):
        return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )

    def attend(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        x = x + self.attend(self.ln_1(x))
        x = x + self.proj(self.gelu(self.fc(self.ln_2(x))))
        return self.lm_head(self.ln_f(x))[:, -1]


class Bert(nn.Module):
    """Encoder that adds a mask of 0 and the smallest float to scores, as transformers does."""

    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(12, 8, padding_idx=0), nn.Embedding(8, 8)
        self.norm, self.q, self.k, self.v = nn.LayerNorm(8), *(nn.Linear(8, 8) for _ in range(3))
        self.pooler, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, tokens):
        mask = (tokens != 0)[:, None, None, :].to(dtype=torch.float32)
        mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.norm(self.word(tokens) + self.place(torch.arange(tokens.shape[1])))
        q, k, v = (
            f(x).view(*x.shape[:2], 2, 4).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(4) + mask
        y = x + (scores.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2)
        return self.head(torch.tanh(self.pooler(y[:, 0])))


class Llama(nn.Module):
    """RMSNorm, rotary positions and SwiGLU."""

    def __init__(self):
        super().__init__()
        self.embed, self.weight = nn.Embedding(12, 8), nn.Parameter(torch.ones(8))
        self.qkv, self.o = nn.Linear(8, 24, bias=False), nn.Linear(8, 8, bias=False)
        self.w1, self.w3, self.w2 = (nn.Linear(8, 16, bias=False) for _ in range(3))
        self.down, self.head = nn.Linear(16, 8, bias=False), nn.Linear(8, 4)
        angles = torch.outer(torch.arange(8).float(), 10000 ** (-torch.arange(0, 4, 2) / 4))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def rotate(self, x):
        a, b = x.chunk(2, dim=-1)
        t = x.shape[-2]
        return x * self.cos[:t] + torch.cat((-b, a), dim=-1) * self.sin[:t]

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (
            y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        h = self.norm(x)
        x = x + self.down(F.silu(self.w1(h)) * self.w3(h))
        return self.head(self.norm(x)[:, -1])


class LstmModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = (
            nn.Embedding(12, 6),
            nn.LSTM(6, 6, 2),
            nn.Linear(6, 12),
        )
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        y, _ = self.rnn(self.encoder(tokens.t()))
        return self.decoder(y[-1])


class Bag(nn.Module):
    """Bags of words, mean of those that are present, and a bilinear score of pairs."""

    def __init__(self):
        super().__init__()
        self.bag, self.words = (
            nn.EmbeddingBag(12, 6, mode="mean", padding_idx=0),
            nn.Embedding(12, 5),
        )
        self.pair = nn.Bilinear(6, 5, 4)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        mean = (self.words(tokens) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.pair(self.bag(tokens), mean)


class Vae(nn.Module):
    """Reparametrised normal numbers and a divergence, with exp and log of the variance."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(48, 8), nn.Linear(4, 4)

    def forward(self, x):
        mean, log_variance = self.encode(x[:, :, ::2, ::2].flatten(1)).chunk(2, dim=1)
        spread = torch.exp(0.5 * log_variance)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), dim=1)
        code = mean + spread * torch.randn_like(spread)
        return self.decode(code) - 0.01 * divergence.unsqueeze(1)


def normed():
    """Make layers of weight and spectral norms, in both ways of torch."""
    return nn.Sequential(
        parametrizations.weight_norm(nn.Conv2d(3, 4, 3, 2, 1)), nn.LeakyReLU(0.1),
        nn.utils.weight_norm(nn.Conv2d(4, 4, 3, 2, 1), dim=1), nn.GELU(),
        parametrizations.spectral_norm(nn.Conv2d(4, 4, 2)), nn.Flatten(),
        nn.utils.spectral_norm(nn.Linear(4, 4)),
    )  # fmt: skip


MODELS = {
    "mobilenet": lambda: mobile(False),
    "efficientnet": lambda: mobile(True),
    "convnext": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 4, 4),
        ConvNeXtBlock(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 4),
    ),
    "unet": UNet,
    "vit": ViT,
    "gpt2": GPT2,
    "bert": Bert,
    "llama": Llama,
    "lstm": LstmModel,
    "bag": Bag,
    "vae": Vae,
    "norms of weights": normed,
}
OF_TOKENS = ("gpt2", "bert", "llama", "lstm", "bag")
OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: torch.optim.Adam(p, 0.02, amsgrad=True),
    "AdamW of lists": lambda p: torch.optim.AdamW(p, 0.02, foreach=True),
}


def batch(name):
    if name in OF_TOKENS:
        tokens = torch.randint(1, 12, (6, 8))
        tokens[0, 5:] = 0
        return tokens
    return torch.randn(6, 3, 8, 8)


def train(model, x, labels, make, steps):
    torch.manual_seed(1)  # for the numbers that a model draws
    optimiser, losses = make(model.parameters()), []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*spectral_norm:FutureWarning")
@pytest.mark.parametrize(
    ("name", "optimiser"), list(zip(MODELS, itertools.cycle(OPTIMISERS), strict=False))
)
def test_small_model_of_a_library_trains_as_in_float32(name, optimiser):
    torch.manual_seed(0)
    model, x, labels = MODELS[name](), batch(name), torch.arange(6) % 4
    torch.manual_seed(0)
    converted = posit.convert(MODELS[name](), P16)
    make = OPTIMISERS[optimiser]
    want = train(model, x, labels, make, 4)
    got = train(converted, x if name in OF_TOKENS else PositTensor(x, P16), labels, make, 4)
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 0.05
    assert len(set(got)) == 4
    for key, value in converted.state_dict().items():
        assert not value.is_floating_point() or isinstance(value, PositTensor), key


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrised_weights_are_converted_and_converted_back(norm):
    torch.manual_seed(0)
    layer = norm(nn.Linear(4, 3))
    x = torch.randn(2, 4)
    narrow = posit.convert(copy.deepcopy(layer), Mixed(P16, P8))
    assert narrow.weight.fmt == P8 == narrow(PositTensor(x, P8)).fmt
    for parameter in narrow.parametrizations.parameters():
        assert parameter.fmt == P16
    narrow(PositTensor(x, P8)).sum().backward()
    assert all(p.grad.fmt == P16 for p in narrow.parametrizations.parameters())
    posit.convert(narrow, P16)
    assert len(narrow.parametrizations["weight"]) == 1 and narrow.weight.fmt == P16
    layer.eval(), narrow.eval()
    assert (narrow(PositTensor(x, P16)).decode() - layer(x)).abs().max() < 0.01
    mixed = posit.convert(nn.Linear(4, 3), Mixed(P16, P8))
    assert not parametrize.is_parametrized(posit.convert(mixed, P16))


@pytest.mark.parametrize("name", ["ASGD", "Adagrad", "Adadelta", "Adamax", "NAdam", "RMSprop"])
def test_posit_optimiser_of_lists_lowers_the_loss(name):
    torch.manual_seed(0)
    model = posit.convert(nn.Linear(4, 3), P16)
    x, labels = PositTensor(torch.randn(6, 4), P16), torch.arange(6) % 3
    losses = train(model, x, labels, lambda p: getattr(torch.optim, name)(p, foreach=True), 5)
    assert losses[-1] < losses[0]


def test_posit_optimiser_that_divides_a_list_by_zero_is_refused():
    model = posit.convert(nn.Linear(4, 3), P16)
    x, labels = PositTensor(torch.randn(6, 4), P16), torch.arange(6) % 3
    with pytest.raises(PositError, match="foreach=False"):
        train(model, x, labels, lambda p: torch.optim.RAdam(p, foreach=True), 1)
    assert train(model, x, labels, torch.optim.RAdam, 1)[0] > 0
    rate = torch.tensor(0.01)  # makes the divisors tensors
    with pytest.raises(PositError, match="foreach=False"):
        train(model, x, labels, lambda p: torch.optim.RAdam(p, lr=rate, foreach=True), 1)


def test_posit_optimiser_of_single_tensors_rounds_its_rates_as_that_of_lists():
    results = []
    for foreach in (None, True):  # averages of ASGD multiply by a tensor without dimensions
        weight = nn.Parameter(PositTensor(torch.tensor([0.3, -2.0]), P16))
        optimiser = torch.optim.ASGD([weight], lr=0.1, t0=2, foreach=foreach)
        for _ in range(5):
            optimiser.zero_grad()
            (weight * weight).sum().backward()
            optimiser.step()
        results.append(optimiser.state[weight]["ax"].tolist())
    assert results[0] == results[1]
    decayed = nn.Parameter(PositTensor(torch.tensor([0.5, -2.0]), P16))
    optimiser = torch.optim.AdamW([decayed], lr=torch.tensor(0.5), weight_decay=0.5)
    decayed.grad = PositTensor(torch.zeros(2), P16)
    optimiser.step()
    assert decayed.tolist() == [0.375, -1.5]
    with pytest.raises(PositError, match=r"mixes posits and torch.float32"):
        decayed.clone().mul_(torch.tensor(0.5, requires_grad=True))


@pytest.mark.parametrize("kind", ["amax", "amin"])
@pytest.mark.parametrize("name", ["index_reduce", "scatter_reduce"])
def test_posit_gradient_without_a_rule_names_the_function_of_the_caller(name, kind):
    x = PositTensor(torch.randn(4), P16).requires_grad_()
    y = getattr(torch, name)(x, 0, torch.tensor([0, 1, 1]), x[:3] * 2, kind)
    with pytest.raises(PositError, match=rf"gradient of {name} \(call it on x.decode\(\)"):
        y.sum().backward()


def test_posit_masked_extreme_that_fills_with_infinity_says_where_to_decode():
    x = PositTensor(torch.randn(3), P16)
    with pytest.raises(PositError, match=r"where: inf is no .*call it on x.decode\(\)"):
        torch.masked.amin(x, dim=0, mask=torch.tensor([True, False, True]))


def test_posit_gather_without_indices_has_a_gradient_of_zeros():
    x = PositTensor(torch.randn(5), P16).requires_grad_()
    x.gather(0, torch.zeros(0, 2, dtype=torch.long)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0] * 5


def test_posit_logcumsumexp_has_the_derivatives_of_floats():
    x = PositTensor(torch.randn(2, 6, generator=torch.Generator().manual_seed(0)), P32)
    results = []
    for values in (x.clone().requires_grad_(), x.decode().requires_grad_()):
        y = torch.logcumsumexp(values, 1)
        first = torch.autograd.grad((y * y).sum(), values, create_graph=True)[0]
        results.append([y, first, torch.autograd.grad((first * first).sum(), values)[0]])
    for ours, wanted in zip(*results, strict=True):
        assert torch.allclose(ours.decode(), wanted, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        assert torch.logcumsumexp(x, 1).tolist() == results[0][0].tolist()
