"""Masks of attention in PyTorch, and in the programs of compiled models."""

import copy
from itertools import product

import pytest
import torch
from slowly import mostly_slow
from torch.nn.functional import scaled_dot_product_attention

import trainwright
import trainwright.nn as tnn

pytestmark = pytest.mark.usefixtures("first_programs")

NUMBERS = "factor=fixed(8),activation=fixed(16)"
HEADS, TOKENS, SIZE = 4, 8, 32
WEIGHTS = torch.linspace(-1, 1, SIZE)


class Attending(torch.nn.Module):
    """Attention with a residual sum behind a norm."""

    def __init__(self, causal=False):
        super().__init__()
        self.q, self.k, self.v, self.out = (
            tnn.TTLinear(SIZE, SIZE, rank=8, numbers=NUMBERS) for _ in range(4)
        )
        self.norm = tnn.TTLayerNorm(SIZE, numbers=NUMBERS)
        self.attention = tnn.TokenAttention(HEADS, causal=causal)

    def forward(self, x, mask=None, padding=None):
        y = self.norm(x)
        return x + self.out(self.attention(self.q(y), self.k(y), self.v(y), mask, padding))


def given_masks(samples):
    """Return masks by name; in ``padding`` one sequence has no token."""
    padding = torch.arange(TOKENS) >= torch.randint(1, TOKENS + 1, (samples, 1))
    padding[2] = True
    mask = torch.rand(samples, HEADS, TOKENS, TOKENS) > 0.5
    return {
        "padding": {"padding": padding},
        "mask": {"mask": mask},
        "queries and keys": {"mask": mask[0, 0]},
        "both": {"mask": mask[:, :1], "padding": padding},
    }


def gradients(model, x, steps=1, weights=WEIGHTS, **masks):
    """Return outputs and all gradients of the last of some steps."""
    for _ in range(steps):
        model.zero_grad()
        given = x.clone().requires_grad_()
        y = model(given, **masks)
        (y * weights).sum().backward()
    return [y.detach(), given.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.filterwarnings("error")
@mostly_slow(
    "name, causal",
    product(given_masks(3), (False, True)),
    lambda name, causal: causal == (name in ("mask", "both")),
)
def test_compiled_masked_attention_is_one_program_near_torch(name, causal):
    """Seven sequences in batches of four, of which the last one is filled up."""
    torch.manual_seed(0)
    model, x, masks = Attending(causal), torch.randn(7, TOKENS, SIZE), given_masks(7)[name]
    compiled = trainwright.compile(model, batch=4 * TOKENS)
    own, plain = gradients(compiled, x, 4, **masks), gradients(model, x, 4, **masks)
    assert {row.where for row in compiled.report().layers} == {"program 2"}
    assert set(compiled.report().operators) <= {"invert", "getitem", "and_"}
    for name, mine, other in zip(
        ["y", "x", *dict(model.named_parameters())], own, plain, strict=True
    ):
        if name != "k.bias":  # attention does not depend on it
            assert (mine - other).norm() < 0.01 * other.norm(), name
    real = gradients(tnn.to_torch(model), x, **masks)
    for mine, other in zip(own[:2], real, strict=False):
        assert (mine - other).norm() < 0.01 * other.norm()


@pytest.mark.parametrize("shape", ((300,), (2, 3)), ids=("many", "two axes"))
def test_compiled_mask_of_each_sample_follows_samples_that_are_measured(shape):
    """Measure one sample of two, and samples of two axes as one."""
    torch.manual_seed(6)
    model, x = Attending(), torch.randn(*shape, TOKENS, SIZE)
    padding = torch.arange(TOKENS) >= torch.randint(1, TOKENS + 1, (*shape, 1))
    compiled = trainwright.compile(model, batch=32 * TOKENS)
    own = gradients(compiled, x, 2, padding=padding)[:2]
    for mine, other in zip(own, gradients(model, x, 2, padding=padding)[:2], strict=True):
        assert (mine - other).norm() < 0.01 * other.norm()


def test_compiled_padding_hides_tokens_from_all_others():
    torch.manual_seed(1)
    compiled = trainwright.compile(Attending(), batch=4 * TOKENS)
    x, padding = torch.randn(3, TOKENS, SIZE), given_masks(3)["padding"]["padding"]
    gradients(compiled, x, padding=padding)
    compiled.eval()
    changed = torch.where(padding[..., None], torch.randn(x.shape), x)
    assert torch.equal(
        compiled(x, padding=padding)[~padding], compiled(changed, padding=padding)[~padding]
    )
    assert not torch.equal(compiled(x)[~padding], compiled(changed)[~padding])


def test_compiled_gradient_of_mostly_padding_is_that_of_torch():
    """Exponents follow the few gradients of tokens that are no padding."""
    torch.manual_seed(7)
    model, x = Attending(), torch.randn(4, 64, SIZE)
    compiled = trainwright.compile(model, batch=4 * 64)
    padding = torch.arange(64) >= torch.randint(2, 6, (4, 1))
    weights = torch.linspace(-1, 1, SIZE).masked_fill(padding[..., None], 0)
    own, plain = (gradients(each, x, 6, weights, padding=padding) for each in (compiled, model))
    names = "y", "x", *dict(model.named_parameters())
    for name, mine, other in zip(names, own, plain, strict=True):
        if name != "k.bias":
            assert (mine - other).norm() < 0.03 * other.norm(), name


def test_compiled_masked_attention_of_a_loss_without_gradient_has_gradients_of_zeros():
    masks = {"padding": torch.arange(TOKENS).expand(2, -1) > 4}
    model = trainwright.compile(Attending(), batch=2 * TOKENS)
    _, *own = gradients(model, torch.randn(2, TOKENS, SIZE), 2, torch.zeros(SIZE), **masks)
    assert not any(gradient.any() for gradient in own)


def test_attention_with_masks_equals_that_of_torch():
    torch.manual_seed(2)
    q, k, v = (torch.randn(5, TOKENS, SIZE, requires_grad=True) for _ in range(3))
    for masks in given_masks(5).values():
        allowed = masks.get("mask", torch.ones((), dtype=torch.bool))
        if "padding" in masks:
            allowed = allowed & ~masks["padding"][:, None, None]
        heads = (x.view(5, TOKENS, HEADS, -1).transpose(1, 2) for x in (q, k, v))
        wanted = scaled_dot_product_attention(*heads, attn_mask=allowed).transpose(1, 2).flatten(2)
        own = tnn.TokenAttention(HEADS)(q, k, v, **masks)
        torch.testing.assert_close(own, wanted.nan_to_num())  # NaN before torch 2.5
        assert all(g.isfinite().all() for g in torch.autograd.grad(own.sum(), (q, k, v)))
        causal = tnn.TokenAttention(HEADS, causal=True)(q, k, v, **masks)
        triangle = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        masks = {"mask": masks.get("mask", triangle) & triangle, "padding": masks.get("padding")}
        torch.testing.assert_close(causal, tnn.TokenAttention(HEADS)(q, k, v, **masks))


def test_compiled_query_without_keys_finds_zeros():
    torch.manual_seed(3)
    model = Attending()
    compiled, x = trainwright.compile(model, batch=2 * TOKENS), torch.randn(2, TOKENS, SIZE)
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[3] = False
    y, gradient, *_ = gradients(compiled, x, mask=mask)
    alone = x[:, 3] + model.out.bias
    assert (y[:, 3] - alone).norm() < 0.01 * alone.norm() and gradient.isfinite().all()


def test_compiled_passes_with_other_masks_are_run_again_with_their_own():
    torch.manual_seed(4)
    compiled, x = trainwright.compile(Attending(), batch=32), torch.randn(4, TOKENS, SIZE)
    paddings = [torch.arange(TOKENS) >= length for length in torch.tensor([[3], [8]])]
    gradients(compiled, x, 3, padding=paddings[0].expand(4, -1))
    compiled.eval()
    alone = [gradients(compiled, x, padding=padding.expand(4, -1)) for padding in paddings]
    assert not torch.equal(alone[0][1], alone[1][1])
    given = [x.clone().requires_grad_() for _ in paddings]
    outputs = [
        compiled(values, padding=padding.expand(4, -1))
        for values, padding in zip(given, paddings, strict=True)
    ]
    for y, values, wanted in zip(outputs, given, alone, strict=True):
        (y * torch.linspace(-1, 1, SIZE)).sum().backward()
        assert torch.equal(y, wanted[0]) and torch.equal(values.grad, wanted[1])


class Late(Attending):
    """Attention whose mask is made after the first layers of its program."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        y = self.norm(x)
        q, k, v = self.q(y), self.k(y), self.v(y)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if self.kind == "of inputs":
            mask = (x[..., 0] > 0)[:, None, None]
        if self.kind == "of values":
            mask = (k[..., 0] > 0)[:, None, None]
        attended = self.attention(q, k, v, mask)
        mask.fill_(False)
        return x + self.out(attended)


@pytest.mark.parametrize(
    ("kind", "programs"), [("of sizes", 1), ("of inputs", 1), ("of values", None)]
)
def test_compiled_mask_that_is_made_within_a_forward_is_followed(kind, programs):
    torch.manual_seed(5)
    model, x = Late(kind), torch.randn(4, TOKENS, SIZE)
    compiled = trainwright.compile(model, batch=32)
    own, plain = gradients(compiled, x, 4)[:2], gradients(tnn.to_torch(model), x)
    for mine, other in zip(own, plain, strict=False):
        assert (mine - other).norm() < 0.02 * other.norm()
    if programs:
        assert len({row.where for row in compiled.report().layers}) == programs


FORMS = {  # of torch's encoder layer: bool masks are true at keys that are left out
    "mask": {"src_mask": torch.rand(8, 8, generator=torch.Generator().manual_seed(8)) > 0.6},
    "row without keys": {"src_mask": (torch.arange(8)[:, None] == 3).expand(8, 8)},
    "masks of heads": {
        "src_mask": torch.rand(16, 8, 8, generator=torch.Generator().manual_seed(9)) > 0.6
    },
    "padding": {"src_key_padding_mask": torch.arange(8) > torch.tensor([[1], [7], [4], [5]])},
}
FORMS["both"] = FORMS["padding"] | FORMS["mask"]


def as_numbers(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -torch.inf)


@pytest.mark.filterwarnings("error")
@mostly_slow(
    "name, norm_first",
    product(FORMS, (False, True)),
    quick=[("row without keys", False), ("masks of heads", False), ("both", True)],
)
def test_compiled_encoder_layer_takes_masks_of_numbers_as_bool_ones(name, norm_first):
    """Make one program, of the same bits; near torch, a query without keys finds zeros."""
    torch.manual_seed(10)
    layer = torch.nn.TransformerEncoderLayer(
        SIZE, HEADS, 64, 0.0, batch_first=True, norm_first=norm_first
    )
    layer = tnn.from_torch(layer, rank=8, numbers=NUMBERS, norms=True)
    x, results = torch.randn(4, TOKENS, SIZE), []
    for form in (FORMS[name], {key: as_numbers(mask) for key, mask in FORMS[name].items()}):
        compiled = trainwright.compile(copy.deepcopy(layer), batch=32)
        results.append(gradients(compiled, x, 4, **form))
        assert {row.where for row in compiled.report().layers} == {"program 2"}
    assert all(map(torch.equal, *results))
    real = gradients(tnn.to_torch(layer), x, **form)
    for mine, other in zip(results[0][:2], real[:2], strict=True):
        assert (mine - other).norm() < 0.02 * other.norm()


class OfNumbers(Attending):
    """Attention of torch with a mask that is added."""

    def forward(self, x, mask):
        y = self.norm(x)
        q, k, v = (
            layer(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(y.transpose(1, 2).flatten(2))


def test_compiled_attention_of_torch_takes_masks_of_numbers_as_bool_or_as_they_are():
    torch.manual_seed(11)
    x, mask = torch.randn(4, TOKENS, SIZE), as_numbers(FORMS["mask"]["src_mask"])
    model, results = OfNumbers(), []
    for form in (mask == 0, mask):
        compiled = trainwright.compile(copy.deepcopy(model), batch=32)
        results.append(gradients(compiled, x, 4, mask=form))
        assert len({row.where for row in compiled.report().layers}) == 1
    assert all(map(torch.equal, *results))
    dense = tnn.to_torch(model)
    for other in (
        torch.randn(TOKENS, TOKENS),
        mask.clamp(min=-5),
        torch.full_like(mask, -torch.inf),
    ):
        own, plain = (gradients(each, x, 4, mask=other)[:2] for each in (compiled, dense))
        for mine, wanted in zip(own, plain, strict=True):
            assert (mine - wanted).norm() < 0.02 * wanted.norm()
    bias = torch.zeros(TOKENS, TOKENS, requires_grad=True)  # is trained: no mask of 0 and -inf
    compiled(x, mask=bias).sum().backward()
    assert bias.grad is not None and bias.grad.any()


WRONG = {
    "float": ({"mask": torch.zeros(8, 8)}, TypeError, r"mask .* torch\.bool, not torch\.float32"),
    "integers": ({"padding": torch.zeros(2, 8).long()}, TypeError, r"padding .* not torch\.int64"),
    "keys": ({"mask": torch.ones(8, 7) > 0}, ValueError, r"\(8, 7\), which does not broadcast to"),
    "samples": ({"padding": torch.ones(3, 8) > 0}, ValueError, r"padding .* to \(2, 8\), .*keys"),
    "list": ({"padding": [True]}, TypeError, "must be a torch.Tensor, not list"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_masks_of_another_kind_are_one_error(name):
    masks, error, match = WRONG[name]
    model, x = Attending(), torch.randn(2, TOKENS, SIZE)
    for each in (model, trainwright.compile(model, batch=16)):
        with pytest.raises(error, match=match):
            each(x, **masks)
