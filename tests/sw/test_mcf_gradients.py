"""Gradients of products and look-ups with ``MCTensor``s, and of softmax where terms are left out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ttforge import mcf
from ttforge.mcf.nn import MCEmbedding


@pytest.mark.parametrize("kinds", ["mmm", "mmp", "mpm", "pmp", "ppm"])
@pytest.mark.parametrize("shape", [(5, 3), (3,), (1, 3), ()])
def test_gradients_of_addmm(shape, kinds):
    draw = torch.Generator().manual_seed(8)
    plain = [torch.randn(s, generator=draw).requires_grad_() for s in (shape, (5, 7), (7, 3))]
    ours = [
        (mcf.tensor(t.detach(), nc=2) if kind == "m" else t.detach().clone()).requires_grad_()
        for t, kind in zip(plain, kinds, strict=True)
    ]
    weights = torch.randn(5, 3, generator=draw)
    (torch.addmm(*ours, beta=0.5, alpha=-2) * weights).sum().backward()
    (torch.addmm(*plain, beta=0.5, alpha=-2) * weights).sum().backward()
    for x, want in zip(ours, plain, strict=True):
        assert type(x.grad) is torch.Tensor
        assert torch.equal(x.grad, want.grad)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_idx": 1},
        {"padding_idx": -5},
        {"scale_grad_by_freq": True},
        {"sparse": True},
        {"padding_idx": 3, "scale_grad_by_freq": True},
    ],
    ids=str,
)
def test_gradients_of_an_embedding_with_repeated_rows(options):
    torch.manual_seed(9)
    ours = MCEmbedding(5, 3, **options)
    torch.manual_seed(9)
    theirs = nn.Embedding(5, 3, **options)
    at = torch.tensor([[1, 2, 1], [0, 3, 1]])
    weights = torch.randn(2, 3, 3)
    for layer in (ours, theirs):
        (layer(at) * weights).sum().backward()
    found, want = ours.weight.grad, theirs.weight.grad
    assert type(found) is torch.Tensor and found.layout is want.layout
    assert torch.equal(found.to_dense(), want.to_dense())
    if "padding_idx" in options:
        assert not found.to_dense()[options["padding_idx"]].any()


INF, NAN = math.inf, math.nan
ROWS = torch.tensor([
    [0.0, 1.0, -INF], [-INF, 2.0, -INF], [-INF, -INF, -INF], [INF, 0.0, 1.0], [INF, -INF, 0.0],
    [INF, INF, 0.0], [NAN, 0.0, 1.0], [NAN, INF, -INF], [3e38, -3e38, 0.0], [1e-40, 0.0, -0.0],
])  # fmt: skip


@pytest.mark.parametrize("nc", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_of_special_values_is_torchs(function, nc):
    made, want = function(mcf.tensor(ROWS, nc=nc), -1), function(ROWS, -1)
    assert torch.allclose(made.fc, want, rtol=1e-6, atol=1e-37, equal_nan=True)
    lower = made.components[..., 1:]
    assert not lower.isnan().any() and not lower[~want.isfinite()].any()


@pytest.mark.parametrize("function", [F.softmax, F.log_softmax])
def test_gradients_of_softmax_with_terms_left_out(function):
    draw = torch.Generator().manual_seed(10)
    scores = torch.randn(4, 5, generator=draw)
    mask = torch.tensor([True, False, True, True, False])
    ours, plain = mcf.tensor(scores).requires_grad_(), scores.clone().requires_grad_()
    weights = torch.randn(4, 3, generator=draw)
    for x in (ours, plain):
        left = torch.where(mask, x, torch.tensor(-INF))
        (function(left, -1)[:, mask] * weights).sum().backward()
    assert ours.grad.isfinite().all() and not ours.grad[:, ~mask].any()
    assert torch.allclose(ours.grad, plain.grad, rtol=1e-5, atol=1e-6)
