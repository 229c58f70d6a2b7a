"""Gradients of products, look-ups and softmax with ``MCTensor``s; gradients of a wider type."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trainwright import mcf
from trainwright.mcf.nn import MCSGD, MCEmbedding, MCLinear


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
    gradient, want = ours.weight.grad, theirs.weight.grad
    assert type(gradient) is torch.Tensor and gradient.layout is want.layout
    assert torch.equal(gradient.to_dense(), want.to_dense())
    if "padding_idx" in options:
        assert not gradient.to_dense()[options["padding_idx"]].any()


INF, NAN = math.inf, math.nan
ROWS = torch.tensor([
    [0.0, 1.0, -INF], [-INF, 2.0, -INF], [-INF, -INF, -INF], [INF, 0.0, 1.0], [INF, -INF, 0.0],
    [INF, INF, 0.0], [NAN, 0.0, 1.0], [NAN, INF, -INF], [3e38, -3e38, 0.0], [1e-40, 0.0, -0.0],
])  # fmt: skip


@pytest.mark.parametrize("nc", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_softmax_of_special_values_is_torchs(function, nc):
    share, want = function(mcf.tensor(ROWS, nc=nc), -1), function(ROWS, -1)
    assert torch.allclose(share.fc, want, rtol=1e-6, atol=1e-37, equal_nan=True)
    lower = share.components[..., 1:]
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


# torch from 2.4 on is taken; the pinned one has gradients of another type than their tensors'
has_types = pytest.mark.skipif(
    not hasattr(torch.Tensor, "grad_dtype"),
    reason=f"torch {torch.__version__} has no Tensor.grad_dtype: gradients of a wider type need it",
)
WIDER = [(torch.float16, torch.float32), (torch.bfloat16, torch.float32),
         (torch.float16, torch.float64), (torch.float32, torch.float64)]  # fmt: skip
TWO_LAYERS = {
    "network": lambda x, w: torch.log_softmax(F.relu(x @ w) @ w.T, -1)[:, [1, 0]].mean(),
    "addmm": lambda x, w: torch.addmm(w[0], x, w, beta=0.5).square().sum(0).mean(),
    "moves": lambda x, w: (torch.stack([w.T, w.flip(0)]).unbind()[0] * torch.cat([x, x])[:3]).sum(),
    "others": lambda x, w: (
        (torch.tanh(x / (w.exp() + 1)) - F.gelu(w).mean(0)).clamp(min=-0.5).sum()
    ),
    "rows": lambda x, w: (F.embedding(torch.tensor([0, 2, 0]), w) ** 2 * x).sum(),
}


@has_types
@pytest.mark.parametrize("dtype, wider", WIDER, ids=str)
@pytest.mark.parametrize("name", TWO_LAYERS)
def test_gradients_of_a_wider_type_are_those_of_the_whole_numbers(name, dtype, wider):
    draw = torch.Generator().manual_seed(11)
    x, w = (torch.randn(3, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    plain = mcf.tensor(x, nc=2, dtype=dtype)
    ours = nn.Parameter(mcf.tensor(w, nc=2, dtype=dtype))
    narrow = nn.Parameter(mcf.tensor(w, nc=2, dtype=dtype))
    ours.grad_dtype = wider
    whole = ours.to_float64().requires_grad_()
    for parameter in (ours, narrow):
        loss = TWO_LAYERS[name](plain, parameter)
        assert loss.dtype is dtype and loss.nc == 2
        loss.backward()
    TWO_LAYERS[name](plain.to_float64(), whole).backward()
    assert type(ours.grad) is torch.Tensor and ours.grad.dtype is wider
    assert narrow.grad.dtype is dtype
    size = whole.grad.abs().max()
    error = (ours.grad - whole.grad).abs().max() / size
    assert error <= 64 * torch.finfo(wider).eps < (narrow.grad - whole.grad).abs().max() / size


@has_types
def test_gradients_of_a_wider_type_reach_plain_operands_and_parameters():
    layer = MCLinear(3, 2, nc=2, dtype=torch.float16)
    for parameter in layer.parameters():
        parameter.grad_dtype = torch.float32
    x = torch.randn(4, 3, dtype=torch.float16, requires_grad=True)
    layer(x).square().sum().backward()
    assert x.grad.dtype is torch.float16 and x.grad.any()
    before, grad = layer.weight.to_float64(), layer.weight.grad
    MCSGD(layer.parameters(), lr=2.0**-10).step()
    change = (layer.weight.to_float64() - before) * -(2.0**10)
    assert (change - grad).abs().max() <= 2.0**-11 * grad.abs().max()
    assert (change - grad.half()).abs().max() > (change - grad).abs().max()


def test_numbers_made_of_a_tensor_in_a_graph_pass_gradients_to_it():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    y = mcf.tensor(layer(x), nc=3, dtype=torch.float64)
    assert y.nc == 3 and y.dtype is torch.float64
    (y * y * y).sum().backward()
    wanted = torch.nn.Linear(4, 3).double()
    wanted.load_state_dict(layer.state_dict())
    (wanted(x.double()) ** 3).sum().backward()
    for own, other in zip(layer.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(own.grad.double(), other.grad, rtol=1e-5, atol=1e-5)
    number = mcf.tensor([2.0], nc=2, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(mcf.tensor(number * number, nc=3).sum(), number)[0]
    assert slope.tolist() == [4.0]
    assert mcf.tensor(layer.weight, nc=2, requires_grad=True).is_leaf
    with torch.no_grad():
        assert not mcf.tensor(layer.weight, nc=2).requires_grad
    assert not mcf.tensor(x, nc=2).requires_grad
