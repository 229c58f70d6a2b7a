"""Posits and multi-component floats within functions that torch compiles or records."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from trainwright import ape, mcf, posit, qr
from trainwright.mcf.nn import MCLinear


def _posits():
    fmt = posit.PositFormat(16, 2)
    layers = torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    return posit.convert(torch.nn.Sequential(*layers), fmt), posit.PositTensor(
        torch.randn(5, 6), fmt
    )


def _components():
    return MCLinear(6, 3, nc=2), mcf.tensor(torch.randn(5, 6), nc=2)


def _words(x):
    return x.codes() if isinstance(x, posit.PositTensor) else getattr(x, "components", x)


@pytest.mark.parametrize("layer_and_inputs", [_posits, _components])
def test_compiled_layer_has_the_words_and_gradients_of_plain_calls(layer_and_inputs):
    torch.manual_seed(0)
    layer, x = layer_and_inputs()
    compiled = torch.compile(copy.deepcopy(layer), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = [network(x) for network in (layer, compiled)]
        for y in outputs:
            (y * y).sum().backward()
    assert torch.equal(*map(_words, outputs))
    for own, other in zip(layer.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(_words(own.grad), _words(other.grad))


def test_recorded_operators_of_components_are_one_error():
    """Let no graph hold the unwritten memory of a kernel, which no operator of torch fills."""
    layer, x = _components()
    with pytest.raises(RuntimeError, match="cannot record"):
        make_fx(lambda x: x * x)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tracer warns of each number that it cannot follow
        with pytest.raises(RuntimeError, match="cannot record"):
            torch.jit.trace(layer, (x,))


def test_recorded_product_of_posits_has_the_words_of_plain_calls():
    x, other = (_posits()[1] for _ in range(2))
    graph = make_fx(lambda x: torch.matmul(x, x.mT))(x)
    assert torch.equal(graph(other).codes(), torch.matmul(other, other.mT).codes())


def test_posits_of_fake_tensors_are_one_error():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="cannot run on fake tensors"):
        x = posit.PositTensor(torch.randn(3, 3), posit.PositFormat(16, 2))
        torch.matmul(x, x)


_FORMAT = posit.PositFormat(8, 1)
_ONES = posit.encode(torch.ones(6, 6), _FORMAT)
_CALLS: dict[str, Any] = {
    "encode": lambda x: posit.encode(x, _FORMAT),
    "codes_product": lambda x: posit.matmul(posit.encode(x, _FORMAT), _ONES, _FORMAT),
    "posit_tensor": lambda x: posit.PositTensor(x, _FORMAT).codes(),
    "components": lambda x: _words(mcf.tensor(x, nc=2).exp()),
    "gemm": lambda x: ape.gemm(x, x, dtype="fp32-b"),
    "qr": lambda x: qr.householder_qr(x, high="fp32").R,
}


@pytest.mark.parametrize("name", _CALLS)
def test_compiled_library_call_runs_between_two_small_graphs(name):
    """Let torch compile no part of a library: it would take minutes, warn, and gain nothing."""
    call, sizes = _CALLS[name], []
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))

    def counted(module, inputs):
        sizes.append(sum(node.op.startswith("call") for node in module.graph.nodes))
        return module.forward

    compiled = torch.compile(lambda x: call(x * 2) * 1, backend=counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled(x)
    assert torch.equal(result, call(x * 2) * 1)
    assert len(sizes) <= 3 and sum(sizes) <= 3, sizes


def test_product_of_enabled_ape_is_one_error_where_torch_records():
    """Let no record hold plain products: jit.trace records above dispatch, where ape computes."""
    x = torch.randn(4, 4)
    with warnings.catch_warnings(), ape.enabled("fp32-b"):
        warnings.simplefilter("ignore")
        for record in (lambda f: torch.jit.trace(f, (x,)), lambda f: make_fx(f)(x)):
            with pytest.raises(RuntimeError, match="cannot record"):
                record(lambda x: x @ x)
