"""Number libraries under settings of torch that are for networks: autocast and defaults."""

from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch

from trainwright import ape, mcf, posit, precision, qr, tt
from trainwright.support.graphs import addresses

torch.manual_seed(0)
A, B = torch.randn(12, 6, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
X, Y = A.float(), B.float()
P16 = posit.PositFormat(16, 2)
MIXED: dict[str, Any] = {"low": "fp16", "high": "fp32"}


def _components():
    result: Any = torch.softmax(mcf.tensor(X, nc=2) @ Y, 1)
    return result.components


def _component_gradient():
    x: Any = mcf.tensor(X, nc=2, requires_grad=True)
    y: Any = torch.softmax(x @ Y, 1)
    with torch.autocast("cpu", enabled=False):  # torch's own rule: a backward pass is outside
        (y * y).sum().backward()
    return x.grad


def _gradient(product):
    x = X.clone().requires_grad_()
    product(x).square().sum().backward()
    return x.grad


def _measured(f):
    numbers = [f.errors.residual, f.errors.orthogonality]
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _posits():
    x: Any = posit.PositTensor(A, P16)
    return (x @ posit.PositTensor(B, P16)).softmax(1).decode()


def _image(x):
    return x.reshape(1, 1, *x.shape)


CALLS = {
    **{f"gemm {d}": partial(ape.gemm, X, Y, dtype=d) for d in ("fp32-f", "fp32-b", "fp32-i8")},
    "gemm auto": partial(ape.gemm, X, Y, c=X[:, :5]),
    "gemm fp64-i8": partial(ape.gemm, A, B, dtype="fp64-i8"),
    "gradient of gemm": partial(_gradient, partial(ape.gemm, b=Y, dtype="fp32-b")),
    "conv2d": partial(ape.conv2d, _image(X), _image(Y[:3, :3]), dtype="fp32-b"),
    "householder": lambda: qr.householder_qr(A, **MIXED, rounding="inner").R,
    "apply": lambda: qr.block_qr(A, **MIXED, rounding="block").apply(A),
    "Q": lambda: qr.block_qr(A, block=2, high="fp32").Q,
    "errors": lambda: _measured(qr.tsqr(A, levels=1, high="fp32")),
    "tsqr": lambda: qr.tsqr(A, levels=1, high="fp32").R,
    "pivoted": lambda: qr.pivoted_qr(X).Q,
    "lstsq": lambda: qr.lstsq(A, A[:, 0] ** 2, low="fp16").x,
    "tt_svd": lambda: tt.tt_svd(A, (3, 4), (2, 3), numbers=tt.Numbers(high="fp32"))[0],
    "to_matrix": lambda: tt.to_matrix(tt.tt_svd(A, (3, 4), (2, 3)), torch.float32),
    "dot_mixed": lambda: precision.dot_mixed(A[:, 0], A[:, 1], "fp16", "fp32"),
    "posit codes": lambda: posit.matmul(posit.encode(A, P16), posit.encode(B, P16), P16),
    "posit tensors": _posits,
    "components": _components,
    "gradient of components": _component_gradient,
}


@contextmanager
def _default_type(dtype):
    own = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(own)


SETTINGS = {
    "autocast to bfloat16": partial(torch.autocast, "cpu", torch.bfloat16),
    "autocast to float16": partial(torch.autocast, "cpu", torch.float16),
    "default type float64": partial(_default_type, torch.float64),
    "default device meta": partial(torch.device, "meta"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CALLS)
def test_library_call_under_a_setting_has_the_bits_without_it(name, setting):
    wanted = CALLS[name]()
    with SETTINGS[setting]():
        result = CALLS[name]()
    assert result.dtype == wanted.dtype
    assert torch.equal(result, wanted)


def test_kernel_arguments_off_the_processor_are_one_error():
    with pytest.raises(RuntimeError, match=r"run on the CPU, not on meta: set no default device"):
        addresses([A, torch.empty(2, device="meta")])
