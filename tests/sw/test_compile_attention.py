"""Attention as users of PyTorch write it, in the programs of compiled models."""

import re
import warnings
from itertools import product

import pytest
import torch
from slowly import mostly_slow
from torch.nn.functional import scaled_dot_product_attention as attention

import trainwright
import trainwright.nn as tnn

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = "factor=fixed(8),activation=fixed(16)"


class Written(torch.nn.Module):
    """Attention written by a function."""

    def __init__(self, function):
        super().__init__()
        self.function, self.n_head = function, 4
        self.q, self.k, self.v, self.out = (
            tnn.TTLinear(32, 32, rank=8, numbers=NUMBERS) for _ in range(4)
        )
        self.norm = tnn.TTLayerNorm(32, numbers=NUMBERS)

    def forward(self, x, mask=None):
        y = self.norm(x)
        return x + self.out(self.function(self, y, self.q(y), self.k(y), self.v(y), mask))


def viewed(self, x, q, k, v, mask):
    b, t, c = x.shape
    q, k, v = (y.view(b, t, self.n_head, c // self.n_head).transpose(1, 2) for y in (q, k, v))
    y = attention(q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=mask is None)
    return y.transpose(1, 2).contiguous().view(b, t, c)


def permuted(self, x, q, k, v, mask):
    q, k, v = (y.reshape(x.size(0), x.size(1), 4, -1).permute(0, 2, 1, 3) for y in (q, k, v))
    return (
        attention(q, k, v, mask, scale=8**-0.5)
        .permute(0, 2, 1, 3)
        .reshape(x.size(0), x.size(1), 32)
    )


def unflattened(self, x, q, k, v, mask):
    q, k, v = (y.unflatten(-1, (4, 8)).transpose(-3, -2) for y in (q, k, v))
    return attention(q, k, v, mask).transpose(1, 2).flatten(2)


def spread(self, x, q, k, v, mask):
    q, k, v = (y.view(*x.shape[:2], self.n_head, -1).transpose(1, 2) for y in (q, k, v))
    return attention(q, k, v, mask).transpose(1, 2).reshape(*x.shape[:-1], -1)


def over_heads(self, x, q, k, v, mask):
    """Compute attention between heads, as where a transposition was forgotten."""
    q, k, v = (y.view(x.size(0), x.size(1), 4, 8) for y in (q, k, v))
    return attention(q, k, v).reshape(x.size(0), x.size(1), 32)


def mixed_heads(self, x, q, k, v, mask):
    q, k, v = (y.unflatten(-1, (8, 4)).transpose(1, 3) for y in (q, k, v))
    return attention(q, k, v).transpose(1, 3).flatten(2)


def of_floats(self, x, q, k, v, mask):
    given = torch.linspace(-3, 3, 64).view(8, 8) if mask is None else torch.where(mask, 0.0, -3.0)
    return permuted(self, x, q, k, v, given)


def scaled(self, x, q, k, v, mask):
    q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in (q, k, v))
    return attention(q, k, v, mask, scale=1.0).transpose(1, 2).flatten(2)


def step(model, x, mask):
    given = x.clone().requires_grad_()
    y = model(given, mask)
    (y * torch.linspace(-1, 1, 32)).sum().backward()
    return [y.detach(), given.grad]


def follows_torch(function, mask):
    """Return whether all of a model is one program; its results are those of torch's layers."""
    torch.manual_seed(0)
    model, x = Written(function), torch.randn(7, 8, 32)
    compiled = trainwright.compile(model, batch=32)
    for _ in range(4):
        own = step(compiled, x, mask)
    for mine, other in zip(own, step(tnn.to_torch(model), x, mask), strict=True):
        assert (mine - other).norm() < 0.01 * other.norm()
    report = compiled.report()
    return len({row.where for row in report.layers}) == 1 and not report.operators


MASKS = {"none": None, "padding": torch.arange(8) < torch.tensor([5, 8, 1, 4, 6, 7, 2])[:, None]}
MASKS["padding"] = MASKS["padding"][:, None, None]


@pytest.mark.filterwarnings("error")
@mostly_slow(
    "function, mask",
    product((viewed, permuted, unflattened, spread), MASKS),
    lambda function, mask: (mask == "none") == (function in (viewed, spread)),
)
def test_compiled_attention_between_views_is_one_program(function, mask):
    assert follows_torch(function, MASKS[mask])


@mostly_slow(
    "function, mask",
    product((over_heads, mixed_heads, of_floats, scaled), MASKS),
    lambda function, mask: mask == "none",
)
def test_compiled_attention_of_another_kind_stays_in_torch(function, mask):
    assert not follows_torch(function, MASKS[mask])


def test_compiled_attention_between_views_follows_a_call_of_other_views():
    """Split 4 heads in a trace and 2 in a later call: the values then leave the program."""
    torch.manual_seed(1)
    model, x = Written(viewed), torch.randn(4, 8, 32)
    compiled = trainwright.compile(model, batch=32)
    for heads in (4, 2, 4):
        model.n_head = heads
        for _ in range(3):
            own = step(compiled, x, None)
        for mine, other in zip(own, step(tnn.to_torch(model), x, None), strict=True):
            assert (mine - other).norm() < 0.01 * other.norm()


def test_scores_too_coarse_for_softmax_are_named():
    """Inputs of 100 make scores of tens of thousands, hundreds apart in 8 bits."""

    class Alone(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (tnn.TTLinear(16, 16, rank=2) for _ in range(4))
            self.attention = tnn.TokenAttention(1)

        def forward(self, x):
            return self.out(self.attention(self.q(x), self.k(x), self.v(x)))

    def messages(size):
        torch.manual_seed(0)
        model, x = trainwright.compile(Alone(), batch=16), size * torch.randn(1, 16, 16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(16):
                model(x).square().sum().backward()
        q, k = (model.to_torch().get_submodule(name)(x) for name in "qk")
        largest = (q @ k.transpose(1, 2)).abs().max().item()
        return largest, [str(w.message) for w in caught if "too coarse" in str(w.message)]

    assert not messages(1)[1]
    largest, (message,) = messages(100)
    times = re.match(r"attention of q, k, v: y was (\d+) times too coarse for softmax", message)
    assert times is not None
    # A step of 4 is one of 1 in a score's quarter. Exponents follow the mean: the largest saturate.
    assert largest / 127 / 4 / 8 < int(times[1]) < largest / 127 / 4


def test_parts_of_a_program_are_named_by_the_layers_they_read():
    class Skip(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = (tnn.TTLinear(16, 16, rank=2) for _ in range(3))
            self.gelu = torch.nn.GELU()

        def forward(self, x):
            y = self.first(x)
            return self.head(self.gelu(self.second(y)) + y)

    model = trainwright.compile(Skip(), batch=4)
    (stretch,) = model.chains
    assert set(stretch.parts.values()) == {
        "the input", "first", "second", "gelu of second", "sum of gelu of second, first", "head",
    }  # fmt: skip


@mostly_slow(
    "function", [viewed, permuted, unflattened, over_heads], quick=[unflattened, over_heads]
)
def test_calls_of_compiled_models_wait_for_no_collection_of_garbage(function, monkeypatch):
    """Values inside of programs are freed as soon as nobody reads them."""
    model, x = trainwright.compile(Written(function), batch=16), torch.randn(2, 8, 32)
    model(x).square().sum().backward()  # compiles

    def refused():
        raise AssertionError("a collection of garbage takes longer than a step")

    monkeypatch.setattr("trainwright.offload.plan.gc.collect", refused)
    for _ in range(2):
        model(x).square().sum().backward()
