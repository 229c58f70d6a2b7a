"""``ape.enabled`` around code that knows nothing of it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from trainwright import ape

A, B, V = (torch.rand(shape, generator=torch.Generator().manual_seed(n)) - 0.5
           for n, shape in enumerate(((5, 6), (6, 4), (6,))))  # fmt: skip
STACK = torch.stack([A, 2 * A])

CASES = {
    "matmul": (lambda: torch.matmul(A, B), lambda g: g(A, B)),
    "@": (lambda: A @ B, lambda g: g(A, B)),
    "mm": (lambda: torch.mm(A, B), lambda g: g(A, B)),
    "matrix by vector": (lambda: A @ V, lambda g: g(A, V[:, None])[:, 0]),
    "vector by vector": (lambda: V @ V, lambda g: g(V[None], V[:, None])[0, 0]),
    "vector by matrix": (lambda: V @ B, lambda g: g(V[None], B)[0]),
    "bmm": (lambda: torch.bmm(STACK, STACK.mT), lambda g: g(STACK, STACK.mT)),
    "broadcast": (lambda: STACK @ B, lambda g: g(STACK, B)),
    "linear": (lambda: functional.linear(A, B.T), lambda g: g(A, B)),
    "linear with bias": (
        lambda: functional.linear(A, B.T, torch.ones(4)), lambda g: g(A, B) + 1
    ),
    "addmm": (
        lambda: torch.addmm(torch.ones(4), A, B, beta=2, alpha=3), lambda g: g(A, B) * 3 + 2
    ),
    "addmv": (lambda: torch.addmv(torch.ones(5), A, V), lambda g: g(A, V[:, None])[:, 0] + 1),
    "baddbmm": (
        lambda: torch.baddbmm(torch.ones(2, 5, 5), STACK, STACK.mT),
        lambda g: g(STACK, STACK.mT) + 1,
    ),
    "addbmm": (
        lambda: torch.addbmm(torch.zeros(5, 5), STACK, STACK.mT),
        lambda g: g(torch.cat([A, 2 * A], 1), torch.cat([A, 2 * A], 1).T),
    ),
    "in place": (lambda: torch.ones(5, 4).addmm_(A, B), lambda g: g(A, B) + 1),
    "out": (lambda: torch.mm(A, B, out=torch.empty(5, 4)), lambda g: g(A, B)),
    "einsum": (lambda: torch.einsum("ij,jk->ik", A, B), lambda g: g(A, B)),
    "tensordot": (lambda: torch.tensordot(A, B, 1), lambda g: g(A, B)),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_product_is_ours(case, inference):
    code, ours = CASES[case]
    with ape.enabled("fp32-f") as calls, torch.inference_mode(inference):
        product = code()
    assert sum(calls.values()) == 1
    wanted = ours(lambda a, b: ape.gemm(a, b, dtype="fp32-f"))
    assert torch.equal(product, wanted)


def test_it_is_not_the_library_that_computes():
    a, b = torch.randn(40, 200), torch.randn(200, 40)
    with ape.enabled("fp32-f", accumulation=ape.TENSOR_CORE):
        product = a @ b
    assert not torch.equal(product, a @ b)
    assert torch.equal(product, ape.gemm(a, b, dtype="fp32-f", accumulation=ape.TENSOR_CORE))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_ape_enabled_convolutions_are_counted(dimensions, inference):
    layer = (nn.Conv1d, nn.Conv2d)[dimensions - 1](4, 6, 3, 2, 1, 2, groups=2)
    x = torch.randn(2, 4, *([9] * dimensions))
    with ape.enabled("fp32-b") as calls, torch.inference_mode(inference):
        y = layer(x)
    assert calls == {"aten.convolution.default": 1}
    torch.testing.assert_close(y, layer(x), rtol=1e-5, atol=1e-6)


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.Tanh(),
        nn.Linear(8, 3),
    )  # fmt: skip


def step(model, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    loss = model(x).square().sum()
    loss.backward()
    return [loss.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("dtype", ["fp32-f", "fp32-b", "auto", "fp32"])
def test_forward_and_backward_of_a_model(dtype):
    model, x = net(), torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    wanted = step(model, x)
    with ape.enabled(dtype) as calls:
        results = step(model, x)
    assert calls["aten.convolution.default"] == calls["aten.convolution_backward.default"] == 1
    assert calls["aten.addmm.default"] == 2 and calls["aten.mm.default"] == 4
    for a, b in zip(results, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_attention_is_not_left_to_fused_kernels(training):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).train(training)
    x = torch.randn(2, 5, 16)
    with ape.enabled("fp32-f") as calls, torch.no_grad():
        y = layer(x)
        q = torch.randn(1, 2, 5, 8)
        functional.scaled_dot_product_attention(q, q, q)
    assert calls["aten.bmm.default"] == 4
    assert calls["aten.addmm.default"] + calls["aten.mm.default"] == 4
    torch.testing.assert_close(y, layer(x).detach(), rtol=1e-4, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


def test_ape_enabled_leaves_other_types_alone():
    whole = torch.arange(6).reshape(2, 3)
    with ape.enabled("fp32-f") as calls:
        assert torch.equal(A.double() @ B.double(), (A.double() @ B.double()))
        assert (whole @ whole.T).dtype == torch.int64
        nn.ConvTranspose2d(1, 1, 2)(torch.ones(1, 1, 3, 3))
        nn.Conv3d(1, 1, 2)(torch.ones(1, 1, 3, 3, 3))
    assert not calls


def test_ape_enabled_ends_with_its_context():
    with pytest.raises(RuntimeError, match="out of here"), ape.enabled():
        raise RuntimeError("out of here")
    with ape.enabled("fp32-f") as calls:
        A @ B
    A @ B
    assert sum(calls.values()) == 1
    with pytest.raises(ValueError, match="not 'int16'"), ape.enabled("int16"):
        pass
